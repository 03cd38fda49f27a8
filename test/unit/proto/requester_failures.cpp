// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Local failures, local operations, flushing, draining, resetting.
 */
#include "requester.hpp"

using namespace peal::test;

TEST_CASE("a failed message completes after all before it", "[failures]")
{
	Requester r;

	r.post_packets(2);
	r.post_read(1);
	r.post_packets(3);
	r.post_packets(1);
	CHECK(r.send() == Psns{0, 1, 2, 3, 4, 5, 6});
	peal_requester_fail_message(r.get(), 2, IB_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_UNKNOWN);
	CHECK(r.completed() == 0);
	CHECK(r.next() == PEAL_BLOCKED_FAILED);
	r.receive(ack(6));
	CHECK(r.completed() == 1);
	r.receive_and_place(read_response(2));
	CHECK(r.completed() == 1);
	r.check_failed(IB_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_UNKNOWN);
}

TEST_CASE("only messages before the failed one are retransmitted", "[failures]")
{
	Requester r;

	r.post_packets(2);
	r.post_packets(3);
	CHECK(r.send() == range(0, 5));
	peal_requester_fail_message(r.get(), 1, IB_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_UNKNOWN);
	CHECK(r.wait() == Psns{0});
	r.now += 10 * MS;
	r.receive(ack(0));
	CHECK(r.send() == Psns{1});
	CHECK(r.next() == PEAL_BLOCKED_FAILED);
	r.receive(ack(1));
	CHECK(r.completed() == 1);
	r.check_failed(IB_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_UNKNOWN);
}

TEST_CASE("a message before the failed one may fail, too", "[failures]")
{
	Requester r;

	r.post_packets(2);
	r.post_packets(3);
	r.send();
	peal_requester_fail_message(r.get(), 1, IB_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_UNKNOWN);
	while (r.deadline() != U64_MAX) {
		r.expire();
		r.send();
	}
	r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_PEER_SILENT);
}

TEST_CASE("the first failure in order is the one that counts", "[failures]")
{
	Requester r;

	for (int i = 0; i < 4; ++i)
		r.post_packets(1);
	r.send();
	peal_requester_fail_message(r.get(), 2, IB_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_UNKNOWN);
	peal_requester_fail_message(r.get(), 3, IB_WC_LOC_LEN_ERR, PEAL_REASON_WQE_LENGTH);
	peal_requester_fail_message(r.get(), 2, IB_WC_LOC_LEN_ERR, PEAL_REASON_WQE_LENGTH);
	peal_requester_fail_message(r.get(), 1, IB_WC_LOC_LEN_ERR, PEAL_REASON_LKEY_PD);
	/* Neither past nor future messages. */
	peal_requester_fail_message(r.get(), 4, IB_WC_LOC_LEN_ERR, PEAL_REASON_LKEY_PD);
	peal_requester_fail_message(r.get(), 0xffffffff, IB_WC_LOC_LEN_ERR, PEAL_REASON_LKEY_PD);
	r.receive(ack(3));
	CHECK(r.completed() == 1);
	r.check_failed(IB_WC_LOC_LEN_ERR, PEAL_REASON_LKEY_PD);
}

TEST_CASE("local operations come in their turn and take no packet", "[failures]")
{
	Requester r;

	r.post_packets(1);
	r.post(PEAL_OP_LOCAL_INV);
	r.post(PEAL_OP_BIND_MW);
	r.post_packets(1);
	CHECK_FALSE(r.send_one().local);
	for (std::uint32_t message : {1U, 2U}) {
		CHECK(r.send_one().local);
		CHECK(r.out.message == message);
		peal_requester_local_done(r.get(), message, IB_WC_SUCCESS, PEAL_REASON_NONE);
	}
	CHECK(r.send_one().header.psn == psn(1));
	CHECK(r.completed() == 0);
	r.receive(ack(0));
	CHECK(r.completed() == 3);
	r.receive(ack(1));
	CHECK(r.completed() == 1);
}

TEST_CASE("a local operation alone completes at once", "[failures]")
{
	for (unsigned transport : {PEAL_RC, PEAL_UC, PEAL_UD}) {
		peal_requester_config config = plain_config();

		config.transport = static_cast<u8>(transport);
		Requester r(config);

		r.post(PEAL_OP_LOCAL_INV);
		CHECK(r.send_one().local);
		CHECK(r.completed() == 0);
		peal_requester_local_done(r.get(), r.out.message, 0, 0);
		CHECK(r.completed() == 1);
		CHECK(r.next() == PEAL_BLOCKED_EMPTY);
	}
}

TEST_CASE("a malformed WQE fails in its turn", "[failures]")
{
	for (unsigned opcode : {0U + PEAL_OP_INVALID, 0U + PEAL_OP_COUNT, 255U}) {
		Requester r;

		r.post_packets(1);
		r.post(opcode);
		r.post_packets(1);
		r.send_one();
		CHECK(r.send_one().local);
		CHECK(peal_requester_wr(r.get(), r.out.message)->opcode == opcode);
		peal_requester_local_done(r.get(), r.out.message, IB_WC_LOC_QP_OP_ERR,
					  PEAL_REASON_WQE_OPCODE);
		CHECK(r.next() == PEAL_BLOCKED_FAILED);
		r.receive(ack(0));
		CHECK(r.completed() == 1);
		r.check_failed(IB_WC_LOC_QP_OP_ERR, PEAL_REASON_WQE_OPCODE);
	}
}

TEST_CASE("UC: a failure is the last completion", "[failures]")
{
	peal_requester_config config = plain_config();

	config.transport = PEAL_UC;
	Requester r(config);

	r.post_packets(1);
	r.post_packets(3);
	r.send_one();
	r.send_one();
	peal_requester_fail_message(r.get(), r.out.message, IB_WC_LOC_PROT_ERR,
				    PEAL_REASON_LKEY_RANGE);
	CHECK(r.completed() == 1);
	r.check_failed(IB_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_RANGE);
}

TEST_CASE("flush returns what is left, in order, once", "[failures]")
{
	for (int acked = -1; acked < 4; ++acked) {
		Requester r;
		peal_completion completion;
		std::uint32_t next = 100;

		CAPTURE(acked);
		for (int i = 0; i < 6; ++i)
			r.post_packets(1);
		r.send_one();
		r.send_one();
		r.send_one();
		if (acked >= 0)
			r.receive(ack(static_cast<std::uint32_t>(acked)));
		for (; peal_requester_flush(r.get(), &completion); ++next) {
			CHECK(completion.index == next);
			CHECK(completion.status == IB_WC_WR_FLUSH_ERR);
			CHECK(completion.reason == PEAL_REASON_FLUSHED);
			CHECK_FALSE(r.complete(&completion));
		}
		CHECK(next == 106);
		CHECK(r.deadline() == U64_MAX);
		CHECK(peal_requester_idle(r.get()));
		CHECK(peal_requester_unsent(r.get()) == 0);
		CHECK(r.next() == PEAL_BLOCKED_FAILED);
		CHECK(r.receive(ack(2)) == PEAL_RESPONSE_DROPPED);
		/* Messages that are posted later are flushed as well. */
		r.post_packets(1);
		CHECK(r.next() == PEAL_BLOCKED_FAILED);
		CHECK(peal_requester_flush(r.get(), &completion));
		CHECK(completion.index == 106);
		CHECK_FALSE(peal_requester_flush(r.get(), &completion));
	}
}

TEST_CASE("after a failure the rest is flushed", "[failures]")
{
	Requester r;
	peal_completion completion;

	for (int i = 0; i < 3; ++i)
		r.post_packets(1);
	r.send();
	r.receive(nak(1, PEAL_NAK_REMOTE_ACCESS));
	CHECK(r.completed() == 1);
	r.check_failed(IB_WC_REM_ACCESS_ERR, PEAL_REASON_NAK_ACCESS);
	CHECK(peal_requester_flush(r.get(), &completion));
	CHECK(completion.index == 102);
	CHECK_FALSE(peal_requester_flush(r.get(), &completion));
}

TEST_CASE("SQD: when nothing more is posted, it drains", "[failures]")
{
	Requester r;

	r.post_packets(3);
	r.post_read(2);
	r.send();
	CHECK(peal_requester_unsent(r.get()) == 0);
	CHECK_FALSE(peal_requester_idle(r.get()));
	r.receive(ack(2));
	r.receive_and_place(read_response(3));
	r.receive_and_place(read_response(4));
	CHECK(r.completed() == 2);
	CHECK(peal_requester_idle(r.get()));
	CHECK(r.deadline() == U64_MAX);
	/* The requester continues. */
	r.post_packets(1);
	CHECK(r.send() == Psns{5});
}

TEST_CASE("the ring may be full", "[failures]")
{
	Requester r(plain_config(), 4);
	std::uint32_t acked = 0;

	for (int round = 0; round < 100; ++round) {
		while (peal_requester_has_room(r.get()))
			r.post_packets(1);
		CHECK(r->inflight.head - r->inflight.tail == 4);
		r.send();
		acked += 1 + round % 4;
		r.receive(ack(acked - 1));
		CHECK(r.completed() == 1U + round % 4);
		if (round % 4 < 3) {
			r.receive(ack(acked + 3 - round % 4 - 1));
			acked += 3 - round % 4;
			r.completed();
		}
	}
}

TEST_CASE("a reset forgets all but the configuration", "[failures]")
{
	Requester r;

	r.post_packets(100);
	r.send();
	r.receive(rnr(3));
	peal_requester_fail_message(r.get(), 0, IB_WC_LOC_PROT_ERR, PEAL_REASON_LKEY_UNKNOWN);
	peal_requester_reset(r.get());
	CHECK(peal_requester_idle(r.get()));
	CHECK_FALSE(peal_requester_failed(r.get()));
	CHECK(r.deadline() == U64_MAX);
	CHECK(r.next() == PEAL_BLOCKED_EMPTY);
	CHECK(peal_requester_psn(r.get()) == 0);
	peal_requester_set_psn(r.get(), 0xff000000 + FIRST_PSN);
	r.post_packets(40);
	CHECK(r.send() == range(0, 32));
	CHECK(r->config.window == 128);
	CHECK(r.wait() == Psns{0});
}

TEST_CASE("a new path MTU is for new messages", "[failures]")
{
	peal_requester_config config = plain_config();
	Requester r(config);

	r.post_packets(4);
	CHECK(r.send_one().header.payload_bytes == 256);
	config.mtu_shift = 12;
	r.configure(config);
	CHECK(r.send() == Psns{1, 2, 3});
	CHECK(r.out.header.payload_bytes == 256);
	CHECK(r.out.offset == 3 * 256);
	r.post(PEAL_OP_SEND, 5000);
	CHECK(r.send() == Psns{4, 5});
	CHECK(r.out.header.payload_bytes == 5000 - 4096);
}
