// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A requester for tests in which a model of the peer answers. What a requester does with events in
 * a given order is tested by the scripts.
 */
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "script.hpp"

namespace peal::test {

constexpr std::uint32_t ENTRIES = 64;
constexpr std::uint8_t UNLIMITED = 0 + PEAL_SYNDROME_ACK + PEAL_CREDITS_UNLIMITED;

/* PSN number @n of a test. */
inline std::uint32_t psn(std::uint32_t n)
{
	return (FIRST_PSN + n) & PEAL_PSN_MASK;
}

inline peal_requester_config plain_config()
{
	peal_requester_config config = {};

	config.transport = PEAL_RC;
	config.mtu_shift = 8;
	config.retry_limit = 7;
	config.rnr_limit = 7;
	config.max_rd_atomic = 4;
	config.timeout_ns = TIMEOUT;
	config.window = 128;
	config.reorder_ns = KEEP;
	return config;
}

inline peal_packet response(unsigned wire, std::uint32_t n)
{
	peal_packet packet = {};

	packet.opcode = peal_opcode_of(PEAL_RC, static_cast<u8>(wire));
	packet.psn = psn(n);
	packet.syndrome = UNLIMITED;
	return packet;
}

inline peal_packet ack(std::uint32_t n, unsigned syndrome = UNLIMITED, std::uint32_t msn = 0)
{
	peal_packet packet = response(PEAL_WIRE_ACK, n);

	packet.syndrome = static_cast<u8>(syndrome);
	packet.msn = msn;
	return packet;
}

inline peal_packet nak(std::uint32_t n, unsigned code = PEAL_NAK_SEQUENCE)
{
	return ack(n, PEAL_SYNDROME_NAK + code);
}

inline peal_packet read_response(std::uint32_t n, std::uint32_t bytes = MTU)
{
	peal_packet packet = response(PEAL_WIRE_READ_RESPONSE_MIDDLE, n);

	packet.payload_bytes = bytes;
	return packet;
}

class Requester {
	std::vector<peal_message> messages_;
	std::unique_ptr<peal_requester> requester_ = std::make_unique<peal_requester>();
	std::uint32_t posted_ = 0;

public:
	std::uint64_t now = 1 * MS;
	peal_outgoing out{};
	peal_response response{};

	explicit Requester(const peal_requester_config &config = plain_config(),
			   std::uint32_t entries = ENTRIES)
		: messages_(entries)
	{
		peal_requester_init(requester_.get(), messages_.data(), entries);
		peal_requester_configure(requester_.get(), &config);
		peal_requester_set_psn(requester_.get(), FIRST_PSN);
	}
	peal_requester *get() { return requester_.get(); }

	void post(const peal_wqe &wr)
	{
		REQUIRE(peal_requester_has_room(requester_.get()));
		peal_requester_post(requester_.get(), &wr);
		++posted_;
	}
	peal_wqe wr(unsigned opcode, std::uint64_t length = 1,
		    unsigned flags = PEAL_WQE_SIGNALED) const
	{
		peal_wqe m = {};

		m.opcode = static_cast<u8>(opcode);
		m.flags = static_cast<u8>(flags);
		m.index = 100 + posted_;
		m.length = length;
		m.remote_addr = 0x10000;
		m.rkey = 77;
		return m;
	}
	void post(unsigned opcode, std::uint64_t length = 1, unsigned flags = PEAL_WQE_SIGNALED)
	{
		post(wr(opcode, length, flags));
	}
	/* Posts a WRITE of that many packets. */
	void post_packets(std::uint32_t packets) { post(PEAL_OP_WRITE, packets * MTU); }
	void post_read(std::uint32_t packets) { post(PEAL_OP_READ, packets * MTU); }

	peal_blocked next() { return peal_requester_next(requester_.get(), now, 1, &out); }
	/* Sends all packets that may be sent now. Return: their PSNs, as numbers of a test. */
	std::vector<std::uint32_t> send()
	{
		std::vector<std::uint32_t> sent;

		for (int i = 0; i < 100000 && next() == PEAL_BLOCKED_NONE; ++i) {
			REQUIRE_FALSE(out.local);
			sent.push_back((out.header.psn - FIRST_PSN) & PEAL_PSN_MASK);
		}
		return sent;
	}
	/* Return: the reason why next() has nothing to send. */
	peal_blocked blocked()
	{
		peal_blocked why;

		do
			why = next();
		while (why == PEAL_BLOCKED_NONE);
		return why;
	}

	peal_response_what receive(const peal_packet &packet, void *handle = nullptr)
	{
		peal_requester_receive(requester_.get(), &packet, now, handle, &response);
		return response.what;
	}
	void place() { peal_requester_placed(requester_.get(), &response, now); }

	std::uint64_t deadline() { return peal_requester_deadline(requester_.get()); }
	/* Advances the time to the next deadline. */
	void expire()
	{
		REQUIRE(deadline() != U64_MAX);
		now = std::max(now, deadline());
		peal_requester_expire(requester_.get(), now);
	}
	/* Return: the next message that has ended, or null. */
	const peal_message *complete() { return peal_requester_complete(requester_.get()); }
	/* Return: how many complete, in order and successfully. */
	std::uint32_t completed()
	{
		std::uint32_t n = 0;

		for (; const peal_message *done = complete(); ++n) {
			REQUIRE(done->status == IB_WC_SUCCESS);
			REQUIRE(done->reason == PEAL_REASON_NONE);
			REQUIRE(done->wqe.index == 100 + completions);
			++completions;
		}
		return n;
	}
	std::uint32_t completions = 0;
};

} // namespace peal::test
