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
	std::uint32_t expected_ = FIRST_PSN;

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
		CHECK(peer.again <= 20);
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
		CHECK(peer.again <= 20);
		CHECK(r.now <= 2 * PACKETS * cost + 1 * MS);
	}
}

TEST_CASE("in front of a slow peer few packets wait", "[slow]")
{
	Requester r;
	SlowPeer peer(r, 4 * MS);

	/* The window has begun with 32, and grows until two answers in a row were slow. */
	r.post_packets(PACKETS);
	while (peer.step())
		CHECK(peal_inflight_outstanding(&r->inflight) <= 48);
}

TEST_CASE("a path that is long stays full", "[slow]")
{
	Requester r;

	for (int i = 0; i < 100; ++i) {
		r.post_packets(1);
		r.send();
		r.now += 30 * MS;
		r.receive(ack(static_cast<std::uint32_t>(i)));
		REQUIRE(r.completed() == 1);
	}
	CHECK(r->window.size == 128);
}

TEST_CASE("a stale response postpones giving up, up to four timeouts", "[slow]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 0;
	Requester r(config);

	r.post_packets(1);
	r.send();
	r.receive(ack(0));
	CHECK(r.completed() == 1);
	r.post_packets(1);
	r.send();
	const std::uint64_t begin = r.now;

	while (r.deadline() != U64_MAX) {
		r.now += 10 * MS;
		r.receive(ack(0)); /* a second time */
		if (r.now >= r.deadline())
			r.expire();
		r.send();
	}
	CHECK(r.now - begin >= 4 * TIMEOUT);
	CHECK(r.now - begin <= 4 * TIMEOUT + 10 * MS);
}

TEST_CASE("a stale response postpones the probe also without a timeout", "[slow]")
{
	peal_requester_config config = plain_config();

	config.timeout_ns = 0;
	Requester r(config);

	r.now += 3600ULL * 1000 * MS;
	r.post_packets(1);
	r.send();
	r.now += 1 * MS;
	r.receive(ack(0));
	CHECK(r.completed() == 1);
	r.post_packets(1);
	r.send();
	const auto probe = r.deadline();
	REQUIRE(probe != U64_MAX);
	r.now = (r.now + probe) / 2;
	r.receive(ack(0)); /* a second time */
	CHECK(r.deadline() > probe);
}

TEST_CASE("a host whose own memory is missing does not give up the peer", "[slow]")
{
	peal_requester_config config = plain_config();

	config.retry_limit = 0;
	Requester r(config);
	const bool excuse = GENERATE(true, false);

	INFO((excuse ? "with" : "without") << " an excuse");
	r.post_packets(1);
	r.send();
	const std::uint64_t begin = r.now;
	while (r.now - begin < 20 * TIMEOUT && r.deadline() != U64_MAX) {
		if (excuse)
			peal_requester_excuse_silence(r.operator->(), r.now);
		r.now = r.deadline() + MS; /* the timer is late */
		r.expire();
		r.send();
	}
	if (!excuse) {
		CHECK(r.now - begin <= 2 * TIMEOUT);
		return;
	}
	CHECK(r.now - begin >= 20 * TIMEOUT);
	r.receive(ack(0));
	CHECK(r.completed() == 1);
}
