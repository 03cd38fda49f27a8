// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Coroutines: how one begins, waits for another one, waits for an event loop, and ends. This file
 * knows nothing of RDMA.
 */
#pragma once
#ifndef __cpp_impl_coroutine
#error "<peal/co.hpp> needs coroutines of C++20; use g++ 12 or another compiler that has them"
#endif
#include <cerrno>
#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "deadline.hpp"
#include "result.hpp"

namespace peal {

namespace co {

template <class T = void>
class task;
class job;
class loop;

} // namespace co

namespace detail {

struct event_loop;
template <class T>
T run_blocking(co::task<T>) noexcept;

/* A place in a list, or the head of one. It leaves its list when it is destroyed. */
struct list_node {
	list_node *previous = this;
	list_node *next = this;

	list_node() noexcept = default;
	list_node(const list_node &) = delete;
	~list_node() { leave_list(); }

	bool empty() const noexcept { return next == this; }
	void leave_list() noexcept
	{
		previous->next = next;
		next->previous = previous;
		previous = next = this;
	}
	/* On a head. */
	void push_back(list_node &node) noexcept
	{
		node.leave_list();
		node.previous = previous;
		node.next = this;
		previous->next = &node;
		previous = &node;
	}
	/*
	 * On a head: puts all of another list before its own. A loop over the nodes would do, too,
	 * but g++ 12 with -O2 compiled one to a loop without end.
	 */
	void take_all(list_node &other) noexcept
	{
		if (other.empty())
			return;
		other.next->previous = this;
		other.previous->next = next;
		next->previous = other.previous;
		next = other.next;
		other.previous = other.next = &other;
	}
};

/* A place in the heap of deadlines (loop.hpp). */
struct timer {
	deadline::clock::time_point at{};
	timer *child = nullptr;
	timer *next_sibling = nullptr;
	/* The sibling before it, or the parent of the first child. */
	timer *before = nullptr;
	bool is_set = false;
};

struct root;

/*
 * What a coroutine waits for, in the frame of the coroutine. Its owner calls leave() before the
 * loop may go.
 */
struct PEAL_API waiter : list_node, timer {
	event_loop *in;
	std::coroutine_handle<> coroutine;
	/* The coroutine that was given to spawn() or start(), and that waits. */
	root *of = nullptr;
	/* Nothing is left to wait for. */
	bool done = false;

	explicit waiter(event_loop *loop) noexcept : in(loop) {}

	/* The deadline has passed. It becomes done. */
	virtual void give_up() noexcept = 0;
	/* Whether it is done, and the coroutine need not let others run. */
	bool is_ready() noexcept;
	void suspend(std::coroutine_handle<>, const deadline &) noexcept;
	/* It is done, and the loop resumes the coroutine if it was suspended. */
	void wake() noexcept;
	void leave() noexcept;

protected:
	~waiter() = default;
};

/* A coroutine that the loop owns. It waits to be run for the first time, or to be destroyed. */
struct PEAL_API root final : waiter {
	struct place : list_node {
		root *of;
	} among_roots;
	std::coroutine_handle<> frame;
	co::job *owner = nullptr;

	root() noexcept : waiter(nullptr) {}
	void give_up() noexcept override {}
};

struct promise_base {
	std::coroutine_handle<> continuation = std::noop_coroutine();

	std::suspend_always initial_suspend() const noexcept { return {}; }
	[[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
};

template <class Promise>
struct at_end {
	bool await_ready() const noexcept { return false; }
	std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) noexcept
	{
		return self.promise().finish();
	}
	void await_resume() const noexcept {}
};

template <class T>
struct promise : promise_base {
	std::optional<T> value;

	co::task<T> get_return_object() noexcept;
	static co::task<T> get_return_object_on_allocation_failure() noexcept;
	at_end<promise> final_suspend() const noexcept { return {}; }
	std::coroutine_handle<> finish() noexcept { return continuation; }
	void return_value(T result) noexcept { value.emplace(std::move(result)); }
	T take() noexcept { return std::move(*value); }
};

template <>
struct promise<void> : promise_base {
	/* Used if no other coroutine waits for this one. */
	detail::root root;

	co::task<void> get_return_object() noexcept;
	static co::task<void> get_return_object_on_allocation_failure() noexcept;
	at_end<promise> final_suspend() const noexcept { return {}; }
	/* The loop destroys a root, because nothing else holds it. */
	std::coroutine_handle<> finish() noexcept
	{
		if (root.in)
			root.wake();
		return continuation;
	}
	void return_void() const noexcept {}
	void take() const noexcept {}
};

constexpr const char *no_coroutine =
	"there was no memory for a coroutine, or its task was moved from; use the object that it "
	"was moved to, or start fewer";

/* What awaiting a task without a coroutine gives. */
template <class T>
struct nothing {
	[[noreturn]] static T made() noexcept { no_value(no_coroutine); }
};

template <class T>
struct nothing<result<T>> {
	static result<T> made() noexcept { return error::make(ENOMEM, "%s", no_coroutine); }
};

} // namespace detail

namespace co {

/*
 * A coroutine that returns a T. It begins when another coroutine awaits it, or when a loop is given
 * it, and its frame is the only memory that it allocates. Destroying it destroys its variables,
 * wherever it waits. An exception that leaves it ends the program.
 *
 * If there is no memory for its frame, awaiting a task<result<...>> gives an error.
 */
template <class T>
class [[nodiscard]] task {
public:
	using promise_type = detail::promise<T>;
	using handle = std::coroutine_handle<promise_type>;

	task(task &&other) noexcept : frame_(std::exchange(other.frame_, {})) {}
	task &operator=(task other) noexcept
	{
		std::swap(frame_, other.frame_);
		return *this;
	}
	~task()
	{
		if (frame_)
			frame_.destroy();
	}

	auto operator co_await() &&noexcept
	{
		struct awaiter {
			handle child;

			bool await_ready() const noexcept { return !child; }
			/*
			 * It does not suspend if the child ends at once. So a loop of children that
			 * need not wait uses no more stack, also if the compiler does not optimize.
			 */
			bool await_suspend(std::coroutine_handle<> parent) noexcept
			{
				child.resume();
				if (child.done())
					return false;
				child.promise().continuation = parent;
				return true;
			}
			T await_resume() noexcept
			{
				if (!child)
					return detail::nothing<T>::made();
				return child.promise().take();
			}
		};
		return awaiter{frame_};
	}

private:
	friend promise_type;
	friend class loop;
	friend T detail::run_blocking<T>(task) noexcept;

	explicit task(handle frame) noexcept : frame_(frame) {}

	handle frame_;
};

} // namespace co

template <class T>
co::task<T> detail::promise<T>::get_return_object() noexcept
{
	return co::task<T>(co::task<T>::handle::from_promise(*this));
}

template <class T>
co::task<T> detail::promise<T>::get_return_object_on_allocation_failure() noexcept
{
	return co::task<T>({});
}

inline co::task<void> detail::promise<void>::get_return_object() noexcept
{
	return co::task<void>(co::task<void>::handle::from_promise(*this));
}

inline co::task<void> detail::promise<void>::get_return_object_on_allocation_failure() noexcept
{
	return co::task<void>({});
}

} // namespace peal
