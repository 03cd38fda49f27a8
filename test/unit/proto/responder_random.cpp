// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A peer that sends anything, and a host that decides anything.
 *
 * Holds: In-order packets are executed once each, kept packets are given back once each, and a
 * responder may send each of the replies, for any packets that arrive.
 */
#include <set>

#include "script.hpp"

using namespace peal::test;

namespace {

constexpr u8 DONE = PEAL_SYNDROME_ACK;
constexpr u8 REFUSED = 0 + PEAL_SYNDROME_NAK + PEAL_NAK_REMOTE_ACCESS;

struct Request : peal_packet {
	Request(unsigned wire, std::uint32_t number, std::uint32_t bytes) : peal_packet{}
	{
		opcode = static_cast<std::uint8_t>(wire);
		psn = number & PEAL_PSN_MASK;
		payload_bytes = bytes;
		pad = -bytes & 3;
	}
	Request at(std::uint64_t address, std::uint32_t bytes, std::uint32_t key = 7) const
	{
		Request copy = *this;

		copy.remote_addr = address;
		copy.length = bytes;
		copy.rkey = key;
		return copy;
	}
};

/* What a good requester would send next, and what it has sent. */
struct Peer {
	std::uint32_t psn;
	char family = 0; /* of the message that has begun: 's'END, 'w'RITE or 0 */
	std::uint64_t sent = 0;

	void executed(const peal_request &request)
	{
		const bool read = request.wqe.opcode == PEAL_OP_READ;
		const auto packets =
			read ? std::max<std::uint64_t>(1, (request.wqe.length + MTU - 1) / MTU) : 1;

		psn = peal_psn_add(psn, static_cast<std::uint32_t>(packets));
		sent = request.last ? 0 : request.offset + request.bytes;
		family = request.last ? 0 : request.wqe.opcode == PEAL_OP_SEND ? 's' : 'w';
	}
};

class Hostile {
	static constexpr std::uint32_t MOST_RESOURCES = 6;

	Random &random_;
	peal_resource resources_[MOST_RESOURCES] = {};
	std::unique_ptr<peal_responder> responder_ = std::make_unique<peal_responder>();
	std::uint64_t now_ = 1 * MS;
	Peer peer_;
	bool over_ = false;
	std::set<Request *> kept_;

	std::uint32_t near_psn()
	{
		const std::uint32_t spread = random_.one_in(50) ? PEAL_PSN_MASK + 1 : 12;

		return peer_.psn + random_.below(spread) - random_.below(6);
	}
	Request anything()
	{
		const std::uint32_t bytes[] = {0, 1, MTU - 1, MTU, MTU + 1};
		const unsigned opcode = random_.below(32);
		const bool payload = peal_wire_opcode(opcode)->has & PEAL_HAS_PAYLOAD;

		return Request(opcode, near_psn(), payload ? bytes[random_.below(5)] : 0)
			.at(random_.below(8) * MTU, random_.below(5 * MTU), random_.below(2));
	}
	/* A request that the responder's state allows next, so that the run makes progress. */
	Request plausible(std::uint32_t psn)
	{
		const bool last = peer_.sent >= 3 * MTU;

		if (peer_.family == 's')
			return Request(last ? PEAL_WIRE_SEND_LAST : PEAL_WIRE_SEND_MIDDLE, psn,
				       MTU);
		if (peer_.family == 'w')
			return Request(last ? PEAL_WIRE_WRITE_LAST_IMM : PEAL_WIRE_WRITE_MIDDLE,
				       psn, MTU);
		switch (random_.below(5)) {
		case 0:
			return Request(PEAL_WIRE_SEND_FIRST, psn, MTU);
		case 1:
			return Request(PEAL_WIRE_WRITE_FIRST, psn, MTU).at(0, 4 * MTU);
		case 2:
			return Request(PEAL_WIRE_READ_REQUEST, psn, 0)
				.at(0, random_.below(4 * MTU));
		case 3:
			return Request(PEAL_WIRE_FETCH_ADD, psn, 0).at(0, 0);
		default:
			return Request(PEAL_WIRE_SEND_ONLY, psn, random_.below(MTU + 1));
		}
	}
	Request next_request()
	{
		Request packet = random_.one_in(60)  ? anything()
				 : random_.one_in(3) ? plausible(near_psn())
						     : plausible(peer_.psn);

		packet.ack_request = random_.one_in(4);
		return packet;
	}
	u8 any_verdict()
	{
		if (random_.one_in(8))
			return PEAL_SYNDROME_RNR + 12;
		return random_.one_in(200) ? REFUSED : DONE;
	}
	/* Return: whether the packet may be freed. */
	bool give(Request *packet)
	{
		peal_request request;

		peal_responder_receive(responder_.get(), packet, now_, packet, &request);
		over_ |= request.what == PEAL_REQUEST_ANSWERED && request.fatal;
		if (request.what == PEAL_REQUEST_KEPT)
			return false;
		if (request.what != PEAL_REQUEST_EXECUTE)
			return true;
		REQUIRE(packet->psn == peer_.psn);
		REQUIRE(request.bytes <= MTU);
		if (request.wqe.opcode != PEAL_OP_SEND)
			REQUIRE(request.wqe.length <= PEAL_MAX_MSG);

		const u8 verdict = any_verdict();

		peal_responder_done(responder_.get(), verdict, 42, now_);
		over_ |= verdict == REFUSED;
		if (verdict == DONE)
			peer_.executed(request);
		return true;
	}
	void keep_or_free(Request *packet)
	{
		if (give(packet))
			delete packet;
		else
			REQUIRE(kept_.insert(packet).second);
	}
	void take_reordered()
	{
		while (void *handle = peal_responder_take_reordered(responder_.get())) {
			auto *packet = static_cast<Request *>(handle);

			REQUIRE(kept_.erase(packet) == 1);
			keep_or_free(packet);
		}
	}
	void check(const peal_reply &reply)
	{
		std::uint8_t bytes[PEAL_HEADERS_MAX];
		peal_packet parsed;
		const std::uint32_t length = peal_packet_build(&reply.header, bytes);
		const std::uint32_t payload = reply.header.payload_bytes + reply.header.pad;

		REQUIRE(peal_packet_parse(bytes, length, length + payload + 4, &parsed) ==
			PEAL_DROP_none);
		REQUIRE(peal_packet_opcode(&parsed)->has & PEAL_HAS_RESPONSE);
		REQUIRE(peal_psn_distance(parsed.psn, peer_.psn) >= 0);
		REQUIRE(parsed.payload_bytes <= MTU);
	}
	void replies(unsigned most)
	{
		for (peal_reply reply;
		     most-- && peal_responder_next(responder_.get(), 1, &reply);) {
			check(reply);
			if (reply.read && random_.one_in(500)) {
				peal_responder_refuse_read(responder_.get());
				over_ = true;
			}
		}
	}

public:
	explicit Hostile(Random &random)
		: random_(random), peer_{static_cast<std::uint32_t>(random.bits() & PEAL_PSN_MASK)}
	{
		const peal_responder_config config = {
			.transport = PEAL_RC,
			.mtu_shift = 8,
			.rd_atomic = static_cast<std::uint8_t>(random.below(MOST_RESOURCES)),
			.reorder_ns = KEEP,
		};

		peal_responder_init(responder_.get(), resources_, MOST_RESOURCES);
		peal_responder_configure(responder_.get(), &config);
		peal_responder_set_psn(responder_.get(), peer_.psn);
	}
	~Hostile()
	{
		while (void *handle = peal_reorder_drop(&responder_->reorder)) {
			kept_.erase(static_cast<Request *>(handle));
			delete static_cast<Request *>(handle);
		}
		CHECK(kept_.empty());
	}
	void step()
	{
		keep_or_free(new Request(next_request()));
		take_reordered();
		if (random_.one_in(3))
			replies(random_.below(20));
		if (random_.one_in(10)) {
			now_ += random_.below(200000);
			peal_responder_expire(responder_.get(), now_);
		}
	}
	bool over() const { return over_; }
};

} // namespace

TEST_CASE("a responder survives anything", "[random]")
{
	Random random("responder");

	for (int round = 0; round < 3000 / SLOWER; ++round) {
		Hostile hostile(random);

		for (int i = 0; i < 300 && !hostile.over(); ++i)
			hostile.step();
		hostile.step();
	}
}
