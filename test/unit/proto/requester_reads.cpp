// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Responses of READs and atomics: in order, out of order, missing, doubled, wrong.
 */
#include "requester.hpp"

using namespace peal::test;

namespace {

/* A READ of @packets was sent. */
Requester reading(std::uint32_t packets, std::uint64_t bytes = 0)
{
	Requester r;

	r.post(PEAL_OP_READ, bytes ? bytes : packets * MTU);
	CHECK(r.send() == Psns{0});
	return r;
}

int handle[200];

} // namespace

TEST_CASE("responses in order are placed one behind the other", "[reads]")
{
	Requester r = reading(3, 2 * MTU + 9);

	r.receive_and_place(read_response(0));
	CHECK(r.response.offset == 0);
	CHECK(r.response.bytes == MTU);
	r.receive_and_place(read_response(1));
	CHECK(r.response.offset == MTU);
	CHECK(r.receive(read_response(2, 9)) == PEAL_RESPONSE_READ);
	CHECK(r.response.offset == 2 * MTU);
	CHECK(r.response.bytes == 9);
	CHECK(r.completed() == 0);
	r.place();
	CHECK(r.completed() == 1);
	CHECK(r.deadline() == U64_MAX);
}

TEST_CASE("any place of a READ response opcode will do", "[reads]")
{
	for (unsigned wire : {PEAL_WIRE_READ_RESPONSE_FIRST, PEAL_WIRE_READ_RESPONSE_MIDDLE,
			      PEAL_WIRE_READ_RESPONSE_LAST, PEAL_WIRE_READ_RESPONSE_ONLY}) {
		Requester r = reading(3);
		peal_packet packet = read_response(0);

		packet.opcode = static_cast<u8>(wire);
		r.receive_and_place(packet);
		CHECK(r->inflight.una == psn(1));
	}
}

TEST_CASE("a response of the wrong length fails the READ", "[reads]")
{
	const std::pair<std::uint32_t, std::uint32_t> WRONG[] = {
		{0, 0}, {0, MTU - 1}, {0, MTU + 1}, {2, 8}, {2, 10}, {2, 0}, {2, MTU},
	};

	for (auto [at, bytes] : WRONG) {
		Requester r = reading(3, 2 * MTU + 9);

		CAPTURE(at, bytes);
		for (std::uint32_t i = 0; i < at; ++i)
			r.receive_and_place(read_response(i));
		CHECK(r.receive(read_response(at, bytes)) == PEAL_RESPONSE_TAKEN);
		r.check_failed(IB_WC_BAD_RESP_ERR, PEAL_REASON_BAD_RESPONSE);
	}
}

TEST_CASE("a response of the wrong kind fails the message", "[reads]")
{
	struct {
		unsigned operation;
		peal_packet packet;
	} const WRONG[] = {
		{PEAL_OP_WRITE, read_response(0, 8)},
		{PEAL_OP_WRITE, atomic_ack(0, 0)},
		{PEAL_OP_READ, atomic_ack(0, 0)},
		{PEAL_OP_FETCH_ADD, read_response(0, 8)},
	};

	for (const auto &wrong : WRONG) {
		Requester r;

		CAPTURE(wrong.operation);
		r.post(wrong.operation, 8);
		r.send();
		r.receive(wrong.packet);
		r.check_failed(IB_WC_BAD_RESP_ERR, PEAL_REASON_BAD_RESPONSE);
	}
}

TEST_CASE("responses that came already are dropped", "[reads]")
{
	Requester r = reading(3);

	r.receive_and_place(read_response(0));
	CHECK(r.receive(read_response(0)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.response.duplicate);
	r.receive_and_place(read_response(1));
	r.receive_and_place(read_response(2));
	CHECK(r.completed() == 1);
	CHECK(r.receive(read_response(2)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.response.duplicate);
}

TEST_CASE("out-of-order responses are kept, and taken in their turn", "[reads]")
{
	Requester r = reading(4);

	CHECK(r.receive(read_response(3), &handle[3]) == PEAL_RESPONSE_KEPT);
	CHECK(r.receive(read_response(1), &handle[1]) == PEAL_RESPONSE_KEPT);
	CHECK(r.receive(read_response(1), &handle[0]) == PEAL_RESPONSE_COPY);
	CHECK(r.response.duplicate);
	CHECK(r.response.kept == &handle[1]);
	CHECK(peal_requester_take_reordered(r.get()) == nullptr);
	r.receive_and_place(read_response(0));
	/* A copy that comes before the kept one was taken is one too many. */
	CHECK(r.receive(read_response(1)) == PEAL_RESPONSE_COPY);
	CHECK(r.response.duplicate);
	CHECK(r.response.kept == &handle[1]);
	CHECK(peal_requester_take_reordered(r.get()) == &handle[1]);
	r.receive_and_place(read_response(1));
	CHECK(peal_requester_take_reordered(r.get()) == nullptr);
	r.receive_and_place(read_response(2));
	CHECK(peal_requester_take_reordered(r.get()) == &handle[3]);
	r.receive_and_place(read_response(3));
	CHECK(r.completed() == 1);
}

TEST_CASE("of two different responses with one PSN neither is placed", "[reads]")
{
	Requester r = reading(4);

	CHECK(r.receive(read_response(1), &handle[1]) == PEAL_RESPONSE_KEPT);
	CHECK(r.receive(read_response(3), &handle[3]) == PEAL_RESPONSE_KEPT);

	SECTION("before its turn")
	{
		CHECK(r.receive(read_response(1)) == PEAL_RESPONSE_COPY);
		CHECK(peal_requester_contradict(r.get(), psn(1), r.now) == &handle[1]);
		r.receive_and_place(read_response(0));
	}
	SECTION("when its turn has come, and the host has not")
	{
		r.receive_and_place(read_response(0));
		CHECK(r.receive(read_response(1)) == PEAL_RESPONSE_COPY);
		CHECK(peal_requester_contradict(r.get(), psn(1), r.now) == &handle[1]);
	}
	CHECK(peal_requester_take_reordered(r.get()) == nullptr);
	CHECK(r.wait() == Psns{1});
	CHECK(r.out.header.length == 2 * MTU);
	CHECK(r->retry.used == 0);
	r.receive_and_place(read_response(1));
	r.receive_and_place(read_response(2));
	CHECK(peal_requester_take_reordered(r.get()) == &handle[3]);
	r.receive_and_place(read_response(3));
	CHECK(r.completed() == 1);
}

TEST_CASE("a response of another flow than the one in front of it is not placed", "[reads]")
{
	Requester r = reading(3);
	peal_packet planted = read_response(1);

	planted.flow = 8;
	CHECK(r.receive(planted, &handle[1]) == PEAL_RESPONSE_KEPT);
	r.receive_and_place(read_response(0));
	CHECK(peal_requester_take_reordered(r.get()) == &handle[1]);
	CHECK(r.receive(planted) == PEAL_RESPONSE_DROPPED);
	CHECK(r.response.drop == PEAL_DROP_conflict);
	CHECK(r->inflight.una == psn(1));

	SECTION("the peer's comes") {}
	SECTION("the peer's does not come")
	{
		CHECK(r.wait() == Psns{1});
		CHECK(r->retry.used == 0);
	}
	r.receive_and_place(read_response(1));
	r.receive_and_place(read_response(2));
	CHECK(r.completed() == 1);
}

TEST_CASE("a response whose turn does not come is given up", "[reads]")
{
	peal_requester_config config = plain_config();

	config.timeout_ns = 0;
	Requester r(config);

	r.post_read(3);
	r.send();
	CHECK(r.receive(read_response(2), &handle[2]) == PEAL_RESPONSE_KEPT);
	const std::uint64_t since = r.now;
	void *given_up = nullptr;

	while (!given_up && r.now < since + 3 * KEEP) {
		r.expire();
		r.send();
		given_up = peal_requester_take_expired(r.get(), r.now);
	}
	CHECK(given_up == &handle[2]);
	CHECK(r.now >= since + KEEP);
	CHECK(r.now <= since + 2 * KEEP);
	CHECK(r->reorder.count == 0);
}

TEST_CASE("kept responses can be dropped", "[reads]")
{
	Requester r = reading(4);

	r.receive(read_response(2), &handle[2]);
	r.receive(read_response(3), &handle[3]);
	CHECK(peal_requester_drop_reordered(r.get()) != nullptr);
	CHECK(peal_requester_drop_reordered(r.get()) != nullptr);
	CHECK(peal_requester_drop_reordered(r.get()) == nullptr);
}

TEST_CASE("without a handle, or too far ahead, an out-of-order response is not kept", "[reads]")
{
	peal_requester_config config = plain_config();

	config.window = 1024;
	Requester r(config);

	r.post_packets(500);
	while (r.completed() == 0) {
		const Psns sent = r.send();

		r.receive(ack(sent.back()));
	}
	r.post_read(2 * PEAL_READ_PIECE);
	CHECK(r.send() == Psns{500, 500 + PEAL_READ_PIECE});
	CHECK(r.receive(read_response(501)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.response.drop == PEAL_DROP_sequence);
	CHECK_FALSE(r.response.duplicate);
	CHECK(r.receive(read_response(500 + PEAL_REORDER_SLOTS), handle) == PEAL_RESPONSE_DROPPED);
	CHECK(r.receive(read_response(500 + PEAL_REORDER_SLOTS - 1), handle) == PEAL_RESPONSE_KEPT);
	peal_requester_drop_reordered(r.get());
}

TEST_CASE("only the missing piece is requested again", "[reads]")
{
	Requester r = reading(6);

	r.receive_and_place(read_response(0));
	r.receive(read_response(3), handle);
	r.receive(read_response(5), handle);
	CHECK(r.wait() == Psns{1});
	CHECK(r.out.again);
	CHECK(r.out.header.remote_addr == 0x10000 + MTU);
	CHECK(r.out.header.length == 2 * MTU);
	CHECK(r.out.header.rkey == 77);
	r.receive_and_place(read_response(1));
	r.receive_and_place(read_response(2));
	CHECK(peal_requester_take_reordered(r.get()) == handle);
	r.receive_and_place(read_response(3));
	CHECK(r.wait() == Psns{4});
	CHECK(r.out.header.length == MTU);
	r.receive_and_place(read_response(4));
	CHECK(peal_requester_take_reordered(r.get()) == handle);
	r.receive_and_place(read_response(5));
	CHECK(r.completed() == 1);
	CHECK(r->retry.used == 0);
}

TEST_CASE("when nothing was kept, the rest is requested again", "[reads]")
{
	Requester r = reading(6, 5 * MTU + 3);

	r.receive_and_place(read_response(0));
	r.receive(read_response(3));
	CHECK(r.wait() == Psns{1});
	CHECK(r.out.header.length == 4 * MTU + 3);
}

TEST_CASE("a gap is not requested when it fills itself", "[reads]")
{
	Requester r = reading(3);

	r.receive(read_response(1), handle);
	const std::uint64_t patience = r.deadline();

	CHECK(patience >= r.now + 20 * US);
	r.now += 10 * US;
	r.receive_and_place(read_response(0));
	CHECK(peal_requester_take_reordered(r.get()) == handle);
	r.receive_and_place(read_response(1));
	r.now = patience;
	peal_requester_expire(r.get(), r.now);
	CHECK(r.send().empty());
}

TEST_CASE("a gap is requested once, then the estimate decides", "[reads]")
{
	Requester r = reading(8);

	r.receive(read_response(2), &handle[2]);
	CHECK(r.wait() == Psns{0});
	const std::uint64_t asked = r.now;

	r.receive(read_response(3), &handle[3]);
	r.receive(read_response(4), &handle[4]);
	CHECK(r.wait() == Psns{0});
	CHECK(r.now - asked >= 1 * MS);
	while (peal_requester_drop_reordered(r.get()))
		;
}

TEST_CASE("of two READs the second's responses may come first", "[reads]")
{
	Requester r;

	r.post_read(2);
	r.post(PEAL_OP_FETCH_ADD, 8);
	r.post_read(1);
	CHECK(r.send() == Psns{0, 2, 3});
	CHECK(r.receive(read_response(3), &handle[3]) == PEAL_RESPONSE_KEPT);
	CHECK(r.receive(atomic_ack(2, 5), &handle[2]) == PEAL_RESPONSE_KEPT);
	CHECK(r->rd_atomic == 3);
	r.receive_and_place(read_response(0));
	r.receive_and_place(read_response(1));
	CHECK(r.completed() == 1);
	CHECK(peal_requester_take_reordered(r.get()) == &handle[2]);
	r.receive_and_place(atomic_ack(2, 5));
	CHECK(peal_requester_take_reordered(r.get()) == &handle[3]);
	r.receive_and_place(read_response(3));
	CHECK(r.completed() == 2);
	CHECK(r->rd_atomic == 0);
}

TEST_CASE("a READ that was not executed is requested as it was", "[reads]")
{
	Requester r;

	r.post_packets(1);
	r.post_read(4);
	r.send();
	r.receive(nak(1));
	CHECK(r.send() == Psns{1});
	CHECK(r.out.header.length == 4 * MTU);
}

TEST_CASE("a response that receive() did not name last is ignored", "[reads]")
{
	Requester r = reading(3);

	r.receive(read_response(0));
	const peal_response first = r.response;

	r.place();
	CHECK(r->inflight.una == psn(1));
	r.response = first;
	r.place();
	CHECK(r->inflight.una == psn(1));
	r.receive(read_response(1));
	r.response.message++;
	r.place();
	CHECK(r->inflight.una == psn(1));
}

TEST_CASE("a READ whose buffer is gone fails", "[reads]")
{
	Requester r = reading(3);

	r.receive_and_place(read_response(0));
	r.receive(read_response(1));
	peal_requester_fail_message(r.get(), r.response.message, IB_WC_LOC_PROT_ERR,
				    PEAL_REASON_LKEY_UNKNOWN);
	CHECK(r.receive(read_response(2), handle) == PEAL_RESPONSE_DROPPED);
	r.check_failed(IB_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_UNKNOWN);
}

TEST_CASE("a response that comes before its second request is not requested again", "[reads]")
{
	Requester r = reading(3);

	r.receive(read_response(1), handle);
	r.expire();
	r.receive_and_place(read_response(0));
	CHECK(r.send().empty());
	CHECK(peal_requester_take_reordered(r.get()) == handle);
	r.receive_and_place(read_response(1));
	CHECK(r.send().empty());
}

TEST_CASE("ATOMIC_WRITE and FLUSH wait for their own response", "[reads]")
{
	Requester r;
	peal_packet response_only = response(PEAL_WIRE_READ_RESPONSE_ONLY, 0);
	peal_wr flush = r.wr(PEAL_OP_FLUSH, 0);

	r.post(PEAL_OP_ATOMIC_WRITE, 8);
	flush.index++;
	flush.flush = {4096, PEAL_FLUSH_GLOBAL, PEAL_FLUSH_RANGE, 0, 0};
	r.post(flush);
	CHECK(r.send_one().header.opcode == PEAL_WIRE_ATOMIC_WRITE);
	CHECK(r.out.header.payload_bytes == 8);
	CHECK(r.out.header.length == 8);
	CHECK(r.out.header.remote_addr == 0x10000);
	CHECK(r.out.header.rkey == 77);
	CHECK(r.send_one().header.opcode == PEAL_WIRE_FLUSH);
	CHECK(r.out.header.payload_bytes == 0);
	CHECK(r.out.header.length == 4096);
	CHECK(r.out.header.placement == PEAL_FLUSH_GLOBAL);
	CHECK(r.out.header.psn == psn(1));
	CHECK(r->rd_atomic == 2);
	/* An ACK does not replace it. */
	r.receive(ack(1));
	CHECK(r.completed() == 0);
	r.receive_and_place(response_only);
	CHECK(r.response.bytes == 0);
	CHECK(r.completed() == 1);
	response_only.psn = psn(1);
	r.receive_and_place(response_only);
	CHECK(r.completed() == 1);
	CHECK(r->rd_atomic == 0);
}

TEST_CASE("a response that does not fit an ATOMIC_WRITE or FLUSH fails it", "[reads]")
{
	for (unsigned operation : {PEAL_OP_ATOMIC_WRITE, PEAL_OP_FLUSH}) {
		for (const peal_packet &wrong :
		     {atomic_ack(0, 0), read_response(0, 0), [] {
			      peal_packet packet = response(PEAL_WIRE_READ_RESPONSE_ONLY, 0);

			      packet.payload_bytes = 8;
			      return packet;
		      }()}) {
			Requester r;

			CAPTURE(operation, wrong.opcode, wrong.payload_bytes);
			r.post(operation, operation == PEAL_OP_FLUSH ? 0 : 8);
			r.send();
			r.receive(wrong);
			r.check_failed(IB_WC_BAD_RESP_ERR, PEAL_REASON_BAD_RESPONSE);
		}
	}
}
