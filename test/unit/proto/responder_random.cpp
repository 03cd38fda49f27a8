// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A peer that sends anything, and a host that decides anything.
 *
 * Holds: In-order packets are executed once each, kept packets are given back once each, and a
 * responder may send each of the replies, for any packets that arrive.
 */
#include <set>

#include "responder.hpp"

using namespace peal::test;

namespace {

class Hostile {
	Random &random_;
	Responder r_;
	std::set<Request *> kept_;

	std::uint32_t near_psn()
	{
		const std::uint32_t spread = random_.one_in(50) ? PEAL_PSN_MASK + 1 : 12;

		return r_->psn + random_.below(spread) - random_.below(6);
	}
	Request anything()
	{
		const std::uint32_t bytes[] = {0, 1, MTU - 1, MTU, MTU + 1};
		const unsigned opcode = random_.below(32);
		const bool payload = peal_wire_opcode(opcode)->has & PEAL_HAS_PAYLOAD;

		return rc(opcode, near_psn(), payload ? bytes[random_.below(5)] : 0)
			.at(random_.below(8) * MTU, random_.below(5 * MTU), random_.below(2));
	}
	/* A request that the responder's state allows next, so that the run makes progress. */
	Request plausible(std::uint32_t psn)
	{
		const bool last = r_->operation && r_->offset >= 3 * MTU;

		if (r_->operation == PEAL_OP_SEND)
			return rc(last ? PEAL_WIRE_SEND_LAST : PEAL_WIRE_SEND_MIDDLE, psn, MTU);
		if (r_->operation == PEAL_OP_WRITE)
			return rc(last ? PEAL_WIRE_WRITE_LAST_IMM : PEAL_WIRE_WRITE_MIDDLE, psn,
				  MTU);
		switch (random_.below(5)) {
		case 0:
			return rc(PEAL_WIRE_SEND_FIRST, psn, MTU);
		case 1:
			return rc(PEAL_WIRE_WRITE_FIRST, psn, MTU).at(0, 4 * MTU);
		case 2:
			return read_request(psn, 0, random_.below(4 * MTU));
		case 3:
			return atomic_request(psn, 0);
		default:
			return rc(PEAL_WIRE_SEND_ONLY, psn, random_.below(MTU + 1));
		}
	}
	Request next_request()
	{
		Request packet = random_.one_in(60)  ? anything()
				 : random_.one_in(3) ? plausible(near_psn())
						     : plausible(r_->psn);

		packet.ack_request = random_.one_in(4);
		return packet;
	}
	peal_verdict any_verdict()
	{
		if (random_.one_in(8))
			return PEAL_VERDICT_NOT_READY;
		return random_.one_in(200) ? PEAL_VERDICT_ACCESS : PEAL_VERDICT_DONE;
	}
	/* Return: whether the packet may be freed. */
	bool give(Request *packet)
	{
		const std::uint32_t expected = r_->psn;
		const peal_request request = r_.give(*packet, packet);

		if (request.what == PEAL_REQUEST_KEPT)
			return false;
		if (request.what != PEAL_REQUEST_EXECUTE) {
			REQUIRE(r_->psn == expected);
			return true;
		}
		REQUIRE(packet->psn == expected);
		REQUIRE(request.bytes <= MTU);
		if (request.operation != PEAL_OP_SEND)
			REQUIRE(request.length <= PEAL_MAX_MSG);

		const peal_verdict verdict = any_verdict();

		r_.done(verdict, 42);
		REQUIRE((r_->psn != expected) == (verdict == PEAL_VERDICT_DONE));
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
		while (void *handle = r_.take_reordered()) {
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
		REQUIRE(peal_psn_distance(parsed.psn, r_->psn) >= 0);
		REQUIRE(parsed.payload_bytes <= MTU);
	}
	void replies(unsigned most)
	{
		for (peal_reply reply; most-- && r_.next(reply);) {
			check(reply);
			if (reply.read && random_.one_in(500))
				peal_responder_refuse_read(r_.get());
		}
	}

public:
	explicit Hostile(Random &random) : random_(random), r_(random.bits(), random.below(6)) {}
	~Hostile()
	{
		while (void *handle = peal_reorder_drop(&r_->reorder)) {
			kept_.erase(static_cast<Request *>(handle));
			delete static_cast<Request *>(handle);
		}
		CHECK(kept_.empty());
	}
	void step()
	{
		keep_or_free(new Request(next_request()));
		take_reordered();
		REQUIRE(r_->reorder.count == kept_.size());
		REQUIRE(r_->saved <= r_->config.rd_atomic);
		if (random_.one_in(3))
			replies(random_.below(20));
		if (random_.one_in(10)) {
			r_.now += random_.below(200000);
			peal_responder_expire(r_.get(), r_.now);
		}
	}
	bool over() { return r_->fatal; }
};

} // namespace

TEST_CASE("a responder survives anything", "[responder]")
{
	Random random("responder");

	for (int round = 0; round < 3000 / SLOWER; ++round) {
		Hostile hostile(random);

		for (int i = 0; i < 300 && !hostile.over(); ++i)
			hostile.step();
		hostile.step();
	}
}
