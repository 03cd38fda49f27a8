// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A responder alone. The script is the host, the peer and the clock. */
#include <algorithm>

#include "script.hpp"

namespace peal::test {

namespace {

const Names VERDICTS = {
	{"done", PEAL_SYNDROME_ACK},
	{"not-ready", 0 + PEAL_SYNDROME_RNR + 12},
	{"invalid", 0 + PEAL_SYNDROME_NAK + PEAL_NAK_INVALID_REQUEST},
	{"access", 0 + PEAL_SYNDROME_NAK + PEAL_NAK_REMOTE_ACCESS},
	{"operation", 0 + PEAL_SYNDROME_NAK + PEAL_NAK_REMOTE_OPERATION},
};

const Names NAKS = {
	{"nak-sequence", PEAL_NAK_SEQUENCE},
	{"nak-invalid", PEAL_NAK_INVALID_REQUEST},
	{"nak-access", PEAL_NAK_REMOTE_ACCESS},
	{"nak-operation", PEAL_NAK_REMOTE_OPERATION},
};

/* The number behind the operation is the range that these name. They carry no payload. */
bool names_range(unsigned wire)
{
	return wire == PEAL_WIRE_READ_REQUEST || wire == PEAL_WIRE_CMP_SWAP ||
	       wire == PEAL_WIRE_FETCH_ADD || wire == PEAL_WIRE_FLUSH;
}

class Responder : public Half {
	peal_responder_config config_ = {};
	std::vector<peal_resource> resources_;
	std::unique_ptr<peal_responder> responder_ = std::make_unique<peal_responder>();
	peal_request request_ = {};
	peal_reply reply_ = {};

	std::uint64_t deadline() const override
	{
		return peal_responder_deadline(responder_.get());
	}
	void run_timers() override { peal_responder_expire(responder_.get(), now_); }
	void *take_expired() override
	{
		return peal_responder_take_expired(responder_.get(), now_);
	}
	void *drop_reordered() override { return peal_reorder_drop(&responder_->reorder); }

	void begin(std::uint32_t resources)
	{
		config_.rd_atomic = static_cast<u8>(resources);
		resources_.assign(resources, {});
		peal_responder_init(responder_.get(), resources_.data(), resources);
		peal_responder_configure(responder_.get(), &config_);
		peal_responder_set_psn(responder_.get(), base_);
	}
	void set(Words &words)
	{
		if (const auto transport = words.after("transport"))
			config_.transport = static_cast<u8>(value_of(TRANSPORTS, *transport));
		config_.rd_atomic = static_cast<u8>(words.value("rd-atomic", config_.rd_atomic));
		config_.mtu_shift = mtu_shift(words, config_.mtu_shift);
		peal_responder_configure(responder_.get(), &config_);
	}

	peal_packet request_packet(unsigned wire, std::uint64_t amount, Words &words) const
	{
		peal_packet packet = {};

		/* A number above the operations of a transport is the whole opcode. */
		packet.opcode = static_cast<u8>(
			wire < 32 ? unsigned{config_.transport} << PEAL_TRANSPORT_SHIFT | wire
				  : wire);
		packet.payload_bytes = static_cast<u32>(names_range(wire) ? 0 : amount);
		packet.pad = -packet.payload_bytes & 3;
		packet.ack_request = words.has("ack");
		packet.solicited = words.has("solicited");
		packet.flow = static_cast<u16>(words.value("flow", 0));
		packet.remote_addr = words.value("addr", ADDRESS);
		packet.length = static_cast<u32>(words.value("length", amount));
		packet.rkey = static_cast<u32>(words.value("key", KEY));
		packet.imm = static_cast<u32>(words.value("imm", 0));
		packet.inv_rkey = static_cast<u32>(words.value("inv", 0));
		packet.compare = words.value("compare", 0);
		packet.swap_add = words.value("swap", 0);
		packet.placement = static_cast<u8>(words.value("placement", 0));
		packet.selectivity = static_cast<u8>(words.value("selectivity", 0));
		packet.srqn = static_cast<u32>(words.value("srqn", 0));
		return packet;
	}
	/* Return: what the responder did with it, in words. */
	std::string outcome() const
	{
		const std::string duplicate = request_.duplicate ? " duplicate" : "";

		switch (request_.what) {
		case PEAL_REQUEST_DROPPED:
			return "dropped " + name_of(DROPS, request_.drop) + duplicate;
		case PEAL_REQUEST_ANSWERED:
			return (request_.fatal ? "refused" : "answered") + duplicate;
		case PEAL_REQUEST_KEPT:
			return "kept";
		case PEAL_REQUEST_COPY:
			return copy_of(request_.kept, request_.drop);
		case PEAL_REQUEST_EXECUTE:
			return "execute";
		}
		return "nothing";
	}
	void receive(const peal_packet &packet, std::unique_ptr<peal_packet> handle,
		     const std::string &expected, unsigned verdict, std::uint64_t original)
	{
		peal_responder_receive(responder_.get(), &packet, now_, handle.get(), &request_);
		if (request_.what == PEAL_REQUEST_KEPT)
			keep(std::move(handle));
		if (request_.what == PEAL_REQUEST_EXECUTE)
			peal_responder_done(responder_.get(), static_cast<u8>(verdict), original,
					    now_);
		/* A script may send millions. */
		if (request_.what == PEAL_REQUEST_EXECUTE && expected == "execute")
			return;
		if (expected != outcome())
			expect(expected + " " + std::to_string(number_of(packet.psn)),
			       outcome() + " " + std::to_string(number_of(packet.psn)));
	}
	/* Requests are executed unless the script says otherwise. */
	void receive(Words &words)
	{
		const auto expected = words.outcome().value_or("execute");
		const unsigned wire = value_of(WIRE, words.take("operation"));
		const auto psns = words.range();
		const auto verdict = value_of(VERDICTS, words.after("verdict").value_or("done"));
		const auto original = words.value("original", 0);
		const bool keep = !words.has("unkept");
		const auto amount = static_cast<u64>(words.next_number().value_or(0));
		peal_packet packet = request_packet(wire, amount, words);

		for (std::int64_t n = psns.first; n <= psns.second; ++n) {
			packet.psn = psn(n);
			receive(packet, keep ? std::make_unique<peal_packet>(packet) : nullptr,
				expected, verdict, original);
		}
	}
	void take(Words &words)
	{
		const auto expected = words.outcome().value_or("execute");
		const auto verdict = value_of(VERDICTS, words.after("verdict").value_or("done"));

		if (words.has("none")) {
			returned(peal_responder_take_reordered(responder_.get()), "none");
			return;
		}
		for (const std::int64_t n : words.numbers()) {
			auto packet = returned(peal_responder_take_reordered(responder_.get()),
					       std::to_string(n));
			const peal_packet copy = *packet;

			receive(copy, std::move(packet), expected, verdict, 0);
		}
	}
	void expect_request(Words &words)
	{
		const std::string operation = words.take("operation");

		expect(operation, name_of(OPERATIONS, request_.wqe.opcode));
		expect_fields(words, {
					     {"first", true, request_.first},
					     {"last", true, request_.last},
					     {"solicited", true,
					      !!(request_.wqe.flags & PEAL_WQE_SOLICITED)},
					     {"offset", false, request_.offset},
					     {"bytes", false, request_.bytes},
					     {"length", false, request_.wqe.length},
					     {"addr", false, request_.wqe.remote_addr},
					     {"key", false, request_.wqe.rkey},
					     {"srqn", false, request_.wqe.srqn},
					     {"imm", false, request_.wqe.imm_or_rkey},
					     {"inv", false, request_.wqe.imm_or_rkey},
					     {"compare", false, request_.wqe.atomic.compare_add},
					     {"add", false, request_.wqe.atomic.compare_add},
					     {"swap", false, request_.wqe.atomic.swap},
					     {"range", false, request_.wqe.flush.length},
					     {"placement", false, request_.wqe.flush.placement},
					     {"selectivity", false, request_.wqe.flush.selectivity},
				     });
	}

	/* "ack", "nak-access", "rnr", "read-first", "atomic-ack" */
	std::string kind() const
	{
		const peal_packet &h = reply_.header;
		const unsigned value = h.syndrome & PEAL_SYNDROME_VALUE;

		if (h.opcode >> PEAL_TRANSPORT_SHIFT != config_.transport)
			return "another transport";
		if ((h.opcode & 0x1f) != PEAL_WIRE_ACK) {
			expect("credits 31", "credits " + std::to_string(h.syndrome));
			return name_of(WIRE, h.opcode & 0x1f);
		}
		if (reply_.read)
			return "ack with payload";
		switch (h.syndrome & PEAL_SYNDROME_KIND) {
		case PEAL_SYNDROME_ACK:
			return value == PEAL_CREDITS_UNLIMITED ? "ack" : "ack with credits";
		case PEAL_SYNDROME_RNR:
			return "rnr";
		default:
			return name_of(NAKS, value);
		}
	}
	bool next() { return peal_responder_next(responder_.get(), 1, &reply_); }
	void expect_reply(const std::string &expected, std::int64_t n, Words words)
	{
		const peal_packet &h = reply_.header;

		expect(expected + " " + std::to_string(n & PEAL_PSN_MASK),
		       kind() + " " + std::to_string(number_of(h.psn)));
		expect_fields(words,
			      {
				      {"again", true, reply_.again},
				      {"msn", false, h.msn},
				      {"timer", false, u64{h.syndrome} & PEAL_SYNDROME_VALUE},
				      {"bytes", false, h.payload_bytes},
				      {"pad", false, h.pad},
				      {"addr", false, reply_.remote_addr},
				      {"key", false, reply_.rkey},
				      {"srqn", false, reply_.srqn},
				      {"original", false, h.original},
			      });
		if (!words.empty())
			throw Mismatch("unknown words: " + words.rest());
	}
	/*
	 * "read 2..4 of 0 end 4p+9": the responses to a READ whose first PSN is 0 and of which so
	 * many bytes are requested, counted from its begin.
	 */
	void expect_read(const std::vector<std::int64_t> &psns, Words &words)
	{
		const auto start = static_cast<std::int64_t>(
			words.value("of", static_cast<u64>(psns.front())));
		const auto end =
			words.value("end", static_cast<u64>(psns.back() + 1 - start) * MTU);

		for (std::size_t i = 0; i < psns.size(); ++i) {
			const bool first = !i, last = i + 1 == psns.size();
			const auto offset = static_cast<u64>(psns[i] - start) * MTU;
			const auto bytes = std::min<u64>(end - offset, MTU);

			take_reply();
			expect_reply(first && last ? "read-only"
				     : first	   ? "read-first"
				     : last	   ? "read-last"
						   : "read-middle",
				     psns[i], words);
			Words payload("bytes " + std::to_string(bytes) + " pad " +
				      std::to_string(-bytes & 3) + " addr " +
				      std::to_string(ADDRESS + offset) + " key " +
				      std::to_string(KEY));
			expect_reply(kind(), psns[i], payload);
			expect("a payload", reply_.read ? "a payload" : "no payload");
		}
		words = Words("");
	}
	void take_reply()
	{
		if (!next())
			throw Mismatch("no reply is due");
	}
	/* @all: nothing may be due behind it. */
	void expect_replies(Words &words, bool all)
	{
		const std::string kind = words.take("kind of reply");

		if (kind != "none") {
			const auto psns = words.numbers();

			if (kind == "read") {
				expect_read(psns, words);
			} else {
				take_reply();
				expect_reply(kind, psns.empty() ? 0 : psns.front(), words);
				words = Words("");
			}
		}
		if (all && next())
			expect("reply none", "reply " + this->kind() + " " +
						     std::to_string(number_of(reply_.header.psn)));
	}

public:
	Responder()
	{
		config_.transport = PEAL_RC;
		config_.mtu_shift = 8;
		config_.reorder_ns = KEEP;
		begin(4);
	}
	void run(const std::string &verb, Words &words) override
	{
		auto *r = responder_.get();

		if (run_common(verb, words))
			return;
		if (verb == "set") {
			set(words);
		} else if (verb == "resources") {
			begin(static_cast<u32>(number(words.take())));
		} else if (verb == "psn") {
			const auto psn = static_cast<u32>(number(words.take()));

			base_ = psn & PEAL_PSN_MASK;
			peal_responder_set_psn(r, psn);
		} else if (verb == "skip") {
			const auto to = psn(number(words.take("PSN")));

			peal_responder_skip(r, to, static_cast<u32>(number(words.take("MSN"))));
		} else if (verb == "reset") {
			peal_responder_reset(r);
		} else if (verb == "recv") {
			receive(words);
		} else if (verb == "asks") {
			expect_request(words);
		} else if (verb == "take") {
			take(words);
		} else if (verb == "contradict") {
			const std::string which = words.take();

			returned(peal_responder_conflict(r, psn(number(which))), which);
		} else if (verb == "reply") {
			expect_replies(words, true);
		} else if (verb == "next") {
			expect_replies(words, false);
		} else if (verb == "discard") {
			auto left = number(words.take("count"));

			for (; next(); --left)
				;
			expect("0 more replies", std::to_string(left) + " more replies");
		} else if (verb == "refuse") {
			peal_responder_refuse_read(r);
		} else if (verb == "refuse-again") {
			peal_responder_refuse_again(r, &reply_);
			const std::string kind = words.take("kind of reply");

			const auto n = number(words.take("PSN"));

			expect_reply(kind, n, words);
			words = Words("");
		} else if (verb == "expect") {
			expect_fields(words, {
						     {"timer", false, timer()},
						     {"elapsed", false, elapsed()},
					     });
		} else {
			throw Mismatch("unknown word: " + verb);
		}
	}
};

} // namespace

std::unique_ptr<Machine> make_responder()
{
	return std::make_unique<Responder>();
}

} // namespace peal::test
