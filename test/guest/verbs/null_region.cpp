// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The null region, and regions whose first byte has the address 0.
 *
 * Holds: The null region reads as zeros, of any length, and forgets what SEND, READ and atomics
 * write to it, also beside other entries of a list. It is no remote region, and cannot be changed.
 * A zero-based region works for both ends, and begins at 0.
 * Does not hold: other regions (verbs/memory_regions, verbs/device_memory).
 */
#include "verbs.hpp"

using namespace peal_test;

namespace {

struct Scene {
	explicit Scene(Device &device)
		: pair(device), null(ibv_alloc_null_mr(pair.a.pd), "alloc_null_mr"),
		  remote_null(ibv_alloc_null_mr(pair.b.pd), "alloc_null_mr"),
		  local(pair.a.pd, 64 * page_bytes), remote(pair.b.pd, 64 * page_bytes)
	{
	}
	ibv_sge nothing(std::size_t length, std::uint64_t address = 0) const
	{
		return {address, static_cast<std::uint32_t>(length), null->lkey};
	}
	void run(ibv_wr_opcode opcode, std::vector<ibv_sge> list)
	{
		post(pair.a.qp,
		     Send(opcode, std::move(list)).remote(remote.address(), remote.rkey()));
		wait_success(pair.a.send_cq);
	}
	Pair pair;
	Mr null, remote_null;
	Region local, remote;
};

} // namespace

TEST_CASE("it reads as zeros, of any length and at any address")
{
	Device device;
	Scene scene(device);

	CHECK(scene.null->length == SIZE_MAX);
	for (auto [length, address] : {std::pair<std::size_t, std::uint64_t>{1, 0},
				       {4096, 4095},
				       {64 * page_bytes, ~std::uint64_t{0}}}) {
		INFO("length " << length << " at " << address);
		const auto before = scene.remote.bytes(0, length);
		fill_pattern(scene.remote.bytes(0, scene.remote.size()), 3);
		scene.run(IBV_WR_RDMA_WRITE, {scene.nothing(length, address)});
		CHECK(all_equal(before, 0));
		if (length < scene.remote.size())
			CHECK(scene.remote.data()[length] == pattern(length, 3));
	}
}

TEST_CASE("it forgets what is written to it")
{
	Device device;
	Scene scene(device);
	auto &[a, b] = scene.pair;

	fill_pattern(scene.remote.bytes(0, scene.remote.size()), 5);
	scene.run(IBV_WR_RDMA_READ, {scene.nothing(64 * page_bytes)});
	/* A receive into it. */
	fill_pattern(scene.local.bytes(0, 10000), 6);
	post_recv(b.qp, 1, {{77, 10000, scene.remote_null->lkey}});
	scene.run(IBV_WR_SEND, {scene.local.sge(0, 10000)});
	CHECK(wait_success(b.recv_cq).front().byte_len == 10000);
	/* The old value of an atomic. */
	post(a.qp, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {scene.nothing(8)})
			   .atomic(scene.remote.address(), scene.remote.rkey(), 1));
	wait_success(a.send_cq);
	/* It still reads as zeros, for everybody. */
	scene.run(IBV_WR_RDMA_WRITE, {scene.nothing(64 * page_bytes)});
	CHECK(all_equal(scene.remote.bytes(0, scene.remote.size()), 0));
}

TEST_CASE("it skips parts of messages in a list")
{
	Device device;
	Scene scene(device);
	const auto whole = scene.remote.bytes(0, 3000);

	/* A READ keeps the first and the last thousand bytes. */
	fill_pattern(whole, 8);
	std::memset(scene.local.data(), 0x55, 3000);
	scene.run(IBV_WR_RDMA_READ,
		  {scene.local.sge(0, 1000), scene.nothing(1000), scene.local.sge(1000, 1000)});
	CHECK(difference(scene.local.bytes(0, 1000), whole.subspan(0, 1000)) == "");
	CHECK(difference(scene.local.bytes(1000, 1000), whole.subspan(2000, 1000)) == "");
	CHECK(all_equal(scene.local.bytes(2000, 1000), 0x55));
	/* A WRITE puts zeros between them. */
	scene.run(IBV_WR_RDMA_WRITE,
		  {scene.local.sge(2000, 1000), scene.nothing(1000), scene.local.sge(2000, 1000)});
	CHECK(all_equal(whole.subspan(0, 1000), 0x55));
	CHECK(all_equal(whole.subspan(1000, 1000), 0));
	CHECK(all_equal(whole.subspan(2000, 1000), 0x55));
}

TEST_CASE("it is no remote region, and its neighbours are no keys")
{
	Device device;

	for (std::uint32_t key = 0; key < 4; key++) {
		INFO("key " << key);
		Scene scene(device);
		post(scene.pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {scene.local.sge(0, 8)}).remote(0, key));
		check_status(wait_completion(scene.pair.a.send_cq), IBV_WC_REM_ACCESS_ERR,
			     PEAL_REASON_RKEY_UNKNOWN);
		if (key == PEAL_NULL_LKEY)
			continue;
		Scene other(device);
		post(other.pair.a.qp, Send(IBV_WR_RDMA_WRITE, {{0, 8, key}})
					      .remote(other.remote.address(), other.remote.rkey()));
		check_status(wait_completion(other.pair.a.send_cq), IBV_WC_LOC_PROT_ERR,
			     PEAL_REASON_LKEY_UNKNOWN);
	}
}

TEST_CASE("it cannot be changed, and windows cannot be bound to it")
{
	Device device;
	Scene scene(device);
	Memory memory(page_bytes);

	CHECK(ibv_rereg_mr(scene.null, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.data(),
			   memory.size(), 0) != 0);
	Mw window(ibv_alloc_mw(scene.pair.a.pd, IBV_MW_TYPE_1), "alloc_mw");
	ibv_mw_bind bind{};
	bind.wr_id = 1;
	bind.send_flags = IBV_SEND_SIGNALED;
	bind.bind_info = {scene.null, 0, 8, IBV_ACCESS_REMOTE_READ};
	if (!ibv_bind_mw(scene.pair.a.qp, window, &bind))
		CHECK(wait_completion(scene.pair.a.send_cq).status != IBV_WC_SUCCESS);
}

TEST_CASE("a zero-based region begins at 0")
{
	Device device;
	Pair pair(device);
	Memory near(4 * page_bytes), far(4 * page_bytes);
	constexpr int access = all_access | IBV_ACCESS_ZERO_BASED;
	const auto from = near.bytes(100, 3 * page_bytes), to = far.bytes(200, 3 * page_bytes);
	Mr local(ibv_reg_mr(pair.a.pd, from.data(), from.size(), access), "reg_mr");
	Mr remote(ibv_reg_mr(pair.b.pd, to.data(), to.size(), access), "reg_mr");
	const auto all = static_cast<std::uint32_t>(from.size());

	fill_pattern(from, 9);
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {{0, all, local->lkey}}).remote(0, remote->rkey));
	wait_success(pair.a.send_cq);
	CHECK(difference(to, from) == "");
	std::memset(from.data(), 0, from.size());
	post(pair.a.qp, Send(IBV_WR_RDMA_READ, {{page_bytes + 1, 5000, local->lkey}})
				.remote(17, remote->rkey));
	wait_success(pair.a.send_cq);
	CHECK(difference(from.subspan(page_bytes + 1, 5000), to.subspan(17, 5000)) == "");
	post(pair.a.qp, Send(IBV_WR_RDMA_WRITE, {{0, 8, local->lkey}})
				.remote(reinterpret_cast<std::uintptr_t>(to.data()), remote->rkey));
	check_status(wait_completion(pair.a.send_cq), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_RANGE);
}
