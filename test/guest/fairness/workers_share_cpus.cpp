// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// run: long
// timeout: 90
// transport: any
/*
 * The workers of a device leave the CPUs to programs, and work that is bound to a CPU goes on when
 * that CPU has no time.
 *
 * Holds: 64 queue pairs of two devices have more work than they can do, as packets or on the direct
 * path. The workers have one CPU. A thread that computes on this CPU keeps about a third of it, and
 * no queue pair is left behind. A thread of SCHED_FIFO posts and then polls without a pause. The
 * rest of its work is done on another CPU. Does not hold: the time that the network stack takes to
 * receive the packets (another CPU does that here, otherwise ksoftirqd takes its share, too); one
 * CPU and SCHED_FIFO, where the kernel's throttling of real-time threads leaves 5 %.
 */
#include "commands.hpp"
#include "counters.hpp"
#include "program.hpp"

#include <fstream>
#include <rdma/peal-abi.h>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::size_t pairs = 32, depth = 256, window = 4 << 20;

void must_run(const std::string &command)
{
	if (run(command))
		throw std::runtime_error("failed: " + command);
}

/*
 * Two devices in one namespace. Their packets to each other take the loopback interface. The core
 * asks for the MAC address on the veth pair, where no netdev of the same host answers, so the
 * neighbour entries are permanent.
 */
class Neighbours {
public:
	explicit Neighbours(bool direct)
	{
		must_run("ip link add busy_a address 02:00:00:00:77:0a type veth "
			 "peer name busy_b address 02:00:00:00:77:0b");
		must_run("ip address add 10.79.1.1/24 dev busy_a && ip link set busy_a up && "
			 "ip address add 10.79.2.1/24 dev busy_b && ip link set busy_b up");
		must_run("ip neighbour replace 10.79.2.1 lladdr 02:00:00:00:77:0b "
			 "nud permanent dev busy_a && "
			 "ip neighbour replace 10.79.1.1 lladdr 02:00:00:00:77:0a "
			 "nud permanent dev busy_b");
		for (const char *end : {"a", "b"}) {
			const auto name = std::string("peal_") + end;

			must_run("rdma link add " + name + " type peal netdev busy_" + end);
			must_run("build/user/userspace/tools/peal link set " + name + " direct " +
				 (direct ? "1" : "0"));
		}
	}
	~Neighbours()
	{
		run("rdma link delete peal_a; rdma link delete peal_b; ip link delete busy_a");
	}
	Neighbours(const Neighbours &) = delete;
	Neighbours &operator=(const Neighbours &) = delete;
};

void connect_ends(Endpoint &at, Endpoint &peer)
{
	auto attr = rtr_attr(at.device, peer.qp->qp_num, peer.device.gid());

	to_init(at.qp);
	must(ibv_modify_qp(at.qp, &attr, rtr_mask), "modify to RTR");
	to_rts(at.qp);
}

/* A queue pair of one device that sends to one of the other. */
struct Flow {
	Flow(Device &from, Device &to, ibv_qp_type type = IBV_QPT_RC)
		: a(from, options(type)), b(to, options(type)), source(a.pd, window),
		  target(b.pd, window)
	{
		if (type == IBV_QPT_UC) {
			connect_uc(a, b);
			connect_uc(b, a);
		} else {
			connect_ends(a, b);
			connect_ends(b, a);
		}
	}
	static QpOptions options(ibv_qp_type type)
	{
		QpOptions it;

		it.send_wr = depth;
		it.cqe = depth;
		it.type = type;
		return it;
	}
	void post_writes(std::size_t count, std::size_t bytes)
	{
		std::vector<Send> list;
		ibv_send_wr *bad = nullptr;

		for (std::size_t i = 0; i < count; i++)
			list.push_back(Send(IBV_WR_RDMA_WRITE, {source.sge(0, bytes)})
					       .remote(target.address(), target.rkey()));
		must(post_list(a.qp, list, &bad), "post_send");
	}
	/* Return: how many have completed. */
	std::size_t completed()
	{
		std::array<ibv_wc, depth> done{};
		const int n = ibv_poll_cq(a.send_cq, depth, done.data());

		for (int i = 0; i < n; i++)
			must_succeed(done[i]);
		return n;
	}
	Endpoint a, b;
	Region source, target;
};

/* While it lives, CPU 1 processes the packets that arrive at the loopback interface. */
class OtherCpuReceives {
public:
	OtherCpuReceives() { set(2); }
	~OtherCpuReceives() { set(0); }
	OtherCpuReceives(const OtherCpuReceives &) = delete;
	OtherCpuReceives &operator=(const OtherCpuReceives &) = delete;

private:
	static void set(int cpus)
	{
		std::ofstream("/sys/class/net/lo/queues/rx-0/rps_cpus") << cpus;
	}
};

Duration cpu_time()
{
	timespec used{};

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

/* Computes for that long. Return: the part of the time that this thread had the CPU. */
double share_of_cpu(Duration time)
{
	const auto before = cpu_time();
	const Stopwatch watch;

	while (watch.elapsed() < time)
		;
	return milliseconds(cpu_time() - before) / milliseconds(watch.elapsed());
}

std::uint64_t direct_messages()
{
	return counter("direct_messages", "peal_a") + counter("direct_messages", "peal_b");
}

/* The proof that packets pass comes with the first messages. */
bool all_go_direct(std::vector<std::unique_ptr<Flow>> &flows)
{
	const auto before = direct_messages();

	for (auto &flow : flows)
		flow->post_writes(1, 8);
	for (auto &flow : flows)
		wait_success(flow->a.send_cq);
	return direct_messages() - before == flows.size();
}

/*
 * UC does not wait for its peer, so each of its queue pairs always has something to send. Two
 * workers and this thread share the CPU. A third is 33 %, and the scheduler is not exact.
 */
void check_victim(bool direct)
{
	const Neighbours neighbours(direct);
	const OtherCpuReceives receiver;
	Device a("peal_a"), b("peal_b");
	std::vector<std::unique_ptr<Flow>> flows;
	const std::size_t bytes = direct ? window : 64 << 10;
	/* Work of the direct path needs no CPU of its own. Keep it from the other ones. */
	const std::string mask = "/sys/devices/virtual/workqueue/peal/cpumask";
	const auto cpus = read_command("cat " + mask);

	REQUIRE(pin(0));
	for (std::size_t i = 0; i < 2 * pairs; i++)
		flows.push_back(std::make_unique<Flow>(i % 2 ? b : a, i % 2 ? a : b,
						       direct ? IBV_QPT_RC : IBV_QPT_UC));
	if (direct)
		REQUIRE(eventually([&] { return all_go_direct(flows); }));
	std::ofstream(mask) << 1;
	for (auto &flow : flows)
		flow->post_writes(depth, bytes);
	for (auto &flow : flows)
		flow->completed();
	const double share = share_of_cpu(2s);
	std::size_t least = SIZE_MAX, most = 0, sum = 0;
	for (auto &flow : flows) {
		const auto completed = flow->completed();

		least = std::min(least, completed);
		most = std::max(most, completed);
		sum += completed;
	}
	std::ofstream(mask) << cpus;
	std::printf("a thread had %.0f %% of its CPU beside %zu queue pairs, which did %zu to %zu "
		    "requests, %zu in all\n",
		    100 * share, flows.size(), least, most, sum);
	CHECK(most < depth);
	/* A third, less what packets cost outside the workers: 29 to 30 % on a busy host. */
	CHECK(share > 0.25);
	CHECK(least > 0);
	CHECK(least * 4 > most);
}

/*
 * While it lives, the kernel does not throttle real-time threads. CPU 0 goes on with what the
 * network stack has left to ksoftirqd, without which no transport works there.
 */
class Unthrottled {
public:
	Unthrottled()
	{
		set("-1");
		must_run("chrt --fifo --pid 2 $(pgrep -x ksoftirqd/0)");
	}
	~Unthrottled()
	{
		run("chrt --other --pid 0 $(pgrep -x ksoftirqd/0)");
		set("950000");
	}
	Unthrottled(const Unthrottled &) = delete;
	Unthrottled &operator=(const Unthrottled &) = delete;

private:
	static void set(const char *us)
	{
		std::ofstream("/proc/sys/kernel/sched_rt_runtime_us") << us;
	}
};

/* Posts and polls as SCHED_FIFO, for so long at most. Return: how long the requests took. */
Duration spin_as_fifo(Flow &flow, std::size_t count, std::size_t bytes, Duration limit)
{
	const Unthrottled unthrottled;
	sched_param param{1};
	std::size_t done = 0;

	must(sched_setscheduler(0, SCHED_FIFO, &param) ? errno : 0, "sched_setscheduler");
	const Stopwatch watch;
	flow.post_writes(count, bytes);
	while (done < count && watch.elapsed() < limit)
		done += flow.completed();
	const auto took = watch.elapsed();
	param.sched_priority = 0;
	must(sched_setscheduler(0, SCHED_OTHER, &param) ? errno : 0, "sched_setscheduler");
	if (done < count)
		wait_success(flow.a.send_cq, count - done);
	return took;
}

void check_fifo(bool direct, ibv_qp_type type, std::size_t bytes)
{
	const Neighbours neighbours(direct);
	Device a("peal_a"), b("peal_b");
	Flow flow(a, b, type);
	constexpr std::size_t count = 16;

	REQUIRE(pin(0));
	if (direct)
		REQUIRE(eventually([&] {
			const auto before = direct_messages();

			flow.post_writes(1, 8);
			wait_success(flow.a.send_cq);
			return direct_messages() > before;
		}));
	/* The same without a rival shows how long it takes. */
	flow.post_writes(count, bytes);
	const Stopwatch watch;
	wait_success(flow.a.send_cq, count);
	const auto usual = watch.elapsed();
	const auto deferrals = counter("deferrals", "peal_a");
	const auto limit = 4s;
	const auto took = spin_as_fifo(flow, count, bytes, limit);
	std::printf("%zu requests: %.0f ms, %.0f ms beside a poller of SCHED_FIFO, %lu deferrals\n",
		    count, milliseconds(usual), milliseconds(took),
		    counter("deferrals", "peal_a") - deferrals);
	CHECK(took < limit);
}

} // namespace

TEST_CASE("a thread beside queue pairs that send packets")
{
	check_victim(false);
}

TEST_CASE("a thread beside queue pairs of two devices on the direct path")
{
	check_victim(true);
}

TEST_CASE("a poller of SCHED_FIFO, packets")
{
	if (std::thread::hardware_concurrency() < 2)
		SKIP_CASE("one CPU");
	check_fifo(false, IBV_QPT_UC, 1 << 20);
}

TEST_CASE("a poller of SCHED_FIFO, direct path")
{
	if (std::thread::hardware_concurrency() < 2)
		SKIP_CASE("one CPU");
	check_fifo(true, IBV_QPT_RC, 4 << 20);
}
