// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See stream.hpp: posting, and the requester's side. The responder's
 * side is in stream_responder.cpp.
 */
#include "stream.hpp"

#include <cstdarg>
#include <cstdio>

namespace peal::sim {

u8 Message::expected() const
{
	switch (fault) {
	case Fault::NONE:
		return SUCCESS;
	case Fault::KEY:
	case Fault::RANGE:
	case Fault::RIGHTS:
	case Fault::INV_KEY:
		return REM_ACCESS_ERR;
	case Fault::TOO_LONG:
	case Fault::MISALIGNED:
	case Fault::NO_READS:
		return REM_INV_REQ_ERR;
	case Fault::RECV_KEY:
		return REM_OP_ERR;
	case Fault::LOCAL:
		return LOC_PROT_ERR;
	case Fault::BIND:
		return MW_BIND_ERR;
	case Fault::OPCODE:
	case Fault::READ_DEPTH:
		return LOC_QP_OP_ERR;
	}
	return SUCCESS;
}

void Stream::broken(const Message &m, const char *format, ...) const
{
	char text[384];
	va_list arguments;

	va_start(arguments, format);
	std::vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	violation("%s message %u (opcode %u, %llu bytes, fault %d): %s", name_.c_str(),
		  m.wire.index, m.wire.opcode, m.wire.length, static_cast<int>(m.fault), text);
}

Message &Stream::post(const Message &message)
{
	messages_.push_back(message);
	Message &m = messages_.back();

	m.wire.index = static_cast<u32>(messages_.size() - 1);
	m.first = next_first_;
	if (m.is_atomic())
		m.packets = 1;
	else if (m.on_wire())
		m.packets = m.wire.length
				    ? static_cast<u32>((m.wire.length + rules.mtu - 1) / rules.mtu)
				    : 1;
	next_first_ += m.packets;
	return m;
}

/* The opcode by the table of the specification, not by the core's table. */
static u8 request_opcode(const Message &m, u8 transport, bool first, bool last)
{
	static const struct {
		u8 first, middle, last, only;
	} rows[] = {
		[PEAL_OP_INVALID] = {0xff, 0xff, 0xff, 0xff},
		[PEAL_OP_SEND] = {0x00, 0x01, 0x02, 0x04},
		[PEAL_OP_SEND_IMM] = {0x00, 0x01, 0x03, 0x05},
		[PEAL_OP_SEND_INV] = {0x00, 0x01, 0x16, 0x17},
		[PEAL_OP_WRITE] = {0x06, 0x07, 0x08, 0x0a},
		[PEAL_OP_WRITE_IMM] = {0x06, 0x07, 0x09, 0x0b},
		[PEAL_OP_READ] = {0x0c, 0x0c, 0x0c, 0x0c},
		[PEAL_OP_CMP_SWAP] = {0x13, 0x13, 0x13, 0x13},
		[PEAL_OP_FETCH_ADD] = {0x14, 0x14, 0x14, 0x14},
		[PEAL_OP_BIND_MW] = {0xff, 0xff, 0xff, 0xff},
		[PEAL_OP_LOCAL_INV] = {0xff, 0xff, 0xff, 0xff},
		[PEAL_OP_REG_MR] = {0xff, 0xff, 0xff, 0xff},
		[PEAL_OP_ATOMIC_WRITE] = {0x1d, 0x1d, 0x1d, 0x1d},
		[PEAL_OP_FLUSH] = {0x1c, 0x1c, 0x1c, 0x1c},
	};
	const auto &row = rows[m.wire.opcode];

	return static_cast<u8>(transport << 5 | (first	? last ? row.only : row.first
						 : last ? row.last
							: row.middle));
}

/* The number of PSNs that @m takes. A READ request takes one for each response (9.7.2). */
u32 Stream::psns(const Message &m, u64 length) const
{
	return m.reads() && length ? static_cast<u32>((length + rules.mtu - 1) / rules.mtu) : 1;
}

/* A READ may be requested in segments, and again from any packet on. */
void Stream::check_read(const Message &m, u32 psn, u64 addr, u64 length) const
{
	u64 skip = static_cast<u64>(psn - m.first) * rules.mtu;

	if (addr != m.wire.remote_addr + skip || length > m.wire.length - skip ||
	    !length != !m.wire.length)
		broken(m, "READ of %llu bytes at %llx for response %u", length, addr,
		       psn - m.first);
	if (skip + length != m.wire.length && length % rules.mtu)
		broken(m, "READ of %llu bytes at %llu is not whole packets", length, skip);
}

/* Checks all header fields of this packet that the receiver may read. */
void Stream::check_header(const Message &m, const peal_packet &p, u64 offset) const
{
	u32 place = rel(p.psn) - m.first;
	bool first = place == 0, last = place + 1 == m.packets;
	bool reth = (m.writes() && first) || m.places();
	u64 length = m.flushes() ? m.wire.flush.length : m.wire.length;
	u64 rest = m.wire.length - std::min(m.wire.length, offset);

	if (rel(p.psn) < m.first || place >= m.packets)
		broken(m, "PSN %06x is not one of its own", p.psn);
	if (m.reads())
		first = last = true;
	if (p.opcode != request_opcode(m, rules.transport, first, last))
		broken(m, "packet %u of %u left with opcode %02x", place, m.packets, p.opcode);
	if (m.responds() && !m.stores() ? p.payload_bytes != 0
					: offset != static_cast<u64>(place) * rules.mtu ||
						  p.payload_bytes != std::min<u64>(rest, rules.mtu))
		broken(m, "packet %u of %u has %u bytes from %llu", place, m.packets,
		       p.payload_bytes, offset);
	if (p.pad != (-p.payload_bytes & 3))
		broken(m, "%u bytes are padded by %u", p.payload_bytes, p.pad);
	if (m.reads())
		check_read(m, rel(p.psn), p.remote_addr, p.length);
	if (reth && (p.remote_addr != m.wire.remote_addr || p.length != length))
		broken(m, "wrong address or length in packet %u", place);
	if (m.flushes() &&
	    (p.placement != m.wire.flush.placement || p.selectivity != m.wire.flush.selectivity))
		broken(m, "flushes %u, %u", p.placement, p.selectivity);
	if ((m.responds() || reth) && p.rkey != m.wire.rkey)
		broken(m, "wrong key in packet %u", place);
	if (m.is_atomic() &&
	    (p.rkey != m.wire.rkey || p.remote_addr != m.wire.remote_addr ||
	     p.swap_add != (m.wire.opcode == PEAL_OP_CMP_SWAP ? m.wire.atomic.swap
							      : m.wire.atomic.compare_add) ||
	     (m.wire.opcode == PEAL_OP_CMP_SWAP && p.compare != m.wire.atomic.compare_add)))
		broken(m, "wrong operands");
	if (last && (m.wire.opcode == PEAL_OP_SEND_IMM || m.wire.opcode == PEAL_OP_WRITE_IMM) &&
	    p.imm != m.wire.imm_or_rkey)
		broken(m, "wrong immediate data");
	if (last && m.wire.opcode == PEAL_OP_SEND_INV && p.inv_rkey != m.wire.imm_or_rkey)
		broken(m, "wrong key to invalidate");
	if (p.srqn != m.wire.srqn)
		broken(m, "packet %u names queue %u", place, p.srqn);
	if (m.receives() && p.solicited != (last && m.wire.flags & PEAL_WQE_SOLICITED))
		broken(m, "solicited bit in packet %u is wrong", place);
}

/* Checks that the message may be sent now. */
void Stream::check_begin(Message &m)
{
	if (m.wire.index != begun_)
		broken(m, "left while message %zu had not", begun_);
	for (size_t i = completed_; i < m.wire.index; i++) {
		const Message &before = messages_[i];

		if (before.on_wire() && !before.sent)
			broken(m, "left before all of message %zu had", i);
		if (m.wire.flags & PEAL_WQE_FENCE && before.responds() && !before.answered())
			broken(m, "fenced, and left before message %zu was answered", i);
	}
	m.begun = true;
	m.sent_at = world_.now();
	begun_++;
}

void Stream::sent(u32 index, const peal_packet &packet, u64 offset, bool again)
{
	Message &m = message(index);
	u32 psn = rel(packet.psn);

	if (failed_ || error_)
		broken(m, "packet left after the queue pair had failed");
	if (!m.on_wire())
		broken(m, "packet of a message that has none");
	if (m.fault == Fault::OPCODE || m.fault == Fault::READ_DEPTH)
		broken(m, "packet of a message that must not leave");
	check_header(m, packet, offset);
	if (again != (psn < new_packet_))
		broken(m, "PSN %06x is %s, and it says the opposite", packet.psn,
		       again ? "new" : "a retransmission");
	if (m.completions)
		broken(m, "packet left after the completion");
	if (psn >= not_ready_psn_ && world_.now() < not_before_)
		broken(m, "left %llu us before the peer's RNR timer",
		       (not_before_ - world_.now()) / 1000);
	count_sent(psn);
	too_long_.erase(psn);
	if (again) {
		if (psn + psns(m, packet.length) > new_packet_)
			broken(m, "asks again for what it never asked for");
		retransmitted++;
		return;
	}
	if (psn != new_packet_)
		broken(m, "PSN %06x left, %06x is next", packet.psn,
		       (rules.psn + new_packet_) & 0xffffff);
	if (!m.begun)
		check_begin(m);
	asked_ += !m.sent_packets || m.reads();
	if (!m.sent_packets && m.receives() && credited_ && psn != una_ && asked_ > credit_)
		broken(m, "is request %u, and the peer has receives up to %u", asked_, credit_);
	m.sent_packets += psns(m, packet.length);
	new_packet_ += psns(m, packet.length);
	m.sent = m.sent_packets == m.packets;
	if (!m.responds())
		return;
	reads_out_.push_back(new_packet_);
	if (reads_out_.size() > rules.max_rd_atomic)
		broken(m, "READ or atomic number %zu outstanding", reads_out_.size());
}

bool Stream::stops(const peal_packet &packet)
{
	if (packet.payload_bytes <= rules.narrow_bytes || world_.now() < rules.narrow_from ||
	    world_.now() >= rules.narrow_until)
		return false;
	too_long_.insert(rel(packet.psn));
	world_.trace("    it is too long to leave");
	return true;
}

void Stream::count_sent(u32 psn)
{
	/* After the wait the requester begins at una, perhaps with a READ before that packet. */
	bool after_rnr = not_before_ && world_.now() >= not_before_ && psn <= not_ready_psn_;

	if (psn == una_ && (!una_sent_++ || after_rnr))
		restart_at_ = world_.now();
	if (after_rnr)
		not_before_ = 0;
}

void Stream::progressed(u32 psn)
{
	una_ = rel(psn);
	una_sent_ = una_ < new_packet_;
	heard_ = false;
	progress_at_ = restart_at_ = world_.now();
	if (una_ > not_ready_psn_)
		not_before_ = 0;
}

/* IBTA table 46. The requester may ignore credits that a newer answer has overtaken. */
void Stream::told_credits(u32 psn, u8 code, u32 msn)
{
	static const u32 counts[32] = {0,    1,	   2,	 3,	4,     6,     8,     12,
				       16,   24,   32,	 48,	64,    96,    128,   192,
				       256,  384,  512,	 768,	1024,  1536,  2048,  3072,
				       4096, 6144, 8192, 12288, 16384, 24576, 32768, 0};
	u32 at = rel(psn);

	if ((at >= new_packet_ && at < 0x800000) || at + 1 < una_)
		return;
	if (code != 31)
		credit_ = std::max(credit_, msn + counts[code]);
	credited_ = code != 31;
}

/* IBTA table 45. */
void Stream::told_not_ready(u32 psn, u8 timer)
{
	static const u32 us[32] = {
		655360, 10,    20,    30,    40,    60,	    80,	    120,    160,    240,    320,
		480,	640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
		20480,	30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	};

	not_ready_psn_ = rel(psn);
	not_before_ = world_.now() + us[timer & 31] * US;
	una_sent_ = 0;
	/* Behind a READ without an answer, the RNR NAK is no news about that READ. */
	if (not_ready_psn_ == una_)
		progress_at_ = world_.now();
}

void Stream::executed_locally(u32 index)
{
	Message &m = message(index);

	if (m.on_wire() && m.fault == Fault::NONE)
		broken(m, "is to be executed locally");
	if (!m.begun)
		check_begin(m);
	if (m.sent)
		broken(m, "executed twice");
	m.sent = true;
}

void Stream::placed(u32 index, u64 offset, u32 bytes, u64 original)
{
	Message &m = message(index);

	if (!m.responds() || m.landed_packets >= m.sent_packets)
		broken(m, "was answered without having asked");
	if (offset != static_cast<u64>(m.landed_packets) * rules.mtu || m.answered())
		broken(m, "byte %llu arrived after %u packets", offset, m.landed_packets);
	if (m.reads() && bytes != std::min<u64>(rules.mtu, m.wire.length - offset))
		broken(m, "%u bytes arrived for %llu", bytes, offset);
	if (m.landed_packets >= m.executed_packets)
		broken(m, "was answered before it was executed");
	if (m.is_atomic() && original != m.before)
		broken(m, "returned %llx, and found %llx", original, m.before);
	m.landed_packets++;
	if (m.local)
		m.local->written = offset + bytes;
	if (!reads_out_.empty() && m.first + m.landed_packets == reads_out_.front())
		reads_out_.pop_front();
}

/* Checks what success promises (IBTA 9.7.5.1: acknowledged means executed). */
void Stream::check_success(const Message &m)
{
	if (m.on_wire() && !m.sent)
		broken(m, "completed before it had left");
	if (m.responds() && !m.answered())
		broken(m, "completed, %u of %u packets answered", m.landed_packets, m.packets);
	if (rules.reliable() && m.on_wire() && !m.finished)
		broken(m, "completed, and the peer has not executed it");
	if (!m.on_wire() && !m.sent)
		broken(m, "completed without having been executed");
	if (m.expected() && rules.reliable())
		broken(m, "completed well");
}

/* Return: whether a later message fails, or has failed before it was sent. */
bool Stream::fails_after(const Message &m) const
{
	for (size_t i = m.wire.index + 1; i < messages_.size(); i++)
		if (messages_[i].expected() || messages_[i].refused)
			return true;
	return false;
}

/*
 * The reason names the length of packets if the last copy of the oldest packet did not leave. When
 * long packets leave again, some may not have been sent again yet.
 */
void Stream::judge_length(const Message &m, u32 reason) const
{
	auto first = too_long_.lower_bound(m.first);

	if (reason != PEAL_REASON_ROUTE_MTU) {
		if (una_ >= m.first && too_long_.count(una_) && world_.now() < rules.narrow_until)
			broken(m, "the oldest packet was too long to leave, and the reason is %u",
			       reason);
	} else if (first == too_long_.end() || *first >= m.first + m.packets) {
		broken(m, "every packet left, and it is said to have packets that are too long");
	}
}

/*
 * Checks the number of tries, and that each took its time. IBTA 9.7.6.1.3 allows one to four times
 * the attribute, and peal and the strict peer take two.
 */
void Stream::judge_exceeded(const Message &m, u32 reason)
{
	u64 least = (rules.retry_limit + 1ULL) * 2 * rules.timeout_ns;
	u64 silence = world_.now() - std::max(progress_at_, m.sent_at);
	u64 most = least + rules.timeout_ns / 2;

	/* With few retries, a packet that was sent twice without need looks like a retry. */
	bool hasty = stalls && rules.retry_limit < 2 && reason == PEAL_REASON_NAK_SEQUENCE;

	if (!rules.may_exceed && !peer_dead && !hasty)
		broken(m, "retries exceeded (reason %u), and the peer is alive", reason);
	if (reason != PEAL_REASON_PEER_SILENT && reason != PEAL_REASON_NAK_SEQUENCE &&
	    reason != PEAL_REASON_ROUTE_MTU)
		broken(m, "retries exceeded with reason %u", reason);
	judge_length(m, reason);
	/* Behind a failure no message waits for ever for an earlier one. */
	if (reason == PEAL_REASON_PEER_SILENT && !rules.timeout_ns && !fails_after(m))
		broken(m, "gave up without a timeout");
	if (reason == PEAL_REASON_PEER_SILENT && silence < least)
		broken(m, "gave up after %llu us of silence; it is twice %llu us times %u",
		       silence / 1000, rules.timeout_ns / 1000, rules.retry_limit + 1);
	if (!heard_ && rules.slack < rules.timeout_ns / 2 && world_.now() - restart_at_ > most)
		broken(m, "gave up only after %llu us of silence; it is twice %llu us times %u",
		       (world_.now() - restart_at_) / 1000, rules.timeout_ns / 1000,
		       rules.retry_limit + 1);
	/*
	 * The NAK may have taken the last retry while a READ in front was not answered. The failure
	 * then waits for that READ, and an ACK of the repeated message may arrive meanwhile.
	 */
	bool decided = reason != PEAL_REASON_PEER_SILENT && una_ == new_packet_;

	if (una_sent_ < rules.retry_limit + 1U && !decided &&
	    !(rules.strict && reason == PEAL_REASON_NAK_SEQUENCE))
		broken(m, "gave up when the oldest packet had left %u times", una_sent_);
}

/* Checks whether this message may fail like this. */
void Stream::judge(const Message &m, u8 status, u32 reason)
{
	switch (status) {
	case RETRY_EXC_ERR:
		return judge_exceeded(m, reason);
	case RNR_RETRY_EXC_ERR:
		if (rules.rnr_limit == 7 || !m.not_ready)
			broken(m, "RNR retries exceeded; %u of %u", m.not_ready, rules.rnr_limit);
		/* A requester that asks again too early may get the answer twice. */
		if (rules.clean && !stalls
			    ? m.not_ready != rules.rnr_limit + 1U
			    : !rules.duplicates && m.not_ready < rules.rnr_limit + 1U)
			broken(m, "%u RNR retries of %u", m.not_ready, rules.rnr_limit);
		if (reason != PEAL_REASON_RNR_EXHAUSTED)
			broken(m, "RNR retries exceeded with reason %u", reason);
		return;
	case REM_INV_REQ_ERR:
	case REM_ACCESS_ERR:
	case REM_OP_ERR:
		if (m.refused != status)
			broken(m, "NAK with status %u, the peer refused with %u", status,
			       m.refused);
		return;
	case BAD_RESP_ERR:
		if (!rules.forged)
			broken(m, "bad response, reason %u", reason);
		return;
	default:
		if (m.expected() != status)
			broken(m, "failed with status %u, reason %u", status, reason);
	}
}

void Stream::completed(u32 index, u8 opcode, u8 flags, u8 status, u32 reason, u64 length)
{
	if (completed_ >= messages_.size())
		violation("%s: completion %u of nothing", name_.c_str(), index);
	Message &m = messages_[completed_];

	if (index != m.wire.index || opcode != m.wire.opcode || flags != m.wire.flags ||
	    length != m.wire.length)
		broken(m, "completion is of message %u, opcode %u, %llu bytes", index, opcode,
		       length);
	if (m.completions++)
		broken(m, "completed twice");
	m.status = status;
	m.reason = reason;
	completed_++;
	world_.trace("  %s: message %u completes with status %u, reason %u", name_.c_str(), index,
		     status, reason);
	if (status == WR_FLUSH_ERR) {
		if (!failed_ && !error_)
			broken(m, "flushed while all was well");
		return;
	}
	if (failed_)
		broken(m, "completed with status %u after an error", status);
	if (status) {
		failed_ = true;
		judge(m, status, reason);
		return;
	}
	check_success(m);
}

void Stream::finish()
{
	if (completed_ != messages_.size() && !error_)
		broken(messages_[completed_], "never completed");
	for (const auto &[number, queue] : queues_)
		for (const Receive &receive : queue.receives)
			if (receive.taken && !receive.completed && !peer_dead && !failed_ &&
			    !error_ && rules.reliable() && settled())
				violation("%s: receive %llu never completed", name_.c_str(),
					  receive.number);
}

} // namespace peal::sim
