// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A peer that works all the time but is slow, like a small machine under load. Each packet waits
 * for all packets before it, and the answer takes longer than the timeout.
 *
 * Holds: Messages arrive as long as a packet takes at most an eighth of the timeout. Little is sent
 * twice, because that would only be more work for the peer.
 * Does not hold: loss (requester_random.cpp).
 */
#include <deque>

#include "requester.hpp"

using namespace peal::test;

namespace {

/* Takes one event after the other, each as long as the one before. A repeated READ starts again. */
class SlowPeer {
	struct Task {
		bool respond; /* one packet of a READ response, otherwise a request is taken */
		std::uint32_t psn;
		peal_packet request;
	};

	Requester &r_;
	std::uint64_t cost_, ready_ = U64_MAX;
	std::deque<Task> tasks_;
	std::uint32_t expected_ = FIRST_PSN, answered_ = FIRST_PSN;

	void add(const Task &task)
	{
		if (tasks_.empty())
			ready_ = r_.now + cost_;
		tasks_.push_back(task);
	}
	void take(const peal_packet &request)
	{
		if (request.opcode == PEAL_WIRE_READ_REQUEST)
			return take_read(request);
		if (request.psn == expected_)
			expected_ = peal_psn_add(expected_, 1);
		if (request.ack_request)
			answer(ack(peal_psn_ahead(FIRST_PSN, expected_) - 1));
	}
	void take_read(const peal_packet &request)
	{
		const std::uint32_t packets = (request.length + MTU - 1) / MTU;

		if (request.psn == expected_)
			expected_ = peal_psn_add(expected_, packets);
		else
			std::erase_if(tasks_, [](const Task &task) { return task.respond; });
		for (std::uint32_t i = 0; i < packets; ++i)
			add({true, peal_psn_add(request.psn, i), {}});
	}
	void answer(const peal_packet &packet)
	{
		peal_psn_raise(&answered_, peal_psn_add(packet.psn, 1));
		if (r_.receive(packet) == PEAL_RESPONSE_READ)
			r_.place();
	}
	void work()
	{
		const Task task = tasks_.front();

		tasks_.pop_front();
		ready_ = tasks_.empty() ? U64_MAX : r_.now + cost_;
		if (task.respond)
			answer(read_response(peal_psn_ahead(FIRST_PSN, task.psn)));
		else
			take(task.request);
	}

public:
	std::uint32_t requests = 0, again = 0;

	SlowPeer(Requester &r, std::uint64_t cost) : r_(r), cost_(cost) {}
	std::uint32_t unanswered() const
	{
		return peal_psn_ahead(answered_, peal_requester_psn(r_.get()));
	}
	/* Handles one event. Return: false when the message is over, successful or not. */
	bool step()
	{
		while (r_.next() == PEAL_BLOCKED_NONE) {
			add({false, 0, r_.out.header});
			++requests;
			again += r_.out.again;
		}
		if (r_.completed() || std::min(ready_, r_.deadline()) == U64_MAX)
			return false;
		if (ready_ <= r_.deadline()) {
			r_.now = ready_;
			work();
		} else {
			r_.expire();
		}
		return true;
	}
};

constexpr std::uint32_t PACKETS = 1000;
const std::uint64_t COSTS[] = {10 * US, 100 * US, 1 * MS, 2 * MS, 4 * MS, TIMEOUT / 8};

} // namespace

TEST_CASE("a slow peer gets a long WRITE, and little of it twice", "[slow]")
{
	for (const auto cost : COSTS) {
		Requester r;
		SlowPeer peer(r, cost);

		CAPTURE(cost);
		r.post_packets(PACKETS);
		while (peer.step())
			;
		CHECK(r.completions == 1);
		CHECK(peer.again <= 24);
	}
}

TEST_CASE("a slow peer answers a long READ, and little of it twice", "[slow]")
{
	for (const auto cost : COSTS) {
		Requester r;
		SlowPeer peer(r, cost);

		CAPTURE(cost);
		r.post_read(PACKETS);
		while (peer.step())
			;
		CHECK(r.completions == 1);
		/* These are pieces of a few responses each. */
		CHECK(peer.again <= 100);
		CHECK(2 * r.now <= 5 * PACKETS * cost + 2 * MS);
	}
}

TEST_CASE("in front of a slow peer few packets wait", "[slow]")
{
	Requester r;
	SlowPeer peer(r, 4 * MS);

	/* The window has begun with 16, and grows until two answers in a row were slow. */
	r.post_packets(PACKETS);
	while (peer.step())
		CHECK(peer.unanswered() <= 48);
}
