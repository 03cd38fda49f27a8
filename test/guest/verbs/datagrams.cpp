// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * Datagrams between UD queue pairs of one device.
 *
 * Holds: Data and GRH are right with IPv4 and IPv6, with immediate data, with several peers and
 * with buffers of every shape and key. Some datagrams are dropped silently and counted. Others fail
 * at the sender, whose receives continue. Address handles work. Datagrams are no packets, but only
 * while packets of their handle would pass, and they look the same.
 * Does not hold: multicast (verbs/multicast), the connection manager (tools/connect_on_one_host),
 * two hosts.
 */
#include "commands.hpp"
#include "datagram.hpp"
#include "packets.hpp"

#include <atomic>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::uint8_t untouched = 0x5a;

std::size_t port_mtu(const Device &device)
{
	return std::size_t{128} << device.port().active_mtu;
}

/* An IPv4 header behind 20 unused bytes. */
void check_grh4(std::span<const std::uint8_t> grh, const ibv_gid &from, const ibv_gid &to,
		std::size_t payload)
{
	const auto ip = grh.subspan(20);

	CHECK(all_equal(grh.first(20), 0));
	CHECK(ip[0] == 0x45);
	CHECK(ip[2] * 256U + ip[3] == 20 + 8 + 12 + 8 + (payload + 3) / 4 * 4 + 4);
	CHECK(ip[9] == 17);
	CHECK(difference(ip.subspan(12, 4), std::span(from.raw + 12, 4)).empty());
	CHECK(difference(ip.subspan(16, 4), std::span(to.raw + 12, 4)).empty());
}

void check_grh6(std::span<const std::uint8_t> grh, const ibv_gid &from, const ibv_gid &to,
		std::size_t payload)
{
	CHECK(grh[0] >> 4 == 6);
	CHECK(grh[4] * 256U + grh[5] == 8 + 12 + 8 + (payload + 3) / 4 * 4 + 4);
	CHECK(grh[6] == 17);
	CHECK(difference(grh.subspan(8, 16), std::span(from.raw, 16)).empty());
	CHECK(difference(grh.subspan(24, 16), std::span(to.raw, 16)).empty());
}

void check_received(const ibv_wc &wc, const UdEnd &from, std::size_t payload)
{
	INFO(describe(wc));
	must_succeed(wc);
	CHECK(wc.opcode == IBV_WC_RECV);
	CHECK(wc.byte_len == grh_bytes + payload);
	CHECK(wc.src_qp == from.qp->qp_num);
	CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
	CHECK(wc.pkey_index == 0);
}

/* Sends `bytes` and waits for both completions. */
ibv_wc exchange(UdEnd &from, UdEnd &to, ibv_ah *ah, std::size_t bytes, std::uint64_t salt)
{
	fill_pattern(from.memory.bytes(0, bytes), salt);
	std::memset(to.memory.data(), untouched, to.memory.size());
	post_recv(to.qp, 7, {to.memory.sge(0, grh_bytes + bytes)});
	post(from.qp, Datagram(ah, to.qp->qp_num, {from.memory.sge(0, bytes)}).id(5));
	CHECK(wait_success(from.send_cq)[0].wr_id == 5);
	const auto wc = wait_completion(to.recv_cq);
	CHECK(wc.wr_id == 7);
	check_received(wc, from, bytes);
	CHECK(difference(to.memory.bytes(grh_bytes, bytes), from.memory.bytes(0, bytes)).empty());
	CHECK(all_equal(to.memory.bytes(grh_bytes + bytes, 64), untouched));
	return wc;
}

/*
 * Checks that nothing arrived and that the counter went up. It may have gone up by more than one,
 * because a challenge of an earlier test may arrive after the end of its queue pair.
 */
void check_dropped(const UdEnd &to, const std::string &reason, std::uint64_t before)
{
	INFO(reason);
	CHECK(eventually([&] { return counter("drop_" + reason) > before; }));
	CHECK(describe(drain(to.recv_cq)) == "0 completions");
}

/* The payload of the first challenge that the loopback device carries while `send` is repeated. */
template <class Send_>
Bytes see_challenge(Send_ send)
{
	constexpr std::size_t bth = ethernet_bytes + 20 + udp_bytes, payload = bth + 12, bytes = 32;
	const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
	Bytes seen;

	eventually([&] {
		std::array<std::uint8_t, 2048> frame{};
		send();
		for (ssize_t n; seen.empty() && (n = recv(fd, frame.data(), frame.size(), 0)) > 0;)
			if (n == payload + bytes + icrc_bytes && frame[bth] == 0xc0)
				seen.assign(&frame[payload], &frame[payload] + bytes);
		return !seen.empty();
	});
	close(fd);
	return seen;
}

/* Sends the challenge with each byte of its number changed in turn. */
void forge_challenges(const Device &device, std::uint16_t from_port, std::uint32_t qpn,
		      const Bytes &challenge)
{
	const int fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	Route route;
	sockaddr_in to{};

	std::memcpy(route.from.data(), device.gid().raw + 12, 4);
	route.to = route.from;
	route.from_port = from_port;
	to.sin_family = AF_INET;
	std::memcpy(&to.sin_addr, route.to.data(), 4);
	for (std::size_t i = 0; i < 16; i++) {
		Bytes body;
		Bth{.opcode = 0xc0, .qpn = qpn}.put_to(body);
		put(body, challenge);
		body[12 + i] ^= 1;
		const Bytes frame = fragmentable(make_frame(route, body, 0), 1);
		const auto packet = std::span(frame).subspan(ethernet_bytes);
		must(sendto(fd, packet.data(), packet.size(), 0,
			    reinterpret_cast<const sockaddr *>(&to), sizeof(to)) < 0,
		     "sendto");
	}
	close(fd);
}

ibv_qp_attr query(ibv_qp *qp)
{
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};

	must(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_SQ_PSN, &init),
	     "query_qp");
	return attr;
}

void back_to_rts(ibv_qp *qp)
{
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_RTS;
	attr.cur_qp_state = IBV_QPS_SQE;
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), "modify to RTS");
}

} // namespace

TEST_CASE("a datagram arrives behind its GRH, by either IP version")
{
	Device device;
	UdEnd a(device), b(device);

	for (const bool ipv4 : {true, false}) {
		const auto address = find_address(device, ipv4);
		if (!address)
			SKIP_CASE("the device lacks an address");
		const auto ah = create_ah(a.pd, address->index, address->gid);
		settle(a, b, ah);
		for (const std::size_t bytes :
		     {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{33},
		      port_mtu(device) - 1, port_mtu(device)}) {
			INFO((ipv4 ? "IPv4, " : "IPv6, ") << bytes << " bytes");
			exchange(a, b, ah, bytes, bytes);
			const auto grh = b.memory.bytes(0, grh_bytes);
			if (ipv4)
				check_grh4(grh, address->gid, address->gid, bytes);
			else
				check_grh6(grh, address->gid, address->gid, bytes);
		}
	}
}

TEST_CASE("packets carry Not-ECT")
{
	Device device;
	UdEnd a(device), b(device);
	constexpr std::uint8_t asked = 0xbb; /* EF and CE */
	constexpr int sent = 0xb8;

	for (const bool ipv4 : {true, false}) {
		const auto address = find_address(device, ipv4);
		REQUIRE(address.has_value());
		auto attr = ah_attr(address->index, address->gid);
		attr.grh.traffic_class = asked;
		const Ah ah(ibv_create_ah(a.pd, &attr), "create_ah");
		post_recv(b.qp, 0, {b.memory.sge(0, 512)});
		post(a.qp, Datagram(ah, b.qp->qp_num, {a.memory.sge(0, 8)}));
		wait_success(a.send_cq);
		wait_success(b.recv_cq);
		const auto grh = b.memory.bytes(0, grh_bytes);
		const int seen = ipv4 ? grh[21] : (grh[0] << 4 | grh[1] >> 4) & 0xff;
		CHECK(seen == sent);
	}
}

TEST_CASE("a query returns the whole traffic class")
{
	Device device;
	Endpoint end(device);
	auto attr = rtr_attr(device, end.qp->qp_num, device.gid());
	ibv_qp_init_attr init{};

	to_init(end.qp);
	attr.ah_attr.grh.traffic_class = 0xbb;
	must(ibv_modify_qp(end.qp, &attr, rtr_mask), "modify to RTR");
	must(ibv_query_qp(end.qp, &attr, IBV_QP_AV, &init), "query_qp");
	CHECK(int{attr.ah_attr.grh.traffic_class} == 0xbb);
}

TEST_CASE("one queue pair serves many, and itself")
{
	Device device;
	UdEnd hub(device);
	std::vector<std::unique_ptr<UdEnd>> peers;

	for (int i = 0; i < 5; i++)
		peers.push_back(std::make_unique<UdEnd>(device));
	settle({&hub, peers[0].get(), peers[1].get()});
	for (std::size_t i = 0; i < peers.size(); i++) {
		exchange(hub, *peers[i], hub.to_self, 100 + i, i);
		exchange(*peers[i], hub, peers[i]->to_self, 200 + i, i);
	}
	fill_pattern(hub.memory.bytes(0, 64), 9);
	post_recv(hub.qp, 1, {hub.memory.sge(4096, 104)});
	post(hub.qp, Datagram(hub.to_self, hub.qp->qp_num, {hub.memory.sge(0, 64)}));
	check_received(wait_completion(hub.recv_cq), hub, 64);
	CHECK(difference(hub.memory.bytes(4096 + grh_bytes, 64), hub.memory.bytes(0, 64)).empty());
}

TEST_CASE("the number of a queue pair has 24 bits")
{
	Device device;
	UdEnd hub(device);

	settle({&hub});
	post_recv(hub.qp, 1, {hub.memory.sge(4096, 104)});
	post(hub.qp, Datagram(hub.to_self, hub.qp->qp_num | 0xff000000, {hub.memory.sge(0, 64)}));
	wait_success(hub.send_cq);
	check_received(wait_completion(hub.recv_cq), hub, 64);
}

TEST_CASE("an entry of a receive that gets no byte of a datagram is not checked")
{
	Device device;
	UdEnd hub(device);

	settle({&hub});
	fill_pattern(hub.memory.bytes(0, 64), 3);
	post_recv(hub.qp, 1, {hub.memory.sge(4096, grh_bytes + 64), {0, 64, 0}});
	post(hub.qp, Datagram(hub.to_self, hub.qp->qp_num, {hub.memory.sge(0, 64)}));
	wait_success(hub.send_cq);
	check_received(wait_completion(hub.recv_cq), hub, 64);
	CHECK(difference(hub.memory.bytes(4096 + grh_bytes, 64), hub.memory.bytes(0, 64)).empty());
}

TEST_CASE("buffers of any shape, on both sides")
{
	Device device;
	UdEnd a(device), b(device);
	auto &m = b.memory;

	settle({&a});
	fill_pattern(a.memory.bytes(0, 600), 3);
	/*
	 * The buffer is cut within the GRH, at its end, and within the payload.
	 * One has an empty entry between.
	 */
	for (const std::vector<std::size_t> &cut : std::vector<std::vector<std::size_t>>{
		     {10, 30, 50, 510}, {40, 600}, {1, 39, 0, 600}, {39, 2, 1, 700}}) {
		std::vector<ibv_sge> list;
		std::vector<std::uint8_t> joined;
		std::size_t at = 0;
		for (const std::size_t piece : cut) {
			list.push_back(m.sge(at, piece));
			at += piece + 13;
		}
		post_recv(b.qp, 1, list);
		post(a.qp,
		     Datagram(a.to_self, b.qp->qp_num,
			      {a.memory.sge(0, 7), a.memory.sge(7, 0), a.memory.sge(7, 553)}));
		check_received(wait_completion(b.recv_cq), a, 560);
		wait_success(a.send_cq);
		for (const auto &sge : list) {
			const auto *bytes = reinterpret_cast<const std::uint8_t *>(sge.addr);
			joined.insert(joined.end(), bytes, bytes + sge.length);
		}
		CHECK(difference(std::span(joined).subspan(grh_bytes, 560), a.memory.bytes(0, 560))
			      .empty());
	}
}

TEST_CASE("immediate data, inline data, order")
{
	Device device;
	QpOptions options;
	options.inline_bytes = 256;
	UdEnd a(device, common_qkey, options), b(device);
	constexpr unsigned count = 40;

	settle({&a});
	for (unsigned i = 0; i < count; i++)
		post_recv(b.qp, i, {b.memory.sge(i * 300, 300)});
	for (unsigned i = 0; i < count; i++) {
		std::memset(a.memory.data(), static_cast<int>(i), 200);
		Datagram send(a.to_self, b.qp->qp_num, {a.memory.sge(0, 200)}, common_qkey,
			      IBV_WR_SEND_WITH_IMM);
		send.imm(htonl(1000 + i)).id(i).flags(IBV_SEND_INLINE | IBV_SEND_SIGNALED);
		post(a.qp, send);
	}
	wait_success(a.send_cq, count);
	const auto received = wait_success(b.recv_cq, count);
	for (unsigned i = 0; i < count; i++) {
		check_received(received[i], a, 200);
		CHECK(received[i].wr_id == i);
		CHECK((received[i].wc_flags & IBV_WC_WITH_IMM) != 0);
		CHECK(ntohl(received[i].imm_data) == 1000 + i);
		CHECK(all_equal(b.memory.bytes(i * 300 + grh_bytes, 200),
				static_cast<std::uint8_t>(i)));
	}
}

TEST_CASE("ibv_wr_* and extended completion queues know datagrams")
{
	Device device;
	QpOptions options;
	options.send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	options.inline_bytes = 64;
	UdEnd a(device, common_qkey, options), b(device);
	ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);

	settle({&a});
	fill_pattern(a.memory.bytes(0, 128), 1);
	for (int i = 0; i < 2; i++)
		post_recv(b.qp, i, {b.memory.sge(i * 512, 512)});
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htonl(77));
	ibv_wr_set_ud_addr(qp, a.to_self, b.qp->qp_num, common_qkey);
	ibv_wr_set_sge(qp, a.memory.lkey(), a.memory.address(), 128);
	qp->wr_id = 2;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, a.memory.data(), 50);
	ibv_wr_set_ud_addr(qp, a.to_self, b.qp->qp_num, common_qkey);
	must(ibv_wr_complete(qp), "wr_complete");
	wait_success(a.send_cq, 2);
	const auto received = wait_success(b.recv_cq, 2);
	check_received(received[0], a, 128);
	CHECK(ntohl(received[0].imm_data) == 77);
	check_received(received[1], a, 50);
	CHECK(difference(b.memory.bytes(grh_bytes, 128), a.memory.bytes(0, 128)).empty());
	CHECK(difference(b.memory.bytes(512 + grh_bytes, 50), a.memory.bytes(0, 50)).empty());
}

TEST_CASE("queue keys: the wrong one is dropped in silence, a controlled one is the sender's own")
{
	Device device;
	UdEnd a(device), b(device), other(device, 0x1234);
	settle({&a});
	settle(other, b, other.to_self);
	const auto before = counter("drop_qkey");

	post_recv(b.qp, 1, {b.memory.sge(0, 512)});
	post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 64)}, common_qkey + 1));
	wait_success(a.send_cq);
	check_dropped(b, "qkey", before);
	CHECK(device.port().qkey_viol_cntr == before + 1);

	/* This bit asks for the sender's own Q_Key. The receive is still there. */
	post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 64)}, 0x80000000U));
	check_received(wait_completion(b.recv_cq), a, 64);
	post_recv(b.qp, 2, {b.memory.sge(0, 512)});
	post(other.qp,
	     Datagram(other.to_self, b.qp->qp_num, {other.memory.sge(0, 64)}, 0x80010000U));
	wait_success(other.send_cq);
	check_dropped(b, "qkey", before + 1);
}

TEST_CASE("a datagram that no queue pair takes is dropped and counted, and its send succeeds")
{
	Device device;
	UdEnd a(device), b(device);
	settle({&a});
	const auto send = [&](std::size_t bytes, std::uint32_t qpn) {
		post(a.qp, Datagram(a.to_self, qpn, {a.memory.sge(0, bytes)}));
		wait_success(a.send_cq);
	};

	auto before = counter("drop_receive");
	send(64, b.qp->qp_num);
	check_dropped(b, "receive", before);

	/* The buffer is too short, so the receive stays for the next datagram. */
	before = counter("drop_length");
	post_recv(b.qp, 1, {b.memory.sge(0, grh_bytes + 63)});
	send(64, b.qp->qp_num);
	check_dropped(b, "length", before);
	send(63, b.qp->qp_num);
	const auto wc = wait_completion(b.recv_cq);
	check_received(wc, a, 63);
	CHECK(wc.wr_id == 1);

	before = counter("drop_qpn");
	{
		const UdEnd gone(device);
		const auto qpn = gone.qp->qp_num;
		send(1, qpn + 1000);
	}
	check_dropped(b, "qpn", before);

	before = counter("drop_state");
	Qp waiting = create_qp(b.pd, b.send_cq, b.recv_cq, ud_options());
	ud_to_init(waiting);
	send(64, waiting->qp_num);
	check_dropped(b, "state", before);

	before = counter("drop_opcode");
	Pair connected(device);
	send(64, connected.a.qp->qp_num);
	check_dropped(b, "opcode", before);
}

TEST_CASE("a send that fails stops the send queue alone, and the program brings it back")
{
	Device device;
	UdEnd a(device), b(device);
	Pd other(ibv_alloc_pd(device), "alloc_pd");
	Region foreign(other, page_bytes);
	Ah foreign_ah = create_ah(other, device);
	const std::size_t mtu = port_mtu(device);
	settle({&a, &b});

	struct Failure {
		const char *name;
		Datagram send;
		ibv_wc_status status;
		peal_reason reason;
	};
	const auto qpn = b.qp->qp_num;
	std::vector<Failure> failures{
		{"longer than the path MTU",
		 {a.to_self, qpn, {a.memory.sge(0, mtu + 1)}},
		 IBV_WC_LOC_LEN_ERR,
		 PEAL_REASON_UD_LENGTH},
		{"lkey of another domain",
		 {a.to_self, qpn, {foreign.sge(0, 64)}},
		 IBV_WC_LOC_PROT_ERR,
		 PEAL_REASON_LKEY_PD},
		{"address handle of another domain",
		 {foreign_ah, qpn, {a.memory.sge(0, 64)}},
		 IBV_WC_LOC_QP_OP_ERR,
		 PEAL_REASON_WQE_AH},
	};

	for (auto &failure : failures) {
		INFO("case: " << failure.name);
		post(a.qp, failure.send.id(1));
		check_status(wait_completion(a.send_cq), failure.status, failure.reason);
		CHECK(state_name(query_state(a.qp)) == "SQE");
		post(a.qp, Datagram(a.to_self, qpn, {a.memory.sge(0, 64)}).id(2));
		check_status(wait_completion(a.send_cq), IBV_WC_WR_FLUSH_ERR, PEAL_REASON_FLUSHED);
		/* The queue pair still receives. */
		exchange(b, a, b.to_self, 64, 4);
		back_to_rts(a.qp);
		CHECK(state_name(query_state(a.qp)) == "RTS");
		exchange(a, b, a.to_self, 64, 5);
	}
}

TEST_CASE("requests behind a failed send are flushed once, in order")
{
	Device device;
	UdEnd a(device), b(device);
	std::vector<Send> list;

	settle({&a});
	list.push_back(Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 8)}).id(0));
	list.push_back(
		Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, port_mtu(device) + 1)}).id(1));
	for (unsigned i = 2; i < 20; i++)
		list.push_back(Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 8)})
				       .id(i)
				       .flags(i % 2 ? IBV_SEND_SIGNALED : 0));
	ibv_send_wr *bad = nullptr;
	must(post_list(a.qp, list, &bad), "post_send");
	const auto all = wait_completions(a.send_cq, 20);
	for (unsigned i = 0; i < 20; i++) {
		CHECK(all[i].wr_id == i);
		CHECK(all[i].status == (i == 0	 ? IBV_WC_SUCCESS
					: i == 1 ? IBV_WC_LOC_LEN_ERR
						 : IBV_WC_WR_FLUSH_ERR));
	}
	CHECK(describe(drain(a.send_cq)) == "0 completions");
}

TEST_CASE("a receive that cannot be written ends the queue pair")
{
	Device device;
	UdEnd a(device), b(device);
	Region readonly(b.pd, page_bytes, 0);

	settle({&a});
	post_recv(b.qp, 1, {readonly.sge(0, 512)});
	post_recv(b.qp, 2, {b.memory.sge(0, 512)});
	post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 64)}));
	wait_success(a.send_cq);
	const auto all = wait_completions(b.recv_cq, 2);
	check_status(all[0], IBV_WC_LOC_PROT_ERR, PEAL_REASON_RECV_LKEY_ACCESS);
	check_status(all[1], IBV_WC_WR_FLUSH_ERR, PEAL_REASON_FLUSHED);
	CHECK(state_name(query_state(b.qp)) == "ERR");
}

TEST_CASE("only what datagrams carry can be posted")
{
	Device device;
	UdEnd a(device);

	for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
				  IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV})
		CHECK(errno_name(try_post(a.qp, Send(opcode, {a.memory.sge(0, 8)}))) == "EINVAL");
}

TEST_CASE("attributes are what was set")
{
	Device device;
	UdEnd a(device, 0xabcd), b(device, 0xabcd);

	auto attr = query(a.qp);
	CHECK(attr.qkey == 0xabcd);
	CHECK(attr.sq_psn == 0x00fffff0);
	for (int i = 0; i < 17; i++)
		post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 1)}, 0xabcd));
	wait_success(a.send_cq, 17);
	attr = query(a.qp);
	CHECK(attr.sq_psn == 1);
	attr.qkey = 0x9999;
	attr.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_QKEY), "modify the Q_Key");
	CHECK(query(a.qp).qkey == 0x9999);
}

TEST_CASE("an address handle needs a GRH and an address of the device")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");

	auto attr = ah_attr(static_cast<std::uint8_t>(device.gid_index()), device.gid());
	attr.is_global = 0;
	CHECK(!ibv_create_ah(pd, &attr));
	CHECK(errno_name(errno) == "EINVAL");
	attr.is_global = 1;
	attr.port_num = 2;
	CHECK(!ibv_create_ah(pd, &attr));
	attr.port_num = 1;
	attr.grh.sgid_index = 120;
	CHECK(!ibv_create_ah(pd, &attr));
	attr.grh.sgid_index = static_cast<std::uint8_t>(device.gid_index());
	Ah good(ibv_create_ah(pd, &attr), "create_ah");
}

TEST_CASE("address handles come and go while others send")
{
	Device device;
	UdEnd a(device), b(device);
	std::atomic<bool> stop = false;
	std::atomic<unsigned> made = 0;
	std::thread maker([&] {
		while (!stop) {
			const Ah ah = create_ah(a.pd, device);
			made++;
		}
	});
	unsigned sent = 0;

	settle({&a});
	for (const Stopwatch watch; watch.elapsed() < 1s; sent++) {
		post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 8)}));
		wait_success(a.send_cq);
	}
	stop = true;
	maker.join();
	std::printf("%u handles, %u datagrams\n", made.load(), sent);
	CHECK(made > 0);
	CHECK(sent > 0);
}

TEST_CASE("a solicited datagram raises a solicited event")
{
	Device device;
	UdEnd a(device);
	Channel channel(ibv_create_comp_channel(device), "create_comp_channel");
	Cq cq = create_cq(device, 64, channel);
	Qp b = create_qp(a.pd, cq, cq, ud_options());
	ud_ready(b);
	settle({&a});

	must(ibv_req_notify_cq(cq, 1), "req_notify_cq");
	for (int i = 0; i < 2; i++)
		post_recv(b, i, {a.memory.sge(4096, 512)});
	post(a.qp, Datagram(a.to_self, b->qp_num, {a.memory.sge(0, 8)}));
	wait_completion(cq);
	CHECK(!readable(channel->fd, absence));
	post(a.qp, Datagram(a.to_self, b->qp_num, {a.memory.sge(0, 8)})
			   .flags(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
	CHECK(readable(channel->fd, patience));
	ibv_cq *fired = nullptr;
	void *context = nullptr;
	must(ibv_get_cq_event(channel, &fired, &context), "get_cq_event");
	ibv_ack_cq_events(cq, 1);
}

TEST_CASE("datagrams of one device are no packets")
{
	if (on_wire())
		SKIP_CASE("on the wire they are");
	Device device;
	UdEnd a(device), b(device);

	settle({&a});
	/* A handle asks once a second whether its packets arrive. */
	const auto packets = [] {
		return counter("packets_sent") - counter("locality_challenges");
	};
	const auto before = packets(), direct = counter("direct_messages");
	for (std::uint64_t i = 0; i < 50; i++)
		exchange(a, b, a.to_self, 64, i);
	CHECK(packets() == before);
	CHECK(counter("direct_messages") == direct + 50);
}

TEST_CASE("a direct datagram has the header that a packet would have")
{
	if (on_wire())
		SKIP_CASE("on the wire it is a packet");
	Device device;
	UdEnd a(device), b(device);

	for (const bool ipv4 : {true, false})
		for (const int hops : {0, 1, 64})
			for (const std::size_t bytes : {std::size_t{0}, std::size_t{61}}) {
				const auto address = find_address(device, ipv4);
				REQUIRE(address.has_value());
				auto attr = ah_attr(address->index, address->gid);
				attr.grh.hop_limit = static_cast<std::uint8_t>(hops);
				attr.grh.traffic_class = 0x68;
				attr.grh.flow_label = 0x12345;
				const Ah ah(ibv_create_ah(a.pd, &attr), "create_ah");
				INFO((ipv4 ? "IPv4" : "IPv6") << ", hop limit " << hops);

				const auto packets = counter("wire_messages");
				const auto first = exchange(a, b, ah, bytes, 1);
				CHECK(eventually(
					[&] { return counter("wire_messages") > packets; }));
				const auto grh = b.memory.bytes(0, grh_bytes);
				const std::vector<std::uint8_t> packet(grh.begin(), grh.end());
				settle(a, b, ah);
				const auto second = exchange(a, b, ah, bytes, 2);
				CHECK(difference(grh, packet).empty());
				CHECK(first.wc_flags == second.wc_flags);
			}
}

TEST_CASE("a rule that stops packets stops datagrams of one device, too")
{
	if (run("command -v nft >/dev/null"))
		SKIP_CASE("needs nft");
	Device device;
	UdEnd a(device), b(device);

	for (const std::string hook : {"input", "output"}) {
		INFO(hook);
		settle({&a});
		exchange(a, b, a.to_self, 64, 1);
		post_recv(b.qp, 1, {b.memory.sge(0, 512)});
		must(run("nft 'add table inet wall; add chain inet wall c { type filter hook " +
			 hook + " priority 0; }; add rule inet wall c udp dport 4791 drop'"),
		     "nft");
		/* The proof may last for three seconds. */
		const bool stopped = eventually(
			[&] {
				post(a.qp,
				     Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 64)}));
				wait_success(a.send_cq);
				const auto arrived = drain(b.recv_cq);
				if (!arrived.empty())
					post_recv(b.qp, 1, {b.memory.sge(0, 512)});
				return arrived.empty();
			},
			patience);
		CHECK(stopped);
		for (const Stopwatch watch; watch.elapsed() < 1500ms;) {
			post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 64)}));
			wait_success(a.send_cq);
		}
		CHECK(describe(drain(b.recv_cq)) == "0 completions");
		must(run("nft delete table inet wall"), "nft");
		/* It comes back without a new handle. The datagram finds the old receive. */
		CHECK(eventually([&] {
			post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 64)}));
			wait_success(a.send_cq);
			return !drain(b.recv_cq).empty();
		}));
	}
}

namespace {

/* Drops RoCE packets that do not come from the port. */
struct Wall {
	explicit Wall(std::uint16_t port)
	{
		must(run("nft 'add table inet wall; add chain inet wall c { type filter hook input "
			 "priority 0; }; add rule inet wall c udp dport 4791 udp sport != " +
			 std::to_string(port) + " drop'"),
		     "nft");
	}
	~Wall() { run("nft delete table inet wall"); }
};

} // namespace

TEST_CASE("a challenge with a wrong number proves nothing")
{
	if (on_wire())
		SKIP_CASE("the direct path is off");
	if (run("command -v nft >/dev/null"))
		SKIP_CASE("needs nft");
	constexpr std::uint16_t port = 50000;
	Device device;
	UdEnd a(device), b(device);

	/* Only the forger's packets pass. */
	auto wall = std::make_unique<Wall>(port);

	post_recv(b.qp, 1, {b.memory.sge(0, 512)});
	const auto stale = counter("drop_stale");
	const auto send = [&] {
		post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 64)}));
		wait_success(a.send_cq);
	};
	const Bytes challenge = see_challenge(send);
	REQUIRE(challenge.size() == 32);
	forge_challenges(device, port, b.qp->qp_num, challenge);
	CHECK(eventually([&] { return counter("drop_stale") >= stale + 16; }));
	send();
	CHECK(describe(drain(b.recv_cq)) == "0 completions");
	wall.reset();
	post(a.qp, Datagram(a.to_self, b.qp->qp_num, {a.memory.sge(0, 64)}));
	check_received(wait_completion(b.recv_cq), a, 64);
}

TEST_CASE("an administrator's switch counts from the next datagram on")
{
	if (on_wire())
		SKIP_CASE("it is off");
	const std::string peal = "build/user/userspace/tools/peal ";
	Device device;
	UdEnd a(device), b(device);

	for (const auto &where :
	     {"link set " + device_name() + " direct ", std::string("host set direct ")}) {
		const bool host = where[0] == 'h';
		settle({&a});
		must(run(peal + where + (host ? "none" : "0")), "peal");
		const auto before = counter("direct_messages");
		exchange(a, b, a.to_self, 64, 1);
		CHECK(counter("direct_messages") == before);
		must(run(peal + where + (host ? "netns" : "1")), "peal");
	}
	settle({&a});
}

TEST_CASE("one list of datagrams for many queue pairs, each with a completion queue")
{
	Device device;
	UdEnd hub(device);
	std::vector<std::unique_ptr<UdEnd>> peers;
	std::vector<Send> list;
	constexpr unsigned rounds = 3;

	for (unsigned i = 0; i < 30; i++) {
		peers.push_back(std::make_unique<UdEnd>(device));
		for (unsigned n = 0; n < rounds; n++)
			post_recv(peers[i]->qp, n, {peers[i]->memory.sge(n * 100, 100)});
	}
	settle({&hub});
	for (const auto &peer : peers)
		list.push_back(Datagram(hub.to_self, peer->qp->qp_num, {hub.memory.sge(0, 8)}));
	for (unsigned n = 0; n < rounds; n++) {
		ibv_send_wr *bad = nullptr;
		must(post_list(hub.qp, list, &bad), "post_send");
		wait_success(hub.send_cq, list.size());
	}
	for (const auto &peer : peers) {
		const auto received = wait_success(peer->recv_cq, rounds);
		for (unsigned n = 0; n < rounds; n++)
			CHECK(received[n].wr_id == n);
	}
}

TEST_CASE("receivers come and go, fail and are reset while others send to them")
{
	Device device;
	UdEnd a(device), other(device);
	std::atomic<std::uint32_t> target = 0;
	std::atomic<bool> stop = false;
	unsigned rounds = 0;

	settle({&a, &other});
	const auto sends = [&](UdEnd &from) {
		while (!stop) {
			std::vector<Send> list(
				8, Datagram(from.to_self, target, {from.memory.sge(0, 500)}));
			ibv_send_wr *bad = nullptr;
			must(post_list(from.qp, list, &bad), "post_send");
			wait_success(from.send_cq, list.size());
		}
	};
	std::thread one([&] { sends(a); }), two([&] { sends(other); });
	for (const Stopwatch watch; watch.elapsed() < 3s; rounds++) {
		UdEnd b(device);
		Region readonly(b.pd, page_bytes, 0);
		for (int i = 0; i < 40; i++)
			post_recv(b.qp, 1, {b.memory.sge(0, 1000)});
		if (rounds % 3 == 1)
			post_recv(b.qp, 2, {readonly.sge(0, 1000)});
		target = b.qp->qp_num;
		wait_completion(b.recv_cq);
		if (rounds % 3 == 2)
			to_state(b.qp, IBV_QPS_RESET);
	}
	stop = true;
	one.join();
	two.join();
	std::printf("%u receivers\n", rounds);
	CHECK(rounds > 3);
}
