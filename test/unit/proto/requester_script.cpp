// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A requester alone. The script is the host, the peer and the clock. */
#include <algorithm>

#include "script.hpp"

namespace peal::test {

namespace {

const Names BLOCKED = {
	{"empty", PEAL_BLOCKED_EMPTY},	 {"window", PEAL_BLOCKED_WINDOW},
	{"credit", PEAL_BLOCKED_CREDIT}, {"rd-atomic", PEAL_BLOCKED_RD_ATOMIC},
	{"fence", PEAL_BLOCKED_FENCE},	 {"last", PEAL_BLOCKED_LAST},
	{"rnr", PEAL_BLOCKED_RNR},	 {"answer", PEAL_BLOCKED_ANSWER},
	{"failed", PEAL_BLOCKED_FAILED}, {"a packet", PEAL_BLOCKED_NONE},
};

const Names NAKS = {
	{"sequence", PEAL_NAK_SEQUENCE},
	{"invalid-request", PEAL_NAK_INVALID_REQUEST},
	{"remote-access", PEAL_NAK_REMOTE_ACCESS},
	{"remote-operation", PEAL_NAK_REMOTE_OPERATION},
};

class Requester : public Half {
	peal_requester_config config_ = {};
	std::vector<peal_message> messages_;
	std::unique_ptr<peal_requester> requester_ = std::make_unique<peal_requester>();
	std::uint64_t silence_ = 0, resent_ = 0;
	std::uint32_t posted_ = 0, completed_ = 0;
	const peal_message *failure_ = nullptr;
	bool failure_expected_ = false;
	std::int64_t too_long_ = INT64_MAX; /* packets from this on do not leave */
	std::int64_t last_ = -1;	    /* the packet that was sent last */
	peal_outgoing out_ = {};
	peal_response response_ = {};

	std::uint64_t deadline() const override
	{
		return peal_requester_deadline(requester_.get());
	}
	void run_timers() override { peal_requester_expire(requester_.get(), now_); }
	void *take_expired() override
	{
		return peal_requester_take_expired(requester_.get(), now_);
	}
	void *drop_reordered() override { return peal_reorder_drop(&requester_->reorder); }
	void begin(std::uint32_t entries)
	{
		messages_.assign(entries, {});
		peal_requester_init(requester_.get(), messages_.data(), entries);
		configure();
		peal_requester_set_psn(requester_.get(), base_);
		open_window(32);
	}
	void configure() { peal_requester_configure(requester_.get(), &config_); }
	/* Scripts do not depend on where a window starts, or on what its first loss takes. */
	void open_window(u32 size)
	{
		requester_->window.size = std::min(size, requester_->window.limit);
		requester_->window.threshold = requester_->window.limit;
	}
	void set(Words &words)
	{
		config_.transport = static_cast<u8>(value_of(
			TRANSPORTS,
			words.after("transport").value_or(std::to_string(config_.transport))));
		config_.retry_limit = words.value("retry", config_.retry_limit);
		config_.rnr_limit = words.value("rnr", config_.rnr_limit);
		config_.max_rd_atomic = words.value("rd-atomic", config_.max_rd_atomic);
		config_.timeout_ns = words.value("timeout", config_.timeout_ns);
		config_.window = words.value("window", config_.window);
		config_.mtu_shift = mtu_shift(words, config_.mtu_shift);
		configure();
		open_window(words.has("open") ? config_.window : 32);
	}

	void post(Words &words)
	{
		peal_wqe wr = {};

		wr.opcode = value_of(OPERATIONS, words.take("operation"));
		wr.length = static_cast<u64>(words.next_number().value_or(1));
		wr.flags = (words.has("unsignaled") ? 0 : PEAL_WQE_SIGNALED) |
			   (words.has("solicited") ? PEAL_WQE_SOLICITED : 0) |
			   (words.has("fence") ? PEAL_WQE_FENCE : 0);
		wr.more = words.has("more");
		wr.end = words.has("end");
		wr.last = words.has("last");
		wr.index = posted_++;
		wr.imm_or_rkey = words.value("imm", words.value("inv", 0));
		wr.remote_addr = ADDRESS;
		wr.rkey = KEY;
		wr.srqn = words.value("srqn", 0);
		if (wr.opcode == PEAL_OP_FLUSH) {
			wr.flush.length = words.value("range", 0);
			wr.flush.placement = words.value("placement", 0);
			wr.flush.selectivity = words.value("selectivity", 0);
		} else {
			wr.atomic.compare_add = words.value("compare", words.value("add", 0));
			wr.atomic.swap = words.value("swap", 0);
		}
		if (!peal_requester_has_room(requester_.get()))
			throw Mismatch("no room for it");
		peal_requester_post(requester_.get(), &wr);
	}

	/* Return: a packet left or did not fit, which out_ describes. */
	bool send_packet()
	{
		if (peal_requester_next(requester_.get(), now_, 1, &out_) != PEAL_BLOCKED_NONE)
			return false;
		if (out_.local)
			throw Mismatch("a local operation, not a packet");
		last_ = number_of(out_.header.psn);
		if (last_ >= too_long_)
			peal_requester_too_long(requester_.get(), out_.header.psn);
		return true;
	}
	std::vector<std::int64_t> send_all()
	{
		std::vector<std::int64_t> sent;

		while (send_packet())
			sent.push_back(last_);
		return sent;
	}
	/* Compares the packets that were sent, and what the last one was. */
	void expect_sent(Words &words, const std::vector<std::int64_t> &sent)
	{
		const peal_packet &h = out_.header;

		if (const auto wire = words.next_of(WIRE))
			expect("opcode " + name_of(WIRE, *wire) + " of " +
				       name_of(TRANSPORTS, config_.transport),
			       "opcode " + name_of(WIRE, h.opcode & 0x1f) + " of " +
				       name_of(TRANSPORTS, h.opcode >> PEAL_TRANSPORT_SHIFT));
		expect_list(words.numbers(), sent);
		words.has("none");
		expect_fields(words, {
					     {"again", true, out_.again},
					     {"ack", true, h.ack_request},
					     {"asks", true, out_.asks},
					     {"solicited", true, h.solicited},
					     {"bytes", false, h.payload_bytes},
					     {"pad", false, h.pad},
					     {"headers", false, h.header_bytes},
					     {"offset", false, out_.offset},
					     {"length", false, h.length},
					     {"addr", false, h.remote_addr},
					     {"key", false, h.rkey},
					     {"imm", false, h.imm},
					     {"inv", false, h.inv_rkey},
					     {"compare", false, h.compare},
					     {"swap", false, h.swap_add},
					     {"placement", false, h.placement},
					     {"selectivity", false, h.selectivity},
					     {"srqn", false, h.srqn},
					     {"message", false, out_.message},
				     });
	}
	void local_operation(Words &words)
	{
		const unsigned opcode = value_of(OPERATIONS, words.take("operation"));

		expect_blocked("a packet");
		if (!out_.local)
			throw Mismatch("a packet, not a local operation");
		expect(name_of(OPERATIONS, opcode),
		       name_of(OPERATIONS,
			       peal_requester_wqe(requester_.get(), out_.message)->opcode));
		expect_fields(words, {{"message", false, out_.message}});
		if (words.has("held"))
			return;
		const bool fails = words.has("fails");
		const unsigned status = fails ? value_of(STATUSES, words.take("status")) : 0;

		peal_requester_local_done(requester_.get(), out_.message, static_cast<u8>(status),
					  status ? value_of(REASONS, words.take("reason")) : 0);
	}
	void expect_blocked(const std::string &why)
	{
		expect(why,
		       name_of(BLOCKED, peal_requester_next(requester_.get(), now_, 1, &out_)));
	}

	peal_packet response(Words &words)
	{
		const std::string kind = words.take("kind of response");
		const std::int64_t n = number(words.take("PSN"));
		const auto amount = words.next_number();
		unsigned wire = PEAL_WIRE_ACK, syndrome = PEAL_CREDITS_UNLIMITED;
		peal_packet packet = {};

		if (kind == "nak") {
			syndrome = PEAL_SYNDROME_NAK + words.next_of(NAKS).value_or(0);
		} else if (kind == "rnr") {
			syndrome = PEAL_SYNDROME_RNR + words.value("timer", 1);
		} else if (kind == "read") {
			wire = PEAL_WIRE_READ_RESPONSE_MIDDLE;
			packet.payload_bytes = static_cast<u32>(amount.value_or(MTU));
		} else if (kind == "atomic") {
			wire = PEAL_WIRE_ATOMIC_ACK;
			packet.original = static_cast<u64>(amount.value_or(0));
		} else if (kind != "ack") {
			throw Mismatch("no kind of response: " + kind);
		}
		if (const auto as = words.after("as"))
			wire = value_of(WIRE, *as);
		packet.opcode = static_cast<u8>(config_.transport == PEAL_XRC
							? PEAL_XRC << PEAL_TRANSPORT_SHIFT | wire
							: wire);
		packet.psn = psn(n);
		packet.syndrome = words.value("syndrome", words.value("credits", syndrome));
		packet.msn = words.value("msn", 0);
		packet.flow = words.value("flow", 0);
		return packet;
	}
	/* Return: what the requester did with it, in words. */
	std::string receive(const peal_packet &packet, peal_packet *handle)
	{
		peal_requester_receive(requester_.get(), &packet, now_, handle, &response_);
		const std::string duplicate = response_.duplicate ? " duplicate" : "";

		switch (response_.what) {
		case PEAL_RESPONSE_DROPPED:
			return "dropped " + name_of(DROPS, response_.drop) + duplicate;
		case PEAL_RESPONSE_TAKEN:
			return "taken";
		case PEAL_RESPONSE_READ:
			return "read " + std::to_string(response_.offset) + " " +
			       std::to_string(response_.bytes);
		case PEAL_RESPONSE_ATOMIC:
			return "atomic " + std::to_string(response_.original) + " " +
			       std::to_string(response_.bytes);
		case PEAL_RESPONSE_KEPT:
			return "kept";
		case PEAL_RESPONSE_COPY:
			return copy_of(response_.kept, response_.drop) + duplicate;
		}
		return "nothing";
	}
	void place() { peal_requester_placed(requester_.get(), &response_, now_); }
	/* Gives the packet to the requester, and places its data unless it is to be held. */
	void receive(const peal_packet &packet, std::unique_ptr<peal_packet> handle, Words &words)
	{
		const auto outcome = words.outcome();
		const bool hold = words.has("hold");
		const std::string actual = receive(packet, handle.get());
		const bool data = response_.what == PEAL_RESPONSE_READ ||
				  response_.what == PEAL_RESPONSE_ATOMIC;

		if (response_.what == PEAL_RESPONSE_KEPT)
			keep(std::move(handle));
		if (outcome)
			expect(evaluated(*outcome), actual);
		else if (!data && packet.payload_bytes)
			expect("data to place", actual);
		else if (!data)
			expect("taken", actual);
		if (data && !hold)
			place();
	}
	/* "read 2p 9" as "read 512 9" */
	static std::string evaluated(const std::string &outcome)
	{
		Words words(outcome);
		std::string all;

		while (!words.empty()) {
			const auto n = words.next_number();

			all += (all.empty() ? "" : " ") + (n ? std::to_string(*n) : words.take());
		}
		return all;
	}
	/* A good peer answers everything, until nothing more is sent. */
	void transfer()
	{
		for (bool sent = true; sent;) {
			std::optional<u32> acked;

			for (sent = false; peal_requester_next(requester_.get(), now_, 1, &out_) ==
					   PEAL_BLOCKED_NONE;
			     sent = true) {
				const peal_packet h = out_.header;
				peal_packet packet = {};

				if (out_.local) {
					peal_requester_local_done(requester_.get(), out_.message, 0,
								  0);
					continue;
				}
				last_ = number_of(h.psn);
				acked = h.psn;
				if (h.opcode != PEAL_WIRE_READ_REQUEST)
					continue;
				for (std::uint32_t at = 0; at < h.length; at += MTU) {
					packet.opcode = PEAL_WIRE_READ_RESPONSE_MIDDLE;
					packet.psn = peal_psn_add(h.psn, at / MTU);
					packet.payload_bytes = std::min(MTU, h.length - at);
					peal_requester_receive(requester_.get(), &packet, now_,
							       nullptr, &response_);
					if (response_.what != PEAL_RESPONSE_READ ||
					    response_.bytes != packet.payload_bytes)
						throw Mismatch("a response is not taken");
					place();
				}
				acked.reset();
			}
			if (acked) {
				peal_packet packet = {};

				packet.opcode = PEAL_WIRE_ACK;
				packet.psn = *acked;
				packet.syndrome = PEAL_CREDITS_UNLIMITED;
				expect("taken", receive(packet, nullptr));
			}
		}
	}

	/* Return: whether a message completed successfully. A failure waits for "failed". */
	bool complete_one()
	{
		if (failure_)
			return false;
		const peal_message *const done = peal_requester_complete(requester_.get());
		if (!done)
			return false;
		expect("completion of " + std::to_string(completed_),
		       "completion of " + std::to_string(done->wqe.index));
		++completed_;
		if (!done->status) {
			expect("none", name_of(REASONS, done->reason));
			return true;
		}
		failure_ = done;
		return false;
	}
	std::uint32_t complete_all()
	{
		std::uint32_t count = 0;

		while (complete_one())
			++count;
		return count;
	}
	/* The oldest message has failed, and that is the end. */
	void expect_failed(Words &words)
	{
		expect("complete 0", "complete " + std::to_string(complete_all()));
		const std::string status = words.take("status"), reason = words.take("reason");

		expect("failed " + status + " " + reason,
		       failure_ ? "failed " + name_of(STATUSES, failure_->status) + " " +
					  name_of(REASONS, failure_->reason)
				: "no failure");
		if (peal_requester_complete(requester_.get()))
			throw Mismatch("a completion behind the failure");
		expect_blocked("failed");
		expect_number("timer", "none", timer());
		failure_expected_ = true;
	}
	void expect_flushed(std::int64_t count)
	{
		for (; const peal_message *done = peal_requester_flush(requester_.get()); --count) {
			expect("wr-flush-err flushed " + std::to_string(completed_++),
			       name_of(STATUSES, done->status) + " " +
				       name_of(REASONS, done->reason) + " " +
				       std::to_string(done->wqe.index));
			if (peal_requester_complete(requester_.get()))
				throw Mismatch("a completion while it is flushed");
		}
		expect("0 more", std::to_string(count) + " more");
	}

	/* Nothing arrives for @most ns, or until no timer is left, or until a packet is sent. */
	void stay_silent(Words &words)
	{
		const std::uint64_t begin = now_;
		const bool send = words.has("send");
		const auto most = send ? -1 : words.next_number().value_or(-1);
		std::vector<std::int64_t> sent;
		unsigned rounds = 0;

		resent_ = 0;
		while (deadline() != U64_MAX &&
		       deadline() - begin <= static_cast<std::uint64_t>(most)) {
			expire();
			sent = send_all();
			resent_ += sent.size();
			if (send && !sent.empty())
				break;
			if (++rounds > 10000)
				throw Mismatch("no end of timers");
		}
		silence_ = now_ - begin;
		if (send)
			expect_sent(words, sent);
	}
	void expect_state(Words &words)
	{
		const auto *r = requester_.get();

		expect_fields(words, {
					     {"timer", false, timer()},
					     {"elapsed", false, elapsed()},
					     {"silence", false, silence_},
					     {"resent", false, resent_},
					     {"unsent", false, peal_requester_unsent(r)},
					     {"psn", false,
					      static_cast<u64>(number_of(peal_requester_psn(r)))},
					     {"idle", true, peal_requester_idle(r)},
					     {"room", true, peal_requester_has_room(r)},
					     {"failed", true, peal_requester_failed(r)},
				     });
	}

public:
	Requester()
	{
		config_.transport = PEAL_RC;
		config_.mtu_shift = 8;
		config_.retry_limit = 7;
		config_.rnr_limit = 7;
		config_.max_rd_atomic = 4;
		config_.timeout_ns = TIMEOUT;
		config_.window = 128;
		config_.reorder_ns = KEEP;
		begin(64);
	}
	void run(const std::string &verb, Words &words) override
	{
		auto *r = requester_.get();

		if (run_common(verb, words))
			return;
		if (verb == "set") {
			set(words);
		} else if (verb == "entries") {
			begin(static_cast<u32>(number(words.take())));
		} else if (verb == "post") {
			post(words);
		} else if (verb == "send") {
			expect_sent(words, send_all());
		} else if (verb == "one") { /* the transmit queue has room for one packet */
			expect_sent(words, send_packet() ? std::vector{last_}
							 : std::vector<std::int64_t>{});
		} else if (verb == "drain") {
			send_all();
		} else if (verb == "local") {
			local_operation(words);
		} else if (verb == "executed") {
			peal_requester_local_done(
				r, static_cast<u32>(number(words.take("message"))), 0, 0);
		} else if (verb == "blocked") {
			expect_blocked(words.take("reason"));
		} else if (verb == "recv") {
			const bool keep = !words.has("unkept");
			const peal_packet packet = response(words);

			receive(packet, keep ? std::make_unique<peal_packet>(packet) : nullptr,
				words);
		} else if (verb == "take") {
			auto packet = returned(peal_requester_take_reordered(r), words.take());

			if (packet) {
				const peal_packet copy = *packet;

				receive(copy, std::move(packet), words);
			}
		} else if (verb == "contradict") {
			const std::string which = words.take();

			returned(peal_requester_conflict(r, psn(number(which)), now_), which);
		} else if (verb == "place") {
			response_.message += words.has("wrong-message");
			place();
		} else if (verb == "ack-last") {
			words = Words("ack " + std::to_string(last_) + " " + words.rest());
			receive(response(words), nullptr, words);
		} else if (verb == "transfer") {
			transfer();
		} else if (verb == "complete") {
			const std::string count = words.take("count");

			expect("complete " + std::to_string(number(count)),
			       "complete " + std::to_string(complete_all()));
		} else if (verb == "failed") {
			expect_failed(words);
		} else if (verb == "flushed") {
			expect_flushed(number(words.take("count")));
		} else if (verb == "fail") {
			const auto message = static_cast<u32>(number(words.take("message")));
			const unsigned status = value_of(STATUSES, words.take("status"));

			peal_requester_fail_message(r, message, static_cast<u8>(status),
						    value_of(REASONS, words.take("reason")));
		} else if (verb == "silence") {
			stay_silent(words);
		} else if (verb == "too-long-from") {
			const std::string from = words.take();

			too_long_ = from == "none" ? INT64_MAX : number(from);
		} else if (verb == "excuse") {
			peal_requester_excuse_silence(r, now_);
		} else if (verb == "cork") {
			const auto pending = static_cast<u32>(number(words.take("messages")));

			expect(words.take("outcome"),
			       peal_requester_corks(r, pending, now_) ? "waits" : "leaves");
		} else if (verb == "request-ack") {
			peal_requester_request_ack(r, now_);
		} else if (verb == "reset") {
			peal_requester_reset(r);
			completed_ = posted_;
			failure_ = nullptr;
		} else if (verb == "psn") {
			const auto psn = static_cast<u32>(number(words.take()));

			base_ = psn & PEAL_PSN_MASK;
			peal_requester_set_psn(r, psn);
		} else if (verb == "expect") {
			expect_state(words);
		} else {
			throw Mismatch("unknown word: " + verb);
		}
	}
	void end() override
	{
		if (failure_ && !failure_expected_)
			throw Mismatch("a message failed, and the script does not say so");
		Half::end();
	}
};

} // namespace

std::unique_ptr<Machine> make_requester()
{
	return std::make_unique<Requester>();
}

} // namespace peal::test
