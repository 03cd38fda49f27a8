// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: direct
// timeout: 300
/*
 * The fast path of the direct path does what the general path does.
 *
 * Holds: Random work requests have the same completions, memory and state of the queue pair with
 * the fast path and without it. They are of every opcode, on RC, UC and UD, with right and wrong
 * keys, ranges, lengths, flags and reserved fields, in pinned memory or with on-demand paging, and
 * with receives of every kind or without one. The fast path takes the plain ones of them, and of
 * longer ones all chunks but the first.
 * Does not hold: time (direct/instructions). PEAL_FUZZ_SECONDS, default 12, is how long it takes.
 *
 * While messages are traced, none takes the fast path, so the tracepoint of messages turns it off.
 */
#include "counters.hpp"
#include "raw.hpp"
#include "tracing.hpp"

using namespace peal_test;

namespace {

/* Messages go from the first half of the memory to the second, so that none overlaps itself. */
constexpr std::size_t half_bytes = 72 * page_bytes;
constexpr std::uint32_t depth = 32;

/* A mistake ends a reliable connection, so only one in so many values is one. */
constexpr unsigned rare = 400;

/* While it lives, each message is traced. */
class Traced {
public:
	explicit Traced(bool on) : on_(on) { set(on); }
	~Traced() { set(false); }
	Traced(const Traced &) = delete;
	Traced &operator=(const Traced &) = delete;

private:
	void set(bool value) const
	{
		if (on_ && !write_tracing("events/peal/peal_execute/enable", value ? "1" : "0"))
			throw std::runtime_error("no tracepoint peal_execute");
	}
	bool on_;
};

/* What a program sees of its work requests. */
struct Seen {
	std::vector<std::string> completions;
	std::vector<std::uint8_t> memory;
	ibv_qp_state state = IBV_QPS_RESET;
	std::uint64_t packets = 0; /* datagrams that left as packets */
};

/* @first: index of the first send WQE of the script */
std::string name(const peal_cqe &cqe, const RawQp &qp, std::uint32_t first)
{
	const auto index = cqe.wqe_index - (cqe.kind == PEAL_CQE_SEND ? first : 0);

	return "kind " + std::to_string(cqe.kind) + " of WQE " + std::to_string(index) +
	       ", opcode " + std::to_string(cqe.opcode) + ", " + status_name(cqe.status) + " (" +
	       reason_name(cqe.vendor_err) + "), " + std::to_string(cqe.byte_len) +
	       " bytes, immediate " + std::to_string(cqe.imm_or_rkey) + ", flags " +
	       std::to_string(cqe.flags & ~PEAL_CQE_PHASE) + ", ours " +
	       std::to_string(cqe.qp_index == qp.index() && cqe.qp_num == qp.number()) +
	       ", from us " + std::to_string(cqe.src_qp == qp.number());
}

/* Plays one random script on a queue pair that is connected to itself. */
class Script {
public:
	Script(const RawContext &context, const Device &device, RawQp &qp, bool datagrams,
	       std::uint64_t salt)
		: context_(context), qp_(qp), datagrams_(datagrams), random_(salt),
		  unwritable_(2 * half_bytes),
		  unwritable_keys_(context.register_memory(qp.pd(), unwritable_, 0)),
		  on_demand_keys_(context.register_memory(qp.pd(), qp.memory(),
							  all_access | IBV_ACCESS_ON_DEMAND))
	{
		if (datagrams) {
			ah_ = context.create_ah(qp.pd(), device);
			wait_until_direct();
			first_ = qp.sq_next();
		}
		fill_pattern(qp.memory().bytes(0, qp.memory().size()), salt);
	}

	~Script()
	{
		context_.deregister(unwritable_keys_);
		context_.deregister(on_demand_keys_);
		if (datagrams_)
			context_.destroy_ah(ah_);
	}
	Script(const Script &) = delete;
	Script &operator=(const Script &) = delete;

	Seen play()
	{
		Seen seen;

		for (int round = 0; round < 64 && qp_.state() == IBV_QPS_RTS; round++) {
			post_receives();
			post_sends();
			collect(seen.completions);
		}
		const auto memory = qp_.memory().bytes(0, qp_.memory().size());
		seen.memory.assign(memory.begin(), memory.end());
		seen.state = qp_.state();
		return seen;
	}
	std::uint64_t sends() const { return sends_; }

private:
	/* One of so many. */
	bool one_of(unsigned n) { return random_.between(1, n) == n; }

	std::uint32_t length()
	{
		constexpr std::array lengths{0U,     1U,     7U,      8U,      63U,
					     64U,    511U,   4095U,   4096U,   5000U,
					     65536U, 70000U, 131072U, 131073U, 280000U};

		return one_of(3) ? lengths[random_.between(0, lengths.size() - 1)]
				 : static_cast<std::uint32_t>(random_.between(1, 300));
	}

	/* A place for `bytes` bytes. It begins at a page now and then. */
	std::size_t place(std::size_t from, std::size_t bytes)
	{
		const auto at = random_.between(0, half_bytes - bytes);

		return from + (one_of(4) ? at & ~(page_bytes - 1) : at);
	}

	/* The first datagrams of an address handle are packets. */
	void wait_until_direct()
	{
		const bool direct = eventually([&] {
			const auto before = counter("direct_messages");
			RawSend send;
			peal_cqe cqe{};

			send.header.opcode = PEAL_OP_SEND;
			send.header.flags = PEAL_WQE_SIGNALED;
			name_receiver(send.header);
			qp_.write_send(send);
			qp_.publish();
			if (!qp_.wait(cqe))
				throw std::runtime_error("an empty datagram does not complete");
			return counter("direct_messages") > before;
		});

		if (!direct)
			throw std::runtime_error("datagrams do not go direct");
	}

	void name_receiver(peal_send_wqe &header) const
	{
		header.ud = {qp_.number(), 0};
		header.ah_index = ah_.index;
		header.rkey = 0;
	}

	/* An entry that is wrong now and then. */
	peal_sge entry(std::size_t from, std::uint32_t bytes)
	{
		peal_sge sge = qp_.sge(place(from, bytes), bytes);

		/*
		 * The general path sends datagrams from such memory as packets, and receives that
		 * meet an absent page lose them, so when they arrive depends on time.
		 */
		if (one_of(4) && !datagrams_)
			sge.lkey = on_demand_keys_.lkey;
		if (one_of(rare))
			sge.lkey ^= 1U << random_.between(0, 31);
		if (one_of(rare))
			sge.addr = qp_.memory().address(2 * half_bytes - bytes / 2);
		if (one_of(rare))
			sge = {unwritable_.address(), bytes, unwritable_keys_.lkey};
		return sge;
	}

	void post_receives()
	{
		for (auto count = one_of(60) ? 0 : random_.between(4, 8); count; count--) {
			std::vector<peal_sge> sges;
			peal_recv_wqe header{};

			if (qp_.rq_next() - received_ >= depth)
				break;
			for (auto n = one_of(8) ? 2 : one_of(rare) ? 0 : 1; n; n--)
				sges.push_back(entry(half_bytes, one_of(rare) ? length()
								 : one_of(4)  ? 280000
									      : 70000));
			header.num_sge = static_cast<std::uint8_t>(sges.size());
			if (one_of(rare))
				header.reserved[random_.between(0, 2)] = 1;
			qp_.write_recv(header, sges);
		}
		qp_.publish_recv();
	}

	RawSend request()
	{
		static constexpr std::array<std::uint8_t, 7> all{
			PEAL_OP_SEND, PEAL_OP_SEND_IMM, PEAL_OP_WRITE,	  PEAL_OP_WRITE_IMM,
			PEAL_OP_READ, PEAL_OP_CMP_SWAP, PEAL_OP_FETCH_ADD};
		RawSend send;
		auto &header = send.header;
		std::uint32_t bytes = length();
		std::size_t offset = 0;

		if (datagrams_ && !one_of(rare))
			bytes %= 700; /* below each MTU, also with another entry */
		header.opcode = all[random_.between(0, datagrams_ ? 1 : all.size() - 1)];
		if (one_of(rare))
			header.opcode = static_cast<std::uint8_t>(random_.between(0, 255));
		header.flags = static_cast<std::uint8_t>(random_.between(0, 7));
		header.imm_or_rkey = static_cast<std::uint32_t>(random_.word());
		const bool atomic =
			header.opcode == PEAL_OP_CMP_SWAP || header.opcode == PEAL_OP_FETCH_ADD;
		const bool inward = atomic || header.opcode == PEAL_OP_READ;

		if (atomic) {
			const peal_atomic_seg operands{random_.word(), random_.word()};

			std::memcpy(send.body.data(), &operands, sizeof(operands));
			offset = sizeof(operands);
			bytes = one_of(rare) ? 9 : 8;
		}
		auto remote = place(inward ? 0 : half_bytes, bytes);
		if (atomic && !one_of(rare))
			remote &= ~std::size_t{7};
		header.remote_addr = qp_.memory().address(one_of(rare) ? 2 * half_bytes : remote);
		header.rkey = one_of(4) ? on_demand_keys_.rkey : qp_.rkey();
		if (one_of(rare))
			header.rkey ^= 1U << random_.between(0, 31);
		if (one_of(rare)) {
			header.remote_addr = unwritable_.address();
			header.rkey = unwritable_keys_.rkey;
		}
		if (!inward && one_of(4)) {
			header.flags |= PEAL_WQE_INLINE;
			header.inline_len = static_cast<std::uint32_t>(
				random_.between(0, one_of(rare) ? 99 : 60));
			for (auto &byte : send.body)
				byte = static_cast<std::uint8_t>(random_.word());
		} else {
			send.sge(entry(inward ? half_bytes : 0, bytes), offset);
			if (!atomic && one_of(5))
				send.sge(entry(inward ? half_bytes : 0, length() % 300), offset);
			else if (one_of(rare))
				header.num_sge = 0;
		}
		if (datagrams_) {
			name_receiver(header);
			if (one_of(rare))
				header.ud.qpn = static_cast<std::uint32_t>(random_.word());
			if (one_of(20))
				header.ud.qkey = one_of(2) ? 0x80000000 : 1;
			if (one_of(20))
				header.ud.qpn |= 0xff000000;
			if (one_of(rare))
				header.rkey = 1;
			if (one_of(rare))
				header.ah_index++;
		}
		if (one_of(rare))
			(one_of(2) ? header.reserved1 : header.ah_index) = 1;
		if (one_of(rare))
			header.reserved0 = 1;
		if (one_of(rare))
			header.flags |= 0x10U << random_.between(0, 3);
		if (one_of(rare))
			header.inline_len = 5;
		return send;
	}

	/* A list whose last request gets a completion in any case. */
	void post_sends()
	{
		for (auto count = random_.between(1, 6); count; count--) {
			RawSend send = request();

			if (count == 1)
				send.header.flags |= PEAL_WQE_SIGNALED;
			qp_.write_send(send);
			sends_++;
		}
		qp_.publish();
	}

	void collect(std::vector<std::string> &all)
	{
		peal_cqe cqe{};

		do {
			if (!qp_.wait(cqe))
				throw std::runtime_error("no completion of WQE " +
							 std::to_string(qp_.sq_next() - 1));
			all.push_back(name(cqe, qp_, first_));
			received_ += cqe.kind == PEAL_CQE_RECV;
		} while (cqe.kind != PEAL_CQE_SEND || cqe.wqe_index != qp_.sq_next() - 1);
	}

	const RawContext &context_;
	RawQp &qp_;
	bool datagrams_;
	RawContext::RawAh ah_{};
	std::uint32_t first_ = 0;
	Random random_;
	Memory unwritable_; /* registered without any right */
	Keys unwritable_keys_;
	Keys on_demand_keys_; /* of all memory of the queue pair */
	std::uint32_t received_ = 0;
	std::uint64_t sends_ = 0;
};

} // namespace

TEST_CASE("random work requests end alike on both paths")
{
	Device device;
	RawContext context;
	Probe probe("peal_direct_transfer");
	std::uint64_t sends = 0, general = 0, scripts = 0, compared = 0;
	const auto end = std::chrono::steady_clock::now() + time_from("PEAL_FUZZ_SECONDS", 12);

	if (!has_event("peal/peal_execute"))
		SKIP_CASE("this kernel has no tracepoints");
	do {
		constexpr std::array types{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RC};
		const ibv_qp_type type = types[scripts % types.size()];
		/* A queue pair that lacks a right now and then. */
		const int lacks = scripts % 5 ? 0 : IBV_ACCESS_REMOTE_WRITE << scripts / 5 % 3;
		const RawShape shape{.depth = depth,
				     .bytes = 2 * half_bytes,
				     .type = type,
				     .scattered = scripts % 2 == 0,
				     .access = all_access & ~lacks};
		std::array<Seen, 2> seen; /* on the fast path, on the general path */

		for (const bool traced : {false, true}) {
			RawQp qp(context, device, shape);
			Script script(context, device, qp, type == IBV_QPT_UD, scripts);
			Traced trace(traced);
			std::optional<EventCount> count;

			if (probe && !traced)
				count.emplace(probe.event());
			const auto packets = counter("wire_messages");
			seen[traced] = script.play();
			seen[traced].packets = counter("wire_messages") - packets;
			sends += traced ? 0 : script.sends();
			general += count ? count->value() : 0;
		}
		scripts++;
		/* A packet is answered by a receive at any later time. */
		if (seen[0].packets != seen[1].packets)
			continue;
		compared++;
		INFO("script " << scripts - 1 << ", type " << type);
		const auto [fast, slow] =
			std::ranges::mismatch(seen[0].completions, seen[1].completions);
		CHECK((fast == seen[0].completions.end() ? "none" : *fast) ==
		      (slow == seen[1].completions.end() ? "none" : *slow));
		CHECK(state_name(seen[0].state) == state_name(seen[1].state));
		REQUIRE(difference(seen[0].memory, seen[1].memory) == "");
	} while (std::chrono::steady_clock::now() < end);
	std::printf("%lu scripts of %lu requests, %lu compared, %lu attempts by the general path\n",
		    scripts, sends, compared, general);
	CHECK(compared > scripts * 3 / 4);
	if (probe)
		CHECK(general < sends / 2);
}
