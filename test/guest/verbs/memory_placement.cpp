// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * ATOMIC_WRITE and FLUSH, the memory placement extensions of IBTA annex A19.
 *
 * Holds: An ATOMIC_WRITE stores its eight bytes at once and nothing else, posted in each way, in
 * order with other requests, and as often as there are responder resources. A FLUSH waits for what
 * was posted before it. Over XRC both need a key of the named queue's protection domain. Each wrong
 * request ends with its status and reason. The device advertises what it has.
 * Does not hold: persistence, because peal registers no persistent memory.
 */
#include "raw.hpp"
#include "verbs.hpp"
#include "xrc.hpp"

#include <atomic>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::uint64_t device_flush_global = 1ULL << 38;
constexpr std::uint64_t device_flush_persistent = 1ULL << 39;
constexpr std::uint64_t device_atomic_write = 1ULL << 40;
constexpr unsigned access_flush_global = 1 << 8;
constexpr unsigned access_flush_persistent = 1 << 9;
constexpr std::size_t region_bytes = 2 * page_bytes;

std::uint64_t word(std::uint64_t salt)
{
	return (salt + 1) * 0x9e3779b97f4a7c15ULL;
}

QpOptions placement_options()
{
	QpOptions options;
	options.send_ops =
		IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
	return options;
}

/* Two queue pairs, and memory that b gives to a. */
struct Scene {
	explicit Scene(Device &device, const Link &link = {}, int access = all_access)
		: pair(device, placement_options(), link), qpx(ibv_qp_to_qp_ex(pair.a.qp)),
		  from(pair.a.pd, region_bytes), to(pair.b.pd, region_bytes, access)
	{
		REQUIRE(qpx);
	}
	Send by_list(std::uint64_t address, std::uint32_t rkey, std::size_t length = 8)
	{
		return Send(IBV_WR_ATOMIC_WRITE, {from.sge(0, length)}).remote(address, rkey);
	}
	int post_ex(std::uint64_t value, std::uint64_t address, std::uint32_t rkey)
	{
		ibv_wr_start(qpx);
		qpx->wr_id = value;
		qpx->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_atomic_write(qpx, rkey, address, &value);
		return ibv_wr_complete(qpx);
	}
	std::uint64_t at(std::size_t offset) const
	{
		std::uint64_t value = 0;
		std::memcpy(&value, to.data() + offset, sizeof(value));
		return value;
	}
	Pair pair;
	ibv_qp_ex *qpx;
	Region from, to;
};

struct Refused {
	const char *what;
	std::function<void(Scene &)> post;
	ibv_wc_status status;
	peal_reason reason;
};

void check_refusals(Device &device, const std::vector<Refused> &list, const Link &link = {},
		    int access = all_access)
{
	for (const auto &each : list) {
		INFO(each.what);
		Scene scene(device, link, access);

		std::memset(scene.to.data(), 0x5a, region_bytes);
		each.post(scene);
		check_status(wait_completion(scene.pair.a.send_cq), each.status, each.reason);
		CHECK(all_equal(scene.to.bytes(0, region_bytes), 0x5a));
	}
}

} // namespace

TEST_CASE("the device advertises ATOMIC_WRITE, and FLUSH without persistence")
{
	Device device;
	ibv_device_attr_ex attr{};

	must(ibv_query_device_ex(device, nullptr, &attr), "query_device_ex");
	CHECK((attr.device_cap_flags_ex & device_atomic_write) != 0);
	CHECK((attr.device_cap_flags_ex & device_flush_persistent) == 0);
}

TEST_CASE("ATOMIC_WRITE writes eight bytes and nothing else")
{
	Device device;
	Scene scene(device);
	std::vector<std::uint8_t> expected(region_bytes, 0x11);

	std::memset(scene.to.data(), 0x11, region_bytes);
	for (std::size_t i = 0; i < 48; i++) {
		const std::size_t offset = (i * 168) % region_bytes & ~std::size_t{7};
		const auto value = word(i);
		auto send = scene.by_list(scene.to.address(offset), scene.to.rkey());

		std::memcpy(scene.from.data(), &value, sizeof(value));
		std::memcpy(&expected[offset], &value, sizeof(value));
		if (i % 2)
			post(scene.pair.a.qp, send);
		else
			must(scene.post_ex(value, scene.to.address(offset), scene.to.rkey()),
			     "wr_atomic_write");
		const auto wc = wait_success(scene.pair.a.send_cq).front();
		CHECK(wc.opcode == IBV_WC_ATOMIC_WRITE);
		CHECK(scene.at(offset) == value);
	}
	CHECK(difference(scene.to.bytes(0, region_bytes), expected) == "");
}

TEST_CASE("ATOMIC_WRITE keeps the order of WRITEs, READs and atomics")
{
	Device device;
	Link link;
	link.rd_atomic = link.dest_rd_atomic = GENERATE(1, 2, 16);
	Scene scene(device, link);
	auto &a = scene.pair.a;
	constexpr unsigned rounds = 12;

	for (unsigned round = 0; round < rounds; round++) {
		const auto value = word(round);

		std::memcpy(scene.from.data() + 64, &value, sizeof(value));
		/* The atomic adds to what the ATOMIC_WRITE has written, and the READ sees the sum.
		 */
		must(scene.post_ex(value, scene.to.address(), scene.to.rkey()), "wr_atomic_write");
		post(a.qp, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {scene.from.sge(128, 8)})
				   .atomic(scene.to.address(), scene.to.rkey(), round));
		post(a.qp, Send(IBV_WR_RDMA_READ, {scene.from.sge(256, 8)})
				   .remote(scene.to.address(), scene.to.rkey()));
		post(a.qp, Send(IBV_WR_RDMA_WRITE, {scene.from.sge(64, 8)})
				   .remote(scene.to.address(8), scene.to.rkey()));
		wait_success(a.send_cq, 4);
		std::uint64_t before = 0, sum = 0;
		std::memcpy(&before, scene.from.data() + 128, sizeof(before));
		std::memcpy(&sum, scene.from.data() + 256, sizeof(sum));
		CHECK(before == value);
		CHECK(sum == value + round);
		CHECK(scene.at(8) == value);
	}
}

TEST_CASE("a reader never sees a part of an ATOMIC_WRITE, nor an older value after a newer one")
{
	Device device;
	Scene scene(device);
	std::atomic<bool> stop = false;
	std::atomic<unsigned> torn = 0, backward = 0;
	auto &shared = *reinterpret_cast<std::uint64_t *>(scene.to.data());
	constexpr std::uint64_t copies = 0x0001000100010001ULL;
	constexpr unsigned total = 1500, depth = 32;
	std::thread reader([&] {
		std::uint64_t last = 0;

		while (!stop) {
			const auto now = std::atomic_ref(shared).load();
			torn += now != (now & 0xffff) * copies;
			backward += now < last;
			last = now;
		}
	});

	for (unsigned posted = 0, done = 0; done < total;) {
		for (; posted < total && posted - done < depth; posted++)
			must(scene.post_ex(posted * copies, scene.to.address(), scene.to.rkey()),
			     "wr_atomic_write");
		for (const auto &wc : wait_success(scene.pair.a.send_cq))
			CHECK(wc.wr_id == done++ * copies);
	}
	stop = true;
	reader.join();
	CHECK(torn == 0);
	CHECK(backward == 0);
	CHECK(shared == (total - 1) * copies);
}

TEST_CASE("wrong ATOMIC_WRITEs")
{
	Device device;

	check_refusals(
		device,
		{
			{"misaligned",
			 [](Scene &s) { must(s.post_ex(1, s.to.address(4), s.to.rkey()), "post"); },
			 IBV_WC_REM_INV_REQ_ERR, PEAL_REASON_ATOMIC_ALIGN},
			{"rkey of nothing",
			 [](Scene &s) { must(s.post_ex(1, s.to.address(), 0x12345), "post"); },
			 IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_UNKNOWN},
			{"behind the region",
			 [](Scene &s) {
				 must(s.post_ex(1, s.to.address(region_bytes), s.to.rkey()),
				      "post");
			 },
			 IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_RANGE},
			{"region of the requester",
			 [](Scene &s) {
				 must(s.post_ex(1, s.from.address(), s.from.rkey()), "post");
			 },
			 IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_PD},
			{"4 bytes",
			 [](Scene &s) {
				 post(s.pair.a.qp, s.by_list(s.to.address(), s.to.rkey(), 4));
			 },
			 IBV_WC_LOC_LEN_ERR, PEAL_REASON_WQE_ATOMIC_LENGTH},
			{"16 bytes",
			 [](Scene &s) {
				 post(s.pair.a.qp, s.by_list(s.to.address(), s.to.rkey(), 16));
			 },
			 IBV_WC_LOC_LEN_ERR, PEAL_REASON_WQE_ATOMIC_LENGTH},
			{"no bytes",
			 [](Scene &s) {
				 auto send = s.by_list(s.to.address(), s.to.rkey());
				 send.sges.clear();
				 post(s.pair.a.qp, send);
			 },
			 IBV_WC_LOC_LEN_ERR, PEAL_REASON_WQE_ATOMIC_LENGTH},
			{"lkey of nothing",
			 [](Scene &s) {
				 auto send = s.by_list(s.to.address(), s.to.rkey());
				 send.sges[0].lkey = 0x12345;
				 post(s.pair.a.qp, send);
			 },
			 IBV_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_UNKNOWN},
		});
}

TEST_CASE("ATOMIC_WRITE needs remote write, of the region and of the queue pair, and a depth")
{
	Device device;
	Link link;
	const auto write = [](Scene &s) {
		must(s.post_ex(1, s.to.address(), s.to.rkey()), "post");
	};

	check_refusals(device, {{"region", write, IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_ACCESS}},
		       {}, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	link.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ;
	check_refusals(device,
		       {{"queue pair", write, IBV_WC_REM_INV_REQ_ERR, PEAL_REASON_QP_ACCESS}},
		       link);
	link = {};
	link.rd_atomic = 0;
	check_refusals(device,
		       {{"own depth", write, IBV_WC_LOC_QP_OP_ERR, PEAL_REASON_RD_ATOMIC_LIMIT}},
		       link);
	link = {};
	link.dest_rd_atomic = 0;
	check_refusals(
		device,
		{{"peer's depth", write, IBV_WC_REM_INV_REQ_ERR, PEAL_REASON_RD_ATOMIC_LIMIT}},
		link);
}

TEST_CASE("UC has no ATOMIC_WRITE")
{
	Device device;
	auto options = placement_options();
	options.type = IBV_QPT_UC;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 16));
	auto init = init_attributes(pd, cq, cq, options);

	CHECK(ibv_create_qp_ex(device, &init) == nullptr);
	CHECK(errno_name(errno) == "EOPNOTSUPP");
	options.send_ops = 0;
	Endpoint uc(device, options);
	Region region(uc.pd, page_bytes);
	connect_uc(uc, uc);
	Send send(IBV_WR_ATOMIC_WRITE, {region.sge(0, 8)});
	CHECK(errno_name(try_post(uc.qp, send.remote(region.address(), region.rkey()))) ==
	      "EINVAL");
}

TEST_CASE("ATOMIC_WRITE over XRC, posted in each way")
{
	Device device;
	const auto domain = xrc::open_domain(device);
	const xrc::Shared shared(device, domain), other(device, domain);
	auto options = xrc::initiator();
	options.send_ops = IBV_QP_EX_WITH_ATOMIC_WRITE;
	Endpoint a(device, options);
	const Region from(a.pd, page_bytes), to(shared.pd, page_bytes), foreign(other.pd, 8);
	const Qp target = xrc::create_target(device, domain);
	xrc::connect_initiator(a.qp, device, target->qp_num, {});
	xrc::connect_target(target, device, a.qp->qp_num, {});
	ibv_qp_ex *qpx = ibv_qp_to_qp_ex(a.qp);
	REQUIRE(qpx);
	const auto by_list = [&](const Region &region) {
		auto send = Send(IBV_WR_ATOMIC_WRITE, {from.sge(0, 8)})
				    .remote(region.address(), region.rkey());

		send.wr.qp_type.xrc.remote_srqn = shared.number;
		post(a.qp, std::move(send));
	};
	std::uint64_t value = word(1), read = 0;

	std::memcpy(from.data(), &value, sizeof(value));
	by_list(to);
	value = word(2);
	ibv_wr_start(qpx);
	qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qpx, to.rkey(), to.address(16), &value);
	ibv_wr_set_xrc_srqn(qpx, shared.number);
	must(ibv_wr_complete(qpx), "wr_complete");
	for (const auto &wc : wait_success(a.send_cq, 2))
		CHECK(wc.opcode == IBV_WC_ATOMIC_WRITE);
	std::memcpy(&read, to.data(), sizeof(read));
	CHECK(read == word(1));
	std::memcpy(&read, to.data() + 16, sizeof(read));
	CHECK(read == word(2));
	CHECK(all_equal(to.bytes(8, 8), 0));
	by_list(foreign);
	check_status(wait_completion(a.send_cq), IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_PD);
}

/* The libibverbs of Debian 12 cannot post a FLUSH, so these tests write the ring. */

namespace {

struct Flush {
	std::uint8_t placement = PEAL_FLUSH_GLOBAL, selectivity = PEAL_FLUSH_RANGE;
	std::uint32_t length = 64;
	std::size_t offset = 0;
	std::uint32_t reserved = 0;
};

RawSend flush_request(const RawQp &qp, std::uint32_t rkey, const Flush &flush)
{
	RawSend send;
	peal_flush_seg segment{};

	send.header.opcode = PEAL_OP_FLUSH;
	send.header.flags = PEAL_WQE_SIGNALED;
	send.header.remote_addr = qp.memory().address(flush.offset);
	send.header.rkey = rkey;
	segment.length = flush.length;
	segment.placement = flush.placement;
	segment.selectivity = flush.selectivity;
	segment.reserved1 = flush.reserved;
	std::memcpy(send.body.data(), &segment, sizeof(segment));
	return send;
}

void check_cqe(const peal_cqe &cqe, ibv_wc_status status, peal_reason reason)
{
	CHECK(status_name(cqe.status) == status_name(status));
	CHECK(reason_name(cqe.vendor_err) ==
	      reason_name(on_wire() ? told_by_packets(status, reason) : reason));
}

/* One FLUSH of a queue pair to itself. */
void check_flush(const Device &device, RawContext &context, const Flush &flush,
		 unsigned region_access, unsigned qp_access, ibv_wc_status status,
		 peal_reason reason)
{
	RawShape shape;
	shape.access |= static_cast<int>(qp_access);
	RawQp qp(context, device, shape);
	const Keys keys = context.register_memory(qp.pd(), qp.memory(),
						  all_access | static_cast<int>(region_access));
	peal_cqe cqe{};

	qp.post(flush_request(qp, keys.rkey, flush));
	REQUIRE(qp.wait(cqe));
	/* With packets, the queue pair may flush its requests before its own NAK arrives. */
	if (on_wire() && told_by_packets(status, reason) != reason)
		CHECK((cqe.status == status || cqe.status == IBV_WC_WR_FLUSH_ERR));
	else
		check_cqe(cqe, status, reason);
	if (status == IBV_WC_SUCCESS)
		CHECK(static_cast<int>(cqe.opcode) == PEAL_OP_FLUSH);
	context.deregister(keys);
}

bool has_flush(const Device &device)
{
	ibv_device_attr_ex attr{};

	must(ibv_query_device_ex(device, nullptr, &attr), "query_device_ex");
	return attr.device_cap_flags_ex & device_flush_global;
}

} // namespace

TEST_CASE("FLUSH needs rights that not every kernel can give")
{
	Device device;
	RawContext context;

	check_flush(device, context, {}, 0, 0, IBV_WC_REM_INV_REQ_ERR, PEAL_REASON_QP_ACCESS);
	check_flush(device, context, {}, 0, access_flush_global, IBV_WC_REM_ACCESS_ERR,
		    PEAL_REASON_RKEY_ACCESS);
	check_flush(device, context, {PEAL_FLUSH_PERSISTENT}, 0, access_flush_global,
		    IBV_WC_REM_INV_REQ_ERR, PEAL_REASON_QP_ACCESS);
	/* The connection manager gives a queue pair both rights. */
	check_flush(device, context, {PEAL_FLUSH_PERSISTENT}, 0,
		    access_flush_global | access_flush_persistent, IBV_WC_REM_ACCESS_ERR,
		    PEAL_REASON_RKEY_ACCESS);
	const auto requester = IBV_WC_LOC_QP_OP_ERR;
	check_flush(device, context, {0}, 0, access_flush_global, requester, PEAL_REASON_WQE_FLAGS);
	check_flush(device, context, {4}, 0, access_flush_global, requester, PEAL_REASON_WQE_FLAGS);
	check_flush(device, context, {PEAL_FLUSH_GLOBAL, 2}, 0, access_flush_global, requester,
		    PEAL_REASON_WQE_FLAGS);
	check_flush(device, context, {PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, 1, 0, 1}, 0,
		    access_flush_global, requester, PEAL_REASON_WQE_RESERVED);
	check_flush(device, context, {PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, 0x80000001U}, 0,
		    access_flush_global, IBV_WC_LOC_LEN_ERR, PEAL_REASON_WQE_LENGTH);
}

TEST_CASE("a region for persistent FLUSH is refused")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memory memory(page_bytes);
	const auto wanted = has_flush(device) ? "EOPNOTSUPP" : "EINVAL";

	CHECK(ibv_reg_mr(pd, memory.data(), page_bytes,
			 all_access | static_cast<int>(access_flush_persistent)) == nullptr);
	CHECK(errno_name(errno) == wanted);
}

TEST_CASE("FLUSH of a range and of a region")
{
	Device device;
	if (!has_flush(device))
		SKIP_CASE("the kernel's core does not know the right to flush");
	RawContext context;
	const auto right = access_flush_global;
	const auto bytes = static_cast<std::uint32_t>(RawShape().bytes);
	const auto good = [&](const Flush &flush) {
		check_flush(device, context, flush, right, right, IBV_WC_SUCCESS, PEAL_REASON_NONE);
	};
	const auto range = [&](const Flush &flush) {
		check_flush(device, context, flush, right, right, IBV_WC_REM_ACCESS_ERR,
			    PEAL_REASON_RKEY_RANGE);
	};

	good({});
	good({PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, bytes});
	good({PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, 0});
	good({PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, 1, bytes - 1});
	good({PEAL_FLUSH_GLOBAL, PEAL_FLUSH_REGION, 0});
	good({PEAL_FLUSH_GLOBAL, PEAL_FLUSH_REGION, 1, 10 * bytes});
	range({PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, bytes + 1});
	range({PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, 2, bytes - 1});
	ibv_device_attr_ex attr{};
	must(ibv_query_device_ex(device, nullptr, &attr), "query_device_ex");
	if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT))
		return;
	for (auto selectivity : {PEAL_FLUSH_RANGE, PEAL_FLUSH_REGION})
		check_flush(device, context,
			    {PEAL_FLUSH_GLOBAL, static_cast<std::uint8_t>(selectivity)},
			    right | IBV_ACCESS_ON_DEMAND, right, IBV_WC_SUCCESS, PEAL_REASON_NONE);
	check_flush(device, context, {}, IBV_ACCESS_ON_DEMAND, right, IBV_WC_REM_ACCESS_ERR,
		    PEAL_REASON_RKEY_ACCESS);
}

TEST_CASE("FLUSH completes after what was posted before it")
{
	Device device;
	if (!has_flush(device))
		SKIP_CASE("the kernel's core does not know the right to flush");
	RawContext context;
	RawShape shape;
	shape.access |= static_cast<int>(access_flush_global);
	RawQp qp(context, device, shape);
	const Keys keys = context.register_memory(
		qp.pd(), qp.memory(), all_access | static_cast<int>(access_flush_global));
	constexpr std::uint32_t bytes = 20000;

	for (unsigned round = 0; round < 20; round++) {
		const auto from = qp.memory().bytes(0, bytes);
		const auto to = qp.memory().bytes(24576, bytes);
		RawSend write;
		peal_cqe cqe{};

		fill_pattern(from, round);
		write.header.opcode = PEAL_OP_WRITE;
		write.header.remote_addr = qp.memory().address(24576);
		write.header.rkey = keys.rkey;
		write.sge({qp.memory().address(), bytes, keys.lkey});
		qp.write_send(write);
		qp.post(flush_request(qp, keys.rkey,
				      {PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, bytes, 24576}));
		REQUIRE(qp.wait(cqe));
		check_cqe(cqe, IBV_WC_SUCCESS, PEAL_REASON_NONE);
		CHECK(difference(to, from) == "");
	}
	context.deregister(keys);
}

TEST_CASE("FLUSH over XRC")
{
	Device device;
	if (!has_flush(device))
		SKIP_CASE("the kernel's core does not know the right to flush");
	constexpr auto access = all_access | static_cast<int>(access_flush_global);
	const auto domain = xrc::open_domain(device);
	ibv_device_attr_ex attr{};
	must(ibv_query_device_ex(device, nullptr, &attr), "query_device_ex");
	const int on_demand = attr.xrc_odp_caps ? IBV_ACCESS_ON_DEMAND : 0;
	const xrc::Shared shared(device, domain, nullptr, access),
		demanded(device, domain, nullptr, access | on_demand),
		other(device, domain, nullptr, access);
	const Qp target = xrc::create_target(device, domain);
	RawContext context;
	RawShape shape;
	shape.type = IBV_QPT_XRC_SEND;
	shape.peer = target->qp_num;
	RawQp qp(context, device, shape);
	Link link;
	link.access = access;
	link.psn = 0;
	xrc::connect_target(target, device, qp.number(), link);
	const auto flush = [&](const Region &region, std::uint32_t srq, ibv_wc_status status,
			       peal_reason reason) {
		auto send = flush_request(qp, region.rkey(), {});
		peal_cqe cqe{};

		send.header.remote_addr = region.address();
		send.header.srqn = srq;
		qp.post(send);
		REQUIRE(qp.wait(cqe));
		check_cqe(cqe, status, reason);
	};

	flush(shared.memory, shared.number, IBV_WC_SUCCESS, PEAL_REASON_NONE);
	flush(demanded.memory, demanded.number, IBV_WC_SUCCESS, PEAL_REASON_NONE);
	flush(other.memory, shared.number, IBV_WC_REM_ACCESS_ERR, PEAL_REASON_RKEY_PD);
}
