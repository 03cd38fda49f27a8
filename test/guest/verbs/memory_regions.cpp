// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
/*
 * Memory regions: what can be registered, how, and for how long pages stay pinned.
 *
 * Holds: Registrations above 1 GiB, of huge pages, with an iova, with all access flags and of
 * read-only mappings work. The limit of locked memory holds. Regions survive fork, and dereg works
 * under traffic. A registration can be changed, also under traffic; a change that is refused leaves
 * the region as it was. All pins are given back.
 * Does not hold: keys and ranges in requests (verbs/failed_requests), memory windows
 * (verbs/memory_windows).
 */
#include "innocent.hpp"
#include "usage.hpp"

#include <thread>

#include <sys/resource.h>

using namespace peal_test;

namespace {

std::string try_register(ibv_pd *pd, void *address, std::size_t size, int access)
{
	errno = 0;
	auto *mr = ibv_reg_mr(pd, address, size, access);
	if (!mr)
		return errno_name(errno);
	must(ibv_dereg_mr(mr), "dereg_mr");
	return "0";
}

/* A WRITE and a READ must pass through this registration at b's side. */
void check_usable(Pair &pair, ibv_mr *mr, std::uint64_t iova, std::span<std::uint8_t> memory)
{
	constexpr std::size_t piece = 3000;
	Region local(pair.a.pd, 2 * page_bytes);

	for (std::size_t offset : {std::size_t{0}, memory.size() / 2 + 13, memory.size() - piece}) {
		fill_pattern(local.bytes(0, piece), offset);
		post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {local.sge(0, piece)})
					.remote(iova + offset, mr->rkey));
		post(pair.a.qp, Send(IBV_WR_RDMA_READ, {local.sge(page_bytes, piece)})
					.remote(iova + offset, mr->rkey));
		wait_success(pair.a.send_cq, 2);
		CHECK(difference(memory.subspan(offset, piece), local.bytes(0, piece)) == "");
		CHECK(difference(local.bytes(page_bytes, piece), local.bytes(0, piece)) == "");
	}
}

void check_memory(Device &device, const Memory &memory)
{
	Pair pair(device);
	Mr mr(ibv_reg_mr(pair.b.pd, memory.data(), memory.size(), all_access), "reg_mr");

	check_usable(pair, mr, memory.address(), memory.bytes(0, memory.size()));
}

void set_huge_pages(int count)
{
	std::ofstream("/proc/sys/vm/nr_hugepages") << count;
}

/* Runs as the user "nobody", who may lock 64 KiB. 16 KiB can be registered, 1 MiB cannot. */
int register_as_nobody()
{
	const rlimit limit{65536, 65536};
	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(65534) || setuid(65534))
		return 10;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory memory(1 << 20);

	if (try_register(pd, memory.data(), 1 << 20, all_access) != "ENOMEM")
		return 11;
	for (int i = 0; i < 20; i++) /* dereg gives the allowance back */
		if (try_register(pd, memory.data(), 16384, all_access) != "0")
			return 12;
	return 0;
}

/* The child writes to its copy. The parent's transfers keep their pages. */
void check_fork(Device &device)
{
	Pair pair(device);
	Region from(pair.a.pd, 16 * page_bytes), to(pair.b.pd, 16 * page_bytes);
	fill_pattern(from.bytes(0, from.size()), 21);
	int gate[2];
	REQUIRE(pipe(gate) == 0);

	const pid_t child = spawn([&] {
		char byte;
		close(gate[1]);
		return read(gate[0], &byte, 1) == 0 ? 0 : 1;
	});
	close(gate[0]);
	/* After the fork, a copy on write would divert the parent's writes. */
	fill_pattern(from.bytes(0, from.size()), 22);
	std::memset(to.data(), 0, to.size());
	const auto length = from.size();
	post(pair.a.qp,
	     Send(IBV_WR_RDMA_WRITE, {from.sge(0, length)}).remote(to.address(), to.rkey()));
	wait_success(pair.a.send_cq);
	CHECK(pattern(length - 1, 22) == to.data()[length - 1]);
	CHECK(difference(to.bytes(0, length), from.bytes(0, length)) == "");
	close(gate[1]);
	CHECK(end_of(child) == 0);
}

constexpr int change_memory = IBV_REREG_MR_CHANGE_TRANSLATION;
constexpr int change_pd = IBV_REREG_MR_CHANGE_PD;
constexpr int change_access = IBV_REREG_MR_CHANGE_ACCESS;

/* Return: the errno of a change that was refused. */
std::string try_change(ibv_mr *mr, int flags, ibv_pd *pd, const Memory *memory, int access)
{
	errno = 0;
	const int error = ibv_rereg_mr(mr, flags, pd, memory ? memory->data() : nullptr,
				       memory ? memory->size() : 0, access);

	return error ? errno_name(errno) : "0";
}

/* A region in the domain of one pair's responder. Each part of it may change. */
struct Changing {
	explicit Changing(Device &device, int access = all_access)
		: one(device), other(device), first(16 * page_bytes), second(64 * page_bytes),
		  local_one(one.a.pd, page_bytes), local_other(other.a.pd, page_bytes),
		  mr(ibv_reg_mr(one.b.pd, first.data(), first.size(), access), "reg_mr"),
		  key(mr->rkey)
	{
		fill_pattern(local_one.bytes(0, 500), 31);
		fill_pattern(local_other.bytes(0, 500), 31);
	}
	/* A request through a pair, which is connected anew if it failed. */
	ibv_wc_status request(Pair &pair, ibv_wr_opcode opcode, const Memory &memory)
	{
		auto &local = &pair == &one ? local_one : local_other;

		post(pair.a.qp, Send(opcode, {local.sge(0, 500)})
					.remote(memory.address(memory.size() - 500), key));
		const auto status = wait_completion(pair.a.send_cq).status;
		if (status != IBV_WC_SUCCESS) {
			to_state(pair.a.qp, IBV_QPS_RESET);
			to_state(pair.b.qp, IBV_QPS_RESET);
			connect(pair.a, pair.b);
		}
		return status;
	}
	/* The key must give access to this memory through this pair, and to nothing else. */
	void check(Pair &pair, const Memory &memory)
	{
		Pair &stranger = &pair == &one ? other : one;
		const Memory &gone = &memory == &first ? second : first;

		std::memset(memory.data(), 0, memory.size());
		CHECK(status_name(request(pair, IBV_WR_RDMA_WRITE, memory)) == "success");
		const auto written = memory.bytes(memory.size() - 500, 500);
		CHECK(difference(written, local_one.bytes(0, 500)) == "");
		CHECK(status_name(request(pair, IBV_WR_RDMA_READ, memory)) == "success");
		CHECK(request(stranger, IBV_WR_RDMA_READ, memory) == IBV_WC_REM_ACCESS_ERR);
		CHECK(request(pair, IBV_WR_RDMA_READ, gone) == IBV_WC_REM_ACCESS_ERR);
	}

	Pair one, other;
	Memory first, second;
	Region local_one, local_other;
	Mr mr;
	std::uint32_t key;
};

/* Whatever happens to each message, the thread ends and nothing breaks. */
void write_until_error(Pair &pair, Region &from, std::uint64_t address, std::uint32_t rkey)
{
	for (;;) {
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {from.sge(0, from.size())}).remote(address, rkey));
		if (wait_completion(pair.a.send_cq).status != IBV_WC_SUCCESS)
			return;
	}
}

} // namespace

TEST_CASE("access flags")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory memory(4 * page_bytes);
	constexpr int bits[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE,
				IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC,
				IBV_ACCESS_MW_BIND,	IBV_ACCESS_RELAXED_ORDERING};

	for (unsigned set = 0; set < 1U << std::size(bits); set++) {
		int access = 0;
		for (unsigned i = 0; i < std::size(bits); i++)
			access |= set >> i & 1 ? bits[i] : 0;
		const bool writes = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
		const bool good = !writes || access & IBV_ACCESS_LOCAL_WRITE;
		INFO("access " << access);
		CHECK(try_register(pd, memory.data(), memory.size(), access) ==
		      (good ? "0" : "EINVAL"));
	}
}

TEST_CASE("a zero-based region is named by offsets, as a local and as a remote buffer")
{
	Device device;
	Pair pair(device);
	Memory from(2 * page_bytes), to(2 * page_bytes);
	constexpr int access = all_access | IBV_ACCESS_ZERO_BASED;
	/* Neither starts at a page. */
	const Mr source(ibv_reg_mr(pair.a.pd, from.data() + 100, 5000, access), "reg_mr");
	const Mr sink(ibv_reg_mr(pair.b.pd, to.data() + 60, 5000, access), "reg_mr");

	fill_pattern(from.bytes(0, from.size()), 5);
	post(pair.a.qp,
	     Send(IBV_WR_RDMA_WRITE, {{10, 4900, source->lkey}}).remote(100, sink->rkey));
	wait_success(pair.a.send_cq);
	CHECK(difference(to.bytes(60 + 100, 4900), from.bytes(100 + 10, 4900)) == "");
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {{0, 8, source->lkey}}).remote(4993, sink->rkey));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_RANGE);
}

TEST_CASE("access flags that are not supported")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory memory(4 * page_bytes);

	CHECK(try_register(pd, memory.data(), 4096, 1 << 12) != "0");
}

TEST_CASE("ranges that are no memory")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory memory(4 * page_bytes);
	Memory hole(4 * page_bytes);

	CHECK(try_register(pd, memory.data(), ~0ULL, all_access) != "0");
	CHECK(try_register(pd, reinterpret_cast<void *>(~0ULL - 100), 4096, all_access) != "0");
	munmap(hole.data() + page_bytes, page_bytes);
	CHECK(try_register(pd, hole.data(), hole.size(), all_access) != "0");
	CHECK(try_register(pd, hole.data(), page_bytes, all_access) == "0");
}

TEST_CASE("a region of length 0 gives access to nothing")
{
	Device device;
	Memory memory(page_bytes);

	for (const std::size_t offset : {0, 100}) {
		Pair pair(device);
		Region from(pair.a.pd, page_bytes);
		Mr mr(ibv_reg_mr(pair.b.pd, memory.data() + offset, 0, all_access), "reg_mr");
		Mr local(ibv_reg_mr(pair.a.pd, memory.data() + offset, 0, all_access), "reg_mr");
		const auto address = memory.address(offset);

		post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {{address, 0, local->lkey}})
					.remote(address, mr->rkey));
		wait_success(pair.a.send_cq);
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {from.sge(0, 1)}).remote(address, mr->rkey));
		check_status(wait_completion(pair.a.send_cq), IBV_WC_REM_ACCESS_ERR,
			     PEAL_REASON_RKEY_RANGE);
		Pair other(device);
		Mr empty(ibv_reg_mr(other.a.pd, memory.data() + offset, 0, all_access), "reg_mr");
		post(other.a.qp, Send(IBV_WR_SEND, {{address, 1, empty->lkey}}));
		check_status(wait_completion(other.a.send_cq), IBV_WC_LOC_PROT_ERR,
			     PEAL_REASON_LKEY_RANGE);
	}
	CHECK(all_equal({reinterpret_cast<const std::uint8_t *>(memory.data()), page_bytes}, 0));
}

TEST_CASE("a read-only mapping can be read and not written")
{
	Device device;
	Pair pair(device);
	Memory memory(4 * page_bytes);
	Region local(pair.a.pd, page_bytes);

	std::memset(memory.data(), 0x77, memory.size());
	must(mprotect(memory.data(), memory.size(), PROT_READ) ? errno : 0, "mprotect");
	CHECK(try_register(pair.b.pd, memory.data(), memory.size(), all_access) == "EFAULT");
	Mr mr(ibv_reg_mr(pair.b.pd, memory.data(), memory.size(), IBV_ACCESS_REMOTE_READ),
	      "reg_mr");
	post(pair.a.qp,
	     Send(IBV_WR_RDMA_READ, {local.sge(0, 100)}).remote(memory.address(), mr->rkey));
	wait_success(pair.a.send_cq);
	CHECK(all_equal(local.bytes(0, 100), 0x77));
}

TEST_CASE("iova other than the address")
{
	Device device;
	Pair pair(device);
	Memory memory(64 * page_bytes);

	for (std::uint64_t iova : {0x0ULL, 0x1000ULL, 0x123456789000ULL, 0x7ffffffff000ULL}) {
		INFO("iova " << iova);
		Mr mr(ibv_reg_mr_iova(pair.b.pd, memory.data(), memory.size(), iova, all_access),
		      "reg_mr_iova");
		check_usable(pair, mr, iova, memory.bytes(0, memory.size()));
	}
}

TEST_CASE("iova and address with the same offset in their pages")
{
	Device device;
	Pair pair(device);
	Memory memory(64 * page_bytes);
	const auto part = memory.bytes(100, 32 * page_bytes + 5);
	const std::uint64_t iova = 0x400000000064ULL;
	Mr mr(ibv_reg_mr_iova(pair.b.pd, part.data(), part.size(), iova, all_access),
	      "reg_mr_iova");

	check_usable(pair, mr, iova, part);
}

TEST_CASE("regions share pages and have keys of their own")
{
	Device device;
	Pair pair(device);
	Memory memory(16 * page_bytes);
	std::vector<Mr> mrs;

	for (int i = 0; i < 100; i++)
		mrs.emplace_back(ibv_reg_mr(pair.b.pd, memory.data(), memory.size(), all_access),
				 "reg_mr");
	std::vector<std::uint32_t> keys;
	for (const auto &mr : mrs)
		keys.push_back(mr->rkey);
	std::sort(keys.begin(), keys.end());
	CHECK(std::adjacent_find(keys.begin(), keys.end()) == keys.end());
	for (int i : {0, 50, 99})
		check_usable(pair, mrs[i], memory.address(), memory.bytes(0, memory.size()));
}

TEST_CASE("a key is dead after dereg")
{
	Device device;
	Pair pair(device);
	Memory memory(4 * page_bytes);
	Region local(pair.a.pd, page_bytes);
	std::uint32_t dead = 0;
	{
		Mr mr(ibv_reg_mr(pair.b.pd, memory.data(), memory.size(), all_access), "reg_mr");
		dead = mr->rkey;
	}
	Mr next(ibv_reg_mr(pair.b.pd, memory.data(), memory.size(), all_access), "reg_mr");

	CHECK(next->rkey != dead);
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {local.sge(0, 8)}).remote(memory.address(), dead));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_UNKNOWN);
}

TEST_CASE("pages are given back")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const auto before = pinned_pages();
	if (!counts_pins())
		SKIP_CASE("the kernel does not count pins");
	{
		std::vector<Region> regions;
		for (int i = 0; i < 20; i++)
			regions.emplace_back(pd, 256 * page_bytes);
		CHECK(pinned_pages() - before >= 20 * 256);
	}
	CHECK(eventually([&] { return pinned_pages() == before; }));
	Memory memory(page_bytes);
	for (int i = 0; i < 1000; i++) /* refused ones too */
		try_register(pd, memory.data(), 64 * page_bytes, all_access);
	CHECK(eventually([&] { return pinned_pages() == before; }));
}

TEST_CASE("pages of a process that was killed are given back")
{
	const auto before = pinned_pages();

	in_child([] {
		Device device;
		Pair pair(device);
		Region region(pair.a.pd, 1024 * page_bytes);
		raise(SIGKILL);
		return 0;
	});
	CHECK(eventually([&] { return pinned_pages() == before; }));
}

TEST_CASE("locked memory is limited for users")
{
	CHECK(in_child(register_as_nobody) == 0);
}

TEST_CASE("huge pages")
{
	Device device;
	constexpr std::size_t size = 16 << 20;
	set_huge_pages(16);

	void *probe = mmap(nullptr, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (probe == MAP_FAILED) {
		set_huge_pages(0);
		SKIP_CASE("no huge pages");
	}
	munmap(probe, size);
	check_memory(device, Memory(size, MAP_HUGETLB));
	set_huge_pages(0);
}

TEST_CASE("transparent huge pages")
{
	Device device;
	Memory memory(16 << 20);

	madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
	std::memset(memory.data(), 1, memory.size());
	check_memory(device, memory);
}

TEST_CASE("shared memory and files")
{
	Device device;
	const int fd = memfd_create("memory_regions", 0);
	REQUIRE(fd >= 0);
	REQUIRE(ftruncate(fd, 1 << 20) == 0);
	auto *shared = static_cast<std::uint8_t *>(
		mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	REQUIRE(shared != MAP_FAILED);
	Pair pair(device);
	{
		Mr mr(ibv_reg_mr(pair.b.pd, shared, 1 << 20, all_access), "reg_mr");
		check_usable(pair, mr, reinterpret_cast<std::uintptr_t>(shared), {shared, 1 << 20});
	}
	munmap(shared, 1 << 20);
	close(fd);
}

TEST_CASE("a region above 1 GiB")
{
	constexpr std::size_t size = (1280ULL << 20) + 777;

	if (available_bytes() < size + (256U << 20))
		SKIP_CASE("not enough memory");
	Device device;
	check_memory(device, Memory(size));
}

TEST_CASE("fork")
{
	Device device;
	check_fork(device);
}

TEST_CASE("fork with ibv_fork_init")
{
	/* It must run before anything is registered, so it runs in a process of its own. */
	const auto self = "/proc/" + std::to_string(getpid()) + "/exe";

	CHECK(in_child([&] {
		      execl(self.c_str(), "memory_regions", "fork after ibv_fork_init", nullptr);
		      return 98;
	      }) == 0);
}

TEST_CASE("fork after ibv_fork_init", "[.]")
{
	REQUIRE(errno_name(ibv_fork_init()) == "0");
	Device device;
	check_fork(device);
}

TEST_CASE("dereg while messages arrive")
{
	Device device;

	for (int round = 0; round < 20; round++) {
		Pair pair(device);
		Region from(pair.a.pd, 64 * page_bytes), to(pair.b.pd, 64 * page_bytes);
		std::memset(from.data(), 1, from.size());
		std::exception_ptr failure;
		std::thread writer([&, address = to.address(), rkey = to.rkey()] {
			try {
				write_until_error(pair, from, address, rkey);
			} catch (...) {
				failure = std::current_exception();
			}
		});
		const volatile std::uint8_t *first = to.data();
		CHECK(eventually([&] { return *first == 1; }));
		to.deregister();
		/* From here on the device must not write to this memory. */
		std::memset(to.data(), 0xee, to.size());
		writer.join();
		CHECK_FALSE(failure);
		CHECK(all_equal(to.bytes(0, to.size()), 0xee));
	}
}

TEST_CASE("dereg while a READ is answered")
{
	constexpr std::size_t bytes = 16 << 20;
	Device device;
	int cut = 0;

	for (int round = 0; round < 20 && !cut; round++) {
		Pair pair(device);
		Region to(pair.a.pd, bytes), from(pair.b.pd, bytes);
		std::memset(from.data(), 1, bytes);
		std::thread reader([&] {
			post(pair.a.qp, Send(IBV_WR_RDMA_READ, {to.sge(0, bytes)})
						.remote(from.address(), from.rkey()));
		});
		const volatile std::uint8_t *first = to.data();
		CHECK(eventually([&] { return *first == 1; }));
		from.deregister();
		/* From here on the device must not read this memory. */
		std::memset(from.data(), 0xee, bytes);
		reader.join();
		const auto wc = wait_completion(pair.a.send_cq);
		cut += wc.status == IBV_WC_REM_ACCESS_ERR;
		CHECK((wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_SUCCESS));
		CHECK(std::memchr(to.data(), 0xee, bytes) == nullptr);
	}
	CHECK(cut > 0);
}

TEST_CASE("memory and protection domain of a region change alone and together")
{
	Device device;

	for (int flags :
	     {change_memory, change_pd, change_memory | change_pd, change_pd | change_access,
	      change_memory | change_access, change_memory | change_pd | change_access}) {
		INFO("flags " << flags);
		Changing scene(device);
		Pair &pair = flags & change_pd ? scene.other : scene.one;
		const Memory &memory = flags & change_memory ? scene.second : scene.first;

		scene.check(scene.one, scene.first);
		CHECK(try_change(scene.mr, flags, pair.b.pd, &memory,
				 flags & change_access ? all_access : 0) == "0");
		CHECK(scene.mr->rkey == scene.key);
		CHECK(scene.mr->pd == pair.b.pd);
		scene.check(pair, memory);
	}
}

TEST_CASE("rights of a region change")
{
	Device device;
	Changing scene(device, IBV_ACCESS_REMOTE_READ);
	const auto read = [&] { return scene.request(scene.one, IBV_WR_RDMA_READ, scene.first); };
	const auto write = [&] { return scene.request(scene.one, IBV_WR_RDMA_WRITE, scene.first); };

	for (int round = 0; round < 3; round++) {
		CHECK(status_name(read()) == "success");
		CHECK(write() == IBV_WC_REM_ACCESS_ERR);
		CHECK(try_change(scene.mr, change_access, nullptr, nullptr, all_access) == "0");
		scene.check(scene.one, scene.first);
		CHECK(try_change(scene.mr, change_access, nullptr, nullptr,
				 IBV_ACCESS_LOCAL_WRITE) == "0");
		CHECK(read() == IBV_WC_REM_ACCESS_ERR);
		CHECK(write() == IBV_WC_REM_ACCESS_ERR);
		CHECK(try_change(scene.mr, change_access, nullptr, nullptr,
				 IBV_ACCESS_REMOTE_READ) == "0");
	}
}

TEST_CASE("a region gets the right to write only to memory that the program may write")
{
	Device device;
	Changing scene(device, IBV_ACCESS_REMOTE_READ);

	must(mprotect(scene.first.data(), scene.first.size(), PROT_READ) ? errno : 0, "mprotect");
	CHECK(try_change(scene.mr, change_access, nullptr, nullptr, all_access) == "EFAULT");
	CHECK(scene.request(scene.one, IBV_WR_RDMA_WRITE, scene.first) == IBV_WC_REM_ACCESS_ERR);
	CHECK(scene.request(scene.one, IBV_WR_RDMA_READ, scene.first) == IBV_WC_SUCCESS);
}

TEST_CASE("a change that is refused leaves the region as it was")
{
	Device device;
	Changing scene(device);
	Memory hole(4 * page_bytes);
	constexpr int all = change_memory | change_pd | change_access;
	const auto &pd = scene.other.b.pd;

	munmap(hole.data() + page_bytes, page_bytes);
	CHECK(try_change(scene.mr, all, pd, &hole, all_access) == "EFAULT");
	CHECK(try_change(scene.mr, all, pd, &scene.second, IBV_ACCESS_REMOTE_WRITE) == "EINVAL");
	CHECK(try_change(scene.mr, all, pd, &scene.second, IBV_ACCESS_ON_DEMAND) != "0");
	CHECK(try_change(scene.mr, all, pd, nullptr, all_access) == "EINVAL");
	CHECK(try_change(scene.mr, 0, pd, &scene.second, 0) != "0");
	CHECK(try_change(scene.mr, 1 << 6, pd, &scene.second, 0) == "EINVAL");
	scene.check(scene.one, scene.first);
}

TEST_CASE("a region with a window does not change")
{
	Device device;
	Changing scene(device, all_access | IBV_ACCESS_MW_BIND);
	Mw window(ibv_alloc_mw(scene.one.b.pd, IBV_MW_TYPE_2), "alloc_mw");
	Send bind(IBV_WR_BIND_MW);
	bind.wr.bind_mw = {window,
			   ibv_inc_rkey(window->rkey),
			   {scene.mr, scene.first.address(), 64, IBV_ACCESS_REMOTE_READ}};

	post(scene.one.b.qp, bind);
	wait_success(scene.one.b.send_cq);
	for (int flags : {change_memory, change_pd, change_access})
		CHECK(try_change(scene.mr, flags, scene.other.b.pd, &scene.second,
				 flags & change_access ? all_access : 0) == "EBUSY");
	window.reset();
	CHECK(try_change(scene.mr, change_memory, nullptr, &scene.second, 0) == "0");
	scene.check(scene.one, scene.second);
}

TEST_CASE("pages of a region that changes are given back")
{
	Device device;
	Changing scene(device);
	const auto before = pinned_pages();

	if (!counts_pins())
		SKIP_CASE("the kernel does not count pins");
	for (int i = 0; i < 50; i++) {
		REQUIRE(try_change(scene.mr, change_memory, nullptr, &scene.second, 0) == "0");
		CHECK(eventually([&] { return pinned_pages() == before + 48; }));
		REQUIRE(try_change(scene.mr, change_memory, nullptr, &scene.first, 0) == "0");
	}
	CHECK(eventually([&] { return pinned_pages() == before; }));
}

TEST_CASE("a region changes while messages arrive")
{
	Device device;

	for (int round = 0; round < 20; round++) {
		Changing scene(device);
		Region from(scene.one.a.pd, scene.first.size());
		std::memset(from.data(), 1, from.size());
		std::exception_ptr failure;
		std::thread writer([&] {
			try {
				write_until_error(scene.one, from, scene.first.address(),
						  scene.key);
			} catch (...) {
				failure = std::current_exception();
			}
		});
		const volatile std::uint8_t *first = scene.first.data();
		CHECK(eventually([&] { return *first == 1; }));
		CHECK(try_change(scene.mr, change_memory, nullptr, &scene.second, 0) == "0");
		/* From here on the device must not write to this memory. */
		std::memset(scene.first.data(), 0xee, scene.first.size());
		writer.join();
		CHECK_FALSE(failure);
		CHECK(all_equal(scene.first.bytes(0, scene.first.size()), 0xee));
	}
}

TEST_CASE("many registrations at once from several threads")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	std::vector<std::thread> threads;
	std::array<int, 4> failures{};

	for (auto &failed : failures)
		threads.emplace_back([&pd, &failed] {
			Memory memory(32 * page_bytes);
			for (int i = 0; i < 200; i++)
				failed += try_register(pd, memory.data(), memory.size(),
						       all_access) != "0";
		});
	for (auto &thread : threads)
		thread.join();
	for (auto failed : failures)
		CHECK(failed == 0);
}
