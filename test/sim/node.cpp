// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See node.hpp.
 */
#include "node.hpp"

#include <algorithm>

#include "pair.hpp"

namespace peal::sim {

enum { PROCESS, ROOM };

void Node::arrive(FramePtr frame)
{
	received_.push_back(std::move(frame));
	if (awake_)
		return;
	awake_ = true;
	world_.in(world_.random.below(habits.batch_delay + 1), this, PROCESS);
}

/* Finds a pair by the destination queue pair number. The frame was parsed. */
Pair *Node::find(const Frame &frame) const
{
	for (Pair *pair : pairs_)
		if (pair->qpn == frame.packet.qpn && pair->peer->node.id == frame.from)
			return pair;
	return nullptr;
}

void Node::process()
{
	std::vector<Pair *> touched;

	for (u32 i = 0; i < habits.batch && !received_.empty(); i++) {
		FramePtr frame = std::move(received_.front());
		enum peal_drop drop = PEAL_DROP_icrc;
		Pair *pair = nullptr;

		received_.pop_front();
		if (frame->intact(Code::CORE))
			drop = frame->parse(world_.random.one_in(2));
		if (!drop && !(pair = find(*frame)))
			drop = PEAL_DROP_qpn;
		drops[drop]++;
		if (drop) {
			world_.trace("node %u drops a frame: %d", id, drop);
			continue;
		}
		pair->arrive(std::move(frame));
		if (std::find(touched.begin(), touched.end(), pair) == touched.end())
			touched.push_back(pair);
	}
	for (Pair *pair : touched)
		pair->batch_ends();
	awake_ = !received_.empty();
	if (awake_)
		world_.in(world_.random.below(habits.batch_delay + 1), this, PROCESS);
}

void Node::wake(u64 what)
{
	if (what == PROCESS) {
		process();
		return;
	}
	if (!room())
		return;
	/* Each time another pair is first, because the first may fill the queue again. */
	turn_++;
	for (size_t i = 0; i < pairs_.size(); i++)
		pairs_[(turn_ + i) % pairs_.size()]->room();
}

void Node::send(FramePtr frame)
{
	Random &random = world_.random;

	if (random.ppm(habits.no_memory)) {
		world_.trace("    no memory for it");
		return;
	}
	network_.send(std::move(frame));
	if (!random.ppm(habits.full))
		return;
	full_until_ = world_.now() + 1 + random.below(habits.full_for);
	world_.at(full_until_, this, ROOM);
}

u64 Node::late(u64 time)
{
	if (time == NEVER)
		return NEVER;
	return std::max(time, world_.now()) + world_.random.below(habits.timer_slack + 1);
}

} // namespace peal::sim
