// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 300
/*
 * The kernel trusts nothing that a program writes into shared memory: the rings of queue pairs and
 * of shared receive queues, control words, completion queues and the doorbell page.
 *
 * Holds: Every malformed entry, index, slot number and request alone leads to the right reason, and
 * harms no other object. A UD queue pair sends again afterwards. A wrong index or slot number ends
 * a shared receive queue with an event, and each queue pair that needs it. Kicks wake only senders
 * that wait there. A program scribbles over everything that it has mapped, while the data of
 * another program on the same device stays right.
 * Does not hold: packets from the wire (test/fuzz), bad keys (verbs/failed_requests).
 * PEAL_FUZZ_SECONDS, default 12, is how long the scribbling takes.
 */
#include "exchange.hpp"
#include "innocent.hpp"
#include "raw.hpp"

#include <thread>

using namespace peal_test;

namespace {

constexpr std::uint32_t slots = 16;
constexpr std::uint8_t signaled = PEAL_WQE_SIGNALED, with_inline = signaled | PEAL_WQE_INLINE;
constexpr std::size_t recv_offset = page_bytes, recv_bytes = 200, grh_bytes = 40;

struct Stage {
	Device device;
	RawContext context;
	Stage() { context.open_events(); }
};

RawSend request(std::uint8_t opcode, std::uint8_t flags = signaled)
{
	RawSend send;

	send.header.opcode = opcode;
	send.header.flags = flags;
	return send;
}

/* A queue pair that sends to itself, and receives through a ring of its own or a shared one. */
struct Loop : RawQp {
	explicit Loop(const Stage &stage, ibv_qp_type of = IBV_QPT_RC, RawSrq *shared = nullptr,
		      std::uint8_t rnr_timer = 1)
		: RawQp(stage.context, stage.device,
			{.depth = slots, .type = of, .srq = shared, .rnr_timer = rnr_timer}),
		  type(of), srq(shared)
	{
		if (type == IBV_QPT_UD)
			ah = stage.context.create_ah(pd(), stage.device);
	}
	RawSend message(std::uint32_t length = 64) const
	{
		RawSend send = request(PEAL_OP_SEND);

		if (type == IBV_QPT_UD) {
			send.header.ah_index = ah.index;
			send.header.ud = {number(), 0};
		}
		return send.sge(sge(0, length));
	}
	void send() { post(message()); }

	/* The completions of a receive, if there is one, and of a send. */
	std::pair<std::optional<peal_cqe>, peal_cqe> results()
	{
		std::optional<peal_cqe> received, sent;
		peal_cqe cqe{};

		while (!(received && sent) && wait(cqe, sent ? absence : patience))
			(cqe.kind == PEAL_CQE_SEND ? sent : received) = cqe;
		if (!sent)
			throw std::runtime_error("expected a completion of the send, got none");
		return {received, *sent};
	}
	/* A message arrives. */
	void check_works()
	{
		const Memory &to = srq ? srq->memory() : memory();
		const auto bytes = to.bytes(recv_offset + (type == IBV_QPT_UD ? grh_bytes : 0), 64);

		fill_pattern(memory().bytes(0, 64), 3);
		std::memset(bytes.data(), 0, bytes.size());
		if (srq)
			srq->post(2, recv_offset, recv_bytes);
		else
			post_recv(recv_offset, recv_bytes);
		send();
		const auto [received, sent] = results();
		REQUIRE(received);
		CHECK(status_name(received->status) == "success");
		CHECK(status_name(sent.status) == "success");
		if (srq)
			CHECK(received->wqe_index == 2);
		CHECK(difference(bytes, memory().bytes(0, 64)) == "");
	}

	const ibv_qp_type type;
	RawSrq *const srq;
	RawContext::RawAh ah{};
};

void check_works(Stage &stage, RawSrq &srq)
{
	Loop(stage, IBV_QPT_RC, &srq).check_works();
}

std::size_t errors(Stage &stage, const RawSrq &srq)
{
	return stage.context.count_events(IBV_EVENT_SRQ_ERR, srq.name());
}

std::string peal_status(const peal_cqe &cqe)
{
	return status_name(cqe.status) + " (" + reason_name(cqe.vendor_err) + ")";
}

} // namespace

/* ------------------------------------------------------------------ well-formed use */

TEST_CASE("well-formed entries work")
{
	Stage stage;
	Loop qp(stage);
	RawSend send = request(PEAL_OP_WRITE);
	send.header.remote_addr = qp.memory().address(page_bytes);
	send.header.rkey = qp.rkey();
	send.sge(qp.sge(0, 100));
	std::memset(qp.memory().data(), 0x42, 100);
	peal_cqe cqe{};

	for (unsigned i = 0; i < 5 * qp.response().sq_entries; i++) {
		qp.post(send);
		REQUIRE(qp.wait(cqe));
		REQUIRE(peal_status(cqe) == "success (NONE)");
		REQUIRE(cqe.wqe_index == i);
	}
	CHECK(all_equal(qp.memory().bytes(page_bytes, 100), 0x42));
	CHECK(all_equal(qp.memory().bytes(page_bytes + 100, 100), 0));
}

TEST_CASE("well-formed shared receives work, in any order of slots")
{
	Stage stage;
	RawSrq srq(stage.context, slots);
	Loop a(stage, IBV_QPT_RC, &srq), b(stage, IBV_QPT_RC, &srq);

	for (std::uint32_t i = 0; i < 5 * slots; i++) {
		const std::uint32_t number = i * 7 % slots;
		Loop &qp = i & 1 ? b : a;

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

TEST_CASE("a slot of a shared receive queue that is posted many times")
{
	Stage stage;
	RawSrq srq(stage.context, slots);
	Loop qp(stage, IBV_QPT_RC, &srq);

	for (std::uint32_t i = 0; i < slots; i++)
		srq.post(5, 0, 100);
	for (std::uint32_t i = 0; i < slots; i++) {
		qp.send();
		const auto [received, sent] = qp.results();
		REQUIRE(received);
		CHECK(received->wqe_index == 5);
		CHECK(status_name(sent.status) == "success");
	}
	check_works(stage, srq);
}

TEST_CASE("the layout of mappings")
{
	Stage stage;
	const auto power_of_two = [](std::uint32_t n) { return (n & (n - 1)) == 0; };
	Loop qp(stage);
	const auto &of_qp = qp.response();

	CHECK(of_qp.comp_mask == 0);
	CHECK(power_of_two(of_qp.sq_entries));
	CHECK(power_of_two(of_qp.rq_entries));
	CHECK(of_qp.sq_stride % PEAL_WQE_UNIT == 0);
	CHECK(of_qp.sq_offset >= sizeof(peal_qp_ctl));
	CHECK(of_qp.sq_offset + of_qp.sq_entries * of_qp.sq_stride <= of_qp.map_bytes);
	CHECK(of_qp.rq_offset + of_qp.rq_entries * of_qp.rq_stride <= of_qp.map_bytes);
	CHECK(of_qp.rq_offset >= of_qp.sq_offset + of_qp.sq_entries * of_qp.sq_stride);
	CHECK(of_qp.sq_stride >= 32 + 16 * qp.max_sge());
	CHECK(of_qp.sq_stride >= 32 + qp.max_inline());
	for (const std::uint32_t depth : {1U, 5U, 16U, 1000U}) {
		RawSrq srq(stage.context, depth);
		const auto &resp = srq.response();

		CHECK(resp.comp_mask == 0);
		CHECK(resp.entries >= depth);
		CHECK(power_of_two(resp.entries));
		CHECK(resp.ring_offset >= sizeof(peal_ring_ctl));
		CHECK(resp.slots_offset >= resp.ring_offset + 4 * resp.entries);
		CHECK(resp.stride % PEAL_WQE_UNIT == 0);
		CHECK(resp.stride >= 16 + 16 * srq.max_sge());
		CHECK(resp.slots_offset + resp.entries * resp.stride <= resp.map_bytes);
	}
}

/* ------------------------------------------------------------------ malformed entries */

namespace {

using Wqe = peal_send_wqe;

struct Malformed {
	std::string what;
	std::string reason; /* without the prefix */
	RawSend send;
};

/* A field of a request gets a value that it must not have. */
template <class T, class Value>
RawSend with(RawSend send, T Wqe::*field, Value value)
{
	send.header.*field = static_cast<T>(value);
	return send;
}

std::vector<Malformed> malformed_requests(const RawQp &qp)
{
	const auto write = request(PEAL_OP_WRITE), inlined = request(PEAL_OP_WRITE, with_inline),
		   swap = request(PEAL_OP_CMP_SWAP);
	const peal_sge huge{0, 0xffffffff, 1}, word{0, 4, 1};
	std::vector<Malformed> list{
		{"reserved0", "WQE_RESERVED", with(write, &Wqe::reserved0, 1)},
		{"reserved1", "WQE_RESERVED", with(write, &Wqe::reserved1, 1U << 31)},
		{"inline_len without the flag", "WQE_INLINE", with(write, &Wqe::inline_len, 8)},
		{"inline and an entry", "WQE_NUM_SGE", with(inlined, &Wqe::num_sge, 1)},
		{"nearly 8 GiB", "WQE_LENGTH", RawSend(write).sge(huge).sge(huge)},
		{"atomic without an entry", "WQE_ATOMIC_LENGTH", swap},
		{"atomic with two entries", "WQE_ATOMIC_LENGTH",
		 RawSend(swap).sge(word, 16).sge(word, 16)},
	};

	for (unsigned opcode = 0; opcode < 256; opcode++)
		if (opcode == 0 || opcode == PEAL_OP_REG_MR || opcode >= PEAL_OP_COUNT)
			list.push_back({"opcode " + std::to_string(opcode), "WQE_OPCODE",
					request(static_cast<std::uint8_t>(opcode))});
	for (unsigned bit = 0x10; bit <= 0x80; bit <<= 1)
		list.push_back({"flag " + std::to_string(bit), "WQE_FLAGS",
				request(PEAL_OP_WRITE, static_cast<std::uint8_t>(bit))});
	for (const auto count : {qp.max_sge() + 1, 33U, 64U, 128U, 255U})
		list.push_back({"num_sge " + std::to_string(count), "WQE_NUM_SGE",
				with(write, &Wqe::num_sge, count)});
	for (const auto length : {qp.max_inline() + 1, 513U, 4096U, 0x80000000U, 0xffffffffU})
		list.push_back({"inline_len " + std::to_string(length), "WQE_INLINE",
				with(inlined, &Wqe::inline_len, length)});
	for (const std::uint8_t opcode : {PEAL_OP_READ, PEAL_OP_FETCH_ADD, PEAL_OP_BIND_MW})
		list.push_back({"inline in opcode " + std::to_string(opcode), "WQE_INLINE",
				request(opcode, with_inline)});
	for (const std::uint32_t length : {0, 4, 7, 9, 16})
		list.push_back({"atomic of " + std::to_string(length), "WQE_ATOMIC_LENGTH",
				request(PEAL_OP_FETCH_ADD).sge({0, length, 1}, 16)});
	return list;
}

/* Address handles that do not exist, are another domain's or destroyed, and what only RC has. */
std::vector<Malformed> malformed_datagrams(const Stage &stage, const Loop &qp)
{
	const auto other = stage.context.create_ah(stage.context.alloc_pd(), stage.device);
	const auto gone = stage.context.create_ah(qp.pd(), stage.device);
	const auto send = qp.message();
	std::vector<Malformed> list{
		{"rkey", "WQE_RESERVED", with(send, &Wqe::rkey, 1)},
		{"reserved1", "WQE_RESERVED", with(send, &Wqe::reserved1, 1)},
	};

	stage.context.destroy_ah(gone);
	for (const std::uint32_t index : {0U, other.index, gone.index, 0x00ffffffU, 0xffffffffU}) {
		list.push_back({"address handle " + std::to_string(index), "WQE_AH", send});
		list.back().send.header.ah_index = index;
	}
	for (unsigned opcode = 0; opcode < 256; opcode++)
		if (opcode != PEAL_OP_SEND && opcode != PEAL_OP_SEND_IMM)
			list.push_back({"opcode " + std::to_string(opcode), "WQE_OPCODE",
					with(send, &Wqe::opcode, opcode)});
	return list;
}

void check_refused(Loop &qp, const Malformed &entry)
{
	INFO(entry.what);
	const auto status = entry.reason == "WQE_LENGTH" || entry.reason == "WQE_ATOMIC_LENGTH"
				    ? IBV_WC_LOC_LEN_ERR
				    : IBV_WC_LOC_QP_OP_ERR;
	peal_cqe cqe{};

	qp.post(entry.send);
	REQUIRE(qp.wait(cqe));
	CHECK(peal_status(cqe) == status_name(status) + " (" + entry.reason + ")");
	CHECK(cqe.wqe_index == qp.sq_next() - 1);
	CHECK(cqe.qp_index == qp.index());
	CHECK(cqe.qp_num == qp.number());
	CHECK(static_cast<int>(cqe.kind) == PEAL_CQE_SEND);
	CHECK(state_name(qp.state()) == (qp.type == IBV_QPT_UD ? "SQE" : "ERR"));
	CHECK_FALSE(qp.cq().poll(cqe));
}

/* On the wire the NAK may find the queue pair, which is its own peer, in error already. */
void check_reason(const peal_cqe &cqe, peal_reason reason)
{
	CHECK(status_name(cqe.status) != "success");
	if (!on_wire())
		CHECK(reason_name(cqe.vendor_err) == reason_name(reason));
}

/* Most fields of a third of the entries are right, so that these pass the first check. */
RawSend nonsense(const Loop &qp, Random &random)
{
	RawSend send = qp.message(static_cast<std::uint32_t>(random.between(0, 2000)));
	auto *bytes = reinterpret_cast<std::uint8_t *>(&send);

	switch (random.between(0, 2)) {
	case 0:
		for (std::uint64_t i = random.between(0, 3); i; i--)
			bytes[random.between(0, 79)] = static_cast<std::uint8_t>(random.word());
		break;
	case 1:
		send.header.flags = static_cast<std::uint8_t>(random.between(0, 0x1f));
		if (send.header.flags & PEAL_WQE_INLINE) {
			send.header.num_sge = 0;
			send.header.inline_len = static_cast<std::uint32_t>(random.between(0, 80));
		}
		break;
	default:
		for (std::size_t i = 0; i < sizeof(send); i++)
			if (i >= sizeof(send.header) || !random.between(0, 2))
				bytes[i] = static_cast<std::uint8_t>(random.word());
	}
	send.header.flags |= PEAL_WQE_SIGNALED;
	return send;
}

} // namespace

TEST_CASE("a malformed request ends its queue pair with the reason")
{
	Stage stage;

	for (const auto &entry : malformed_requests(Loop(stage))) {
		Loop qp(stage);
		check_refused(qp, entry);
	}
	check_works(stage.device);
}

TEST_CASE("a malformed datagram is refused, and the queue pair works again")
{
	Stage stage;
	Loop qp(stage, IBV_QPT_UD);

	qp.check_works();
	for (const auto &entry : malformed_datagrams(stage, qp)) {
		check_refused(qp, entry);
		qp.recover();
		INFO(entry.what);
		qp.check_works();
	}
}

TEST_CASE("nonsense in the slots of datagrams and frames")
{
	Stage stage;

	for (const auto type : {IBV_QPT_UD, IBV_QPT_RAW_PACKET}) {
		Loop qp(stage, type);
		Random random(1);
		unsigned completed = 0, failed = 0;

		for (int round = 0; round < 1500; round++) {
			peal_cqe cqe{};

			qp.post(nonsense(qp, random));
			REQUIRE(qp.wait(cqe));
			(cqe.status ? failed : completed)++;
			if (qp.state() == IBV_QPS_SQE)
				qp.recover();
			REQUIRE(state_name(qp.state()) == "RTS");
		}
		std::printf("%u completed, %u failures\n", completed, failed);
		CHECK(completed > 0);
		CHECK(failed > 0);
		if (type == IBV_QPT_UD)
			qp.check_works();
	}
}

TEST_CASE("a malformed receive ends only the queue pair that takes it")
{
	Stage stage;
	const std::vector<peal_recv_wqe> bad{
		{5, {}}, {33, {}}, {0xffffffff, {}}, {1, {1, 0, 0}}, {0, {0, 0, 0x80000000}},
	};
	RawSrq srq(stage.context, slots);

	for (RawSrq *shared : {static_cast<RawSrq *>(nullptr), &srq})
		for (const auto &header : bad) {
			INFO("num_sge " << header.num_sge << (shared ? ", shared" : ""));
			Loop qp(stage, IBV_QPT_RC, shared);

			if (shared) {
				srq.write(7, header, {});
				srq.enqueue(7);
				srq.publish();
			} else {
				qp.write_recv(header, {});
				qp.publish_recv();
			}
			qp.send();
			const auto [received, sent] = qp.results();
			REQUIRE(received);
			CHECK(status_name(received->status) != "success");
			CHECK(reason_name(received->vendor_err) == "RECV_WQE");
			CHECK(received->wqe_index == (shared ? 7 : 0));
			check_reason(sent, PEAL_REASON_RECV_WQE);
			CHECK(eventually([&] { return qp.state() == IBV_QPS_ERR; }));
			check_works(stage, srq);
		}
	CHECK(errors(stage, srq) == 0);
}

/* ------------------------------------------------------------------ indices and control words */

namespace {

/* After a jump of an index come errors or nothing, but never more completions than slots. */
void check_survives(RawQp &qp, std::uint32_t most)
{
	std::uint32_t count = 0;
	peal_cqe cqe{};

	while (count <= most && qp.wait(cqe, absence))
		count++;
	CHECK(count <= most);
}

/* The ring holds nonsense now. The next message learns of it, and so do all later ones. */
void check_broken(Stage &stage, RawSrq &srq)
{
	Loop first(stage, IBV_QPT_RC, &srq), second(stage, IBV_QPT_RC, &srq);

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

TEST_CASE("producer indices of sends that jump")
{
	Stage stage;
	const auto entries = Loop(stage).response().sq_entries;

	for (const auto type : {IBV_QPT_RC, IBV_QPT_UD})
		for (const std::uint32_t by :
		     {entries + 1, 2 * entries, 1U << 30, 1U << 31, 0U - 1, 0U - entries}) {
			INFO("type " << type << ", producer + " << by);
			Loop qp(stage, type);
			const auto state = type == IBV_QPT_UD ? IBV_QPS_SQE : IBV_QPS_ERR;
			peal_cqe cqe{};

			qp.publish(qp.sq_next() + by);
			CHECK(eventually([&] { return qp.state() == state; }));
			const bool told = qp.wait(cqe, absence);
			CHECK((told || type == IBV_QPT_RC));
			if (told)
				CHECK(reason_name(cqe.vendor_err) == "RING_INDEX");
			check_survives(qp, 2 * entries);
		}
	check_works(stage.device);
}

TEST_CASE("producer indices of receives that jump")
{
	Stage stage;
	const auto entries = Loop(stage).response().rq_entries;

	for (const std::uint32_t by : {entries + 1, 1U << 31, 0U - 1}) {
		INFO("producer + " << by);
		Loop qp(stage);
		qp.publish_recv(by);
		qp.send();
		peal_cqe cqe{};
		REQUIRE(qp.wait(cqe));
		CHECK(status_name(cqe.status) != "success");
		CHECK(reason_name(cqe.vendor_err) == "RECV_RING_INDEX");
		check_survives(qp, 2 * entries);
	}
}

TEST_CASE("producer indices and slot numbers that end a shared receive queue")
{
	Stage stage;

	for (const bool index : {true, false})
		for (const std::uint32_t value : {16U, 17U, 32U, 1U << 16, 1U << 31, ~0U}) {
			if (index && value == slots)
				continue; /* just full */
			INFO((index ? "producer " : "number ") << value);
			RawSrq srq(stage.context, slots), other(stage.context, slots);

			if (!index)
				srq.enqueue(value);
			srq.publish(index ? value : 1);
			check_broken(stage, srq);
			check_works(stage, other);
		}
}

TEST_CASE("a sender that waits learns that the shared receive queue has ended")
{
	Stage stage;
	RawSrq srq(stage.context, slots);
	Loop qp(stage, IBV_QPT_RC, &srq, 0); /* 655 ms */

	qp.send();
	srq.publish(1000);
	check_reason(qp.results().second, PEAL_REASON_SRQ_RING);
	CHECK(eventually([&] { return errors(stage, srq) == 1; }));
}

TEST_CASE("kernel words that the program overwrites")
{
	Stage stage;
	RawSrq srq(stage.context, slots);
	Loop alone(stage);

	for (const std::uint32_t value : {0U, 1U, ~0U, 1U << 31}) {
		Loop sharer(stage, IBV_QPT_RC, &srq);

		for (peal_ring_ctl *words : {&alone.control().sq, &alone.control().rq,
					     &sharer.control().sq, &srq.control()})
			words->consumer = words->flags = value;
		alone.check_works();
		sharer.check_works();
	}
}

TEST_CASE("consumer index and arming of a completion queue")
{
	Stage stage;

	for (std::uint32_t value : {1U << 31, 0U - 1, 1000000U}) {
		INFO("consumer " << value);
		Loop qp(stage);
		for (unsigned i = 0; i < 10 * qp.response().sq_entries; i++) {
			qp.cq().control().consumer = value;
			qp.cq().control().arm = value * i;
			qp.cq().control().fired = value * (i + i % 2);
			qp.post(request(PEAL_OP_WRITE));
		}
		CHECK(eventually([&] {
			const auto state = qp.state();
			return state == IBV_QPS_ERR || state == IBV_QPS_RTS;
		}));
	}
	check_works(stage.device);
}

TEST_CASE("doorbell bits of queue pairs that do not exist")
{
	Stage stage;
	auto &doorbell = stage.context.doorbell();
	Loop qp(stage);
	peal_cqe cqe{};

	for (auto &bits : doorbell.bits)
		std::atomic_ref(bits).store(~0ULL);
	for (std::uint32_t engine : {2U, 77U, 0U, 1U}) {
		std::atomic_ref(doorbell.engine).store(engine);
		qp.post(request(PEAL_OP_WRITE));
		REQUIRE(qp.wait(cqe));
		CHECK(peal_status(cqe) == "success (NONE)");
	}
	check_works(stage.device);
}

/* ------------------------------------------------------------------ kicks */

TEST_CASE("kicks that make no sense")
{
	Stage stage;
	auto srq = std::make_unique<RawSrq>(stage.context, slots);
	Loop qp(stage);
	RawContext other;
	const std::pair<unsigned, std::uint32_t> kicks[] = {
		{PEAL_KICK_SEND, qp.index()},
		{PEAL_KICK_RECV, qp.index()},
		{PEAL_KICK_SRQ, srq->response().srq_index},
	};

	for (const auto &[kick, index] : kicks) {
		for (const std::uint32_t wrong : {index + 1000, ~0U, 1U << 31}) {
			CHECK(errno_name(stage.context.kick(kick, wrong)) == "ENOENT");
			CHECK(errno_name(stage.context.kick_by_ioctl(PEAL_IOC_KICK(kick), wrong)) ==
			      "ENOENT");
		}
		CHECK(lseek(stage.context.kick_fd(), -1, kick) == -1);
		CHECK(errno_name(errno) == "ENOENT");
		CHECK(errno_name(other.kick(kick, index)) == "ENOENT");
		CHECK(errno_name(stage.context.kick(kick, index)) == "0");
		CHECK(errno_name(stage.context.kick_by_ioctl(PEAL_IOC_KICK(kick), index)) == "0");
	}
	for (const unsigned unknown : {3U, 4U, 99U, ~0U})
		CHECK(errno_name(stage.context.kick(unknown, qp.index())) == "EINVAL");
	CHECK(errno_name(stage.context.kick_by_ioctl(PEAL_IOC_KICK(98), qp.index())) == "ENOTTY");
	qp.destroy();
	srq.reset();
	for (const auto &[kick, index] : kicks)
		CHECK(errno_name(stage.context.kick(kick, index)) == "ENOENT");
}

TEST_CASE("a kick for receives wakes only senders to its queue")
{
	Stage stage;

	for (const bool shared : {false, true}) {
		Endpoint asker(stage.device), answerer(stage.device);
		Region from(asker.pd, page_bytes), to(answerer.pd, page_bytes);
		RawSrq srq(stage.context, slots);
		Link link;

		link.rnr_retry = 3;
		link.min_rnr_timer = 0; /* 655 ms each */
		connect(asker, answerer, link);
		post(asker.qp, Send(IBV_WR_SEND, {from.sge(0, 32)}));
		RawQp stranger(stage.context, stage.device,
			       {.peer = asker.qp->qp_num, .srq = shared ? &srq : nullptr});
		for (int i = 0; i < 100; i++)
			CHECK((shared ? srq.kick()
				      : stage.context.kick(PEAL_KICK_RECV, stranger.index())) == 0);
		CHECK(describe(drain(asker.send_cq)) == "0 completions");
		post_recv(answerer.qp, 1, {to.sge(0, 64)});
		wait_success(asker.send_cq);
	}
}

TEST_CASE("an XRC initiator has a receive ring that nothing reads")
{
	Stage stage;
	Loop qp(stage, IBV_QPT_XRC_SEND);
	ib_uverbs_modify_qp modify{};
	peal_cqe cqe{};

	qp.control().rq.producer = 1;
	modify.qp_handle = qp.handle();
	modify.attr_mask = IBV_QP_STATE;
	modify.qp_state = IBV_QPS_ERR;
	qp.modify(modify);
	CHECK(errno_name(stage.context.kick(PEAL_KICK_RECV, qp.index())) == "0");
	CHECK(errno_name(stage.context.kick(PEAL_KICK_SEND, qp.index())) == "0");
	CHECK_FALSE(qp.cq().poll(cqe));
}

/* ------------------------------------------------------------------ calls and mappings */

namespace {

/* Writes a completion as if the kernel had completed a send of this queue pair. */
void forge_completion(const RawCq &cq, std::uint32_t qp_num)
{
	auto &cqe = *cq.map().at<peal_cqe>(PEAL_CQ_RING_OFFSET);

	cqe.qp_num = qp_num;
	cqe.wqe_index = 0x1000;
	cqe.kind = PEAL_CQE_SEND;
	std::atomic_ref(cqe.flags).store(PEAL_CQE_PHASE, std::memory_order_release);
}

std::string create_cq_with(const RawContext &context, std::span<const std::uint32_t> driver)
{
	ib_uverbs_create_cq request{};
	ib_uverbs_create_cq_resp response{};
	peal_create_cq_resp resp{};

	request.cqe = 16;
	request.comp_channel = -1;
	return errno_name(context.device().command(IB_USER_VERBS_CMD_CREATE_CQ, request, response,
						   std::as_bytes(driver), uv::out(resp)));
}

std::string map_error(int fd, std::uint64_t offset, std::size_t bytes)
{
	void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			static_cast<off_t>(offset));
	if (at == MAP_FAILED)
		return errno_name(errno);
	munmap(at, bytes);
	return "0";
}

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

TEST_CASE("the kernel's commands do not read a program's completion queue")
{
	Stage stage;
	/* The count, and one completion. */
	std::array<std::uint64_t, (sizeof(ib_uverbs_poll_cq_resp) + sizeof(ib_uverbs_wc)) / 8>
		response{};

	/* Numbers of its own queue pair, of a kernel user's (the GSI), and of none. */
	for (const bool own : {true, false})
		for (const std::uint32_t number : {1U, 0xfffffeU}) {
			Loop qp(stage);
			ib_uverbs_poll_cq poll{};

			forge_completion(qp.cq(), own ? qp.number() : number);
			poll.cq_handle = qp.cq().handle();
			poll.ne = 1;
			CHECK(errno_name(stage.context.device().command(
				      IB_USER_VERBS_CMD_POLL_CQ, poll, response)) == "EOPNOTSUPP");
			CHECK(std::count(response.begin(), response.end(), 0) ==
			      static_cast<std::ptrdiff_t>(response.size()));
		}
	check_works(stage.device);
}

TEST_CASE("mappings that are not offered")
{
	Stage stage;
	Loop qp(stage);
	RawContext other;
	const auto fd = stage.context.fd();
	const auto offset = qp.response().map_offset;
	const auto bytes = qp.response().map_bytes;

	CHECK(map_error(fd, offset, bytes) == "0");
	CHECK(map_error(fd, offset, bytes + page_bytes) != "0");
	CHECK(map_error(fd, offset + (1ULL << 40), bytes) != "0");
	qp.destroy();
	CHECK(map_error(fd, offset, bytes) != "0");
	/* The mapped memory stays harmless memory. */
	std::memset(qp.map().at(), 0xff, qp.map().bytes());
	for (std::uint64_t page = 0; page < 64; page++)
		if (map_error(other.fd(), page * page_bytes, page_bytes) == "0")
			CHECK(page * page_bytes == other.response().doorbell_offset);
}

TEST_CASE("a shared receive queue in use stays, and its mapping goes with it")
{
	Stage stage;
	RawSrq srq(stage.context, slots);
	{
		Loop qp(stage, IBV_QPT_RC, &srq);
		CHECK(errno_name(srq.destroy()) == "EBUSY");
		qp.check_works();
	}
	CHECK(errno_name(srq.destroy()) == "0");
	std::memset(srq.map().at(), 0xff, srq.map().bytes()); /* harmless memory */
}

TEST_CASE("requests of the future are refused, short and absent ones work")
{
	Stage stage;
	const auto &context = stage.context;
	const std::array<std::uint32_t, 8> zeros{}, mask{1}, reserved{0, 64}, longer{0, 0, 0, 0, 5};

	CHECK(create_cq_with(context, {}) == "0");
	CHECK(create_cq_with(context, std::span(zeros).first(1)) == "0");
	CHECK(create_cq_with(context, std::span(zeros).first(2)) == "0");
	CHECK(create_cq_with(context, zeros) == "0");
	CHECK(create_cq_with(context, std::span(mask).first(2)) == "EINVAL");
	CHECK(create_cq_with(context, std::span(reserved).first(2)) == "EINVAL");
	CHECK(create_cq_with(context, longer) == "EINVAL");
}

TEST_CASE("steps of a resize that make no sense, and a new ring full of nonsense")
{
	Stage stage;
	constexpr __u32 prepare = PEAL_RESIZE_SRQ_PREPARE, commit = PEAL_RESIZE_SRQ_COMMIT;
	RawSrq srq(stage.context, slots);
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

/* ------------------------------------------------------------------ scribblers */

namespace {

/* Mapped memory. The control words are among the first bytes, which change most often. */
struct Target {
	const Map &map;
	std::size_t first;
};

void scribble(const std::vector<Target> &targets, std::uint64_t salt, const std::atomic<bool> &stop)
{
	Random random(salt);

	while (!stop.load(std::memory_order_relaxed)) {
		const auto &[map, first] = targets[random.between(0, targets.size() - 1)];
		const auto limit =
			random.between(0, 2) ? std::min(map.bytes(), first) : map.bytes();
		auto *at = map.at(random.between(0, limit - 4) & ~3ULL);
		const auto value = random.between(0, 1) ? random.word() : random.between(0, 40);

		std::atomic_ref(*reinterpret_cast<std::uint32_t *>(at))
			.store(static_cast<std::uint32_t>(value));
	}
}

/* Posts plausible requests, so that the kernel works on the memory that is scribbled over. */
void work_on(Loop &qp, Random &random)
{
	for (int i = 0; i < 200; i++) {
		RawSend send =
			request(static_cast<std::uint8_t>(random.between(1, PEAL_OP_COUNT - 1)));
		send.header.remote_addr = qp.memory().address(random.between(0, 1000) * 8);
		send.header.rkey = qp.rkey();
		const bool atomic = send.header.opcode == PEAL_OP_CMP_SWAP ||
				    send.header.opcode == PEAL_OP_FETCH_ADD;
		const auto length = atomic ? 8 : random.between(0, 5000);
		send.sge(qp.sge(20000, static_cast<std::uint32_t>(length)), atomic ? 16 : 0);
		qp.post_recv(30000, 6000);
		qp.post(send);
		peal_cqe cqe{};
		qp.cq().poll(cqe);
	}
}

void work_on(RawSrq &srq, Loop &a, Loop &b)
{
	peal_cqe cqe{};

	for (std::uint32_t i = 0; i < 60; i++) {
		srq.post(i % slots, 100 * (i % slots), 100);
		(i & 1 ? a : b).send();
		a.cq().poll(cqe);
		b.cq().poll(cqe);
	}
}

/* Scribbles by turns over a queue pair and over a shared receive queue while they work. */
int scribble_for(Duration time, std::uint64_t salt)
{
	Stage stage;
	Random random(salt);
	const Stopwatch watch;

	for (bool shared = false; watch.elapsed() < time; shared = !shared) {
		RawSrq srq(stage.context, slots);
		Loop a(stage, IBV_QPT_RC, shared ? &srq : nullptr), b(stage, IBV_QPT_RC, &srq);
		std::atomic<bool> stop = false;
		const auto targets = shared ? std::vector<Target>{{srq.map(), 768}}
					    : std::vector<Target>{
						      {a.map(), 2048},
						      {a.cq().map(), 2048},
						      {stage.context.doorbell_map(), 2048},
					      };
		std::thread thread(scribble, std::cref(targets), random.word(), std::cref(stop));

		if (shared)
			work_on(srq, a, b);
		else
			work_on(a, random);
		stop = true;
		thread.join();
	}
	return 0;
}

} // namespace

TEST_CASE("a process that scribbles harms only itself")
{
	Stage stage;
	const auto time = time_from("PEAL_FUZZ_SECONDS", 12);

	check_beside(stage.device, time, 2,
		     [=](std::uint64_t salt) { return scribble_for(time, salt); });
	check_works(stage.device);
	RawSrq srq(stage.context, slots);
	check_works(stage, srq);
}
