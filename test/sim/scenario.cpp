// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See scenario.hpp: the network, and the run. Connections are in connection.cpp.
 */
#include "scenario.hpp"

#include <algorithm>

namespace peal::sim {

/*
 * The longest time that a run takes, because timeouts, RNR timers and retries are chosen so.
 * Without a timeout a second passes between two tries, and on the worst path one in three arrives.
 */
constexpr u64 LONGEST = 3600 * SECOND;
constexpr u64 EVENTS = 3000000;

/* A path is bad in one or two ways, rarely in all. */
void Scenario::plan_path()
{
	Random &random = world_.random;
	Path &p = path_;

	p.delay = random.pick<u64>({500, 5 * US, 20 * US, 100 * US, MS});
	for (u64 ways = random.pick<u64>({0, 1, 1, 1, 2, 2, 3}); ways; ways--) {
		switch (random.below(6)) {
		case 0:
			p.loss = random.pick<u32>({1000, 10000, 10000, 50000, 50000, 200000});
			p.burst = random.one_in(3) ? 300000 : 0;
			break;
		case 1:
			p.jitter = random.between(1, 20) * p.delay / 4;
			p.fifo = random.one_in(2);
			break;
		case 2:
			p.duplicate = random.pick<u32>({1000, 10000, 100000, 500000});
			break;
		case 3:
			p.late = random.pick<u32>({1000, 10000, 50000, 250000});
			p.late_by = random.between(1, 20) * p.delay / 2;
			break;
		case 4:
			p.damage = random.pick<u32>({1000, 10000, 50000});
			break;
		case 5:
			p.ns_per_kib = random.pick<u64>({100, 800, 8000, 80000});
			if (random.one_in(2))
				p.queue_ns = random.between(4, 64) * p.ns_per_kib;
			break;
		}
	}
}

void Scenario::plan_habits()
{
	Random &random = world_.random;

	habits_.batch = random.pick<u32>({1, 4, 16, 64});
	/* A node that takes one frame at a time has to be quick. */
	habits_.batch_delay = random.pick<u64>({0, 100, 1 * US, 10 * US, 100 * US});
	if (habits_.batch < 16 && habits_.batch_delay > 10 * US)
		habits_.batch = 16;
	if (random.one_in(4)) {
		habits_.full = random.pick<u32>({1000, 20000, 200000});
		habits_.full_for = random.pick<u64>({2 * US, 20 * US, 200 * US});
	}
	if (random.one_in(8))
		habits_.no_memory = random.pick<u32>({1000, 20000});
	habits_.timer_slack = random.pick<u64>({0, 1 * US, 50 * US});
}

Scenario::Scenario(u64 seed, bool verbose) : world_(seed, verbose), network_(world_)
{
	Random &random = world_.random;
	u32 nodes = random.pick<u32>({2, 2, 2, 3, 4});
	laboratory_ = random.one_in(20) && !Connection::always_planted;
	u32 connections = random.pick<u32>({1, 1, 1, 1, 2, 3});
	bool v6 = random.one_in(2);

	if (laboratory_) {
		nodes = 2;
		connections = 1;
		path_.delay = random.pick<u64>({5 * US, 20 * US, 100 * US});
	} else {
		plan_path();
		plan_habits();
	}
	for (u32 i = 0; i < nodes; i++)
		nodes_.push_back(std::make_unique<Node>(world_, network_, i, v6, habits_));
	for (u32 i = 0; i < nodes * nodes; i++)
		network_.set_path(i / nodes, i % nodes, path_);
	bool sharing = connections > 1 && random.one_in(2);
	for (u32 i = 0; i < connections; i++) {
		/* Sometimes a node sends to itself. */
		u32 a = static_cast<u32>(random.below(nodes));
		u32 b = random.one_in(20) ? a : static_cast<u32>((a + 1) % nodes);

		connections_.push_back(std::make_unique<Connection>(
			world_, network_, *nodes_[a], *nodes_[b], path_, i + 1, laboratory_,
			sharing ? &queues_ : nullptr));
		world_.trace("connection %u: nodes %u, %u: %s", i + 1, a, b,
			     connections_.back()->describe().c_str());
	}
	network_.touch = [this](Frame &frame) {
		Touch all;

		for (auto &connection : connections_) {
			Touch touch = connection->touch(frame);

			all.lost |= touch.lost;
			all.late += touch.late;
		}
		return all;
	};
	world_.trace("delay %llu us, jitter %llu us%s, loss %u%s, twice %u, late %u by %llu us, "
		     "damage %u, %llu ns/KiB, queue %llu us",
		     path_.delay / US, path_.jitter / US, path_.fifo ? "" : " (reorders)",
		     path_.loss, path_.burst ? " in bursts" : "", path_.duplicate, path_.late,
		     path_.late_by / US, path_.damage, path_.ns_per_kib, path_.queue_ns / US);
}

Scenario::~Scenario() = default;

/* Runs until no event is left. */
void Scenario::drain()
{
	while (world_.step()) {
		if (world_.done() > EVENTS)
			violation("no end after %llu events, %llu packets, %llu us", world_.done(),
				  network_.sent, world_.now() / US);
		if (world_.now() > LONGEST)
			violation("no end after %llu s", world_.now() / SECOND);
	}
}

void Scenario::run()
{
	drain();
	for (auto &connection : connections_)
		connection->check();
	connections_.clear();
	if (PealPair::kept)
		violation("%llu kept frames were never given back", PealPair::kept);
}

} // namespace peal::sim
