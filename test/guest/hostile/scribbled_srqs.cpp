// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 180
/*
 * The kernel trusts nothing that a program writes into a shared receive queue.
 *
 * Holds: A wrong producer index or slot number ends the shared receive queue with an event, and
 * each queue pair that needs it with the reason, and nothing else. A malformed receive ends only
 * the queue pair that took it. Kicks wake only senders that wait there. A program scribbles over
 * such queues while they are in use, and the data of another program stays right.
 * Does not hold: the rings of queue pairs (hostile/scribbled_rings).
 * PEAL_FUZZ_SECONDS, default 4, is how long the scribbling takes.
 */
#include "innocent.hpp"
#include "raw.hpp"

#include <thread>

using namespace peal_test;

namespace {

struct Stage {
	Device device;
	RawContext context;
	Stage() { context.open_events(); }
};

#define STAGE_OR_SKIP(name)                                                                        \
	if (!is_peal())                                                                            \
		SKIP_CASE("the rings are those of peal");                                          \
	Stage name

/* A queue pair that sends to itself and shares. */
struct Sharer : RawQp {
	Sharer(Stage &stage, const RawSrq &srq, std::uint8_t rnr_timer = 1)
		: RawQp(stage.context, stage.device, {.srq = &srq, .rnr_timer = rnr_timer})
	{
	}
	void send(std::uint32_t length = 64)
	{
		RawSend message;

		message.header.opcode = PEAL_OP_SEND;
		message.header.flags = PEAL_WQE_SIGNALED;
		post(message.sge(sge(0, length)));
	}
	/* Waits for the completion of the send, and the receive's before it if there is one. */
	std::pair<std::optional<peal_cqe>, peal_cqe> results()
	{
		std::optional<peal_cqe> received;
		peal_cqe cqe{};

		while (wait(cqe)) {
			if (cqe.kind == PEAL_CQE_SEND)
				return {received, cqe};
			received = cqe;
		}
		throw std::runtime_error("expected a completion of the send, got none");
	}
};

std::size_t errors(Stage &stage, const RawSrq &srq)
{
	return stage.context.count_events(IBV_EVENT_SRQ_ERR, srq.name());
}

/* On the wire the NAK may find the queue pair, which is its own peer, in error already. */
void check_reason(const peal_cqe &cqe, peal_reason reason)
{
	CHECK(status_name(cqe.status) != "success");
	if (!on_wire())
		CHECK(reason_name(cqe.vendor_err) == reason_name(reason));
}

/* A message arrives through the shared receive queue. */
void check_works(Stage &stage, RawSrq &srq)
{
	Sharer qp(stage, srq);

	fill_pattern(qp.memory().bytes(0, 64), 3);
	std::memset(srq.memory().data(), 0, 64);
	srq.post(2, 0, 100);
	qp.send();
	const auto [received, sent] = qp.results();
	REQUIRE(received);
	CHECK(status_name(received->status) == "success");
	CHECK(received->wqe_index == 2);
	CHECK(status_name(sent.status) == "success");
	CHECK(difference(srq.memory().bytes(0, 64), qp.memory().bytes(0, 64)) == "");
}

/* The ring holds nonsense now. The next message learns of it, and so do all later ones. */
void check_broken(Stage &stage, RawSrq &srq)
{
	Sharer first(stage, srq), second(stage, srq);

	first.send();
	const auto [received, sent] = first.results();
	CHECK_FALSE(received);
	check_reason(sent, PEAL_REASON_SRQ_RING);
	CHECK(eventually([&] { return first.state() == IBV_QPS_ERR; }));
	CHECK(eventually([&] { return errors(stage, srq) == 1; }));
	CHECK(state_name(second.state()) == "RTS");
	/* What the program does now comes too late. */
	srq.numbers()[0] = 0;
	srq.publish(1);
	second.send();
	check_reason(second.results().second, PEAL_REASON_SRQ_RING);
	CHECK(eventually([&] { return second.state() == IBV_QPS_ERR; }));
	CHECK(errors(stage, srq) == 1);
}

} // namespace

TEST_CASE("the layout of a shared receive queue's mapping")
{
	STAGE_OR_SKIP(stage);

	for (const std::uint32_t depth : {1U, 5U, 16U, 1000U}) {
		RawSrq srq(stage.context, depth);
		const auto &resp = srq.response();

		CHECK(resp.comp_mask == 0);
		CHECK(resp.entries >= depth);
		CHECK((resp.entries & (resp.entries - 1)) == 0);
		CHECK(resp.ring_offset >= sizeof(peal_ring_ctl));
		CHECK(resp.slots_offset >= resp.ring_offset + 4 * resp.entries);
		CHECK(resp.stride % PEAL_WQE_UNIT == 0);
		CHECK(resp.stride >= 16 + 16 * srq.max_sge());
		CHECK(resp.slots_offset + resp.entries * resp.stride <= resp.map_bytes);
	}
}

TEST_CASE("well-formed shared receives work, in any order of slots")
{
	STAGE_OR_SKIP(stage);
	RawSrq srq(stage.context, 16);
	Sharer a(stage, srq), b(stage, srq);

	for (std::uint32_t i = 0; i < 5 * 16; i++) {
		const std::uint32_t number = i * 7 % 16;
		Sharer &qp = i & 1 ? b : a;

		srq.post(number, 4096 + number * 64, 64);
		fill_pattern(qp.memory().bytes(0, 64), i);
		qp.send();
		const auto [received, sent] = qp.results();
		REQUIRE(received);
		REQUIRE(status_name(received->status) == "success");
		CHECK(received->wqe_index == number);
		CHECK(received->qp_index == qp.index());
		CHECK(status_name(sent.status) == "success");
		CHECK(difference(srq.memory().bytes(4096 + number * 64, 64),
				 qp.memory().bytes(0, 64)) == "");
		CHECK(srq.control().consumer == i + 1);
	}
	CHECK(errors(stage, srq) == 0);
}

TEST_CASE("slot numbers that are no slot's")
{
	STAGE_OR_SKIP(stage);

	for (const std::uint32_t number : {16U, 17U, 1U << 16, 1U << 31, ~0U}) {
		INFO("number " << number);
		RawSrq srq(stage.context, 16), other(stage.context, 16);

		srq.enqueue(number);
		srq.publish();
		check_broken(stage, srq);
		check_works(stage, other);
	}
}

TEST_CASE("producer indices of shared receive queues that jump")
{
	STAGE_OR_SKIP(stage);

	for (const std::uint32_t by : {17U, 32U, 1U << 31, ~0U}) {
		INFO("producer " << by);
		RawSrq srq(stage.context, 16), other(stage.context, 16);

		srq.publish(by);
		check_broken(stage, srq);
		check_works(stage, other);
	}
}

TEST_CASE("a sender that waits learns that the shared receive queue has ended")
{
	STAGE_OR_SKIP(stage);
	RawSrq srq(stage.context, 16);
	Sharer qp(stage, srq, 0); /* 655 ms */

	qp.send();
	srq.publish(1000);
	check_reason(qp.results().second, PEAL_REASON_SRQ_RING);
	CHECK(eventually([&] { return errors(stage, srq) == 1; }));
}

TEST_CASE("a malformed shared receive ends only the queue pair that takes it")
{
	STAGE_OR_SKIP(stage);
	const std::vector<peal_recv_wqe> bad{
		{5, {}}, {33, {}}, {0xffffffff, {}}, {1, {1, 0, 0}}, {0, {0, 0, 0x80000000}},
	};
	RawSrq srq(stage.context, 16);

	for (const auto &header : bad) {
		INFO("num_sge " << header.num_sge);
		Sharer qp(stage, srq);

		srq.write(7, header, {});
		srq.enqueue(7);
		srq.publish();
		qp.send();
		const auto [received, sent] = qp.results();
		REQUIRE(received);
		CHECK(reason_name(received->vendor_err) == "RECV_WQE");
		CHECK(received->wqe_index == 7);
		check_reason(sent, PEAL_REASON_RECV_WQE);
		check_works(stage, srq);
	}
	CHECK(errors(stage, srq) == 0);
}

TEST_CASE("kernel words of a shared receive queue that the program overwrites")
{
	STAGE_OR_SKIP(stage);
	RawSrq srq(stage.context, 16);

	for (const std::uint32_t value : {0U, 1U, ~0U, 1U << 31}) {
		srq.control().consumer = srq.control().flags = value;
		check_works(stage, srq);
	}
}

TEST_CASE("a slot that is posted many times")
{
	STAGE_OR_SKIP(stage);
	RawSrq srq(stage.context, 16);
	Sharer qp(stage, srq);

	for (int i = 0; i < 16; i++)
		srq.post(5, 0, 100);
	for (int i = 0; i < 16; i++) {
		qp.send();
		const auto [received, sent] = qp.results();
		REQUIRE(received);
		CHECK(received->wqe_index == 5);
		CHECK(status_name(sent.status) == "success");
	}
	check_works(stage, srq);
}

TEST_CASE("kicks of shared receive queues that make no sense")
{
	STAGE_OR_SKIP(stage);
	auto srq = std::make_unique<RawSrq>(stage.context, 16);
	const auto index = srq->response().srq_index;
	RawContext other;

	for (const std::uint32_t wrong : {index + 1000, ~0U, 1U << 31})
		CHECK(errno_name(stage.context.kick(PEAL_IOC_KICK_SRQ, wrong)) == "ENOENT");
	CHECK(errno_name(other.kick(PEAL_IOC_KICK_SRQ, index)) == "ENOENT");
	CHECK(errno_name(stage.context.kick(PEAL_IOC_KICK_SRQ, index)) == "0");
	srq.reset();
	CHECK(errno_name(stage.context.kick(PEAL_IOC_KICK_SRQ, index)) == "ENOENT");
}

namespace {

std::string resize(Stage &stage, std::uint32_t handle, const peal_resize_srq_req &request,
		   peal_resize_srq_resp &response)
{
	return errno_name(stage.context.device().method(
		UVERBS_OBJECT_SRQ, PEAL_METHOD_SRQ_RESIZE,
		uv::attr_handle(PEAL_ATTR_SRQ_RESIZE_HANDLE, handle),
		uv::attr_in(PEAL_ATTR_SRQ_RESIZE_REQ, uv::in(request)),
		uv::attr_out(PEAL_ATTR_SRQ_RESIZE_RESP, uv::out(response))));
}

} // namespace

TEST_CASE("steps of a resize that make no sense, and a new ring full of nonsense")
{
	STAGE_OR_SKIP(stage);
	constexpr __u32 prepare = PEAL_RESIZE_SRQ_PREPARE, commit = PEAL_RESIZE_SRQ_COMMIT;
	RawSrq srq(stage.context, 16);
	peal_resize_srq_resp shape{}, done{};

	CHECK(resize(stage, srq.handle(), {0, commit, 0, 0}, done) == "EINVAL");
	CHECK(resize(stage, srq.handle() + 1000, {0, prepare, 8, 0}, shape) == "ENOENT");
	for (const peal_resize_srq_req &wrong : {peal_resize_srq_req{1, prepare, 8, 0},
						 {0, prepare, 8, 1},
						 {0, 0, 8, 0},
						 {0, 3, 8, 0},
						 {0, prepare, 0, 0},
						 {0, prepare, PEAL_MAX_SRQ_WR + 1, 0},
						 {0, prepare, ~0U, 0},
						 {0, commit, 8, 0}})
		CHECK(resize(stage, srq.handle(), wrong, done) == "EINVAL");
	check_works(stage, srq);
	REQUIRE(resize(stage, srq.handle(), {0, prepare, 100, 0}, shape) == "0");
	REQUIRE(resize(stage, srq.handle(), {0, prepare, 8, 0}, shape) == "0"); /* another one */
	CHECK(shape.entries == 8);
	CHECK(shape.slots_offset >= 4 * shape.entries);
	CHECK(shape.slots_offset + shape.entries * shape.stride <= shape.map_bytes);
	Map map(stage.context.fd(), shape.map_offset, shape.map_bytes);
	srq.publish(srq.control().producer + 9);
	CHECK(resize(stage, srq.handle(), {0, commit, 0, 0}, done) == "EINVAL");
	srq.publish(srq.control().producer - 8);
	std::memset(map.at(), 0xff, map.bytes());
	REQUIRE(resize(stage, srq.handle(), {0, commit, 0, 0}, done) == "0");
	CHECK(done.entries == 8);
	CHECK(done.taken == srq.control().consumer);
	CHECK(resize(stage, srq.handle(), {0, commit, 0, 0}, done) == "EINVAL");
	check_broken(stage, srq);
	REQUIRE(resize(stage, srq.handle(), {0, prepare, 64, 0}, shape) == "0");
	CHECK(resize(stage, srq.handle(), {0, commit, 0, 0}, done) == "EINVAL");
}

TEST_CASE("a shared receive queue in use stays, and its mapping goes with it")
{
	STAGE_OR_SKIP(stage);
	RawSrq srq(stage.context, 16);
	{
		Sharer qp(stage, srq);
		CHECK(errno_name(srq.destroy()) == "EBUSY");
		check_works(stage, srq);
	}
	CHECK(errno_name(srq.destroy()) == "0");
	std::memset(srq.map().at(), 0xff, srq.map().bytes()); /* harmless memory */
}

TEST_CASE("a kick for shared receives wakes only senders to its queue")
{
	STAGE_OR_SKIP(stage);
	Endpoint asker(stage.device), answerer(stage.device);
	Region from(asker.pd, page_bytes), to(answerer.pd, page_bytes);
	RawSrq srq(stage.context, 16);
	Link link;

	link.rnr_retry = 3;
	link.min_rnr_timer = 0; /* 655 ms each */
	connect(asker, answerer, link);
	post(asker.qp, Send(IBV_WR_SEND, {from.sge(0, 32)}));
	RawQp stranger(stage.context, stage.device, {.peer = asker.qp->qp_num, .srq = &srq});
	for (int i = 0; i < 100; i++)
		CHECK(srq.kick() == 0);
	CHECK(describe(drain(asker.send_cq)) == "0 completions");
	post_recv(answerer.qp, 1, {to.sge(0, 64)});
	wait_success(asker.send_cq);
}

namespace {

/* Writes random words over the queue, most of them where the control words and numbers are. */
void scribble(const RawSrq &srq, std::uint64_t salt, const std::atomic<bool> &stop)
{
	Random random(salt);

	while (!stop.load(std::memory_order_relaxed)) {
		const auto limit = random.between(0, 2)
					   ? std::min<std::size_t>(srq.map().bytes(), 768)
					   : srq.map().bytes();
		auto *at = srq.map().at(random.between(0, limit - 4) & ~3ULL);
		const auto value = random.between(0, 2) ? random.between(0, 40) : random.word();

		std::atomic_ref(*reinterpret_cast<std::uint32_t *>(at))
			.store(static_cast<std::uint32_t>(value));
	}
}

int scribble_for(Duration time, std::uint64_t salt)
{
	Stage stage;
	Random random(salt);
	const Stopwatch watch;

	while (watch.elapsed() < time) {
		RawSrq srq(stage.context, 16);
		Sharer a(stage, srq), b(stage, srq);
		std::atomic<bool> stop = false;
		std::thread thread(scribble, std::cref(srq), random.word(), std::cref(stop));
		peal_cqe cqe{};

		for (std::uint32_t i = 0; i < 60; i++) {
			srq.post(i % 16, 100 * (i % 16), 100);
			(i & 1 ? a : b).send();
			a.cq().poll(cqe);
			b.cq().poll(cqe);
		}
		stop = true;
		thread.join();
	}
	return 0;
}

} // namespace

TEST_CASE("a process that scribbles over shared receive queues harms only itself")
{
	STAGE_OR_SKIP(stage);
	const auto time = time_from("PEAL_FUZZ_SECONDS", 4);

	check_beside(stage.device, time, 2,
		     [=](std::uint64_t salt) { return scribble_for(time, salt); });
	RawSrq srq(stage.context, 16);
	check_works(stage, srq);
}
