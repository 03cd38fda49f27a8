// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * Memory windows of type 1 and 2B, and the invalidation of their keys.
 *
 * Holds: A bound window allows what its bind asked for. Wrong binds are refused. Both sides can
 * invalidate a key. Objects that are in use cannot be destroyed.
 * Does not hold: memory regions (verbs/memory_regions).
 */
#include "verbs.hpp"

#include <atomic>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::size_t region_bytes = 4 * page_bytes;
constexpr int window_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/* b owns a region to which windows are bound. a uses the windows. */
struct Scene {
	explicit Scene(Device &device, ibv_mw_type type = IBV_MW_TYPE_2)
		: pair(device), from(pair.a.pd, page_bytes),
		  to(pair.b.pd, region_bytes, all_access | IBV_ACCESS_MW_BIND),
		  window(ibv_alloc_mw(pair.b.pd, type), "alloc_mw")
	{
		fill_pattern(from.bytes(0, 256), 2);
	}
	ibv_mw_bind_info info(std::size_t offset, std::size_t length, int access = window_access)
	{
		return {to.mr(), to.address(offset), length, static_cast<unsigned>(access)};
	}
	Send bind_request(std::uint32_t rkey, const ibv_mw_bind_info &what)
	{
		Send send(IBV_WR_BIND_MW);
		send.wr.bind_mw = {window, rkey, what};
		return send.id(50);
	}
	/* Return: the new key. */
	std::uint32_t bind(std::size_t offset, std::size_t length, int access = window_access)
	{
		const auto rkey = ibv_inc_rkey(window->rkey);
		post(pair.b.qp, bind_request(rkey, info(offset, length, access)));
		const auto wc = wait_success(pair.b.send_cq).front();
		CHECK(wc.opcode == IBV_WC_BIND_MW);
		window->rkey = rkey;
		return rkey;
	}
	ibv_wc write(std::uint64_t address, std::uint32_t rkey, std::size_t length = 64)
	{
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {from.sge(0, length)}).remote(address, rkey));
		return wait_completion(pair.a.send_cq);
	}
	void expect_written(std::size_t offset, std::size_t length = 64)
	{
		CHECK(difference(to.bytes(offset, length), from.bytes(0, length)) == "");
	}

	Pair pair;
	Region from, to;
	Mw window;
};

struct BadBind {
	const char *name;
	std::function<Send(Scene &, std::uint32_t rkey)> request;
	peal_reason reason;
};

void check_bad_bind(Device &device, const BadBind &bad)
{
	INFO("case: " << bad.name);
	Scene scene(device);
	const auto send = bad.request(scene, ibv_inc_rkey(scene.window->rkey));

	if (try_post(scene.pair.b.qp, send))
		return; /* the provider may refuse it at once */
	check_status(wait_completion(scene.pair.b.send_cq), IBV_WC_MW_BIND_ERR, bad.reason);
	CHECK(state_name(query_state(scene.pair.b.qp)) == "ERR");
}

void check_invalid(Scene &scene, std::uint32_t rkey)
{
	check_status(scene.write(scene.to.address(), rkey), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_UNKNOWN);
}

/*
 * Binds to `mr` in this thread and deregisters it in another one. One of the two must fail. Each
 * round binds a little later, so that the bind happens at every moment of the other system call.
 */
void race_bind_with_dereg(Scene &scene, int delay)
{
	ibv_mr *mr = ibv_reg_mr(scene.pair.b.pd, scene.to.bytes(0, 1).data(), page_bytes,
				all_access | IBV_ACCESS_MW_BIND);
	REQUIRE(mr);
	const auto rkey = ibv_inc_rkey(scene.window->rkey);
	const ibv_mw_bind_info info{mr, scene.to.address(), 64, window_access};
	std::atomic<bool> go{false};
	int dereg = -1;
	std::thread other([&] {
		while (!go)
			;
		dereg = ibv_dereg_mr(mr);
	});
	const auto request = scene.bind_request(rkey, info);
	go = true;
	for (int spin = 0; spin < delay; ++spin)
		std::atomic_signal_fence(std::memory_order_seq_cst);
	post(scene.pair.b.qp, request);
	const bool bound = wait_completion(scene.pair.b.send_cq).status == IBV_WC_SUCCESS;
	other.join();
	CHECK(bound == (dereg == EBUSY));
	CHECK(bound != (dereg == 0));
	if (!bound)
		return;
	Send invalidate(IBV_WR_LOCAL_INV);
	invalidate.wr.invalidate_rkey = rkey;
	post(scene.pair.b.qp, invalidate);
	wait_success(scene.pair.b.send_cq);
	CHECK(!ibv_dereg_mr(mr));
}

} // namespace

TEST_CASE("a region is not deregistered under a bind, nor bound under its deregistration")
{
	Device device;
	for (int round = 0; round < 300; ++round) {
		Scene scene(device);
		race_bind_with_dereg(scene, round * 100);
	}
}

TEST_CASE("a type 2 window opens its range and no more")
{
	Device device;
	Scene scene(device);
	const auto rkey = scene.bind(100, 200);

	must_succeed(scene.write(scene.to.address(100), rkey));
	must_succeed(scene.write(scene.to.address(236), rkey));
	scene.expect_written(100);
	scene.expect_written(236);
	check_status(scene.write(scene.to.address(237), rkey), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_RANGE);
	CHECK(all_equal(scene.to.bytes(300, 64), 0));
}

TEST_CASE("a bind chooses the low byte of a type 2 window's key, and no more")
{
	Device device;
	Scene scene(device);
	const auto rkey = ibv_inc_rkey(scene.window->rkey);
	const auto named = rkey ^ 0xffffff00;

	post(scene.pair.b.qp, scene.bind_request(named, scene.info(0, 4096)));
	wait_success(scene.pair.b.send_cq);
	must_succeed(scene.write(scene.to.address(), rkey));
	scene.expect_written(0);
	const auto wc = scene.write(scene.to.address(), named);
	CHECK(status_name(wc.status) == status_name(IBV_WC_REM_ACCESS_ERR));
}

TEST_CASE("the first byte of a zero-based type 2 window has address 0")
{
	Device device;
	Scene scene(device);
	const auto rkey = scene.bind(100, 200, window_access | IBV_ACCESS_ZERO_BASED);

	must_succeed(scene.write(0, rkey));
	must_succeed(scene.write(136, rkey));
	scene.expect_written(100);
	scene.expect_written(236);
	CHECK(all_equal(scene.to.bytes(0, 100), 0));
	check_status(scene.write(137, rkey), IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_RANGE);
	CHECK(all_equal(scene.to.bytes(300, 64), 0));

	Scene by_address(device);
	const auto key = by_address.bind(100, 200, window_access | IBV_ACCESS_ZERO_BASED);
	check_status(by_address.write(by_address.to.address(100), key), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_RANGE);
}

TEST_CASE("a type 1 window and its region are not zero-based, which costs no queue pair")
{
	Device device;
	Scene scene(device, IBV_MW_TYPE_1);
	const Region offsets(scene.pair.b.pd, page_bytes,
			     all_access | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED);
	const auto rkey = scene.window->rkey;
	ibv_mw_bind bind{};
	const auto refused = [&](const ibv_mw_bind_info &info) {
		bind.bind_info = info;
		return errno_name(ibv_bind_mw(scene.pair.b.qp, scene.window, &bind)) == "EINVAL";
	};

	CHECK(refused(scene.info(0, 4096, window_access | IBV_ACCESS_ZERO_BASED)));
	CHECK(refused({offsets.mr(), 0, 4096, window_access}));
	CHECK(scene.window->rkey == rkey);
	bind.send_flags = IBV_SEND_SIGNALED;
	bind.bind_info = scene.info(0, 4096);
	must(ibv_bind_mw(scene.pair.b.qp, scene.window, &bind), "bind_mw");
	wait_success(scene.pair.b.send_cq);
}

TEST_CASE("a window starts where it starts")
{
	Device device;
	Scene scene(device);
	const auto rkey = scene.bind(100, 200);

	check_status(scene.write(scene.to.address(99), rkey), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_RANGE);
}

TEST_CASE("a window allows what it was bound for")
{
	Device device;
	Scene scene(device);
	const auto rkey = scene.bind(0, 4096, IBV_ACCESS_REMOTE_READ);

	post(scene.pair.a.qp,
	     Send(IBV_WR_RDMA_READ, {scene.from.sge(0, 8)}).remote(scene.to.address(), rkey));
	wait_success(scene.pair.a.send_cq);
	check_status(scene.write(scene.to.address(), rkey), IBV_WC_REM_ACCESS_ERR,
		     PEAL_REASON_RKEY_ACCESS);
}

TEST_CASE("a window that was never bound opens nothing")
{
	Device device;
	Scene scene(device);
	const auto wc = scene.write(scene.to.address(), scene.window->rkey);

	CHECK(status_name(wc.status) == status_name(IBV_WC_REM_ACCESS_ERR));
}

TEST_CASE("a type 2 window belongs to the queue pair that bound it")
{
	Device device;
	Scene scene(device);
	const auto rkey = scene.bind(0, 4096);
	Endpoint stranger(device);
	Cq cq(create_cq(device, 16));
	Qp other(create_qp(scene.pair.b.pd, cq, cq));
	connect(device, stranger.qp, other);
	Region from(stranger.pd, page_bytes);

	post(stranger.qp,
	     Send(IBV_WR_RDMA_WRITE, {from.sge(0, 8)}).remote(scene.to.address(), rkey));
	check_status(wait_completion(stranger.send_cq), IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_QP);
	must_succeed(scene.write(scene.to.address(), rkey));
}

TEST_CASE("local invalidation closes a window, and it can be bound again")
{
	Device device;
	Scene scene(device);
	const auto first = scene.bind(0, 4096);
	Send invalidate(IBV_WR_LOCAL_INV);
	invalidate.wr.invalidate_rkey = first;

	post(scene.pair.b.qp, invalidate);
	CHECK(wait_success(scene.pair.b.send_cq).front().opcode == IBV_WC_LOCAL_INV);
	const auto second = scene.bind(0, 4096);
	CHECK(second != first);
	must_succeed(scene.write(scene.to.address(), second));
	check_invalid(scene, first);
}

TEST_CASE("remote invalidation closes a window and says so")
{
	Device device;
	Scene scene(device);
	const auto rkey = scene.bind(0, 4096);
	Send send(IBV_WR_SEND_WITH_INV, {scene.from.sge(0, 16)});
	send.wr.invalidate_rkey = rkey;

	post_recv(scene.pair.b.qp, 1, {scene.to.sge(1000, 64)});
	post(scene.pair.a.qp, send);
	wait_success(scene.pair.a.send_cq);
	const auto wc = wait_success(scene.pair.b.recv_cq).front();
	CHECK((wc.wc_flags & IBV_WC_WITH_INV) != 0);
	CHECK(wc.invalidated_rkey == rkey);
	check_invalid(scene, rkey);
}

TEST_CASE("binds that are refused")
{
	Device device;
	Pd other(ibv_alloc_pd(device), "alloc_pd");
	Region foreign(other, region_bytes, all_access | IBV_ACCESS_MW_BIND);

	check_bad_bind(device, {"behind the region",
				[](Scene &s, auto rkey) {
					return s.bind_request(rkey, s.info(1, region_bytes));
				},
				PEAL_REASON_BIND_RANGE});
	check_bad_bind(device,
		       {"no byte of the region",
			[](Scene &s, auto rkey) { return s.bind_request(rkey, s.info(0, 0)); },
			PEAL_REASON_BIND_RANGE});
	check_bad_bind(device, {"a zero-based window behind the region",
				[](Scene &s, auto rkey) {
					return s.bind_request(
						rkey,
						s.info(1, region_bytes,
						       window_access | IBV_ACCESS_ZERO_BASED));
				},
				PEAL_REASON_BIND_RANGE});
	check_bad_bind(device, {"a range that wraps",
				[](Scene &s, auto rkey) {
					auto info = s.info(0, 4096);
					info.length = ~0ULL - 10;
					return s.bind_request(rkey, info);
				},
				PEAL_REASON_BIND_RANGE});
	check_bad_bind(device, {"a region of another protection domain",
				[&](Scene &s, auto rkey) {
					auto info = s.info(0, 4096);
					info.mr = foreign.mr();
					info.addr = foreign.address();
					return s.bind_request(rkey, info);
				},
				PEAL_REASON_BIND_REGION});
}

TEST_CASE("a region that is not bindable, or that cannot be written")
{
	Device device;
	Scene plain(device);
	Region unbindable(plain.pair.b.pd, region_bytes);
	ibv_mw_bind_info info{unbindable.mr(), unbindable.address(), 4096, window_access};
	if (!try_post(plain.pair.b.qp, plain.bind_request(ibv_inc_rkey(plain.window->rkey), info)))
		check_status(wait_completion(plain.pair.b.send_cq), IBV_WC_MW_BIND_ERR,
			     PEAL_REASON_BIND_REGION);

	Scene scene(device);
	Region readonly(scene.pair.b.pd, region_bytes, IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ);
	info = {readonly.mr(), readonly.address(), 4096, IBV_ACCESS_REMOTE_WRITE};
	if (!try_post(scene.pair.b.qp,
		      scene.bind_request(ibv_inc_rkey(scene.window->rkey), info))) {
		const auto wc = wait_completion(scene.pair.b.send_cq);
		CHECK(status_name(wc.status) == status_name(IBV_WC_MW_BIND_ERR));
	}
}

TEST_CASE("a region with a window bound stays")
{
	Device device;
	Scene scene(device);
	Memory memory(region_bytes);
	Mr mr(ibv_reg_mr(scene.pair.b.pd, memory.data(), region_bytes,
			 all_access | IBV_ACCESS_MW_BIND),
	      "reg_mr");
	ibv_mw_bind_info info{mr, memory.address(), 4096, window_access};
	const auto rkey = ibv_inc_rkey(scene.window->rkey);

	post(scene.pair.b.qp, scene.bind_request(rkey, info));
	wait_success(scene.pair.b.send_cq);
	CHECK(errno_name(ibv_dereg_mr(mr)) == "EBUSY");
	must_succeed(scene.write(memory.address(), rkey));
	scene.window.reset();
	mr.reset();
	check_invalid(scene, rkey);
}

TEST_CASE("type 1 windows are bound by a verb and open their range")
{
	Device device;
	Scene scene(device, IBV_MW_TYPE_1);
	ibv_mw_bind bind{};
	bind.wr_id = 9;
	bind.send_flags = IBV_SEND_SIGNALED;
	bind.bind_info = scene.info(0, 4096);
	const auto old = scene.window->rkey;

	must(ibv_bind_mw(scene.pair.b.qp, scene.window, &bind), "bind_mw");
	CHECK(wait_success(scene.pair.b.send_cq).front().wr_id == 9);
	CHECK(scene.window->rkey != old);
	must_succeed(scene.write(scene.to.address(), scene.window->rkey));
	scene.expect_written(0);

	const auto first = scene.window->rkey;
	bind.bind_info.length = 0; /* closes it */
	must(ibv_bind_mw(scene.pair.b.qp, scene.window, &bind), "bind_mw");
	wait_success(scene.pair.b.send_cq);
	check_invalid(scene, first);
}
