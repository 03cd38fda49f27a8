// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connections in an event loop: who waits for which completion and message. Building and posting
 * requests is in connection.cpp. Nothing here allocates but make_slots().
 */
#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>

#include "link.hpp"
#include "moved.hpp"

namespace peal {

namespace {

constexpr const char *late =
	"the request has not completed in time, and may still be done; close the connection before "
	"its bytes are used for something else";
constexpr const char *no_room =
	"the request was not posted in time, because the queue was full or had a batch without a "
	"commit; raise options.sends, or wait longer";
constexpr const char *not_taken =
	"the device has not taken the request; close other connections, and connect again";

} // namespace

namespace detail {

/* ---- the connection and its loop ---- */

status link::make_slots() noexcept
{
	held.reset(new (std::nothrow) kept<block>[limits.sends]);
	slots.reset(new (std::nothrow) slot[limits.sends]);
	if (!held || !slots)
		return error::make(ENOMEM, "there is no memory for the queues of a connection; "
					   "lower options.sends");
	choose_way();
	return {};
}

status link::join(const kept<event_loop> &to) noexcept
{
	loop = to;
	is_watched = true;
	if (!loop->watch(*this, of_queues, channel->fd) ||
	    (peer_fd() >= 0 && !loop->watch(*this, of_peer, peer_fd())))
		return error::make(errno,
				   "the event loop cannot wait for a connection: %s; see what "
				   "/proc/sys/fs/epoll/max_user_watches allows",
				   strerrordesc_np(errno));
	return {};
}

void link::leave_loop() noexcept
{
	if (!is_watched)
		return;
	is_watched = false;
	leave_list();
	loop->unwatch(channel->fd);
	if (peer_fd() >= 0)
		loop->unwatch(peer_fd());
}

void link::on_readable(unsigned which) noexcept
{
	if (which == of_peer)
		look_at_peer();
	else
		drain_channel();
	look();
}

void link::look() noexcept
{
	const char *was_ended;

	/* Once more after the end, because something may have come before it. */
	do {
		was_ended = ended;
		if (qp)
			poll_queues();
	} while (ended != was_ended);
	deliver();
	/* It keeps its place, because the loop goes through the list. */
	if (is_watched && list_node::empty() &&
	    ((outstanding() && !send_armed) || (!receivers.empty() && !recv_armed)))
		loop->unarmed.push_back(*this);
}

void link::arm() noexcept
{
	if (outstanding() && !send_armed) {
		ibv_req_notify_cq(send_cq, 0);
		send_armed = true;
	}
	if (!receivers.empty() && !recv_armed) {
		ibv_req_notify_cq(recv_cq, 0);
		recv_armed = true;
	}
	/* What came before the queues were armed raises no event. */
	look();
}

void link::deliver() noexcept
{
	while (!senders.empty() && !ended && has_room()) {
		auto *oldest = static_cast<co::sending *>(senders.next);

		oldest->leave_list();
		oldest->post();
	}
	while (!receivers.empty() && count) {
		auto *oldest = static_cast<receiver *>(receivers.next);

		if (oldest->wants_imm && !arrived[first].has_imm) {
			oldest->fail(EPROTO,
				     "the message has no immediate value; take it with recv()");
		} else {
			oldest->came = pop();
			oldest->has_arrived = true;
			oldest->wake();
		}
	}
	while (ended && !senders.empty())
		static_cast<co::sending *>(senders.next)->fail(ended);
	while (ended && !receivers.empty())
		static_cast<receiver *>(receivers.next)->fail(ENOTCONN, ended);
}

/* ---- requests ---- */

bool link::has_room() const noexcept
{
	return !batch_open && has_place();
}

void link::keep_local(const slice *local, kept<block> &to) const noexcept
{
	to = {};
	if (!local || !local->block_)
		return;
	keep(local->block_);
	to = kept<block>(local->block_);
}

completion link::failure(const char *why) noexcept
{
	completion made;

	made.status_ = -1;
	made.why_ = why;
	return made;
}

void link::commit_for(co::sending &by) noexcept
{
	const std::uint32_t size = batch_size();
	const char *why = ended ? ended : refused;
	int failed = 0;

	if (!why)
		by.left_ = post(failed, &by);
	if (failed)
		why = not_taken;
	abort();
	if (why) {
		forget(by);
		by.fail(why);
	} else if (!size) {
		by.wake();
	}
}

/* The completions of a connection come in the order of its requests. */
void link::complete(const completion &one) noexcept
{
	if (!outstanding())
		return;
	/* Its memory may go now. */
	const slot done = std::exchange(slots[first_slot], {});

	first_slot = (first_slot + 1) % limits.sends;
	take_off(1);
	if (!done.by)
		return;
	if (done.by->ended_)
		done.by->ended_ = one;
	if (!--done.by->left_)
		done.by->wake();
}

void link::forget(const co::sending &one) noexcept
{
	for (std::uint32_t i = 0; i < outstanding(); ++i) {
		slot &at = slots[(first_slot + i) % limits.sends];

		if (at.by == &one)
			at.by = nullptr;
	}
}

/* The device may still have their memory, unless the queue pair has gone. */
void link::fail_slots() noexcept
{
	for (std::uint32_t i = 0; i < outstanding(); ++i) {
		slot &at = slots[(first_slot + i) % limits.sends];

		if (co::sending *by = std::exchange(at.by, nullptr)) {
			forget(*by);
			by->fail(ended);
		}
		if (!qp)
			at.local = {};
	}
	if (!qp)
		take_off(outstanding());
}

/* ---- messages ---- */

void link::put_back(const arrival &oldest) noexcept
{
	first = (first + limits.receives - 1) % limits.receives;
	++count;
	arrived[first] = oldest;
	/* Older ones may have been put back before. */
	for (std::uint32_t i = 0; i + 1 < count; ++i) {
		arrival &a = arrived[(first + i) % limits.receives];
		arrival &b = arrived[(first + i + 1) % limits.receives];

		if (a.number < b.number)
			break;
		std::swap(a, b);
	}
	look();
}

receiver::receiver(kept<link> of, const deadline &until, bool wants_imm) noexcept
	: waiter(of ? of->loop.get() : nullptr), from(std::move(of)), until(until),
	  wants_imm(wants_imm)
{
}

receiver::~receiver()
{
	leave();
	if (has_arrived)
		from->put_back(came);
}

bool receiver::await_ready() noexcept
{
	/* It may be awaited again, for the message after the last one. */
	done = false;
	coroutine = nullptr;
	if (!from) {
		fail(EBADF, detail::moved::connection);
	} else if (const char *problem = in->refuses()) {
		fail(EBADF, problem);
	} else if (from->limits.transport == transport::xrc) {
		fail(ENOTSUP, only_sends);
	} else {
		from->receivers.push_back(*this);
		from->look();
	}
	return is_ready();
}

void receiver::give_up() noexcept
{
	from->look();
	if (!done)
		fail(ETIMEDOUT, "no message has come in time; wait longer, or see whether the peer "
				"sends");
}

void receiver::fail(int failed, const char *sentence) noexcept
{
	code = failed;
	why = sentence;
	if (in)
		wake();
	else
		done = true;
}

} // namespace detail

namespace co {

/* ---- what coroutines wait for ---- */

sending::sending(detail::kept<detail::link> to, const detail::posting &what,
		 const deadline &until) noexcept
	: waiter(to ? to->loop.get() : nullptr), to_(std::move(to)), what_(what), until_(until)
{
	if (const char *why = to_ ? in->refuses() : detail::moved::connection) {
		fail(why);
		return;
	}
	if (!to_->senders.empty() || !to_->has_room())
		to_->look();
	if (to_->ended) {
		fail(to_->ended);
	} else if (to_->senders.empty() && to_->has_room()) {
		post();
	} else {
		to_->keep_local(what_.local ? &*what_.local : nullptr, local_);
		to_->senders.push_back(*this);
	}
}

sending::sending(detail::kept<detail::link> to, const char *why, const deadline &until) noexcept
	: waiter(to ? to->loop.get() : nullptr), to_(std::move(to)), until_(until)
{
	if (!to_) {
		fail(why);
		return;
	}
	if (const char *problem = in->refuses()) {
		to_->abort();
		fail(problem);
	} else {
		to_->commit_for(*this);
	}
	to_->end_batch();
}

sending::~sending()
{
	leave();
	if (left_)
		to_->forget(*this);
}

void sending::post() noexcept
{
	detail::operation what = what_.what;

	what.local = what_.local ? &*what_.local : nullptr;
	what.part = what_.part ? &*what_.part : nullptr;
	to_->add(what);
	to_->commit_for(*this);
	local_ = {};
}

bool sending::await_ready() noexcept
{
	if (!done)
		to_->look();
	return is_ready();
}

void sending::give_up() noexcept
{
	to_->look();
	if (done)
		return;
	to_->forget(*this);
	fail(left_ ? late : no_room);
}

void sending::fail(const char *why) noexcept
{
	left_ = 0;
	ended_ = detail::link::failure(why);
	if (in)
		wake();
	else
		done = true;
}

result<message> receiving::await_resume() noexcept
{
	if (!has_arrived)
		return error::make(code, "%s", why);
	has_arrived = false;
	return from->made_message(came);
}

result<std::uint32_t> receiving_imm::await_resume() noexcept
{
	if (!has_arrived)
		return error::make(code, "%s", why);
	has_arrived = false;
	from->post_receive(came.buffer);
	return came.imm;
}

/* ---- the public objects ---- */

sending batch::commit(deadline until) noexcept
{
	const char *why = std::exchange(why_, "the batch was committed; make another one");
	detail::link *of = path_ ? &detail::link_of(std::exchange(path_, nullptr)) : nullptr;

	if (of)
		keep(of);
	return sending(detail::kept<detail::link>(of), why, until);
}

const region &connection::peer() const noexcept
{
	static const region nothing;

	return link_ ? link_->peer : nothing;
}

unsigned connection::mtu() const noexcept
{
	return link_ ? link_->mtu : 0;
}

class batch connection::batch() &noexcept
{
	return co::batch(link_.get());
}

sending connection::write(const slice &from, const remote &to, deadline until) noexcept
{
	return sending(link_, {{.opcode = PEAL_OP_WRITE, .needed = rights::write}, from, to},
		       until);
}

sending connection::write_imm(const slice &from, const remote &to, std::uint32_t imm,
			      deadline until) noexcept
{
	return sending(
		link_,
		{{.opcode = PEAL_OP_WRITE_IMM, .needed = rights::write, .imm = imm}, from, to},
		until);
}

sending connection::read(const slice &into, const remote &from, deadline until) noexcept
{
	return sending(link_, {{.opcode = PEAL_OP_READ, .needed = rights::read}, into, from},
		       until);
}

sending connection::send(const slice &from, deadline until) noexcept
{
	return sending(link_, {{.opcode = PEAL_OP_SEND}, from}, until);
}

sending connection::send_imm(const slice &from, std::uint32_t imm, deadline until) noexcept
{
	return sending(link_, {{.opcode = PEAL_OP_SEND_IMM, .imm = imm}, from}, until);
}

sending connection::send_imm(std::uint32_t imm, deadline until) noexcept
{
	return sending(link_, {{.opcode = PEAL_OP_SEND_IMM, .imm = imm}}, until);
}

sending connection::write_inline(std::span<const std::byte> from, const remote &to,
				 deadline until) noexcept
{
	return sending(link_,
		       {{.opcode = PEAL_OP_WRITE, .needed = rights::write, .bytes = from}, {}, to},
		       until);
}

sending connection::send_inline(std::span<const std::byte> from, deadline until) noexcept
{
	return sending(link_, {{.opcode = PEAL_OP_SEND, .bytes = from}}, until);
}

sending connection::fetch_add(const slice &old, const remote &at, std::uint64_t add,
			      deadline until) noexcept
{
	return sending(link_,
		       {{.opcode = PEAL_OP_FETCH_ADD, .needed = rights::atomic, .compare_add = add},
			old,
			at},
		       until);
}

sending connection::compare_swap(const slice &old, const remote &at, std::uint64_t expected,
				 std::uint64_t desired, deadline until) noexcept
{
	return sending(link_,
		       {{.opcode = PEAL_OP_CMP_SWAP,
			 .needed = rights::atomic,
			 .compare_add = expected,
			 .swap = desired},
			old,
			at},
		       until);
}

receiving connection::recv(deadline until) noexcept
{
	return receiving(link_, until);
}

receiving_imm connection::recv_imm(deadline until) noexcept
{
	return receiving_imm(link_, until);
}

void connection::close() noexcept
{
	if (link_)
		link_->close();
}

result<connection> loop::adopt(peal::connection &&other) noexcept
{
	if (!state_)
		return error::make(EBADF, "%s", detail::moved::loop);
	if (!other.path_)
		return error::make(EBADF, "%s", detail::moved::connection);
	detail::link &of = detail::link_of(other.path_.get());

	if (const char *why = state_->refuses())
		return error::make(EBADF, "%s", why);
	if (of.outstanding() || of.batch_open)
		return error::make(EBUSY, "the connection has requests on their way or a batch; "
					  "wait for them first");
	if (of.ended)
		return error::make(ENOTCONN, "%s", of.ended);
	if (status done = of.make_slots(); !done)
		return error::make(done.code(), "%s", done.why());
	if (status done = of.join(state_); !done) {
		other.close();
		return error::make(done.code(), "%s", done.why());
	}
	return connection(detail::kept<detail::link>(&detail::link_of(other.path_.give())));
}

} // namespace co
} // namespace peal
