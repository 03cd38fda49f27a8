// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Packets as an Ethernet frame has them, written independently of kernel/,
 * for hostile/random_packets and hostile/planted_packets.
 *
 * Holds: an ICRC of its own (IBTA A17.3.3), IPv4 and IPv6 headers, fragments, a BTH; sockets that
 * send frames, in batches or as trains; the peer that the packets claim to come from.
 * Does not hold: the choice of packets to send.
 */
#pragma once

#include "check.hpp"
#include "verbs.hpp"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <span>
#include <stdexcept>
#include <vector>

namespace peal_test {

using Bytes = std::vector<std::uint8_t>;

inline void put(Bytes &to, std::uint64_t value, unsigned bytes)
{
	while (bytes--)
		to.push_back(static_cast<std::uint8_t>(value >> (8 * bytes)));
}

inline void put(Bytes &to, std::span<const std::uint8_t> from)
{
	to.insert(to.end(), from.begin(), from.end());
}

constexpr std::array<std::uint32_t, 256> make_crc_table()
{
	std::array<std::uint32_t, 256> table{};

	for (std::uint32_t i = 0; i < 256; i++) {
		std::uint32_t rest = i;

		for (int bit = 0; bit < 8; bit++)
			rest = rest & 1 ? rest >> 1 ^ 0xedb88320U : rest >> 1;
		table[i] = rest;
	}
	return table;
}

/* The CRC of Ethernet, byte by byte. */
class Crc {
	static constexpr std::array<std::uint32_t, 256> table = make_crc_table();
	std::uint32_t rest_ = ~0U;

public:
	void add(std::span<const std::uint8_t> bytes)
	{
		for (const std::uint8_t byte : bytes)
			rest_ = table[(rest_ ^ byte) & 0xff] ^ rest_ >> 8;
	}
	std::uint32_t value() const { return ~rest_; }
};

/* The fields of a BTH. */
struct Bth {
	std::uint8_t opcode = 0;
	std::uint8_t flags = 0x40; /* solicited, migrated, pad, version */
	std::uint16_t pkey = 0xffff;
	std::uint32_t qpn = 0;
	std::uint32_t psn = 0;
	bool ack = false;

	void put_to(Bytes &to) const
	{
		put(to, opcode, 1);
		put(to, flags, 1);
		put(to, pkey, 2);
		put(to, qpn & 0xffffff, 4);
		put(to, (ack ? 0x80000000U : 0) | (psn & 0xffffff), 4);
	}
};

/* Source and destination. */
struct Route {
	bool ipv6 = false;
	std::uint16_t from_port = 0xc000;
	std::array<std::uint8_t, 16> from{}, to{}; /* IPv4 uses the first four */
	std::array<std::uint8_t, 6> from_mac{}, to_mac{};
};

inline std::array<std::uint8_t, 16> address(const char *text)
{
	std::array<std::uint8_t, 16> result{};

	if (inet_pton(std::strchr(text, ':') ? AF_INET6 : AF_INET, text, result.data()) != 1)
		throw std::runtime_error(std::string("not an address: ") + text);
	return result;
}

inline std::array<std::uint8_t, 6> mac(const std::string &netdev)
{
	std::ifstream file("/sys/class/net/" + netdev + "/address");
	std::array<std::uint8_t, 6> result{};
	std::string part;

	for (auto &byte : result) {
		if (!std::getline(file, part, ':'))
			throw std::runtime_error("no address of " + netdev);
		byte = static_cast<std::uint8_t>(std::stoul(part, nullptr, 16));
	}
	return result;
}

constexpr std::uint16_t roce_port = 4791;
constexpr std::size_t ethernet_bytes = 14, udp_bytes = 8, icrc_bytes = 4;

inline std::size_t ip_bytes(bool ipv6)
{
	return ipv6 ? 40 : 20;
}

inline std::uint16_t ip_checksum(std::span<const std::uint8_t> header)
{
	std::uint32_t sum = 0;

	for (std::size_t i = 0; i < header.size(); i += 2)
		sum += header[i] << 8 | header[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return static_cast<std::uint16_t>(~sum);
}

inline void put_ip(Bytes &frame, const Route &route, std::size_t udp_length)
{
	const std::size_t begin = frame.size(), addresses = route.ipv6 ? 16 : 4;

	if (route.ipv6) {
		put(frame, 0x60000000, 4);
		put(frame, udp_length, 2);
		put(frame, 17 << 8 | 64, 2);
	} else {
		put(frame, 0x45000000 | (20 + udp_length), 4);
		put(frame, 0x00004000, 4);
		put(frame, 0x40110000, 4);
	}
	put(frame, std::span(route.from).first(addresses));
	put(frame, std::span(route.to).first(addresses));
	if (route.ipv6)
		return;
	const std::uint16_t sum = ip_checksum(std::span(frame).subspan(begin));

	frame[begin + 10] = static_cast<std::uint8_t>(sum >> 8);
	frame[begin + 11] = static_cast<std::uint8_t>(sum);
}

/* Computes it over the frame so far, which begins with Ethernet and lacks only the ICRC. */
inline std::uint32_t icrc(const Bytes &frame, bool ipv6)
{
	const std::size_t ip = ethernet_bytes, udp = ip + ip_bytes(ipv6), bth = udp + udp_bytes;
	Bytes front(frame.begin() + ethernet_bytes, frame.begin() + static_cast<long>(bth) + 12);
	Crc crc;

	/*
	 * Fields that routers change count as ones: class and label or TOS, hops or TTL, checksums.
	 */
	if (ipv6) {
		front[0] |= 0x0f;
		front[1] = front[2] = front[3] = front[7] = 0xff;
	} else {
		front[1] = front[8] = front[10] = front[11] = 0xff;
	}
	front[udp - ip + 6] = front[udp - ip + 7] = 0xff;
	front[bth - ip + 4] = 0xff;
	crc.add(std::array<std::uint8_t, 8>{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff});
	crc.add(front);
	crc.add(std::span(frame).subspan(bth + 12));
	return crc.value();
}

/* A frame with `body` from the BTH on. `damage` is xored into the right ICRC. */
inline Bytes make_frame(const Route &route, std::span<const std::uint8_t> body,
			std::uint32_t damage)
{
	const std::size_t udp_length = udp_bytes + body.size() + icrc_bytes;
	Bytes frame;
	std::uint32_t crc = 0;

	frame.reserve(ethernet_bytes + 40 + udp_length);
	put(frame, route.to_mac);
	put(frame, route.from_mac);
	put(frame, route.ipv6 ? 0x86dd : 0x0800, 2);
	put_ip(frame, route, udp_length);
	put(frame, route.from_port, 2);
	put(frame, roce_port, 2);
	put(frame, udp_length, 2);
	put(frame, 0, 2);
	put(frame, body);
	if (body.size() >= 12)
		crc = icrc(frame, route.ipv6);
	put(frame, __builtin_bswap32(crc ^ damage), 4);
	return frame;
}

/* The frame with that TOS or traffic class, which the ICRC does not cover. */
inline Bytes with_tos(Bytes frame, std::uint8_t tos)
{
	const std::span<std::uint8_t> ip = std::span(frame).subspan(ethernet_bytes);

	if (ip[0] >> 4 == 6) {
		ip[0] = static_cast<std::uint8_t>(0x60 | tos >> 4);
		ip[1] = static_cast<std::uint8_t>(tos << 4);
		return frame;
	}
	ip[1] = tos;
	ip[10] = ip[11] = 0;
	const std::uint16_t sum = ip_checksum(ip.first(20));
	ip[10] = static_cast<std::uint8_t>(sum >> 8);
	ip[11] = static_cast<std::uint8_t>(sum);
	return frame;
}

/*
 * The IPv4 frame with an identification, so that it may be fragmented. The ICRC covers the
 * identification. A wrong ICRC stays wrong.
 */
inline Bytes fragmentable(Bytes frame, std::uint16_t id)
{
	constexpr std::size_t ip = ethernet_bytes, bth = ip + 20 + udp_bytes;
	const std::size_t end = frame.size() - icrc_bytes;
	std::uint32_t stored = 0;

	if (end < bth + 12)
		return frame;
	std::memcpy(&stored, &frame[end], sizeof(stored));
	frame.resize(end);
	const std::uint32_t damage = stored ^ icrc(frame, false);

	frame[ip + 4] = static_cast<std::uint8_t>(id >> 8);
	frame[ip + 5] = static_cast<std::uint8_t>(id);
	frame[ip + 6] = frame[ip + 7] = 0;
	put(frame, __builtin_bswap32(icrc(frame, false) ^ damage), 4);
	return frame;
}

/*
 * The IPv4 frame in fragments with that many bytes behind the header,
 * rounded up to a multiple of 8.
 */
inline std::vector<Bytes> fragments(const Bytes &frame, std::size_t bytes, std::uint16_t id)
{
	constexpr std::size_t header = ethernet_bytes + 20;
	const std::size_t step = (bytes + 8) & ~std::size_t{7};
	std::vector<Bytes> pieces;

	for (std::size_t at = header; at < frame.size(); at += step) {
		const std::size_t length = std::min(step, frame.size() - at);
		const bool more = at + length < frame.size();
		const std::uint64_t place = (at - header) / 8 | (more ? 0x2000 : 0);
		Bytes piece(frame.begin(), frame.begin() + ethernet_bytes);

		put(piece, 0x45000000 | (20 + length), 4);
		put(piece, std::uint64_t{id} << 16 | place, 4);
		put(piece, 0x40110000, 4);
		put(piece, std::span(frame).subspan(ethernet_bytes + 12, 8));
		const std::uint16_t sum = ip_checksum(std::span(piece).subspan(ethernet_bytes));
		piece[ethernet_bytes + 10] = static_cast<std::uint8_t>(sum >> 8);
		piece[ethernet_bytes + 11] = static_cast<std::uint8_t>(sum);
		put(piece, std::span(frame).subspan(at, length));
		pieces.push_back(std::move(piece));
	}
	return pieces;
}

/* The IPv4 frame in an ESP packet of transport mode with the null cipher (RFC 4303, RFC 2410). */
inline Bytes in_esp(const Bytes &frame, std::uint32_t spi)
{
	constexpr std::size_t ip = ethernet_bytes, udp = ip + 20;
	const std::span<const std::uint8_t> inner = std::span(frame).subspan(udp);
	const std::size_t pad = -(inner.size() + 2) & 3;
	Bytes esp(frame.begin(), frame.begin() + udp);

	put(esp, spi, 4);
	put(esp, 1, 4);
	put(esp, inner);
	for (std::size_t i = 1; i <= pad; i++)
		put(esp, i, 1);
	put(esp, pad, 1);
	put(esp, 17, 1);
	esp[ip + 2] = static_cast<std::uint8_t>((esp.size() - ip) >> 8);
	esp[ip + 3] = static_cast<std::uint8_t>(esp.size() - ip);
	esp[ip + 9] = 50;
	esp[ip + 10] = esp[ip + 11] = 0;
	const std::uint16_t sum = ip_checksum(std::span(esp).subspan(ip, 20));
	esp[ip + 10] = static_cast<std::uint8_t>(sum >> 8);
	esp[ip + 11] = static_cast<std::uint8_t>(sum);
	return esp;
}

/* A socket that sends frames unchanged on this netdev. */
inline int packet_socket(const std::string &netdev)
{
	const int fd = socket(AF_PACKET, SOCK_RAW, 0);
	sockaddr_ll where{};

	where.sll_family = AF_PACKET;
	where.sll_ifindex = static_cast<int>(if_nametoindex(netdev.c_str()));
	if (fd < 0 || bind(fd, reinterpret_cast<sockaddr *>(&where), sizeof(where)))
		throw std::runtime_error("cannot open a raw socket on " + netdev);
	return fd;
}

/* The description of a frame (Virtio 1.1, 5.1.6). The header <linux/virtio_net.h> is not C++. */
struct FrameClaim {
	std::uint8_t flags = 0, train = 0;
	std::uint16_t header_bytes = 0, piece_bytes = 0, sum_start = 0, sum_offset = 0;
};

constexpr std::uint8_t claim_needs_sum = 1, claim_tcp_train = 1, claim_udp_train = 3;

/* Sends single frames on a netdev that claim to be trains of packets, in pages. */
class TrainSocket {
	int fd_;

public:
	explicit TrainSocket(const std::string &netdev) : fd_(packet_socket(netdev))
	{
		const int with_header = 1;

		if (setsockopt(fd_, SOL_PACKET, PACKET_VNET_HDR, &with_header, sizeof(with_header)))
			throw std::runtime_error("cannot open a socket for trains");
	}
	TrainSocket(const TrainSocket &) = delete;
	TrainSocket &operator=(const TrainSocket &) = delete;
	~TrainSocket() { close(fd_); }

	/* The kernel may refuse the claim. Return: false if it did. */
	bool send(FrameClaim claim, Bytes &frame)
	{
		const std::array<iovec, 2> pieces{iovec{&claim, sizeof(claim)},
						  iovec{frame.data(), frame.size()}};

		return writev(fd_, pieces.data(), static_cast<int>(pieces.size())) >= 0;
	}
};

/* Sends frames on a netdev. */
class RawSocket {
	int fd_;

public:
	explicit RawSocket(const std::string &netdev) : fd_(packet_socket(netdev))
	{
		const int bypass = 1;

		setsockopt(fd_, SOL_PACKET, PACKET_QDISC_BYPASS, &bypass, sizeof(bypass));
	}
	RawSocket(const RawSocket &) = delete;
	RawSocket &operator=(const RawSocket &) = delete;
	~RawSocket() { close(fd_); }

	void send(std::span<Bytes> frames)
	{
		std::vector<mmsghdr> messages(frames.size());
		std::vector<iovec> pieces(frames.size());
		std::size_t sent = 0;

		for (std::size_t i = 0; i < frames.size(); i++) {
			pieces[i] = {frames[i].data(), frames[i].size()};
			messages[i].msg_hdr.msg_iov = &pieces[i];
			messages[i].msg_hdr.msg_iovlen = 1;
		}
		while (sent < frames.size()) {
			const int n = sendmmsg(fd_, &messages[sent],
					       static_cast<unsigned>(frames.size() - sent), 0);

			if (n < 0 && errno != ENOBUFS && errno != EAGAIN && errno != EINTR)
				throw std::runtime_error(std::string("sendmmsg: ") +
							 std::strerror(errno));
			sent += n > 0 ? static_cast<std::size_t>(n) : 0;
		}
	}
};

/* ---- the forged peer: 10.77.0.2 and fd77::2, on veth1 ---- */

inline ibv_gid gid_of(const char *text)
{
	const auto bytes = address(text);
	ibv_gid gid{};

	if (std::strchr(text, ':')) {
		std::memcpy(gid.raw, bytes.data(), 16);
	} else {
		gid.raw[10] = gid.raw[11] = 0xff;
		std::memcpy(gid.raw + 12, bytes.data(), 4);
	}
	return gid;
}

inline void run_command(const std::string &command)
{
	if (std::system(command.c_str()))
		throw std::runtime_error("failed: " + command);
}

/* The forged peer's addresses resolve, and veth0 takes no trains, so each packet is a frame. */
inline void make_neighbours()
{
	std::string address;
	std::ifstream("/sys/class/net/veth1/address") >> address;

	for (const char *peer : {"10.77.0.2", "fd77::2"})
		run_command(std::string("ip neighbour replace ") + peer + " lladdr " + address +
			    " nud permanent dev veth0");
	run_command("ethtool -K veth0 tx-udp-segmentation off");
	/* Fragments that wait for others do not stay for long. */
	run_command("sysctl -qw net.ipv4.ipfrag_time=1 net.ipv6.ip6frag_time=1");
}

} // namespace peal_test
