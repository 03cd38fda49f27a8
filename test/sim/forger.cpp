// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See forger.hpp.
 */
#include "forger.hpp"

#include <cstring>

namespace peal::sim {

Forger::Forger(World &world, Network &network, Pair &a, Pair &b, bool reliable)
	: world_(world), network_(network), pairs_{&a, &b}, reliable_(reliable)
{
	Random &random = world.random;

	knows_flow_ = random.one_in(3);
	blind_ = static_cast<u32>(random.below(60));
	gap_ = random.pick<u64>({0, 10 * US, MS, 20 * MS});
	share_ = random.pick<u32>({20000, 100000, 300000});
}

void Forger::begin()
{
	if (blind_)
		world_.in(world_.random.below(gap_ + 1), this, 0);
}

/* Mostly a small distance, as far as out-of-order packets are kept, and sometimes any distance. */
u32 Forger::ahead()
{
	Random &random = world_.random;

	switch (random.below(8)) {
	case 0:
		return static_cast<u32>(random.below(0x1000000));
	case 1:
		return static_cast<u32>(-random.below(20)) & 0xffffff;
	case 2:
	case 3:
		return static_cast<u32>(random.below(140));
	default:
		return static_cast<u32>(random.between(1, 8));
	}
}

/*
 * An unreliable responder must take any packet that begins a message (IBTA 9.8). The forger sends
 * other packets, and such that the host refuses.
 */
void Forger::disguise(peal_packet *p)
{
	static const u8 ends[] = {PEAL_WIRE_SEND_MIDDLE, PEAL_WIRE_SEND_LAST,
				  PEAL_WIRE_WRITE_MIDDLE, PEAL_WIRE_WRITE_LAST};
	Random &random = world_.random;
	u8 wire = ends[random.below(4)];

	if (reliable_)
		return;
	if (random.one_in(4)) {
		wire = PEAL_WIRE_WRITE_ONLY;
		p->rkey = 0;
		p->length = 8;
	}
	p->opcode = peal_opcode_of(PEAL_UC, wire);
}

void Forger::plant(Pair &to, const peal_packet &like, u32 payload_bytes)
{
	peal_packet p = like;
	u8 headers[PEAL_HEADERS_MAX];
	u8 *payload;
	FramePtr made;

	p.qpn = to.qpn;
	p.pkey = PEAL_DEFAULT_PKEY;
	p.pad = -payload_bytes & 3;
	made = make_frame(to.peer->node.id, to.node.id, to.node.v6, headers,
			  peal_packet_build(&p, headers), payload_bytes, &payload);
	std::memset(payload, 0xbb, payload_bytes);
	if (!knows_flow_)
		made->set_flow(static_cast<u16>(FLOW + world_.random.between(1, 100)));
	made->forged = true;
	made->seal(Code::CORE);
	world_.trace("    forged: %s psn %06x to %u", opcode_name(p.opcode), p.psn, to.qpn);
	network_.plant(std::move(made));
}

/* Sends in advance: whole messages of one packet, and parts of other messages. */
void Forger::wake(u64)
{
	static const u8 wires[] = {
		PEAL_WIRE_SEND_ONLY,  PEAL_WIRE_SEND_MIDDLE,  PEAL_WIRE_SEND_LAST,
		PEAL_WIRE_WRITE_ONLY, PEAL_WIRE_WRITE_MIDDLE, PEAL_WIRE_READ_REQUEST,
		PEAL_WIRE_FETCH_ADD,  PEAL_WIRE_ACK,	      PEAL_WIRE_READ_RESPONSE_MIDDLE,
	};
	Random &random = world_.random;
	Pair &to = *pairs_[random.below(2)];
	u8 wire = wires[random.below(std::size(wires))];
	bool response = peal_wire_opcode(wire)->has & PEAL_HAS_RESPONSE;
	const Stream &stream = response ? *to.outgoing : *to.incoming;
	u32 bytes = 0;
	peal_packet p{};

	p.opcode = wire;
	p.syndrome = PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED;
	p.psn = (stream.rules.psn + (response ? stream.una() : stream.executed()) + ahead()) &
		0xffffff;
	p.rkey = keys_.empty() ? 0 : keys_[random.below(keys_.size())];
	p.length = 8;
	p.swap_add = 1;
	disguise(&p);
	if (peal_packet_opcode(&p)->has & PEAL_HAS_PAYLOAD)
		bytes = peal_packet_opcode(&p)->has & PEAL_HAS_LAST ? 8 : stream.rules.mtu;
	if (reliable_ || !response)
		plant(to, p, bytes);
	if (--blind_)
		world_.in(random.below(gap_ + 1), this, 0);
}

/*
 * Forges the responses behind the response @seen. The responder sends them all at once, so a single
 * forged response would seldom arrive before the real one.
 */
void Forger::race(Pair &to, peal_packet seen)
{
	seen.opcode = PEAL_WIRE_READ_RESPONSE_MIDDLE;
	for (u64 more = world_.random.between(1, 8); more; more--) {
		seen.psn = (seen.psn + 1) & 0xffffff;
		plant(to, seen, to.outgoing->rules.mtu);
	}
}

void Forger::see(const Frame &real)
{
	Frame copy = real;
	peal_packet p;

	if (!world_.random.ppm(share_) || copy.parse(false))
		return;
	p = copy.packet;
	p.psn = (p.psn + ahead()) & 0xffffff;
	p.swap_add ^= 1;
	p.original ^= 1;
	if (peal_packet_opcode(&p)->has & PEAL_HAS_RETH)
		keys_.push_back(p.rkey);
	if (p.opcode == PEAL_WIRE_ACK)
		p.syndrome = PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED;
	if (!reliable_) {
		u32 bytes;

		disguise(&p);
		bytes = peal_packet_opcode(&p)->has & PEAL_HAS_LAST
				? 8
				: pairs_[0]->incoming->rules.mtu;
		p.payload_bytes = bytes;
	}
	for (Pair *to : pairs_) {
		if (to->qpn != p.qpn)
			continue;
		plant(*to, p, p.payload_bytes);
		if (p.opcode == PEAL_WIRE_READ_RESPONSE_FIRST ||
		    p.opcode == PEAL_WIRE_READ_RESPONSE_MIDDLE)
			race(*to, copy.packet);
	}
}

} // namespace peal::sim
