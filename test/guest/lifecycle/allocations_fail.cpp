// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: direct, thorough wire
// run: long
// timeout: 600
/*
 * Every allocation in the kernel may fail. The test repeats each call that creates something. It
 * lets the first allocation fail, then the second and so on, until the call needs no further one.
 * The module peal_kfail makes the allocations fail. KFAIL_OPTIONS=trace=1 logs the stack of each.
 *
 * Holds: A call that fails returns ENOMEM and leaves nothing behind. A call that succeeds has
 * created an object that works. Destroying objects and moving data need no memory.
 * Does not hold: allocations that other tasks make on behalf of a call.
 */
#include "exchange.hpp"
#include "faults.hpp"
#include "frames.hpp"
#include "netlink.hpp"
#include "usage.hpp"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <sys/syscall.h>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::array ways{Which::one, Which::from};

/* ------------------------------------------------- resources and leaks */

/* The resources that are cheap enough to compare after each call. */
struct Footprint {
	std::size_t files = 0;
	long pinned = number_in("/proc/self/status", "VmPin:");
	std::string module_users;

	Footprint()
	{
		for ([[maybe_unused]] const auto &entry :
		     std::filesystem::directory_iterator("/proc/self/fd"))
			files++;
		std::getline(std::ifstream("/sys/module/peal/refcnt"), module_users);
	}
	bool operator==(const Footprint &other) const = default;
};

std::ostream &operator<<(std::ostream &out, const Footprint &it)
{
	return out << it.files << " files, " << it.pinned << " kB pinned, " << it.module_users
		   << " users of the module";
}

/* Repeats of each failure, so that a leak exceeds the allocations of other tasks. */
constexpr int repetitions = 100;

/* A slab cache of the kernel, one line of /proc/slabinfo. */
struct Cache {
	std::string name;
	long active = 0, total = 0, bytes = 0, per_slab = 0;

	bool read(const std::string &line)
	{
		std::istringstream fields(line);
		return static_cast<bool>(fields >> name >> active >> total >> bytes >> per_slab);
	}
	/* The caches that kmalloc() and xarrays use. */
	bool watched() const { return name.starts_with("kmalloc") || name == "radix_tree_node"; }
	/* In a slab that belongs to a CPU, all objects count as active. */
	long noise() const
	{
		return std::max<long>(repetitions, std::thread::hardware_concurrency() * per_slab);
	}
};

using Caches = std::map<std::string, Cache>;

Caches read_caches()
{
	Caches caches;
	std::ifstream file("/proc/slabinfo");
	std::string line;
	Cache cache;

	while (std::getline(file, line))
		if (cache.read(line) && cache.watched())
			caches[cache.name] = cache;
	return caches;
}

/* Frees the slabs of the CPUs and the objects that kfree_rcu() has collected, then counts. */
Caches exact_caches()
{
	std::ofstream("/proc/sys/vm/drop_caches") << 2;
	for (const auto &[name, cache] : read_caches())
		std::ofstream("/sys/kernel/slab/" + name + "/shrink") << 1;
	return read_caches();
}

/* Describes the first cache that has grown as much as by a leak. Empty if there is none. */
std::string growth(const Caches &before)
{
	for (const auto &[name, cache] : exact_caches()) {
		const long more = cache.active - before.at(name).active;
		if (more >= cache.noise())
			return name + " has " + std::to_string(more) + " objects more";
	}
	return {};
}

/*
 * The pauses get longer, because counting itself creates objects that kfree_rcu() frees only after
 * seconds. Within a second, these are more objects than a leak would have.
 */
void check_growth(const Caches &before)
{
	auto more = growth(before);
	Duration pause = 1s * slowness();

	for (int looks = 0; !more.empty() && looks < 5; looks++, pause *= 2) {
		std::this_thread::sleep_for(pause);
		more = growth(before);
	}
	CHECK(more == "");
}

/* ------------------------------------------------------------ one verb */

struct Verb {
	std::string name;
	std::function<int()> call;  /* returns 0 or errno */
	std::function<void()> undo; /* reverts a successful call */
	std::set<std::string> errors{"ENOMEM"};
	std::function<void()> prepare = [] {}; /* runs before the failures */
};

struct Outcome {
	int error;
	int failed; /* number of allocations that failed */
};

Outcome starve(const Faults &faults, const Verb &verb, Which which, unsigned long number)
{
	verb.prepare();
	faults.start(which, number);
	const int error = verb.call();
	const int failed = faults.stop();

	if (!error)
		verb.undo();
	return {error, failed};
}

Outcome try_verb(const Faults &faults, const Verb &verb, Which which, unsigned long number)
{
	const Footprint before;
	const auto outcome = starve(faults, verb, which, number);
	const auto [error, failed] = outcome;

	INFO(verb.name << ", allocation " << number << (which == Which::from ? " and later" : "")
		       << ": " << errno_name(error));
	CHECK((!error || verb.errors.count(errno_name(error))));
	CHECK((failed || !error));
	if (!eventually([&] { return Footprint() == before; }))
		CHECK(Footprint() == before);
	return outcome;
}

void work(const Verb &verb)
{
	verb.prepare();
	must(verb.call(), verb.name + " with all memory");
	verb.undo();
}

struct Sweep {
	unsigned long allocations, refused;
};

/* Lets each allocation fail in turn. Counts them, and those whose failure the call reports. */
Sweep sweep(const Faults &faults, const Verb &verb, Which which, int times = repetitions)
{
	Sweep sum{};

	for (unsigned long number = 1;; number++) {
		const auto [error, failed] = try_verb(faults, verb, which, number);
		if (!failed)
			return sum;
		sum.allocations++;
		sum.refused += error != 0;
		for (int i = 0; i < times && which == Which::from; i++)
			starve(faults, verb, which, number);
		/* A successful call restores the allocator's caches. */
		work(verb);
	}
}

void check_verb(const Faults &faults, const Verb &verb)
{
	work(verb);
	const auto resources_before = resources();
	const auto caches_before = exact_caches();

	for (auto which : ways) {
		const auto [allocations, refused] = sweep(faults, verb, which);

		std::printf("%s: %lu allocations\n", verb.name.c_str(), allocations);
		CHECK(refused > 0);
	}
	CHECK(resources() == resources_before);
	check_growth(caches_before);
}

/* For calls that return an object. */
template <class T, int (*destroy)(T *)>
Verb maker(const std::string &name, std::function<T *()> make)
{
	auto made = std::make_shared<T *>(nullptr);

	return {name,
		[=] {
			errno = 0;
			*made = make();
			return *made ? 0 : errno;
		},
		[=] { must(destroy(*made), "undo " + name); }};
}

/* Each call uses a new queue pair, because one that uses the wire keeps its allocations. */
Verb make_ready(Endpoint &endpoint, const ibv_gid &peer)
{
	return {"modify to RTR",
		[&endpoint, attr = rtr_attr(endpoint.device, 17, peer)]() mutable {
			return ibv_modify_qp(endpoint.qp, &attr, rtr_mask);
		},
		[] {},
		/* The core looks up the peer's Ethernet address. IP routing returns ENOBUFS. */
		{"ENOMEM", "ENOBUFS"},
		[&endpoint] {
			endpoint.qp = create_qp(endpoint.pd, endpoint.send_cq, endpoint.recv_cq);
			to_init(endpoint.qp);
		}};
}

/* A host behind veth0. Its Ethernet address is known, so that the kernel sends no ARP request. */
class Neighbour {
public:
	Neighbour() { run("ip neigh replace " + address + " lladdr 02:00:00:00:00:99 dev veth0"); }
	~Neighbour() { run("ip neigh delete " + address + " dev veth0"); }
	Neighbour(const Neighbour &) = delete;
	Neighbour &operator=(const Neighbour &) = delete;
	static ibv_gid gid() { return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 99}}; }

private:
	const std::string address = "10.77.0.99";
};

/* ------------------------------------------------------------- devices */

/* A veth pair for the device that the test creates and removes. */
class Netdev {
public:
	Netdev()
	{
		if (run("ip link add tnm0 type veth peer name tnm1 && ip link set tnm1 up && "
			"ip addr add 10.80.0.1/24 dev tnm0 && ip link set tnm0 up"))
			throw std::runtime_error("cannot make tnm0");
	}
	~Netdev() { run("ip link delete tnm0"); }
	Netdev(const Netdev &) = delete;
	Netdev &operator=(const Netdev &) = delete;
};

constexpr const char *own_device = "peal7";

bool own_device_exists()
{
	return std::filesystem::exists(std::string("/sys/class/infiniband/") + own_device);
}

/* "12: peal7: node_type ca ..." */
std::uint32_t own_device_index()
{
	const auto text = read_command(std::string("rdma dev show ") + own_device);

	return static_cast<std::uint32_t>(std::atoi(text.c_str()));
}

/*
 * Netlink returns ENOBUFS if it has no memory for the request or for the answer. The command has no
 * effect in the first case, and its full effect in the second case.
 */
const std::set<std::string> link_errors{"ENOMEM", "ENOBUFS"};

void delete_own_device(RdmaNetlink &netlink)
{
	if (own_device_exists())
		must(netlink.delete_link(own_device_index()), "link delete");
}

} // namespace

TEST_CASE("opening a device")
{
	Faults faults;
	Device device;
	auto *which = device.context()->device;
	auto verb = maker<ibv_context, ibv_close_device>("open_device",
							 [=] { return ibv_open_device(which); });
	/* If libibverbs cannot open the node, it tries another path, which does not exist. */
	verb.errors.insert("ENOENT");
	check_verb(faults, verb);
	check_works(device);
}

TEST_CASE("protection domains and windows")
{
	Faults faults;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");

	check_verb(faults,
		   maker<ibv_pd, ibv_dealloc_pd>("alloc_pd", [&] { return ibv_alloc_pd(device); }));
	for (auto type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2})
		check_verb(faults, maker<ibv_mw, ibv_dealloc_mw>("alloc_mw", [&, type] {
				   return ibv_alloc_mw(pd, type);
			   }));
	check_works(device);
}

TEST_CASE("completion queues")
{
	Faults faults;
	Device device;
	Channel channel(ibv_create_comp_channel(device), "create_comp_channel");

	for (ibv_comp_channel *with : {static_cast<ibv_comp_channel *>(nullptr), channel.get()})
		for (int cqe : {1, 4096})
			check_verb(faults,
				   maker<ibv_cq, ibv_destroy_cq>("create_cq", [&, with, cqe] {
					   return ibv_create_cq(device, cqe, nullptr, with, 0);
				   }));
	Cq cq(create_cq(device, 64));
	const auto resize = [&](int cqe) { return ibv_resize_cq(cq, cqe); };
	check_verb(faults, {"resize_cq", [&] { return resize(4000); },
			    [&] { must(resize(64), "undo resize_cq"); }});
	check_works(device);
}

TEST_CASE("shared receive queues")
{
	Faults faults;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 64));
	const Srq srq = create_srq(pd, 16);
	QpOptions sharing;
	sharing.srq = srq;

	for (const std::uint32_t receives : {1U, 4096U})
		check_verb(faults, maker<ibv_srq, ibv_destroy_srq>("create_srq", [&, receives] {
				   ibv_srq_attr attr{receives, 4, 0};
				   return try_create_srq(pd, attr);
			   }));
	const auto resize = [&](std::uint32_t receives) {
		ibv_srq_attr attr{};

		attr.max_wr = receives;
		return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
	};
	check_verb(faults, {"modify_srq", [&] { return resize(1024); },
			    [&] { must(resize(16), "undo modify_srq"); }});
	check_verb(faults, maker<ibv_qp, ibv_destroy_qp>("create_qp that shares", [&] {
			   auto init = init_attributes(pd, cq, cq, sharing);
			   return ibv_create_qp_ex(device, &init);
		   }));
	check_works(device);
}

/*
 * Not the target queue pairs, because a failure in the core (create_xrc_qp_user) leaves the domain
 * in use for ever.
 */
TEST_CASE("XRC domains, their shared receive queues and initiators")
{
	Faults faults;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 16));
	ibv_xrcd_init_attr domain{};
	domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	domain.fd = -1;
	domain.oflags = O_CREAT;
	const Handle<ibv_xrcd, ibv_close_xrcd> xrcd(ibv_open_xrcd(device, &domain), "open_xrcd");

	check_verb(faults, maker<ibv_xrcd, ibv_close_xrcd>(
				   "open_xrcd", [&] { return ibv_open_xrcd(device, &domain); }));
	check_verb(faults, maker<ibv_srq, ibv_destroy_srq>("create_srq_ex", [&] {
			   auto init = xrc_srq_attr(pd, xrcd, cq, 64);

			   return ibv_create_srq_ex(device, &init);
		   }));
	check_verb(faults, maker<ibv_qp, ibv_destroy_qp>("create_qp of an initiator", [&] {
			   auto init = init_attributes(pd, cq, cq, {});

			   init.qp_type = IBV_QPT_XRC_SEND;
			   return ibv_create_qp_ex(device, &init);
		   }));
	check_works(device);
}

TEST_CASE("queue pairs")
{
	Faults faults;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 64));
	QpOptions large;
	large.send_wr = large.recv_wr = 1024;

	const auto check = [&](const QpOptions &options, ibv_qp_type type) {
		check_verb(faults, maker<ibv_qp, ibv_destroy_qp>("create_qp", [&, options, type] {
				   auto init = init_attributes(pd, cq, cq, options);
				   init.qp_type = type;
				   return ibv_create_qp_ex(device, &init);
			   }));
	};

	check({}, IBV_QPT_RC);
	check(large, IBV_QPT_RC);
	check({}, IBV_QPT_UC);
	check({}, IBV_QPT_UD);
	check({}, IBV_QPT_RAW_PACKET);
	check_works(device);
}

TEST_CASE("flow rules")
{
	Faults faults;
	Device device;
	RawEnd end(device);

	const auto check = [&](Rule rule) {
		check_verb(faults,
			   maker<ibv_flow, ibv_destroy_flow>("create_flow", [&, rule]() mutable {
				   return rule.try_create(end.qp);
			   }));
	};

	check(Rule().to(station));
	check(Rule().to(group));
	check(Rule(IBV_FLOW_ATTR_ALL_DEFAULT));
	check(Rule(IBV_FLOW_ATTR_SNIFFER));
}

TEST_CASE("address handles and multicast groups")
{
	Faults faults;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 64));
	auto init = init_attributes(pd, cq, cq, {});
	init.qp_type = IBV_QPT_UD;
	Qp qp(ibv_create_qp_ex(device, &init), "create_qp");
	const Neighbour neighbour;
	auto attr = rtr_attr(device, 1, neighbour.gid()).ah_attr;
	auto create = maker<ibv_ah, ibv_destroy_ah>("create_ah",
						    [&] { return ibv_create_ah(pd, &attr); });
	ibv_gid group{{0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 0, 5, 5}};

	create.errors.insert("ENOBUFS");
	check_verb(faults, create);
	check_verb(faults, {"attach_mcast", [&] { return ibv_attach_mcast(qp, &group, 0); },
			    [&] { must(ibv_detach_mcast(qp, &group, 0), "detach_mcast"); }});
}

TEST_CASE("states of a queue pair")
{
	Faults faults;
	Device device;
	Endpoint endpoint(device);
	const Neighbour neighbour;
	const auto modify = [&](ibv_qp_attr attr, int mask) {
		return [&endpoint, attr, mask]() mutable {
			return ibv_modify_qp(endpoint.qp, &attr, mask);
		};
	};
	const auto reset = [&] { to_state(endpoint.qp, IBV_QPS_RESET); };

	check_verb(faults, {"modify to INIT", modify(init_attr(), init_mask), reset});
	check_verb(faults, make_ready(endpoint, device.gid()));
	check_verb(faults, make_ready(endpoint, neighbour.gid()));
	check_verb(faults, {"modify to RTS",
			    modify(rts_attr(), rts_mask),
			    [] {},
			    {"ENOMEM"},
			    [&] {
				    reset();
				    to_init(endpoint.qp);
				    to_rtr(endpoint.qp, device, endpoint.qp->qp_num);
			    }});
	check_verb(faults, {"query_qp",
			    [&] {
				    ibv_qp_attr attr{};
				    ibv_qp_init_attr init{};
				    return ibv_query_qp(endpoint.qp, &attr, IBV_QP_STATE, &init);
			    },
			    [] {}});
	check_works(device);
}

TEST_CASE("memory regions")
{
	Faults faults;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory small(page_bytes), large(4 << 20), untouched(32 * page_bytes);

	std::memset(small.data(), 1, small.size());
	scatter(large);
	for (const Memory *memory : {&small, &large, &untouched})
		check_verb(faults, maker<ibv_mr, ibv_dereg_mr>("reg_mr", [&, memory] {
				   /* Remove the pages, so that reg_mr has to allocate them. */
				   if (memory == &untouched)
					   madvise(memory->data(), memory->size(), MADV_DONTNEED);
				   return ibv_reg_mr(pd, memory->data(), memory->size(),
						     all_access);
			   }));
	check_works(device);
}

TEST_CASE("changes of a memory region")
{
	Faults faults;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory small(page_bytes), large(4 << 20);
	Mr mr(ibv_reg_mr(pd, small.data(), small.size(), all_access), "reg_mr");
	const auto change = [&](const Memory &memory) {
		return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.data(),
				    memory.size(), 0)
			       ? errno
			       : 0;
	};

	std::memset(small.data(), 1, small.size());
	scatter(large);
	check_verb(faults, {"rereg_mr", [&] { return change(large); },
			    [&] { must(change(small), "undo"); }});
	check_works(device);
}

TEST_CASE("memory found on demand")
{
	Faults faults;
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory memory(100 * page_bytes);
	const int access = all_access | IBV_ACCESS_ON_DEMAND;

	check_verb(faults, maker<ibv_mr, ibv_dereg_mr>("reg_mr", [&] {
			   return ibv_reg_mr(pd, memory.data(), memory.size(), access);
		   }));
	check_verb(faults, maker<ibv_mr, ibv_dereg_mr>("reg_mr of all memory", [&] {
			   return ibv_reg_mr(pd, nullptr, SIZE_MAX, access);
		   }));

	/* The memory manager says EFAULT when a page of the program cannot be allocated. */
	Mr mr(ibv_reg_mr(pd, memory.data(), memory.size(), access), "reg_mr");
	ibv_sge sge{memory.address(), static_cast<std::uint32_t>(memory.size()), mr->lkey};
	check_verb(faults, {"advise_mr",
			    [&] {
				    return ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
							 IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
			    },
			    [&] { madvise(memory.data(), memory.size(), MADV_DONTNEED); },
			    {"ENOMEM", "EFAULT"}});
	check_works(device);
}

TEST_CASE("device memory")
{
	Faults faults;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const std::size_t bytes = 64 * page_bytes;
	const auto allocate = [&] {
		ibv_alloc_dm_attr attr{bytes, 0, 0};
		return ibv_alloc_dm(device, &attr);
	};

	check_verb(faults, maker<ibv_dm, ibv_free_dm>("alloc_dm", allocate));
	ibv_dm *memory = allocate();
	REQUIRE(memory);
	check_verb(faults, maker<ibv_mr, ibv_dereg_mr>("reg_dm_mr", [&] {
			   return ibv_reg_dm_mr(pd, memory, 0, bytes,
						IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
		   }));
	must(ibv_free_dm(memory), "free_dm");
	check_works(device);
}

TEST_CASE("destroying needs no memory")
{
	Faults faults;
	Device device;

	for (int round = 0; round < 10; round++) {
		auto *context = ibv_open_device(device.context()->device);
		REQUIRE(context);
		auto *pd = ibv_alloc_pd(context);
		Memory memory(64 * page_bytes);
		auto *mr = ibv_reg_mr(pd, memory.data(), memory.size(), all_access);
		auto *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
		auto *cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
		auto init = init_attributes(pd, cq, cq, {});
		auto *qp = ibv_create_qp_ex(context, &init);
		REQUIRE((pd && mr && mw && cq && qp));

		faults.start(Which::from, 1);
		const std::array errors{ibv_destroy_qp(qp), ibv_destroy_cq(cq),
					ibv_dealloc_mw(mw), ibv_dereg_mr(mr),
					ibv_dealloc_pd(pd), ibv_close_device(context)};
		const int failed = faults.stop();
		for (auto error : errors)
			CHECK(errno_name(error) == "0");
		CHECK(failed == 0);
	}
	check_works(device);
}

TEST_CASE("moving data needs no memory")
{
	if (on_wire())
		SKIP_CASE("a packet needs memory");
	Faults faults;
	Device device;
	Pair pair(device);
	Region from(pair.a.pd, 512 * page_bytes), to(pair.b.pd, 512 * page_bytes);
	int failed = 0;

	for (int round = 0; round < 100; round++) {
		const auto length = static_cast<std::size_t>(round) * 20000 + 1;
		faults.start(Which::from, 1);
		post_recv(pair.b.qp, 1, {to.sge(0, length)});
		post(pair.a.qp, Send(IBV_WR_SEND, {from.sge(0, length)}));
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_READ, {from.sge(0, length)}).remote(to.address(), to.rkey()));
		wait_success(pair.a.send_cq, 2);
		wait_success(pair.b.recv_cq);
		failed += faults.stop();
	}
	CHECK(failed == 0);
}

TEST_CASE("making a device")
{
	Faults faults;
	Netdev netdev;
	RdmaNetlink netlink;
	int error = 0;
	const Verb add{"link add",
		       [&] { return error = netlink.add_link(own_device, "peal", "tnm0"); },
		       [&] { delete_own_device(netlink); }, link_errors};
	const auto caches = exact_caches();
	const long memory = available_memory();

	/*
	 * The first allocations are peal's. The hundreds after them are those of the RDMA core and
	 * its clients. Only a thorough run repeats each of peal's, because this takes a minute. Any
	 * other run chooses a quarter of them.
	 */
	Random chance(1);
	for (unsigned long number = 1; number <= 20; number++) {
		if (!thorough() && chance.between(0, 3))
			continue;
		for (int i = 0; i < repetitions; i++)
			starve(faults, add, Which::from, number);
	}
	check_growth(caches);
	for (auto which : ways) {
		Random random(static_cast<std::uint64_t>(which));
		unsigned long number = 1, refused = 0;

		while (try_verb(faults, add, which, number).failed) {
			refused += !own_device_exists();
			CHECK((error == ENOBUFS || !own_device_exists()));
			delete_own_device(netlink);
			number += number < 50 ? 1 : random.between(1, 19);
		}
		std::printf("link add: about %lu allocations\n", number);
		CHECK(refused > 0);
	}
	/* A device has a thread and more than 100 kB. Hundreds of leaked devices would show. */
	CHECK(eventually([&] { return available_memory() > memory - 16384; }));
	CHECK(read_command("pgrep peal7") == "");
	must(add.call(), "link add");
	{
		Device device(own_device);
		check_works(device);
	}
	delete_own_device(netlink);
}

TEST_CASE("removing a device")
{
	Faults faults;
	Netdev netdev;
	RdmaNetlink netlink;

	for (auto which : ways) {
		bool failed = true;

		for (unsigned long number = 1; failed; number++) {
			if (!own_device_exists())
				must(netlink.add_link(own_device, "peal", "tnm0"), "link add");
			const auto index = own_device_index();
			const Verb remove{"link delete", [&] { return netlink.delete_link(index); },
					  [] { CHECK_FALSE(own_device_exists()); }, link_errors};
			failed = try_verb(faults, remove, which, number).failed;
		}
	}
	CHECK(read_command("pgrep peal7") == "");
}

/* This is the last case, because it removes the device. The next test creates it again. */
TEST_CASE("loading the module")
{
	Faults faults;
	auto path = read_command("modinfo -n peal");
	path.resize(path.find_last_not_of('\n') + 1);
	const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	REQUIRE(file >= 0);
	const Verb load{"finit_module",
			[=] { return syscall(SYS_finit_module, file, "", 0) ? errno : 0; },
			[] { must(syscall(SYS_delete_module, "peal", 0) ? errno : 0, "unload"); }};
	must(run("rdma link delete " + device_name() + " && rmmod peal"), "unload peal");
	work(load);
	const auto caches = exact_caches();

	for (auto which : ways) {
		/* Loading also succeeds without hardware CRCs and netlink notifications. */
		const auto allocations = sweep(faults, load, which, thorough() ? 8 : 2).allocations;

		std::printf("loading the module: %lu allocations\n", allocations);
		CHECK(allocations > 2);
	}
	check_growth(caches);
	close(file);
}
