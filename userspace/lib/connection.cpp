// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The data path of a connection: building and posting batches, waiting, receiving. Nothing here
 * allocates.
 */
#include <endian.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "link.hpp"

namespace peal {

namespace {

constexpr const char *moved = "the connection was moved from; use the object that it was moved to";
constexpr const char *second_batch =
	"another batch of the connection exists; commit it and let it go first";
constexpr const char *late = "the requests have not completed in time; wait again, or close";
constexpr const char *too_many = "the program waits for more completions than it has requests on "
				 "their way; wait for as many as were committed";

/* How often a wait polls before it sleeps. A sleep costs system calls and a wake-up. */
constexpr unsigned polls_before_sleep = 64;

} // namespace

namespace detail {

/* ---- building a batch ---- */

ibv_send_wr *link::refuse(const char *why) noexcept
{
	if (!refused)
		refused = why;
	return nullptr;
}

ibv_send_wr *link::next(ibv_wr_opcode opcode, const slice *local) noexcept
{
	if (local && !*local)
		return refuse(local->why());
	if (local && local->size() > longest)
		return refuse("the slice is longer than a message may be; send it in parts");
	if (outstanding + batch_size >= limits.sends)
		return refuse("the queue is full; wait for completions, or raise options.sends");
	ibv_send_wr *to = &wr[batch_size];
	ibv_sge *entry = &sge[batch_size];

	to->opcode = opcode;
	to->send_flags = IBV_SEND_SIGNALED;
	to->sg_list = entry;
	to->num_sge = 0;
	to->imm_data = 0;
	/* For some devices an entry of length 0 means 2 GiB. */
	if (local && local->size()) {
		entry->addr = reinterpret_cast<std::uintptr_t>(local->data());
		entry->length = local->size();
		entry->lkey = static_cast<std::uint32_t>(local->key());
		to->num_sge = 1;
	}
	if (held)
		keep_local(local, held[batch_size]);
	return to;
}

request link::finish() noexcept
{
	const std::uint64_t name = next_request + batch_size;

	wr[batch_size].wr_id = name;
	if (direct)
		direct->build(batch_size, wr[batch_size]);
	++batch_size;
	return request(name);
}

bool link::fits(const remote &part, std::uint64_t bytes, rights needed) noexcept
{
	const char *why = nullptr;

	if (!part)
		why = part.why();
	else if (!includes(part.rights(), needed))
		why = "the peer's region does not give this right; let the peer alloc() it with "
		      "remote_write, remote_read or remote_atomic";
	else if (bytes > part.size())
		why = "the remote part is shorter than the slice; choose a shorter slice, or let "
		      "the "
		      "peer share more";
	if (why)
		refuse(why);
	return !why;
}

request link::add_remote(ibv_wr_opcode opcode, const slice &local, const remote &part,
			 rights needed, std::uint32_t imm) noexcept
{
	ibv_send_wr *to = next(opcode, &local);

	if (!to || !fits(part, local.size(), needed))
		return request::none;
	to->imm_data = htobe32(imm);
	to->wr.rdma.remote_addr = static_cast<std::uint64_t>(part.address());
	to->wr.rdma.rkey = static_cast<std::uint32_t>(part.key());
	return finish();
}

request link::add_send(ibv_wr_opcode opcode, const slice *local, std::uint32_t imm) noexcept
{
	ibv_send_wr *to = next(opcode, local);

	if (to && local && local->size() > peer_receive_bytes)
		to = refuse("the message is longer than the peer's receive buffers; let the peer "
			    "raise options.receive_bytes, or write to its region");
	if (!to)
		return request::none;
	to->imm_data = htobe32(imm);
	return finish();
}

request link::add_inline(ibv_wr_opcode opcode, std::span<const std::byte> from,
			 const remote *part) noexcept
{
	if (from.size() > limits.inline_bytes) {
		refuse("the data are longer than options.inline_bytes; raise it, or use a slice");
		return request::none;
	}
	ibv_send_wr *to = next(opcode, nullptr);

	if (to && !part && from.size() > peer_receive_bytes)
		to = refuse("the message is longer than the peer's receive buffers; let the peer "
			    "raise options.receive_bytes");
	if (!to || (part && !fits(*part, from.size(), rights::write)))
		return request::none;
	std::byte *copy = &inline_area[std::size_t{batch_size} * limits.inline_bytes];

	if (!from.empty()) {
		std::memcpy(copy, from.data(), from.size());
		sge[batch_size].addr = reinterpret_cast<std::uintptr_t>(copy);
		sge[batch_size].length = from.size();
		to->num_sge = 1;
		to->send_flags |= IBV_SEND_INLINE;
	}
	if (part) {
		to->wr.rdma.remote_addr = static_cast<std::uint64_t>(part->address());
		to->wr.rdma.rkey = static_cast<std::uint32_t>(part->key());
	}
	return finish();
}

request link::add_atomic(ibv_wr_opcode opcode, const slice &old, const remote &at,
			 std::uint64_t compare_add, std::uint64_t swap) noexcept
{
	constexpr std::uint64_t bytes = 8;
	ibv_send_wr *to = next(opcode, &old);

	if (to && old.size() != bytes)
		to = refuse("an atomic returns 8 bytes; give it a slice of 8 bytes");
	if (to && static_cast<std::uint64_t>(at.address()) % bytes)
		to = refuse(
			"the remote address of an atomic is not a multiple of 8; choose another "
			"offset");
	if (!to || !fits(at, bytes, rights::atomic))
		return request::none;
	to->wr.atomic.remote_addr = static_cast<std::uint64_t>(at.address());
	to->wr.atomic.rkey = static_cast<std::uint32_t>(at.key());
	to->wr.atomic.compare_add = compare_add;
	to->wr.atomic.swap = swap;
	return finish();
}

void link::abort() noexcept
{
	/* The last one may have been refused after it was held. */
	for (std::uint32_t i = 0; held && i <= batch_size && i < limits.sends; ++i)
		held[i] = {};
	batch_size = 0;
	refused = nullptr;
}

void link::close_batch() noexcept
{
	batch_open = false;
	/* Requests that waited for it are posted now. */
	if (loop)
		look();
}

std::uint32_t link::post(int &failed, co::sending *by) noexcept
{
	ibv_send_wr *bad = nullptr;
	std::uint32_t posted = batch_size;

	if (!batch_size)
		return 0;
	if (direct) {
		failed = direct->post(batch_size);
	} else {
		for (std::uint32_t i = 0; i < batch_size; ++i)
			wr[i].next = i + 1 < batch_size ? &wr[i + 1] : nullptr;
		failed = ibv_post_send(qp, wr.get(), &bad);
	}
	/* What came before the bad request is on its way, and will have completions. */
	if (failed)
		posted = bad ? static_cast<std::uint32_t>(bad - wr.get()) : 0;
	for (std::uint32_t i = 0; slots && i < posted; ++i)
		slots[(first_slot + outstanding + i) % limits.sends] = {by, std::move(held[i])};
	next_request += batch_size;
	outstanding += posted;
	return posted;
}

status link::commit() noexcept
{
	const std::uint32_t size = batch_size;
	int failed = 0;

	if (const char *why = ended ? ended : refused) {
		abort();
		return error::make(ended ? ENOTCONN : EINVAL, "%s", why);
	}
	const std::uint32_t posted = post(failed, nullptr);
	abort();
	if (failed)
		return error::make(failed,
				   "%s took %u of %u requests: %s; wait() for those, and "
				   "connect again",
				   device->name(), posted, size, strerrordesc_np(failed));
	return {};
}

status link::commit(const deadline &until) noexcept
{
	if (status posted = commit(); !posted)
		return posted;
	for (const completion &one : wait(outstanding, until))
		if (!one)
			return error::make(one.why_ == late ? ETIMEDOUT
					   : one.why_	    ? ENOTCONN
							    : EIO,
					   "%s", one.why());
	return {};
}

/* ---- what comes ---- */

void link::post_receive(std::uint32_t buffer) noexcept
{
	ibv_sge entry{};
	ibv_recv_wr receive{}, *bad;

	if (!qp || ended)
		return;
	entry.addr = reinterpret_cast<std::uintptr_t>(buffers->data) +
		     std::size_t{buffer} * limits.receive_bytes;
	entry.length = limits.receive_bytes;
	entry.lkey = static_cast<std::uint32_t>(buffers->local);
	receive.wr_id = buffer;
	receive.sg_list = &entry;
	receive.num_sge = 1;
	if (direct ? direct->post_receive(buffer, entry) : ibv_post_recv(qp, &receive, &bad))
		end("the device takes no receive; see whether it still exists, and connect again");
}

void link::note_sent(std::uint64_t name, int wc_status, std::uint32_t vendor_error) noexcept
{
	completion to;

	to.request_ = request(name);
	to.status_ = wc_status;
	to.vendor_error_ = wc_status ? vendor_error : 0;
	to.peal_ = device->is_peal();
	if (!to)
		end("an earlier request has failed; see its completion, and connect again");
	if (loop)
		complete(to);
	else
		sent[stored++] = to;
}

void link::poll_sends() noexcept
{
	constexpr int most = 16;
	ibv_wc came[most];
	int count;

	if (direct) {
		direct->for_each_sent([&](std::uint64_t name, const peal_cqe &cqe) {
			note_sent(name, cqe.status, cqe.vendor_err);
		});
		return;
	}
	do {
		count = ibv_poll_cq(send_cq, most, came);
		for (int i = 0; i < count; ++i)
			note_sent(came[i].wr_id, came[i].status, came[i].vendor_err);
	} while (count == most);
	if (count < 0)
		end("the device gives no completions; see whether it still exists, and connect "
		    "again");
}

void link::note_received(int wc_status, const arrival &one) noexcept
{
	if (wc_status == IBV_WC_LOC_LEN_ERR)
		end("the peer has sent a message longer than options.receive_bytes; raise it, and "
		    "connect again");
	else if (wc_status)
		end("the connection has broken; see the completions of the requests, and connect "
		    "again");
	if (wc_status)
		return;
	arrival &to = arrived[(first + count++) % limits.receives];
	to = one;
	to.number = arrivals++;
}

void link::poll_receives() noexcept
{
	constexpr int most = 16;
	ibv_wc came[most];
	int got;

	if (direct) {
		direct->for_each_received([&](std::uint64_t buffer, const peal_cqe &cqe) {
			const bool is_write = cqe.opcode == PEAL_OP_WRITE_IMM;

			note_received(cqe.status,
				      {.number = 0,
				       .buffer = static_cast<std::uint32_t>(buffer),
				       .bytes = cqe.byte_len,
				       .imm = be32toh(cqe.imm_or_rkey),
				       .has_imm = is_write || cqe.opcode == PEAL_OP_SEND_IMM,
				       .in_buffer = !is_write});
		});
		return;
	}
	do {
		got = ibv_poll_cq(recv_cq, most, came);
		for (int i = 0; i < got; ++i) {
			const ibv_wc &one = came[i];

			note_received(one.status,
				      {.number = 0,
				       .buffer = static_cast<std::uint32_t>(one.wr_id),
				       .bytes = one.byte_len,
				       .imm = be32toh(one.imm_data),
				       .has_imm = (one.wc_flags & IBV_WC_WITH_IMM) != 0,
				       .in_buffer = one.opcode != IBV_WC_RECV_RDMA_WITH_IMM});
		}
	} while (got == most);
	if (got < 0)
		end("the device gives no completions; see whether it still exists, and connect "
		    "again");
}

void link::poll_queues() noexcept
{
	/* The reason why receives fail is that the peer has gone, or that a request has failed. */
	poll_sends();
	poll_receives();
}

void link::drain_channel() noexcept
{
	ibv_cq *from;
	void *unused;

	while (!ibv_get_cq_event(channel, &from, &unused)) {
		ibv_ack_cq_events(from, 1);
		(from == send_cq ? send_armed : recv_armed) = false;
	}
	if (errno == EAGAIN || errno == EINTR)
		return;
	end("the device was removed; open another one");
	/* The descriptor stays readable, and tells nothing more. */
	if (loop) {
		poll_queues();
		fail_slots();
		loop->unwatch(channel->fd);
	}
}

void link::sleep(const deadline &until) noexcept
{
	const std::uint32_t had = stored + count;
	pollfd ready[2] = {{channel->fd, POLLIN, 0}, {events->fd, POLLIN, 0}};

	drain_channel();
	ibv_req_notify_cq(send_cq, 0);
	ibv_req_notify_cq(recv_cq, 0);
	/* What came before the queues were armed raises no event. */
	poll_queues();
	if (stored + count != had)
		return;
	/* After its end no event of the peer comes, but requests may still complete. */
	if (poll(ready, 2, until.milliseconds_left()) > 0 && ready[1].revents)
		look_at_peer();
}

/* ---- waiting ---- */

completions link::after_move() noexcept
{
	static const completion gone = [] {
		completion made;

		made.status_ = -1;
		made.why_ = moved;
		return made;
	}();

	return completions({&gone, 1});
}

void link::forget_handed() noexcept
{
	if (handed != stored)
		std::move(&sent[handed], &sent[stored], &sent[0]);
	stored -= handed;
	handed = 0;
}

completions link::hand_over(std::uint32_t number, const char *why) noexcept
{
	handed = number;
	outstanding -= number;
	if (why) {
		/* Behind the last that came. */
		sent[handed] = completion();
		sent[handed].status_ = -1;
		sent[handed].why_ = why;
		stored = ++handed;
	}
	return completions({&sent[0], handed});
}

/* In a slot of its own, because completions that came stay where they are. */
completions link::only(const char *why) noexcept
{
	completion &slot = sent[2 * std::size_t{limits.sends} + 1];

	slot = completion();
	slot.status_ = -1;
	slot.why_ = why;
	return completions({&slot, 1});
}

completions link::wait(std::size_t number, const deadline &until) noexcept
{
	forget_handed();
	if (number > outstanding)
		return only(too_many);
	for (unsigned polls = 0;; ++polls) {
		if (qp)
			poll_sends();
		if (stored >= number)
			return hand_over(number, nullptr);
		if (!qp)
			return hand_over(stored, ended);
		if (until.passed())
			return hand_over(stored, late);
		if (polls >= polls_before_sleep)
			sleep(until);
	}
}

completions link::take() noexcept
{
	forget_handed();
	if (qp)
		poll_sends();
	return hand_over(stored, nullptr);
}

status link::wait_arrival(const deadline &until) noexcept
{
	for (unsigned polls = 0;; ++polls) {
		const char *was_ended = ended;

		if (qp)
			poll_queues();
		if (count)
			return {};
		/* It was polled once more since the end. */
		if (was_ended)
			return error::make(ENOTCONN, "%s", was_ended);
		if (until.passed()) {
			look_at_peer();
			if (ended)
				continue;
			return error::make(ETIMEDOUT,
					   "no message has come in time; wait longer, or see "
					   "whether the peer sends");
		}
		if (polls >= polls_before_sleep)
			sleep(until);
	}
}

arrival link::pop() noexcept
{
	const arrival oldest = arrived[first];

	first = (first + 1) % limits.receives;
	--count;
	return oldest;
}

result<message> link::recv(const deadline &until) noexcept
{
	if (status came = wait_arrival(until); !came)
		return error::make(came.code(), "%s", came.why());
	return made_message(pop());
}

message link::made_message(const arrival &oldest) noexcept
{
	keep(this);
	message made{kept<link>(this)};

	made.buffer_ = oldest.buffer;
	made.imm_ = oldest.imm;
	made.has_imm_ = oldest.has_imm;
	if (oldest.in_buffer)
		made.bytes_ = {buffers->data + std::size_t{oldest.buffer} * limits.receive_bytes,
			       oldest.bytes};
	else
		made.written_ = oldest.bytes;
	return made;
}

result<std::uint32_t> link::recv_imm(const deadline &until) noexcept
{
	if (status came = wait_arrival(until); !came)
		return error::make(came.code(), "%s", came.why());
	if (!arrived[first].has_imm)
		return error::make(EPROTO,
				   "the message has no immediate value; take it with recv()");
	const arrival oldest = pop();

	post_receive(oldest.buffer);
	return oldest.imm;
}

next_step link::arm_for_program() noexcept
{
	if (qp) {
		drain_channel();
		ibv_req_notify_cq(send_cq, 0);
		ibv_req_notify_cq(recv_cq, 0);
		look_at_peer();
		poll_queues();
	}
	if (stored > handed || count)
		return next_step::take;
	return ended ? next_step::close : next_step::sleep;
}

} // namespace detail

/* ---- the public objects ---- */

message &message::operator=(message &&other) noexcept
{
	if (this != &other) {
		this->~message();
		new (this) message(std::move(other));
	}
	return *this;
}

message::~message()
{
	if (link_)
		link_->post_receive(buffer_);
}

batch::batch(detail::kept<detail::link> link) noexcept
{
	if (!link)
		return;
	if (link->batch_open) {
		why_ = second_batch;
		return;
	}
	link->batch_open = true;
	link_ = std::move(link);
}

batch::~batch()
{
	abort();
	if (link_)
		link_->close_batch();
}

request batch::write(const slice &from, const remote &to) noexcept
{
	return link_ ? link_->add_remote(IBV_WR_RDMA_WRITE, from, to, rights::write)
		     : request::none;
}

request batch::write_imm(const slice &from, const remote &to, std::uint32_t imm) noexcept
{
	return link_ ? link_->add_remote(IBV_WR_RDMA_WRITE_WITH_IMM, from, to, rights::write, imm)
		     : request::none;
}

request batch::read(const slice &into, const remote &from) noexcept
{
	return link_ ? link_->add_remote(IBV_WR_RDMA_READ, into, from, rights::read)
		     : request::none;
}

request batch::send(const slice &from) noexcept
{
	return link_ ? link_->add_send(IBV_WR_SEND, &from) : request::none;
}

request batch::send_imm(const slice &from, std::uint32_t imm) noexcept
{
	return link_ ? link_->add_send(IBV_WR_SEND_WITH_IMM, &from, imm) : request::none;
}

request batch::send_imm(std::uint32_t imm) noexcept
{
	return link_ ? link_->add_send(IBV_WR_SEND_WITH_IMM, nullptr, imm) : request::none;
}

request batch::write_inline(std::span<const std::byte> from, const remote &to) noexcept
{
	return link_ ? link_->add_inline(IBV_WR_RDMA_WRITE, from, &to) : request::none;
}

request batch::send_inline(std::span<const std::byte> from) noexcept
{
	return link_ ? link_->add_inline(IBV_WR_SEND, from, nullptr) : request::none;
}

request batch::fetch_add(const slice &old, const remote &at, std::uint64_t add) noexcept
{
	return link_ ? link_->add_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, old, at, add, 0)
		     : request::none;
}

request batch::compare_swap(const slice &old, const remote &at, std::uint64_t expected,
			    std::uint64_t desired) noexcept
{
	return link_ ? link_->add_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, old, at, expected, desired)
		     : request::none;
}

status batch::commit() noexcept
{
	if (!link_)
		return error::make(EBUSY, "%s", why_);
	return link_->commit();
}

status batch::commit(deadline until) noexcept
{
	if (!link_)
		return error::make(EBUSY, "%s", why_);
	return link_->commit(until);
}

void batch::abort() noexcept
{
	if (link_)
		link_->abort();
}

std::size_t batch::size() const noexcept
{
	return link_ ? link_->batch_size : 0;
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

const gid &connection::local_gid() const noexcept
{
	static const gid none{};

	return link_ ? link_->local_gid : none;
}

const gid &connection::peer_gid() const noexcept
{
	static const gid none{};

	return link_ ? link_->peer_gid : none;
}

std::uint32_t connection::qp_number() const noexcept
{
	return link_ ? link_->qp_number : 0;
}

class batch connection::batch() &noexcept
{
	return peal::batch(link_);
}

completions connection::wait(std::size_t count, deadline until) &noexcept
{
	return link_ ? link_->wait(count, until) : detail::link::after_move();
}

completions connection::take() &noexcept
{
	return link_ ? link_->take() : detail::link::after_move();
}

result<message> connection::recv(deadline until) noexcept
{
	if (!link_)
		return error::make(EBADF, "%s", moved);
	return link_->recv(until);
}

result<std::uint32_t> connection::recv_imm(deadline until) noexcept
{
	if (!link_)
		return error::make(EBADF, "%s", moved);
	return link_->recv_imm(until);
}

int connection::fd() const noexcept
{
	return link_ ? link_->epoll : -1;
}

next_step connection::arm() noexcept
{
	return link_ ? link_->arm_for_program() : next_step::close;
}

void connection::close() noexcept
{
	if (link_)
		link_->close();
}

} // namespace peal
