// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * One clock and the queue of events. It is the only source of time and of chance in
 * a simulation, so that a seed determines everything.
 *
 * Owns: the time, the queue of events, the random numbers, the trace.
 * Does not know: the meaning of the events.
 */
#pragma once
#include "core.hpp"
#include <queue>
#include <stdexcept>
#include <string>
#include <vector>

#include "random.hpp"

namespace peal::sim {

/* Thrown by the oracle when the core, or a simulation, broke a rule. */
struct Violation : std::runtime_error {
	using std::runtime_error::runtime_error;
};

/* Thrown when a forger has guessed everything. The rest of the run does not matter. */
struct Guessed {};

[[noreturn]] [[gnu::format(printf, 1, 2)]] void violation(const char *format, ...);

/* An object that is called at a given time. @what is for its own use. */
class Actor {
public:
	virtual ~Actor() = default;
	virtual void wake(u64 what) = 0;
};

constexpr u64 US = 1000, MS = 1000 * US, SECOND = 1000 * MS;
constexpr u64 NEVER = ~0ULL;

class World {
	struct Event {
		u64 at, number;
		Actor *actor;
		u64 what;
		/*
		 * The queue's top is its greatest: the earliest event, and
		 * of equal ones the first made.
		 */
		bool operator<(const Event &other) const
		{
			return at != other.at ? at > other.at : number > other.number;
		}
	};

	std::priority_queue<Event> events_;
	u64 now_ = 1000, made_ = 0, done_ = 0;
	bool verbose_;

public:
	Random random;

	World(u64 seed, bool verbose) : verbose_(verbose), random(seed) {}

	u64 now() const { return now_; }
	u64 done() const { return done_; }
	bool verbose() const { return verbose_; }

	void at(u64 time, Actor *actor, u64 what)
	{
		events_.push({time < now_ ? now_ : time, made_++, actor, what});
	}
	void in(u64 ns, Actor *actor, u64 what) { at(now_ + ns, actor, what); }

	/* Run the next event. Return: false when there is none. */
	bool step();

	[[gnu::format(printf, 2, 3)]] void trace(const char *format, ...) const;
};

} // namespace peal::sim
