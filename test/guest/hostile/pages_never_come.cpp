// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
// transport: direct, thorough wire
/*
 * Programs whose regions with on-demand paging lie in a file whose pages never come (FUSE).
 *
 * Holds: They delay no other user's program, and some of them delay no other program of their own
 * user. They can be killed, also a program that serves its own file, and their objects go. Their
 * device, its network namespace and the module go soon, or the module is in use until the file
 * system ends. The kernel reports no hung task. A thorough run also holds: after 60 seconds the
 * message fails with its own reason.
 * Does not hold: a peer's page that does not come in 60 seconds.
 */
#include "stuck_file.hpp"
#include "usage.hpp"

#include <sched.h>
#include <sys/syscall.h>

using namespace peal_test;

namespace {

constexpr int nobody = 65534;
const Duration soon = 3s * slowness();

/* The kernel's log is an error of the test, so a task that hangs for two seconds fails it. */
class HungTasks {
public:
	HungTasks() { std::ofstream(path) << 2; }
	~HungTasks() { std::ofstream(path) << 120; }

private:
	static constexpr const char *path = "/proc/sys/kernel/hung_task_timeout_secs";
};

struct Flags {
	std::atomic<int> ready;
	std::atomic<bool> end;
};

Flags &flags()
{
	static auto *const place = static_cast<Flags *>(mmap(
		nullptr, sizeof(Flags), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	return *place;
}

/* Each region's WRITE waits for a page of the file. */
int wait_for_pages(const StuckFile &file, const std::string &name, std::size_t regions)
{
	/* Further than the kernel reads ahead. */
	constexpr std::size_t distance = 192 << 10;
	const std::uint8_t *base = file.map();
	Device device(name);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const Cq cq(create_cq(device, 1024));
	Region to(pd, page_bytes);
	std::vector<Mr> mrs;
	std::vector<Qp> qps;
	QpOptions small;

	small.send_wr = small.recv_wr = 4;
	for (std::size_t i = 0; i < regions; i++) {
		auto *page = const_cast<std::uint8_t *>(base + i * distance);
		Link link;

		link.timeout = 18; /* a second */
		mrs.emplace_back(ibv_reg_mr(pd, page, page_bytes, IBV_ACCESS_ON_DEMAND), "reg_mr");
		qps.push_back(create_qp(pd, cq, cq, small));
		connect_to(qps[i], device, qps[i]->qp_num, link);
	}
	for (std::size_t i = 0; i < regions; i++)
		post(qps[i], Send(IBV_WR_RDMA_WRITE,
				  {{reinterpret_cast<std::uintptr_t>(base + i * distance), 8,
				    mrs[i]->lkey}})
				     .remote(to.address(), to.rkey()));
	flags().ready++;
	eventually(
		[] {
			usleep(10000);
			return flags().end.load();
		},
		1000s);
	_exit(drain(cq).empty() ? 0 : 2);
}

/* A child of another user, unless the user is 0. */
pid_t start_stuck(const StuckFile &file, const std::string &name, std::size_t regions, int user)
{
	const int before = flags().ready;
	const pid_t child = spawn([&] {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (user && (setgid(user) || setuid(user)))
			return 1;
		return wait_for_pages(file, name, regions);
	});

	REQUIRE(eventually([&] { return flags().ready > before; }, 3 * patience));
	REQUIRE(eventually([&] { return file.reads() > 0; }));
	return child;
}

/* Return: whether the process has ended within this time. */
bool ends(pid_t child, Duration limit = soon)
{
	return eventually([&] { return waitpid(child, nullptr, WNOHANG) == child; }, limit);
}

bool can_be_killed(pid_t child)
{
	kill(child, SIGKILL);
	return ends(child);
}

/* Return: whether the command ends with this status in time. One that hangs is left behind. */
bool works_soon(const std::function<int()> &command, int status = 0)
{
	const Stopwatch watch;
	const pid_t child = spawn(command);
	int got = -1;
	const bool ended = eventually([&] { return waitpid(child, &got, WNOHANG) == child; }, soon);

	std::printf("it took %.0f ms\n", milliseconds(watch.elapsed()));
	return ended && WIFEXITED(got) && WEXITSTATUS(got) == status;
}

/* WRITEs between regions whose pages must come first, by a program of this user. */
int exchange_on_demand()
{
	constexpr std::size_t size = 4 * page_bytes;
	constexpr int access = all_access | IBV_ACCESS_ON_DEMAND;
	Device device;
	Pair pair(device);
	std::vector<Memory> memories;
	std::vector<Mr> mrs;

	for (int i = 0; i < 4; i++) {
		memories.emplace_back(size);
		mrs.emplace_back(ibv_reg_mr(i % 2 ? pair.b.pd.get() : pair.a.pd.get(),
					    memories[i].data(), size, access),
				 "reg_mr");
	}
	for (int i = 0; i < 4; i += 2) {
		fill_pattern(memories[i].bytes(0, size), i);
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {{memories[i].address(), size, mrs[i]->lkey}})
			     .remote(memories[i + 1].address(), mrs[i + 1]->rkey));
		wait_success(pair.a.send_cq, 1, soon);
		if (difference(memories[i + 1].bytes(0, size), memories[i].bytes(0, size)) != "")
			return 3;
	}
	return 0;
}

/* A device of its own for tests that remove it. */
constexpr const char *own = "peal7";

void make_own_device(const std::string &in = "")
{
	const auto there = in.empty() ? in : "ip netns exec " + in + " ";

	REQUIRE(run("modprobe dummy; " + there + "ip link add stuck0 type dummy && " + there +
		    "ip address add 10.79.7.1/24 dev stuck0 && " + there +
		    "ip link set stuck0 up && " + there + "rdma link add " + own +
		    " type peal netdev stuck0") == 0);
}

bool exists(const std::string &device)
{
	return std::filesystem::exists("/sys/class/infiniband/" + device);
}

} // namespace

TEST_CASE("they delay no other user")
{
	NEEDS_ON_DEMAND_PAGING(Device());
	const HungTasks hung;
	const StuckFile file;
	const pid_t child = start_stuck(file, device_name(), 300, nobody);

	CHECK(works_soon(exchange_on_demand));
	CHECK(can_be_killed(child));
}

TEST_CASE("one of them delays no other program of its user")
{
	NEEDS_ON_DEMAND_PAGING(Device());
	const HungTasks hung;
	const StuckFile file;
	const pid_t child = start_stuck(file, device_name(), 300, 0);

	CHECK(works_soon(exchange_on_demand));
	CHECK(can_be_killed(child));
}

TEST_CASE("they can be killed, and their objects go")
{
	NEEDS_ON_DEMAND_PAGING(Device());
	const HungTasks hung;
	const StuckFile file;
	const auto before = resources();
	const pid_t child = start_stuck(file, device_name(), 20, 0);

	CHECK(resources() != before);
	CHECK(can_be_killed(child));
	CHECK(eventually([&] { return resources() == before; }));
}

TEST_CASE("a program that serves its own file can be killed")
{
	NEEDS_ON_DEMAND_PAGING(Device());
	const HungTasks hung;
	const auto before = resources();
	const int ready = flags().ready;
	const pid_t child = spawn([] {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		const StuckFile file(true);
		std::thread([&] {
			eventually([&] { return file.reads() > 0; });
			flags().ready++;
		}).detach();
		return wait_for_pages(file, device_name(), 20);
	});

	REQUIRE(eventually([&] { return flags().ready == ready + 2; }, 3 * patience));
	CHECK(can_be_killed(child));
	CHECK(eventually([&] { return resources() == before; }));
	run("umount -l /tmp/stuck-*");
}

TEST_CASE("their device is removed under them")
{
	NEEDS_ON_DEMAND_PAGING(Device());
	const HungTasks hung;
	const StuckFile file;

	make_own_device();
	const pid_t child = start_stuck(file, own, 20, 0);
	CHECK(works_soon([] { return run(std::string("rdma link delete ") + own) != 0; }));
	CHECK(!exists(own));
	CHECK(can_be_killed(child));
	run("ip link delete stuck0");
}

TEST_CASE("their region is deregistered under a prefetch")
{
	NEEDS_ON_DEMAND_PAGING(Device());
	const HungTasks hung;
	const StuckFile file;
	const int before = flags().ready;
	const pid_t child = spawn([&] {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		auto *page = const_cast<std::uint8_t *>(file.map());
		Device device;
		Pd pd(ibv_alloc_pd(device), "alloc_pd");
		ibv_mr *mr = ibv_reg_mr(pd, page, page_bytes, IBV_ACCESS_ON_DEMAND);
		ibv_sge sge{reinterpret_cast<std::uintptr_t>(page), 8, mr->lkey};

		std::thread([&] {
			ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH,
				      &sge, 1);
			_exit(4);
		}).detach();
		eventually([&] { return file.reads() > 0; });
		if (ibv_dereg_mr(mr))
			return 5;
		flags().ready++;
		eventually(
			[] {
				usleep(10000);
				return false;
			},
			1000s);
		return 6;
	});

	CHECK(eventually([&] { return flags().ready > before; }, soon + patience));
	CHECK(can_be_killed(child));
}

TEST_CASE("their network namespace ends")
{
	NEEDS_ON_DEMAND_PAGING(Device());
	const HungTasks hung;
	const StuckFile file;

	REQUIRE(run("ip netns add stuck") == 0);
	make_own_device("stuck");
	const pid_t child = start_stuck(file, own, 20, 0);
	CHECK(works_soon([] { return run("ip netns delete stuck") != 0; }));
	CHECK(eventually([] { return !exists(own); }, soon));
	CHECK(can_be_killed(child));
}

TEST_CASE("after 60 seconds the message fails")
{
	NEEDS_ON_DEMAND_PAGING(Device());
	if (!std::getenv("PEAL_THOROUGH"))
		SKIP_CASE("it takes a minute");
	const HungTasks hung;
	const StuckFile file;
	auto *page = const_cast<std::uint8_t *>(file.map());
	Device device;
	Pair pair(device);
	const Region to(pair.b.pd, page_bytes);
	const Mr mr(ibv_reg_mr(pair.a.pd, page, page_bytes, IBV_ACCESS_ON_DEMAND), "reg_mr");
	const Stopwatch watch;

	post(pair.a.qp,
	     Send(IBV_WR_RDMA_WRITE, {{reinterpret_cast<std::uintptr_t>(page), 8, mr->lkey}})
		     .remote(to.address(), to.rkey()));
	check_status(wait_completion(pair.a.send_cq, 65s + patience), IBV_WC_LOC_PROT_ERR,
		     PEAL_REASON_PAGE_LATE);
	CHECK(watch.elapsed() > 59s);
}

TEST_CASE("the module goes, or says that it is in use")
{
	NEEDS_ON_DEMAND_PAGING(Device());
	const HungTasks hung;
	const auto links = read_command("rdma link show | awk '{ print $2 }'");
	const auto remove = [] {
		return syscall(SYS_delete_module, "peal", O_NONBLOCK) ? errno : 0;
	};
	pid_t child;
	{
		const StuckFile file;

		child = start_stuck(file, device_name(), 20, 0);
		CHECK(works_soon(remove, EWOULDBLOCK));
		CHECK(exists(device_name()));
		CHECK(works_soon([] { return run("rdma link delete " + device_name()) != 0; }));
		CHECK(works_soon(remove, EWOULDBLOCK));
	}
	/* The file system has ended, and with it the wait for its pages. */
	CHECK(eventually([&] { return works_soon(remove); }));
	CHECK(can_be_killed(child));
	REQUIRE(run("modprobe peal && rdma link add " + device_name() +
		    " type peal netdev veth0 && bash -c 'source " PEAL_SOURCE
		    "/test/guest/helpers/lib.sh && peal_up'") == 0);
	CHECK(read_command("rdma link show | awk '{ print $2 }'") == links);
	CHECK(exchange_on_demand() == 0);
}
