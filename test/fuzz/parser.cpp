// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Feeds any bytes to the packet parser.
 *
 * Holds: Nothing behind the readable bytes is read. A packet that is taken has lengths
 * that add up, and builds to the same bytes again. A packet that is refused is malformed.
 */
#include <algorithm>
#include <memory>

#include "support.hpp"

using namespace peal::fuzz;

namespace {

/* Exactly this many bytes on the heap, so that the address sanitizer sees a read of one more. */
std::unique_ptr<std::uint8_t[]> copy_of(const std::uint8_t *data, std::size_t bytes)
{
	auto copy = std::make_unique<std::uint8_t[]>(bytes);

	std::copy_n(data, bytes, copy.get());
	return copy;
}

/* Clears what a receiver ignores (IBTA 9.2, 9.3.3), because it is not sent again. */
void clear_reserved(std::uint8_t *bytes, std::uint32_t has)
{
	bytes[4] &= 0xc0;
	bytes[8] &= 0x80;
	if (has & PEAL_HAS_DETH)
		bytes[PEAL_BTH_BYTES + 4] = 0;
	if (has & PEAL_HAS_XRCETH)
		bytes[PEAL_BTH_BYTES] = 0;
	if (has & PEAL_HAS_RESERVED)
		std::fill_n(bytes + PEAL_BTH_BYTES, PEAL_CNP_RESERVED, std::uint8_t{0});
	if (has & PEAL_HAS_FETH) {
		auto *feth = bytes + PEAL_BTH_BYTES + (has & PEAL_HAS_XRCETH ? 4 : 0);

		std::fill_n(feth, 3, std::uint8_t{0});
		feth[3] &= 0x3f;
	}
}

void check_taken(const std::uint8_t *data, std::uint32_t linear, std::uint32_t total,
		 const peal_packet &packet)
{
	const auto *wire = peal_packet_opcode(&packet);
	std::uint8_t built[PEAL_HEADERS_MAX], wanted[PEAL_HEADERS_MAX];
	peal_packet again;

	MUST(wire->has && packet.opcode == data[0]);
	MUST(packet.header_bytes == wire->header_bytes && packet.header_bytes <= linear);
	MUST(packet.header_bytes + packet.payload_bytes + packet.pad + PEAL_ICRC_BYTES == total);
	MUST((packet.payload_bytes + packet.pad) % 4 == 0);
	MUST(wire->has & PEAL_HAS_PAYLOAD || packet.payload_bytes + packet.pad == 0);
	MUST(packet.psn <= PEAL_PSN_MASK && packet.qpn <= 0xffffff && packet.msn <= 0xffffff);
	MUST(packet.src_qpn <= 0xffffff && packet.srqn <= 0xffffff);

	MUST(peal_packet_build(&packet, built) == packet.header_bytes);
	std::copy_n(data, packet.header_bytes, wanted);
	clear_reserved(wanted, wire->has);
	MUST(!std::memcmp(built, wanted, packet.header_bytes));
	MUST(peal_packet_parse(built, packet.header_bytes, total, &again) == PEAL_DROP_none);
	MUST(!std::memcmp(&again, &packet, sizeof(packet)));
}

void check_refused(const std::uint8_t *data, std::uint32_t linear, std::uint32_t total,
		   peal_drop why)
{
	const std::uint32_t needs = linear ? peal_wire_opcode(data[0])->header_bytes : 0;

	switch (why) {
	case PEAL_DROP_short:
		MUST(total < std::max<std::uint32_t>(needs, PEAL_BTH_BYTES) + PEAL_ICRC_BYTES);
		break;
	case PEAL_DROP_version:
		MUST(data[1] & 0x0f);
		break;
	case PEAL_DROP_opcode:
		MUST(!needs);
		break;
	case PEAL_DROP_pad:
		MUST(needs && total >= needs + PEAL_ICRC_BYTES);
		break;
	default:
		MUST(!"a reason that the parser cannot know");
	}
}

/* Parses the bytes as they are, and again with only the headers readable. */
void parse(const std::uint8_t *data, std::uint32_t linear, std::uint32_t total)
{
	const auto bytes = copy_of(data, linear);
	peal_packet packet;
	const peal_drop why = peal_packet_parse(bytes.get(), linear, total, &packet);

	if (why == PEAL_DROP_none)
		check_taken(data, linear, total, packet);
	else
		check_refused(data, linear, total, why);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
	const auto total = static_cast<std::uint32_t>(size);

	parse(data, total, total);
	if (total > PEAL_HEADERS_MAX) {
		parse(data, PEAL_HEADERS_MAX, total);
		/* A packet that is longer than its readable bytes. */
		parse(data, PEAL_HEADERS_MAX, total * 16);
	}
	return 0;
}
