// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * One device. It takes frames from the network in batches, finds the queue pair,
 * and has a transmit queue that is sometimes full.
 *
 * Owns: received frames that wait, and whether there is room to send.
 * Does not know: the work of its queue pairs.
 */
#pragma once
#include <deque>
#include <vector>

#include "network.hpp"

namespace peal::sim {

class Pair;

struct NodeHabits {
	u32 batch = 16;		/* the most frames before replies are sent */
	u64 batch_delay = 1000; /* the longest time from a frame's arrival to its processing */
	u32 full = 0;		/* chance that a packet fills the transmit queue, millionths */
	u64 full_for = 0;	/* the longest time that it is full */
	u32 no_memory = 0;	/* chance that a packet finds no memory and is lost */
	u64 timer_slack = 0;	/* the longest delay of a timer */
};

class Node : public Port, public Actor {
	World &world_;
	Network &network_;
	std::deque<FramePtr> received_;
	std::vector<Pair *> pairs_;
	bool awake_ = false;
	size_t turn_ = 0;
	u64 full_until_ = 0;

	Pair *find(const Frame &frame) const;
	void process();

public:
	const u32 id;
	const bool v6;
	NodeHabits habits;
	u64 drops[PEAL_DROP_COUNT] = {};

	Node(World &world, Network &network, u32 id, bool v6, const NodeHabits &habits)
		: world_(world), network_(network), id(id), v6(v6), habits(habits)
	{
		network.attach(id, this);
	}
	World &world() { return world_; }
	void attach(Pair *pair) { pairs_.push_back(pair); }
	void arrive(FramePtr frame) override;
	void wake(u64 what) override;

	/* Whether there is room for a packet. If not, all pairs are asked again when there is. */
	bool room() const { return world_.now() >= full_until_; }
	void send(FramePtr frame);
	/* Return: when a timer for @time expires. */
	u64 late(u64 time);
};

} // namespace peal::sim
