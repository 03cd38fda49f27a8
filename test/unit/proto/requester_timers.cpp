// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A silent peer: the attribute's timeout and retries, and the estimate below it. */
#include "requester.hpp"

using namespace peal::test;

namespace {

struct Silence {
	std::uint64_t ns = 0;
	unsigned packets = 0;
};

/* Stays silent until there is no deadline any more, or for @most ns. */
Silence stay_silent(Requester &r, std::uint64_t most = U64_MAX)
{
	const std::uint64_t begin = r.now;
	Silence silence;

	for (int i = 0; i < 10000 && r.deadline() != U64_MAX && r.deadline() - begin <= most; ++i) {
		r.expire();
		silence.packets += static_cast<unsigned>(r.send().size());
	}
	silence.ns = r.now - begin;
	return silence;
}

void measure(Requester &r, std::uint64_t rtt, int times = 1)
{
	for (int i = 0; i < times; ++i) {
		r.post_packets(1);
		const Psns sent = r.send();

		r.now += rtt;
		r.receive(ack(sent.back()));
		CHECK(r.completed() == 1);
	}
}

} // namespace

TEST_CASE("a silent peer: exactly retry_cnt retries of the timeout", "[timers]")
{
	for (unsigned limit = 0; limit <= 7; ++limit) {
		peal_requester_config config = plain_config();

		config.retry_limit = static_cast<u8>(limit);
		Requester r(config);

		CAPTURE(limit);
		r.post_packets(3);
		r.send();
		CHECK(stay_silent(r).ns == (limit + 1) * TIMEOUT);
		CHECK(r->retry.used == limit);
		r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_PEER_SILENT);
	}
}

TEST_CASE("a timeout below the least estimate: one packet for each retry", "[timers]")
{
	peal_requester_config config = plain_config();

	config.timeout_ns = 8192;
	Requester r(config);

	r.post_packets(1);
	r.send();
	const Silence silence = stay_silent(r);

	CHECK(silence.packets == 7);
	CHECK(silence.ns == 8 * 8192);
}

TEST_CASE("the timeout runs from the last progress", "[timers]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 0;
	Requester r(config);

	r.post_packets(10);
	r.send();
	for (std::uint32_t n = 0; n < 9; ++n) {
		stay_silent(r, TIMEOUT - 1);
		r.now = std::max(r.now, r.deadline() - 1);
		r.receive(ack(n));
	}
	CHECK(stay_silent(r).ns == TIMEOUT);
}

TEST_CASE("progress gives the retries back", "[timers]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 2;
	Requester r(config);

	r.post_packets(10);
	r.send();
	stay_silent(r, 2 * TIMEOUT + 1);
	CHECK(r->retry.used == 2);
	r.receive(ack(0));
	CHECK(r->retry.used == 0);
	CHECK(stay_silent(r).ns == 3 * TIMEOUT);
}

TEST_CASE("also READ responses are progress", "[timers]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 1;
	Requester r(config);

	r.post_read(10);
	r.send();
	for (std::uint32_t n = 0; n < 10; ++n) {
		stay_silent(r, TIMEOUT + 1);
		CHECK(r->retry.used == 1);
		r.receive_and_place(read_response(n));
		CHECK(r->retry.used == 0);
	}
	CHECK(r.completed() == 1);
}

TEST_CASE("timeout 0: never given up, and asked for at last once a second", "[timers]")
{
	peal_requester_config config = plain_config();

	config.timeout_ns = 0;
	Requester r(config);

	r.post_packets(1);
	r.send();
	const Silence silence = stay_silent(r, 3600ULL * 1000 * MS);

	CHECK(silence.packets > 3590);
	CHECK(silence.packets < 3620);
	r.receive(ack(0));
	CHECK(r.completed() == 1);
}

TEST_CASE("new retry counts leave used ones alone", "[timers]")
{
	peal_requester_config config = plain_config();
	Requester r(config);

	r.post_packets(1);
	r.send();
	stay_silent(r, 3 * TIMEOUT + 1);
	CHECK(r->retry.used == 3);
	config.retry_limit = 4;
	r.configure(config);
	CHECK(r->retry.used == 3);
	CHECK(stay_silent(r).ns <= 2 * TIMEOUT);
	r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_PEER_SILENT);
}

/* Sends what may be sent. The packets before @left leave; the others are too long. */
static std::vector<std::uint32_t> send_short(Requester &r, std::uint32_t left)
{
	auto sent = r.send();

	for (auto n : sent)
		if (n >= left)
			peal_requester_too_long(r.get(), psn(n));
	return sent;
}

static void expire_all(Requester &r, std::uint32_t left)
{
	while (r.deadline() != U64_MAX) {
		r.expire();
		send_short(r, left);
	}
}

TEST_CASE("packets that are too long to leave give the reason", "[timers]")
{
	for (int retries : {0, 1, 7}) {
		peal_requester_config config = plain_config();

		CAPTURE(retries);
		config.retry_limit = static_cast<u8>(retries);
		Requester r(config);

		r.post_packets(1);
		r.post_packets(3);
		CHECK(send_short(r, 2) == range(0, 4));
		r.receive(ack(1));
		CHECK(r.completed() == 1);
		expire_all(r, 2);
		r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_ROUTE_MTU);
	}
}

TEST_CASE("the reason is the oldest packet's, not a later one's", "[timers]")
{
	Requester r;

	r.post_packets(1);
	r.post_packets(2);
	send_short(r, 1);
	expire_all(r, 1);
	r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_PEER_SILENT);
}

TEST_CASE("a NAK for a packet that is too long does not hide the reason", "[timers]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 0;
	Requester r(config);

	r.post(PEAL_OP_WRITE, MTU + 4);
	CHECK(r.send() == Psns{0, 1});
	peal_requester_too_long(r.get(), psn(0));
	r.receive(nak(0));
	CHECK(r.send() == Psns{0});
	peal_requester_too_long(r.get(), psn(0));
	CHECK(r->retry.nak_seen);
	expire_all(r, 0);
	r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_ROUTE_MTU);
}

TEST_CASE("only the last copy of a packet gives the reason", "[timers]")
{
	Requester r;

	r.post_packets(2);
	send_short(r, 0);
	for (int i = 0; i < 3; ++i) {
		r.expire();
		send_short(r, 0);
	}
	expire_all(r, 2);
	r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_PEER_SILENT);
}

TEST_CASE("a packet that was too long once and left later is forgotten", "[timers]")
{
	Requester r;

	r.post_packets(2);
	send_short(r, 0);
	r.wait();
	r.receive(ack(1));
	CHECK(r.completed() == 1);
	CHECK_FALSE(r->too_long);
	r.post_packets(1);
	CHECK(send_short(r, 3) == Psns{2});
	expire_all(r, 3);
	r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_PEER_SILENT);
}

TEST_CASE("a peer that NAKs and never advances is not called silent", "[timers]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 0;
	Requester r(config);

	r.post_packets(3);
	r.send();
	r.receive(nak(0));
	r.send();
	stay_silent(r);
	r.check_failed(IB_WC_RETRY_EXC_ERR, PEAL_REASON_NAK_SEQUENCE);
}

TEST_CASE("a lost tail costs a few round trips, not the timeout", "[timers]")
{
	Requester r;

	measure(r, 50 * US, 10);
	r.post_packets(3);
	CHECK(r.send() == range(10, 13));
	const std::uint64_t begin = r.now;

	CHECK(r.wait() == Psns{10});
	CHECK(r.now - begin <= 500 * US);
	CHECK(r->retry.used == 0);
	r.now += 50 * US;
	r.receive(ack(10));
	CHECK(r.send() == Psns{11, 12});
}

TEST_CASE("when only the acknowledgment was lost, one packet tells", "[timers]")
{
	Requester r;

	measure(r, 50 * US, 10);
	r.post_packets(30);
	r.send();
	CHECK(r.wait() == Psns{10});
	r.now += 50 * US;
	r.receive(ack(39));
	CHECK(r.completed() == 1);
	CHECK(r.send().empty());
	/* Nothing was missing, so this does not show whether the peer keeps out-of-order packets.
	 */
	CHECK_FALSE(r->retransmit.peer_reorders);
}

TEST_CASE("an answer too soon after the probe belongs to the first try", "[timers]")
{
	Requester r;

	measure(r, 50 * US, 10);
	r.post_packets(30);
	r.send();
	CHECK(r.wait() == Psns{10});
	r.now += 5 * US;
	r.receive(ack(10));
	CHECK(r.send().empty());
	CHECK(r.next() == PEAL_BLOCKED_EMPTY);
}

TEST_CASE("probes come ever less often, up to the timeout", "[timers]")
{
	Requester r;
	std::uint64_t last = 0, gap = 0;

	measure(r, 50 * US, 10);
	r.post_packets(1);
	r.send();
	for (int i = 0; i < 9; ++i) {
		CHECK(r.wait() == Psns{10});
		if (last) {
			CHECK(r.now - last >= gap);
			gap = r.now - last;
		}
		last = r.now;
	}
	CHECK(gap <= TIMEOUT);
	CHECK(gap >= 10 * MS);
}

TEST_CASE("a READ of long ago is requested again: one response, and then the rest", "[timers]")
{
	Requester r;

	r.post_read(5);
	r.send();
	r.receive_and_place(read_response(0));
	r.receive_and_place(read_response(1));
	CHECK(r.wait() == Psns{2});
	CHECK(r.out.header.remote_addr == 0x10000 + 2 * MTU);
	CHECK(r.out.header.length == MTU);
	r.now += 50 * US;
	r.receive_and_place(read_response(2));
	const std::uint64_t begin = r.now;
	CHECK(r.wait() == Psns{3});
	CHECK(r.now - begin < 1 * MS);
	CHECK(r.out.header.remote_addr == 0x10000 + 3 * MTU);
	CHECK(r.out.header.length == 2 * MTU);
}

TEST_CASE("several packets of a READ are requested at once", "[timers]")
{
	Requester r;

	r.post_read(7);
	r.send();
	r.receive_and_place(read_response(0));
	r.receive_and_place(read_response(1));
	r->retransmit.lone = 2; /* as after NAKs for one packet after the other */
	CHECK(r.wait() == Psns{2});
	CHECK(r.out.header.remote_addr == 0x10000 + 2 * MTU);
	CHECK(r.out.header.length == 4 * MTU);
}

TEST_CASE("a READ of which more comes after all is not requested again", "[timers]")
{
	Requester r;

	r.post_read(5);
	r.send();
	r.receive_and_place(read_response(0));
	CHECK(r.wait() == Psns{1});
	for (std::uint32_t i : {1, 2, 3})
		r.receive_and_place(read_response(i));
	r.now += 20 * US;
	CHECK(r.send().empty());
	CHECK(r->retransmit.probe == PEAL_PROBE_NONE);
	r.receive_and_place(read_response(4));
	CHECK(r.completed() == 1);
}

TEST_CASE("after the answer to a READ the rest waits a moment for its ACK", "[timers]")
{
	Requester r;

	measure(r, 50 * US, 10);
	r.post_read(1);
	r.post_packets(5);
	r.send();
	CHECK(r.wait() == Psns{10});
	r.now += 50 * US;
	r.receive_and_place(read_response(10));
	CHECK(r.send().empty());
	SECTION("it comes")
	{
		r.now += 1 * US;
		r.receive(ack(15));
		CHECK(r.completed() == 2);
		CHECK(r.send().empty());
	}
	SECTION("it does not")
	{
		CHECK(r.wait() == range(11, 16));
	}
}

TEST_CASE("a retransmission that cannot be sent uses up no retry", "[timers]")
{
	Requester r;

	r.post_packets(1);
	r.send();
	for (int i = 0; i < 100; ++i)
		r.expire();
	CHECK(r->retry.used <= 1);
	CHECK(r.send() == Psns{0});
}

TEST_CASE("going back keeps within the window", "[timers]")
{
	Requester r;

	measure(r, 50 * US, 1);
	r.post_packets(100);
	CHECK(r.send().size() == 33);
	CHECK(r.wait() == Psns{1});
	r.now += 50 * US;
	r.receive(ack(1));
	CHECK(r->window.size == 17);
	CHECK(r.send() == range(2, 19));
	CHECK(r.next() == PEAL_BLOCKED_WINDOW);
	r.now += 50 * US;
	r.receive(ack(18));
	CHECK(r.send() == range(19, 36));
}

TEST_CASE("the window after a silence comes back", "[timers]")
{
	Requester r;

	measure(r, 50 * US, 100);
	CHECK(r->window.size == 128);
	r.post_packets(1000);
	const Psns first = r.send();

	CHECK(first.size() == 128);
	r.wait();
	CHECK(r->window.size == 64);
	r.receive(ack(first.back()));
	r.receive(ack(r.send().back()));
	CHECK(r->window.size > 100);
}

TEST_CASE("a silence is no measure of the round trip", "[timers]")
{
	Requester r;

	measure(r, 50 * US, 10);
	r.post_packets(3);
	r.send();
	CHECK(r->rto.timing);
	r.wait();
	CHECK_FALSE(r->rto.timing);
}

TEST_CASE("news of something later end the silence", "[timers]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 2;
	Requester r(config);

	r.post_read(2);
	r.post_read(2);
	r.send();
	stay_silent(r, 2 * TIMEOUT + 1);
	CHECK(r->retry.used == 2);
	r.receive(read_response(3));
	CHECK(r->retry.used == 0);
	/* A repetition is no progress, but the missing packet is. */
	stay_silent(r, 2 * TIMEOUT + 1);
	r.receive(read_response(3));
	CHECK(r->retry.used == 2);
	r.receive_and_place(read_response(0));
	CHECK(r->retry.used == 0);
	CHECK(stay_silent(r).ns == 3 * TIMEOUT);
}

TEST_CASE("a probe that is not needed any more does not hold up the rest", "[timers]")
{
	Requester r;

	measure(r, 50 * US, 10);
	r.post_read(1);
	r.post_packets(3);
	r.send();
	r.expire(); /* it is due, but there is no room to send */
	CHECK(r->retransmit.probe == PEAL_PROBE_SILENCE);
	r.receive_and_place(read_response(10));
	CHECK(r.wait() == Psns{11});
}

TEST_CASE("a timeout of 0 set while packets are on their way ends nothing", "[timers]")
{
	peal_requester_config config = plain_config();
	Requester r(config);

	r.post_packets(3);
	r.send();
	r.now += 1 * MS;
	config.timeout_ns = 0;
	r.configure(config);
	CHECK(stay_silent(r, 100 * TIMEOUT).packets > 0);
	CHECK(r->retry.used == 0);
	CHECK_FALSE(peal_requester_failed(r.get()));
	r.receive(ack(2));
	CHECK(r.completed() == 1);
}
