// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The network: takes frames and delivers them late, twice, damaged, in another
 * order, or never.
 *
 * Owns: what is on its way. Does not know: what a frame is about.
 */
#pragma once
#include <unordered_map>

#include "frame.hpp"
#include "world.hpp"

namespace peal::sim {

/* How a path treats frames; shares are in millionths. */
struct Path {
	u64 delay = 10 * US;
	u64 jitter = 0;	  /* uniform, on top */
	bool fifo = true; /* jitter does not change the order */
	u32 loss = 0;
	u32 burst = 0; /* that a loss takes the next ones as well: up to 8 */
	u32 duplicate = 0;
	u32 damage = 0;
	u32 late = 0; /* held back by `late_by` at most */
	u64 late_by = 0;
	u64 ns_per_kib = 0; /* bandwidth; 0: unlimited */
	u64 queue_ns = 0;   /* what would wait longer is dropped */

	bool loses() const { return loss || damage || queue_ns; }
	bool orderly() const { return !late && (fifo || !jitter) && !duplicate; }
	/* The longest that a frame takes. */
	u64 longest() const { return delay + jitter + late_by + queue_ns; }
};

/* Where frames come out. */
class Port {
public:
	virtual ~Port() = default;
	virtual void arrive(FramePtr frame) = 0;
};

/* What misfortune does to a frame, which it may also change. */
struct Touch {
	bool lost = false;
	u64 late = 0;
};

class Network : public Actor {
	struct Way {
		Path path;
		u64 last = 0;	/* fifo: nothing arrives before this */
		u64 busy = 0;	/* until then earlier frames are sent */
		u32 doomed = 0; /* frames of a burst that is being lost */
	};

	World &world_;
	std::unordered_map<u32, Port *> ports_;
	std::unordered_map<u32, Way> ways_;
	std::unordered_map<u64, FramePtr> flying_;
	u64 count_ = 0;

	void deliver(Way &way, FramePtr frame, bool again, u64 late);
	void damage(Frame &frame);
	const char *fate(Way &way, const Frame &frame);

public:
	/* Shown each frame that is sent. */
	std::function<Touch(Frame &)> touch;
	u64 sent = 0, lost = 0, damaged = 0, duplicated = 0;

	explicit Network(World &world) : world_(world) {}
	void attach(u32 node, Port *port) { ports_[node] = port; }
	void set_path(u32 from, u32 to, const Path &path) { ways_[from << 16 | to].path = path; }
	void send(FramePtr frame);
	/* One that somebody else sends, which nothing befalls. */
	void plant(FramePtr frame);
	void wake(u64 what) override;
};

} // namespace peal::sim
