// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
/*
 * A program reads and writes only memory that it was given a key for, and takes only what it
 * may have.
 *
 * Holds: The test tries every way in which a request touches memory, with every kind of key that
 * does not open that memory. Nothing is written there, nothing of it is read, and the request
 * fails. The same request with a right key works. Keys cannot be counted and are not used again
 * soon. The limits of the control group hold. Ordinary users get no raw packets and no high service
 * levels. A flood leaves other programs their turn.
 * Does not hold: the reason of each failure (verbs/failed_requests, verbs/memory_windows), pinned
 * memory (verbs/memory_regions), which devices a network namespace sees
 * (lifecycle/network_changes).
 */
#include "commands.hpp"
#include "datagram.hpp"
#include "innocent.hpp"

#include <linux/capability.h>
#include <set>
#include <sys/syscall.h>

using namespace peal_test;

namespace {

constexpr std::uint8_t secret = 0xa7, blank = 0x11, public_byte = 0x42;
constexpr std::uint64_t eight_secrets = 0xa7a7a7a7a7a7a7a7;
constexpr std::size_t piece = 64;

/* A key, and memory that it must not open. */
struct Target {
	std::string name;
	std::uint32_t key;
	std::uint64_t address;
	bool local = true;     /* the key must not work as an lkey either */
	bool readable = false; /* for every queue pair in its protection domain */
};

/* --------------------------------------------------------------------- the attacker */

QpOptions of_type(ibv_qp_type type)
{
	QpOptions options;

	options.type = type;
	return options;
}

void connect_qp(Device &device, ibv_qp *qp, std::uint32_t peer, ibv_qp_type type)
{
	const int not_uc = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	auto rtr = rtr_attr(device, peer, device.gid());
	auto rts = rts_attr();
	Link link;

	if (type == IBV_QPT_UD)
		return ud_ready(qp);
	if (type == IBV_QPT_RC)
		return connect_to(qp, device, peer);
	link.access = IBV_ACCESS_REMOTE_WRITE;
	to_init(qp, link);
	must(ibv_modify_qp(qp, &rtr, rtr_mask & ~not_uc), "modify to RTR");
	must(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN), "modify to RTS");
}

/* Two connected queue pairs of one program, and memory of its own. */
struct Attacker {
	Attacker(Device &on, ibv_pd *domain, ibv_qp_type type)
		: pd(domain), send_cq(create_cq(on, 64)), recv_cq(create_cq(on, 64)),
		  a(create_qp(pd, send_cq, recv_cq, of_type(type))),
		  b(create_qp(pd, send_cq, recv_cq, of_type(type))), own(pd, page_bytes),
		  sink(pd, page_bytes), to_self(create_ah(pd, on))
	{
		connect_qp(on, a, b->qp_num, type);
		connect_qp(on, b, a->qp_num, type);
		std::memset(own.data(), public_byte, own.size());
		std::memset(sink.data(), blank, sink.size());
	}
	/* Return: whether the request succeeded, and with it the receive that it used. */
	bool finish(bool receives)
	{
		if (wait_completion(send_cq).status != IBV_WC_SUCCESS)
			return false;
		return !receives || wait_completion(recv_cq).status == IBV_WC_SUCCESS;
	}

	ibv_pd *pd;
	Cq send_cq, recv_cq;
	Qp a, b;
	Region own, sink;
	Ah to_self;
};

/* ------------------------------------------------------------- ways to touch memory */

struct Way {
	const char *name;
	ibv_qp_type type;
	bool remote; /* the target's key is an rkey, otherwise an lkey */
	bool writes; /* it writes to the target */
	/* Return: whether it worked, as far as the program can see. */
	std::function<bool(Attacker &, const Target &)> attempt;
};

/* The target is at the other end. */
Way remote_way(const char *name, ibv_wr_opcode opcode)
{
	return {name, IBV_QPT_RC, true, opcode != IBV_WR_RDMA_READ,
		[opcode](Attacker &by, const Target &target) {
			post_recv(by.b, 0, {});
			post(by.a, Send(opcode, {by.own.sge(0, piece)})
					   .remote(target.address, target.key));
			return by.finish(opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
		}};
}

/* An atomic that would change the target. */
Way remote_atomic(const char *name, ibv_wr_opcode opcode)
{
	return {name, IBV_QPT_RC, true, true, [opcode](Attacker &by, const Target &target) {
			post(by.a, Send(opcode, {by.own.sge(0, 8)})
					   .atomic(target.address, target.key, eight_secrets, 0));
			return by.finish(false);
		}};
}

/* The data to send is taken from the target. */
Way gather(const char *name, ibv_wr_opcode opcode, ibv_qp_type type = IBV_QPT_RC)
{
	return {name, type, false, false, [=](Attacker &by, const Target &target) {
			Send send(opcode, {{target.address, piece, target.key}});

			post_recv(by.b, 0, {by.sink.sge(0, grh_bytes + piece)});
			send.remote(by.sink.address(), by.sink.rkey());
			if (type == IBV_QPT_UD)
				send.wr.wr.ud = {by.to_self, by.b->qp_num, common_qkey};
			post(by.a, std::move(send));
			return by.finish(opcode == IBV_WR_SEND);
		}};
}

/* The data that arrives is put into the target. */
Way scatter(const char *name, ibv_wr_opcode opcode, std::uint32_t length)
{
	return {name, IBV_QPT_RC, false, true, [=](Attacker &by, const Target &target) {
			Send send(opcode, {{target.address, length, target.key}});

			if (opcode == IBV_WR_RDMA_READ)
				send.remote(by.own.address(), by.own.rkey());
			else
				send.atomic(by.own.address(), by.own.rkey(), 0);
			post(by.a, std::move(send));
			return by.finish(false);
		}};
}

bool receive_into(Attacker &by, const Target &target)
{
	post_recv(by.b, 0, {{target.address, piece, target.key}});
	post(by.a, Send(IBV_WR_SEND, {by.own.sge(0, piece)}));
	return by.finish(true);
}

std::vector<Way> all_ways()
{
	return {
		remote_way("WRITE", IBV_WR_RDMA_WRITE),
		remote_way("WRITE with immediate", IBV_WR_RDMA_WRITE_WITH_IMM),
		remote_way("READ", IBV_WR_RDMA_READ),
		remote_atomic("fetch and add", IBV_WR_ATOMIC_FETCH_AND_ADD),
		remote_atomic("compare and swap", IBV_WR_ATOMIC_CMP_AND_SWP),
		gather("gather of a SEND", IBV_WR_SEND),
		gather("gather of a WRITE", IBV_WR_RDMA_WRITE),
		gather("gather of an unreliable SEND", IBV_WR_SEND, IBV_QPT_UC),
		gather("gather of a datagram", IBV_WR_SEND, IBV_QPT_UD),
		scatter("scatter of a READ", IBV_WR_RDMA_READ, piece),
		scatter("result of an atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 8),
		{"scatter of a receive", IBV_QPT_RC, false, true, receive_into},
	};
}

/* ---------------------------------------------------------------- what is not his own */

/* Memory that is shared with a child process. */
class Shared {
public:
	Shared()
		: base_(mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0))
	{
		if (base_ == MAP_FAILED)
			throw_errno("mmap");
	}
	~Shared() { munmap(base_, page_bytes); }
	Shared(const Shared &) = delete;
	Shared &operator=(const Shared &) = delete;
	std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(base_); }
	std::span<std::uint8_t> bytes() const
	{
		return {static_cast<std::uint8_t *>(base_), page_bytes};
	}

private:
	void *base_;
};

/* A process that has registered that memory. It ends with this object. */
class Stranger {
public:
	explicit Stranger(const Shared &memory)
	{
		if (pipe(key_pipe_) || pipe(end_pipe_))
			throw_errno("pipe");
		child_ = spawn([&] { return live(memory); });
		if (read(key_pipe_[0], &key_, sizeof(key_)) != sizeof(key_))
			throw std::runtime_error("the other process has no key");
	}
	~Stranger()
	{
		for (int fd : {end_pipe_[0], end_pipe_[1], key_pipe_[0], key_pipe_[1]})
			close(fd);
		waitpid(child_, nullptr, 0);
	}
	Stranger(const Stranger &) = delete;
	Stranger &operator=(const Stranger &) = delete;
	std::uint32_t key() const { return key_; }

private:
	int live(const Shared &memory) const
	{
		Device device;
		Pd pd(ibv_alloc_pd(device), "alloc_pd");
		Mr mr(ibv_reg_mr(pd, memory.bytes().data(), page_bytes, all_access), "reg_mr");
		const std::uint32_t key = mr->rkey;
		char byte = 0;

		close(end_pipe_[1]);
		if (write(key_pipe_[1], &key, sizeof(key)) != sizeof(key))
			return 1;
		return read(end_pipe_[0], &byte, 1) ? 1 : 0;
	}

	int key_pipe_[2]{}, end_pipe_[2]{};
	pid_t child_ = -1;
	std::uint32_t key_ = 0;
};

/*
 * Windows in the attacker's protection domain or in another one, on queue pairs of another program.
 */
class Windows {
public:
	Windows(Device &device, ibv_pd *pd)
		: owner_(device, pd, IBV_QPT_RC),
		  region_(pd, page_bytes, all_access | IBV_ACCESS_MW_BIND)
	{
		for (auto type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_MW_TYPE_2, IBV_MW_TYPE_2})
			windows_.emplace_back(ibv_alloc_mw(pd, type), "alloc_mw");
		bind_type_1(windows_[0]);
		bind_type_2(windows_[1]);
		bind_type_2(windows_[2]);
		invalidate(windows_[2]);
	}
	std::span<std::uint8_t> bytes() const { return region_.bytes(0, page_bytes); }
	Target type_1(const std::string &name) const { return target(0, name); }
	Target type_2(const std::string &name) const { return target(1, name); }
	Target invalidated() const { return target(2, "an invalidated window"); }
	Target unbound() const { return target(3, "a window that was never bound"); }

private:
	Target target(std::size_t i, const std::string &name) const
	{
		return {name, windows_[i]->rkey, region_.address()};
	}
	ibv_mw_bind_info info() const
	{
		return {region_.mr(), region_.address(), page_bytes,
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC};
	}
	void bind_type_1(ibv_mw *window)
	{
		ibv_mw_bind bind{};

		bind.bind_info = info();
		bind.send_flags = IBV_SEND_SIGNALED;
		must(ibv_bind_mw(owner_.a, window, &bind), "bind_mw");
		wait_success(owner_.send_cq);
	}
	void bind_type_2(ibv_mw *window)
	{
		Send send(IBV_WR_BIND_MW);

		send.wr.bind_mw = {window, ibv_inc_rkey(window->rkey), info()};
		post(owner_.a, send);
		wait_success(owner_.send_cq);
		window->rkey = ibv_inc_rkey(window->rkey);
	}
	void invalidate(ibv_mw *window)
	{
		Send send(IBV_WR_LOCAL_INV);

		send.wr.invalidate_rkey = window->rkey;
		post(owner_.a, send);
		wait_success(owner_.send_cq);
	}

	Attacker owner_;
	Region region_;
	std::vector<Mw> windows_;
};

/* All that an attacker in protection domain `pd` must not reach. */
class Vault {
public:
	Vault(Device &device, ibv_pd *pd)
		: other_pd_(ibv_alloc_pd(device), "alloc_pd"),
		  other_context_pd_(ibv_alloc_pd(other_device_), "alloc_pd"),
		  foreign_(other_pd_, page_bytes), elsewhere_(other_context_pd_, page_bytes),
		  readable_(pd, page_bytes, IBV_ACCESS_REMOTE_READ),
		  private_(pd, page_bytes, IBV_ACCESS_LOCAL_WRITE), gone_(pd, page_bytes),
		  edge_(3 * page_bytes),
		  edge_mr_(ibv_reg_mr(pd, edge_.data() + page_bytes, page_bytes, all_access),
			   "reg_mr"),
		  windows_(device, pd), foreign_windows_(device, other_pd_)
	{
		const std::uint64_t edge = edge_.address(page_bytes);
		const std::uint32_t gone = gone_.rkey();

		gone_.deregister();
		for (const auto &bytes : all())
			std::memset(bytes.data(), secret, bytes.size());
		targets_ = {
			{"a region of another protection domain", foreign_.rkey(),
			 foreign_.address()},
			{"a region of another context", elsewhere_.rkey(), elsewhere_.address()},
			{"a region of another process", stranger_.key(), shared_.address()},
			{"a deregistered region", gone, gone_.address()},
			{"the end of a region, and more", edge_mr_->rkey, edge + page_bytes - 4},
			{"the start of a region, and what is before", edge_mr_->rkey, edge - 4},
			{"an address behind a region", edge_mr_->rkey, edge + page_bytes},
			{"an address at the other end of the world", edge_mr_->rkey, ~0ULL - 7},
			{"a region that can only be read", readable_.rkey(), readable_.address(),
			 true, true},
			{"a region without rights for others", private_.rkey(), private_.address(),
			 false},
			{"a key with one bit wrong", private_.rkey() ^ 1, private_.address()},
			{"key 0", 0, private_.address()},
			{"a key of ones", ~0U, private_.address()},
			windows_.type_2("another queue pair's window"),
			windows_.invalidated(),
			windows_.unbound(),
			foreign_windows_.type_1("another protection domain's window, type 1"),
			foreign_windows_.type_2("another protection domain's window, type 2"),
		};
	}
	const std::vector<Target> &targets() const { return targets_; }
	bool untouched() const
	{
		const auto bytes = all();

		return std::all_of(bytes.begin(), bytes.end(),
				   [](const auto &some) { return all_equal(some, secret); });
	}

private:
	std::vector<std::span<std::uint8_t>> all() const
	{
		return {foreign_.bytes(0, page_bytes),
			elsewhere_.bytes(0, page_bytes),
			readable_.bytes(0, page_bytes),
			private_.bytes(0, page_bytes),
			gone_.bytes(0, page_bytes),
			edge_.bytes(0, 3 * page_bytes),
			windows_.bytes(),
			foreign_windows_.bytes(),
			shared_.bytes()};
	}

	Device other_device_;
	Pd other_pd_, other_context_pd_;
	Region foreign_, elsewhere_, readable_, private_, gone_;
	Memory edge_;
	Mr edge_mr_;
	Windows windows_, foreign_windows_;
	Shared shared_;
	Stranger stranger_{shared_};
	std::vector<Target> targets_;
};

/* -------------------------------------------------------------------------- attacks */

bool forbidden(const Way &way, const Target &target)
{
	return (way.writes || !target.readable) && (way.remote || target.local);
}

void attack(Device &device, ibv_pd *pd, const Way &way, const Target &target, const Vault &vault)
{
	INFO(way.name << " with " << target.name);
	Attacker attacker(device, pd, way.type);

	CHECK_FALSE(way.attempt(attacker, target));
	CHECK(vault.untouched());
	CHECK(all_equal(attacker.sink.bytes(0, page_bytes), blank));
	CHECK(all_equal(attacker.own.bytes(0, page_bytes), public_byte));
}

/* The same request with a key of its own works, so it is the key that fails. */
void check_works(Device &device, ibv_pd *pd, const Way &way)
{
	INFO(way.name << " with a key of its own");
	Attacker attacker(device, pd, way.type);
	Region region(pd, page_bytes);

	CHECK(way.attempt(attacker, {"", region.rkey(), region.address()}));
}

/* ---------------------------------------------------------------------------- limits */

/* A control group with this limit for the device. It goes when its last member ends. */
class Group {
public:
	explicit Group(const std::string &limit)
	{
		if (run("mkdir -p /run/groups && mount -t cgroup2 none /run/groups && "
			"echo +rdma >/run/groups/cgroup.subtree_control && mkdir " +
			folder_ + " && echo '" + limit + "' >" + folder_ + "/rdma.max"))
			throw std::runtime_error("cannot make a control group");
	}
	~Group() { run("rmdir " + folder_ + "; umount /run/groups"); }
	Group(const Group &) = delete;
	Group &operator=(const Group &) = delete;
	std::string in_use() const { return read_command("cat " + folder_ + "/rdma.current"); }
	void enter() const { std::ofstream(folder_ + "/cgroup.procs") << getpid() << std::flush; }

private:
	const std::string folder_ = "/run/groups/peal";
};

constexpr int most_objects = 12;

/* Runs in the group. Return: 0, or a number that says which check failed. */
int use_up(const Group &group)
{
	group.enter();
	Device device;
	std::vector<Pd> pds;

	if (ibv_open_device(device.context()->device))
		return 1; /* one was allowed */
	for (;;) {
		auto *pd = ibv_alloc_pd(device);
		if (!pd)
			break;
		pds.emplace_back(pd, "alloc_pd");
		if (pds.size() > most_objects)
			return 2;
	}
	if (errno != EAGAIN)
		return 3;
	pds.pop_back();
	/* Objects that were given back can be had again. */
	return ibv_create_cq(device, 1, nullptr, nullptr, 0) ? 0 : 4;
}

/* Runs as an ordinary user. Return: 0, or a number that says which check failed. */
int be_user()
{
	if (setgid(65534) || setuid(65534))
		return 1;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 1));
	auto init = init_attributes(pd, cq, cq, of_type(IBV_QPT_RAW_PACKET));
	Endpoint endpoint(device, of_type(IBV_QPT_UD));
	ibv_flow_attr flow{};

	if (ibv_create_qp_ex(device, &init))
		return 2;
	flow.type = IBV_FLOW_ATTR_SNIFFER;
	flow.size = sizeof(flow);
	flow.port = 1;
	return ibv_create_flow(endpoint.qp, &flow) ? 3 : 0;
}

constexpr unsigned no_capability = 0;

/* The calling process keeps these capabilities and loses all others. */
void keep_capabilities(unsigned kept)
{
	__user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
	std::array<__user_cap_data_struct, 2> data{};

	data[0].effective = data[0].permitted = kept;
	if (syscall(SYS_capset, &header, data.data()))
		throw_errno("capset");
}

/* The errors of ibv_create_ah, and of ibv_modify_qp to RTR, with this service level. */
std::array<int, 2> errors_of_level(std::uint8_t level)
{
	Device device;
	Endpoint end(device);
	auto handle = ah_attr(static_cast<std::uint8_t>(device.gid_index()), device.gid());
	auto rtr = rtr_attr(device, end.qp->qp_num, device.gid());

	to_init(end.qp);
	handle.sl = rtr.ah_attr.sl = level;
	ibv_ah *ah = ibv_create_ah(end.pd, &handle);
	const int error = ah ? 0 : errno;
	if (ah)
		ibv_destroy_ah(ah);
	return {error, ibv_modify_qp(end.qp, &rtr, rtr_mask)};
}

/* Runs in a process with these capabilities. Return: 0, or the level that was wrong. */
int ask_levels(unsigned capabilities)
{
	const int above = capabilities ? 0 : EPERM;

	keep_capabilities(capabilities);
	for (const int level : {0, 6, 7, 15}) {
		const int expected = level > 6 ? above : 0;
		const auto errors = errors_of_level(static_cast<std::uint8_t>(level));
		if (errors != std::array{expected, expected}) {
			std::printf("level %d: expected %s, create_ah said %s, modify_qp %s\n",
				    level, errno_name(expected).c_str(),
				    errno_name(errors[0]).c_str(), errno_name(errors[1]).c_str());
			return 10 + level;
		}
	}
	return 0;
}

constexpr std::size_t flood_bytes = 1 << 20;
constexpr std::uint32_t flood_depth = 16;

/* Sixteen queue pairs that are kept full for ever. */
/*
 * The packets of two floods wait in one queue. On a machine that is busy with other things, too,
 * they may wait for longer than the usual timeout, which is not what the test is about.
 */
Link patient()
{
	Link link;

	link.timeout = 17; /* 0.5 s */
	return link;
}

int flood()
{
	Device device;
	Endpoint first(device);
	Region memory(first.pd, flood_bytes);
	std::vector<Qp> qps;
	const auto post_all = [&](std::uint64_t i) {
		for (std::uint32_t n = 1; n <= flood_depth; n++)
			post(qps[i], Send(IBV_WR_RDMA_WRITE, {memory.sge(0, flood_bytes)})
					     .id(i)
					     .flags(n == flood_depth ? IBV_SEND_SIGNALED : 0)
					     .remote(memory.address(), memory.rkey()));
	};

	for (std::uint64_t i = 0; i < 16; i++) {
		qps.push_back(create_qp(first.pd, first.send_cq, first.recv_cq));
		connect_to(qps[i], device, qps[i]->qp_num, patient());
		post_all(i);
	}
	for (;;)
		for (const auto &wc : drain(first.send_cq)) {
			must_succeed(wc);
			post_all(wc.wr_id);
		}
}

} // namespace

TEST_CASE("memory without a matching key stays unchanged")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Vault vault(device, pd);
	int attacks = 0;

	for (const auto &way : all_ways()) {
		check_works(device, pd, way);
		for (const auto &target : vault.targets())
			if (forbidden(way, target)) {
				attack(device, pd, way, target, vault);
				attacks++;
			}
	}
	CHECK(vault.untouched());
	std::printf("%d attacks\n", attacks);
}

TEST_CASE("keys cannot be counted, and do not come back soon")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory memory(page_bytes);
	std::vector<Mr> regions;
	std::set<std::uint32_t> steps, keys;

	for (int i = 0; i < 256; i++) {
		regions.emplace_back(ibv_reg_mr(pd, memory.data(), page_bytes, all_access),
				     "reg_mr");
		if (i)
			steps.insert(regions[i]->rkey - regions[i - 1]->rkey);
	}
	/* About 200 of 255 differences between random bytes are distinct. */
	CHECK(steps.size() > 100);
	regions.clear();
	for (int i = 0; i < 5000; i++)
		keys.insert(
			Mr(ibv_reg_mr(pd, memory.data(), page_bytes, all_access), "reg_mr")->rkey);
	CHECK(keys.size() == 5000);
}

TEST_CASE("a control group limits what its programs have")
{
	const Group group(device_name() +
			  " hca_handle=1 hca_object=" + std::to_string(most_objects));

	CHECK(in_child([&] { return use_up(group); }) == 0);
	const std::string none = "hca_handle=0 hca_object=0";
	CHECK(eventually([&] { return group.in_use().find(none) != std::string::npos; }));
	/* This process is not in the group. */
	Device one, other;
	std::vector<Pd> pds;
	for (int i = 0; i < 2 * most_objects; i++)
		pds.emplace_back(ibv_alloc_pd(one), "alloc_pd");
}

TEST_CASE("users get no raw packets")
{
	CHECK(in_child(be_user) == 0);
}

TEST_CASE("a service level above 6 needs what SO_PRIORITY needs")
{
	for (const unsigned capabilities :
	     {no_capability, 1U << CAP_NET_RAW, 1U << CAP_NET_ADMIN}) {
		INFO("capabilities " << capabilities);
		CHECK(in_child([=] {
			      const int result = ask_levels(capabilities);
			      std::fflush(stdout);
			      return result;
		      }) == 0);
	}
}

TEST_CASE("a flood leaves others their turn")
{
	Device device;
	Innocent innocent(device, patient());
	const std::array floods{spawn(flood), spawn(flood)};

	/* Each message must arrive within the usual time. */
	const Stopwatch watch;
	while (innocent.messages() < 20 || watch.elapsed() < 2s)
		innocent.message();
	for (const pid_t child : floods) {
		int status = 0;
		CHECK(waitpid(child, &status, WNOHANG) == 0);
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
	}
	std::printf("%llu messages beside the flood\n",
		    static_cast<unsigned long long>(innocent.messages()));
}
