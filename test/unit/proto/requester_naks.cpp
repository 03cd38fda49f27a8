// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Negative acknowledgments: which packets are sent again, and when the requester gives up. */
#include "requester.hpp"

using namespace peal::test;

namespace {

/* Ten packets are sent, and the round trip is known to be 100 us. */
Requester busy(const peal_requester_config &config = plain_config())
{
	Requester r(config);

	r.post_packets(1);
	r.send();
	r.now += 100 * US;
	r.receive(ack(0));
	CHECK(r.completed() == 1);
	r.post_packets(4);
	r.post_packets(6);
	CHECK(r.send() == range(1, 11));
	r.post_packets(1);
	return r;
}

void pass(Requester &r)
{
	r.now += 100 * US;
}

} // namespace

TEST_CASE("sequence: one packet, and nothing else when the peer reorders", "[naks]")
{
	Requester r = busy();

	r.receive(nak(3));
	CHECK(r.send() == Psns{3});
	CHECK(r.next() == PEAL_BLOCKED_ANSWER);
	pass(r);
	r.receive(ack(10));
	CHECK(r.completed() == 2);
	CHECK(r.send() == Psns{11});
	CHECK(r->retransmit.peer_reorders);
}

TEST_CASE("sequence: go-back-N when it does not", "[naks]")
{
	Requester r = busy();

	r.receive(nak(3));
	CHECK(r.send() == Psns{3});
	pass(r);
	r.receive(ack(3));
	CHECK(r.send() == range(4, 12));
	CHECK_FALSE(r->retransmit.peer_reorders);
}

TEST_CASE("sequence: each further gap costs one packet", "[naks]")
{
	Requester r = busy();

	r.receive(nak(3));
	CHECK(r.send() == Psns{3});
	pass(r);
	r.receive(nak(6));
	CHECK(r->retransmit.peer_reorders);
	CHECK(r.send() == Psns{6, 11}); /* it keeps out-of-order packets, so new ones follow */
	pass(r);
	r.receive(nak(9));
	CHECK(r.send() == Psns{9});
	pass(r);
	r.receive(ack(11));
	CHECK(r.completed() == 3);
	CHECK(r->retry.used == 0);
}

TEST_CASE("sequence: packets missing in a row are asked for in growing runs", "[naks]")
{
	Requester r = busy();

	r.receive(nak(1));
	CHECK(r.send() == Psns{1});
	pass(r);
	r.receive(nak(2));
	CHECK(r.send() == Psns{2, 3});
	pass(r);
	r.receive(nak(4));
	CHECK(r.send() == Psns{4, 5, 6, 7});
	pass(r);
	r.receive(nak(8));
	CHECK(r.send() == Psns{8, 9, 10});
}

TEST_CASE("sequence: a peer that was thought to keep out-of-order packets and does not", "[naks]")
{
	Requester r = busy();

	r.receive(nak(1));
	r.send();
	pass(r);
	r.receive(nak(3));
	CHECK(r->retransmit.peer_reorders);
	CHECK(r.send() == Psns{3, 11});
	pass(r);
	r.receive(ack(3));
	CHECK(r.send() == Psns{4, 5});
	pass(r);
	r.receive(ack(5));
	CHECK_FALSE(r->retransmit.peer_reorders);
	CHECK(r.send() == range(6, 12));
}

TEST_CASE("sequence: the same NAK doubled costs nothing", "[naks]")
{
	Requester r = busy();

	r.receive(nak(3));
	CHECK(r.receive(nak(3)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.send() == Psns{3});
	for (int i = 0; i < 20; ++i) {
		r.now += 1 * US;
		CHECK(r.receive(nak(3)) == PEAL_RESPONSE_DROPPED);
		CHECK(r.response.duplicate);
		CHECK(r.send().empty());
	}
	CHECK(r->retry.used == 0);
}

TEST_CASE("sequence: an older one that comes late is dropped", "[naks]")
{
	Requester r = busy();

	r.receive(ack(6));
	CHECK(r.receive(nak(5)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.response.duplicate);
	CHECK(r.send() == Psns{11});
}

TEST_CASE("sequence: as many retries as configured, then it is over", "[naks]")
{
	for (unsigned limit : {0U, 1U, 3U, 7U}) {
		peal_requester_config config = plain_config();
		unsigned retries = 0;

		config.retry_limit = static_cast<u8>(limit);
		Requester r = busy(config);

		CAPTURE(limit);
		r.receive(nak(1));
		CHECK(r.send() == Psns{1});
		for (;; ++retries) {
			pass(r);
			r.receive(nak(1));
			if (r.send() != Psns{1})
				break;
		}
		CHECK(retries == limit);
		r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_NAK_SEQUENCE);
	}
}

TEST_CASE("sequence: progress gives the retries back", "[naks]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 1;
	Requester r = busy(config);

	for (std::uint32_t n = 1; n < 10; ++n) {
		r.receive(nak(n));
		r.send();
		pass(r);
		r.receive(nak(n));
		CHECK(r.send().front() == n);
		CHECK(r->retry.used == 1);
		pass(r);
		r.receive(ack(n));
		CHECK(r->retry.used == 0);
		r->retransmit.peer_reorders = false;
		r->retransmit.lone = 0;
		peal_retransmit_stop(&r->retransmit, &r->inflight);
	}
}

TEST_CASE("sequence: behind a READ whose responses are missing, both are asked for", "[naks]")
{
	Requester r;

	r.post_packets(1);
	r.post_read(3);
	r.post_packets(4);
	CHECK(r.send() == Psns{0, 1, 4, 5, 6, 7});
	r.receive(nak(6));
	CHECK(r.completed() == 1);
	CHECK(r.send() == Psns{1, 6});
	CHECK(r.next() == PEAL_BLOCKED_ANSWER);
	r.now += 1 * MS;
	for (std::uint32_t n = 1; n < 4; ++n)
		r.receive_and_place(read_response(n));
	CHECK(r.completed() == 1);
	CHECK(r->inflight.una == psn(6));
	r.receive(ack(7));
	CHECK(r.completed() == 1);
}

TEST_CASE("sequence: in a loss of everything the window shrinks once", "[naks]")
{
	Requester r;

	r.post_packets(1000);
	r.send();
	r.receive(nak(4));
	const std::uint32_t size = r->window.size;

	CHECK(size == 32 + 4 - 4);
	r.send();
	r.now += 1 * MS;
	r.receive(nak(8));
	CHECK(r->window.size == size);
}

TEST_CASE("fatal: status and reason of each", "[naks]")
{
	const struct {
		peal_nak code;
		unsigned status, reason;
	} FATAL[] = {
		{PEAL_NAK_INVALID_REQUEST, IB_WC_REM_INV_REQ_ERR, PEAL_REASON_NAK_INVALID_REQUEST},
		{PEAL_NAK_REMOTE_ACCESS, IB_WC_REM_ACCESS_ERR, PEAL_REASON_NAK_ACCESS},
		{PEAL_NAK_REMOTE_OPERATION, IB_WC_REM_OP_ERR, PEAL_REASON_NAK_OPERATION},
	};

	for (const auto &fatal : FATAL) {
		Requester r = busy();

		r.receive(nak(7, fatal.code));
		CHECK(r.completed() == 1);
		r.check_failed(fatal.status, fatal.reason);
	}
}

TEST_CASE("fatal: a READ before it is still waited for", "[naks]")
{
	Requester r;

	r.post_read(2);
	r.post_packets(1);
	r.send();
	r.receive(nak(2, PEAL_NAK_REMOTE_ACCESS));
	CHECK(r.completed() == 0);
	CHECK(r.next() == PEAL_BLOCKED_FAILED);
	CHECK(r.wait() == Psns{0});
	r.receive_and_place(read_response(0));
	r.receive_and_place(read_response(1));
	CHECK(r.completed() == 1);
	r.check_failed(IB_WC_REM_ACCESS_ERR, PEAL_REASON_NAK_ACCESS);
}

TEST_CASE("fatal: that wait ends, also when the transport never gives up", "[naks]")
{
	peal_requester_config config = plain_config();

	config.timeout_ns = 0;
	Requester r(config);

	r.post_read(2);
	r.post_packets(1);
	r.send();
	r.receive(nak(2, PEAL_NAK_REMOTE_ACCESS));
	for (int i = 0; i < 1000 && r.deadline() != U64_MAX; ++i) {
		r.expire();
		r.send();
	}
	r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_PEER_SILENT);
}

TEST_CASE("fatal: in the middle of a READ", "[naks]")
{
	Requester r;

	r.post_packets(1);
	r.post_read(3);
	r.send();
	r.receive_and_place(read_response(1));
	r.receive(nak(2, PEAL_NAK_REMOTE_ACCESS));
	CHECK(r.completed() == 1);
	r.check_failed(IB_WC_REM_ACCESS_ERR, PEAL_REASON_NAK_ACCESS);
}

TEST_CASE("RNR: the timer, then from that packet on", "[naks]")
{
	for (unsigned timer = 0; timer < 32; ++timer) {
		Requester r = busy();

		CAPTURE(timer);
		r.receive(rnr(5, timer));
		CHECK(r.completed() == 1);
		CHECK(r.deadline() == r.now + peal_rnr_timer_ns(static_cast<u8>(timer)));
		CHECK(r.wait() == Psns{5});
		pass(r);
		r.receive(ack(5));
		CHECK(r.send() == range(6, 12));
	}
}

TEST_CASE("RNR: as many retries as configured, then it is over", "[naks]")
{
	for (unsigned limit = 0; limit <= 6; ++limit) {
		peal_requester_config config = plain_config();
		unsigned retries = 0;

		config.rnr_limit = static_cast<u8>(limit);
		Requester r = busy(config);

		CAPTURE(limit);
		for (r.receive(rnr(5)); r.deadline() != U64_MAX; ++retries) {
			REQUIRE(r.wait() == Psns{5});
			pass(r);
			r.receive(rnr(5));
		}
		CHECK(retries == limit);
		CHECK(r.completed() == 1);
		r.check_failed(IB_WC_RNR_RETRY_EXC_ERR, PEAL_REASON_RNR_EXHAUSTED);
	}
}

TEST_CASE("RNR: 7 retries are endless", "[naks]")
{
	Requester r = busy();

	r.receive(rnr(5));
	for (int i = 0; i < 1000; ++i) {
		REQUIRE(r.wait() == Psns{5});
		pass(r);
		r.receive(rnr(5));
	}
	r.wait();
	r.receive(ack(10));
	CHECK(r.completed() == 2);
}

TEST_CASE("RNR: endless waits grow to a millisecond, or are what the peer asks for", "[naks]")
{
	for (unsigned timer : {1U, 14U, 31U}) {
		Requester r = busy();
		const u64 asked = peal_rnr_timer_ns(static_cast<u8>(timer));

		CAPTURE(timer);
		for (int i = 0; i < 300; ++i) {
			const u64 longer = std::min<u64>(asked << std::min(i, 7), 1000000);

			r.receive(rnr(5, timer));
			CHECK(r.deadline() == r.now + std::max(asked, longer));
			REQUIRE(r.wait() == Psns{5});
			pass(r);
		}
		r.receive(rnr(7, timer));
		CHECK(r.deadline() == r.now + asked);
	}
}

TEST_CASE("RNR: doubled, it counts once", "[naks]")
{
	peal_requester_config config = plain_config();

	config.rnr_limit = 1;
	Requester r = busy(config);

	r.receive(rnr(5));
	for (int i = 0; i < 5; ++i)
		CHECK(r.receive(rnr(5)) == PEAL_RESPONSE_DROPPED);
	r.expire();
	CHECK(r.receive(rnr(5)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.send() == Psns{5});
	pass(r);
	r.receive(ack(5));
	CHECK(r->retry.used_rnr == 0);
}

TEST_CASE("RNR: progress gives the retries back", "[naks]")
{
	peal_requester_config config = plain_config();

	config.rnr_limit = 1;
	Requester r = busy(config);

	for (std::uint32_t n = 1; n < 11; ++n) {
		r.receive(rnr(n));
		CHECK(r.wait() == Psns{n});
		pass(r);
	}
	r.receive(ack(10));
	CHECK(r.completed() == 2);
}

TEST_CASE("RNR: is no silence", "[naks]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 1;
	Requester r = busy(config);

	for (int i = 0; i < 10; ++i) {
		r.receive(rnr(1, 0)); /* 655 ms, ten timeouts */
		REQUIRE(r.wait() == Psns{1});
		r.now += TIMEOUT; /* one retry */
		peal_requester_expire(r.get(), r.now);
		REQUIRE(r.send() == Psns{1});
		pass(r);
	}
	r.receive(ack(10));
	CHECK(r.completed() == 2);
}

TEST_CASE("RNR: the answer may come before all of a probe was sent", "[naks]")
{
	Requester r = busy();

	r->retransmit.lone = 2; /* as after NAKs for one packet after the other */
	r.receive(nak(1));
	CHECK(r.receive(rnr(1)) == PEAL_RESPONSE_DROPPED); /* it was on its way before */
	CHECK(r.send_one().header.psn == peal_psn_add(FIRST_PSN, 1));
	r.receive(rnr(1));
	CHECK(r.next() == PEAL_BLOCKED_RNR);
}

TEST_CASE("RNR: an acknowledgment of the packet ends the wait", "[naks]")
{
	Requester r = busy();

	r.receive(rnr(5, 0));
	CHECK(r.next() == PEAL_BLOCKED_RNR);
	r.receive(ack(10));
	CHECK(r.completed() == 2);
	CHECK(r.send() == Psns{11});
}

TEST_CASE("to a peer that keeps out-of-order packets no more are sent than it can keep", "[naks]")
{
	peal_requester_config config = plain_config();
	std::uint32_t acked = 0;

	config.window = 1024;
	Requester r(config);

	r.post_packets(10000);
	while (r->window.size < 1024) {
		acked = r.send().back();
		r.receive(ack(acked));
	}
	CHECK(r.send().size() == 1024);
	r.receive(nak(acked + 1));
	CHECK(r.send() == Psns{acked + 1});
	r.now += 1 * MS;
	acked += 1024;
	r.receive(ack(acked));
	CHECK(r.send().size() == PEAL_REORDER_SLOTS);
	CHECK(r.next() == PEAL_BLOCKED_WINDOW);
}

TEST_CASE("RNR: what followed the packet was thrown away, however soon the answer comes", "[naks]")
{
	Requester r = busy();

	r.receive(rnr(5));
	CHECK(r.wait() == Psns{5});
	r.now += 1 * US;
	r.receive(ack(5));
	CHECK(r.send() == range(6, 12));
}

TEST_CASE("sequence: a late one about what the peer has executed since is dropped", "[naks]")
{
	Requester r;

	r.post_packets(1);
	r.post_read(3);
	r.post_packets(3);
	r.send();
	/* The READ's responses are late, but the peer has everything. */
	r.receive(ack(6));
	CHECK(r.receive(nak(4)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.response.duplicate);
	CHECK(r.receive(rnr(5)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.response.duplicate);
	CHECK(r.send().empty());
}

TEST_CASE("sequence: a NAK for a packet that is retransmitted anyway changes nothing", "[naks]")
{
	Requester r = busy();

	r.receive(nak(3));
	CHECK(r.send() == Psns{3});
	pass(r);
	r.receive(ack(3));
	r.receive(nak(6));
	CHECK(r.send() == range(6, 12));
}

TEST_CASE("RNR: a copy that a probe sent meets it once more, and uses up no retry", "[naks]")
{
	peal_requester_config config = plain_config();

	config.rnr_limit = 1;
	Requester r(config);

	r.post(PEAL_OP_SEND);
	r.send();
	CHECK(r.wait() == Psns{0});
	r.receive(rnr(0));
	CHECK(r.wait() == Psns{0});
	r.now += 1 * MS;
	r.receive(rnr(0));
	CHECK(r.wait() == Psns{0});
	r.now += 1 * MS;
	r.receive(rnr(0));
	r.check_failed(IB_WC_RNR_RETRY_EXC_ERR, PEAL_REASON_RNR_EXHAUSTED);
}

TEST_CASE("RNR: a message has all retries, also when READs before it wait for answers", "[naks]")
{
	peal_requester_config config = plain_config();

	config.rnr_limit = 1;
	Requester r(config);

	r.post_read(1);
	r.post(PEAL_OP_SEND);
	r.post(PEAL_OP_SEND);
	r.send();
	r.receive(rnr(1));
	r.wait();
	r.now += 1 * MS;
	r.receive(rnr(2));
	r.wait();
	r.now += 1 * MS;
	r.receive(rnr(2));
	r.receive_and_place(read_response(0));
	CHECK(r.completed() == 2);
	r.check_failed(IB_WC_RNR_RETRY_EXC_ERR, PEAL_REASON_RNR_EXHAUSTED);
}

TEST_CASE("sequence: in the middle of a READ that was executed there is none", "[naks]")
{
	Requester r;

	r.post_read(4);
	r.post_packets(1);
	r.send();
	r.receive_and_place(read_response(0));
	CHECK(r.receive(nak(2)) == PEAL_RESPONSE_DROPPED);
	CHECK(r.receive(nak(4)) == PEAL_RESPONSE_TAKEN);
}

TEST_CASE("sequence: a probe of which nothing is left to send does not stop everything", "[naks]")
{
	Requester r;

	r.post(PEAL_OP_CMP_SWAP, 8);
	r.send();
	r.post_packets(1);
	r.send();
	r.now += 1 * MS;
	r.receive(nak(1));
	/* The transmit queue is full behind the first packet. Then the peer has the second. */
	CHECK(r.send_one().header.psn == psn(0));
	r.receive(ack(1));
	r.expire();
	CHECK(r.send() == Psns{});
	/* The answer to the first packet is lost. */
	CHECK(r.wait() == Psns{0});
	r.receive_and_place(atomic_ack(0, 1));
	CHECK(r.completed() == 2);
}
