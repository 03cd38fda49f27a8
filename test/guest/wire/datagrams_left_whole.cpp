// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: any
/*
 * A virtual machine may leave it to its host to fragment a UDP datagram (VIRTIO_NET_HDR_GSO_UDP).
 * The host sees the datagram before it is fragmented.
 *
 * Holds: Such a datagram is one packet, with IPv4 and with IPv6. What would be one of its fragments
 * is payload, also if it looks like a packet.
 * Does not hold: trains of packets (hostile/packet_trains), fragments (hostile/random_packets).
 */
#include "datagram.hpp"
#include "frames.hpp"
#include "packets.hpp"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>

using namespace peal_test;

namespace {

constexpr std::uint8_t datagram_only = 0x64;
constexpr std::size_t deth_bytes = 8, bth_bytes = 12, payload_bytes = 2000;
constexpr std::size_t fragment_bytes = 1480; /* of a datagram, behind the header of IPv4 */
constexpr std::size_t before_payload = udp_bytes + bth_bytes + deth_bytes;

/* A netdev whose other end is this program, as the network card of a virtual machine. */
class Tap {
	int fd_;

public:
	Tap() : fd_(open("/dev/net/tun", O_RDWR | O_CLOEXEC))
	{
		ifreq request{};

		std::strcpy(request.ifr_name, "tap0");
		request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
		if (fd_ < 0 || ioctl(fd_, TUNSETIFF, &request))
			throw_errno("make tap0");
		run_command("ip link set tap0 mtu 9000 up");
		run_command("ip address add 10.79.0.1/24 dev tap0");
		run_command("ip address add fd79::1/64 dev tap0 nodad");
		run_command("rdma link add tap type peal netdev tap0");
	}
	~Tap()
	{
		run_command("rdma link delete tap");
		close(fd_);
	}
	Tap(const Tap &) = delete;
	Tap &operator=(const Tap &) = delete;

	void send(FrameClaim claim, Bytes frame) const
	{
		const std::array<iovec, 2> pieces{iovec{&claim, sizeof(claim)},
						  iovec{frame.data(), frame.size()}};

		if (writev(fd_, pieces.data(), static_cast<int>(pieces.size())) < 0)
			throw_errno("write to tap0");
	}
};

struct Stage {
	Tap tap;
	Device device{"tap"};
	UdEnd end{device};

	Route route(bool ipv6) const
	{
		return {.ipv6 = ipv6,
			.from = address(ipv6 ? "fd79::2" : "10.79.0.2"),
			.to = address(ipv6 ? "fd79::1" : "10.79.0.1"),
			.from_mac = {0x02, 0, 0, 0, 0, 0x79},
			.to_mac = mac("tap0")};
	}
	Bytes datagram(std::span<const std::uint8_t> payload) const
	{
		Bytes body;

		Bth{.opcode = datagram_only, .qpn = end.qp->qp_num}.put_to(body);
		put(body, common_qkey, 4);
		put(body, 0x77, 4);
		put(body, payload);
		return body;
	}
	/* The host has to fragment the datagram behind that many bytes. */
	void send_whole(bool ipv6, std::span<const std::uint8_t> payload, std::size_t piece)
	{
		const std::size_t udp = ethernet_bytes + ip_bytes(ipv6);
		FrameClaim claim;

		claim.flags = claim_needs_sum;
		claim.train = claim_udp_train;
		claim.header_bytes = static_cast<std::uint16_t>(udp + udp_bytes);
		claim.piece_bytes = static_cast<std::uint16_t>(piece);
		claim.sum_start = static_cast<std::uint16_t>(udp);
		claim.sum_offset = 6;
		tap.send(claim, make_frame(route(ipv6), datagram(payload), 0));
	}
	void post_receive(std::uint64_t id)
	{
		post_recv(end.qp, id, {end.memory.sge(0, 4 * page_bytes)});
	}
	/* Return: the payload of the next datagram. */
	Bytes received()
	{
		const auto wc = wait_completion(end.recv_cq);

		must_succeed(wc);
		const auto bytes = end.memory.bytes(grh_bytes, wc.byte_len - grh_bytes);
		return {bytes.begin(), bytes.end()};
	}
};

/*
 * A payload whose part in the second fragment is a packet with a payload of its own. The fragment
 * also has the ICRC of the datagram, which UDP's length leaves out.
 */
Bytes with_packet_inside(const Stage &stage, std::span<const std::uint8_t> inner)
{
	const Bytes body = stage.datagram(inner);
	const std::size_t udp_length = udp_bytes + body.size() + icrc_bytes;
	Bytes frame = make_frame(stage.route(false), body, 0);
	Bytes payload(fragment_bytes - before_payload, 0x3c);

	/* The header that the fragment gets. */
	put_at(frame, ethernet_bytes + 2, static_cast<std::uint16_t>(20 + udp_length + icrc_bytes));
	put_at(frame, ethernet_bytes + 6, fragment_bytes / 8);
	frame.resize(frame.size() - icrc_bytes);
	put(frame, __builtin_bswap32(icrc(frame, false)), icrc_bytes);
	put(payload, std::span(frame).subspan(ethernet_bytes + 20));
	return payload;
}

} // namespace

TEST_CASE("a datagram that its sender has not fragmented is one packet")
{
	run_command("modprobe tun");
	Stage stage;

	for (const bool ipv6 : {false, true}) {
		INFO("IPv6 " << ipv6);
		Bytes payload(payload_bytes);
		fill_pattern(payload, ipv6);
		stage.post_receive(1);
		stage.send_whole(ipv6, payload, fragment_bytes - (ipv6 ? 32 : 0));
		CHECK(stage.received() == payload);
	}
}

TEST_CASE("a packet inside of such a datagram is payload")
{
	run_command("modprobe tun");
	Stage stage;
	const Bytes inner(100, 0x99);
	const Bytes outer = with_packet_inside(stage, inner);

	for (std::uint64_t id = 0; id < 3; id++)
		stage.post_receive(id);
	stage.send_whole(false, outer, fragment_bytes);
	CHECK(stage.received() == outer);
	/* Everything before this one has been delivered. */
	stage.tap.send(
		{}, make_frame(stage.route(false), stage.datagram(std::span(outer).first(8)), 0));
	CHECK(stage.received() == Bytes(outer.begin(), outer.begin() + 8));
}
