// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "dump_packet.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <stdexcept>
#include <vector>

#include <arpa/inet.h>
#include <nlohmann/json.hpp>

#include "formatted.hpp"
#include "roce.hpp"

namespace peal::tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t ETHERNET = 14, VLAN_TAG = 4, IPV4 = 20, IPV6 = 40, UDP = 8, BTH = 12,
		      ICRC = 4;
constexpr unsigned CNP = 0x81, CHALLENGE = 0xc0, CNP_RESERVED = 16;

/* The extended headers of an opcode. They lie behind the BTH in this order (IBTA 9.2, A19). */
enum Header : unsigned {
	FETH = 1,
	RETH = 2,
	ATOMIC = 4,
	AETH = 8,
	ATOMIC_ACK = 16,
	IMM = 32,
	IETH = 64,
};

/* The upper three bits of the opcode, and what responses have in the others. */
constexpr unsigned UD = 3, XRC = 5, FIRST_RESPONSE = 13, LAST_RESPONSE = 18;

struct OpcodeFacts {
	const char *name; /* nullptr: no packet has the number */
	unsigned headers;
};

/* By the lower five bits of the opcode (IBTA 9.2.1, table 38, and A19). */
constexpr std::array<OpcodeFacts, 32> opcode_facts{{
	{"SEND_FIRST", 0},
	{"SEND_MIDDLE", 0},
	{"SEND_LAST", 0},
	{"SEND_LAST_IMM", IMM},
	{"SEND_ONLY", 0},
	{"SEND_ONLY_IMM", IMM},
	{"WRITE_FIRST", RETH},
	{"WRITE_MIDDLE", 0},
	{"WRITE_LAST", 0},
	{"WRITE_LAST_IMM", IMM},
	{"WRITE_ONLY", RETH},
	{"WRITE_ONLY_IMM", RETH | IMM},
	{"READ_REQUEST", RETH},
	{"READ_RESPONSE_FIRST", AETH},
	{"READ_RESPONSE_MIDDLE", 0},
	{"READ_RESPONSE_LAST", AETH},
	{"READ_RESPONSE_ONLY", AETH},
	{"ACKNOWLEDGE", AETH},
	{"ATOMIC_ACKNOWLEDGE", AETH | ATOMIC_ACK},
	{"COMPARE_SWAP", ATOMIC},
	{"FETCH_ADD", ATOMIC},
	{nullptr, 0},
	{"SEND_LAST_INV", IETH},
	{"SEND_ONLY_INV", IETH},
	{nullptr, 0},
	{nullptr, 0},
	{nullptr, 0},
	{nullptr, 0},
	{"FLUSH", FETH | RETH},
	{"ATOMIC_WRITE", RETH},
	{nullptr, 0},
	{nullptr, 0},
}};

struct Transport {
	unsigned number; /* the upper three bits of the opcode */
	const char *name;
};

constexpr std::array<Transport, 4> transports{{{0, "RC"}, {1, "UC"}, {UD, "UD"}, {XRC, "XRC"}}};

/* Reads from the front. Throws std::out_of_range. */
class Reader {
public:
	explicit Reader(Frame bytes) : bytes(bytes) {}

	std::uint64_t number(std::size_t size)
	{
		std::uint64_t value = 0;

		for (const auto byte : take(size))
			value = value << 8 | byte;
		return value;
	}
	Frame take(std::size_t size)
	{
		if (size > bytes.size())
			throw std::out_of_range("the packet is too short");
		const auto front = bytes.first(size);

		bytes = bytes.subspan(size);
		return front;
	}
	std::size_t left() const { return bytes.size(); }

private:
	Frame bytes;
};

std::string address_of(Frame bytes)
{
	std::array<char, INET6_ADDRSTRLEN> text{};

	inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text.data(), text.size());
	return text.data();
}

/* IBTA 9.7.5.1. */
std::string response_of(unsigned syndrome)
{
	constexpr std::array<const char *, 5> naks{"sequence", "invalid request", "remote access",
						   "remote operation", "invalid RD request"};
	const unsigned kind = syndrome >> 5 & 3, value = syndrome & 31;

	if (kind == 0)
		return "ack";
	if (kind == 1)
		return formatted("rnr, timer {}", value);
	if (kind == 3 && value < naks.size())
		return formatted("nak, {}", naks[value]);
	return formatted("syndrome {:#x}", syndrome);
}

std::uint32_t crc_of(Frame bytes, std::uint32_t crc)
{
	for (const auto byte : bytes) {
		crc ^= byte;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320U : 0);
	}
	return crc;
}

/* Is the ICRC right (IBTA A17.3.3)? What routers may change counts as ones. */
bool icrc_is_right(Frame ip, Frame udp)
{
	std::vector<std::uint8_t> bytes(8, 0xff);
	const bool ipv6 = ip.size() == IPV6;
	std::uint32_t icrc = 0;

	bytes.insert(bytes.end(), ip.begin(), ip.end());
	bytes.insert(bytes.end(), udp.begin(), udp.end() - ICRC);
	auto *header = bytes.data() + 8;
	if (ipv6) {
		header[0] |= 0x0f;
		std::fill_n(header + 1, 3, 0xff);
		header[7] = 0xff;
	} else {
		header[1] = header[8] = header[10] = header[11] = 0xff;
	}
	header += ip.size();
	header[6] = header[7] = 0xff; /* the UDP checksum */
	header[UDP + 4] = 0xff;	      /* FECN, BECN and reserved bits */
	for (std::size_t i = 0; i < ICRC; i++)
		icrc |= std::uint32_t{udp[udp.size() - ICRC + i]} << 8 * i;
	return icrc == ~crc_of(bytes, 0xffffffff);
}

void read_headers(DumpPacket &packet, Reader &reader, unsigned opcode, unsigned headers)
{
	const auto operation = opcode & 31;

	if (opcode >> 5 == XRC && (operation < FIRST_RESPONSE || operation > LAST_RESPONSE))
		reader.take(4); /* XRCETH */
	if (opcode >> 5 == UD) {
		reader.take(5);
		packet.source_qpn = reader.number(3);
	}
	if (headers & FETH)
		reader.take(4);
	if (headers & (RETH | ATOMIC)) {
		packet.address = reader.number(8);
		packet.key = reader.number(4);
	}
	if (headers & RETH)
		packet.length = reader.number(4);
	if (headers & ATOMIC)
		reader.take(16);
	if (headers & AETH) {
		packet.response = response_of(static_cast<unsigned>(reader.number(1)));
		reader.take(3);
	}
	if (headers & ATOMIC_ACK)
		reader.take(8);
	if (headers & IMM)
		packet.immediate = reader.number(4);
	if (headers & IETH)
		packet.invalidates = reader.number(4);
}

/* Behind the UDP header. */
void read_bth(DumpPacket &packet, Reader reader)
{
	const auto opcode = static_cast<unsigned>(reader.number(1)),
		   flags = static_cast<unsigned>(reader.number(1));
	const auto &operation = opcode_facts[opcode & 31];
	const auto transport = std::ranges::find(transports, opcode >> 5, &Transport::number);

	reader.take(3);
	packet.qpn = static_cast<std::uint32_t>(reader.number(3));
	packet.asks_ack = reader.number(1) & 0x80;
	packet.psn = static_cast<std::uint32_t>(reader.number(3));
	packet.solicited = flags & 0x80;
	packet.opcode = formatted("opcode {:#x}", opcode);
	if (opcode == CNP) {
		packet.opcode = "CNP";
		reader.take(CNP_RESERVED);
	} else if (opcode == CHALLENGE) {
		packet.opcode = "CHALLENGE";
	} else if (transport != transports.end() && operation.name) {
		packet.opcode = formatted("{} {}", transport->name, operation.name);
		read_headers(packet, reader, opcode, operation.headers);
	}
	const auto pad = flags >> 4 & 3;

	if (reader.left() < ICRC + pad)
		throw std::out_of_range("the packet is too short");
	packet.bytes = reader.left() - ICRC - pad;
}

/* Return: the local time as HH:MM:SS.microseconds. */
std::string clock_of(Nanoseconds time)
{
	const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
	const std::time_t now = seconds.count();
	std::array<char, 16> text{};
	std::tm parts{};

	localtime_r(&now, &parts);
	std::strftime(text.data(), text.size(), "%H:%M:%S", &parts);
	return formatted("{}.{:06}", text.data(), (time - seconds).count() / 1000);
}

/* In the order of the machine, which the first word of the file tells. */
void append(std::string &bytes, auto value)
{
	const auto *from = reinterpret_cast<const char *>(&value);

	bytes.append(from, sizeof(value));
}

} /* namespace */

std::optional<DumpPacket> read_packet(Frame frame)
{
	DumpPacket packet;
	Reader reader(frame);
	Frame ip;

	try {
		reader.take(ETHERNET - 2);
		auto type = reader.number(2);
		if (type == 0x8100 || type == 0x88a8) {
			reader.take(VLAN_TAG - 2);
			type = reader.number(2);
		}
		if (type != 0x0800 && type != 0x86dd)
			return {};
		ip = reader.take(type == 0x0800 ? IPV4 : IPV6);
		/* No RoCEv2 packet has options or extension headers. */
		if (type == 0x0800 ? ip[0] != 0x45 || ip[9] != IPPROTO_UDP : ip[6] != IPPROTO_UDP)
			return {};
		const auto addresses = ip.subspan(type == 0x0800 ? 12 : 8);

		packet.from = address_of(addresses.first(addresses.size() / 2));
		packet.to = address_of(addresses.subspan(addresses.size() / 2));
		auto rest = reader;

		rest.take(2);
		if (rest.number(2) != ROCE_PORT)
			return {};
		const auto length = rest.number(2);
		const auto udp = reader.take(length);

		if (length < UDP + BTH + ICRC)
			return {};
		packet.whole = icrc_is_right(ip, udp);
		read_bth(packet, Reader(udp.subspan(UDP)));
	} catch (const std::out_of_range &) {
		if (packet.to.empty() || packet.opcode.empty())
			return {};
		packet.whole = false;
	}
	return packet;
}

std::string packet_line(Nanoseconds time, const DumpPacket &packet)
{
	auto line = formatted("{} {} > {} qp {} {} psn {}", clock_of(time), packet.from, packet.to,
			      packet.qpn, packet.opcode, packet.psn);

	if (packet.response)
		line += formatted(" {}", *packet.response);
	if (packet.bytes)
		line += formatted(" bytes {}", packet.bytes);
	if (packet.source_qpn)
		line += formatted(" from qp {}", *packet.source_qpn);
	if (packet.address)
		line += formatted(" address {:#x} key {:#x}", *packet.address, *packet.key);
	if (packet.length)
		line += formatted(" length {}", *packet.length);
	if (packet.immediate)
		line += formatted(" imm {:#x}", *packet.immediate);
	if (packet.invalidates)
		line += formatted(" invalidates {:#x}", *packet.invalidates);
	if (!packet.whole)
		line += " damaged";
	return line + "\n";
}

std::string packet_json(Nanoseconds time, const DumpPacket &packet)
{
	const auto or_null = [](const auto &value) { return value ? Json(*value) : Json(); };
	const Json json{{"time", time.count()},
			{"from", packet.from},
			{"to", packet.to},
			{"qp", packet.qpn},
			{"opcode", packet.opcode},
			{"psn", packet.psn},
			{"response", or_null(packet.response)},
			{"bytes", packet.bytes},
			{"from_qp", or_null(packet.source_qpn)},
			{"address", or_null(packet.address)},
			{"key", or_null(packet.key)},
			{"length", or_null(packet.length)},
			{"imm", or_null(packet.immediate)},
			{"invalidates", or_null(packet.invalidates)},
			{"ack_request", packet.asks_ack},
			{"solicited", packet.solicited},
			{"damaged", !packet.whole}};

	return json.dump() + "\n";
}

std::string capture_head(std::uint32_t snaplen)
{
	std::string head;

	append(head, std::uint32_t{0xa1b23c4d});
	append(head, std::uint16_t{2});
	append(head, std::uint16_t{4});
	append(head, std::uint64_t{0}); /* time zone and accuracy, which are never used */
	append(head, snaplen);
	append(head, std::uint32_t{1}); /* Ethernet */
	return head;
}

std::string capture_record(Nanoseconds time, Frame frame, std::uint32_t snaplen)
{
	const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
	const auto kept = frame.first(std::min<std::size_t>(frame.size(), snaplen));
	std::string record;

	append(record, static_cast<std::uint32_t>(seconds.count()));
	append(record, static_cast<std::uint32_t>((time - seconds).count()));
	append(record, static_cast<std::uint32_t>(kept.size()));
	append(record, static_cast<std::uint32_t>(frame.size()));
	record.append(reinterpret_cast<const char *>(kept.data()), kept.size());
	return record;
}

} /* namespace peal::tool */
