// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Device memory: what can be allocated, copied, registered, and used in messages.
 *
 * Holds: Its copies check their range. Every operation reads and writes it, at both ends, atomics
 * too. A region covers no more than its part. Memory with a region, and more than the limit, are
 * refused. Another process imports it. Memory of a killed process is given back.
 * Does not hold: keys and ranges of ordinary regions (verbs/failed_requests), the quota's rule
 * (test/unit/kernel/quota).
 */
#include "innocent.hpp"

using namespace peal_test;

namespace {

using Dm = Handle<ibv_dm, ibv_free_dm>;

constexpr unsigned dm_access = all_access | IBV_ACCESS_ZERO_BASED;
constexpr std::size_t dm_bytes = 5 * page_bytes;

std::size_t max_dm_bytes(ibv_context *context)
{
	ibv_device_attr_ex attr{};

	must(ibv_query_device_ex(context, nullptr, &attr), "query_device_ex");
	return attr.max_dm_size;
}

Dm allocate(ibv_context *context, std::size_t length)
{
	ibv_alloc_dm_attr attr{length, 6, 0};

	return Dm(ibv_alloc_dm(context, &attr), "alloc_dm");
}

std::string try_allocate(ibv_context *context, std::size_t length, std::uint32_t log_align = 0,
			 std::uint32_t comp_mask = 0)
{
	ibv_alloc_dm_attr attr{length, log_align, comp_mask};

	errno = 0;
	ibv_dm *dm = ibv_alloc_dm(context, &attr);
	if (!dm)
		return errno_name(errno);
	must(ibv_free_dm(dm), "free_dm");
	return "0";
}

std::string try_register(ibv_pd *pd, ibv_dm *dm, std::uint64_t offset, std::size_t length,
			 unsigned access = dm_access)
{
	errno = 0;
	ibv_mr *mr = ibv_reg_dm_mr(pd, dm, offset, length, access);
	if (!mr)
		return errno_name(errno);
	must(ibv_dereg_mr(mr), "dereg_mr");
	return "0";
}

/* Device memory with a region of one part of it. */
struct Part {
	Part(ibv_pd *pd, std::uint64_t offset, std::size_t length)
		: dm(allocate(pd->context, dm_bytes)), offset(offset),
		  mr(ibv_reg_dm_mr(pd, dm, offset, length, dm_access), "reg_dm_mr")
	{
	}
	ibv_sge sge(std::uint64_t at, std::size_t length) const
	{
		return {at, static_cast<std::uint32_t>(length), mr->lkey};
	}
	/* The bytes are copied by the program. Offsets count from the part's begin. */
	void put(std::uint64_t at, std::span<const std::uint8_t> bytes) const
	{
		must(ibv_memcpy_to_dm(dm, offset + at, bytes.data(), bytes.size()), "memcpy_to_dm");
	}
	std::vector<std::uint8_t> get(std::uint64_t at, std::size_t length) const
	{
		std::vector<std::uint8_t> bytes(length);

		must(ibv_memcpy_from_dm(bytes.data(), dm, offset + at, length), "memcpy_from_dm");
		return bytes;
	}
	Dm dm;
	std::uint64_t offset;
	Mr mr;
};

} // namespace

TEST_CASE("allocation obeys length, alignment and limit")
{
	Device device;
	const auto limit = max_dm_bytes(device);

	REQUIRE(limit >= dm_bytes);
	CHECK(try_allocate(device, 4) == "0");
	CHECK(try_allocate(device, limit) == "0");
	CHECK(try_allocate(device, 100, 12) == "0");
	CHECK(try_allocate(device, 0) == "EINVAL");
	CHECK(try_allocate(device, limit + 1) == "EINVAL");
	CHECK(try_allocate(device, ~std::size_t{0}) == "EINVAL");
	CHECK(try_allocate(device, 100, 13) == "EINVAL");
	CHECK(try_allocate(device, 100, ~0U) == "EINVAL");
	CHECK(try_allocate(device, 100, 0, 1) == "EINVAL");

	const auto most = allocate(device, limit - page_bytes);
	CHECK(try_allocate(device, page_bytes + 1) == "ENOSPC");
	CHECK(try_allocate(device, page_bytes) == "0");
	/* Each context has its own limit. */
	Device other;
	CHECK(try_allocate(other, limit) == "0");
}

TEST_CASE("the program copies to it and from it")
{
	Device device;
	const auto dm = allocate(device, 100);
	const auto bytes = pattern_of(100, 1);
	std::uint8_t got[100];

	must(ibv_memcpy_from_dm(got, dm, 0, sizeof(got)), "memcpy_from_dm");
	CHECK(all_equal(got, 0));
	must(ibv_memcpy_to_dm(dm, 0, bytes.data(), 100), "memcpy_to_dm");
	must(ibv_memcpy_from_dm(got, dm, 48, 52), "memcpy_from_dm");
	CHECK(difference({got, 52}, std::span(bytes).subspan(48)) == "");
	for (auto [offset, length] : {std::pair<std::uint64_t, std::size_t>{2, 4},
				      {0, 2},
				      {100, 4},
				      {0, 104},
				      {96, 8},
				      {~std::uint64_t{3}, 8},
				      {8, ~std::size_t{3}}}) {
		INFO("offset " << offset << ", length " << length);
		CHECK(ibv_memcpy_to_dm(dm, offset, bytes.data(), length) == EINVAL);
		CHECK(ibv_memcpy_from_dm(got, dm, offset, length) == EINVAL);
	}
	CHECK(ibv_memcpy_to_dm(dm, 100, bytes.data(), 0) == 0);
}

TEST_CASE("every operation reads and writes it")
{
	Device device;
	Pair pair(device);
	auto &[a, b] = pair;
	const std::size_t length = 2 * page_bytes + 500;
	const Part from(a.pd, page_bytes - 60, length), to(b.pd, 124, length);
	std::uint64_t salt = 0;

	for (auto opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
		INFO("opcode " << opcode);
		const bool reads = opcode == IBV_WR_RDMA_READ;
		const Part &source = reads ? to : from, &target = reads ? from : to;
		const auto bytes = pattern_of(length - 8, ++salt), blank = pattern_of(length, 0);
		target.put(0, blank);
		source.put(4, bytes);
		if (opcode == IBV_WR_SEND)
			post_recv(b.qp, 1, {to.sge(4, length - 8)});
		post(a.qp, Send(opcode, {from.sge(4, 1000), from.sge(1004, length - 1008)})
				   .remote(4, to.mr->rkey));
		wait_success(a.send_cq);
		if (opcode == IBV_WR_SEND)
			wait_success(b.recv_cq);
		CHECK(difference(target.get(4, length - 8), std::span(bytes).first(length - 8)) ==
		      "");
		CHECK(difference(target.get(0, 4), std::span(blank).first(4)) == "");
		CHECK(difference(target.get(length - 4, 4), std::span(blank).last(4)) == "");
	}
}

TEST_CASE("atomics on it")
{
	Device device;
	Pair pair(device);
	auto &[a, b] = pair;
	const Part from(a.pd, 0, 64), to(b.pd, 8, 64);
	const auto word = [](const Part &part, std::uint64_t at) {
		std::uint64_t value = 0;
		std::memcpy(&value, part.get(at, 8).data(), 8);
		return value;
	};
	const std::uint64_t start = 0x123456789abcdef0ULL;

	to.put(16, {reinterpret_cast<const std::uint8_t *>(&start), 8});
	post(a.qp, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {from.sge(0, 8)}).atomic(16, to.mr->rkey, 17));
	post(a.qp, Send(IBV_WR_ATOMIC_CMP_AND_SWP, {from.sge(8, 8)})
			   .atomic(16, to.mr->rkey, start + 17, 99));
	post(a.qp,
	     Send(IBV_WR_ATOMIC_CMP_AND_SWP, {from.sge(16, 8)}).atomic(16, to.mr->rkey, start, 1));
	wait_success(a.send_cq, 3);
	CHECK(word(from, 0) == start);
	CHECK(word(from, 8) == start + 17);
	CHECK(word(from, 16) == 99);
	CHECK(word(to, 16) == 99);
}

TEST_CASE("a region covers its part and no more")
{
	Device device;

	for (auto [at, length] : {std::pair<std::uint64_t, std::size_t>{1000, 1},
				  {0, 1001},
				  {999, 2},
				  {~std::uint64_t{0}, 2}}) {
		INFO("from " << at << ", length " << length);
		Pair pair(device);
		Region local(pair.a.pd, page_bytes);
		const Part part(pair.b.pd, 4, 1000);
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {local.sge(0, length)}).remote(at, part.mr->rkey));
		check_status(wait_completion(pair.a.send_cq), IBV_WC_REM_ACCESS_ERR,
			     PEAL_REASON_RKEY_RANGE);
	}
	Pair pair(device);
	Region remote(pair.b.pd, page_bytes);
	const Part part(pair.a.pd, 4, 1000);
	post(pair.a.qp,
	     Send(IBV_WR_RDMA_WRITE, {part.sge(600, 401)}).remote(remote.address(), remote.rkey()));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_RANGE);
}

TEST_CASE("registrations that are refused")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const auto dm = allocate(device, 1000);

	CHECK(try_register(pd, dm, 0, 1000) == "0");
	CHECK(try_register(pd, dm, 0, 0) == "0");
	CHECK(try_register(pd, dm, 1, 999) == "0");
	CHECK(try_register(pd, dm, 0, 1001) == "EINVAL");
	CHECK(try_register(pd, dm, 1000, 1) == "EINVAL");
	CHECK(try_register(pd, dm, ~std::uint64_t{0}, 2) == "EINVAL");
	CHECK(try_register(pd, dm, 0, 8, all_access) == "EINVAL");
	CHECK(try_register(pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE) ==
	      "EINVAL");
	CHECK(try_register(pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED | 1 << 12) != "0");
}

TEST_CASE("memory with a region is not freed, and the region stays as it is")
{
	Device device;
	Pair pair(device);
	Region local(pair.a.pd, page_bytes);
	Part part(pair.b.pd, 0, 500);

	CHECK(ibv_free_dm(part.dm) == EBUSY);
	CHECK(ibv_rereg_mr(part.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
			   IBV_ACCESS_LOCAL_WRITE) != 0);
	fill_pattern(local.bytes(0, 500), 3);
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {local.sge(0, 500)}).remote(0, part.mr->rkey));
	wait_success(pair.a.send_cq);
	CHECK(difference(part.get(0, 500), local.bytes(0, 500)) == "");

	const auto rkey = part.mr->rkey;
	part.mr.reset();
	part.dm.reset();
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {local.sge(0, 8)}).remote(0, rkey));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_UNKNOWN);
}

TEST_CASE("another process imports it")
{
	Device device;
	const auto dm = allocate(device, dm_bytes);
	const auto bytes = pattern_of(dm_bytes, 5);

	must(ibv_memcpy_to_dm(dm, 0, bytes.data(), bytes.size()), "memcpy_to_dm");
	const pid_t child = spawn([&] {
		Context context(ibv_import_device(dup(device.context()->cmd_fd)), "import_device");
		std::vector<std::uint8_t> got(dm_bytes);
		ibv_dm *imported = ibv_import_dm(context, dm->handle);
		if (!imported)
			return 2;
		if (ibv_memcpy_from_dm(got.data(), imported, 0, got.size()) || got != bytes)
			return 3;
		if (ibv_memcpy_to_dm(imported, 8, "peal", 4))
			return 4;
		ibv_unimport_dm(imported);
		errno = 0;
		return ibv_import_dm(context, 0x7ffffff0) || errno != ENOENT ? 5 : 0;
	});
	CHECK(end_of(child) == 0);
	char word[4];
	must(ibv_memcpy_from_dm(word, dm, 8, 4), "memcpy_from_dm");
	CHECK(std::string(word, 4) == "peal");
}

TEST_CASE("memory of killed processes is given back")
{
	/* Together they take more than all programs may have. */
	for (int round = 0; round < 70; round++) {
		const pid_t child = spawn([] {
			Device device;
			Pd pd(ibv_alloc_pd(device), "alloc_pd");
			const auto dm = allocate(device, max_dm_bytes(device));
			Mr mr(ibv_reg_dm_mr(pd, dm, 0, 64, dm_access), "reg_dm_mr");
			raise(SIGKILL);
			return 0;
		});
		REQUIRE(end_of(child) == 256 + SIGKILL);
	}
}
