// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See network.hpp.
 */
#include "network.hpp"

#include <algorithm>

namespace peal::sim {

/* Return: why the frame is lost, or nullptr. Then it is sent as soon as the link is free. */
const char *Network::fate(Way &way, const Frame &frame)
{
	const Path &path = way.path;
	u64 queued;

	if (way.doomed) {
		way.doomed--;
		return "lost in a burst";
	}
	if (world_.random.ppm(path.loss)) {
		if (world_.random.ppm(path.burst))
			way.doomed = static_cast<u32>(world_.random.between(1, 8));
		return "lost";
	}
	queued = std::max(world_.now(), way.busy);
	if (path.queue_ns && queued - world_.now() > path.queue_ns)
		return "queue full";
	way.busy = queued + path.ns_per_kib * frame.bytes.size() / 1024;
	return nullptr;
}

/* Flips bits that routers do not change, or cuts off the end. */
void Network::damage(Frame &frame)
{
	Random &random = world_.random;
	u64 flips = random.between(1, 3);

	damaged++;
	if (random.one_in(8)) {
		frame.bytes.resize(random.between(frame.bth() + 1, frame.bytes.size() - 1));
		return;
	}
	for (u64 i = 0; i < flips; i++) {
		u64 at = frame.bth() + random.below(frame.bytes.size() - frame.bth());

		if (at != frame.bth() + 4)
			frame.bytes[at] ^= static_cast<u8>(1 << random.below(8));
		else
			frame.bytes[frame.bth() + 5] ^= 1;
	}
}

void Network::deliver(Way &way, FramePtr frame, bool again, u64 late)
{
	const Path &path = way.path;
	Random &random = world_.random;
	u64 at = std::max(way.busy, world_.now()) + path.delay + late;

	if (path.jitter)
		at += random.below(path.jitter);
	if (random.ppm(path.late))
		at += random.below(path.late_by);
	else if (path.fifo && !late)
		way.last = at = std::max(at, way.last);
	if (random.ppm(path.damage)) {
		damage(*frame);
		world_.trace("    network damages it");
	} else {
		frame->route(random.bits());
	}
	if (again)
		world_.trace("    network sends it twice");
	flying_[count_] = std::move(frame);
	world_.at(at, this, count_++);
}

void Network::send(FramePtr frame)
{
	Way &way = ways_[frame->from << 16 | frame->to];
	Touch touched = touch ? touch(*frame) : Touch{};
	const char *lost_by;

	sent++;
	lost_by = touched.lost ? "swallowed" : fate(way, *frame);
	if (lost_by) {
		lost++;
		world_.trace("    %s", lost_by);
		return;
	}
	if (world_.random.ppm(way.path.duplicate)) {
		duplicated++;
		deliver(way, std::make_unique<Frame>(*frame), true, 0);
	}
	deliver(way, std::move(frame), false, touched.late);
}

void Network::plant(FramePtr frame)
{
	const Path &path = ways_[frame->from << 16 | frame->to].path;

	flying_[count_] = std::move(frame);
	world_.in(world_.random.below(2 * path.delay), this, count_++);
}

void Network::wake(u64 what)
{
	auto found = flying_.find(what);
	FramePtr frame = std::move(found->second);

	flying_.erase(found);
	ports_.at(frame->to)->arrive(std::move(frame));
}

} // namespace peal::sim
