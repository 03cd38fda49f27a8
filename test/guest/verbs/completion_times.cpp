// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The times of completions: by the device's clock, and by the wall clock.
 *
 * Holds: A completion's time lies between the post and the poll, as ibv_query_rt_values_ex and the
 * system's clock tell it. Times of one queue never go back. The device says how fast its clock is.
 * Flags that peal does not support are refused.
 * Does not hold: how exact the times are.
 */
#include "verbs.hpp"

#include <ctime>

using namespace peal_test;

namespace {

constexpr std::uint64_t times =
	IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

std::uint64_t wall_clock()
{
	timespec now{};

	clock_gettime(CLOCK_REALTIME, &now);
	return static_cast<std::uint64_t>(now.tv_sec) * 1000000000U +
	       static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t device_clock(ibv_context *context)
{
	ibv_values_ex values{};

	values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	must(ibv_query_rt_values_ex(context, &values), "query_rt_values_ex");
	return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
}

ibv_cq_ex *timed_cq(ibv_context *context, std::uint64_t flags)
{
	ibv_cq_init_attr_ex attr{};

	attr.cqe = 64;
	attr.wc_flags = flags;
	return ibv_create_cq_ex(context, &attr);
}

struct Timed {
	std::uint64_t device, wall;
};

/* Polls one completion. */
Timed poll_one(ibv_cq_ex *cq, std::uint64_t flags)
{
	ibv_poll_cq_attr attr{};
	Timed read{};

	if (!eventually([&] { return ibv_start_poll(cq, &attr) == 0; }))
		throw std::runtime_error("no completion");
	if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		read.device = ibv_wc_read_completion_ts(cq);
	if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		read.wall = ibv_wc_read_completion_wallclock_ns(cq);
	const auto status = cq->status;
	ibv_end_poll(cq);
	if (status != IBV_WC_SUCCESS)
		throw std::runtime_error(status_name(status));
	return read;
}

void check_between(std::uint64_t before, std::uint64_t time, std::uint64_t after)
{
	CHECK(before <= time);
	CHECK(time <= after);
}

} // namespace

TEST_CASE("a completion has the time at which it came")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	for (std::uint64_t flags : {times, std::uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP},
				    std::uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK}}) {
		Cq cq(ibv_cq_ex_to_cq(timed_cq(device, flags)), "create_cq_ex");
		auto *ex = reinterpret_cast<ibv_cq_ex *>(cq.get());
		Qp qp = create_qp(pd, cq, cq);
		Region region(pd, page_bytes);
		connect_to(qp, device, qp->qp_num);
		Timed last{};
		for (unsigned i = 0; i < 100; i++) {
			const auto wall = wall_clock(), raw = device_clock(device);
			/* Both ends complete here: a receive and a send. */
			post_recv(qp, i, {region.sge(0, 64)});
			post(qp, Send(IBV_WR_SEND, {region.sge(64, 64)}));
			for (int end : {0, 1}) {
				INFO("message " << i << ", completion " << end);
				const Timed read = poll_one(ex, flags);
				if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
					check_between(raw, read.device, device_clock(device));
				if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
					check_between(wall, read.wall, wall_clock());
				CHECK(last.device <= read.device);
				last = read;
			}
		}
	}
}

TEST_CASE("the device tells how fast its clock is")
{
	Device device;
	ibv_device_attr_ex attr{};

	must(ibv_query_device_ex(device, nullptr, &attr), "query_device_ex");
	CHECK(attr.hca_core_clock == 1000000); /* kHz */
	CHECK(attr.completion_timestamp_mask == ~std::uint64_t{0});
	/* The clock runs. */
	const auto begin = device_clock(device);
	CHECK(eventually([&] { return device_clock(device) > begin + 1000000; }));

	ibv_values_ex values{};
	values.comp_mask = 1 << 5;
	CHECK(errno_name(ibv_query_rt_values_ex(device, &values)) == "EINVAL");
}

TEST_CASE("a queue without times has no readers of times")
{
	Device device;
	Cq cq(ibv_cq_ex_to_cq(timed_cq(device, IBV_WC_STANDARD_FLAGS)), "create_cq_ex");
	auto *ex = reinterpret_cast<ibv_cq_ex *>(cq.get());

	CHECK(ex->read_completion_ts == nullptr);
	CHECK(ex->read_completion_wallclock_ns == nullptr);
}

TEST_CASE("other fields of completions are refused")
{
	Device device;

	for (std::uint64_t flags :
	     {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO}) {
		errno = 0;
		CHECK(timed_cq(device, flags | times) == nullptr);
		CHECK(errno_name(errno) == "EOPNOTSUPP");
	}
}
