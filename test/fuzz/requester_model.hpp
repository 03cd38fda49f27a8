// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The behaviour that is allowed to a requester, as an independent model.
 *
 * Owns: the model, which records what was posted, sent, answered, placed and completed.
 * Does not know: the code of kernel/proto/requester.c. Of its state it uses only `una`, after
 * checking that a response allows it. PSNs here do not wrap.
 */
#pragma once
#include <algorithm>
#include <vector>

#include "support.hpp"

namespace peal::fuzz {

/* A message that was posted, and its progress. */
struct Posted {
	peal_wqe wr;
	std::uint64_t psn;	/* of its first packet */
	std::uint32_t packets;	/* 0 for a local operation */
	std::uint32_t sent = 0; /* how many of these were sent, in order */
	std::uint32_t responses = 0;
	std::uint64_t placed = 0; /* bytes of a READ, in order */
	bool executed = false;	  /* local */
	bool host_failed = false; /* the host gave it an error status */

	bool local() const { return !packets; }
	bool is_read() const { return wr.opcode == PEAL_OP_READ; }
	bool is_atomic() const
	{
		return wr.opcode == PEAL_OP_CMP_SWAP || wr.opcode == PEAL_OP_FETCH_ADD;
	}
	bool is_placement() const
	{
		return wr.opcode == PEAL_OP_ATOMIC_WRITE || wr.opcode == PEAL_OP_FLUSH;
	}
	bool wants_data() const { return is_read() || is_atomic() || is_placement(); }
	std::uint64_t end() const { return psn + packets; }
};

class RequesterModel {
	/* A READ request or atomic that was sent for the first time. */
	struct Asked {
		std::uint64_t psn, end;
	};

	peal_requester_config config_;
	std::uint64_t top_,
		posted_psn_; /* PSN of the next new packet, and after the last message */
	std::uint64_t una_;
	std::uint64_t vouched_; /* the responses prove that everything before it arrived */
	std::vector<Posted> messages_;
	std::vector<Asked> asked_; /* some of them may be answered */
	std::size_t sending_ = 0, completed_ = 0;
	bool failed_ = false; /* a completion said so */

	static bool is_local(std::uint8_t opcode)
	{
		return opcode == PEAL_OP_INVALID ||
		       (opcode >= PEAL_OP_BIND_MW && opcode <= PEAL_OP_REG_MR);
	}
	std::uint32_t packets_of(const peal_wqe &m) const
	{
		const bool atomic = m.opcode == PEAL_OP_CMP_SWAP || m.opcode == PEAL_OP_FETCH_ADD;

		if (is_local(m.opcode))
			return 0;
		if (atomic || config_.transport == PEAL_UD || !m.length)
			return 1;
		return static_cast<std::uint32_t>((m.length + mtu() - 1) / mtu());
	}
	bool carried(std::uint8_t opcode) const
	{
		if (reliable())
			return (opcode >= PEAL_OP_SEND && opcode <= PEAL_OP_FETCH_ADD) ||
			       opcode == PEAL_OP_ATOMIC_WRITE || opcode == PEAL_OP_FLUSH;
		if (opcode == PEAL_OP_SEND || opcode == PEAL_OP_SEND_IMM)
			return true;
		return config_.transport == PEAL_UC &&
		       (opcode == PEAL_OP_WRITE || opcode == PEAL_OP_WRITE_IMM);
	}

public:
	RequesterModel(const peal_requester_config &config, std::uint32_t psn)
		: config_(config), top_(psn + (1ULL << 24)), posted_psn_(top_), una_(top_),
		  vouched_(top_)
	{
	}
	std::uint32_t mtu() const { return 1U << config_.mtu_shift; }
	bool reliable() const { return peal_transport_is_reliable(config_.transport); }
	const peal_requester_config &config() const { return config_; }
	void configure(const peal_requester_config &config) { config_ = config; }
	std::uint32_t una() const { return una_ & PEAL_PSN_MASK; }
	std::uint64_t outstanding() const { return top_ - una_; }
	std::size_t posted() const { return messages_.size(); }
	std::size_t completed() const { return completed_; }
	bool failed() const { return failed_; }
	const Posted &message(std::size_t index) const { return messages_[index]; }
	/* Return: the message that has this PSN, if una <= PSN < top, or NULL. */
	Posted *find(std::uint64_t psn)
	{
		for (Posted &m : messages_)
			if (m.psn <= psn && psn < m.end())
				return &m;
		return nullptr;
	}
	std::uint64_t unwrap(std::uint32_t psn) const { return una_ + peal_psn_ahead(una(), psn); }

	void post(const peal_wqe &message)
	{
		messages_.push_back({message, posted_psn_, packets_of(message)});
		posted_psn_ += messages_.back().packets;
	}
	void fail_message(std::size_t index) { messages_[index].host_failed = true; }

	/* ---- packets to send ---- */

	void check_outgoing(const peal_outgoing &out, const peal_wqe *message)
	{
		MUST(!failed_);
		if (out.local)
			check_local(message);
		else
			check_packet(out, message);
	}
	void local_done(std::size_t index, bool well)
	{
		messages_[index].executed = true;
		messages_[index].host_failed |= !well;
	}

	/* ---- answers ---- */

	/* A response arrives. The model records what it allows. */
	void hears(const peal_packet &p)
	{
		const std::uint64_t psn = unwrap(p.psn);
		const bool ack = (p.syndrome & PEAL_SYNDROME_KIND) == PEAL_SYNDROME_ACK;
		const bool data = peal_packet_opcode(&p)->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC);

		if (psn >= top_)
			return;
		vouched_ = std::max(vouched_, psn + (ack || data));
	}
	void check_response(const peal_response &response, const peal_packet &p)
	{
		Posted *m = find(unwrap(p.psn));

		MUST(m && m->wr.index == messages_[response_index_].wr.index);
		MUST(unwrap(p.psn) == una_ && una_ < top_);
		if (response.what == PEAL_RESPONSE_ATOMIC) {
			MUST(m->is_atomic() && !m->responses && response.original == p.original);
			return;
		}
		MUST(response.bytes == p.payload_bytes);
		MUST(m->is_read() || (m->is_placement() && !response.bytes && !m->responses));
		MUST(response.offset == m->placed);
		MUST(response.offset + response.bytes <= m->wr.length);
	}
	void name_response(std::size_t index) { response_index_ = index; }
	void placed(const peal_response &response)
	{
		Posted &m = messages_[response_index_];

		m.responses++;
		m.placed += response.what == PEAL_RESPONSE_READ ? response.bytes : 0;
	}
	/* Called with the requester's `una` after each call. */
	void follow(std::uint32_t una)
	{
		const std::uint64_t now = unwrap(una);

		MUST(now <= top_ && (!reliable() || now <= vouched_));
		una_ = now;
	}
	/* Forgets the packets that an unreliable queue pair has sent. */
	void forget() { una_ = top_; }

	/* ---- completions ---- */

	void check_completion(const peal_message &c)
	{
		MUST(!failed_ && completed_ < messages_.size());
		const Posted &m = messages_[completed_++];

		check_identity(c, m);
		if (c.status) {
			MUST(c.reason || m.host_failed);
			failed_ = true;
			return;
		}
		MUST(!m.host_failed);
		if (m.local()) {
			MUST(m.executed);
			return;
		}
		MUST(m.sent == m.packets && m.end() <= una_);
		if (m.is_read())
			MUST(m.placed == m.wr.length && m.responses == m.packets);
		if (m.is_atomic() || m.is_placement())
			MUST(m.responses == 1);
	}
	void check_flushed(const peal_message &c)
	{
		MUST(completed_ < messages_.size());
		check_identity(c, messages_[completed_++]);
		MUST(c.status == IB_WC_WR_FLUSH_ERR);
		failed_ = true;
	}
	/*
	 * The number of READ requests and atomics that were sent and
	 * whose last response has not come.
	 */
	std::uint32_t data_outstanding() const
	{
		std::uint32_t n = 0;

		for (const Asked &a : asked_)
			n += a.end > una_;
		return n;
	}

private:
	std::size_t response_index_ = 0;

	static void check_identity(const peal_message &c, const Posted &m)
	{
		MUST(c.wqe.index == m.wr.index && c.wqe.opcode == m.wr.opcode);
		MUST(c.wqe.flags == m.wr.flags && c.wqe.length == m.wr.length);
	}
	void check_local(const peal_wqe *message)
	{
		Posted &m = messages_[sending_++];

		MUST(m.local() && !m.executed && message->index == m.wr.index);
		check_fence(m);
	}
	void check_fence(const Posted &m) const
	{
		if (m.wr.flags & PEAL_WQE_FENCE)
			MUST(!data_outstanding());
	}
	void check_packet(const peal_outgoing &out, const peal_wqe *message)
	{
		const std::uint64_t psn = out.again ? unwrap(out.header.psn) : top_;

		MUST((psn & PEAL_PSN_MASK) == out.header.psn);
		check_header(out.header);
		Posted *m = find(psn);

		MUST(m && message->index == m->wr.index && !m->local());
		MUST(carried(m->wr.opcode));
		const auto at = static_cast<std::uint32_t>(psn - m->psn);

		MUST(out.offset == std::uint64_t{at} * mtu());
		const std::uint32_t span = m->is_read() ? check_read(out.header, *m, at)
							: check_request(out.header, *m, at);

		if (out.again) {
			MUST(reliable() && psn < top_ && psn + span <= top_);
			/* No request crosses the end of an earlier one. */
			MUST(!m->is_read() ||
			     std::any_of(asked_.begin(), asked_.end(), [&](const Asked &a) {
				     return a.psn <= psn && psn + span <= a.end;
			     }));
		} else {
			check_new(*m, at, span);
		}
	}
	/* Return: the number of PSNs that it asks for. */
	std::uint32_t check_read(const peal_packet &h, const Posted &m, std::uint32_t at) const
	{
		const std::uint64_t offset = std::uint64_t{at} * mtu();
		const std::uint32_t span = h.length ? (h.length + mtu() - 1) / mtu() : 1;

		MUST(h.opcode == peal_opcode_of(config_.transport, PEAL_WIRE_READ_REQUEST));
		MUST(!h.payload_bytes && h.srqn == m.wr.srqn);
		MUST(h.rkey == m.wr.rkey && h.remote_addr == m.wr.remote_addr + offset);
		MUST(offset + h.length <= m.wr.length);
		MUST(offset + h.length == m.wr.length || h.length == span * mtu());
		MUST(h.length || !m.wr.length);
		MUST(span <= PEAL_READ_PIECE);
		return span;
	}
	std::uint32_t check_request(const peal_packet &h, const Posted &m, std::uint32_t at) const
	{
		const std::uint32_t has = peal_packet_opcode(&h)->has;
		const std::uint64_t offset = std::uint64_t{at} * mtu();
		const std::uint64_t rest = m.wr.length - offset;

		MUST(peal_opcode_transport(h.opcode) == config_.transport);
		MUST(has & PEAL_HAS_REQUEST && h.srqn == m.wr.srqn);
		MUST(!(has & PEAL_HAS_XRCETH) == (config_.transport != PEAL_XRC));
		MUST(!(has & PEAL_HAS_FIRST) == (at != 0));
		MUST(!(has & PEAL_HAS_LAST) == (at + 1 != m.packets));
		if (has & PEAL_HAS_LAST)
			MUST(peal_packet_opcode(&h)->operation == m.wr.opcode);
		if (has & (PEAL_HAS_RETH | PEAL_HAS_ATOMIC_ETH))
			MUST(h.rkey == m.wr.rkey && h.remote_addr == m.wr.remote_addr);
		if (has & PEAL_HAS_FETH)
			MUST(h.length == m.wr.flush.length && h.placement == m.wr.flush.placement &&
			     h.selectivity == m.wr.flush.selectivity);
		else if (has & PEAL_HAS_RETH)
			MUST(h.length == m.wr.length);
		if (has & PEAL_HAS_IMM)
			MUST(h.imm == m.wr.imm_or_rkey);
		if (has & PEAL_HAS_IETH)
			MUST(h.inv_rkey == m.wr.imm_or_rkey);
		if (m.is_atomic())
			MUST(!h.payload_bytes);
		else if (config_.transport == PEAL_UD)
			MUST(h.payload_bytes == m.wr.length);
		else
			MUST(h.payload_bytes == std::min<std::uint64_t>(rest, mtu()));
		return 1;
	}
	/*
	 * New packets are in order, inside the window, and ask for no
	 * more data than was negotiated.
	 */
	void check_new(Posted &m, std::uint32_t at, std::uint32_t span)
	{
		MUST(&m == &messages_[sending_] && at == m.sent && !m.host_failed);
		if (!at)
			check_fence(m);
		if (reliable())
			MUST(!outstanding() ||
			     outstanding() + span <= std::max(config_.window, 1U));
		m.sent += span;
		top_ += span;
		if (m.sent == m.packets)
			sending_++;
		if (!m.wants_data())
			return;
		std::erase_if(asked_, [this](const Asked &a) { return a.end <= una_; });
		asked_.push_back({top_ - span, top_});
		MUST(data_outstanding() <= config_.max_rd_atomic);
	}
};

} // namespace peal::fuzz
