// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Event loops: which coroutine runs, how the loop sleeps, and how coroutines end. Nothing here
 * resumes a coroutine but resume_ready(), so no coroutine runs inside of another one's call.
 */
#include "loop.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "moved.hpp"

namespace peal {

namespace detail {

namespace {

/* After so many awaits that need not wait, a coroutine lets others run. */
constexpr unsigned most_turns = 32;
/* How often the loop polls queues before it sleeps. A sleep costs system calls and a wake-up. */
constexpr unsigned polls_before_sleep = 64;
/* The lowest bits of epoll's data: which descriptor of a source, or that it is a number. */
constexpr std::uint64_t is_descriptor = 2, tag_bits = 2;

thread_local event_loop *running_here;

} // namespace

void keep(event_loop *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(event_loop *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

/* ---- deadlines ---- */

timer *timers::meld(timer *a, timer *b) noexcept
{
	if (!a || !b)
		return a ? a : b;
	if (b->at < a->at)
		std::swap(a, b);
	b->before = a;
	b->next_sibling = a->child;
	if (a->child)
		a->child->before = b;
	a->child = b;
	return a;
}

/* In pairs, and then the pairs, which keeps the heap flat. */
timer *timers::meld_all(timer *siblings) noexcept
{
	timer *pairs = nullptr, *whole = nullptr;

	while (siblings) {
		timer *a = siblings, *b = a->next_sibling;

		siblings = b ? b->next_sibling : nullptr;
		a->before = a->next_sibling = nullptr;
		if (b)
			b->before = b->next_sibling = nullptr;
		a = meld(a, b);
		a->next_sibling = pairs;
		pairs = a;
	}
	while (pairs) {
		timer *next = pairs->next_sibling;

		pairs->next_sibling = nullptr;
		whole = meld(whole, pairs);
		pairs = next;
	}
	return whole;
}

void timers::add(timer &one, deadline::clock::time_point at) noexcept
{
	one.at = at;
	one.child = one.next_sibling = one.before = nullptr;
	one.is_set = true;
	root_ = meld(root_, &one);
}

void timers::remove(timer &one) noexcept
{
	if (!one.is_set)
		return;
	one.is_set = false;
	if (root_ == &one) {
		root_ = meld_all(one.child);
		return;
	}
	if (one.before->child == &one)
		one.before->child = one.next_sibling;
	else
		one.before->next_sibling = one.next_sibling;
	if (one.next_sibling)
		one.next_sibling->before = one.before;
	root_ = meld(root_, meld_all(one.child));
}

/* ---- waiting ---- */

bool waiter::is_ready() noexcept
{
	if (!done || !in || !in->running)
		return done;
	if (!in->turns)
		return false;
	--in->turns;
	return true;
}

void waiter::suspend(std::coroutine_handle<> by, const deadline &until) noexcept
{
	coroutine = by;
	of = in->current;
	if (done)
		in->ready.push_back(*this);
	else
		in->deadlines.add(*this, until.at());
}

void waiter::wake() noexcept
{
	done = true;
	in->deadlines.remove(*this);
	leave_list();
	if (coroutine)
		in->ready.push_back(*this);
}

void waiter::leave() noexcept
{
	if (in)
		in->deadlines.remove(*this);
	leave_list();
}

/* ---- running ---- */

const char *event_loop::refuses() const noexcept
{
	if (closed)
		return "the event loop has ended; make another one, and connect again";
	if (running_here && running_here != this)
		return "a coroutine of another event loop runs; await this in a coroutine of its "
		       "own loop";
	return nullptr;
}

event_loop::~event_loop()
{
	if (epoll >= 0)
		::close(epoll);
}

void event_loop::destroy(root &one) noexcept
{
	const std::coroutine_handle<> frame = one.frame;

	if (one.owner)
		one.owner->root_ = nullptr;
	one.leave();
	one.among_roots.leave_list();
	frame.destroy();
}

void event_loop::close() noexcept
{
	if (running)
		no_value("an event loop ended in one of its coroutines; call stop() there");
	closed = true;
	while (!roots.empty())
		destroy(*static_cast<root::place *>(roots.next)->of);
}

/* Only those that are ready now, so that what comes from outside has its turn. */
void event_loop::resume_ready() noexcept
{
	list_node now;

	now.take_all(ready);
	while (!now.empty() && !stopped) {
		auto *next = static_cast<waiter *>(now.next);

		next->leave_list();
		turns = most_turns;
		current = next->of;
		/* Its frame is also that of the waiter, which may be gone afterwards. */
		const std::coroutine_handle<> coroutine = next->coroutine;
		if (coroutine.done())
			destroy(*current);
		else
			coroutine.resume();
		current = nullptr;
	}
	/* Those that did not run are before those that got ready. */
	ready.take_all(now);
}

void event_loop::give_up_late() noexcept
{
	while (timer *first = deadlines.first()) {
		if (first->at > deadline::clock::now())
			break;
		deadlines.remove(*first);
		static_cast<waiter *>(first)->give_up();
	}
}

void event_loop::look_before_sleep() noexcept
{
	for (unsigned polls = 0; polls < polls_before_sleep && !unarmed.empty() && ready.empty();)
		for (list_node *at = unarmed.next, *next; at != &unarmed; at = next, ++polls) {
			next = at->next;
			static_cast<source *>(at)->look();
		}
	while (!unarmed.empty() && ready.empty()) {
		auto *one = static_cast<source *>(unarmed.next);

		one->leave_list();
		one->arm();
	}
}

void event_loop::wake_readers(int fd) noexcept
{
	list_node now;

	for (list_node *at = descriptors.next, *next; at != &descriptors; at = next) {
		next = at->next;
		if (static_cast<co::readable *>(at)->fd_ == fd)
			now.push_back(*at);
	}
	while (!now.empty())
		static_cast<waiter *>(now.next)->wake();
}

void event_loop::sleep(const deadline &until) noexcept
{
	constexpr int most = 64;
	epoll_event events[most];
	int milliseconds = 0;

	if (ready.empty()) {
		const timer *first = deadlines.first();

		milliseconds = until.milliseconds_left();
		if (first)
			milliseconds =
				std::min(milliseconds, deadline(first->at).milliseconds_left());
	}
	const int count = epoll_wait(epoll, events, most, milliseconds);
	for (int i = 0; i < count; ++i) {
		const std::uint64_t data = events[i].data.u64;

		if (data & is_descriptor) {
			unwatch(static_cast<int>(data >> tag_bits));
			wake_readers(static_cast<int>(data >> tag_bits));
		} else {
			reinterpret_cast<source *>(data & ~std::uint64_t{1})->on_readable(data & 1);
		}
	}
}

status event_loop::run(const deadline &until) noexcept
{
	if (running_here)
		return error::make(EDEADLK, "a coroutine cannot run an event loop; await what it "
					    "waits for");
	running_here = this;
	running = true;
	stopped = false;
	resume_ready();
	for (bool last = false; !roots.empty() && !stopped && !last;) {
		last = until.passed();
		look_before_sleep();
		sleep(until);
		give_up_late();
		resume_ready();
	}
	running = false;
	running_here = nullptr;
	if (!roots.empty() && !stopped)
		return error::make(ETIMEDOUT, "the coroutines have not ended in time; run the "
					      "event loop again, or destroy it");
	return {};
}

/* ---- descriptors ---- */

bool event_loop::watch(source &one, unsigned which, int fd) noexcept
{
	epoll_event event{};

	event.events = EPOLLIN;
	event.data.u64 = reinterpret_cast<std::uintptr_t>(&one) | which;
	return !epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

void event_loop::unwatch(int fd) noexcept
{
	epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr);
}

bool event_loop::watch(co::readable &one) noexcept
{
	epoll_event event{};

	event.events = EPOLLIN;
	event.data.u64 = static_cast<std::uint64_t>(one.fd_) << tag_bits | is_descriptor;
	/* Another coroutine may wait for the same descriptor. */
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, one.fd_, &event) && errno != EEXIST)
		return false;
	descriptors.push_back(one);
	return true;
}

void event_loop::forget(co::readable &one) noexcept
{
	if (one.empty())
		return;
	one.leave_list();
	for (list_node *at = descriptors.next; at != &descriptors; at = at->next)
		if (static_cast<co::readable *>(at)->fd_ == one.fd_)
			return;
	unwatch(one.fd_);
}

} // namespace detail

namespace co {

readable::readable(detail::kept<detail::event_loop> of, int fd, const deadline &until) noexcept
	: waiter(of.get()), keeps_(std::move(of)), fd_(fd), until_(until)
{
}

readable::~readable()
{
	/* One that is done is in the list of those that go on. */
	if (in && !done)
		in->forget(*this);
	leave();
}

bool readable::await_ready() noexcept
{
	pollfd one = {fd_, POLLIN, 0};

	code_ = 0;
	if (in) {
		done = false;
		coroutine = nullptr;
		if (poll(&one, 1, 0) > 0)
			done = true;
		return is_ready();
	}
	while (poll(&one, 1, until_.milliseconds_left()) <= 0)
		if (until_.passed()) {
			code_ = ETIMEDOUT;
			break;
		}
	return true;
}

void readable::await_suspend(std::coroutine_handle<> by) noexcept
{
	if (!done && !in->watch(*this)) {
		code_ = errno;
		done = true;
	}
	suspend(by, until_);
}

void readable::give_up() noexcept
{
	in->forget(*this);
	fail(ETIMEDOUT);
}

void readable::fail(int code) noexcept
{
	code_ = code;
	wake();
}

status readable::await_resume() noexcept
{
	if (code_ == ETIMEDOUT)
		return error::make(ETIMEDOUT,
				   "the descriptor was not readable in time; wait longer");
	if (code_)
		return error::make(code_,
				   "epoll cannot wait for descriptor %d: %s; see whether it is "
				   "open, and no file",
				   fd_, strerrordesc_np(code_));
	return {};
}

job::job(detail::root *of) noexcept : root_(of)
{
	root_->owner = this;
}

job::job(job &&other) noexcept : root_(std::exchange(other.root_, nullptr))
{
	if (root_)
		root_->owner = this;
}

job &job::operator=(job &&other) noexcept
{
	if (this != &other) {
		this->~job();
		new (this) job(std::move(other));
	}
	return *this;
}

job::~job()
{
	if (!root_)
		return;
	if (root_->in->current == root_)
		detail::no_value("a coroutine destroyed its own job; let it return instead");
	root_->in->destroy(*root_);
}

void loop::end() noexcept
{
	if (state_)
		state_->close();
}

result<loop> make_loop() noexcept
{
	detail::kept<detail::event_loop> made(new (std::nothrow) detail::event_loop);

	if (!made)
		return error::make(ENOMEM, "there is no memory for an event loop; close others");
	made->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (made->epoll < 0)
		return error::make(errno,
				   "the program gets no descriptor to wait with: %s; see what "
				   "ulimit -n allows",
				   strerrordesc_np(errno));
	return loop(std::move(made));
}

result<job> loop::start(task<> whole) noexcept
{
	if (!state_)
		return error::make(EBADF, "%s", detail::moved::loop);
	if (const char *why = state_->refuses())
		return error::make(EBADF, "%s", why);
	if (!whole.frame_)
		return error::make(ENOMEM, "%s", detail::no_coroutine);
	detail::root &one = whole.frame_.promise().root;

	one.in = state_.get();
	one.of = &one;
	one.among_roots.of = &one;
	one.coroutine = one.frame = std::exchange(whole.frame_, {});
	state_->roots.push_back(one.among_roots);
	state_->ready.push_back(one);
	return job(&one);
}

status loop::spawn(task<> whole) noexcept
{
	auto started = start(std::move(whole));

	if (!started)
		return started.failure();
	detail::root *detached = std::exchange(started->root_, nullptr);
	detached->owner = nullptr;
	return {};
}

status loop::run(deadline until) noexcept
{
	if (!state_)
		return error::make(EBADF, "%s", detail::moved::loop);
	return state_->run(until);
}

sleeping loop::sleep(deadline until) noexcept
{
	if (const char *why = state_ ? state_->refuses() : detail::moved::loop)
		detail::no_value(why);
	return {state_, until};
}

readable loop::wait_readable(int fd, deadline until) noexcept
{
	if (const char *why = state_ ? state_->refuses() : detail::moved::loop)
		detail::no_value(why);
	return {state_, fd, until};
}

void loop::stop() noexcept
{
	if (state_)
		state_->stopped = true;
}

} // namespace co
} // namespace peal
