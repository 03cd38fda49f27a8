// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See datagram_source.hpp. */
#include "datagram_source.hpp"

#include <cerrno>
#include <new>

#include "moved.hpp"

namespace peal {

namespace {

constexpr const char *closed = "the group or the endpoint has been closed; make another one";

} // namespace

namespace detail {

void keep(datagram_source *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(datagram_source *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

datagram_source::datagram_source(kept<datagrams> datagrams, kept<event_loop> in) noexcept
	: of(std::move(datagrams)), loop(std::move(in)),
	  returned_(new (std::nothrow) received[of->receives])
{
}

result<kept<datagram_source>> datagram_source::make(kept<datagrams> of,
						    const kept<event_loop> &loop) noexcept
{
	if (!loop)
		return error::make(EBADF, "%s", detail::moved::loop);
	if (!of)
		return error::make(EBADF, "%s", detail::moved::group_or_endpoint);
	if (const char *why = loop->refuses())
		return error::make(EBADF, "%s", why);
	kept<datagram_source> made(new (std::nothrow) datagram_source(std::move(of), loop));
	if (!made || !made->returned_)
		return error::make(ENOMEM, "there is no memory for a group or an endpoint; close "
					   "others");
	made->is_watched_ = true;
	if (!loop->watch(*made.get(), of_queues, made->of->channel->fd) ||
	    (made->of->watched >= 0 && !loop->watch(*made.get(), of_watched, made->of->watched)))
		return error::make(errno,
				   "the event loop cannot wait for datagrams: %s; see what "
				   "/proc/sys/fs/epoll/max_user_watches allows",
				   strerrordesc_np(errno));
	return made;
}

void datagram_source::leave_loop() noexcept
{
	if (!is_watched_)
		return;
	is_watched_ = false;
	leave_list();
	loop->unwatch(of->channel->fd);
	if (of->watched >= 0)
		loop->unwatch(of->watched);
}

void datagram_source::close() noexcept
{
	if (!ended_)
		ended_ = closed;
	leave_loop();
	look();
}

void datagram_source::on_readable(unsigned which) noexcept
{
	if (which == of_watched) {
		of->look();
	} else {
		of->drain_channel();
		send_armed_ = recv_armed_ = false;
	}
	look();
	/* After the end the descriptors may stay readable, although nothing more comes. */
	if (ended_)
		leave_loop();
}

bool datagram_source::take(received &to) noexcept
{
	if (returned_count_) {
		to = returned_[--returned_count_];
		return true;
	}
	return !ended_ && of->take_received(to);
}

void datagram_source::look() noexcept
{
	received came;

	if (of->is_sending && of->take_sent()) {
		to_ = {};
		if (co::sending_datagram *done = std::exchange(sender_, nullptr))
			done->wake();
	}
	while (!senders.empty() && !of->is_sending && !ended_)
		static_cast<co::sending_datagram *>(senders.next)->begin();
	while (!receivers.empty() && take(came))
		static_cast<co::receiving_datagram *>(receivers.next)->take(came);
	if (!ended_)
		ended_ = of->ended;
	if (ended_) {
		while (!receivers.empty())
			static_cast<co::receiving_datagram *>(receivers.next)->fail(ENODEV, ended_);
		while (!senders.empty())
			static_cast<co::sending_datagram *>(senders.next)->fail(ENODEV, ended_);
		if (co::sending_datagram *last = std::exchange(sender_, nullptr))
			last->fail(ENODEV, ended_);
	}
	/* It keeps its place, because the loop goes through the list. */
	if (is_watched_ && list_node::empty() &&
	    ((awaits_sent() && !send_armed_) || (!receivers.empty() && !recv_armed_)))
		loop->unarmed.push_back(*this);
}

void datagram_source::arm() noexcept
{
	if (awaits_sent() && !send_armed_) {
		ibv_req_notify_cq(of->send_cq, 0);
		send_armed_ = true;
	}
	if (!receivers.empty() && !recv_armed_) {
		ibv_req_notify_cq(of->recv_cq, 0);
		recv_armed_ = true;
	}
	/* What came before the queues were armed raises no event. */
	look();
}

void datagram_source::put_back(const received &one) noexcept
{
	returned_[returned_count_++] = one;
	look();
}

void datagram_source::post(co::sending_datagram &by) noexcept
{
	const status posted = of->post(destination_of(*of.get(), by.to_.get()), by.bytes_);

	if (!posted) {
		by.why_ = error::make(posted.code(), "%s", posted.why());
		by.wake();
		return;
	}
	sender_ = &by;
	to_ = by.to_;
}

void datagram_source::forget(const co::sending_datagram &one) noexcept
{
	if (sender_ == &one)
		sender_ = nullptr;
}

} // namespace detail

namespace co {

sending_datagram::sending_datagram(detail::kept<detail::datagram_source> by,
				   detail::kept<detail::reachable> to, const error *refused,
				   std::span<const std::byte> bytes, const deadline &until) noexcept
	: waiter(by ? by->loop.get() : nullptr), by_(std::move(by)), to_(std::move(to)),
	  bytes_(bytes), until_(until)
{
	if (refused) {
		why_ = *refused;
		done = true;
	} else if (!by_) {
		fail(EBADF, detail::moved::group_or_endpoint);
	} else if (const char *problem = in->refuses()) {
		fail(EBADF, problem);
	} else {
		by_->senders.push_back(*this);
		by_->look();
	}
}

sending_datagram::~sending_datagram()
{
	leave();
	if (by_)
		by_->forget(*this);
}

void sending_datagram::begin() noexcept
{
	leave_list();
	by_->post(*this);
}

bool sending_datagram::await_ready() noexcept
{
	if (!done)
		by_->look();
	return is_ready();
}

status sending_datagram::await_resume() const noexcept
{
	return why_ ? status(*why_) : status();
}

void sending_datagram::give_up() noexcept
{
	by_->look();
	if (done)
		return;
	by_->forget(*this);
	fail(ETIMEDOUT, "the device has not sent it in time; wait longer");
}

void sending_datagram::fail(int code, const char *why) noexcept
{
	why_ = error::make(code, "%s", why);
	if (in)
		wake();
	else
		done = true;
}

receiving_datagram::receiving_datagram(detail::kept<detail::datagram_source> from,
				       const deadline &until) noexcept
	: waiter(from ? from->loop.get() : nullptr), from_(std::move(from)), until_(until)
{
}

receiving_datagram::~receiving_datagram()
{
	leave();
	if (came_)
		from_->put_back(*came_);
}

bool receiving_datagram::await_ready() noexcept
{
	/* It may be awaited again, for the datagram after the last one. */
	done = false;
	coroutine = nullptr;
	if (!from_) {
		fail(EBADF, detail::moved::group_or_endpoint);
	} else if (const char *problem = in->refuses()) {
		fail(EBADF, problem);
	} else {
		from_->receivers.push_back(*this);
		from_->look();
	}
	return is_ready();
}

result<datagram> receiving_datagram::await_resume() noexcept
{
	if (!came_)
		return error::make(code_, "%s", why_);
	const detail::received one = *came_;
	came_.reset();
	return from_->of->made_datagram(one);
}

void receiving_datagram::take(const detail::received &one) noexcept
{
	came_ = one;
	wake();
}

void receiving_datagram::give_up() noexcept
{
	from_->look();
	if (!done)
		fail(ETIMEDOUT, "no datagram has come in time; wait longer, or see whether a peer "
				"sends");
}

void receiving_datagram::fail(int code, const char *why) noexcept
{
	code_ = code;
	why_ = why;
	if (in)
		wake();
	else
		done = true;
}

} // namespace co
} // namespace peal
