// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What an event loop owns: its epoll, the coroutines that may go on, and the deadlines of the
 * others. It knows connections only as sources.
 */
#pragma once
#include <atomic>
#include <cstdint>

#include "peal/co.hpp"

namespace peal::detail {

/*
 * What makes waiters go on, and has two descriptors for the loop to watch. While it has a place in
 * the loop's list, the loop calls arm() before it sleeps.
 */
struct source : list_node {
	virtual void on_readable(unsigned which) noexcept = 0;
	/* Looks whether something has come. */
	virtual void look() noexcept = 0;
	/* Makes the descriptors readable by what comes later, and looks. */
	virtual void arm() noexcept = 0;

protected:
	~source() = default;
};

/* Deadlines in a pairing heap: adding is cheap, and so is removing one that is not the first. */
class timers {
public:
	void add(timer &, deadline::clock::time_point) noexcept;
	void remove(timer &) noexcept;
	timer *first() const noexcept { return root_; }

private:
	static timer *meld(timer *, timer *) noexcept;
	static timer *meld_all(timer *siblings) noexcept;

	timer *root_ = nullptr;
};

struct event_loop {
	std::atomic<unsigned> users{1};
	int epoll = -1;
	/* Waiters that are done, and roots that begin or have ended. */
	list_node ready;
	list_node roots;
	/* Sources that must be armed before a sleep. */
	list_node unarmed;
	/* Waiters for descriptors. */
	list_node descriptors;
	timers deadlines;
	root *current = nullptr;
	/* How many awaits of the current coroutine may still go on without a suspension. */
	unsigned turns = 0;
	bool running = false;
	bool stopped = false;
	bool closed = false;

	event_loop() noexcept = default;
	event_loop(const event_loop &) = delete;
	~event_loop();

	/* Why a coroutine of this thread cannot wait here, or null. */
	const char *refuses() const noexcept;

	status run(const deadline &) noexcept;
	void destroy(root &) noexcept;
	void close() noexcept;

	/* False with errno if the descriptor cannot be watched. */
	bool watch(source &, unsigned which, int fd) noexcept;
	void unwatch(int fd) noexcept;
	bool watch(co::readable &) noexcept;
	void forget(co::readable &) noexcept;

private:
	void resume_ready() noexcept;
	void give_up_late() noexcept;
	void look_before_sleep() noexcept;
	void sleep(const deadline &) noexcept;
	void wake_readers(int fd) noexcept;
};

/* Runs a coroutine that never suspends, because all that it awaits blocks. */
template <class T>
T run_blocking(co::task<T> whole) noexcept
{
	if (!whole.frame_)
		return nothing<T>::made();
	whole.frame_.resume();
	return whole.frame_.promise().take();
}

} // namespace peal::detail
