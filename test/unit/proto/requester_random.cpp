// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Any messages over a path that loses, duplicates and reorders packets, to a small
 * responder that keeps no out-of-order packets (go-back-N) or all; and noise.
 *
 * Holds: Every message completes successfully, in order, exactly once. Each byte of a READ
 * lands exactly once, in order. The peer executes each packet once, in order, with the right
 * offset. Never are more than max_rd_atomic requests outstanding.
 */
#include <map>
#include <set>

#include "requester.hpp"

using namespace peal::test;

namespace {

/* Packets in flight, by time of arrival. */
class Path {
	std::multimap<std::uint64_t, peal_packet> packets_;
	Random &random_;

public:
	unsigned loss = 0, doubling = 0, disorder = 0; /* percent */

	explicit Path(Random &random) : random_(random) {}
	void put(std::uint64_t now, const peal_packet &packet)
	{
		if (random_.below(100) < loss)
			return;
		do {
			const bool late = random_.below(100) < disorder;

			packets_.emplace(now + 20 * US + (late ? random_.below(200 * US) : 0),
					 packet);
		} while (random_.below(100) < doubling);
	}
	std::uint64_t next() const { return packets_.empty() ? U64_MAX : packets_.begin()->first; }
	peal_packet take()
	{
		peal_packet packet = packets_.begin()->second;

		packets_.erase(packets_.begin());
		return packet;
	}
};

/* Executes requests in order and answers each. A READ gets all its responses. */
class Responder {
	std::uint32_t expected_ = FIRST_PSN;
	bool nak_sent_ = false;
	std::map<std::uint32_t, peal_packet> kept_;
	std::vector<peal_packet> reads_; /* as many as were negotiated */
	std::uint32_t offset_ = 0;

	void respond(Path &back, std::uint64_t now, unsigned wire, std::uint32_t number,
		     std::uint32_t bytes = 0)
	{
		peal_packet packet = response(wire, 0);

		packet.psn = number & PEAL_PSN_MASK;
		packet.payload_bytes = bytes;
		packet.original = packet.psn;
		back.put(now, packet);
	}
	void answer(const peal_packet &packet, Path &back, std::uint64_t now)
	{
		if (packet.opcode != PEAL_WIRE_READ_REQUEST) {
			respond(back, now, PEAL_WIRE_ATOMIC_ACK, packet.psn);
			return;
		}
		for (std::uint32_t i = 0; i == 0 || i * MTU < packet.length; ++i)
			respond(back, now, PEAL_WIRE_READ_RESPONSE_MIDDLE, packet.psn + i,
				std::min(MTU, packet.length - i * MTU));
	}
	/* Answers an executed request again, but only within what it asked for then. */
	void replay(const peal_packet &packet, Path &back, std::uint64_t now)
	{
		for (const peal_packet &first : reads_) {
			const std::uint32_t skip = peal_psn_ahead(first.psn, packet.psn) * MTU;

			if (skip > first.length || (skip && skip == first.length))
				continue;
			REQUIRE(packet.opcode == first.opcode);
			REQUIRE(packet.remote_addr == first.remote_addr + skip);
			REQUIRE(std::uint64_t{skip} + packet.length <= first.length);
			answer(packet, back, now);
			return;
		}
		/* It is forgotten, so it was answered and the repetition is not needed. */
	}
	void execute(const peal_packet &packet, Path &back, std::uint64_t now)
	{
		const u32 has = peal_packet_opcode(&packet)->has;

		if (has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC)) {
			reads_.push_back(packet);
			if (reads_.size() > 4)
				reads_.erase(reads_.begin());
			expected_ += packet.length ? (packet.length + MTU - 1) / MTU : 1;
			expected_ &= PEAL_PSN_MASK;
			answer(packet, back, now);
			return;
		}
		REQUIRE(!(has & PEAL_HAS_FIRST) == (offset_ != 0));
		offset_ = has & PEAL_HAS_LAST ? 0 : offset_ + packet.payload_bytes;
		expected_ = peal_psn_add(expected_, 1);
	}

public:
	bool keeps = false;

	void receive(const peal_packet &packet, Path &back, std::uint64_t now)
	{
		const s32 ahead = peal_psn_distance(expected_, packet.psn);
		const bool data =
			peal_packet_opcode(&packet)->has & (PEAL_HAS_READ | PEAL_HAS_ATOMIC);

		if (ahead > 0) {
			if (keeps)
				kept_[packet.psn] = packet;
			if (!nak_sent_)
				back.put(now, [this] {
					peal_packet p = nak(0);

					p.psn = expected_;
					return p;
				}());
			nak_sent_ = true;
			return;
		}
		if (ahead < 0 && data) {
			replay(packet, back, now);
			return;
		}
		bool ask = packet.ack_request;

		if (ahead == 0) {
			nak_sent_ = false;
			execute(packet, back, now);
			for (auto next = kept_.find(expected_); next != kept_.end();
			     next = kept_.find(expected_)) {
				ask |= next->second.ack_request;
				execute(next->second, back, now);
				kept_.erase(next);
			}
		}
		if (ask || ahead < 0)
			respond(back, now, PEAL_WIRE_ACK, expected_ - 1);
	}
};

class Run {
	Random &random_;
	Requester r_{config()};
	Path there_{random_}, back_{random_};
	Responder responder_;
	std::vector<std::unique_ptr<peal_packet>> kept_;
	std::set<std::uint32_t> requested_; /* the last PSNs of READ pieces and atomics in flight */
	std::uint64_t placed_ = 0;	    /* bytes of the current READ */
	unsigned posted_ = 0;

	static peal_requester_config config()
	{
		peal_requester_config c = plain_config();

		c.timeout_ns = 1000 * MS;
		return c;
	}
	void post()
	{
		const unsigned operation = 1 + static_cast<unsigned>(random_.below(8));
		const bool atomic = operation >= PEAL_OP_CMP_SWAP;
		peal_wqe m = r_.wr(operation, atomic ? 8 : random_.below(60 * MTU),
				   random_.one_in(3) ? 0 : PEAL_WQE_SIGNALED);

		if (random_.one_in(5))
			m.flags |= PEAL_WQE_FENCE;
		if (random_.one_in(20))
			m.opcode = PEAL_OP_BIND_MW;
		r_.post(m);
		++posted_;
	}
	void note_request(const peal_packet &packet)
	{
		const std::uint32_t packets = std::max(1U, (packet.length + MTU - 1) / MTU);

		if (packet.opcode == PEAL_WIRE_READ_REQUEST)
			requested_.insert(peal_psn_add(packet.psn, packets - 1));
		if (packet.opcode == PEAL_WIRE_CMP_SWAP || packet.opcode == PEAL_WIRE_FETCH_ADD)
			requested_.insert(packet.psn);
	}
	void send()
	{
		for (;;) {
			if (!peal_requester_unsent(r_.get()) && peal_requester_has_room(r_.get()) &&
			    posted_ < messages)
				post();
			if (r_.next() != PEAL_BLOCKED_NONE)
				break;
			if (r_.out.local)
				peal_requester_local_done(r_.get(), r_.out.message, 0, 0);
			else
				there_.put(r_.now, r_.out.header);
			if (!r_.out.local && !r_.out.again)
				note_request(r_.out.header);
			again += r_.out.again;
			++sent;
			REQUIRE(requested_.size() <= 4);
		}
	}
	void place(std::uint32_t psn)
	{
		const peal_wqe *m = peal_requester_wqe(r_.get(), r_.response.message);

		if (r_.response.what == PEAL_RESPONSE_READ) {
			REQUIRE(r_.response.offset == placed_);
			placed_ += r_.response.bytes;
			if (placed_ == m->length)
				placed_ = 0;
		}
		r_.place();
		requested_.erase(psn);
	}
	void receive(const peal_packet &packet, std::unique_ptr<peal_packet> handle)
	{
		switch (r_.receive(packet, handle.get())) {
		case PEAL_RESPONSE_KEPT:
			(void)handle.release();
			break;
		case PEAL_RESPONSE_READ:
		case PEAL_RESPONSE_ATOMIC:
			place(packet.psn);
			break;
		default:
			break;
		}
	}
	void receive(const peal_packet &packet)
	{
		receive(packet, std::make_unique<peal_packet>(packet));
		while (auto *kept =
			       static_cast<peal_packet *>(peal_requester_take_reordered(r_.get())))
			receive(*kept, std::unique_ptr<peal_packet>(kept));
	}

public:
	unsigned messages = 100;
	std::uint64_t sent = 0, again = 0;

	Run(Random &random, bool keeps, unsigned loss, unsigned doubling, unsigned disorder)
		: random_(random)
	{
		for (Path *path : {&there_, &back_}) {
			path->loss = loss;
			path->doubling = doubling;
			path->disorder = disorder;
		}
		responder_.keeps = keeps;
	}
	void go()
	{
		for (int steps = 0; r_.completions < messages; ++steps) {
			REQUIRE(steps < 1000000);
			send();
			r_.completed();
			const std::uint64_t deadline = r_.deadline();
			const std::uint64_t at = std::min({deadline, there_.next(), back_.next()});

			if (r_.completions == messages)
				break;
			if (at == U64_MAX) {
				REQUIRE(peal_requester_has_room(r_.get()));
				continue;
			}
			r_.now = std::max(r_.now, at);
			if (at == deadline)
				peal_requester_expire(r_.get(), r_.now);
			else if (at == there_.next())
				responder_.receive(there_.take(), back_, r_.now);
			else
				receive(back_.take());
		}
		CHECK(requested_.empty());
		CHECK(placed_ == 0);
		CHECK(r_.deadline() == U64_MAX);
		CHECK(peal_reorder_drop(&r_.get()->reorder) == nullptr);
	}
};

} // namespace

TEST_CASE("messages over a bad path", "[random]")
{
	Random random("bad path");

	for (int round = 0; round < 60 / SLOWER * 3; ++round) {
		const unsigned loss = static_cast<unsigned>(random.below(8));
		const unsigned doubling = static_cast<unsigned>(random.below(5));
		const unsigned disorder = static_cast<unsigned>(random.below(30));
		Run run(random, random.one_in(2), loss, doubling, disorder);

		CAPTURE(round, loss, doubling, disorder);
		run.go();
	}
}

TEST_CASE("over a good path nothing is sent twice", "[random]")
{
	Random random("good path");

	for (int round = 0; round < 20; ++round) {
		Run run(random, random.one_in(2), 0, 0, 0);

		run.go();
		CHECK(run.again == 0);
	}
}

TEST_CASE("any response at any time leaves the requester sound", "[random]")
{
	Random random("noise");

	for (int round = 0; round < 300 / SLOWER; ++round) {
		Requester r;
		int handle;
		std::uint32_t answered = FIRST_PSN, posted = 0, ended = 0;

		for (int step = 0; step < 300; ++step) {
			if (peal_requester_has_room(r.get()) && !peal_requester_unsent(r.get())) {
				r.post(1 + static_cast<unsigned>(random.below(8)),
				       random.below(20 * MTU));
				++posted;
			}
			r.blocked();

			peal_packet packet = {};

			packet.opcode =
				static_cast<u8>(PEAL_WIRE_READ_RESPONSE_FIRST + random.below(6));
			packet.psn = peal_psn_add(answered, static_cast<u32>(random.below(40)) - 5);
			packet.syndrome = static_cast<u8>(random.one_in(3) ? random.bits() : 0x1f);
			packet.msn = static_cast<u32>(random.below(20));
			packet.payload_bytes = random.one_in(20) ? 7 : MTU;
			const peal_response_what what =
				r.receive(packet, random.one_in(2) ? &handle : nullptr);

			if (what == PEAL_RESPONSE_READ || what == PEAL_RESPONSE_ATOMIC)
				r.place();
			if (what != PEAL_RESPONSE_DROPPED && what != PEAL_RESPONSE_KEPT)
				peal_psn_raise(&answered, peal_psn_add(packet.psn, 1));
			peal_requester_take_reordered(r.get());
			for (; const peal_message *done = r.complete(); ++ended)
				REQUIRE(done->wqe.index == 100 + ended);
			r.now += random.below(5 * MS);
			if (r.deadline() != U64_MAX && random.one_in(4))
				r.expire();
			REQUIRE(peal_requester_unsent(r.get()) <= 1);
			REQUIRE(peal_requester_idle(r.get()) == (ended == posted));
		}
		while (peal_reorder_drop(&r.get()->reorder))
			;
		for (; const peal_message *done = peal_requester_flush(r.get()); ++ended)
			REQUIRE(done->wqe.index == 100 + ended);
		CHECK(ended == posted);
		CHECK(peal_requester_idle(r.get()));
		CHECK(r.deadline() == U64_MAX);
	}
}

TEST_CASE("the message that fails is the one that has the refused packet", "[random]")
{
	Random random("refused packet");

	for (int round = 0; round < 2000 / SLOWER; ++round) {
		Requester r;
		std::vector<std::uint32_t> owners; /* by number of the PSN */

		for (std::uint32_t left = 1 + random.below(ENTRIES); left; --left) {
			r.post(random.below(3) ? PEAL_OP_LOCAL_INV : PEAL_OP_WRITE,
			       random.below(20 * MTU));
			while (r.next() == PEAL_BLOCKED_NONE) {
				if (r.out.local)
					peal_requester_local_done(r.get(), r.out.message, 0, 0);
				else
					owners.push_back(r.out.message);
			}
		}
		if (owners.empty())
			continue;
		const std::uint32_t refused = random.below(owners.size());

		if (refused && random.one_in(2))
			r.receive(ack(random.below(refused)));
		r.receive(nak(refused, PEAL_NAK_REMOTE_ACCESS));
		for (std::uint32_t index = 0; index < owners[refused]; ++index) {
			const peal_message *const done = r.complete();

			REQUIRE(done);
			REQUIRE(done->wqe.index == 100 + index);
			REQUIRE(done->status == IB_WC_SUCCESS);
		}
		const peal_message *const failed = r.complete();

		REQUIRE(failed);
		REQUIRE(failed->wqe.index == 100 + owners[refused]);
		REQUIRE(failed->status == IB_WC_REM_ACCESS_ERR);
	}
}
