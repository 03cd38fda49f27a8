// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See peal_pair.hpp: the pair, its timers, and its requests. Its
 * replies are in peal_responder.cpp.
 */
#include "peal_pair.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace peal::sim {

u64 PealPair::kept;
u64 PealPair::guessed;

PealPair::PealPair(Node &node, u32 qpn, const PealHabits &habits, u32 resources)
	: Pair(node, qpn), messages_(habits.entries), resources_(resources), habits(habits)
{
	peal_requester_init(&requester_, messages_.data(), habits.entries);
	peal_responder_init(&responder_, resources_.data(), resources);
}

static void release(void *handle)
{
	delete static_cast<Frame *>(handle);
	PealPair::kept--;
}

static void release_all(peal_requester *out, peal_responder *in)
{
	while (void *handle = peal_reorder_drop(&out->reorder))
		release(handle);
	while (void *handle = peal_reorder_drop(&in->reorder))
		release(handle);
}

PealPair::~PealPair()
{
	release_all(&requester_, &responder_);
}

void PealPair::connect(const peal_requester_config &out, u32 out_psn,
		       const peal_responder_config &in, u32 in_psn)
{
	release_all(&requester_, &responder_);
	peal_requester_reset(&requester_);
	peal_responder_reset(&responder_);
	peal_requester_configure(&requester_, &out);
	peal_responder_configure(&responder_, &in);
	peal_requester_set_psn(&requester_, out_psn);
	peal_responder_set_psn(&responder_, in_psn);
	posted_.clear();
	kept_requests_.clear();
	kept_responses_.clear();
	target.forget();
	error_ = dead_ = false;
	arm();
}

/* Arms a timer for each deadline. A timer that expires too early does no harm. */
void PealPair::arm()
{
	u64 out = peal_requester_deadline(&requester_), in = peal_responder_deadline(&responder_);

	if (!dead_ && out < armed_out_)
		world_.at(armed_out_ = node.late(out), this, TIMER_OUT);
	if (!error_ && in < armed_in_)
		world_.at(armed_in_ = node.late(in), this, TIMER_IN);
}

void PealPair::wake(u64 what)
{
	switch (what) {
	case TIMER_OUT:
		if (world_.now() != armed_out_)
			return;
		armed_out_ = NEVER;
		if (!dead_ && world_.now() >= peal_requester_deadline(&requester_)) {
			bool probed = requester_.retransmit.probe == PEAL_PROBE_SILENCE;

			world_.trace("%u timer", qpn);
			peal_requester_expire(&requester_, world_.now());
			expire_kept();
			outgoing->stalls +=
				!probed && requester_.retransmit.probe == PEAL_PROBE_SILENCE;
		}
		break;
	case TIMER_IN:
		if (world_.now() != armed_in_)
			return;
		armed_in_ = NEVER;
		if (!error_ && world_.now() >= peal_responder_deadline(&responder_)) {
			peal_responder_expire(&responder_, world_.now());
			expire_kept();
			reply();
		}
		break;
	case TURN:
		turn_due_ = false;
		break;
	case REPLY_TURN:
		reply_due_ = false;
		reply();
		break;
	}
	run();
}

void PealPair::post(u32 index, bool more)
{
	posted_.push_back(index);
	if (more)
		return;
	if (dead_)
		flush();
	else
		run();
}

/* As peal_sq_next() == PEAL_SQ_MESSAGE. */
bool PealPair::followed() const
{
	if (posted_.empty())
		return false;
	const Message &next = outgoing->message(posted_.front());

	return next.fault != Fault::OPCODE && (next.sends() || next.writes());
}

void PealPair::feed()
{
	while (!peal_requester_unsent(&requester_) && peal_requester_has_room(&requester_) &&
	       !posted_.empty()) {
		const Message &m = outgoing->message(posted_.front());
		peal_wqe wire = m.wire;

		if (m.fault == Fault::OPCODE)
			wire.opcode = PEAL_OP_INVALID;
		posted_.pop_front();
		wire.more = followed();
		wire.end = posted_.empty();
		peal_requester_post(&requester_, &wire);
	}
}

void PealPair::complete()
{
	while (!dead_) {
		const peal_message *const done = peal_requester_complete(&requester_);

		if (!done)
			return;
		const peal_wqe &wqe = done->wqe;
		const Message &m = outgoing->message(wqe.index);

		/* A malformed WQE has the host's own name. */
		outgoing->completed(wqe.index,
				    m.fault == Fault::OPCODE ? m.wire.opcode : wqe.opcode,
				    wqe.flags, done->status, done->reason, wqe.length);
		if (!done->status)
			continue;
		error_ = true;
		flush();
		return;
	}
}

/* In error everything comes back once, in order. */
void PealPair::flush()
{
	error_ = dead_ = true;
	outgoing->error();
	while (const peal_message *done = peal_requester_flush(&requester_)) {
		const peal_wqe &wqe = done->wqe;

		outgoing->completed(wqe.index, outgoing->message(wqe.index).wire.opcode, wqe.flags,
				    WR_FLUSH_ERR, PEAL_REASON_FLUSHED, wqe.length);
	}
	while (!posted_.empty()) {
		const peal_wqe &wire = outgoing->message(posted_.front()).wire;

		outgoing->completed(wire.index, wire.opcode, wire.flags, WR_FLUSH_ERR,
				    PEAL_REASON_FLUSHED, wire.length);
		posted_.pop_front();
	}
	target.flush(*incoming);
	incoming->peer_dead = true;
}

void PealPair::fail()
{
	if (!dead_)
		flush();
}

bool PealPair::failed_by_host(const peal_outgoing &out)
{
	const peal_message &posted = messages_[out.message & requester_.inflight.mask];
	const Message &m = outgoing->message(posted.wqe.index);

	if (m.fault != Fault::LOCAL || (m.responds() && !m.stores()) ||
	    out.offset + peal_packet_bytes(&out.header) <= m.fault_offset)
		return false;
	peal_requester_fail_message(&requester_, out.message, LOC_PROT_ERR, PEAL_REASON_LKEY_RANGE);
	return true;
}

void PealPair::execute_local(const peal_outgoing &out)
{
	const Message &m =
		outgoing->message(messages_[out.message & requester_.inflight.mask].wqe.index);

	if (m.fault == Fault::OPCODE) {
		peal_requester_fail_message(&requester_, out.message, LOC_QP_OP_ERR,
					    PEAL_REASON_WQE_OPCODE);
		return;
	}
	outgoing->executed_locally(m.wire.index);
	/* It was not executed yet, so it must not complete. */
	if (world_.random.one_in(2))
		complete();
	peal_requester_local_done(&requester_, out.message,
				  m.fault == Fault::BIND ? MW_BIND_ERR : 0,
				  m.fault == Fault::BIND ? PEAL_REASON_BIND_RANGE : 0);
}

/* The packets of a run leave one after the other. */
void PealPair::transmit_all(peal_outgoing out)
{
	const peal_packet run = out.header;

	for (u32 i = 0; i <= run.more; ++i) {
		peal_packet_of_run(&run, i, &out.header);
		transmit(out);
		out.offset += out.header.payload_bytes;
	}
}

void PealPair::transmit(const peal_outgoing &out)
{
	const Message &m =
		outgoing->message(messages_[out.message & requester_.inflight.mask].wqe.index);
	u8 *payload;
	FramePtr made;

	show(out.again ? "repeats" : "sends", out.header);
	outgoing->sent(m.wire.index, out.header, out.offset, out.again);
	if (outgoing->stops(out.header)) {
		peal_requester_too_long(&requester_, out.header.psn);
		return;
	}
	made = frame(out.header, &payload);
	pattern_fill(payload, m.id, out.offset, out.header.payload_bytes);
	ship(std::move(made), Code::CORE);
}

/* Return: false when there is nothing to send now. */
bool PealPair::turn()
{
	peal_outgoing out{};
	enum peal_blocked why;

	complete();
	if (dead_)
		return false;
	feed();
	if (!node.room())
		return false;
	why = peal_requester_next(&requester_, world_.now(), habits.run, &out);
	if (why)
		return false;
	if (out.local)
		execute_local(out);
	else if (!failed_by_host(out))
		transmit_all(out);
	return true;
}

void PealPair::run()
{
	u32 packets = 0;

	if (world_.random.ppm(habits.reconfigure)) {
		peal_requester_config config = requester_.config;

		config.window = static_cast<u32>(world_.random.between(1, outgoing->rules.window));
		peal_requester_configure(&requester_, &config);
	}
	while (packets < habits.turn && turn())
		packets++;
	complete();
	if (packets == habits.turn && !turn_due_ && !dead_) {
		turn_due_ = true;
		world_.in(world_.random.below(2000), this, TURN);
	}
	arm();
}

bool PealPair::may_keep()
{
	return world_.random.ppm(habits.keep);
}

void PealPair::expire_kept()
{
	while (void *handle = peal_requester_take_expired(&requester_, world_.now()))
		unkeep(kept_responses_, handle);
	while (void *handle = peal_responder_take_expired(&responder_, world_.now()))
		unkeep(kept_requests_, handle);
}

/*
 * A forged packet with the expected PSN has guessed all that the specification lets the
 * peer check. So has an acknowledgment of any outstanding packet. Both are left out here,
 * because their effect is right.
 */
bool PealPair::is_guessed(const Frame &frame) const
{
	const peal_packet &p = frame.packet;

	if (!frame.forged)
		return false;
	if (peal_packet_opcode(&p)->has & PEAL_HAS_REQUEST)
		return incoming->rel(p.psn) == incoming->executed();
	/* The core may think that a failed message has sent one packet more. */
	u32 at = outgoing->rel(p.psn), una = outgoing->una();

	if (at + 1 == una || at == una)
		return true;
	return at > una && at <= outgoing->sent_up_to() && !outgoing->awaits_data(p);
}

void PealPair::keep(std::map<u32, Kept> &packets, FramePtr frame)
{
	u32 psn = frame->packet.psn;

	if (!packets.emplace(psn, Kept{frame.get(), world_.now(), false}).second)
		violation("%u keeps two packets with PSN %06x", qpn, psn);
	(void)frame.release();
	kept++;
}

FramePtr PealPair::unkeep(std::map<u32, Kept> &packets, void *handle)
{
	FramePtr frame(static_cast<Frame *>(handle));

	challenged_ = false;
	if (!frame)
		return frame;
	auto found = packets.find(frame->packet.psn);

	if (found == packets.end() || found->second.frame != handle)
		violation("%u gives back what it did not keep", qpn);
	challenged_ = found->second.challenged;
	if (&packets == &kept_requests_ &&
	    world_.now() - found->second.since > 2 * reorder_ns + 8 * node.habits.timer_slack + US)
		violation("%u kept PSN %06x for %llu us", qpn, found->first,
			  (world_.now() - found->second.since) / US);
	packets.erase(found);
	kept--;
	return frame;
}

/* Return: whether @frame differs from @kept. The core thinks that it may be a copy. */
bool PealPair::differs(std::map<u32, Kept> &packets, void *kept, const Frame &frame) const
{
	const Frame &other = *static_cast<Frame *>(kept);

	if (packets.at(frame.packet.psn).frame != kept)
		violation("%u takes PSN %06x for another packet", qpn, frame.packet.psn);
	if (other.same(frame))
		return false;
	if (honest && !frame.forged && !other.forged && !peer->misled)
		violation("%u: two honest packets with PSN %06x differ", qpn, frame.packet.psn);
	world_.trace("  contradicts what was kept");
	return true;
}

/*
 * A forged frame takes effect only if it has guessed the flow, and the
 * real one has not come in time.
 */
void PealPair::take_effect(const Frame &frame, const char *how) const
{
	if (!frame.forged)
		return;
	if (frame.packet.flow != FLOW)
		violation("%u: a forged packet of another flow, PSN %06x, is %s", qpn,
			  frame.packet.psn, how);
	if (challenged_)
		violation("%u: a forged packet, PSN %06x, is %s, and the real one had come", qpn,
			  frame.packet.psn, how);
	guessed++;
	throw Guessed{};
}

/* Tells the oracle what the AETH says. Credits count even when the response is too early. */
void PealPair::note_aeth(const peal_packet &p, bool dropped)
{
	u8 kind = p.syndrome & PEAL_SYNDROME_KIND, value = p.syndrome & PEAL_SYNDROME_VALUE;

	if (wire_op(p.opcode) == PEAL_WIRE_READ_RESPONSE_MIDDLE)
		return;
	if (wire_op(p.opcode) == PEAL_WIRE_ACK && kind == PEAL_SYNDROME_RNR && !dropped)
		outgoing->told_not_ready(p.psn, value);
	else if (kind == PEAL_SYNDROME_ACK)
		outgoing->told_credits(p.psn, value, p.msn);
}

/* A response arrives. Places its data, and the data of responses that waited for it. */
void PealPair::respond(FramePtr frame)
{
	peal_response response{};

	while (frame) {
		bool may = may_keep();
		u32 una = requester_.inflight.una;

		peal_requester_receive(&requester_, &frame->packet, world_.now(),
				       may ? frame.get() : nullptr, &response);
		note_aeth(frame->packet, response.what == PEAL_RESPONSE_DROPPED);
		if (response.what == PEAL_RESPONSE_KEPT) {
			if (!may)
				violation("kept a response that was not to be kept");
			misled |= frame->forged;
			keep(kept_responses_, std::move(frame));
		} else if (response.what == PEAL_RESPONSE_COPY) {
			if (differs(kept_responses_, response.kept, *frame))
				unkeep(kept_responses_,
				       peal_requester_conflict(&requester_, frame->packet.psn,
							       world_.now()));
		} else if (response.what != PEAL_RESPONSE_DROPPED) {
			place(response, *frame);
		} else {
			world_.trace("  dropped: %d%s", response.drop,
				     response.duplicate ? ", duplicate" : "");
		}
		if (requester_.inflight.una != una)
			outgoing->progressed(requester_.inflight.una);
		else
			outgoing->heard();
		frame = unkeep(kept_responses_, peal_requester_take_reordered(&requester_));
	}
}

void PealPair::place(const peal_response &response, const Frame &frame)
{
	if (response.what == PEAL_RESPONSE_TAKEN)
		return;
	const peal_message &posted = messages_[response.message & requester_.inflight.mask];
	const Message &m = outgoing->message(posted.wqe.index);

	take_effect(frame, "placed");
	if (m.fault == Fault::LOCAL && response.offset + response.bytes > m.fault_offset) {
		peal_requester_fail_message(&requester_, response.message, LOC_PROT_ERR,
					    PEAL_REASON_LKEY_RANGE);
		return;
	}
	if (response.what == PEAL_RESPONSE_READ) {
		if (response.bytes != frame.packet.payload_bytes)
			violation("%u bytes to place of %u", response.bytes,
				  frame.packet.payload_bytes);
		outgoing->placed(m.wire.index, response.offset, response.bytes, 0);
		if (response.bytes)
			std::memcpy(m.local->at + response.offset, frame.payload, response.bytes);
		if (!pattern_is(frame.payload, m.id, response.offset, response.bytes))
			violation("%s: READ %u got other bytes at %llu", outgoing->name().c_str(),
				  m.wire.index, response.offset);
	} else {
		outgoing->placed(m.wire.index, 0, 0, response.original);
		std::memcpy(m.local->at, &response.original, 8);
	}
	peal_requester_placed(&requester_, &response, world_.now());
}

void PealPair::arrive(FramePtr frame)
{
	const auto *wire = peal_packet_opcode(&frame->packet);

	show(frame->forged ? "gets, forged," : "gets", frame->packet);
	if (is_guessed(*frame)) {
		world_.trace("  which was guessed");
		return;
	}
	/*
	 * It says that the READ was executed, and all requests before it. The oracle accepts that.
	 */
	if (frame->forged && wire->has & PEAL_HAS_RESPONSE &&
	    outgoing->rel(frame->packet.psn) - outgoing->una() <=
		    outgoing->sent_up_to() - outgoing->una())
		outgoing->rules.forged = true;
	if (!frame->forged && wire_op(frame->packet.opcode) != PEAL_WIRE_ACK) {
		auto &packets = wire->has & PEAL_HAS_RESPONSE ? kept_responses_ : kept_requests_;
		auto found = packets.find(frame->packet.psn);

		if (found != packets.end() && found->second.frame->forged)
			found->second.challenged = !frame->same(*found->second.frame);
	}
	challenged_ = false;
	if (wire->has & PEAL_HAS_RESPONSE) {
		if (!dead_)
			respond(std::move(frame));
	} else if (!error_) {
		request(std::move(frame));
	}
}

void PealPair::batch_ends()
{
	reply();
	run();
}

void PealPair::room()
{
	reply();
	run();
}

bool PealPair::quiet() const
{
	return dead_ || (posted_.empty() && peal_requester_idle(&requester_) &&
			 peal_requester_deadline(&requester_) == NEVER &&
			 (error_ || kept_requests_.empty()));
}

} // namespace peal::sim
