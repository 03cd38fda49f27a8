// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See scenario.hpp: the effect of a connection's fate on its frames. */
#include <cstring>

#include "scenario.hpp"

namespace peal::sim {

static u32 get24(const u8 *at)
{
	return at[0] << 16 | at[1] << 8 | at[2];
}

static bool is_response(u8 opcode)
{
	return wire_op(opcode) >= PEAL_WIRE_READ_RESPONSE_FIRST &&
	       wire_op(opcode) <= PEAL_WIRE_ATOMIC_ACK;
}

/* Builds the frame again, with other headers and that many bytes of payload. */
static void rebuild(Frame &frame, const peal_packet &changed, u32 payload_bytes)
{
	peal_packet p = changed;
	u8 headers[PEAL_HEADERS_MAX];
	u8 *payload;
	FramePtr made;

	p.pad = -payload_bytes & 3;
	made = make_frame(frame.from, frame.to, frame.v6, headers, peal_packet_build(&p, headers),
			  payload_bytes, &payload);
	std::memset(payload, 0xee, payload_bytes);
	std::memcpy(payload, frame.payload, std::min(payload_bytes, frame.packet.payload_bytes));
	made->seal(Code::CORE);
	frame.bytes = std::move(made->bytes);
}

/*
 * Forges a request that breaks a rule of the protocol. Return: false when the frame was left alone.
 */
static bool forge_request(Random &random, Frame &frame)
{
	peal_packet p = frame.packet;
	u32 bytes = p.payload_bytes;
	auto *wire = peal_packet_opcode(&p);

	if (!(wire->has & PEAL_HAS_PAYLOAD))
		return false;
	switch (random.below(5)) {
	case 0: /* shorter than it says, or than the path MTU */
		if (bytes < 4)
			return false;
		bytes -= static_cast<u32>(random.between(1, 4));
		break;
	case 1: /* longer */
		bytes += static_cast<u32>(random.between(1, 4));
		break;
	case 2: /* does not continue the current message */
		if (wire_op(p.opcode) == PEAL_WIRE_SEND_FIRST ||
		    wire_op(p.opcode) == PEAL_WIRE_WRITE_FIRST)
			p.opcode++;
		else if (wire_op(p.opcode) == PEAL_WIRE_SEND_MIDDLE ||
			 wire_op(p.opcode) == PEAL_WIRE_WRITE_MIDDLE)
			p.opcode--;
		else
			return false;
		break;
	case 3: /* another operation */
		if (wire_op(p.opcode) == PEAL_WIRE_SEND_MIDDLE)
			p.opcode = peal_opcode_of(peal_opcode_transport(p.opcode),
						  PEAL_WIRE_WRITE_MIDDLE);
		else if (wire_op(p.opcode) == PEAL_WIRE_WRITE_MIDDLE)
			p.opcode = peal_opcode_of(peal_opcode_transport(p.opcode),
						  PEAL_WIRE_SEND_MIDDLE);
		else
			return false;
		break;
	case 4: /* names another queue than the packets before */
		if (!(wire->has & PEAL_HAS_XRCETH) || wire->has & PEAL_HAS_FIRST)
			return false;
		p.srqn ^= 0x1000;
		break;
	}
	/* A SEND may have any length. Only its middle packets may not. */
	if (wire->has & PEAL_HAS_SEND && wire->has & PEAL_HAS_LAST)
		return false;
	rebuild(frame, p, bytes);
	return true;
}

/* Forges a response that answers nothing, or not what was asked. */
static bool forge_response(Random &random, Frame &frame)
{
	peal_packet p = frame.packet;
	u32 bytes = p.payload_bytes;

	if (wire_op(p.opcode) < PEAL_WIRE_ACK) {
		bytes += random.one_in(2) || bytes < 4 ? 4 : -4;
	} else {
		switch (random.below(3)) {
		case 0: /* for what was never sent */
			p.psn = peal_psn_add(p.psn,
					     static_cast<u32>(random.pick({0x1000, 0x7ff000})));
			break;
		case 1: /* reserved kind */
			p.syndrome = 0x40 | (p.syndrome & 0x1f);
			break;
		case 2: /* reserved NAK */
			p.syndrome = static_cast<u8>(0x60 | random.between(5, 31));
			break;
		}
		if (wire_op(p.opcode) != PEAL_WIRE_ACK)
			return false;
	}
	rebuild(frame, p, bytes);
	return true;
}

/* Forges one of the packets now and then. */
void Connection::forge(Frame &frame)
{
	Random &random = world_.random;

	if (world_.now() < fate_at_ || forged_ || !random.one_in(4))
		return;
	if (frame.parse(false))
		return;
	forged_ = is_response(frame.packet.opcode) ? forge_response(random, frame)
						   : forge_request(random, frame);
	if (forged_)
		world_.trace("    it is forged");
}

/* Loses or delays the one packet that a laboratory's run is about, once. */
Touch Connection::touch_victim(u32 qpn, u32 psn, u8 opcode)
{
	bool wanted = reading_ ? qpn == pairs[0]->qpn && is_response(opcode)
			       : qpn == pairs[1]->qpn && !is_response(opcode);

	if (!wanted || psn != victim_)
		return {};
	victim_ = ~0U;
	world_.trace("    it is the victim");
	return {.lost = fate == Fate::ONE_LOST, .late = late_by_};
}

Touch Connection::touch(Frame &frame)
{
	const u8 *bth = frame.bytes.data() + frame.bth();
	u32 qpn = get24(bth + 5), psn = get24(bth + 9);
	u8 opcode = bth[0];

	if (qpn != pairs[0]->qpn && qpn != pairs[1]->qpn)
		return {};
	if (fate == Fate::FORGERY)
		forge(frame);
	if (forger)
		forger->see(frame);
	if (fate == Fate::ONE_LOST || fate == Fate::ONE_LATE)
		return touch_victim(qpn, psn, opcode);
	if (world_.now() >= silent_from_)
		return {.lost = true};
	return {.lost = qpn == pairs[1]->qpn && psn == hole_ && !is_response(opcode)};
}

/* Plans one fault in an otherwise perfect network, and checks the cost of the fault. */
void Connection::plan_experiment(const Path &path)
{
	Random &random = world_.random;

	fate = random.pick<Fate>({Fate::ONE_LOST, Fate::ONE_LATE, Fate::UNREADY});
	if (fate == Fate::UNREADY)
		plan_unready();
	else
		plan_victim(path);
	load_[1] = load_[0];
	load_[1].messages = 0;
	for (Rules &r : rules_) {
		r.transport = PEAL_RC;
		r.retry_limit = 7;
		r.max_rd_atomic = 4;
		r.timeout_ns = 4096ULL << 16;
		r.window = random.pick<u32>({64, 256});
		r.clean = false;
		r.may_exceed = false;
	}
}

/* Messages of some packets, so that other packets follow the one that meets no receive. */
void Connection::plan_unready()
{
	Random &random = world_.random;
	Load &l = load_[0];

	l = Load{};
	l.messages = static_cast<u32>(random.between(4, 40));
	l.opcode = random.pick<u8>({PEAL_OP_SEND, PEAL_OP_WRITE_IMM});
	l.bulk_bytes = rules_[0].mtu * random.between(1, 8);
	l.late_receives = 100000;
	l.receive_gap = random.pick<u64>({10 * US, 300 * US, 3 * MS});
	rules_[0].rnr_limit = 7;
	rules_[0].rnr_timer = static_cast<u8>(random.between(1, 8));
}

/* One packet in a long message. */
void Connection::plan_victim(const Path &path)
{
	Random &random = world_.random;
	Load &l = load_[0];

	reading_ = random.one_in(3);
	l = Load{};
	l.messages = 1;
	l.opcode = random.pick<u8>({PEAL_OP_WRITE, PEAL_OP_SEND});
	if (reading_)
		l.opcode = PEAL_OP_READ;
	l.bulk_bytes = rules_[0].mtu * random.between(100, 200);
	victim_ = (rules_[0].psn + static_cast<u32>(random.between(8, 80))) & 0xffffff;
	late_by_ = fate == Fate::ONE_LATE ? random.between(US, 2 * path.delay + 20 * US) : 0;
}

/* These limits are our own promises (Documentation/testing.rst). IBTA does not ask for them. */
void Connection::check_experiment() const
{
	const Stream &s = *streams.front();

	if (fate == Fate::ONE_LOST || fate == Fate::ONE_LATE)
		check_victim();
	if (fate == Fate::UNREADY && s.stalls)
		violation("%s: nothing was lost, receives were late, and a timeout was needed",
			  s.name().c_str());
}

void Connection::check_victim() const
{
	const Stream &s = *streams.front();
	bool keeps = static_cast<const PealPair &>(*pairs[!reading_]).habits.keep == 1000000;
	/*
	 * A late packet arrives beside its copy. A peer that keeps no
	 * out-of-order packets may answer both.
	 */
	u64 windows = fate == Fate::ONE_LATE ? 2 : 1;
	u64 most = keeps ? 2 : windows * s.rules.window + 2;

	/* The late packet may look as if it alone had been answered. */
	if (s.stalls > (fate == Fate::ONE_LATE && !keeps))
		violation("%s: one packet in the middle was %s, and a timeout was needed",
			  s.name().c_str(), fate == Fate::ONE_LOST ? "lost" : "late");
	if (s.retransmitted > most)
		violation("%s: one packet was %s, and %llu left again", s.name().c_str(),
			  fate == Fate::ONE_LOST ? "lost" : "late", s.retransmitted);
}

/* The strict end does not learn that its packets do not leave. */
void Connection::plan_narrow()
{
	Random &random = world_.random;
	Rules &r = rules_[0];

	r.may_exceed = rules_[1].may_exceed = true;
	r.narrow_from = fate_at_;
	r.narrow_bytes = static_cast<u32>(random.below(r.mtu));
	if (random.one_in(2))
		return;
	/* Long enough for some retries, also for the last one. */
	r.narrow_until = fate_at_ + random.below((r.retry_limit + 2ULL) * r.timeout_ns + MS);
	if (random.one_in(2))
		silent_from_ = r.narrow_until;
}

/* A forger costs packets and so retries. Only peal's own end is tested. */
void Connection::plan_planted()
{
	for (int i = 0; i < 2; i++) {
		Rules &r = rules_[i];

		r.clean = false;
		r.duplicates = true;
		r.may_exceed |= r.retry_limit < 4;
		r.harmless = !r.reliable() && r.harmless;
		if (!r.harmless)
			continue;
		load_[i].late_receives = load_[i].fault = 0;
		load_[i].no_receives = false;
		load_[i].invalidate_at = NEVER;
	}
}

/* An unreliable connection loses nothing to packets that begin no message. */
void Connection::check_planted() const
{
	for (const auto &s : streams)
		for (size_t i = 0; s->rules.harmless && i < s->count(); i++) {
			const Message &m = s->message(i);

			bool refused = m.refused || m.not_ready || m.fault != Fault::NONE;

			if (m.on_wire() && !refused && !m.finished)
				violation("%s: message %zu is lost to a forger", s->name().c_str(),
					  i);
		}
}

} // namespace peal::sim
