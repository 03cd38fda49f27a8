// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The behaviour that is allowed to a responder, as an independent model.
 *
 * Owns: the model, which records what was executed, what is owed, and which replies are right.
 * Does not know: the code and the state of kernel/proto/responder.c.
 */
#pragma once
#include <deque>
#include <set>

#include "support.hpp"

namespace peal::fuzz {

/* A READ or atomic that was executed. */
struct Executed {
	/* Responses that the peer asked for: packets, and where their bytes end. */
	struct Asked {
		std::uint32_t from, to;
		std::uint64_t end;
	};

	std::uint32_t psn, packets;
	std::uint8_t operation;
	std::uint32_t rkey, srqn;
	std::uint64_t address, length;
	std::uint64_t original;
	std::uint32_t msn;
	std::uint32_t sent;  /* responses that were sent in order */
	bool jumped = false; /* the peer asked for later ones before, which is its own fault */
	std::vector<Asked> asked;

	bool answered() const { return sent >= packets || jumped; }
};

class ResponderModel {
	/* The current message. */
	struct Message {
		bool open = false, write = false;
		std::uint64_t offset = 0, length = 0, address = 0;
		std::uint32_t rkey = 0, srqn = 0;
	};
	/* What next() still has to return. */
	struct Owed {
		bool ack = false, rnr = false, fatal = false;
		std::uint8_t code = 0;
		std::uint32_t psn = 0;
	};

	peal_responder_config config_;
	std::uint32_t entries_;
	std::uint32_t expected_;
	std::uint32_t msn_ = 0;
	Message message_;
	std::deque<Executed> data_; /* the last ones, newest at the end */
	std::uint32_t last_plain_;  /* newest SEND or WRITE packet, or the PSN before all */
	std::uint64_t data_since_ = 0;
	std::uint32_t unanswered_ = 0;
	Owed owed_;
	bool fatal_ = false;
	bool beyond_ = false;	/* a packet is known to be missing */
	bool nak_sent_ = false; /* and a NAK was sent for it */
	bool thrown_ = false;	/* a packet with thrown_psn_ came and was dropped */
	std::uint32_t thrown_psn_ = 0;
	std::uint16_t flow_ = 0; /* flow of the last packet that arrived in its turn */
	std::uint32_t last_read_ = 0;

	std::uint32_t mtu() const { return 1U << config_.mtu_shift; }
	std::uint32_t packets(std::uint64_t length) const
	{
		return length ? static_cast<std::uint32_t>((length + mtu() - 1) / mtu()) : 1;
	}
	void trim()
	{
		while (data_.size() > config_.rd_atomic)
			data_.pop_front();
	}
	/* Return: the newest one with this PSN. */
	Executed *find(std::uint32_t psn)
	{
		for (auto it = data_.rbegin(); it != data_.rend(); ++it)
			if (peal_psn_ahead(it->psn, psn) < it->packets)
				return &*it;
		return nullptr;
	}
	void must_be_answered_before(const Executed *newer) const
	{
		for (const Executed &d : data_) {
			if (&d == newer)
				return;
			MUST(d.answered());
		}
	}
	bool has_resource() const
	{
		if (data_.size() < config_.rd_atomic)
			return true;
		return !data_.empty() && data_.front().sent >= data_.front().packets;
	}
	bool continues(std::uint32_t has) const
	{
		if (has & PEAL_HAS_FIRST)
			return !message_.open;
		return message_.open && message_.write == !!(has & PEAL_HAS_WRITE);
	}
	bool payload_fits(const peal_packet &p, std::uint32_t has) const
	{
		if (!(has & PEAL_HAS_LAST))
			return p.payload_bytes == mtu();
		return p.payload_bytes <= mtu() && (has & PEAL_HAS_FIRST || p.payload_bytes);
	}
	bool length_fits(const peal_packet &p, std::uint32_t has) const
	{
		const bool first = has & PEAL_HAS_FIRST;
		const std::uint64_t so_far = (first ? 0 : message_.offset) + p.payload_bytes;
		const std::uint64_t whole = first ? p.length : message_.length;

		if (peal_packet_opcode(&p)->operation == PEAL_OP_ATOMIC_WRITE)
			return p.length == 8 && p.payload_bytes == 8;
		if (has & (PEAL_HAS_READ | PEAL_HAS_FETH))
			return p.length <= PEAL_MAX_MSG;
		if (has & PEAL_HAS_SEND)
			return so_far <= PEAL_MAX_MSG;
		if (!(has & PEAL_HAS_WRITE))
			return true;
		return whole <= PEAL_MAX_MSG &&
		       (has & PEAL_HAS_LAST ? so_far == whole : so_far < whole);
	}

public:
	ResponderModel(const peal_responder_config &config, std::uint32_t entries,
		       std::uint32_t psn)
		: config_(config), entries_(entries), expected_(psn),
		  last_plain_(peal_psn_add(psn, PEAL_PSN_MASK))
	{
		configure(config);
	}
	void configure(const peal_responder_config &config)
	{
		config_ = config;
		if (config_.rd_atomic > entries_)
			config_.rd_atomic = static_cast<u8>(entries_);
		trim();
	}
	const peal_responder_config &config() const { return config_; }
	bool reliable() const { return peal_transport_is_reliable(config_.transport); }
	std::uint32_t expected() const { return expected_; }
	std::uint32_t msn() const { return msn_; }
	bool fatal() const { return fatal_; }
	bool open() const { return message_.open; }
	bool open_write() const { return message_.write; }
	std::uint64_t rest() const { return message_.length - message_.offset; }
	std::uint64_t offset() const { return message_.offset; }
	const std::deque<Executed> &data() const { return data_; }

	/* ---- requests ---- */

	bool valid(const peal_packet &p) const
	{
		const std::uint32_t has = peal_packet_opcode(&p)->has;

		if (!continues(has) || !length_fits(p, has))
			return false;
		if (!(has & PEAL_HAS_FIRST) && p.srqn != message_.srqn)
			return false;
		if (has & PEAL_HAS_PAYLOAD && !payload_fits(p, has))
			return false;
		return !(has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC)) || has_resource();
	}
	/* The host must do what the packet asks, at its place. */
	void check_execute(const peal_packet &p, const peal_request &r) const
	{
		const std::uint32_t has = peal_packet_opcode(&p)->has;
		const bool first = has & PEAL_HAS_FIRST;
		const std::uint64_t offset = first ? 0 : message_.offset;

		MUST(p.psn == expected_ || !reliable());
		MUST((p.psn == expected_ && valid(p)) || (!reliable() && may_begin(p)));
		MUST(r.wqe.opcode == peal_packet_opcode(&p)->operation);
		MUST(r.first == first && r.last == !!(has & PEAL_HAS_LAST));
		MUST(r.offset == offset && r.bytes == p.payload_bytes && r.bytes <= mtu());
		MUST(r.wqe.length <= PEAL_MAX_MSG);
		MUST(r.wqe.srqn == p.srqn);
		if (has & (PEAL_HAS_SEND | PEAL_HAS_WRITE))
			MUST(r.offset + r.bytes <= r.wqe.length);
		if (has & PEAL_HAS_SEND)
			MUST(r.wqe.length == offset + r.bytes);
		if (has & (PEAL_HAS_WRITE | PEAL_HAS_READ)) {
			MUST(r.wqe.length == (first ? p.length : message_.length));
			MUST(r.wqe.remote_addr == (first ? p.remote_addr : message_.address));
			MUST(r.wqe.rkey == (first ? p.rkey : message_.rkey));
		}
		if (has & PEAL_HAS_ATOMIC)
			MUST(r.wqe.remote_addr == p.remote_addr && r.wqe.rkey == p.rkey);
		if (has & PEAL_HAS_FETH)
			MUST(r.wqe.flush.length == p.length &&
			     r.wqe.flush.placement == p.placement &&
			     r.wqe.flush.selectivity == p.selectivity);
		if (has & PEAL_HAS_IMM)
			MUST(r.wqe.imm_or_rkey == p.imm);
	}
	void invalid()
	{
		close_gap();
		owe_fatal(PEAL_NAK_INVALID_REQUEST);
	}
	void verdict(const peal_packet &p, std::uint8_t syndrome, std::uint64_t original, bool kept)
	{
		const std::uint8_t code = syndrome & PEAL_SYNDROME_VALUE;

		if (syndrome == PEAL_SYNDROME_ACK) {
			executed(p, original, kept);
			return;
		}
		close_gap();
		if ((syndrome & PEAL_SYNDROME_KIND) == PEAL_SYNDROME_RNR) {
			owed_.rnr = true;
			owed_.code = code;
		} else {
			owe_fatal(code);
		}
	}
	void saw_beyond() { beyond_ = true; }
	void threw_away(std::uint32_t psn)
	{
		thrown_ = beyond_ = true;
		thrown_psn_ = psn;
	}
	void came_in_turn(const peal_packet &p) { flow_ = p.flow; }
	std::uint16_t flow() const { return flow_; }
	/* A duplicate was answered. */
	void repeated(const peal_packet &p)
	{
		const std::uint32_t has = peal_packet_opcode(&p)->has;
		Executed *d;

		if (has & (PEAL_HAS_SEND | PEAL_HAS_WRITE)) {
			owed_.ack = true;
			return;
		}
		d = find(p.psn);
		MUST(d && d->operation == peal_packet_opcode(&p)->operation);
		MUST(d->rkey == p.rkey);
		ask_again(*d, p);
	}
	/* An executed request must be answered again when the repetition is the same. */
	bool must_repeat(const peal_packet &p)
	{
		const Executed *d = find(p.psn);

		return d && d->psn == p.psn && d->rkey == p.rkey && d->address == p.remote_addr &&
		       d->operation == peal_packet_opcode(&p)->operation &&
		       (d->operation != PEAL_OP_READ || d->length == p.length);
	}

	/* ---- UC ---- */

	/* On an unreliable connection only the place in the message matters. */
	void lose_message() { message_.open = false; }
	void unreliable_done(const peal_packet &p)
	{
		advance(p);
		expected_ = peal_psn_add(p.psn, 1);
	}
	/* Whether a packet begins a message, whatever its PSN is and whether a message is open. */
	bool may_begin(const peal_packet &p) const
	{
		const std::uint32_t has = peal_packet_opcode(&p)->has;

		return has & PEAL_HAS_FIRST && length_fits(p, has) && payload_fits(p, has);
	}

	/* The direct path has delivered the messages up to there. */
	void skip(std::uint32_t psn, std::uint32_t msn)
	{
		data_.clear();
		data_since_ = 0;
		close_gap();
		thrown_ = false;
		message_.open = false;
		owed_.ack = false;
		unanswered_ = 0;
		expected_ = psn;
		msn_ = msn;
		last_plain_ = before(psn);
	}

	/* ---- replies ---- */

	void check_reply(const peal_reply &reply)
	{
		const std::uint32_t has = peal_packet_opcode(&reply.header)->has;

		MUST(reliable());
		check_header(reply.header);
		MUST(has & PEAL_HAS_RESPONSE);
		MUST(reply.header.payload_bytes <= mtu());
		MUST(!reply.read || has & PEAL_HAS_READ);
		if (has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC))
			check_data(reply);
		else
			check_ack(reply.header);
	}
	/* next() has returned that nothing is due. */
	void check_nothing_due() const
	{
		MUST(!owed_.fatal && !owed_.rnr && !owed_.ack);
		must_be_answered_before(nullptr);
	}
	/* The host found that the key of its last READ reply is gone. */
	void refuse_read()
	{
		data_.clear();
		close_gap();
		owe_fatal(PEAL_NAK_REMOTE_ACCESS);
		owed_.psn = last_read_;
	}

private:
	void close_gap()
	{
		owed_.rnr = false;
		nak_sent_ = false;
		beyond_ = false;
	}
	void owe_fatal(std::uint8_t code)
	{
		fatal_ = true;
		owed_.fatal = true;
		owed_.code = code;
		owed_.psn = expected_;
	}
	void advance(const peal_packet &p)
	{
		const std::uint32_t has = peal_packet_opcode(&p)->has;

		if (has & PEAL_HAS_FIRST)
			message_ = {
				true,  !!(has & PEAL_HAS_WRITE), 0, p.length, p.remote_addr, p.rkey,
				p.srqn};
		message_.offset += p.payload_bytes;
		if (!(has & PEAL_HAS_LAST))
			return;
		message_.open = false;
		msn_ = peal_psn_add(msn_, 1);
	}
	void save(const peal_packet &p, std::uint64_t original)
	{
		const bool read = peal_packet_opcode(&p)->has & PEAL_HAS_READ;
		Executed d = {};

		d.psn = p.psn;
		d.packets = read ? packets(p.length) : 1;
		d.operation = peal_packet_opcode(&p)->operation;
		d.rkey = p.rkey;
		d.srqn = p.srqn;
		d.address = p.remote_addr;
		d.length = read ? p.length : 0;
		d.original = original;
		d.msn = msn_;
		d.asked.push_back({0, d.packets, d.length});
		data_.push_back(d);
		++data_since_;
		trim();
	}
	void executed(const peal_packet &p, std::uint64_t original, bool kept)
	{
		const std::uint32_t has = peal_packet_opcode(&p)->has;

		advance(p);
		close_gap();
		beyond_ = kept || thrown_;
		if (has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC)) {
			save(p, original);
			expected_ = peal_psn_add(expected_, data_.back().packets);
			thrown_ &= !peal_psn_before(thrown_psn_, expected_);
			beyond_ = kept || thrown_;
			return;
		}
		last_plain_ = p.psn;
		data_since_ = 0;
		owed_.ack |= p.ack_request || ++unanswered_ >= 32;
		expected_ = peal_psn_add(expected_, 1);
		thrown_ &= !peal_psn_before(thrown_psn_, expected_);
		beyond_ = kept || thrown_;
	}
	void ask_again(Executed &d, const peal_packet &p)
	{
		const std::uint32_t from = peal_psn_ahead(d.psn, p.psn);
		const std::uint64_t offset = std::uint64_t{from} * mtu();

		MUST(d.address + offset == p.remote_addr);
		if (d.operation != PEAL_OP_READ)
			return;
		MUST(offset + p.length <= d.length);
		d.jumped |= from > d.sent;
		d.asked.push_back({from, from + packets(p.length), offset + p.length});
		if (d.asked.size() > 64)
			d.asked.erase(d.asked.begin() + 1);
	}
	void check_data(const peal_reply &reply)
	{
		Executed *d = find(reply.header.psn);

		MUST(d);
		const std::uint32_t at = peal_psn_ahead(d->psn, reply.header.psn);

		must_be_answered_before(d);
		MUST(reply.header.msn == d->msn);
		MUST(reply.header.syndrome == (PEAL_SYNDROME_ACK | PEAL_CREDITS_UNLIMITED));
		MUST(reply.again == (at < d->sent) || d->jumped);
		MUST(reply.again || at == d->sent || d->jumped);
		if (d->sent <= at)
			d->sent = at + 1;
		if (d->operation == PEAL_OP_READ) {
			MUST(reply.read);
			check_read(reply, *d, at);
		} else {
			check_word(reply, *d);
		}
		acknowledged(reply.header.psn);
	}
	/* An ATOMIC_WRITE and a FLUSH are answered as a READ of no bytes. */
	void check_word(const peal_reply &reply, const Executed &d) const
	{
		const bool atomic =
			d.operation == PEAL_OP_CMP_SWAP || d.operation == PEAL_OP_FETCH_ADD;

		MUST(reply.header.original == d.original && !reply.read);
		MUST(!reply.header.payload_bytes);
		MUST(reply.header.opcode ==
		     peal_opcode_of(config_.transport,
				    atomic ? PEAL_WIRE_ATOMIC_ACK : PEAL_WIRE_READ_RESPONSE_ONLY));
	}
	/* The peer asked for exactly these bytes in this packet. */
	void check_read(const peal_reply &reply, const Executed &d, std::uint32_t at)
	{
		const std::uint64_t offset = std::uint64_t{at} * mtu();
		const std::uint32_t has = peal_packet_opcode(&reply.header)->has;
		bool asked = false;

		MUST(reply.srqn == d.srqn);
		MUST(reply.rkey == d.rkey && reply.remote_addr == d.address + offset);
		MUST(offset + reply.header.payload_bytes <= d.length);
		for (const Executed::Asked &a : d.asked) {
			if (at < a.from || at >= a.to)
				continue;
			const std::uint64_t rest = a.end - offset;
			const std::uint64_t bytes = rest < mtu() ? rest : mtu();

			asked |= reply.header.payload_bytes == bytes &&
				 !(has & PEAL_HAS_LAST) == (at + 1 != a.to);
		}
		MUST(asked);
		last_read_ = reply.header.psn;
	}
	void acknowledged(std::uint32_t psn)
	{
		if (peal_psn_add(psn, 1) != expected_)
			return;
		owed_.ack = false;
		unanswered_ = 0;
	}
	/* An ACK does not overtake data and does not replace it. */
	void check_ack(const peal_packet &header)
	{
		must_be_answered_before(nullptr);
		MUST(header.msn == msn_);
		switch (header.syndrome & PEAL_SYNDROME_KIND) {
		case PEAL_SYNDROME_ACK:
			check_plain_ack(header);
			break;
		case PEAL_SYNDROME_RNR:
			MUST(owed_.rnr && header.psn == expected_);
			MUST((header.syndrome & PEAL_SYNDROME_VALUE) == owed_.code);
			owed_.rnr = false;
			break;
		default:
			check_nak(header);
		}
		owed_.ack = false;
		unanswered_ = 0;
	}
	void check_plain_ack(const peal_packet &header)
	{
		MUST(owed_.ack && !owed_.fatal && !owed_.rnr);
		MUST((header.syndrome & PEAL_SYNDROME_VALUE) == PEAL_CREDITS_UNLIMITED);
		if (data_since_ <= data_.size())
			MUST(header.psn == last_plain_);
		else
			MUST(header.psn == before(data_.empty() ? expected_ : data_.front().psn));
	}
	static std::uint32_t before(std::uint32_t psn) { return peal_psn_add(psn, PEAL_PSN_MASK); }
	void check_nak(const peal_packet &header)
	{
		const std::uint8_t code = header.syndrome & PEAL_SYNDROME_VALUE;

		MUST((header.syndrome & PEAL_SYNDROME_KIND) == PEAL_SYNDROME_NAK);
		if (owed_.fatal) {
			MUST(code == owed_.code && header.psn == owed_.psn);
			owed_.fatal = false;
			return;
		}
		/* A gap is reported once, and only when there is one. */
		MUST(code == PEAL_NAK_SEQUENCE && header.psn == expected_);
		MUST(!fatal_ && beyond_ && !nak_sent_);
		nak_sent_ = true;
	}
};

} // namespace peal::fuzz
