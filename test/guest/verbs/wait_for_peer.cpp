// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * A requester waits for a peer that is not ready to receive, or that is silent.
 *
 * Holds: Number and length of the waits are right, in microseconds and not in jiffies. A posted
 * receive ends a wait at once. The reason code says why a peer is silent.
 * Does not hold: loss and delay on a wire (test/sim).
 */
#include "counters.hpp"
#include "neighbour.hpp"

#include <thread>

using namespace peal_test;

namespace {

/* The values of min_rnr_timer that these tests use. */
constexpr std::uint8_t rnr_10us = 1;
constexpr std::uint8_t rnr_10ms = 20;
constexpr std::uint8_t rnr_655ms = 0;
constexpr Duration ten_ms = 10240us;

/* An emulated and loaded machine may be this late. */
constexpr Duration slack = 2s;

Duration ack_timeout(unsigned exponent)
{
	return std::chrono::nanoseconds(4096ULL << exponent);
}

/* A pair whose requester retries `count` times on RNR. */
struct RnrPair {
	RnrPair(Device &device, std::uint8_t count, std::uint8_t timer)
		: a(device), b(device), from(a.pd, page_bytes), to(b.pd, page_bytes)
	{
		Link link;
		link.rnr_retry = count;
		link.min_rnr_timer = timer;
		connect(a, b, link);
	}
	void send() { post(a.qp, Send(IBV_WR_SEND, {from.sge(0, 32)}).id(1)); }
	void receive() { post_recv(b.qp, 2, {to.sge(0, 64)}); }

	Endpoint a, b;
	Region from, to;
};

/*
 * A reason why a message gets no answer. The function prepares the peer and
 * returns the number to send to.
 */
struct Silence {
	const char *name;
	peal_reason reason;
	std::function<void(Endpoint &asker, Endpoint &peer, const Link &)> arrange;
};

void connect_asker(Endpoint &asker, std::uint32_t qpn, const Link &link)
{
	connect_to(asker.qp, asker.device, qpn, link);
}

void unreachable_gid(Endpoint &asker, Endpoint &peer, const Link &link)
{
	auto attr = rtr_attr(asker.device, peer.qp->qp_num, gid_of_nobody(asker.device), link);

	to_init(asker.qp, link);
	must(ibv_modify_qp(asker.qp, &attr, rtr_mask), "modify to RTR");
	to_rts(asker.qp, link);
}

void connected_elsewhere(Endpoint &asker, Endpoint &peer, const Link &link)
{
	connect_asker(asker, peer.qp->qp_num, link);
	connect_to(peer.qp, peer.device, peer.qp->qp_num, link);
}

void other_psn(Endpoint &asker, Endpoint &peer, const Link &link)
{
	/* The PSN is from the future, because one from the past would count as a duplicate. */
	Link behind = link;
	behind.psn = (link.psn - 100) & 0xffffff;
	connect_asker(asker, peer.qp->qp_num, link);
	connect_to(peer.qp, peer.device, asker.qp->qp_num, behind);
}

void peer_in_init(Endpoint &asker, Endpoint &peer, const Link &link)
{
	connect_asker(asker, peer.qp->qp_num, link);
	to_init(peer.qp, link);
}

void peer_in_error(Endpoint &asker, Endpoint &peer, const Link &link)
{
	connect(asker, peer, link);
	to_state(peer.qp, IBV_QPS_ERR);
}

void peer_destroyed(Endpoint &asker, Endpoint &peer, const Link &link)
{
	connect(asker, peer, link);
	peer.qp.reset();
}

/* Puts the peer into RTS, connected to the asker if its type allows that. */
void peer_of_type(ibv_qp_type type, Endpoint &asker, Endpoint &peer, const Link &link)
{
	const bool ud = type == IBV_QPT_UD;
	auto init = init_attr(link);
	auto rtr = rtr_attr(peer.device, asker.qp->qp_num, peer.device.gid(), link);
	auto rts = rts_attr(link);
	QpOptions options;

	options.type = type;
	peer.qp = create_qp(peer.pd, peer.send_cq, peer.recv_cq, options);
	must(ibv_modify_qp(peer.qp, &init,
			   ud ? IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
			      : init_mask),
	     "modify to INIT");
	must(ibv_modify_qp(peer.qp, &rtr,
			   ud ? IBV_QP_STATE
			      : rtr_mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)),
	     "modify to RTR");
	must(ibv_modify_qp(peer.qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN), "modify to RTS");
	connect_asker(asker, peer.qp->qp_num, link);
}

void peer_unreliable(Endpoint &asker, Endpoint &peer, const Link &link)
{
	peer_of_type(IBV_QPT_UC, asker, peer, link);
}

void peer_datagram(Endpoint &asker, Endpoint &peer, const Link &link)
{
	peer_of_type(IBV_QPT_UD, asker, peer, link);
}

std::vector<Silence> silences()
{
	return {
		{"no such queue pair", PEAL_REASON_PEER_UNKNOWN,
		 [](auto &a, auto &, const Link &link) { connect_asker(a, 0xfffff0, link); }},
		{"the peer was destroyed", PEAL_REASON_PEER_UNKNOWN, peer_destroyed},
		{"the peer is in RESET", PEAL_REASON_PEER_STATE,
		 [](auto &a, auto &b, const Link &link) { connect_asker(a, b.qp->qp_num, link); }},
		{"the peer is in INIT", PEAL_REASON_PEER_STATE, peer_in_init},
		{"the peer is in ERR", PEAL_REASON_PEER_STATE, peer_in_error},
		{"the peer is connected to itself", PEAL_REASON_PEER_OTHER, connected_elsewhere},
		{"the peer is unreliable", PEAL_REASON_PEER_OTHER, peer_unreliable},
		{"the peer is a datagram queue pair", PEAL_REASON_PEER_OTHER, peer_datagram},
		{"the peer expects another number", PEAL_REASON_PEER_PSN, other_psn},
		{"nobody has the address", PEAL_REASON_PEER_SILENT, unreachable_gid},
	};
}

/* The specification allows a timeout to be up to four times as long. */
void check_silence(Device &device, const Silence &silence)
{
	INFO("case: " << silence.name);
	Endpoint a(device), b(device);
	Link link;
	link.timeout = 12; /* 16.8 ms */
	link.retry_cnt = 3;
	const Duration expected = 4 * ack_timeout(link.timeout);

	silence.arrange(a, b, link);
	const Stopwatch watch;
	post(a.qp, Send(IBV_WR_RDMA_WRITE).id(9));
	post(a.qp, Send(IBV_WR_RDMA_WRITE).id(10).flags(0));
	const auto wcs = wait_completions(a.send_cq, 2);
	const auto elapsed = watch.elapsed();

	check_status(wcs[0], IBV_WC_RETRY_EXC_ERR, silence.reason);
	check_status(wcs[1], IBV_WC_WR_FLUSH_ERR, PEAL_REASON_FLUSHED);
	if (silence.reason != PEAL_REASON_PEER_PSN) /* that peer may report an error at once */
		CHECK(milliseconds(elapsed) >= milliseconds(expected));
	CHECK(milliseconds(elapsed) <= milliseconds(4 * expected + slack));
	CHECK(state_name(query_state(a.qp)) == "ERR");
}

} // namespace

TEST_CASE("RNR retries are counted and each waits the peer's time")
{
	Device device;

	for (std::uint8_t count = 0; count <= 6; count++) {
		INFO("rnr_retry " << int(count));
		RnrPair pair(device, count, rnr_10ms);
		const Stopwatch watch;
		pair.send();
		const auto wc = wait_completion(pair.a.send_cq);
		const auto elapsed = watch.elapsed();

		check_status(wc, IBV_WC_RNR_RETRY_EXC_ERR, PEAL_REASON_RNR_EXHAUSTED);
		CHECK(milliseconds(elapsed) >= milliseconds(count * ten_ms));
		CHECK(milliseconds(elapsed) <= milliseconds(count * ten_ms + slack));
		CHECK(state_name(query_state(pair.a.qp)) == "ERR");
		CHECK(state_name(query_state(pair.b.qp)) == "RTS");
	}
}

TEST_CASE("RNR timers of 10 us do not wait for a jiffy")
{
	Device device;
	Duration fastest = 1h;

	for (int round = 0; round < 20; round++) {
		RnrPair pair(device, 6, rnr_10us);
		const Stopwatch watch;
		pair.send();
		check_status(wait_completion(pair.a.send_cq), IBV_WC_RNR_RETRY_EXC_ERR,
			     PEAL_REASON_RNR_EXHAUSTED);
		fastest = std::min(fastest, watch.elapsed());
	}
	/* Six waits would take 24 ms with jiffies of 4 ms. */
	CHECK(milliseconds(fastest) >= 0.06);
	/* A debug kernel that looks for leaks takes as long for the packets alone. */
	CHECK((slowness() > 2 || milliseconds(fastest) < 12));
}

TEST_CASE("a posted receive ends a long RNR wait")
{
	Device device;
	RnrPair pair(device, 1, rnr_655ms);
	std::vector<double> times;

	fill_pattern(pair.from.bytes(0, 32), 4);
	for (int round = 0; round < 5; round++) {
		pair.send();
		CHECK(describe(drain(pair.a.send_cq)) == "0 completions");
		const Stopwatch watch;
		pair.receive();
		wait_success(pair.b.recv_cq);
		wait_success(pair.a.send_cq);
		times.push_back(milliseconds(watch.elapsed()));
	}
	CHECK(difference(pair.to.bytes(0, 32), pair.from.bytes(0, 32)) == "");
	if (!on_wire()) /* on the wire the timer that the NAK named runs out */
		CHECK(*std::min_element(times.begin(), times.end()) < 100);
}

TEST_CASE("rnr_retry 7 waits for ever")
{
	Device device;
	RnrPair pair(device, 7, rnr_10ms);
	const Stopwatch watch;

	pair.send();
	/* These are many more waits than any other count allows. */
	eventually([&] { return watch.elapsed() > 20 * ten_ms || !drain(pair.a.send_cq).empty(); });
	CHECK(watch.elapsed() > 20 * ten_ms);
	pair.receive();
	wait_success(pair.a.send_cq);
	wait_success(pair.b.recv_cq);
}

TEST_CASE("RNR counts start anew after progress")
{
	Device device;
	RnrPair pair(device, 2, rnr_10ms);

	for (int round = 0; round < 6; round++) {
		const Stopwatch watch;
		pair.send();
		eventually([&] { return watch.elapsed() > ten_ms; });
		pair.receive();
		wait_success(pair.a.send_cq);
		wait_success(pair.b.recv_cq);
	}
	SUCCEED();
}

TEST_CASE("messages queue in order behind an RNR wait")
{
	Device device;
	RnrPair pair(device, 7, rnr_10us);

	for (std::uint32_t i = 0; i < 20; i++)
		post(pair.a.qp, Send(IBV_WR_SEND_WITH_IMM).imm(i).id(i));
	for (std::uint32_t i = 0; i < 20; i++)
		pair.receive();
	const auto received = wait_success(pair.b.recv_cq, 20);
	const auto sent = wait_success(pair.a.send_cq, 20);
	for (std::uint32_t i = 0; i < 20; i++) {
		CHECK(received[i].imm_data == i);
		CHECK(sent[i].wr_id == i);
	}
}

TEST_CASE("RNR stops only what needs a receive")
{
	Device device;
	RnrPair pair(device, 7, rnr_10ms);
	Endpoint c(device), d(device);
	connect(c, d);

	pair.send();
	post(c.qp, Send(IBV_WR_RDMA_WRITE));
	wait_success(c.send_cq);
	post(pair.b.qp, Send(IBV_WR_RDMA_WRITE));
	wait_success(pair.b.send_cq);
	pair.receive();
	wait_success(pair.a.send_cq);
}

TEST_CASE("silent peers end in RETRY_EXC_ERR with the reason")
{
	Device device;

	for (const auto &silence : silences())
		check_silence(device, silence);
}

TEST_CASE("a peer that wakes up in time hears the message")
{
	Device device;
	Endpoint a(device), b(device);
	Link link;
	link.timeout = 15; /* 134 ms */
	link.retry_cnt = 7;
	Region from(a.pd, page_bytes), to(b.pd, page_bytes);

	connect_to(a.qp, device, b.qp->qp_num, link);
	std::memset(from.data(), 0x11, 64);
	post(a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, 64)}).remote(to.address(), to.rkey()));
	connect_to(b.qp, device, a.qp->qp_num, link);
	wait_success(a.send_cq);
	CHECK(all_equal(to.bytes(0, 64), 0x11));
}

TEST_CASE("a message that waits for a silent peer is flushed once")
{
	Device device;
	Endpoint a(device), b(device);
	Link link;
	link.timeout = 17; /* 0.5 s */
	link.retry_cnt = 0;
	connect_to(a.qp, device, b.qp->qp_num, link);

	const auto errors = counter("errors");
	post(a.qp, Send(IBV_WR_SEND));
	CHECK(describe(drain(a.send_cq)) == "0 completions");
	const auto end = Clock::now() + ack_timeout(link.timeout);
	to_state(a.qp, IBV_QPS_ERR);
	CHECK(wait_completions(a.send_cq, 1).front().status == IBV_WC_WR_FLUSH_ERR);
	/* The timer of the wait must find nothing to fail. */
	std::this_thread::sleep_until(end + 100ms);
	CHECK(counter("errors") == errors);
}

TEST_CASE("queue pairs that wait can be destroyed")
{
	Device device;

	for (int round = 0; round < 50; round++) {
		RnrPair waiting(device, 7, rnr_655ms);
		waiting.send();
		Endpoint lonely(device);
		connect_to(lonely.qp, device, 0xfffff0);
		post(lonely.qp, Send(IBV_WR_RDMA_WRITE));
	}
	SUCCEED();
}
