// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Every reason why nothing may be sent. */
#include "requester.hpp"

using namespace peal::test;

TEST_CASE("EMPTY: nothing unsent", "[blocked]")
{
	Requester r;

	CHECK(r.next() == PEAL_BLOCKED_EMPTY);
	CHECK(r.deadline() == U64_MAX);
	CHECK(peal_requester_idle(r.get()));
	r.post_packets(1);
	CHECK(peal_requester_unsent(r.get()) == 1);
	CHECK(r.send() == Psns{0});
	CHECK(peal_requester_unsent(r.get()) == 0);
	CHECK(r.next() == PEAL_BLOCKED_EMPTY);
	CHECK_FALSE(peal_requester_idle(r.get()));
}

TEST_CASE("WINDOW: 32 packets at first, and what was acknowledged more", "[blocked]")
{
	Requester r;

	r.post_packets(1000);
	CHECK(r.send() == range(0, 32));
	CHECK(r.next() == PEAL_BLOCKED_WINDOW);
	CHECK(peal_requester_unsent(r.get()) == 1);
	r.receive(ack(7));
	CHECK(r.send() == range(32, 48));
	CHECK(r->window.size == 40);
	r.receive(ack(47));
	CHECK(r.send() == range(48, 48 + 80));
	r.receive(ack(127));
	CHECK(r->window.size == 128);
	CHECK(r.send() == range(128, 256));
}

TEST_CASE("WINDOW: one packet is always allowed", "[blocked]")
{
	peal_requester_config config = plain_config();

	config.window = 0;
	Requester r(config);

	r.post_packets(3);
	for (std::uint32_t i = 0; i < 3; ++i) {
		CHECK(r.send() == Psns{i});
		CHECK(r.out.header.ack_request);
		r.receive(ack(i));
	}
	CHECK(r.completed() == 1);
}

TEST_CASE("WINDOW: the responses of READs count", "[blocked]")
{
	Requester r;

	r.post_read(30);
	r.post_read(3);
	CHECK(r.send() == Psns{0});
	CHECK(r.next() == PEAL_BLOCKED_WINDOW);
	r.receive_and_place(read_response(0));
	CHECK(r.send() == Psns{30});
}

TEST_CASE("WINDOW: a READ larger than it goes alone", "[blocked]")
{
	Requester r;

	r.post_packets(1);
	r.post_read(100);
	CHECK(r.send() == Psns{0});
	CHECK(r.next() == PEAL_BLOCKED_WINDOW);
	r.receive(ack(0));
	CHECK(r.send() == Psns{1});
	r.post_packets(1);
	CHECK(r.next() == PEAL_BLOCKED_WINDOW);
}

TEST_CASE("WINDOW: one answer does not end more than 256 local operations", "[blocked]")
{
	Requester r(plain_config(), 1024);
	unsigned named = 0;
	const auto name_all = [&] {
		for (named = 0; r.next() == PEAL_BLOCKED_NONE; ++named) {
			REQUIRE(r.out.local);
			peal_requester_local_done(r.get(), r.out.message, 0, 0);
		}
	};

	r.post(PEAL_OP_READ, 8);
	CHECK(r.send() == Psns{0});
	for (int i = 0; i < 300; ++i)
		r.post(PEAL_OP_BIND_MW);
	name_all();
	CHECK(named == 256);
	CHECK(r.next() == PEAL_BLOCKED_WINDOW);
	r.receive_and_place(read_response(0, 8));
	name_all();
	CHECK(named == 44);
	CHECK(r.next() == PEAL_BLOCKED_EMPTY);
	CHECK(r.completed() == 301);
	/* No reason applies now. */
	for (int i = 0; i < 600; ++i)
		r.post(PEAL_OP_BIND_MW);
	name_all();
	CHECK(named == 600);
}

TEST_CASE("RD_ATOMIC: exactly as many as configured", "[blocked]")
{
	for (unsigned depth : {1U, 2U, 3U, 7U, 16U}) {
		peal_requester_config config = plain_config();

		config.max_rd_atomic = static_cast<u8>(depth);
		Requester r(config);

		CAPTURE(depth);
		for (unsigned i = 0; i < 20; ++i)
			r.post(i % 2 ? PEAL_OP_FETCH_ADD : PEAL_OP_READ, 8);
		CHECK(r.send() == range(0, depth));
		CHECK(r.next() == PEAL_BLOCKED_RD_ATOMIC);
		for (std::uint32_t i = 0; i + depth < 20; ++i) {
			r.receive_and_place(i % 2 ? atomic_ack(i, 0) : read_response(i, 8));
			CHECK(r.send() == Psns{i + depth});
		}
		CHECK(r.next() == PEAL_BLOCKED_EMPTY);
	}
}

TEST_CASE("RD_ATOMIC: none at all, and a READ fails", "[blocked]")
{
	peal_requester_config config = plain_config();

	config.max_rd_atomic = 0;
	Requester r(config);

	r.post_packets(1);
	r.post_read(1);
	CHECK(r.send() == Psns{0});
	CHECK(r.next() == PEAL_BLOCKED_FAILED);
	CHECK(r.completed() == 0);
	r.receive(ack(0));
	CHECK(r.completed() == 1);
	r.check_failed(IB_WC_LOC_QP_OP_ERR, PEAL_REASON_RD_ATOMIC_LIMIT);
}

TEST_CASE("FENCE: behind READs and atomics", "[blocked]")
{
	Requester r;

	r.post(PEAL_OP_READ, 8);
	r.post(PEAL_OP_CMP_SWAP, 8);
	r.post_packets(1);
	r.post(PEAL_OP_SEND, 8, PEAL_WQE_FENCE);
	CHECK(r.send() == range(0, 3));
	CHECK(r.next() == PEAL_BLOCKED_FENCE);
	r.receive_and_place(read_response(0, 8));
	CHECK(r.next() == PEAL_BLOCKED_FENCE);
	r.receive_and_place(atomic_ack(1, 5));
	CHECK(r.send() == Psns{3});
}

TEST_CASE("FENCE: local operations too", "[blocked]")
{
	Requester r;

	r.post(PEAL_OP_READ, 8);
	r.post(PEAL_OP_LOCAL_INV, 0, PEAL_WQE_FENCE);
	CHECK(r.send() == Psns{0});
	CHECK(r.next() == PEAL_BLOCKED_FENCE);
	r.receive_and_place(read_response(0, 8));
	REQUIRE(r.next() == PEAL_BLOCKED_NONE);
	CHECK(r.out.local);
}

TEST_CASE("LAST: behind all packets, which are acknowledged soon", "[blocked]")
{
	Requester r;
	peal_wr last = r.wr(PEAL_OP_LOCAL_INV, 0);

	last.last = true;
	r.post_packets(2);
	r.post(last);
	r.post(PEAL_OP_REG_MR, 0);
	CHECK(r.send() == range(0, 2));
	CHECK(r.next() == PEAL_BLOCKED_LAST);
	CHECK(r.next() == PEAL_BLOCKED_LAST);
	r.receive(ack(0));
	CHECK(r.next() == PEAL_BLOCKED_LAST);
	r.receive(ack(1));
	REQUIRE(r.next() == PEAL_BLOCKED_NONE);
	CHECK(r.out.local);
	REQUIRE(r.next() == PEAL_BLOCKED_NONE);
	CHECK(r.out.local);
}

TEST_CASE("LAST: a missing acknowledgement is asked for at once", "[blocked]")
{
	Requester r;
	peal_wr write = r.wr(PEAL_OP_WRITE, 1, 0), last = r.wr(PEAL_OP_LOCAL_INV, 0);

	write.more = last.last = true;
	r.post(write);
	r.post(last);
	CHECK(r.send() == Psns{0});
	CHECK(r.next() == PEAL_BLOCKED_LAST);
	CHECK(r.deadline() <= r.now);
}

TEST_CASE("RNR: nothing is sent while it lasts", "[blocked]")
{
	Requester r;

	r.post(PEAL_OP_SEND);
	r.send();
	r.receive(rnr(0, 12));
	CHECK(r.next() == PEAL_BLOCKED_RNR);
	CHECK(r.deadline() == r.now + 640 * US);
	peal_requester_expire(r.get(), r.now + 639 * US);
	CHECK(r.next() == PEAL_BLOCKED_RNR);
	r.expire();
	CHECK(r.send() == Psns{0});
	CHECK(r.next() == PEAL_BLOCKED_ANSWER);
}

TEST_CASE("ANSWER: behind a lone retransmission", "[blocked]")
{
	Requester r;

	r.post_packets(5);
	r.send();
	r.post_packets(1);
	r.receive(nak(2));
	CHECK(r.send() == Psns{2});
	CHECK(r.out.again);
	CHECK(r.out.header.ack_request);
	CHECK(r.next() == PEAL_BLOCKED_ANSWER);
}

TEST_CASE("FAILED: behind a message that cannot go on", "[blocked]")
{
	Requester r;

	r.post_packets(3);
	r.send_one();
	peal_requester_fail_message(r.get(), r.out.message, IB_WC_LOC_PROT_ERR,
				    PEAL_REASON_LKEY_RANGE);
	CHECK(r.next() == PEAL_BLOCKED_FAILED);
}
