// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: direct, thorough wire
/*
 * An administrator lowers what a device offers to programs ("peal link set"), so that they meet the
 * limits of other adapters.
 *
 * Holds: Each limit is what the device says (ibv_query_device), what a program can have, and what
 * "peal link show" tells. What exists already stays. A device without a feature does not make its
 * objects, and a peer's atomics are refused there. rdma_cm still connects queue pairs.
 * Does not hold: limits of the kernel's users, which have none.
 */
#include "commands.hpp"
#include "program.hpp"
#include "verbs.hpp"

#include <fcntl.h>
#include <vector>

using namespace peal_test;

namespace {

void set(const std::string &options)
{
	REQUIRE(run(peal_tool() + " link set " + device_name() + " " + options) == 0);
}

/* Gives back what a case has taken. */
struct Limits {
	explicit Limits(const std::string &options) { set(options); }
	~Limits()
	{
		run(peal_tool() + " link set " + device_name() +
		    " max-rd-atomic 16 max-qp max max-cq max max-mr max max-wr max max-cqe max"
		    " max-sge max max-inline max without none");
	}
	Limits(const Limits &) = delete;
	Limits &operator=(const Limits &) = delete;
};

std::string shown()
{
	return read_command(peal_tool() + " link show " + device_name());
}

bool matches(const std::string &text, const std::string &words)
{
	return text.find(words) != std::string::npos;
}

struct Maker {
	Device device;
	Pd pd{ibv_alloc_pd(device), "alloc_pd"};
	Cq cq{create_cq(device, 16)};

	/* Return: "0" or the name of the error. @granted gets the granted sizes. */
	std::string qp(const QpOptions &options, ibv_qp_cap *granted = nullptr)
	{
		auto init = init_attributes(pd, cq, cq, options);

		errno = 0;
		auto *made = ibv_create_qp_ex(device, &init);
		const auto error = made ? "0" : errno_name(errno);

		if (granted)
			*granted = init.cap;
		if (made)
			must(ibv_destroy_qp(made), "destroy_qp");
		return error;
	}
	std::string region(int access)
	{
		const Memory memory(page_bytes);

		errno = 0;
		auto *made = ibv_reg_mr(pd, memory.data(), memory.size(), access);
		const auto error = made ? "0" : errno_name(errno);

		if (made)
			must(ibv_dereg_mr(made), "dereg_mr");
		return error;
	}
	std::string srq(std::uint32_t max_wr, std::uint32_t max_sge)
	{
		ibv_srq_attr attr{.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 0};

		errno = 0;
		auto *made = try_create_srq(pd, attr);
		const auto error = made ? "0" : errno_name(errno);

		if (made)
			must(ibv_destroy_srq(made), "destroy_srq");
		return error;
	}
};

} // namespace

TEST_CASE("the sizes of queues and lists")
{
	const Limits limits("max-wr 100 max-cqe 1000 max-sge 3 max-inline 20 max-rd-atomic 4");
	Maker maker;
	const auto attr = maker.device.attributes();
	ibv_qp_cap granted{};

	CHECK(attr.max_qp_wr == 64);
	CHECK(attr.max_srq_wr == 64);
	CHECK(attr.max_cqe == 512);
	CHECK(attr.max_sge == 3);
	CHECK(attr.max_srq_sge == 3);
	CHECK(attr.max_qp_rd_atom == 4);
	CHECK(matches(shown(), "max-wr 64 max-cqe 512 max-sge 3 max-inline 20"));

	CHECK(maker.qp({.send_wr = 64,
			.recv_wr = 64,
			.send_sge = 3,
			.recv_sge = 3,
			.inline_bytes = 20},
		       &granted) == "0");
	CHECK(granted.max_send_wr == 64);
	CHECK(granted.max_recv_wr == 64);
	CHECK(granted.max_send_sge <= 3);
	CHECK(granted.max_inline_data == 20);
	CHECK(maker.qp({.send_wr = 65}) == "EINVAL");
	CHECK(maker.qp({.recv_wr = 65}) == "EINVAL");
	CHECK(maker.qp({.send_sge = 4}) == "EINVAL");
	CHECK(maker.qp({.recv_sge = 4}) == "EINVAL");
	CHECK(maker.qp({.inline_bytes = 21}) == "EINVAL");
	CHECK(maker.srq(64, 3) == "0");
	CHECK(maker.srq(65, 3) == "EINVAL");
	CHECK(maker.srq(64, 4) == "EINVAL");

	Cq largest(create_cq(maker.device, 512));

	errno = 0;
	CHECK(ibv_create_cq(maker.device, 513, nullptr, nullptr, 0) == nullptr);
	CHECK(errno == EINVAL);
	CHECK(ibv_resize_cq(largest, 513) == EINVAL);
	CHECK(ibv_resize_cq(largest, 16) == 0);
	auto srq = create_srq(maker.pd, 16);
	ibv_srq_attr larger{.max_wr = 65, .max_sge = 0, .srq_limit = 0};

	CHECK(ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR) == EINVAL);
	larger.max_wr = 64;
	CHECK(ibv_modify_srq(srq, &larger, IBV_SRQ_MAX_WR) == 0);
}

TEST_CASE("no inline data at all")
{
	const Limits limits("max-inline 0");
	Device device;
	Endpoint a(device), b(device);
	ibv_qp_cap granted{};
	Maker maker;

	CHECK(maker.qp({.inline_bytes = 0}, &granted) == "0");
	CHECK(granted.max_inline_data == 0);
	CHECK(maker.qp({.inline_bytes = 1}) == "EINVAL");
	connect(a, b);
	Region from(a.pd, page_bytes), to(b.pd, page_bytes);
	auto send = Send(IBV_WR_RDMA_WRITE, {from.sge(0, 8)}).remote(to.address(), to.rkey());

	CHECK(try_post(a.qp, Send(send).flags(IBV_SEND_SIGNALED | IBV_SEND_INLINE)) == EINVAL);
	post(a.qp, send);
	must_succeed(wait_completion(a.send_cq));
}

TEST_CASE("the numbers of objects are those of all programs, and what exists stays")
{
	Maker maker;
	std::vector<Qp> qps;
	std::vector<Cq> cqs;
	std::vector<Region> regions;
	const auto make_qp = [&] { return maker.qp({}); };

	for (int i = 0; i < 4; i++)
		qps.push_back(create_qp(maker.pd, maker.cq, maker.cq));
	const Limits limits("max-qp 3 max-cq 5 max-mr 2");

	CHECK(maker.device.attributes().max_qp == 3);
	CHECK(maker.device.attributes().max_cq == 5);
	CHECK(maker.device.attributes().max_mr == 2);
	CHECK(matches(shown(), "max-qp 3 max-cq 5 max-mr 2"));
	CHECK(make_qp() == "ENOSPC");
	qps.pop_back();
	CHECK(make_qp() == "ENOSPC");
	qps.pop_back();
	CHECK(make_qp() == "0");

	/* The maker has one completion queue. Another program counts, too. */
	for (int i = 0; i < 3; i++)
		cqs.push_back(create_cq(maker.device, 1));
	CHECK(in_child([] {
		      Device device;
		      Cq last(create_cq(device, 1));

		      errno = 0;
		      return !ibv_create_cq(device, 1, nullptr, nullptr, 0) && errno == ENOSPC ? 0
											       : 1;
	      }) == 0);
	regions.emplace_back(maker.pd, page_bytes);
	CHECK(maker.region(IBV_ACCESS_LOCAL_WRITE) == "0");
	regions.emplace_back(maker.pd, page_bytes);
	CHECK(maker.region(IBV_ACCESS_LOCAL_WRITE) == "ENOSPC");
	errno = 0;
	CHECK(ibv_alloc_mw(maker.pd, IBV_MW_TYPE_2) == nullptr);
	CHECK(errno == ENOSPC);
	set("max-qp max max-mr 3");
	CHECK(make_qp() == "0");
	CHECK(maker.region(IBV_ACCESS_LOCAL_WRITE) == "0");
}

TEST_CASE("each type of queue pair can be missing")
{
	const struct {
		const char *name;
		ibv_qp_type type;
	} types[] = {
		{"rc", IBV_QPT_RC},
		{"uc", IBV_QPT_UC},
		{"ud", IBV_QPT_UD},
		{"raw", IBV_QPT_RAW_PACKET},
	};
	Maker maker;

	for (const auto &missing : types) {
		const Limits limits(std::string("without ") + missing.name);

		INFO(missing.name);
		CHECK(matches(shown(), std::string("without ") + missing.name + "\n"));
		for (const auto &type : types) {
			INFO(type.name);
			CHECK(maker.qp({.type = type.type}) ==
			      (type.type == missing.type ? "EOPNOTSUPP" : "0"));
		}
		CHECK((maker.device.attributes().max_raw_ethy_qp == 0) ==
		      (missing.type == IBV_QPT_RAW_PACKET));
	}
	/* Only UC is left. */
	const Limits limits("without rc,ud,xrc,raw");

	for (const auto &type : types)
		CHECK(maker.qp({.type = type.type}) ==
		      (type.type == IBV_QPT_UC ? "0" : "EOPNOTSUPP"));
}

TEST_CASE("no shared receive queues, no XRC, no windows, and no on-demand paging")
{
	Maker maker;
	const auto xrcd = [&] {
		ibv_xrcd_init_attr attr{};

		attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
		attr.fd = -1;
		attr.oflags = O_CREAT;
		errno = 0;
		auto *made = ibv_open_xrcd(maker.device, &attr);
		const auto error = made ? "0" : errno_name(errno);

		if (made)
			must(ibv_close_xrcd(made), "close_xrcd");
		return error;
	};
	const auto window = [&] {
		errno = 0;
		auto *made = ibv_alloc_mw(maker.pd, IBV_MW_TYPE_2);
		const auto error = made ? "0" : errno_name(errno);

		if (made)
			must(ibv_dealloc_mw(made), "dealloc_mw");
		return error;
	};
	constexpr auto windows = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

	{
		const Limits limits("without srq");
		const auto attr = maker.device.attributes();

		CHECK(attr.max_srq == 0);
		CHECK(attr.max_srq_wr == 0);
		CHECK(attr.max_srq_sge == 0);
		CHECK(!(attr.device_cap_flags & (IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC)));
		CHECK(maker.srq(1, 1) == "EOPNOTSUPP");
		CHECK(maker.qp({.type = IBV_QPT_XRC_SEND}) == "EOPNOTSUPP");
		CHECK(window() == "0");
	}
	{
		const Limits limits("without xrc,mw");
		const auto attr = maker.device.attributes();

		CHECK(!(attr.device_cap_flags & (IBV_DEVICE_XRC | windows)));
		CHECK(attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE);
		CHECK(attr.max_mw == 0);
		CHECK(xrcd() == "EOPNOTSUPP");
		CHECK(window() == "EOPNOTSUPP");
		CHECK(maker.qp({.type = IBV_QPT_XRC_SEND}) == "EOPNOTSUPP");
		CHECK(maker.srq(1, 1) == "0");
	}
	if (has_on_demand_paging(maker.device)) {
		CHECK(maker.region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND) == "0");
		const Limits limits("without odp");

		CHECK(!has_on_demand_paging(maker.device));
		CHECK(maker.region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND) != "0");
		CHECK(maker.region(IBV_ACCESS_LOCAL_WRITE) == "0");
	}
	CHECK(xrcd() == "0");
	CHECK(window() == "0");
	CHECK(maker.qp({.type = IBV_QPT_XRC_SEND}) == "0");
	CHECK(maker.device.attributes().device_cap_flags & windows);
	CHECK(!matches(shown(), "without"));
}

TEST_CASE("without atomics none are sent and none are received")
{
	constexpr auto all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	Device device;
	Endpoint before(device);
	Region region(before.pd, page_bytes, all);
	const Limits limits("without atomic");
	Endpoint sender(device), target(device);
	Region result(before.pd, page_bytes, IBV_ACCESS_LOCAL_WRITE);
	Region own(sender.pd, page_bytes, IBV_ACCESS_LOCAL_WRITE);
	Maker maker;

	CHECK(device.attributes().atomic_cap == IBV_ATOMIC_NONE);
	CHECK(maker.region(all) == "EOPNOTSUPP");
	CHECK(maker.region(all & ~IBV_ACCESS_REMOTE_ATOMIC) == "0");
	/* A queue pair that was made before can send them, but a newer one receives none. */
	connect(before, target, {.access = all}, {.access = all});
	post(before.qp, Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {result.sge(0, 8)})
				.atomic(region.address(), region.rkey(), 1));
	CHECK(wait_completion(before.send_cq).status != IBV_WC_SUCCESS);

	Endpoint peer(device);

	connect(sender, peer, {.access = all}, {.access = all});
	for (const auto opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
		INFO(int{opcode});
		Endpoint a(device), b(device);

		connect(a, b);
		Region into(a.pd, page_bytes, IBV_ACCESS_LOCAL_WRITE);

		post(a.qp,
		     Send(opcode, {into.sge(0, 8)}).atomic(region.address(), region.rkey(), 1));
		check_status(wait_completion(a.send_cq), IBV_WC_LOC_QP_OP_ERR,
			     PEAL_REASON_WQE_OPCODE);
	}
	post(sender.qp, Send(IBV_WR_RDMA_WRITE, {own.sge(0, 8)}).remote(0, 0));
	CHECK(wait_completion(sender.send_cq).status == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("rdma_cm connects over a device that has no atomics and no shared receive queues")
{
	const Limits limits("without atomic,srq,xrc,raw,mw,odp max-rd-atomic 1 max-sge 1");

	CHECK(rping_connects());
}
