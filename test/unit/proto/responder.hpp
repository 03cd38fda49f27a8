// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A responder's half alone. The test is the host and the peer. */
#pragma once
#include <memory>
#include <vector>

#include "../catch.hpp"
#include "../kernel/support.hpp"
#include "proto.hpp"

namespace peal::test {

constexpr std::uint32_t MTU = 256;
constexpr std::uint8_t PLAIN_ACK = 0 + PEAL_SYNDROME_ACK + PEAL_CREDITS_UNLIMITED;
constexpr std::uint8_t SEQUENCE_NAK = 0 + PEAL_SYNDROME_NAK + PEAL_NAK_SEQUENCE;
constexpr std::uint8_t INVALID_NAK = 0 + PEAL_SYNDROME_NAK + PEAL_NAK_INVALID_REQUEST;
constexpr std::uint8_t ACCESS_NAK = 0 + PEAL_SYNDROME_NAK + PEAL_NAK_REMOTE_ACCESS;
constexpr std::uint8_t OPERATION_NAK = 0 + PEAL_SYNDROME_NAK + PEAL_NAK_REMOTE_OPERATION;
constexpr std::uint8_t RNR_TIMER = 12;
constexpr std::uint64_t KEEP = 100000000;

/* A request packet. The with() functions set its fields. */
struct Request : peal_packet {
	Request(unsigned wire, std::uint32_t number, std::uint32_t bytes, unsigned transport)
		: peal_packet{}
	{
		opcode = peal_opcode_of(transport, wire);
		psn = number & PEAL_PSN_MASK;
		payload_bytes = bytes;
		pad = -bytes & 3;
		header_bytes = peal_wire_opcode(opcode)->header_bytes;
	}
	Request asks_ack() const
	{
		Request copy = *this;

		copy.ack_request = true;
		return copy;
	}
	/* The same packet by another path through the network. */
	Request by(std::uint16_t way) const
	{
		Request copy = *this;

		copy.flow = way;
		return copy;
	}
	Request at(std::uint64_t address, std::uint32_t bytes, std::uint32_t key = 7) const
	{
		Request copy = *this;

		copy.remote_addr = address;
		copy.length = bytes;
		copy.rkey = key;
		return copy;
	}
};

inline Request rc(unsigned wire, std::uint32_t psn, std::uint32_t bytes = 0)
{
	return Request(wire, psn, bytes, PEAL_RC);
}

inline Request uc(unsigned wire, std::uint32_t psn, std::uint32_t bytes = 0)
{
	return Request(wire, psn, bytes, PEAL_UC);
}

inline Request read_request(std::uint32_t psn, std::uint64_t address, std::uint32_t bytes,
			    std::uint32_t key = 7)
{
	return rc(PEAL_WIRE_READ_REQUEST, psn).at(address, bytes, key);
}

inline Request atomic_request(std::uint32_t psn, std::uint64_t address)
{
	Request packet = rc(PEAL_WIRE_FETCH_ADD, psn).at(address, 0);

	packet.swap_add = 5;
	return packet;
}

class Responder {
	std::vector<peal_resource> resources_;
	std::unique_ptr<peal_responder> responder_ = std::make_unique<peal_responder>();
	peal_packet packet_{}; /* stays until done() */

public:
	std::uint64_t now = 1000000;

	explicit Responder(std::uint32_t psn, unsigned rd_atomic = 4, unsigned transport = PEAL_RC)
		: resources_(rd_atomic)
	{
		const peal_responder_config config = {
			.transport = static_cast<std::uint8_t>(transport),
			.mtu_shift = 8,
			.rd_atomic = static_cast<std::uint8_t>(rd_atomic),
			.rnr_timer = RNR_TIMER,
			.reorder_ns = KEEP,
		};

		peal_responder_init(responder_.get(), resources_.data(), resources_.size());
		peal_responder_configure(responder_.get(), &config);
		peal_responder_set_psn(responder_.get(), psn);
	}
	peal_responder *operator->() { return responder_.get(); }
	peal_responder *get() { return responder_.get(); }

	peal_request give(const peal_packet &packet, const void *handle = nullptr)
	{
		peal_request request;

		packet_ = packet;
		peal_responder_receive(responder_.get(), &packet_, now, const_cast<void *>(handle),
				       &request);
		return request;
	}
	void done(peal_verdict verdict = PEAL_VERDICT_DONE, std::uint64_t original = 0)
	{
		peal_responder_done(responder_.get(), verdict, original, now);
	}
	/* Sends a packet that must be executed. */
	peal_request run(const peal_packet &packet, peal_verdict verdict = PEAL_VERDICT_DONE,
			 std::uint64_t original = 0)
	{
		const peal_request request = give(packet);

		REQUIRE(request.what == PEAL_REQUEST_EXECUTE);
		done(verdict, original);
		return request;
	}
	void *take_reordered() { return peal_responder_take_reordered(responder_.get()); }
	bool next(peal_reply &reply) { return peal_responder_next(responder_.get(), &reply); }
	std::vector<peal_reply> replies()
	{
		std::vector<peal_reply> all;

		for (peal_reply reply; next(reply);)
			all.push_back(reply);
		return all;
	}
	/* Return: the only reply that is due. */
	peal_reply reply()
	{
		const std::vector<peal_reply> all = replies();

		REQUIRE(all.size() == 1);
		return all.front();
	}
	void *conflict(std::uint32_t psn) { return peal_responder_conflict(responder_.get(), psn); }
	void *take_expired() { return peal_responder_take_expired(responder_.get(), now); }
	std::uint64_t deadline() const { return peal_responder_deadline(responder_.get()); }
	/* Nothing is due except the time at which out-of-order packets are given up. */
	bool looks_at_no_gap() const
	{
		return deadline() == peal_reorder_deadline(&responder_->reorder);
	}
	/* Advances the time to the deadline. */
	void wait()
	{
		REQUIRE(deadline() != U64_MAX);
		now = deadline();
		peal_responder_expire(responder_.get(), now);
	}
};

inline void check_answer(const peal_reply &reply, std::uint8_t syndrome, std::uint32_t psn)
{
	CHECK(reply.header.opcode == peal_opcode_of(PEAL_RC, PEAL_WIRE_ACK));
	CHECK(unsigned(reply.header.syndrome) == syndrome);
	CHECK(reply.header.psn == (psn & PEAL_PSN_MASK));
	CHECK_FALSE(reply.read);
}

inline void check_refused(const peal_request &request)
{
	CHECK(request.what == PEAL_REQUEST_ANSWERED);
	CHECK(request.fatal);
}

inline void check_dropped(const peal_request &request, peal_drop drop)
{
	CHECK(request.what == PEAL_REQUEST_DROPPED);
	CHECK(request.drop == drop);
}

} // namespace peal::test
