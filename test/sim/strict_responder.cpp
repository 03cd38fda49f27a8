// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See strict.hpp: the responder.
 */
#include <cstring>

#include "strict.hpp"

namespace peal::sim {

/* IBTA table 46: the largest code that promises no more receives than there are. */
u8 StrictPair::credit_code()
{
	static const u32 counts[] = {0,	 1,  2,	 3,  4,	  6,   8,   12,	 16,  24,
				     32, 48, 64, 96, 128, 192, 256, 384, 512, 768};
	u8 code = 0;

	if (!habits_.credits)
		return 31;
	while (code + 1U < std::size(counts) && counts[code + 1] <= incoming->receives_left())
		code++;
	return code;
}

void StrictPair::acknowledge(u32 psn, u8 syndrome)
{
	Wire ack;

	ack.opcode = 17;
	ack.psn = psn & 0xffffff;
	ack.syndrome = syndrome;
	ack.msn = msn_;
	replies_.push_back(std::move(ack));
}

void StrictPair::request(const Wire &wire)
{
	u32 ahead = (wire.psn - expected_) & 0xffffff;

	if (ahead >= 0x800000) {
		duplicate(wire);
	} else if (ahead) {
		if (!nak_sent_)
			acknowledge(expected_, 0x60);
		nak_sent_ = true;
	} else {
		execute(wire);
	}
}

void StrictPair::read(const Wire &wire)
{
	u64 mtu = incoming->rules.mtu, done = 0;
	u32 n = 0;

	/*
	 * The key of a repeated request may be gone. If the program has invalidated it
	 * itself, that is an error. Otherwise the requester has invalidated it, by a message
	 * behind an answer that it has.
	 */
	if (!target.readable(wire.key, wire.addr, wire.length)) {
		if (incoming->invalidated_at == NEVER)
			return;
		incoming->refuse(wire.psn, REM_ACCESS_ERR);
		acknowledge(wire.psn, 0x62);
		error_ = true;
		return;
	}
	do {
		Wire answer;
		u64 bytes = std::min(mtu, wire.length - done);
		bool last = done + bytes == wire.length;

		answer.opcode = n ? last ? 15 : 14 : last ? 16 : 13;
		answer.psn = (wire.psn + n++) & 0xffffff;
		answer.syndrome = credit_code();
		answer.msn = msn_;
		if (bytes) {
			const u8 *from = target.bytes(wire.key, wire.addr + done, bytes);

			if (!from)
				violation("%u: READ of what nobody granted", qpn);
			answer.payload.assign(from, from + bytes);
		}
		replies_.push_back(std::move(answer));
		done += bytes;
	} while (done < wire.length);
}

void StrictPair::duplicate(const Wire &wire)
{
	if (wire.opcode == 12)
		return read(wire);
	if (!wire.atomic() && !wire.places())
		return acknowledge(habits_.newest ? expected_ - 1 : wire.psn, credit_code());
	for (const Atomic &atomic : atomics_) {
		if (atomic.psn != wire.psn)
			continue;
		acknowledge(wire.psn, credit_code());
		replies_.back().opcode = wire.atomic() ? 18 : 16;
		replies_.back().original = atomic.original;
		return;
	}
}

/* IBTA 9.7.4.1: opcodes in sequence, and right lengths. */
bool StrictPair::in_order(const Wire &wire) const
{
	u64 n = wire.payload.size(), mtu = incoming->rules.mtu;

	if (wire.first() != !operation_)
		return false;
	if (!wire.first() && wire.sends() != (operation_ == PEAL_OP_SEND))
		return false;
	if (!wire.last() && n != mtu)
		return false;
	if (n > mtu || (!wire.first() && !n))
		return false;
	if (wire.atomic_write())
		return n == 8 && wire.length == 8;
	if (!wire.writes())
		return true;
	u64 length = wire.first() ? wire.length : begun_.length;
	u64 end = offset_ + n;

	return wire.last() ? end == length : end < length;
}

static u8 operation(const Wire &w)
{
	switch (w.opcode) {
	case 3:
	case 5:
		return PEAL_OP_SEND_IMM;
	case 22:
	case 23:
		return PEAL_OP_SEND_INV;
	case 9:
	case 11:
		return PEAL_OP_WRITE_IMM;
	case 12:
		return PEAL_OP_READ;
	case 19:
		return PEAL_OP_CMP_SWAP;
	case 20:
		return PEAL_OP_FETCH_ADD;
	case 28:
		return PEAL_OP_FLUSH;
	case 29:
		return PEAL_OP_ATOMIC_WRITE;
	default:
		return w.sends() ? PEAL_OP_SEND : PEAL_OP_WRITE;
	}
}

void StrictPair::execute(const Wire &wire)
{
	u32 bytes = static_cast<u32>(wire.payload.size()), span = 1;
	u64 original;

	if (!in_order(wire)) {
		incoming->refuse(wire.psn, REM_INV_REQ_ERR);
		acknowledge(wire.psn, 0x61);
		error_ = true;
		return;
	}
	if (wire.first())
		begun_ = wire;
	Request r{
		.psn = wire.psn,
		.operation = operation(wire),
		.first = wire.first(),
		.last = wire.last(),
		.solicited = wire.solicited,
		.offset = offset_,
		.bytes = bytes,
		.length = wire.sends() ? offset_ + bytes : begun_.length,
		.rkey = begun_.key,
		.remote_addr = begun_.addr,
		.compare_add = wire.opcode == 19 ? wire.compare : wire.swap_add,
		.swap = wire.swap_add,
		.imm_or_rkey = wire.imm,
		.srqn = 0,
		.flush = {wire.length, wire.placement, wire.selectivity, 0, 0},
	};
	Verdict verdict = target.execute(*incoming, r, wire.payload.data(), &original);

	nak_sent_ = verdict == NOT_READY;
	if (verdict == NOT_READY)
		return acknowledge(wire.psn, verdict | incoming->rules.rnr_timer);
	if (verdict != DONE) {
		acknowledge(wire.psn, verdict);
		error_ = true;
		return;
	}
	operation_ = wire.last() ? 0 : r.operation;
	offset_ = wire.last() ? 0 : offset_ + bytes;
	msn_ = (msn_ + wire.last()) & 0xffffff;
	if (wire.opcode == 12 && wire.length)
		span = (wire.length + incoming->rules.mtu - 1) / incoming->rules.mtu;
	expected_ = (expected_ + span) & 0xffffff;
	if (wire.opcode == 12)
		return read(wire);
	if (wire.atomic() || wire.places()) {
		atomics_.push_back({wire.psn, original});
		if (atomics_.size() > std::max(1u, incoming->rules.max_rd_atomic))
			atomics_.pop_front();
		return duplicate(wire);
	}
	if (habits_.every || wire.ack_request)
		acknowledge(wire.psn, credit_code());
}

void StrictPair::reply()
{
	while (!over_ && node.room() && !replies_.empty()) {
		Wire wire = std::move(replies_.front());

		replies_.pop_front();
		send(&wire, false);
	}
	if (error_ && !over_ && replies_.empty())
		flush();
}

} // namespace peal::sim
