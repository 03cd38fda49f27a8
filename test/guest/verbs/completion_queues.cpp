// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * Completion queues: polling, events, moderation, overflow.
 *
 * Holds: Completions keep their order over many laps of the ring, in batches, and when several
 * queue pairs share the queue. Each way of arming raises an event for the right completions. An
 * overflow is reported and contained. A resize loses nothing, and changes nothing if it is refused.
 * Moderation holds an event until there are enough completions or enough time has passed, and loses
 * none. The limits of query_device are true.
 * Does not hold: the completions of errors (verbs/failed_requests), the extended polling
 * interface (verbs/post_and_poll).
 */
#include "uverbs.hpp"
#include "verbs.hpp"

#include <atomic>
#include <cstdarg>
#include <dlfcn.h>
#include <thread>

using namespace peal_test;

namespace {

/* Changes what the kernel has answered to a resize, before the provider reads it. */
void (*spoil)(peal_resize_cq_resp &shape);

void spoil_answer(const ib_uverbs_ioctl_hdr &header)
{
	peal_resize_cq_resp *shape = nullptr;
	std::uint64_t command = 0;

	for (const auto &attr : std::span(header.attrs, header.num_attrs)) {
		if (attr.attr_id == UVERBS_ATTR_WRITE_CMD)
			command = attr.data;
		if (attr.attr_id == UVERBS_ATTR_UHW_OUT)
			shape = reinterpret_cast<peal_resize_cq_resp *>(attr.data);
	}
	if (header.object_id == UVERBS_OBJECT_DEVICE &&
	    header.method_id == UVERBS_METHOD_INVOKE_WRITE &&
	    command == IB_USER_VERBS_CMD_RESIZE_CQ && shape)
		spoil(*shape);
}

} // namespace

/* Stands before the C library's, also for the provider. */
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept
{
	static const auto real = reinterpret_cast<decltype(&ioctl)>(dlsym(RTLD_NEXT, "ioctl"));
	va_list list;

	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	const int rc = real(fd, request, argument);
	if (!rc && spoil && request == RDMA_VERBS_IOCTL)
		spoil_answer(*static_cast<ib_uverbs_ioctl_hdr *>(argument));
	return rc;
}

namespace {

constexpr int next = 0, solicited_only = 1;

/* A pair whose responder's receives go to a completion queue with a channel. */
struct Watched {
	explicit Watched(Device &device)
		: channel(ibv_create_comp_channel(device), "create_comp_channel"), a(device),
		  pd(ibv_alloc_pd(device), "alloc_pd"), cq(create_cq(device, 64, channel)),
		  qp(create_qp(pd, cq, cq)), from(a.pd, page_bytes), to(pd, page_bytes)
	{
		connect(device, a.qp, qp);
	}
	void arm(int kind) { must(ibv_req_notify_cq(cq, kind), "req_notify_cq"); }

	/*
	 * Sends one message, which is received and seen by the sender. The receive is not polled.
	 */
	void message(bool solicited)
	{
		post_recv(qp, 1, {to.sge(0, 64)});
		Send send(IBV_WR_SEND, {from.sge(0, 16)});
		post(a.qp, send.flags(IBV_SEND_SIGNALED | (solicited ? IBV_SEND_SOLICITED : 0)));
		wait_success(a.send_cq);
	}
	bool has_event(Duration limit) const { return readable(channel->fd, limit); }
	void take_event()
	{
		ibv_cq *which = nullptr;
		void *context = nullptr;
		REQUIRE(has_event(patience));
		must(ibv_get_cq_event(channel, &which, &context), "get_cq_event");
		CHECK(which == cq.get());
		ibv_ack_cq_events(which, 1);
	}

	Channel channel;
	Endpoint a;
	Pd pd;
	Cq cq;
	Qp qp;
	Region from, to;
};

int try_moderate(ibv_cq *cq, std::uint16_t count, std::uint16_t us,
		 std::uint32_t mask = IBV_CQ_ATTR_MODERATE)
{
	ibv_modify_cq_attr attr{};

	attr.attr_mask = mask;
	attr.moderate = {count, us};
	return ibv_modify_cq(cq, &attr);
}

void moderate(ibv_cq *cq, std::uint16_t count, std::uint16_t us)
{
	must(try_moderate(cq, count, us), "modify_cq");
}

void write_nothing(ibv_qp *qp, std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED)
{
	post(qp, Send(IBV_WR_RDMA_WRITE).id(id).flags(flags));
}

/* Polls `batch` completions at a time. They must keep the order of the posts. */
void run_laps(ibv_qp *qp, ibv_cq *cq, unsigned depth, unsigned batch, unsigned total)
{
	std::vector<ibv_wc> wcs(batch);
	std::uint64_t posted = 0, polled = 0;
	const auto deadline = Clock::now() + 3 * patience;

	while (polled < total) {
		while (posted < total && posted - polled < depth)
			write_nothing(qp, posted++);
		const int count = ibv_poll_cq(cq, static_cast<int>(batch), wcs.data());
		REQUIRE(count >= 0);
		for (int i = 0; i < count; i++, polled++)
			if (wcs[i].status || wcs[i].wr_id != polled)
				FAIL("expected wr_id " << polled << ", got " << describe(wcs[i]));
		if (Clock::now() > deadline)
			FAIL("expected " << total << " completions, got " << polled);
	}
}

} // namespace

TEST_CASE("order over many laps of small queues")
{
	Device device;

	for (int cqe : {1, 2, 3, 4, 7, 16, 100}) {
		QpOptions options;
		options.cqe = cqe;
		Pair pair(device, options);
		const auto depth = std::min<unsigned>(pair.a.send_cq->cqe, options.send_wr);
		INFO("asked for " << cqe << " entries, got " << pair.a.send_cq->cqe);
		CHECK(pair.a.send_cq->cqe >= cqe);
		for (unsigned batch : {1, 3, 64})
			run_laps(pair.a.qp, pair.a.send_cq, depth, batch, 10 * depth + 3);
	}
}

TEST_CASE("several queue pairs share a queue")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 1024));
	std::vector<Qp> qps;
	std::vector<unsigned> counts(8);

	for (std::size_t i = 0; i < counts.size(); i++) {
		qps.push_back(create_qp(pd, cq, cq));
		connect_to(qps[i], device, qps[i]->qp_num);
	}
	for (unsigned round = 0; round < 32; round++)
		for (std::size_t i = 0; i < qps.size(); i++)
			write_nothing(qps[i], i * 1000 + round);
	for (const auto &wc : wait_success(cq, 32 * qps.size())) {
		const auto which = wc.wr_id / 1000;
		CHECK(wc.wr_id % 1000 == counts[which]++);
		CHECK(wc.qp_num == qps[which]->qp_num);
	}
}

TEST_CASE("an armed queue raises one event for the next completion")
{
	Device device;
	Watched watched(device);

	watched.arm(next);
	watched.message(false);
	watched.message(false);
	watched.take_event();
	CHECK_FALSE(watched.has_event(absence));
	CHECK(drain(watched.cq).size() == 2);
}

TEST_CASE("a completion before the arming raises no event")
{
	Device device;
	Watched watched(device);

	watched.message(true);
	watched.arm(next);
	CHECK_FALSE(watched.has_event(absence));
	CHECK(drain(watched.cq).size() == 1);
	watched.message(false);
	watched.take_event();
}

TEST_CASE("a queue that is not armed raises no event")
{
	Device device;
	Watched watched(device);

	watched.message(true);
	CHECK_FALSE(watched.has_event(absence));
	watched.arm(next);
	watched.message(true);
	watched.take_event();
	watched.message(true);
	CHECK_FALSE(watched.has_event(absence));
}

TEST_CASE("arming for solicited completions")
{
	Device device;
	Watched watched(device);

	watched.arm(solicited_only);
	watched.message(false);
	CHECK_FALSE(watched.has_event(absence));
	watched.message(true);
	watched.take_event();
	watched.message(true);
	CHECK_FALSE(watched.has_event(absence));
}

TEST_CASE("arming for solicited completions after arming for all keeps all")
{
	Device device;
	Watched watched(device);

	watched.arm(next);
	watched.arm(solicited_only);
	watched.message(false);
	watched.take_event();
}

TEST_CASE("an older event takes nothing from an arming for all that came after it")
{
	Device device;
	Watched watched(device);

	watched.arm(next);
	watched.message(false);
	watched.arm(next);
	watched.take_event(); /* of the first arming */
	watched.arm(solicited_only);
	watched.message(false);
	watched.take_event();
}

TEST_CASE("arming for solicited completions after the event of an arming for all")
{
	Device device;
	Watched watched(device);

	watched.arm(next);
	watched.message(false);
	watched.arm(solicited_only);
	watched.take_event();
	watched.message(false);
	CHECK_FALSE(watched.has_event(absence));
	watched.message(true);
	watched.take_event();
}

TEST_CASE("arming for all after arming for solicited completions")
{
	Device device;
	Watched watched(device);

	watched.arm(solicited_only);
	watched.arm(next);
	watched.message(false);
	watched.take_event();
}

TEST_CASE("failed completions count as solicited")
{
	Device device;
	Watched watched(device);

	post_recv(watched.qp, 1, {watched.to.sge(0, 64)});
	watched.arm(solicited_only);
	to_state(watched.qp, IBV_QPS_ERR);
	watched.take_event();
	CHECK(wait_completion(watched.cq).status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("the loop of the manual loses no completion")
{
	Device device;
	Watched watched(device);
	constexpr unsigned total = 500;
	unsigned got = 0;

	watched.arm(next);
	for (unsigned i = 0; i < total; i++) {
		post_recv(watched.qp, i, {watched.to.sge(0, 64)});
		post(watched.a.qp, Send(IBV_WR_SEND, {watched.from.sge(0, 8)})
					   .flags(i % 32 == 31 ? IBV_SEND_SIGNALED : 0));
		if (i % 32 == 31)
			wait_success(watched.a.send_cq);
		if (i % 5)
			continue;
		watched.take_event();
		watched.arm(next);
		got += drain(watched.cq).size();
	}
	eventually([&] { return (got += drain(watched.cq).size()) == total; });
	CHECK(got == total);
}

TEST_CASE("many queues on one channel")
{
	Device device;
	Channel channel(ibv_create_comp_channel(device), "create_comp_channel");
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	std::vector<Cq> cqs;
	std::vector<Qp> qps;
	std::vector<bool> seen(50);

	for (std::size_t i = 0; i < seen.size(); i++) {
		auto *context = reinterpret_cast<void *>(i);
		cqs.emplace_back(ibv_create_cq(device, 16, context, channel, 0), "create_cq");
		qps.push_back(create_qp(pd, cqs[i], cqs[i]));
		connect_to(qps[i], device, qps[i]->qp_num);
		must(ibv_req_notify_cq(cqs[i], 0), "req_notify_cq");
	}
	for (auto &qp : qps)
		write_nothing(qp, 1);
	for (std::size_t i = 0; i < seen.size(); i++) {
		ibv_cq *which = nullptr;
		void *context = nullptr;
		REQUIRE(readable(channel->fd, patience));
		must(ibv_get_cq_event(channel, &which, &context), "get_cq_event");
		const auto index = reinterpret_cast<std::uintptr_t>(context);
		CHECK(which == cqs.at(index).get());
		CHECK_FALSE(seen.at(index));
		seen[index] = true;
		ibv_ack_cq_events(which, 1);
	}
	CHECK_FALSE(readable(channel->fd, absence));
}

TEST_CASE("an overflow is reported and ends the queue pair")
{
	Device device;
	QpOptions options;
	options.cqe = 4;
	options.send_wr = 256;
	Pair pair(device, options), bystander(device);
	const unsigned room = pair.a.send_cq->cqe;
	REQUIRE(room < options.send_wr);

	for (unsigned i = 0; i < std::min(room + 20, options.send_wr); i++)
		if (try_post(pair.a.qp, Send(IBV_WR_RDMA_WRITE).id(i)))
			break; /* the queue pair may have failed by now */
	CHECK(device.wait_event(IBV_EVENT_CQ_ERR, pair.a.send_cq.get()));
	CHECK(eventually([&] { return query_state(pair.a.qp) == IBV_QPS_ERR; }));
	CHECK(device.count_events(IBV_EVENT_CQ_ERR, pair.a.send_cq.get()) == 1);
	CHECK(device.wait_event(IBV_EVENT_QP_FATAL, pair.a.qp.get()));
	write_nothing(bystander.a.qp, 5);
	wait_success(bystander.a.send_cq);
}

TEST_CASE("moderation holds an event for as many completions as were asked for")
{
	constexpr auto longest = 65ms; /* the longest period is half a millisecond longer */
	Device device;
	Watched watched(device);
	const int count = GENERATE(2, 3, 20);
	bool by_count = false;

	moderate(watched.cq, static_cast<std::uint16_t>(count), 0xffff);
	/* A slow machine may need several rounds to send them all before the timer expires. */
	for (int round = 0; round < 30 && !by_count; round++) {
		watched.arm(next);
		Stopwatch watch;
		for (int i = 1; i < count; i++)
			watched.message(false);
		const bool early = watched.has_event(0s);
		CHECK((!early || watch.elapsed() >= longest));
		watched.message(false);
		watched.take_event();
		by_count = !early && watch.elapsed() < longest;
		CHECK(drain(watched.cq).size() == static_cast<std::size_t>(count));
	}
	CHECK(by_count);
}

TEST_CASE("moderation loses no event when too few completions come")
{
	Device device;
	Watched watched(device);
	const auto kind = GENERATE(next, solicited_only);

	moderate(watched.cq, 1000, 500);
	for (int i = 0; i < 30; i++) {
		watched.arm(kind);
		watched.message(kind == solicited_only);
		watched.take_event();
		CHECK(drain(watched.cq).size() == 1);
		if (i % 10 == 9)
			CHECK_FALSE(watched.has_event(absence));
	}
}

TEST_CASE("moderation holds only events that are due")
{
	Device device;
	Watched watched(device);

	moderate(watched.cq, 2, 100);
	watched.message(true);
	watched.message(true);
	CHECK_FALSE(watched.has_event(absence)); /* not armed */
	watched.arm(solicited_only);
	watched.message(false);
	watched.message(false);
	CHECK_FALSE(watched.has_event(absence)); /* not solicited */
	watched.message(true);
	watched.message(false);
	watched.take_event();
	CHECK_FALSE(watched.has_event(absence));
}

TEST_CASE("a held event survives the end of moderation and a resize")
{
	Device device;
	Watched watched(device);

	for (int i = 0; i < 5; i++) {
		moderate(watched.cq, 1000, 0xffff);
		watched.arm(next);
		watched.message(false);
		moderate(watched.cq, 0, 0);
		must(ibv_resize_cq(watched.cq, 64 << i % 2), "resize_cq");
		watched.take_event();
		watched.arm(next);
		watched.message(false);
		watched.take_event();
	}
	CHECK(drain(watched.cq).size() == 10);
}

TEST_CASE("without a count or without a period an event is raised at once")
{
	Device device;
	Watched watched(device);
	const auto values =
		GENERATE(std::pair(0, 0xffff), std::pair(1, 0xffff), std::pair(1000, 0));

	moderate(watched.cq, static_cast<std::uint16_t>(values.first),
		 static_cast<std::uint16_t>(values.second));
	for (int i = 0; i < 3; i++) {
		watched.arm(next);
		watched.message(false);
		watched.take_event();
	}
}

TEST_CASE("a queue is destroyed while an event is held")
{
	Device device;

	for (int i = 0; i < 10; i++) {
		Watched watched(device);
		moderate(watched.cq, 1000, static_cast<std::uint16_t>(i % 2 ? 0xffff : 100));
		watched.arm(next);
		watched.message(false);
	}
}

TEST_CASE("limits of moderation")
{
	Device device;
	Cq cq(create_cq(device, 16));
	ibv_device_attr_ex attr{};

	must(ibv_query_device_ex(device, nullptr, &attr), "query_device_ex");
	CHECK(attr.cq_mod_caps.max_cq_count == 0xffff);
	CHECK(attr.cq_mod_caps.max_cq_period == 0xffff);
	CHECK(try_moderate(cq, 0xffff, 0xffff) == 0);
	CHECK(errno_name(try_moderate(cq, 1, 1, 0)) == "EINVAL");
	CHECK(errno_name(try_moderate(cq, 1, 1, IBV_CQ_ATTR_MODERATE << 1)) == "EOPNOTSUPP");
}

TEST_CASE("every completion vector raises events")
{
	Device device;
	Channel channel(ibv_create_comp_channel(device), "create_comp_channel");
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	const int vectors = device.context()->num_comp_vectors;

	CHECK(vectors >= sysconf(_SC_NPROCESSORS_ONLN));
	for (int vector = 0; vector < vectors; vector++) {
		Cq cq(ibv_create_cq(device, 16, nullptr, channel, vector), "create_cq");
		Qp qp(create_qp(pd, cq, cq));
		ibv_cq *which = nullptr;
		void *context = nullptr;

		connect_to(qp, device, qp->qp_num);
		must(ibv_req_notify_cq(cq, 0), "req_notify_cq");
		write_nothing(qp, 1);
		REQUIRE(readable(channel->fd, patience));
		must(ibv_get_cq_event(channel, &which, &context), "get_cq_event");
		CHECK(which == cq.get());
		ibv_ack_cq_events(which, 1);
	}
}

TEST_CASE("limits of completion queues")
{
	Device device;
	const int most = device.attributes().max_cqe;

	CHECK(ibv_create_cq(device, most + 1, nullptr, nullptr, 0) == nullptr);
	CHECK(errno_name(errno) == "EINVAL");
	CHECK(ibv_create_cq(device, 0, nullptr, nullptr, 0) == nullptr);
	CHECK(errno_name(errno) == "EINVAL");
	Cq largest(create_cq(device, most));
	CHECK(largest->cqe >= most);
	CHECK(ibv_create_cq(device, 16, nullptr, nullptr, device.context()->num_comp_vectors) ==
	      nullptr);
	CHECK(errno_name(errno) == "EINVAL");
}

TEST_CASE("a queue in use is not destroyed")
{
	Device device;
	Endpoint endpoint(device);

	CHECK(errno_name(ibv_destroy_cq(endpoint.send_cq)) == "EBUSY");
	connect_to(endpoint.qp, device, endpoint.qp->qp_num);
	write_nothing(endpoint.qp, 1);
	wait_success(endpoint.send_cq);
}

TEST_CASE("a resized queue keeps its completions and their order")
{
	constexpr unsigned per_size = 10;
	Device device;
	Watched watched(device);
	unsigned received = 0;
	const auto size = GENERATE(16, 20, 64, 1000, 100000);

	/* The second round ends laps of rings of two sizes at different places. */
	for (int cqe : {size, 64, size, 32, size}) {
		for (unsigned i = 0; i < per_size; i++)
			watched.message(false);
		must(ibv_resize_cq(watched.cq, cqe), "resize_cq");
		CHECK(watched.cq->cqe >= cqe);
		for (unsigned i = 0; i < 5; i++)
			watched.message(false);
		for (const auto &wc : drain(watched.cq)) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			CHECK(wc.qp_num == watched.qp->qp_num);
			received++;
		}
	}
	CHECK(received == 5 * (per_size + 5));
}

TEST_CASE("a queue is not made smaller than its unread completions")
{
	Device device;
	Watched watched(device);

	for (int i = 0; i < 10; i++)
		watched.message(false);
	const int error = ibv_resize_cq(watched.cq, 8);
	CHECK(errno_name(error) == "EINVAL");
	watched.message(false);
	must(ibv_resize_cq(watched.cq, 16), "resize_cq");
	for (int i = 0; i < 5; i++)
		watched.message(false);
	CHECK(drain(watched.cq).size() == 16);
	must(ibv_resize_cq(watched.cq, 1), "resize_cq");
	watched.message(false);
	CHECK(drain(watched.cq).size() == 1);
}

TEST_CASE("an armed queue stays armed while it is resized")
{
	Device device;
	Watched watched(device);

	watched.arm(next);
	must(ibv_resize_cq(watched.cq, 500), "resize_cq");
	CHECK_FALSE(watched.has_event(absence));
	watched.message(false);
	watched.take_event();
	must(ibv_resize_cq(watched.cq, 100), "resize_cq");
	watched.message(false);
	CHECK_FALSE(watched.has_event(absence));
}

TEST_CASE("a resize under load loses no completion")
{
	constexpr unsigned depth = 32;
	Device device;
	QpOptions options;
	options.send_wr = depth;
	options.cqe = depth;
	Pair pair(device, options);
	std::atomic<bool> stop = false;
	unsigned resizes = 0;
	std::thread resizer([&] {
		for (unsigned i = 0; !stop; i++, resizes++)
			if (ibv_resize_cq(pair.a.send_cq, static_cast<int>(depth << i % 8)))
				break;
	});

	run_laps(pair.a.qp, pair.a.send_cq, depth, 7, 3000);
	const unsigned before = resizes;
	CHECK(before > 0);
	run_laps(pair.a.qp, pair.a.send_cq, depth, 64, 3000);
	stop = true;
	resizer.join();
	CHECK(resizes > before);
	CHECK(device.count_events(IBV_EVENT_CQ_ERR, pair.a.send_cq.get()) == 0);
}

TEST_CASE("limits of a resize")
{
	Device device;
	Cq cq(create_cq(device, 16));

	CHECK(errno_name(ibv_resize_cq(cq, 0)) == "EINVAL");
	CHECK(errno_name(ibv_resize_cq(cq, -1)) == "EINVAL");
	CHECK(errno_name(ibv_resize_cq(cq, device.attributes().max_cqe + 1)) == "EINVAL");
	CHECK(ibv_resize_cq(cq, device.attributes().max_cqe) == 0);
}

TEST_CASE("a resize refuses a ring that cannot be")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, 16));
	Qp qp(create_qp(pd, cq, cq));
	constexpr void (*spoilers[])(peal_resize_cq_resp &) = {
		[](peal_resize_cq_resp &shape) { shape.comp_mask = 1; },
		[](peal_resize_cq_resp &shape) { shape.entries = 0; },
		[](peal_resize_cq_resp &shape) { shape.entries /= 2; },
		[](peal_resize_cq_resp &shape) { shape.entries -= 1; },
		[](peal_resize_cq_resp &shape) { shape.entries = 1U << 31; },
		[](peal_resize_cq_resp &shape) { shape.map_bytes = 0; },
		[](peal_resize_cq_resp &shape) {
			shape.map_bytes = shape.entries * sizeof(peal_cqe) - 1;
		},
	};

	connect_to(qp, device, qp->qp_num);
	for (const auto spoiler : spoilers) {
		spoil = spoiler;
		const int error = ibv_resize_cq(cq, 256);
		spoil = nullptr;
		CHECK(errno_name(error) == "EPROTO");
		CHECK(cq->cqe == 16);
	}
	run_laps(qp, cq, 4, 4, 100);
	CHECK(ibv_resize_cq(cq, 256) == 0);
	CHECK(cq->cqe == 256);
	run_laps(qp, cq, 4, 4, 1000);
}

TEST_CASE("a queue is not resized between start_poll and end_poll")
{
	Device device;
	ibv_cq_init_attr_ex attr{};
	ibv_poll_cq_attr poll{};

	/* With a lock of the queue the thread would wait for itself, as with other devices. */
	attr.cqe = 16;
	attr.wc_flags = IBV_WC_EX_WITH_QP_NUM;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	auto *cqx = ibv_create_cq_ex(device, &attr);
	if (!cqx)
		SKIP_CASE("no single-threaded completion queues: " + errno_name(errno));
	Cq cq(ibv_cq_ex_to_cq(cqx), "create_cq_ex");
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Qp qp(create_qp(pd, cq, cq));
	connect_to(qp, device, qp->qp_num);

	/* A second resize unmaps what the first has mapped. */
	must(ibv_resize_cq(cq, 32), "resize_cq");
	write_nothing(qp, 1);
	write_nothing(qp, 2);
	REQUIRE(eventually([&] { return !ibv_start_poll(cqx, &poll); }));
	REQUIRE(errno_name(ibv_resize_cq(cq, 64)) == "EBUSY");
	CHECK(cqx->wr_id == 1);
	CHECK(ibv_wc_read_qp_num(cqx) == qp->qp_num);
	CHECK(eventually([&] { return !ibv_next_poll(cqx); }));
	CHECK(cqx->wr_id == 2);
	CHECK(ibv_next_poll(cqx) == ENOENT);
	CHECK(errno_name(ibv_resize_cq(cq, 64)) == "EBUSY");
	CHECK(ibv_wc_read_qp_num(cqx) == qp->qp_num);
	ibv_end_poll(cqx);
	CHECK(ibv_start_poll(cqx, &poll) == ENOENT);
	CHECK(ibv_resize_cq(cq, 64) == 0);
	CHECK(cq->cqe == 64);
	run_laps(qp, cq, 4, 4, 1000);
}

TEST_CASE("completions stay after their queue pair is gone or is told apart")
{
	Device device;
	Pair pair(device);

	write_nothing(pair.a.qp, 1);
	eventually([&] { return query_state(pair.a.qp) == IBV_QPS_RTS; });
	pair.a.qp.reset();
	/* Completions of a destroyed queue pair may be removed, but none may be wrong. */
	for (const auto &wc : drain(pair.a.send_cq))
		CHECK(wc.wr_id == 1);
	pair.a.qp = create_qp(pair.a.pd, pair.a.send_cq, pair.a.recv_cq);
	connect_to(pair.a.qp, device, pair.a.qp->qp_num);
	write_nothing(pair.a.qp, 77);
	CHECK(wait_success(pair.a.send_cq).front().wr_id == 77);
}

TEST_CASE("completions of reset and destroyed queue pairs take no slots")
{
	constexpr int depth = 16;
	QpOptions options;
	options.send_wr = options.recv_wr = depth;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, depth));
	const auto fill = [&](ibv_qp *qp) {
		for (int i = 0; i < depth; i++)
			write_nothing(qp, static_cast<std::uint64_t>(i));
	};
	Qp kept(create_qp(pd, cq, cq, options));

	for (int life = 0; life < 3; life++) {
		connect_to(kept, device, kept->qp_num);
		fill(kept);
		to_state(kept, IBV_QPS_ERR); /* all are completed or flushed, none is polled */
		to_state(kept, IBV_QPS_RESET);
		Qp other(create_qp(pd, cq, cq, options));
		connect_to(other, device, other->qp_num);
		fill(other);
	}
	connect_to(kept, device, kept->qp_num);
	fill(kept);
	wait_success(cq, depth);
	CHECK(device.count_events(IBV_EVENT_CQ_ERR, cq.get()) == 0);
	CHECK(query_state(kept) == IBV_QPS_RTS);
}

TEST_CASE("completions of destroyed queue pairs take no slots behind those of another queue pair")
{
	constexpr std::size_t depth = 16;
	constexpr std::uint64_t first = 100;
	QpOptions options;
	options.send_wr = options.recv_wr = depth;
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Cq cq(create_cq(device, depth));
	/* All but one are completed or flushed. None is polled. */
	const auto fill = [&](ibv_qp *qp) {
		connect_to(qp, device, qp->qp_num);
		for (std::size_t i = 1; i < depth; i++)
			write_nothing(qp, i);
		to_state(qp, IBV_QPS_ERR);
	};
	Qp other(create_qp(pd, cq, cq, options)), kept(create_qp(pd, cq, cq, options));

	connect_to(other, device, other->qp_num);
	write_nothing(other, first);
	to_state(other, IBV_QPS_ERR);
	for (int life = 0; life < 3; life++) {
		fill(kept);
		to_state(kept, IBV_QPS_RESET);
		Qp destroyed(create_qp(pd, cq, cq, options));
		fill(destroyed);
	}
	fill(kept);
	const auto wcs = drain(cq);
	REQUIRE(wcs.size() == depth);
	CHECK(wcs[0].wr_id == first);
	for (std::size_t i = 1; i < depth; i++)
		CHECK(wcs[i].wr_id == i);
	CHECK(device.count_events(IBV_EVENT_CQ_ERR, cq.get()) == 0);
}

TEST_CASE("posts between start_poll and end_poll while another thread resets")
{
	Device device;
	auto *cqx = create_cq_ex(device);
	Cq cq(ibv_cq_ex_to_cq(cqx), "create_cq_ex");
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Qp busy(create_qp(pd, cq, cq)), reset(create_qp(pd, cq, cq));
	std::atomic<bool> over = false;
	std::atomic<int> posts = 0;
	connect_to(busy, device, busy->qp_num);

	/* A queue may be full, and a post to the queue pair that is reset may fail. */
	std::thread poller([&] {
		ibv_poll_cq_attr poll{};

		while (!over) {
			try_post(busy, Send(IBV_WR_RDMA_WRITE));
			if (ibv_start_poll(cqx, &poll))
				continue;
			/* Long enough for the other thread to go as far as it can. */
			std::this_thread::sleep_for(1ms);
			try_post(reset, Send(IBV_WR_RDMA_WRITE));
			posts++;
			ibv_end_poll(cqx);
		}
	});
	const auto deadline = Clock::now() + 3s * slowness();
	for (int round = 0; round < 50 && Clock::now() < deadline; round++) {
		const int before = posts;

		connect_to(reset, device, reset->qp_num);
		eventually([&] { return posts > before; });
		to_state(reset, IBV_QPS_RESET);
		Qp another(create_qp(pd, cq, cq));
	}
	over = true;
	poller.join();
	CHECK(posts > 0);
}
