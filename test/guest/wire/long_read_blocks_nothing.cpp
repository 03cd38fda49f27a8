// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: wire
/*
 * A message waits only for messages that it depends on.
 *
 * Holds: A peer may ask for much at once, for example with one READ request for a long region. The
 * messages that the program posts to that queue pair do not wait behind the answer. A sender that
 * asks for no completion still gets its ACK when its next message would wait for it.
 * Does not hold: that the bytes are right (verbs/every_byte_arrives, wire/with_rxe).
 */
#include "counters.hpp"
#include "neighbour.hpp"
#include "packets.hpp"
#include "verbs.hpp"

#include <linux/filter.h>
#include <netinet/in.h>

using namespace peal_test;

namespace {

constexpr std::uint8_t send_only = 0x04, read_request = 0x0c;
constexpr std::uint32_t peer_qpn = 0x77;

/* Counts frames on a netdev whose BTH, behind an IPv4 header, has one opcode. */
class Sniffer {
	int fd_;

public:
	Sniffer(const std::string &netdev, std::uint8_t opcode) : fd_(packet_socket(netdev))
	{
		constexpr std::uint32_t at = ethernet_bytes + 20 + udp_bytes;
		std::array<sock_filter, 4> code{sock_filter{BPF_LD | BPF_B | BPF_ABS, 0, 0, at},
						{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, opcode},
						{BPF_RET | BPF_K, 0, 0, 0xffff},
						{BPF_RET | BPF_K, 0, 0, 0}};
		const sock_fprog program{code.size(), code.data()};
		sockaddr_ll where{};

		where.sll_family = AF_PACKET;
		where.sll_protocol = htons(ETH_P_IP);
		where.sll_ifindex = static_cast<int>(if_nametoindex(netdev.c_str()));
		must(setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
		     "attach a filter");
		must(bind(fd_, reinterpret_cast<sockaddr *>(&where), sizeof(where)), "bind");
	}
	Sniffer(const Sniffer &) = delete;
	Sniffer &operator=(const Sniffer &) = delete;
	~Sniffer() { close(fd_); }

	bool has_seen_one() const
	{
		std::array<char, 64> frame{};

		return recv(fd_, frame.data(), frame.size(), MSG_DONTWAIT) > 0;
	}
};

Route route_from_peer(const Device &device)
{
	const ibv_gid from = nobody(device), to = device.gid();
	Route route{.from_mac = mac("veth1"), .to_mac = mac("veth0")};

	std::copy_n(from.raw + 12, 4, route.from.begin());
	std::copy_n(to.raw + 12, 4, route.to.begin());
	return route;
}

Bytes long_read(const Route &route, std::uint32_t qpn, std::uint32_t psn, const ibv_mr *mr)
{
	Bytes body;

	Bth{.opcode = read_request, .qpn = qpn, .psn = psn, .ack = true}.put_to(body);
	put(body, reinterpret_cast<std::uintptr_t>(mr->addr), 8);
	put(body, mr->rkey, 4);
	put(body, mr->length, 4);
	return make_frame(route, body, 0);
}

void to_rts_with_nobody(ibv_qp *qp, const Device &device, const Link &link)
{
	auto rtr = rtr_attr(device, peer_qpn, gid_of_nobody(device), link);

	to_init(qp, link);
	must(ibv_modify_qp(qp, &rtr, rtr_mask), "modify to RTR");
	to_rts(qp, link);
}

} // namespace

TEST_CASE("a long READ of the peer's does not keep back what the program sends")
{
	constexpr std::size_t length = 64 << 20;
	Device device;
	Endpoint end(device);
	const Memory memory(length);
	const Mr mr(ibv_reg_mr(end.pd, memory.data(), length, all_access), "reg_mr");
	Link link;
	const std::uint64_t answers = length / (128U << device.port().active_mtu);

	link.timeout = 0; /* no peer answers, so it must not time out */
	to_rts_with_nobody(end.qp, device, link);
	const Sniffer sniffer("veth1", send_only);
	const std::uint64_t before = counter("packets_sent");
	Bytes frame = long_read(route_from_peer(device), end.qp->qp_num, link.psn, mr.get());

	RawSocket("veth1").send(std::span(&frame, 1));
	REQUIRE(eventually([&] { return counter("packets_sent") - before > 100; }));
	post(end.qp, Send(IBV_WR_SEND, {{memory.address(), 8, mr->lkey}}));
	REQUIRE(eventually([&] { return sniffer.has_seen_one(); }));
	CHECK(counter("packets_sent") - before < answers);
	/* The READ is still answered. */
	CHECK(eventually([&] { return counter("packets_sent") - before >= answers; }));
}

TEST_CASE("a long READ does not wait for an unrequested ACK")
{
	constexpr std::uint32_t length = 256 << 10;
	Device device;
	Pair pair(device);
	const Memory memory(2 * length);
	const Mr from(ibv_reg_mr(pair.a.pd, memory.data(), length, all_access), "reg_mr");
	const Mr to(ibv_reg_mr(pair.b.pd, memory.data() + length, length, all_access), "reg_mr");
	constexpr int rounds = 20;
	const std::uint64_t before = counter("probes");

	for (int i = 0; i < rounds; i++) {
		std::vector<Send> list;

		list.push_back(Send(IBV_WR_RDMA_WRITE, {{memory.address(), 8, from->lkey}})
				       .remote(memory.address(length), to->rkey)
				       .flags(0));
		list.push_back(Send(IBV_WR_RDMA_READ, {{memory.address(), length, from->lkey}})
				       .remote(memory.address(length), to->rkey));
		ibv_send_wr *bad = nullptr;
		must(post_list(pair.a.qp, list, &bad), "post_send");
		CHECK(wait_completion(pair.a.send_cq).status == IBV_WC_SUCCESS);
	}
	/* A slow machine may add a probe of its own. */
	CHECK(counter("probes") - before < rounds / 2);
}
