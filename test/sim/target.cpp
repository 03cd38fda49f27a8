// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See target.hpp.
 */
#include "target.hpp"

#include <cstring>

namespace peal::sim {

static bool sends(const Request &request)
{
	return request.operation >= PEAL_OP_SEND && request.operation <= PEAL_OP_SEND_INV;
}

static bool writes(const Request &request)
{
	return request.operation == PEAL_OP_WRITE || request.operation == PEAL_OP_WRITE_IMM ||
	       request.operation == PEAL_OP_ATOMIC_WRITE;
}

static bool is_atomic(const Request &request)
{
	return request.operation == PEAL_OP_CMP_SWAP || request.operation == PEAL_OP_FETCH_ADD;
}

static bool responds(const Request &request)
{
	return is_atomic(request) || request.operation == PEAL_OP_READ ||
	       request.operation == PEAL_OP_ATOMIC_WRITE || request.operation == PEAL_OP_FLUSH;
}

/*
 * SEND takes a receive with its first packet and WRITE_IMM with its
 * last, unless one is held already.
 */
Verdict Target::check_receive(Stream &stream, const Request &request)
{
	bool needs = sends(request) || (request.operation == PEAL_OP_WRITE_IMM && request.last);

	if (!needs)
		return DONE;
	if (!holding_)
		holding_ = stream.take(request.srqn);
	if (!holding_)
		return NOT_READY;
	if (!sends(request))
		return DONE;
	if (request.length > holding_->range->bytes)
		return REFUSED_INVALID;
	return holding_->bad ? REFUSED_OPERATION : DONE;
}

/* Regions that may be read may be flushed here. */
Verdict Target::check(Stream &stream, const Request &r)
{
	u32 right = writes(r) ? MAY_WRITE : is_atomic(r) ? MAY_ATOMIC : MAY_READ;
	u64 bytes = is_atomic(r) ? 8 : r.length;

	if (responds(r) && !max_dest_rd_atomic)
		return REFUSED_INVALID;
	if (!sends(r) && bytes && !memory_.allows(r.rkey, r.remote_addr, bytes, right))
		return REFUSED_ACCESS;
	if ((is_atomic(r) || r.operation == PEAL_OP_ATOMIC_WRITE) && r.remote_addr & 7)
		return REFUSED_INVALID;
	if (r.operation == PEAL_OP_SEND_INV && r.last) {
		Region *region = memory_.region(r.imm_or_rkey);

		if (!region || !region->valid)
			return REFUSED_ACCESS;
	}
	return check_receive(stream, r);
}

void Target::place(Stream &stream, const Request &r, const u8 *payload)
{
	u8 *to;

	if (!r.bytes)
		return;
	if (sends(r)) {
		Range *range = holding_->range;

		range->dirty = std::max(range->dirty, r.offset + r.bytes);
		to = range->at + r.offset;
	} else {
		to = memory_.at(r.rkey, r.remote_addr + r.offset, r.bytes);
		if (!to)
			violation("%s: PSN %06x writes %u bytes where nothing was granted",
				  stream.name().c_str(), r.psn, r.bytes);
	}
	std::memcpy(to, payload, r.bytes);
}

u64 Target::atomic(const Request &r)
{
	u8 *word = memory_.at(r.rkey, r.remote_addr, 8);
	u64 before, after;

	if (!word)
		violation("an atomic on no word");
	std::memcpy(&before, word, 8);
	after = r.operation == PEAL_OP_FETCH_ADD ? before + r.compare_add
		: before == r.compare_add	 ? r.swap
						 : before;
	std::memcpy(word, &after, 8);
	return before;
}

void Target::finish(Stream &stream, const Request &r, const Message &m)
{
	if (r.operation == PEAL_OP_SEND_INV)
		memory_.region(r.imm_or_rkey)->valid = false;
	if (!sends(r) && r.operation != PEAL_OP_WRITE_IMM)
		return;
	stream.received(holding_, &m, SUCCESS, r.length);
	holding_ = nullptr;
}

Verdict Target::execute(Stream &stream, const Request &r, const u8 *payload, u64 *original)
{
	Message &m = stream.executing(r);
	Verdict verdict = check(stream, r);

	*original = 0;
	if (verdict == DONE) {
		if (is_atomic(r))
			*original = atomic(r);
		else if (r.operation != PEAL_OP_READ)
			place(stream, r, payload);
	}
	stream.settle(m, r, verdict, *original);
	if (verdict == DONE && r.last)
		finish(stream, r, m);
	if (verdict > NOT_READY && holding_ && stream.rules.reliable()) {
		stream.received(holding_, nullptr, LOC_QP_OP_ERR, 0);
		holding_ = nullptr;
	}
	return verdict;
}

void Target::flush(Stream &stream)
{
	Receive *receive = holding_ ? holding_ : stream.take_any();

	holding_ = nullptr;
	for (; receive; receive = stream.take_any())
		stream.received(receive, nullptr, WR_FLUSH_ERR, 0);
}

} // namespace peal::sim
