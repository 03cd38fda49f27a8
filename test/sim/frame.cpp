// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See frame.hpp.
 */
#include "frame.hpp"

#include <array>
#include <cstring>

namespace peal::sim {

/* The CRC of Ethernet, with a table that is computed bit by bit, independently of the core's. */
static u32 own_crc(u32 crc, const u8 *bytes, size_t n)
{
	static const auto table = [] {
		std::array<u32, 256> t{};

		for (u32 i = 0; i < 256; i++) {
			u32 c = i;

			for (int bit = 0; bit < 8; bit++)
				c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
			t[i] = c;
		}
		return t;
	}();

	while (n--)
		crc = crc >> 8 ^ table[(crc ^ *bytes++) & 0xff];
	return crc;
}

/*
 * IBTA annex A17.3.3, implemented again. In a copy of the headers, fields that may change are ones.
 */
static u32 own_icrc(const Frame &frame)
{
	u8 head[40 + 8 + 12];
	u32 ip = frame.ip_bytes(), n = ip + 8 + 12;
	const u8 ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

	std::memcpy(head, frame.bytes.data(), n);
	if (frame.v6) {
		head[0] |= 0x0f;
		std::memset(head + 1, 0xff, 3);
		head[7] = 0xff;
	} else {
		head[1] = 0xff;
		head[8] = 0xff;
		std::memset(head + 10, 0xff, 2);
	}
	std::memset(head + ip + 6, 0xff, 2);
	head[ip + 8 + 4] = 0xff;
	return ~own_crc(own_crc(own_crc(~0U, ones, 8), head, n), frame.bytes.data() + n,
			frame.bytes.size() - n - 4);
}

static u32 core_icrc(const Frame &frame)
{
	const u8 *ip = frame.bytes.data(), *udp = ip + frame.ip_bytes(), *bth = udp + 8;
	__be32 head[PEAL_ICRC_HEAD_MOST / 4];
	u32 crc = peal_icrc_add(0, head, peal_icrc_head(head, frame.v6, ip, udp, bth));
	u32 done = frame.bth() + 12, rest = static_cast<u32>(frame.bytes.size()) - done - 4;
	u32 piece = rest / 3;

	crc = peal_icrc_add(crc, ip + done, piece);
	return peal_icrc_end(peal_icrc_add(crc, ip + done + piece, rest - piece));
}

u32 Frame::icrc(Code code) const
{
	return code == Code::CORE ? core_icrc(*this) : own_icrc(*this);
}

void Frame::seal(Code code)
{
	u32 crc = icrc(code);

	for (size_t i = 0; i < 4; i++)
		bytes[bytes.size() - 4 + i] = static_cast<u8>(crc >> 8 * i);
}

bool Frame::intact(Code code) const
{
	const u8 *end = bytes.data() + bytes.size();

	if (bytes.size() < bth() + 12 + 4)
		return false;
	return icrc(code) ==
	       (end[-4] | end[-3] << 8 | end[-2] << 16 | static_cast<u32>(end[-1]) << 24);
}

void Frame::set_flow(u16 flow)
{
	bytes[ip_bytes()] = static_cast<u8>(flow >> 8);
	bytes[ip_bytes() + 1] = static_cast<u8>(flow);
}

bool Frame::same(const Frame &other) const
{
	return peal_packet_same(&packet, &other.packet) &&
	       !std::memcmp(payload, other.payload, packet.payload_bytes);
}

void Frame::route(u64 bits)
{
	u8 noise[8];

	std::memcpy(noise, &bits, 8);
	if (v6) {
		bytes[0] = 0x60 | (noise[0] & 0x0f);
		std::memcpy(&bytes[1], noise + 1, 3);
		bytes[7] = noise[4];
	} else {
		bytes[1] = noise[0];
		bytes[8] = noise[1];
		std::memcpy(&bytes[10], noise + 2, 2);
	}
	std::memcpy(&bytes[ip_bytes() + 6], noise + 5, 2);
	bytes[bth() + 4] = noise[7];
}

enum peal_drop Frame::parse(bool headers_only)
{
	u32 total = static_cast<u32>(bytes.size()) - bth();
	u32 linear = headers_only && total > PEAL_HEADERS_MAX ? PEAL_HEADERS_MAX : total;
	/* A copy of exactly that size, so that a sanitizer sees a read behind it. */
	std::unique_ptr<u8[]> copy(new u8[linear]);
	enum peal_drop drop;

	std::memcpy(copy.get(), bytes.data() + bth(), linear);
	drop = peal_packet_parse(copy.get(), linear, total, &packet);
	packet.flow = static_cast<u16>(bytes[ip_bytes()] << 8 | bytes[ip_bytes() + 1]);
	payload = bytes.data() + bth() + packet.header_bytes;
	return drop;
}

static void put16(u8 *at, u32 value)
{
	at[0] = static_cast<u8>(value >> 8);
	at[1] = static_cast<u8>(value);
}

static void put_ip(Frame *frame)
{
	u8 *ip = frame->bytes.data();
	u32 length = static_cast<u32>(frame->bytes.size());

	if (frame->v6) {
		ip[0] = 0x60;
		put16(ip + 4, length - 40);
		ip[6] = 17;
		ip[7] = 64;
		ip[23] = static_cast<u8>(frame->from);
		ip[39] = static_cast<u8>(frame->to);
	} else {
		ip[0] = 0x45;
		put16(ip + 2, length);
		ip[8] = 64;
		ip[9] = 17;
		ip[15] = static_cast<u8>(frame->from);
		ip[19] = static_cast<u8>(frame->to);
	}
	put16(ip + frame->ip_bytes(), FLOW);
	put16(ip + frame->ip_bytes() + 2, PEAL_ROCE_PORT);
	put16(ip + frame->ip_bytes() + 4, length - frame->ip_bytes());
}

FramePtr make_frame(u32 from, u32 to, bool v6, const u8 *headers, u32 header_bytes,
		    u32 payload_bytes, u8 **payload)
{
	FramePtr frame = std::make_unique<Frame>();
	u32 pad = -payload_bytes & 3;

	frame->from = from;
	frame->to = to;
	frame->v6 = v6;
	frame->bytes.resize(frame->bth() + header_bytes + payload_bytes + pad + 4);
	std::memcpy(&frame->bytes[frame->bth()], headers, header_bytes);
	*payload = &frame->bytes[frame->bth() + header_bytes];
	put_ip(frame.get());
	return frame;
}

const char *opcode_name(u8 opcode)
{
	static const char *const names[32] = {
		"SEND_FIRST",	  "SEND_MIDDLE",   "SEND_LAST",
		"SEND_LAST_IMM",  "SEND_ONLY",	   "SEND_ONLY_IMM",
		"WRITE_FIRST",	  "WRITE_MIDDLE",  "WRITE_LAST",
		"WRITE_LAST_IMM", "WRITE_ONLY",	   "WRITE_ONLY_IMM",
		"READ_REQUEST",	  "READ_FIRST",	   "READ_MIDDLE",
		"READ_LAST",	  "READ_ONLY",	   "ACK",
		"ATOMIC_ACK",	  "CMP_SWAP",	   "FETCH_ADD",
		nullptr,	  "SEND_LAST_INV", "SEND_ONLY_INV",
		nullptr,	  nullptr,	   nullptr,
		nullptr,	  "FLUSH",	   "ATOMIC_WRITE",
	};
	const char *name = names[opcode & 31];

	return name ? name : "?";
}

} // namespace peal::sim
