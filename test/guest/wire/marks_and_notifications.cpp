// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// transport: wire
/*
 * Routers mark packets instead of dropping them (ECN), and receivers of marked packets notify the
 * sender (CNP, IBTA A17.9). The test plays the peer of a queue pair, on the other end of the link.
 *
 * Holds: What makes a notification, over IPv4 and IPv6, and each byte of it. How many there are in
 * a time, and the counters. Which packets may be marked, by the option of the device and the
 * traffic class. Which notifications are believed. A flood of notifications does not stop a
 * connection.
 * Does not hold: how a queue pair slows down (test/sim). On a machine that needs 50 us for each
 * packet the limit shows nothing (test/unit/proto/cnp.cpp does). With scripts/vm --icount it does.
 */
#include "commands.hpp"
#include "counters.hpp"
#include "datagram.hpp"
#include "packets.hpp"
#include "trains.hpp"
#include "xrc.hpp"

#include <atomic>
#include <ctime>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::uint8_t not_ect = 0, ect_1 = 1, ect_0 = 2, ce = 3;
constexpr std::uint8_t read_response_only = 0x10, acknowledge = 0x11, cnp = 0x81;
constexpr std::uint32_t peer_qpn = 0x77;
constexpr std::size_t message_bytes = 64, cnp_reserved = 16;

/* A notification to this queue pair, from the BTH on. Byte 4 has BECN, which the ICRC masks. */
Bytes cnp_body(std::uint32_t qpn)
{
	Bytes body;

	Bth{.opcode = cnp, .flags = 0, .qpn = qpn}.put_to(body);
	body[4] = 0x40;
	body.resize(body.size() + cnp_reserved);
	return body;
}

/* In ns of the system's clock. */
std::int64_t nanoseconds(const timespec &time)
{
	return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

/* A captured frame to port 4791. */
struct Seen {
	Bytes frame;

	bool ipv6() const { return frame[ethernet_bytes] >> 4 == 6; }
	std::size_t udp() const { return ethernet_bytes + ip_bytes(ipv6()); }
	std::uint8_t opcode() const { return frame[udp() + udp_bytes]; }
	std::uint16_t port() const
	{
		return static_cast<std::uint16_t>(frame[udp()] << 8 | frame[udp() + 1]);
	}
	std::uint8_t tos() const
	{
		return ipv6() ? static_cast<std::uint8_t>(frame[ethernet_bytes] << 4 |
							  frame[ethernet_bytes + 1] >> 4)
			      : frame[ethernet_bytes + 1];
	}
};

/* The other end of the link. It sees what the device sends, from its beginning on. */
class Peer {
	RawSocket out_{"veth1"};
	int in_ = packet_socket("veth1");
	std::int64_t notified_at_ = 0;

	/* Return: the next frame to port 4791, or none in time. */
	std::optional<Seen> next(Duration limit)
	{
		while (readable(in_, limit)) {
			Seen seen{Bytes(9000)};
			sockaddr_ll from{};
			socklen_t length = sizeof(from);
			const auto n = recvfrom(in_, seen.frame.data(), seen.frame.size(), 0,
						reinterpret_cast<sockaddr *>(&from), &length);

			if (n < 0)
				throw_errno("recvfrom");
			seen.frame.resize(static_cast<std::size_t>(n));
			if (from.sll_pkttype != PACKET_OUTGOING && is_roce(seen))
				return seen;
		}
		return {};
	}
	static bool is_roce(const Seen &seen)
	{
		constexpr std::size_t shortest = ethernet_bytes + 20 + udp_bytes + 12 + icrc_bytes;

		return seen.frame.size() >= shortest &&
		       seen.frame.size() >= seen.udp() + udp_bytes + 12 + icrc_bytes &&
		       seen.frame[ethernet_bytes + (seen.ipv6() ? 6 : 9)] == 17 &&
		       seen.frame[seen.udp() + 2] == roce_port >> 8 &&
		       seen.frame[seen.udp() + 3] == (roce_port & 0xff);
	}

	/* Return: when the last frame arrived that was read. */
	std::int64_t last_at()
	{
		timespec time{};

		must(ioctl(in_, SIOCGSTAMPNS, &time) ? errno : 0, "SIOCGSTAMPNS");
		return nanoseconds(time);
	}

public:
	Peer()
	{
		const int bytes = 64 << 20;
		sockaddr_ll where{};
		timespec time{};

		setsockopt(in_, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
		/* There is no frame yet, but from now on the kernel notes their times. */
		ioctl(in_, SIOCGSTAMPNS, &time);
		where.sll_family = AF_PACKET;
		where.sll_protocol = htons(ETH_P_ALL);
		where.sll_ifindex = static_cast<int>(if_nametoindex("veth1"));
		must(bind(in_, reinterpret_cast<sockaddr *>(&where), sizeof(where)), "bind");
	}
	Peer(const Peer &) = delete;
	Peer &operator=(const Peer &) = delete;
	~Peer() { close(in_); }

	void send(std::vector<Bytes> frames) { out_.send(frames); }
	void send(const Bytes &frame) { send(std::vector<Bytes>{frame}); }
	/* Waits for a packet with this opcode. Others before it are forgotten. */
	Seen wait(std::uint8_t opcode)
	{
		const Stopwatch watch;

		while (watch.elapsed() < patience)
			if (const auto seen = next(patience); seen && seen->opcode() == opcode)
				return *seen;
		throw std::runtime_error("no packet with opcode " + std::to_string(opcode));
	}
	/* Return: when the last notification arrived that notifications() counted. */
	std::int64_t notified_at() const { return notified_at_; }
	/* Return: how many notifications were captured that wait() has not returned. */
	std::size_t notifications()
	{
		std::size_t count = 0;

		while (const auto seen = next(0s))
			if (seen->opcode() == cnp) {
				count++;
				notified_at_ = last_at();
			}
		return count;
	}
};

/* From the peer to the device. */
Route from_peer(bool ipv6)
{
	return {.ipv6 = ipv6,
		.from_port = 0xc123,
		.from = address(ipv6 ? "fd77::2" : "10.77.0.2"),
		.to = address(ipv6 ? "fd77::1" : "10.77.0.1"),
		.from_mac = mac("veth1"),
		.to_mac = mac("veth0")};
}

struct Kind {
	ibv_qp_type type = IBV_QPT_RC;
	bool ipv6 = false;
	std::uint8_t tclass = 0;
	bool sends = true; /* in RTS, otherwise in RTR */
};

/* A queue pair whose peer the test plays. */
class Connected {
	Kind kind_;
	Link link_;

	static QpOptions options(ibv_qp_type type)
	{
		QpOptions options;

		options.type = type;
		return options;
	}
	void connect(Device &device)
	{
		const bool rc = kind_.type == IBV_QPT_RC;
		auto rtr = rtr_attr(device, peer_qpn, gid_of(kind_.ipv6 ? "fd77::2" : "10.77.0.2"),
				    link_);
		auto rts = rts_attr(link_);

		if (kind_.ipv6)
			rtr.ah_attr.grh.sgid_index = find_address(device, false).value().index;
		rtr.ah_attr.grh.traffic_class = kind_.tclass;
		to_init(end.qp, link_);
		must(ibv_modify_qp(end.qp, &rtr, rc ? rtr_mask : uc_rtr_mask), "modify to RTR");
		if (kind_.sends)
			must(ibv_modify_qp(end.qp, &rts,
					   rc ? rts_mask : IBV_QP_STATE | IBV_QP_SQ_PSN),
			     "modify to RTS");
	}

public:
	Endpoint end;
	Region memory{end.pd, page_bytes};
	std::uint32_t psn; /* of the next packet, in both directions */

	explicit Connected(Device &device, Kind kind = {})
		: kind_(kind), end(device, options(kind.type)), psn(link_.psn)
	{
		/* 17 s, so that nothing is sent again unless the test asks for it. */
		link_.timeout = 22;
		connect(device);
		for (int i = 0; i < 8; i++)
			post_recv(end.qp, 0, {memory.sge(0, message_bytes)});
	}
	Route route() const { return from_peer(kind_.ipv6); }
	/* A packet of its peer, with bytes behind the BTH. */
	Bytes packet(Bth bth, std::span<const std::uint8_t> behind, std::uint8_t tos) const
	{
		return packet(route(), bth, behind, tos);
	}
	Bytes packet(const Route &from, Bth bth, std::span<const std::uint8_t> behind,
		     std::uint8_t tos, std::uint32_t damage = 0) const
	{
		Bytes body;

		bth.qpn = end.qp->qp_num;
		bth.put_to(body);
		put(body, behind);
		return with_tos(make_frame(from, body, damage), tos);
	}
	/* A message of its peer. */
	Bytes message(std::uint8_t tos)
	{
		const auto opcode = kind_.type == IBV_QPT_UC ? 0x20 | send_only : send_only;

		return packet({.opcode = static_cast<std::uint8_t>(opcode),
			       .psn = psn++,
			       .ack = kind_.type == IBV_QPT_RC},
			      Bytes(message_bytes, 0x5a), tos);
	}
	/* An answer of its peer to the request with this PSN. */
	Bytes answer(std::uint8_t opcode, std::uint32_t to, std::uint8_t tos, std::size_t bytes)
	{
		Bytes behind;

		put(behind, 0x1f000000, 4);
		behind.resize(behind.size() + bytes);
		return packet({.opcode = opcode, .psn = to}, behind, tos);
	}
	Bytes notification(std::uint16_t pkey = 0xffff, std::size_t bytes = cnp_reserved) const
	{
		Bytes frame = packet({.opcode = cnp, .flags = 0, .pkey = pkey}, Bytes(bytes), 0xc0);

		/* BECN, which the ICRC does not cover. */
		frame[Seen{frame}.udp() + udp_bytes + 4] = 0x40;
		return frame;
	}
	void post_one(ibv_wr_opcode opcode)
	{
		post(end.qp, Send(opcode, {memory.sge(0, message_bytes)}).remote(0x10000, 1));
	}
	void post_both(ibv_wr_opcode first, ibv_wr_opcode second)
	{
		std::array<Send, 2> list{Send(first, {memory.sge(0, message_bytes)}),
					 Send(second, {memory.sge(0, message_bytes)})};
		ibv_send_wr *bad = nullptr;

		for (Send &send : list)
			send.remote(0x10000, 1);
		must(post_list(end.qp, list, &bad), "post_send");
	}
	/* A notification to its peer, from the port that its packets have. */
	Bytes expected_notification(std::uint16_t port) const
	{
		const Route back{.ipv6 = kind_.ipv6,
				 .from_port = port,
				 .from = route().to,
				 .to = route().from,
				 .from_mac = route().to_mac,
				 .to_mac = route().from_mac};

		return with_tos(make_frame(back, cnp_body(peer_qpn), 0), 0xc0);
	}
};

/* The option `ecn` of the device while this object lives. */
struct EcnOption {
	explicit EcnOption(const std::string &value)
	{
		REQUIRE(run(peal_tool() + " link set " + device_name() + " ecn " + value) == 0);
	}
	EcnOption(const EcnOption &) = delete;
	EcnOption &operator=(const EcnOption &) = delete;
	~EcnOption() { run(peal_tool() + " link set " + device_name() + " ecn asked"); }
};

struct Counters {
	Growth marked{"np_ecn_marked_roce_packets"}, sent{"np_cnp_sent"}, handled{"rp_cnp_handled"},
		ignored{"rp_cnp_ignored"};
};

/* Forges notifications of the device's own address to a queue pair while this object lives. */
class Flood {
	std::atomic<bool> done_ = false;
	std::atomic<std::size_t> sent_ = 0;
	std::thread thread_;

	void run(std::uint32_t qpn)
	{
		Forger forger;
		const std::vector<Bytes> train(cars, cnp_body(qpn));

		while (!done_) {
			forger.send_train(train);
			sent_ += train.size();
		}
	}

public:
	explicit Flood(std::uint32_t qpn) : thread_([this, qpn] { run(qpn); }) {}
	Flood(const Flood &) = delete;
	Flood &operator=(const Flood &) = delete;
	~Flood() { stop(); }
	void stop()
	{
		done_ = true;
		if (thread_.joinable())
			thread_.join();
	}
	std::size_t sent() const { return sent_; }
};

/* Longer than the least time between two notifications of a queue pair. */
void wait_for_the_next()
{
	usleep(100);
}

} // namespace

TEST_CASE("a marked packet makes a notification, and each byte of it is right")
{
	make_neighbours();
	Device device;
	const Kind kinds[] = {{}, {.ipv6 = true}, {.tclass = 0x28}, {.sends = false}};

	for (const Kind &kind : kinds) {
		const Counters counters;
		Peer peer;
		Connected victim(device, kind);

		INFO((kind.ipv6 ? "IPv6" : "IPv4")
		     << ", traffic class " << int{kind.tclass} << (kind.sends ? "" : ", in RTR"));
		for (const std::uint8_t tos : {not_ect, ect_1, ect_0}) {
			peer.send(victim.message(tos));
			CHECK(peer.wait(acknowledge).tos() == kind.tclass);
		}
		CHECK(counters.marked.is(0));
		CHECK(peer.notifications() == 0);

		peer.send(victim.message(0x28 | ce));
		const Seen seen = peer.wait(cnp);
		const Seen ack = peer.wait(acknowledge);
		CHECK(difference(seen.frame, victim.expected_notification(ack.port())).empty());
		CHECK(ack.tos() == kind.tclass);
		CHECK(counters.marked.is(1));
		CHECK(counters.sent.is(1));
		CHECK(peer.notifications() == 0);
		wait_success(victim.end.recv_cq, 4);
	}
}

TEST_CASE("marked answers and messages of an unreliable connection make notifications")
{
	make_neighbours();
	Device device;
	const Counters counters;
	Peer peer;
	Connected rc(device), uc(device, {.type = IBV_QPT_UC});

	rc.post_one(IBV_WR_SEND);
	peer.wait(send_only);
	peer.send(rc.answer(acknowledge, rc.psn, ce, 0));
	peer.wait(cnp);
	wait_success(rc.end.send_cq);
	wait_for_the_next();
	rc.post_one(IBV_WR_RDMA_READ);
	peer.wait(read_request);
	peer.send(rc.answer(read_response_only, rc.psn + 1, ce, message_bytes));
	peer.wait(cnp);
	wait_success(rc.end.send_cq);
	peer.send(uc.message(ce));
	peer.wait(cnp);
	wait_success(uc.end.recv_cq);
	CHECK(counters.marked.is(3));
	CHECK(counters.sent.is(3));
}

TEST_CASE("the target of an XRC connection notifies, and the initiator is notified")
{
	constexpr std::uint8_t xrc_send_only = 0xa4, xrc_acknowledge = 0xb1;
	make_neighbours();
	Device device;
	const Counters counters;
	Peer peer;
	const Link link;
	const auto domain = xrc::open_domain(device);
	const xrc::Shared shared(device, domain);
	const Qp target = xrc::create_target(device, domain);
	const Endpoint initiator(device, xrc::initiator());
	Bytes request;

	for (ibv_qp *qp : {target.get(), initiator.qp.get()}) {
		auto rtr = rtr_attr(device, peer_qpn, gid_of("10.77.0.2"), link);

		to_init(qp, link);
		must(ibv_modify_qp(qp, &rtr, qp == target ? rtr_mask : uc_rtr_mask),
		     "modify to RTR");
	}
	to_rts(initiator.qp, link);
	shared.post(0);

	Bth{.opcode = xrc_send_only, .qpn = target->qp_num, .psn = link.psn, .ack = true}.put_to(
		request);
	put(request, shared.number, 4);
	request.resize(request.size() + message_bytes);
	peer.send(with_tos(make_frame(from_peer(false), request, 0), ce));
	CHECK(peer.wait(cnp).tos() == 0xc0);
	CHECK(peer.wait(xrc_acknowledge).tos() == not_ect);
	wait_success(shared.cq);
	CHECK(counters.marked.is(1));
	CHECK(counters.sent.is(1));

	peer.send(make_frame(from_peer(false), cnp_body(initiator.qp->qp_num), 0));
	CHECK(counters.handled.is(1));
	CHECK(counters.ignored.is(0));
}

TEST_CASE("no other marked packet makes a notification")
{
	make_neighbours();
	Device device;
	const Counters counters;
	Peer peer;
	Connected victim(device);
	UdEnd ud(device);
	const Bytes text(message_bytes, 0x5a);
	const Growth crc("drop_icrc"), source("drop_source"), pkey("drop_pkey"), qkey("drop_qkey");
	Route stranger = victim.route();
	Bytes datagram;

	stranger.from = address("10.77.0.3");
	Bth{.opcode = datagram_only, .qpn = ud.qp->qp_num}.put_to(datagram);
	put(datagram, 1, 8);
	peer.send(
		{victim.packet(victim.route(), {.opcode = send_only, .psn = victim.psn}, text, ce,
			       1),
		 victim.packet(stranger, {.opcode = send_only, .psn = victim.psn}, text, ce),
		 victim.packet({.opcode = send_only, .pkey = 0x1234, .psn = victim.psn}, text, ce),
		 with_tos(victim.notification(), 0xc0 | ce),
		 with_tos(make_frame(victim.route(), datagram, 0), ce)});
	CHECK(crc.is(1));
	CHECK(source.is(1));
	CHECK(pkey.is(1));
	CHECK(qkey.is(1));
	CHECK(counters.handled.is(1));
	CHECK(counters.marked.is(0));
	CHECK(counters.sent.is(0));
	CHECK(peer.notifications() == 0);
}

TEST_CASE("a queue pair sends at most one notification in 50 us")
{
	constexpr std::size_t batches = 40, batch = 64;
	make_neighbours();
	Device device;
	const Counters counters;
	Peer peer;
	Connected victim(device);
	timespec begin{};
	std::size_t sent = 0;

	must(clock_gettime(CLOCK_REALTIME, &begin), "clock_gettime");
	/* The first is taken. The others repeat it, so they count as marked, too. */
	for (std::size_t i = 0; i < batches; i++) {
		const Bytes frame = victim.packet({.opcode = send_only, .psn = victim.psn},
						  Bytes(message_bytes), ce);

		peer.send(std::vector<Bytes>(batch, frame));
	}
	CHECK(counters.marked.is(batches * batch));
	CHECK(eventually([&] {
		sent += peer.notifications();
		return sent == counters.sent.value();
	}));
	const auto ns = peer.notified_at() - nanoseconds(begin);
	std::printf("%zu marked packets made %zu notifications in %lld us\n", batches * batch, sent,
		    static_cast<long long>(ns / 1000));
	CHECK(sent >= 1);
	CHECK(static_cast<std::int64_t>(sent) <= ns / 50'000 + 1);
}

TEST_CASE("the option and the traffic class say which packets may be marked")
{
	struct Case {
		const char *option;
		std::uint8_t asks, gets;
	};
	const Case cases[] = {
		{"off", ect_0, not_ect}, {"off", not_ect, not_ect}, {"asked", not_ect, not_ect},
		{"asked", ect_0, ect_0}, {"asked", ect_1, ect_1},   {"asked", ce, not_ect},
		{"on", not_ect, ect_0},	 {"on", ect_0, ect_0},
	};
	constexpr std::uint8_t dscp = 0x28;
	make_neighbours();
	Device device;

	for (const Case &c : cases) {
		const EcnOption option(c.option);

		for (const bool ipv6 : {false, true}) {
			const Kind kind{.ipv6 = ipv6,
					.tclass = static_cast<std::uint8_t>(dscp | c.asks)};
			const int data = dscp | c.gets;
			Peer peer;
			Connected rc(device, kind);
			Kind unreliable = kind;
			unreliable.type = IBV_QPT_UC;
			Connected uc(device, unreliable);

			INFO("ecn " << c.option << ", asked for " << int{c.asks} << ", IPv"
				    << (ipv6 ? 6 : 4));
			rc.post_both(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ);
			CHECK(peer.wait(write_only).tos() == data);
			CHECK(peer.wait(read_request).tos() == data);
			/* Nobody answers, so it comes again. */
			CHECK(peer.wait(write_only).tos() == data);
			uc.post_one(IBV_WR_SEND);
			CHECK(peer.wait(0x20 | send_only).tos() == data);
			/* Its answers: an ACK, a NAK for a gap, a READ response. */
			peer.send(rc.message(not_ect));
			CHECK(peer.wait(acknowledge).tos() == dscp);
			Bytes reth;
			put(reth, rc.memory.address(), 8);
			put(reth, rc.memory.rkey(), 4);
			put(reth, message_bytes, 4);
			peer.send(rc.packet({.opcode = read_request, .psn = rc.psn++}, reth, 0));
			CHECK(peer.wait(read_response_only).tos() == data);
			rc.psn++;
			peer.send(rc.message(not_ect));
			const Seen answer = peer.wait(acknowledge);
			CHECK(answer.frame[answer.udp() + udp_bytes + 12] == 0x60);
			CHECK(answer.tos() == dscp);
			/* Datagrams are never marked, because nothing slows them down. */
			UdEnd ud(device);
			auto attr = ah_attr(ipv6 ? find_address(device, false).value().index
						 : static_cast<std::uint8_t>(device.gid_index()),
					    gid_of(ipv6 ? "fd77::2" : "10.77.0.2"));
			attr.grh.traffic_class = kind.tclass;
			const Ah ah(ibv_create_ah(ud.pd, &attr), "create_ah");
			post(ud.qp, Datagram(ah, peer_qpn, {}));
			CHECK(peer.wait(datagram_only).tos() == dscp);
		}
	}
}

TEST_CASE("a notification counts only if it comes from the connected peer")
{
	make_neighbours();
	Device device;
	Peer peer;
	Connected rc(device), rc6(device, {.ipv6 = true}), uc(device, {.type = IBV_QPT_UC}),
		receiver(device, {.sends = false});
	UdEnd ud(device);
	Route stranger = rc.route();

	stranger.from = address("10.77.0.3");
	for (const Connected *victim : {&rc, &rc6, &uc}) {
		const Counters counters;

		peer.send(victim->notification());
		CHECK(counters.handled.is(1));
		CHECK(counters.ignored.is(0));
	}

	const Bytes reserved(cnp_reserved);
	const struct {
		const char *drop;
		Bytes frame;
		bool ignored; /* it names a queue pair, and is well-formed */
	} cases[] = {
		{"drop_source", rc.packet(stranger, {.opcode = cnp, .flags = 0}, reserved, 0),
		 true},
		{"drop_pkey", rc.notification(0x1234), true},
		{"drop_state", receiver.notification(), true},
		{"drop_opcode", make_frame(rc.route(), cnp_body(ud.qp->qp_num), 0), true},
		{"drop_short", rc.notification(0xffff, cnp_reserved - 4), false},
		{"drop_pad", rc.notification(0xffff, cnp_reserved + 4), false},
		{"drop_icrc", rc.packet(rc.route(), {.opcode = cnp, .flags = 0}, reserved, 0, 1),
		 false},
	};
	for (const auto &c : cases) {
		const Counters counters;
		const Growth drop(c.drop);

		INFO(c.drop);
		peer.send(c.frame);
		CHECK(drop.is(1));
		CHECK(counters.ignored.is(c.ignored));
		CHECK(counters.handled.is(0));
		CHECK(query_state(rc.end.qp) == IBV_QPS_RTS);
	}
	/* The connection goes on. */
	peer.send(rc.message(not_ect));
	wait_success(rc.end.recv_cq);
}

TEST_CASE("a flood of notifications does not stop a connection")
{
	constexpr std::size_t bytes = 1 << 16, messages = 300, least = 20000;
	Device device;
	Pair pair(device);
	Region from(pair.a.pd, bytes), to(pair.b.pd, bytes);
	const Counters counters;
	Flood flood(pair.a.qp->qp_num);
	const Stopwatch watch;
	std::size_t complete = 0;

	CHECK(eventually([&] { return flood.sent() > 0; }));
	for (; complete < messages || flood.sent() < least; complete++) {
		fill_pattern(from.bytes(0, bytes), complete);
		post(pair.a.qp,
		     Send(IBV_WR_RDMA_WRITE, {from.sge(0, bytes)}).remote(to.address(), to.rkey()));
		wait_success(pair.a.send_cq);
		if (!difference(to.bytes(0, bytes), pattern_of(bytes, complete)).empty())
			break;
	}
	flood.stop();
	CHECK(complete >= messages);
	std::printf("%zu notifications beside %zu messages in %lld ms\n", flood.sent(), complete,
		    static_cast<long long>(watch.elapsed() / 1ms));
	CHECK(counters.ignored.is(0));
	/* The stack may lose some. */
	CHECK(counters.handled.value() >= least / 2);
	CHECK(counters.handled.value() <= flood.sent());
}
