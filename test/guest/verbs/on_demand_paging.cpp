// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
/*
 * On-demand paging: regions whose pages are not pinned.
 *
 * Holds: Every operation reads and writes such memory, at both ends, explicit and implicit, at any
 * alignment, with an iova of its own. Pages that leave, are swapped for others, are shared after a
 * fork or become read-only are found again, also while messages use them. Memory that is not
 * there fails the message with a reason. Nothing is pinned. Prefetching brings pages in. Memory
 * that the kernel cannot reach is refused, and so are memory windows. Does not hold: other regions
 * (verbs/memory_regions), XRC (verbs/xrc), FLUSH (verbs/memory_placement).
 */
#include "datagram.hpp"
#include "innocent.hpp"
#include "usage.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

using namespace peal_test;

namespace {

constexpr int odp_access = all_access | IBV_ACCESS_ON_DEMAND;
constexpr std::size_t size = 64 * page_bytes;

std::size_t present_pages(const Memory &memory)
{
	std::vector<unsigned char> there(memory.size() / page_bytes);

	must(mincore(memory.data(), memory.size(), there.data()) ? errno : 0, "mincore");
	return static_cast<std::size_t>(
		std::count_if(there.begin(), there.end(), [](auto page) { return page & 1; }));
}

/* Memory of both ends that is found on demand. */
struct Scene {
	explicit Scene(Device &device, bool implicit = false, const QpOptions &options = {})
		: pair(device, options), from(size), to(size),
		  local(reg(pair.a.pd, from, implicit)), remote(reg(pair.b.pd, to, implicit))
	{
	}
	static Mr reg(ibv_pd *pd, const Memory &memory, bool implicit)
	{
		if (implicit)
			return Mr(ibv_reg_mr(pd, nullptr, SIZE_MAX, odp_access), "reg_mr");
		return Mr(ibv_reg_mr(pd, memory.data(), memory.size(), odp_access), "reg_mr");
	}
	ibv_sge sge(std::size_t offset, std::size_t length) const
	{
		return {from.address(offset), static_cast<std::uint32_t>(length), local->lkey};
	}
	ibv_sge remote_sge(std::size_t offset, std::size_t length) const
	{
		return {to.address(offset), static_cast<std::uint32_t>(length), remote->lkey};
	}
	ibv_wc run(ibv_wr_opcode opcode, std::size_t offset, std::size_t length)
	{
		if (opcode == IBV_WR_SEND)
			post_recv(pair.b.qp, 1, {remote_sge(offset, length)});
		post(pair.a.qp,
		     Send(opcode, {sge(offset, length)}).remote(to.address(offset), remote->rkey));
		const auto wc = wait_completion(pair.a.send_cq);
		if (opcode == IBV_WR_SEND && wc.status == IBV_WC_SUCCESS)
			wait_success(pair.b.recv_cq);
		return wc;
	}
	/* Moves a pattern with this operation. The destination's pages may be absent. */
	void check(ibv_wr_opcode opcode, std::size_t offset, std::size_t length, std::uint64_t salt)
	{
		const bool reads = opcode == IBV_WR_RDMA_READ;
		const Memory &source = reads ? to : from, &target = reads ? from : to;

		fill_pattern(source.bytes(offset, length), salt);
		must_succeed(run(opcode, offset, length));
		CHECK(difference(target.bytes(offset, length), source.bytes(offset, length)) == "");
	}
	Pair pair;
	Memory from, to;
	Mr local, remote;
};

void drop_pages(const Memory &memory)
{
	must(madvise(memory.data(), memory.size(), MADV_DONTNEED) ? errno : 0, "madvise");
}

constexpr std::array operations{IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};

} // namespace

TEST_CASE("every operation finds its pages")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	std::uint64_t salt = 0;

	for (bool implicit : {false, true}) {
		Scene scene(device, implicit);
		for (auto opcode : operations)
			for (auto [offset, length] : {std::pair<std::size_t, std::size_t>{0, 8},
						      {page_bytes - 3, 6},
						      {100, 3 * page_bytes},
						      {0, size}}) {
				INFO("opcode " << opcode << ", " << length << " bytes at "
					       << offset);
				drop_pages(scene.from);
				drop_pages(scene.to);
				scene.check(opcode, offset, length, ++salt);
			}
	}
}

TEST_CASE("atomics find their pages")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	Scene scene(device);
	auto &a = scene.pair.a;
	std::uint64_t word = 0;

	post(a.qp, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {scene.sge(8, 8)})
			   .atomic(scene.to.address(16), scene.remote->rkey, 5));
	wait_success(a.send_cq);
	post(a.qp, Send(IBV_WR_ATOMIC_CMP_AND_SWP, {scene.sge(16, 8)})
			   .atomic(scene.to.address(16), scene.remote->rkey, 5, 9));
	wait_success(a.send_cq);
	std::memcpy(&word, scene.from.data() + 16, 8);
	CHECK(word == 5);
	std::memcpy(&word, scene.to.data() + 16, 8);
	CHECK(word == 9);
}

TEST_CASE("ATOMIC_WRITE, inline data and immediate data find their pages")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	QpOptions options;
	options.inline_bytes = 64;
	Scene scene(device, false, options);
	auto &a = scene.pair.a;
	const auto target = scene.to.bytes(page_bytes - 24, 48);
	const auto remote = scene.to.address(page_bytes - 24);

	for (std::uint64_t i = 0; i < 4; i++) {
		drop_pages(scene.from);
		drop_pages(scene.to);
		fill_pattern(scene.from.bytes(0, 48), i);
		post(a.qp, Send(IBV_WR_RDMA_WRITE, {scene.sge(0, 48)})
				   .remote(remote, scene.remote->rkey)
				   .flags(IBV_SEND_SIGNALED | IBV_SEND_INLINE));
		wait_success(a.send_cq);
		CHECK(difference(target, scene.from.bytes(0, 48)) == "");

		drop_pages(scene.to);
		post(a.qp, Send(IBV_WR_ATOMIC_WRITE, {scene.sge(8, 8)})
				   .remote(remote, scene.remote->rkey));
		wait_success(a.send_cq);
		CHECK(difference(target.first(8), scene.from.bytes(8, 8)) == "");
		CHECK(all_equal(target.subspan(8), 0));

		/* The words come from pages that are not there, so they are zero. */
		drop_pages(scene.from);
		post(a.qp, Send(IBV_WR_ATOMIC_WRITE, {scene.sge(16, 8)})
				   .remote(remote, scene.remote->rkey));
		wait_success(a.send_cq);
		CHECK(all_equal(target, 0));

		drop_pages(scene.to);
		fill_pattern(scene.from.bytes(0, 48), i + 9);
		post_recv(scene.pair.b.qp, 1, {});
		post(a.qp, Send(IBV_WR_RDMA_WRITE_WITH_IMM, {scene.sge(0, 48)})
				   .remote(remote, scene.remote->rkey));
		wait_success(a.send_cq);
		wait_success(scene.pair.b.recv_cq);
		CHECK(difference(target, scene.from.bytes(0, 48)) == "");
	}
}

TEST_CASE("lists with other memory between, and a shared receive queue")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Srq srq(create_srq(pd, 8, 4));
	QpOptions options;
	options.srq = srq;
	Endpoint a(device), b(device, options);
	connect(a, b);
	Memory memory(size), source(size);
	Region pinned(pd, page_bytes), local(a.pd, page_bytes);
	Mr mr(ibv_reg_mr(pd, memory.data(), size, odp_access), "reg_mr"),
		from(ibv_reg_mr(a.pd, source.data(), size, odp_access), "reg_mr");
	const auto sge = [&](std::size_t offset, std::uint32_t length) {
		return ibv_sge{memory.address(offset), length, mr->lkey};
	};

	for (std::uint64_t i = 0; i < 6; i++) {
		std::vector<std::uint8_t> all(9000);

		drop_pages(memory);
		drop_pages(source);
		fill_pattern(local.bytes(0, 1000), i);
		fill_pattern(source.bytes(3, 8000), i + 50);
		std::copy_n(local.data(), 1000, all.begin());
		std::copy_n(source.data() + 3, 8000, all.begin() + 1000);
		post_srq_recv(srq, i,
			      {sge(page_bytes - 1, 2), pinned.sge(5, 3000),
			       sge(20 * page_bytes - 9, 4500), sge(0, 2000)});
		post(a.qp, Send(IBV_WR_SEND,
				{local.sge(0, 1000), {source.address(3), 8000, from->lkey}}));
		wait_success(a.send_cq);
		const auto wc = wait_success(b.recv_cq).front();
		CHECK(wc.byte_len == 9000);
		const std::span<const std::uint8_t> sent(all);
		CHECK(difference(memory.bytes(page_bytes - 1, 2), sent.first(2)) == "");
		CHECK(difference(pinned.bytes(5, 3000), sent.subspan(2, 3000)) == "");
		CHECK(difference(memory.bytes(20 * page_bytes - 9, 4500),
				 sent.subspan(3002, 4500)) == "");
		CHECK(difference(memory.bytes(0, 1498), sent.subspan(7502)) == "");
		CHECK(all_equal(memory.bytes(1498, 500), 0));
	}
}

TEST_CASE("an iova of its own, and zero-based")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	Pair pair(device);
	Region local(pair.a.pd, size);
	Memory memory(size);
	const auto part = memory.bytes(100, 20000);

	fill_pattern(local.bytes(0, size), 3);
	for (std::uint64_t iova : {0x7000000064ULL, 0x64ULL}) {
		Mr mr(ibv_reg_mr_iova(pair.b.pd, part.data(), part.size(), iova, odp_access),
		      "reg_mr_iova");
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {local.sge(0, 9000)}).remote(iova + 5001, mr->rkey));
		wait_success(pair.a.send_cq);
		CHECK(difference(part.subspan(5001, 9000), local.bytes(0, 9000)) == "");
		drop_pages(memory);
	}
	Mr mr(ibv_reg_mr(pair.b.pd, part.data(), part.size(), odp_access | IBV_ACCESS_ZERO_BASED),
	      "reg_mr");
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {local.sge(7, 9000)}).remote(5001, mr->rkey));
	wait_success(pair.a.send_cq);
	CHECK(difference(part.subspan(5001, 9000), local.bytes(7, 9000)) == "");
}

TEST_CASE("nothing is pinned, and pages come only when they are needed")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	const auto before = pinned_pages();
	Scene scene(device);

	drop_pages(scene.to);
	CHECK(present_pages(scene.to) == 0);
	scene.check(IBV_WR_RDMA_WRITE, 0, 1000, 1);
	CHECK(present_pages(scene.to) > 0);
	CHECK(pinned_pages() == before);
}

TEST_CASE("pages move while messages use them")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	Scene scene(device);
	std::atomic<bool> done = false;
	std::thread mover([&] {
		while (!done) {
			/* The pages of one half go, and those of the other change places. */
			madvise(scene.to.data() + size / 2, size / 2, MADV_DONTNEED);
			mprotect(scene.to.data(), size / 4, PROT_READ);
			mprotect(scene.to.data(), size / 4, PROT_READ | PROT_WRITE);
			/* Pages get other places in memory. */
			std::ofstream("/proc/sys/vm/compact_memory") << 1;
			sched_yield();
		}
	});
	std::uint64_t failed = 0;
	fill_pattern(scene.from.bytes(0, size), 77);
	for (int i = 0; i < 60 && !failed; i++) {
		const auto wc = scene.run(i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, 0, size);
		failed += wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_REM_ACCESS_ERR &&
			  wc.status != IBV_WC_REM_OP_ERR;
		if (wc.status != IBV_WC_SUCCESS)
			break; /* it met the moment without a right to write */
	}
	done = true;
	mover.join();
	CHECK(failed == 0);
	Scene again(device);
	again.check(IBV_WR_RDMA_WRITE, 0, size, 78);
}

TEST_CASE("a fork")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	Scene scene(device);
	scene.check(IBV_WR_RDMA_WRITE, 0, size, 5);
	int gate[2];
	REQUIRE(pipe(gate) == 0);

	const pid_t child = spawn([&] {
		char byte;
		close(gate[1]);
		const bool told = read(gate[0], &byte, 1) == 0;
		/* The child keeps what was there when it began. */
		return told && scene.to.data()[size - 1] == pattern(size - 1, 5) ? 0 : 1;
	});
	close(gate[0]);
	scene.check(IBV_WR_RDMA_WRITE, 0, size, 6);
	scene.check(IBV_WR_RDMA_READ, 0, size, 7);
	close(gate[1]);
	CHECK(end_of(child) == 0);
}

TEST_CASE("memory that is not there")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	for (bool implicit : {false, true}) {
		INFO("implicit " << implicit);
		{
			Scene scene(device, implicit);
			scene.check(IBV_WR_RDMA_WRITE, 0, size, 1);
			munmap(scene.to.data() + page_bytes, page_bytes);
			check_status(scene.run(IBV_WR_RDMA_WRITE, 100, 2 * page_bytes),
				     IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_PAGE);
		}
		{
			Scene scene(device, implicit);
			munmap(scene.to.data() + page_bytes, page_bytes);
			check_status(scene.run(IBV_WR_RDMA_READ, 100, 2 * page_bytes),
				     IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_PAGE);
		}
		{
			Scene scene(device, implicit);
			munmap(scene.to.data() + page_bytes, page_bytes);
			check_status(scene.run(IBV_WR_SEND, 100, 2 * page_bytes), IBV_WC_REM_OP_ERR,
				     PEAL_REASON_RECV_LKEY_PAGE);
		}
		for (auto opcode : operations) {
			INFO("opcode " << opcode);
			Scene scene(device, implicit);
			munmap(scene.from.data() + page_bytes, page_bytes);
			check_status(scene.run(opcode, 100, 2 * page_bytes), IBV_WC_LOC_PROT_ERR,
				     PEAL_REASON_LKEY_PAGE);
		}
		{
			Scene scene(device, implicit);
			mprotect(scene.to.data(), size, PROT_READ);
			check_status(scene.run(IBV_WR_RDMA_WRITE, 0, 100), IBV_WC_REM_ACCESS_ERR,
				     PEAL_REASON_RKEY_PAGE);
		}
	}
}

TEST_CASE("memory is moved away, and other memory takes its place")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	Scene scene(device);
	Memory place(size);

	scene.check(IBV_WR_RDMA_WRITE, 0, size, 1);
	REQUIRE(mremap(scene.to.data(), size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place.data()) ==
		place.data());
	REQUIRE(mmap(scene.to.data(), size, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == scene.to.data());
	scene.check(IBV_WR_RDMA_WRITE, 0, size, 2);
	for (std::size_t i = 0; i < size; i++)
		if (place.data()[i] != pattern(i, 1)) {
			CHECK(i == size); /* the memory that moved has kept its bytes */
			break;
		}
	REQUIRE(mremap(scene.to.data(), size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place.data()) ==
		place.data());
	check_status(scene.run(IBV_WR_RDMA_WRITE, 0, 100), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_PAGE);
}

/* Short messages in one page, because the device remembers a page for them. */
TEST_CASE("short messages do not use a page that is gone")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	for (auto opcode : operations) {
		INFO("opcode " << opcode);
		Scene scene(device);

		for (const Memory *memory : {&scene.to, &scene.from}) {
			Memory place(size);

			for (std::uint64_t salt = 1; salt <= 3; salt++)
				scene.check(opcode, 0, 64, salt);
			REQUIRE(mremap(memory->data(), size, size, MREMAP_MAYMOVE | MREMAP_FIXED,
				       place.data()) == place.data());
			REQUIRE(mmap(memory->data(), size, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
				     0) == memory->data());
			scene.check(opcode, 0, 64, 4);
			CHECK(place.data()[1] == pattern(1, 3));
			/* Its page may be read but not written, until the program writes there. */
			mprotect(memory->data(), size, PROT_READ);
			mprotect(memory->data(), size, PROT_READ | PROT_WRITE);
			scene.check(opcode, 0, 64, 5);
		}
	}
}

TEST_CASE("memory is unmapped while messages use it")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	for (auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
		INFO("opcode " << opcode);
		Scene scene(device);
		const Memory witness(size);
		std::atomic<bool> begun = false;

		fill_pattern(scene.from.bytes(0, size), 4);
		std::thread unmapper([&] {
			while (!begun)
				sched_yield();
			munmap(scene.to.data(), size);
			/* These pages may be those that the messages have used. */
			std::memset(witness.data(), 0x33, size);
		});
		ibv_wc wc{};
		for (int i = 0; !wc.status && i < 5000; i++) {
			wc = scene.run(opcode, 0, size);
			begun = true;
		}
		unmapper.join();
		check_status(wc, IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_PAGE);
		CHECK(all_equal(witness.bytes(0, size), 0x33));
		/*
		 * On the wire the responder learns that a page of a READ is missing when the READ
		 * is repeated. A repeated READ ends the requester only.
		 */
		if (!on_wire() || opcode != IBV_WR_RDMA_READ)
			CHECK(eventually(
				[&] { return query_state(scene.pair.b.qp) == IBV_QPS_ERR; }));
	}
}

TEST_CASE("memory that the kernel cannot reach")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	const int file = static_cast<int>(syscall(SYS_memfd_secret, 0));
	if (file < 0)
		SKIP_CASE("this kernel has no secret memory");
	must(ftruncate(file, size) ? errno : 0, "ftruncate");
	for (auto opcode : operations) {
		Scene scene(device);

		REQUIRE(mmap(scene.to.data(), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			     file, 0) == scene.to.data());
		scene.to.data()[0] = 1;
		auto sge = scene.remote_sge(0, 100);
		CHECK(errno_name(ibv_advise_mr(scene.pair.b.pd,
					       IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge,
					       1)) == "EFAULT");
		const bool send = opcode == IBV_WR_SEND;
		check_status(scene.run(opcode, 0, 100),
			     send ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR,
			     send ? PEAL_REASON_RECV_LKEY_PAGE : PEAL_REASON_RKEY_PAGE);
	}
	close(file);
}

TEST_CASE("RLIMIT_MEMLOCK does not count")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	const pid_t child = spawn([&] {
		const rlimit limit = {0, 0};
		Device own;
		Pair pair(own);
		Memory memory(size);

		if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(65534) || setuid(65534))
			return 2;
		if (ibv_mr *mr = ibv_reg_mr(pair.b.pd, memory.data(), size, all_access)) {
			ibv_dereg_mr(mr);
			return 3;
		}
		Mr from(ibv_reg_mr(pair.a.pd, memory.data(), size, odp_access), "reg_mr"),
			to(ibv_reg_mr(pair.b.pd, memory.data(), size, odp_access), "reg_mr");
		fill_pattern(memory.bytes(0, size / 2), 8);
		post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {{memory.address(), size / 2, from->lkey}})
					.remote(memory.address(size / 2), to->rkey));
		wait_success(pair.a.send_cq);
		return difference(memory.bytes(size / 2, size / 2), memory.bytes(0, size / 2)) == ""
			       ? 0
			       : 4;
	});
	CHECK(end_of(child) == 0);
}

TEST_CASE("datagrams are received in it, when its pages are there")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	UdEnd a(device), b(device);
	Memory memory(4 * page_bytes);
	Mr mr(ibv_reg_mr(b.pd, memory.data(), memory.size(), odp_access), "reg_mr");

	for (int round = 0; round < 4; round++) {
		const auto to = memory.bytes(page_bytes - 100, 300);

		drop_pages(memory);
		fill_pattern(a.memory.bytes(0, 260), round);
		post_recv(b.qp, 1, {{memory.address(page_bytes - 100), 300, mr->lkey}});
		/* Datagrams are lost until the pages are there. The receive waits. */
		const bool arrived = eventually([&] {
			post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 260)}));
			wait_success(a.send_cq);
			usleep(2000);
			return !drain(b.recv_cq).empty();
		});
		CHECK(arrived);
		CHECK(difference(to.subspan(grh_bytes), a.memory.bytes(0, 260)) == "");
	}
}

TEST_CASE("datagrams are sent from it")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	UdEnd a(device), b(device);
	Memory memory(4 * page_bytes);
	Mr mr(ibv_reg_mr(a.pd, memory.data(), memory.size(), odp_access), "reg_mr");

	for (int round = 0; round < 8; round++) {
		drop_pages(memory);
		const auto from = memory.bytes(page_bytes - 100, 200);
		if (round % 2)
			fill_pattern(from, round);
		post_recv(b.qp, 1, {b.memory.sge(0, 300)});
		post(a.qp, Datagram(a.to_self, b.qp->qp_num,
				    {{memory.address(page_bytes - 100), 200, mr->lkey}}));
		wait_success(a.send_cq);
		wait_success(b.recv_cq);
		const auto got = b.memory.bytes(grh_bytes, 200);
		if (round % 2)
			CHECK(difference(got, from) == "");
		else
			CHECK(all_equal(got, 0));
	}
	/* Memory that goes fails the send. */
	munmap(memory.data() + page_bytes, page_bytes);
	post(a.qp, Datagram(a.to_self, b.qp->qp_num,
			    {{memory.address(page_bytes - 100), 200, mr->lkey}}));
	check_status(wait_completion(a.send_cq), IBV_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_PAGE);
}

TEST_CASE("prefetching")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	Scene scene(device);
	auto *pd = scene.pair.b.pd.get();
	const auto advise = [&](ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge sge) {
		return errno_name(ibv_advise_mr(pd, advice, flags, &sge, 1));
	};

	drop_pages(scene.to);
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH,
		     scene.remote_sge(0, size)) == "0");
	CHECK(present_pages(scene.to) == 0);
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
		     scene.remote_sge(0, size / 2)) == "0");
	CHECK(present_pages(scene.to) == size / 2 / page_bytes);
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, scene.remote_sge(0, size)) == "0");
	scene.check(IBV_WR_RDMA_WRITE, 0, size, 4);

	auto wrong = scene.remote_sge(0, size);
	wrong.lkey ^= 1;
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, wrong) == "EFAULT");
	auto right = scene.remote_sge(0, 8);
	CHECK(errno_name(ibv_advise_mr(scene.pair.a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &right,
				       1)) == "EFAULT");
	Mr read_only(ibv_reg_mr(pd, scene.to.data(), size,
				IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND),
		     "reg_mr");
	right.lkey = read_only->lkey;
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, right) == "0");
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, right) == "EFAULT");
	wrong = scene.remote_sge(0, size);
	wrong.addr += 1;
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, wrong) == "EFAULT");
	CHECK(advise(static_cast<ibv_advise_mr_advice>(77), 0, scene.remote_sge(0, 8)) != "0");
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 2, scene.remote_sge(0, 8)) != "0");
	Region pinned(scene.pair.b.pd, page_bytes);
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, pinned.sge(0, 8)) == "EFAULT");
	munmap(scene.to.data() + page_bytes, page_bytes);
	CHECK(advise(IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH,
		     scene.remote_sge(0, size)) == "EFAULT");
}

TEST_CASE("dereg while pages come, and a program that is killed")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	for (int round = 0; round < 20; round++) {
		Scene scene(device, round % 2);
		drop_pages(scene.to);
		post(scene.pair.a.qp, Send(IBV_WR_RDMA_WRITE, {scene.sge(0, size)})
					      .remote(scene.to.address(), scene.remote->rkey));
		scene.remote.reset();
		scene.local.reset();
		wait_completion(scene.pair.a.send_cq); /* with any status */
	}
	for (int round = 0; round < 5; round++) {
		const pid_t child = spawn([&] {
			Device own;
			Scene scene(own, round % 2);
			for (int i = 0; i < 10; i++)
				post(scene.pair.a.qp,
				     Send(IBV_WR_RDMA_WRITE, {scene.sge(0, size)})
					     .remote(scene.to.address(), scene.remote->rkey));
			raise(SIGKILL);
			return 0;
		});
		CHECK(end_of(child) == 256 + SIGKILL);
	}
	Scene scene(device);
	scene.check(IBV_WR_RDMA_WRITE, 0, size, 9);
}

TEST_CASE("registrations that are refused")
{
	Device device;
	NEEDS_ON_DEMAND_PAGING(device);
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory memory(size);
	const auto refused = [&](void *address, std::size_t length, int access) {
		ibv_mr *mr = ibv_reg_mr(pd, address, length, access);
		if (mr)
			ibv_dereg_mr(mr);
		return !mr;
	};

	CHECK(refused(nullptr, SIZE_MAX, odp_access | IBV_ACCESS_HUGETLB));
	CHECK(refused(memory.data(), SIZE_MAX, odp_access));
	CHECK(refused(memory.data(), size, odp_access | IBV_ACCESS_MW_BIND));
	CHECK(errno_name(errno) == "EOPNOTSUPP");
	CHECK(refused(reinterpret_cast<void *>(~0xfffULL << 20), 4096, odp_access));
	/* It gives no access (verbs/memory_regions). */
	CHECK(!refused(memory.data(), 0, odp_access));
	Mr mr(ibv_reg_mr(pd, memory.data(), size, odp_access), "reg_mr");
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, all_access) != 0);
	Mr pinned(ibv_reg_mr(pd, memory.data(), size, all_access), "reg_mr");
	CHECK(ibv_rereg_mr(pinned, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, odp_access) !=
	      0);
}
