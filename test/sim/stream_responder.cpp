// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See stream.hpp: the responder's side.
 */
#include "stream.hpp"

#include <algorithm>

namespace peal::sim {

/* Return: the message to which the packet number belongs. */
Message *Stream::at_psn(u32 rel)
{
	size_t low = 0, high = messages_.size();

	/* Find the last message that begins at or before it and has packets. */
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (messages_[middle].first <= rel)
			low = middle + 1;
		else
			high = middle;
	}
	while (low && !messages_[low - 1].packets)
		low--;
	if (!low || rel - messages_[low - 1].first >= messages_[low - 1].packets)
		return nullptr;
	return &messages_[low - 1];
}

bool Stream::awaits_data(const peal_packet &p)
{
	const Message *m = nullptr;
	u32 at = una_;

	for (; at <= rel(p.psn); at = m->first + m->packets) {
		m = at_psn(at);
		if (!m || !m->responds())
			return false;
	}
	if (m->is_atomic())
		return wire_op(p.opcode) == PEAL_WIRE_ATOMIC_ACK;
	if (m->places())
		return wire_op(p.opcode) == PEAL_WIRE_READ_RESPONSE_ONLY && !p.payload_bytes;
	return wire_op(p.opcode) < PEAL_WIRE_ACK &&
	       p.payload_bytes ==
		       std::min<u64>(rules.mtu,
				     m->wire.length - u64{rel(p.psn) - m->first} * rules.mtu);
}

/* Checks that it is exactly what was posted. */
void Stream::check_request(const Message &m, const Request &r) const
{
	u32 place = rel(r.psn) - m.first;
	bool last = m.responds() || place + 1 == m.packets;
	u64 offset = m.responds() ? 0 : static_cast<u64>(place) * rules.mtu;
	u64 bytes =
		m.responds() && !m.stores() ? 0 : std::min<u64>(rules.mtu, m.wire.length - offset);
	u64 length = m.sends() ? offset + bytes : m.flushes() ? m.wire.flush.length : m.wire.length;
	bool imm = m.wire.opcode == PEAL_OP_SEND_IMM || m.wire.opcode == PEAL_OP_SEND_INV ||
		   m.wire.opcode == PEAL_OP_WRITE_IMM;

	if (r.offset != offset || r.bytes != bytes || r.first != (m.responds() || place == 0) ||
	    r.last != last)
		broken(m, "packet %u asks for %u bytes at %llu%s%s", place, r.bytes, r.offset,
		       r.first ? ", first" : "", r.last ? ", last" : "");
	if (last && r.operation != m.wire.opcode)
		broken(m, "asks for operation %u", r.operation);
	if (m.reads())
		check_read(m, rel(r.psn), r.remote_addr, r.length);
	else if (r.length != length && !m.is_atomic())
		broken(m, "packet %u says that it is %llu bytes long", place, r.length);
	if ((m.writes() || m.responds()) &&
	    (r.rkey != m.wire.rkey || (!m.reads() && r.remote_addr != m.wire.remote_addr)))
		broken(m, "asks for key %x, address %llx", r.rkey, r.remote_addr);
	if (m.wire.opcode == PEAL_OP_CMP_SWAP &&
	    (r.compare_add != m.wire.atomic.compare_add || r.swap != m.wire.atomic.swap))
		broken(m, "wrong operands");
	if (m.wire.opcode == PEAL_OP_FETCH_ADD && r.compare_add != m.wire.atomic.compare_add)
		broken(m, "wrong addend");
	if (m.flushes() && (r.flush.placement != m.wire.flush.placement ||
			    r.flush.selectivity != m.wire.flush.selectivity))
		broken(m, "asks to flush %u, %u", r.flush.placement, r.flush.selectivity);
	if (last && imm && r.imm_or_rkey != m.wire.imm_or_rkey)
		broken(m, "wrong immediate data, or key");
	if (r.srqn != m.wire.srqn)
		broken(m, "packet %u names queue %u", place, r.srqn);
	if (last && m.receives() && r.solicited != !!(m.wire.flags & PEAL_WQE_SOLICITED))
		broken(m, "solicited is %d", r.solicited);
}

Message &Stream::executing(const Request &r)
{
	u32 psn = rel(r.psn);
	Message *m = at_psn(psn);

	if (!m)
		violation("%s: PSN %06x is executed, which nothing has", name_.c_str(), r.psn);
	if (refused_)
		broken(*m, "PSN %06x is executed after message %u was refused", r.psn,
		       refused_->wire.index);
	if (rules.reliable() ? psn != executed_ : psn < executed_)
		broken(*m, "PSN %06x is executed, it is the turn of %06x", r.psn,
		       (rules.psn + executed_) & 0xffffff);
	if (!rules.reliable() && !r.first && (psn != executed_ || !m->executed_packets))
		broken(*m, "PSN %06x continues a message that was lost", r.psn);
	if (!m->begun)
		broken(*m, "is executed and was never sent");
	check_request(*m, r);
	return *m;
}

void Stream::settle(Message &m, const Request &r, Verdict verdict, u64 original)
{
	world_.trace("  %s: message %u, %u bytes at %llu: verdict %d", name_.c_str(), m.wire.index,
		     r.bytes, r.offset, verdict);
	/* A request that an unreliable responder refuses changes nothing. */
	if (rules.reliable() || verdict == DONE)
		executed_ = rel(r.psn);
	m.refused = verdict == REFUSED_INVALID	   ? REM_INV_REQ_ERR
		    : verdict == REFUSED_ACCESS	   ? REM_ACCESS_ERR
		    : verdict == REFUSED_OPERATION ? REM_OP_ERR
						   : SUCCESS;
	m.not_ready += verdict == NOT_READY;
	if (rules.reliable() && m.refused)
		refused_ = &m;
	if (verdict != DONE) {
		m.executed_packets = rules.reliable() ? m.executed_packets : 0;
		return;
	}
	m.executed_packets += psns(m, r.length);
	executed_ += psns(m, r.length);
	requests_ += r.last;
	m.before = original;
	if (m.remote && m.stores())
		m.remote->written = r.offset + r.bytes;
	m.finished = m.executed_packets == m.packets;
}

void Stream::refuse(u32 psn, u8 status)
{
	Message *m = at_psn(rel(psn));

	if (!m)
		violation("%s: PSN %06x is refused, which nothing has", name_.c_str(), psn);
	/*
	 * A later part of a READ may have been refused before. Then the NAK
	 * of the earlier part is sent.
	 */
	if (m->refused && rel(psn) >= std::min(refused_psn_, executed_))
		broken(*m, "refused twice");
	if (m->expected() != status && !rules.forged &&
	    (invalidated_at == NEVER || status != REM_ACCESS_ERR))
		broken(*m, "refused with status %u", status);
	m->refused = status;
	refused_ = m;
	refused_psn_ = rel(psn);
}

/* A requester that has all the bytes may have invalidated the key, and does not get this NAK. */
void Stream::refuse_again(u32 psn)
{
	Message *m = at_psn(rel(psn));

	if (!m || !m->reads())
		violation("%s: PSN %06x is refused, which no READ has", name_.c_str(), psn);
	refused_again_ = rel(psn);
	if (m->answered())
		return;
	if (invalidated_at == NEVER && !rules.forged)
		broken(*m, "lost its key before it was answered");
	m->refused = REM_ACCESS_ERR;
}

void Stream::asked_again(u32 psn, u64 length)
{
	Message *m = at_psn(rel(psn));

	if (m)
		again_.emplace_back(rel(psn), rel(psn) + psns(*m, length));
}

/* @reader: the first message whose answers are not all sent. */
void Stream::replied_in_order(Message &reader, u32 psn, bool answer, bool again)
{
	u32 next = reader.first + reader.replied_packets;

	if (reader.replied_packets >= reader.executed_packets || psn >= 0x800000)
		return;
	if (psn > next || (psn == next && !answer && psn != refused_psn_))
		broken(reader, "PSN %u of the stream is answered before it, %u is next", psn, next);
	if (answer && again != (psn < next))
		broken(reader, "PSN %u of the stream is answered %s, %u is next", psn,
		       again ? "again" : "anew", next);
	reader.replied_packets += answer && psn == next;
}

/* The responder sends a reply. Checks that everything in it is true. */
void Stream::replied(const peal_packet &p, bool again)
{
	u32 psn = rel(p.psn);
	u8 kind = p.syndrome & PEAL_SYNDROME_KIND;
	bool read = wire_op(p.opcode) >= PEAL_WIRE_READ_RESPONSE_FIRST &&
		    wire_op(p.opcode) <= PEAL_WIRE_READ_RESPONSE_ONLY;
	bool answer = read || wire_op(p.opcode) == PEAL_WIRE_ATOMIC_ACK;
	bool positive = answer || kind == PEAL_SYNDROME_ACK;
	Message *m = at_psn(psn);

	if (!rules.reliable())
		violation("%s: an unreliable responder replies", name_.c_str());
	/* A PSN before the first message acknowledges a duplicate of an earlier connection. */
	if (positive && psn >= executed_ && psn < 0x800000)
		violation("%s: acknowledges PSN %06x, %06x is next", name_.c_str(), p.psn,
			  (rules.psn + executed_) & 0xffffff);
	if (!positive && psn != executed_ && psn != refused_psn_ && psn != refused_again_)
		violation("%s: refuses PSN %06x, %06x is next", name_.c_str(), p.psn,
			  (rules.psn + executed_) & 0xffffff);
	if (answer && again && std::none_of(again_.begin(), again_.end(), [psn](const auto &range) {
		    return psn >= range.first && psn < range.second;
	    }))
		violation("%s: PSN %06x is answered again, and nobody asked", name_.c_str(), p.psn);
	while (reading_ < messages_.size()) {
		Message &reader = messages_[reading_];

		if (reader.responds() && reader.replied_packets < reader.packets)
			break;
		reading_++;
	}
	if (reading_ < messages_.size())
		replied_in_order(messages_[reading_], psn, answer, again);
	/* An ACK without data is no answer, unless the data was placed long ago. */
	if (m && positive && m->responds() != answer && psn < 0x800000 &&
	    (answer || psn - m->first >= m->landed_packets))
		broken(*m, "PSN %06x is answered by opcode %02x", p.psn, p.opcode);
}

Receive *Stream::take(u32 number)
{
	ReceiveQueue &queue = this->queue(number);

	if (queue.taken >= queue.receives.size())
		return nullptr;
	queue.receives[queue.taken].taken = true;
	return &queue.receives[queue.taken++];
}

/* The others go on to take what this one leaves in a shared queue. */
Receive *Stream::take_any()
{
	if (shared)
		return nullptr;
	for (const auto &entry : queues_)
		if (Receive *receive = take(entry.first))
			return receive;
	return nullptr;
}

void Stream::received(Receive *receive, const Message *m, u8 status, u64 length)
{
	ReceiveQueue &queue = this->queue(receive->queue);

	if (!shared && receive->number != queue.done)
		violation("%s: receive %llu of queue %u completed, it is the turn of %zu",
			  name_.c_str(), receive->number, receive->queue, queue.done);
	if (m && m->wire.srqn != receive->queue)
		broken(*m, "was received by queue %u", receive->queue);
	if (receive->completed)
		violation("%s: receive %llu completed twice", name_.c_str(), receive->number);
	receive->completed = true;
	receive->status = status;
	queue.done++;
	world_.trace("  %s: receive %llu completes with status %u, %llu bytes", name_.c_str(),
		     receive->number, status, length);
	if (status || !m || !m->sends())
		return;
	if (length != m->wire.length)
		broken(*m, "was received with %llu bytes", length);
	receive->range->id = m->id;
	receive->range->written = length;
	receive->range->dirty = std::max(receive->range->dirty, length);
	if (!pattern_is(receive->range->at, m->id, 0, length))
		broken(*m, "was received with other bytes");
}

} // namespace peal::sim
