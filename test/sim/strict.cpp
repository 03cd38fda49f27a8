// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See strict.hpp: the pair and its requester. The responder is in strict_responder.cpp.
 */
#include "strict.hpp"

#include <cstring>

namespace peal::sim {

void StrictPair::connect(u32 in_psn)
{
	expected_ = in_psn;
}

void StrictPair::post(u32 index, bool)
{
	posted_.push_back(index);
	if (over_)
		flush();
	else
		run();
}

void StrictPair::arrive(FramePtr frame)
{
	size_t bth = frame->bth();

	if (!frame->intact(Code::OWN))
		violation("%u: the core finds an ICRC right, others do not", qpn);
	auto wire = Wire::read(frame->bytes.data() + bth, frame->bytes.size() - bth);

	if (!wire)
		return;
	show("strictly gets", frame->packet);
	if (wire->request() && !error_)
		request(*wire);
	else if (!wire->request() && !over_)
		answered(*wire);
}

void StrictPair::send(Wire *wire, bool again)
{
	u8 *payload;
	std::vector<u8> headers;
	FramePtr made;

	wire->qpn = peer->qpn;
	headers = wire->headers();
	made = make_frame(node.id, peer->node.id, node.v6, headers.data(),
			  static_cast<u32>(headers.size()), static_cast<u32>(wire->payload.size()),
			  &payload);
	if (!wire->payload.empty())
		std::memcpy(payload, wire->payload.data(), wire->payload.size());
	world_.trace("%u strictly %s %s psn %06x%s, %zu bytes, syndrome %02x", qpn,
		     again ? "repeats" : "sends", opcode_name(wire->opcode), wire->psn,
		     wire->ack_request ? " ackreq" : "", wire->payload.size(), wire->syndrome);
	ship(std::move(made), Code::OWN);
}

/* The packet, for the oracle. */
static peal_packet as_packet(const Wire &wire)
{
	peal_packet p{};
	u32 bytes = static_cast<u32>(wire.payload.size());

	p.opcode = wire.opcode;
	p.solicited = wire.solicited;
	p.psn = wire.psn;
	p.remote_addr = wire.addr;
	p.rkey = wire.key;
	p.length = wire.length;
	p.placement = wire.placement;
	p.selectivity = wire.selectivity;
	p.swap_add = wire.swap_add;
	p.compare = wire.compare;
	p.imm = wire.imm;
	p.inv_rkey = wire.imm;
	p.payload_bytes = bytes;
	p.pad = -bytes & 3;
	return p;
}

Wire StrictPair::build(const Sent &sent, u32 skip)
{
	const Message &m = outgoing->message(sent.message);
	bool first = sent.packet == 0, last = sent.packet + 1 == m.packets;
	u64 mtu = outgoing->rules.mtu;
	u64 offset = (m.reads() ? skip : sent.packet) * mtu;
	bool imm = m.wire.opcode == PEAL_OP_SEND_IMM || m.wire.opcode == PEAL_OP_WRITE_IMM;
	bool inv = m.wire.opcode == PEAL_OP_SEND_INV;
	Wire w;

	w.psn = (outgoing->rules.psn + m.first + sent.packet + skip) & 0xffffff;
	w.addr = m.wire.remote_addr;
	w.key = m.wire.rkey;
	w.length = static_cast<u32>(m.wire.length);
	w.imm = m.wire.imm_or_rkey;
	w.ack_request = true;
	if (m.is_atomic()) {
		bool swaps = m.wire.opcode == PEAL_OP_CMP_SWAP;

		w.opcode = swaps ? 19 : 20;
		w.swap_add = swaps ? m.wire.atomic.swap : m.wire.atomic.compare_add;
		w.compare = swaps ? m.wire.atomic.compare_add : 0;
		return w;
	}
	if (m.flushes()) {
		w.opcode = 28;
		w.length = m.wire.flush.length;
		w.placement = m.wire.flush.placement;
		w.selectivity = m.wire.flush.selectivity;
		return w;
	}
	if (m.reads()) {
		w.opcode = 12;
		w.addr += offset;
		w.length -= static_cast<u32>(offset);
		return w;
	}
	if (m.is_atomic_write())
		w.opcode = 29;
	else if (m.writes())
		w.opcode = first ? last ? imm ? 11 : 10 : 6 : last ? imm ? 9 : 8 : 7;
	else
		w.opcode = first  ? last ? inv	  ? 23
					    : imm ? 5
						  : 4
					 : 0
			   : last ? inv	  ? 22
				    : imm ? 3
					  : 2
				  : 1;
	w.solicited = last && m.receives() && m.wire.flags & PEAL_WQE_SOLICITED;
	w.payload.resize(std::min<u64>(mtu, m.wire.length - offset));
	pattern_fill(w.payload.data(), m.id, offset, w.payload.size());
	return w;
}

/* Return: false when nothing new may be sent now. */
bool StrictPair::send_new()
{
	if (posted_.empty())
		return false;
	const Message &m = outgoing->message(posted_.front());
	u32 index = m.wire.index;

	if (m.wire.flags & PEAL_WQE_FENCE && !sending_packet_ && reads_)
		return false;
	switch (m.fault) {
	case Fault::LOCAL:
	case Fault::OPCODE:
	case Fault::READ_DEPTH:
		if (completed_ == index)
			finish(index, m.expected(), PEAL_REASON_LKEY_RANGE);
		return false;
	default:
		break;
	}
	if (!m.on_wire()) {
		if (completed_ != index)
			return false;
		outgoing->executed_locally(index);
		posted_.pop_front();
		if (m.fault == Fault::BIND)
			finish(index, MW_BIND_ERR, PEAL_REASON_BIND_RANGE);
		else
			left_++;
		complete();
		return !over_;
	}
	if (top_ - una_ >= habits_.window ||
	    (m.responds() && reads_ >= outgoing->rules.max_rd_atomic))
		return false;

	Sent sent{index, sending_packet_, m.reads() ? m.packets : 1};
	Wire wire = build(sent, 0);

	outgoing->sent(index, as_packet(wire),
		       m.reads() ? 0 : sending_packet_ * 1ULL * outgoing->rules.mtu, false);
	if (out_.empty())
		timer_ = NEVER;
	out_[top_] = sent;
	top_ += sent.span;
	next_ = top_;
	reads_ += m.responds();
	sending_packet_ += sent.span;
	if (sending_packet_ == m.packets || m.is_atomic()) {
		sending_packet_ = 0;
		posted_.pop_front();
		left_++;
	}
	send(&wire, false);
	if (timer_ == NEVER)
		restart();
	return true;
}

bool StrictPair::send_again()
{
	auto it = --out_.upper_bound(next_);
	const Message &m = outgoing->message(it->second.message);
	u32 skip = m.reads() && una_ > it->first ? una_ - it->first : 0;
	Wire wire = build(it->second, skip);

	outgoing->sent(it->second.message, as_packet(wire),
		       m.reads() ? skip * 1ULL * outgoing->rules.mtu
				 : it->second.packet * 1ULL * outgoing->rules.mtu,
		       true);
	next_ = it->first + it->second.span;
	send(&wire, true);
	return true;
}

void StrictPair::run()
{
	complete();
	while (!over_ && !rnr_until_ && node.room() && (next_ < top_ ? send_again() : send_new()))
		;
}

void StrictPair::restart()
{
	u64 timeout = outgoing->rules.timeout_ns ? 2 * outgoing->rules.timeout_ns : 50 * MS;

	timer_ = NEVER;
	if (out_.empty() || over_)
		return;
	timer_ = world_.now() + timeout;
	world_.at(timer_, this, TIMEOUT);
}

void StrictPair::go_back(u32 psn)
{
	next_ = std::max(psn, una_);
}

/* Return: false when no retry is left. Then the queue pair has failed. */
bool StrictPair::retry(bool rnr, bool nak)
{
	bool nak_seen = nak_seen_ |= nak;

	const Rules &r = outgoing->rules;
	u32 message = out_.begin()->second.message;

	if (rnr ? r.rnr_limit == 7 || rnr_retries_++ < r.rnr_limit
		: !r.timeout_ns || retries_++ < r.retry_limit)
		return true;
	finish(message, rnr ? RNR_RETRY_EXC_ERR : RETRY_EXC_ERR,
	       rnr	  ? PEAL_REASON_RNR_EXHAUSTED
	       : nak_seen ? PEAL_REASON_NAK_SEQUENCE
			  : PEAL_REASON_PEER_SILENT);
	return false;
}

void StrictPair::wake(u64 what)
{
	if (over_)
		return;
	if (what == TIMEOUT) {
		if (world_.now() != timer_ || out_.empty())
			return;
		world_.trace("%u strict timeout", qpn);
		if (!retry(false, false))
			return;
		go_back(una_);
		restart();
	}
	if (what == RNR_OVER && world_.now() == rnr_until_) {
		rnr_until_ = 0;
		go_back(una_);
		restart();
	}
	run();
}

void StrictPair::finish(u32 index, u8 status, u32 reason)
{
	const peal_wqe &w = outgoing->message(index).wire;

	complete();
	if (completed_ != index)
		return;
	completed_++;
	outgoing->completed(index, w.opcode, w.flags, status, reason, w.length);
	flush();
}

void StrictPair::complete()
{
	while (!over_ && completed_ < left_ &&
	       (out_.empty() || out_.begin()->second.message > completed_)) {
		const peal_wqe &w = outgoing->message(completed_).wire;

		outgoing->completed(w.index, w.opcode, w.flags, SUCCESS, 0, w.length);
		completed_++;
	}
}

void StrictPair::flush()
{
	over_ = error_ = true;
	outgoing->error();
	while (completed_ < outgoing->count()) {
		const peal_wqe &w = outgoing->message(completed_++).wire;

		outgoing->completed(w.index, w.opcode, w.flags, WR_FLUSH_ERR, PEAL_REASON_FLUSHED,
				    w.length);
	}
	posted_.clear();
	target.flush(*incoming);
	incoming->peer_dead = true;
}

void StrictPair::fail()
{
	if (!over_)
		flush();
}

/* Everything before @psn is executed. A READ or atomic before it has to be requested again. */
void StrictPair::acknowledged(u32 psn)
{
	u32 una = una_;

	while (!out_.empty() && out_.begin()->first < psn) {
		const auto &[first, sent] = *out_.begin();

		if (outgoing->message(sent.message).responds())
			break;
		una_ = first + sent.span;
		out_.erase(out_.begin());
	}
	next_ = std::max(next_, una_);
	if (una_ == una)
		return;
	progress();
}

void StrictPair::progress()
{
	retries_ = rnr_retries_ = 0;
	rnr_until_ = 0;
	nak_seen_ = false;
	outgoing->progressed((outgoing->rules.psn + una_) & 0xffffff);
	restart();
}

void StrictPair::answered(const Wire &wire)
{
	u32 psn = outgoing->rel(wire.psn);

	if (psn < una_ || psn >= top_)
		return;
	if (wire.opcode != 17)
		return data(wire, psn);
	if (wire.syndrome < 0x20)
		return acknowledged(psn + 1);
	acknowledged(psn);
	if (psn != una_)
		return;
	switch (wire.syndrome >> 5) {
	case 1:
		if (rnr_until_)
			return;
		outgoing->told_not_ready(wire.psn, wire.syndrome & 31);
		if (!retry(true, false))
			return;
		retries_ = 0;
		rnr_until_ = std::max(outgoing->not_before(), world_.now() + 1);
		timer_ = NEVER;
		world_.at(rnr_until_, this, RNR_OVER);
		break;
	case 3:
		if (wire.syndrome == 0x60) {
			if (next_ == top_ && retry(false, true))
				go_back(psn);
		} else if (wire.syndrome <= 0x63) {
			static const u8 status[] = {0, REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR};

			finish(out_.begin()->second.message, status[wire.syndrome & 3],
			       PEAL_REASON_NAK_INVALID_REQUEST);
		}
		break;
	}
}

void StrictPair::data(const Wire &wire, u32 psn)
{
	acknowledged(psn);
	if (out_.empty() || psn != una_)
		return;
	auto it = out_.begin();
	const Message &m = outgoing->message(it->second.message);
	u32 at = psn - it->first;

	if (!m.responds() || (wire.opcode == 18) != m.is_atomic())
		return;
	if (m.is_atomic()) {
		outgoing->placed(m.wire.index, 0, 0, wire.original);
		std::memcpy(m.local->at, &wire.original, 8);
	} else if (m.places()) {
		if (wire.opcode != 16 || !wire.payload.empty())
			return finish(m.wire.index, BAD_RESP_ERR, PEAL_REASON_BAD_RESPONSE);
		outgoing->placed(m.wire.index, 0, 0, 0);
	} else {
		u64 offset = at * 1ULL * outgoing->rules.mtu;
		u32 bytes = static_cast<u32>(wire.payload.size());

		if (bytes != std::min<u64>(outgoing->rules.mtu, m.wire.length - offset))
			return finish(m.wire.index, BAD_RESP_ERR, PEAL_REASON_BAD_RESPONSE);
		outgoing->placed(m.wire.index, offset, bytes, 0);
		if (bytes)
			std::memcpy(m.local->at + offset, wire.payload.data(), bytes);
		if (!pattern_is(m.local->at + offset, m.id, offset, bytes))
			violation("%s: READ %u got other bytes at %llu", outgoing->name().c_str(),
				  m.wire.index, offset);
	}
	una_++;
	next_ = std::max(next_, una_);
	if (una_ == it->first + it->second.span) {
		out_.erase(it);
		reads_--;
	}
	progress();
}

} // namespace peal::sim
