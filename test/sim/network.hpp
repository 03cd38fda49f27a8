// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The network takes frames and delivers them late, twice, damaged, in another
 * order, or never.
 *
 * Owns: the frames in flight. Does not know: the contents of a frame.
 */
#pragma once
#include <unordered_map>

#include "frame.hpp"
#include "world.hpp"

namespace peal::sim {

/* How a path treats frames. Shares are in millionths. */
struct Path {
	u64 delay = 10 * US;
	u64 jitter = 0;	  /* uniform, added to the delay */
	bool fifo = true; /* jitter does not change the order */
	u32 loss = 0;
	u32 burst = 0; /* share of losses that take the next frames as well, up to 8 */
	u32 duplicate = 0;
	u32 damage = 0;
	u32 late = 0; /* share that is held back, by `late_by` at most */
	u64 late_by = 0;
	u64 ns_per_kib = 0; /* bandwidth, 0: unlimited */
	u64 queue_ns = 0;   /* a frame that would wait longer is dropped */

	bool loses() const { return loss || damage || queue_ns; }
	bool orderly() const { return !late && (fifo || !jitter) && !duplicate; }
	/* The longest time that a frame takes. */
	u64 longest() const { return delay + jitter + late_by + queue_ns; }
};

/* Where frames come out. */
class Port {
public:
	virtual ~Port() = default;
	virtual void arrive(FramePtr frame) = 0;
};

/* A fault that happens to a frame. The fault may also change the frame. */
struct Touch {
	bool lost = false;
	u64 late = 0;
};

class Network : public Actor {
	struct Way {
		Path path;
		u64 last = 0;	/* no later frame arrives before this, if fifo */
		u64 busy = 0;	/* earlier frames are being sent until then */
		u32 doomed = 0; /* remaining frames of a burst of losses */
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
	/* Called with each frame that is sent. */
	std::function<Touch(Frame &)> touch;
	u64 sent = 0, lost = 0, damaged = 0, duplicated = 0;

	explicit Network(World &world) : world_(world) {}
	void attach(u32 node, Port *port) { ports_[node] = port; }
	void set_path(u32 from, u32 to, const Path &path) { ways_[from << 16 | to].path = path; }
	void send(FramePtr frame);
	/* Sends a forged frame, to which no fault happens. */
	void plant(FramePtr frame);
	void wake(u64 what) override;
};

} // namespace peal::sim
