// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The data path of a connection: building and posting batches, waiting, receiving. Nothing here
 * allocates.
 */
#include <endian.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "link.hpp"
#include "moved.hpp"

namespace peal {

namespace {

constexpr const char *incomplete = "the requests have not completed in time; wait again, or close";
constexpr const char *too_many = "the program waits for more completions than it has requests on "
				 "their way; wait for as many as were committed";

/* By enum peal_opcode, for the requests that a connection makes. */
constexpr auto verbs_opcodes = [] {
	std::array<ibv_wr_opcode, PEAL_OP_COUNT> made{};

	made[PEAL_OP_WRITE] = IBV_WR_RDMA_WRITE;
	made[PEAL_OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM;
	made[PEAL_OP_SEND] = IBV_WR_SEND;
	made[PEAL_OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM;
	made[PEAL_OP_READ] = IBV_WR_RDMA_READ;
	made[PEAL_OP_CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP;
	made[PEAL_OP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD;
	made[PEAL_OP_BIND_MW] = IBV_WR_BIND_MW;
	made[PEAL_OP_LOCAL_INV] = IBV_WR_LOCAL_INV;
	made[PEAL_OP_SEND_INV] = IBV_WR_SEND_WITH_INV;
	return made;
}();

/*
 * How often a wait polls before it reads the clock and sleeps. A sleep costs system calls and a
 * wake-up, and on some machines the clock is a system call, too.
 */
constexpr unsigned polls_before_sleep = 64;

} // namespace

namespace detail {

/* ---- building a batch ---- */

void link::refuse(const char *why) noexcept
{
	if (!refused)
		refused = why;
	set_short(false);
}

namespace {

/* Why a request does not fit (path::fits). */
const char *why_not(const path &to, const operation &of) noexcept
{
	if (of.local && !*of.local)
		return of.local->why();
	if (of.bytes.size() > to.limits.inline_bytes)
		return "the data are longer than options.inline_bytes; raise it, or use a slice";
	if (of.size() > to.longest)
		return "the slice is longer than a message may be; send it in parts";
	if (!to.has_place())
		return "the queue is full; wait for completions, or raise options.sends";
	if (!of.part)
		return "the message is longer than the peer's receive buffers; let the peer raise "
		       "options.receive_bytes, or write to its region";
	if (of.is_atomic() && of.size() != sizeof(std::uint64_t))
		return "an atomic returns 8 bytes; give it a slice of 8 bytes";
	if (!of.is_aligned())
		return "the remote address of an atomic is not a multiple of 8; choose another "
		       "offset";
	if (!*of.part)
		return of.part->why();
	if (to.limits.transport == transport::uc && of.needed != rights::write)
		return "an unreliable connection has no READ and no atomics; connect with "
		       "options.transport rc at both ends";
	if (!includes(of.part->rights(), of.needed))
		return "the peer's region does not give this right; let the peer alloc() it with "
		       "remote_write, remote_read or remote_atomic";
	return "the remote part is shorter than the slice; choose a shorter slice, or let the peer "
	       "share more";
}

} // namespace

request link::add_checked(const operation &of) noexcept
{
	if (limits.transport == transport::xrc && !inbox_number) {
		refuse("the request goes to no inbox; name one by to() of the batch before");
		return request::none;
	}
	if (!has_place() || !fits(of)) {
		refuse(why_not(*this, of));
		return request::none;
	}
	if (direct)
		ring.put(static_cast<std::uint32_t>(added), of);
	else
		build(of);
	if (held)
		keep_local(of.local, held[batch_size()]);
	return request(++added);
}

void link::build(const operation &of) noexcept
{
	ibv_send_wr &to = wr[batch_size()];
	ibv_sge &entry = sge[batch_size()];

	to.wr_id = added + 1;
	to.opcode = verbs_opcodes[of.opcode];
	to.send_flags = IBV_SEND_SIGNALED;
	to.sg_list = &entry;
	/* For some devices an entry of length 0 means 2 GiB. */
	to.num_sge = of.size() != 0;
	to.qp_type.xrc.remote_srqn = inbox_number;
	if (of.has_key())
		to.invalidate_rkey = of.imm;
	else
		to.imm_data = htobe32(of.imm);
	entry.length = of.size();
	if (of.local) {
		entry.addr = reinterpret_cast<std::uintptr_t>(of.local->data());
		entry.lkey = static_cast<std::uint32_t>(of.local->key());
	} else if (!of.bytes.empty()) {
		std::byte *copy = &inline_area[std::size_t{batch_size()} * limits.inline_bytes];

		std::memcpy(copy, of.bytes.data(), of.bytes.size());
		entry.addr = reinterpret_cast<std::uintptr_t>(copy);
		to.send_flags |= IBV_SEND_INLINE;
	}
	if (of.is_atomic()) {
		to.wr.atomic.remote_addr = static_cast<std::uint64_t>(of.part->address());
		to.wr.atomic.rkey = static_cast<std::uint32_t>(of.part->key());
		to.wr.atomic.compare_add = of.compare_add;
		to.wr.atomic.swap = of.swap;
	} else if (of.part) {
		to.wr.rdma.remote_addr = static_cast<std::uint64_t>(of.part->address());
		to.wr.rdma.rkey = static_cast<std::uint32_t>(of.part->key());
	}
}

void link::send_to(const inbox_address &inbox) noexcept
{
	if (limits.transport != transport::xrc)
		refuse("only a connection with options.transport xrc has inboxes; leave out to()");
	inbox_number = inbox.number();
	peer_receive_bytes = inbox.receive_bytes();
}

void link::abort() noexcept
{
	/* The last one may have been refused after it was held. */
	for (std::uint32_t i = 0; held && i <= batch_size() && i < limits.sends; ++i)
		held[i] = {};
	added = posted;
	inbox_number = 0;
	refused = nullptr;
	restore_windows();
	choose_way();
}

/* The link may be gone afterwards. */
void link::end_batch() noexcept
{
	abort();
	batch_open = false;
	if (!users.load(std::memory_order_acquire)) {
		delete this;
		return;
	}
	/* Requests that waited for it are posted now. */
	if (loop)
		look();
}

std::uint32_t link::post(int &failed, co::sending *by) noexcept
{
	ibv_send_wr *bad = nullptr;
	const std::uint32_t size = batch_size();
	const std::uint32_t engine = direct ? ring.doorbell.engine() : 0;
	std::uint32_t number = size;

	if (!size)
		return 0;
	if (direct && engine == PEAL_ENGINE_GONE) {
		/* Nothing completes a WQE after the removal of the device. */
		failed = EIO;
		number = 0;
	} else if (direct) {
		/* If the doorbell fails, they are the device's nevertheless. */
		failed = ring.post(static_cast<std::uint32_t>(added), engine);
	} else {
		for (std::uint32_t i = 0; i < size; ++i)
			wr[i].next = i + 1 < size ? &wr[i + 1] : nullptr;
		failed = ibv_post_send(qp, wr.get(), &bad);
		/* What came before the bad request is on its way, and will have completions. */
		if (failed)
			number = bad ? static_cast<std::uint32_t>(bad - wr.get()) : 0;
	}
	for (std::uint32_t i = 0; slots && i < number; ++i)
		slots[(first_slot + outstanding() + i) % limits.sends] = {by, std::move(held[i])};
	posted += number;
	/* abort() drops the others. */
	settle_windows(number == size);
	return number;
}

namespace {

error not_posted(const link &of, int failed, std::uint32_t posted, std::uint32_t size) noexcept
{
	return error::make(failed,
			   "%s took %u of %u requests: %s; wait() for those, and connect again",
			   of.device->name(), posted, size, strerrordesc_np(failed));
}

} // namespace

status link::commit_checked() noexcept
{
	const std::uint32_t size = batch_size();
	int failed = 0;

	if (const char *why = ended ? ended : refused) {
		abort();
		return error::make(ended ? ENOTCONN : EINVAL, "%s", why);
	}
	const std::uint32_t number = post(failed, nullptr);
	abort();
	if (failed)
		return not_posted(*this, failed, number, size);
	return {};
}

status link::commit_and_wait(const deadline &until) noexcept
{
	if (status done = commit(); !done)
		return done;
	for (const completion &one : wait(outstanding(), until))
		if (!one)
			return error::make(one.why_ == incomplete ? ETIMEDOUT
					   : one.is_sentence()	  ? ENOTCONN
								  : EIO,
					   "%s", one.why());
	return {};
}

request path::add_slowly(const operation &of) noexcept
{
	return link_of(this).add_checked(of);
}

status path::commit_slowly() noexcept
{
	return link_of(this).commit_checked();
}

status path::not_rung(int failed) noexcept
{
	const std::uint32_t size = batch_size();

	posted = added;
	set_short(is_short());
	return not_posted(link_of(this), failed, size, size);
}

void path::close_batch_slowly() noexcept
{
	link_of(this).end_batch();
}

/* ---- what comes ---- */

void link::post_receive(std::uint32_t buffer) noexcept
{
	ibv_sge entry{};
	ibv_recv_wr receive{}, *bad;

	if (pool) {
		/* Also after the end, because the other connections need it. */
		if (pool->post(buffer))
			end("the device takes no receive; see whether it still exists, and connect "
			    "again");
		return;
	}
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
		while (const peal_cqe *cqe = ring.completions.peek()) {
			const std::uint64_t name = oldest();

			/* A program may have written anything to the ring. */
			if (name <= posted && cqe->wqe_index == index_of(name))
				note_sent(name, cqe->status, cqe->vendor_err);
			ring.completions.advance();
		}
		ring.completions.publish();
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
	if (wc_status) {
		if (pool)
			post_receive(one.buffer);
		return;
	}
	if (one.has_key)
		note_given_back(rkey(one.imm));
	arrival &to = arrived[(first + count++) % limits.receives];
	to = one;
	to.number = arrivals++;
}

/* rdma_rxe has the flag of kernel users, which programs know as that of a checksum. */
bool link::is_inv_of_rxe(const ibv_wc &one) const noexcept
{
	return one.wc_flags & IBV_WC_IP_CSUM_OK && !(one.wc_flags & IBV_WC_WITH_IMM) &&
	       has_lent(rkey(one.invalidated_rkey));
}

void link::poll_receives() noexcept
{
	constexpr int most = 16;
	ibv_wc came[most];
	int got;

	if (direct) {
		direct->for_each_received([&](std::uint64_t buffer, const peal_cqe &cqe) {
			const bool is_write = cqe.opcode == PEAL_OP_WRITE_IMM;
			const bool has_key = cqe.opcode == PEAL_OP_SEND_INV;

			note_received(cqe.status,
				      {.number = 0,
				       .buffer = static_cast<std::uint32_t>(buffer),
				       .bytes = cqe.byte_len,
				       .imm = has_key ? cqe.imm_or_rkey : be32toh(cqe.imm_or_rkey),
				       .has_imm = is_write || cqe.opcode == PEAL_OP_SEND_IMM,
				       .has_key = has_key,
				       .in_buffer = !is_write});
		});
		return;
	}
	do {
		got = ibv_poll_cq(recv_cq, most, came);
		for (int i = 0; i < got; ++i) {
			const ibv_wc &one = came[i];
			const bool has_key = one.wc_flags & IBV_WC_WITH_INV || is_inv_of_rxe(one);

			note_received(
				one.status,
				{.number = 0,
				 .buffer = static_cast<std::uint32_t>(one.wr_id),
				 .bytes = one.byte_len,
				 .imm = has_key ? one.invalidated_rkey : be32toh(one.imm_data),
				 .has_imm = (one.wc_flags & IBV_WC_WITH_IMM) != 0,
				 .has_key = has_key,
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
	pollfd ready[2] = {{channel->fd, POLLIN, 0}, {peer_fd(), POLLIN, 0}};

	drain_channel();
	ibv_req_notify_cq(send_cq, 0);
	ibv_req_notify_cq(recv_cq, 0);
	/* What came before the queues were armed raises no event. */
	poll_queues();
	if (stored + count != had)
		return;
	/* After its end the peer says nothing, but requests may still complete. */
	if (poll(ready, 2, until.milliseconds_left()) > 0 && ready[1].revents)
		look_at_peer();
}

/* ---- waiting ---- */

completions link::after_move() noexcept
{
	static const completion gone = [] {
		completion made;

		made.status_ = -1;
		made.why_ = detail::moved::connection;
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
	take_off(number);
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
	if (number > outstanding())
		return only(too_many);
	for (unsigned polls = 0;; ++polls) {
		if (qp)
			poll_sends();
		if (stored >= number)
			return hand_over(number, nullptr);
		if (!qp)
			return hand_over(stored, ended);
		if (polls < polls_before_sleep && !until.is_immediate())
			continue;
		if (until.passed())
			return hand_over(stored, incomplete);
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
	if (limits.transport == transport::xrc)
		return error::make(ENOTSUP, "%s", only_sends);
	for (unsigned polls = 0;; ++polls) {
		const char *was_ended = ended;

		if (qp)
			poll_queues();
		if (count)
			return {};
		/* It was polled once more since the end. */
		if (was_ended)
			return error::make(ENOTCONN, "%s", was_ended);
		if (polls < polls_before_sleep && !until.is_immediate())
			continue;
		if (until.passed()) {
			look_at_peer();
			if (ended)
				continue;
			return error::make(ETIMEDOUT,
					   "no message has come in time; wait longer, or see "
					   "whether the peer sends");
		}
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
	made.has_key_ = oldest.has_key;
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

status batch::no_path(const char *why) noexcept
{
	return error::make(EBUSY, "%s", why);
}

status batch::commit(deadline until) noexcept
{
	if (!path_)
		return no_path(why_);
	return link_of(path_).commit_and_wait(until);
}

void batch::to(const inbox_address &inbox) noexcept
{
	if (path_)
		link_of(path_).send_to(inbox);
}

void batch::abort() noexcept
{
	if (path_)
		link_of(path_).abort();
}

const region &connection::peer() const noexcept
{
	static const region nothing;

	return path_ ? link_of(path_.get()).peer : nothing;
}

unsigned connection::mtu() const noexcept
{
	return path_ ? link_of(path_.get()).mtu : 0;
}

const gid &connection::local_gid() const noexcept
{
	static const gid none{};

	return path_ ? link_of(path_.get()).local_gid : none;
}

const gid &connection::peer_gid() const noexcept
{
	static const gid none{};

	return path_ ? link_of(path_.get()).peer_gid : none;
}

std::uint32_t connection::qp_number() const noexcept
{
	return path_ ? link_of(path_.get()).qp_number : 0;
}

completions connection::wait_slowly(std::size_t count, deadline until) noexcept
{
	return path_ ? link_of(path_.get()).wait(count, until) : detail::link::after_move();
}

completions connection::take() &noexcept
{
	return path_ ? link_of(path_.get()).take() : detail::link::after_move();
}

result<message> connection::recv(deadline until) noexcept
{
	if (!path_)
		return error::make(EBADF, "%s", detail::moved::connection);
	return link_of(path_.get()).recv(until);
}

result<std::uint32_t> connection::recv_imm(deadline until) noexcept
{
	if (!path_)
		return error::make(EBADF, "%s", detail::moved::connection);
	return link_of(path_.get()).recv_imm(until);
}

int connection::fd() const noexcept
{
	return path_ ? link_of(path_.get()).epoll : -1;
}

next_step connection::arm() noexcept
{
	return path_ ? link_of(path_.get()).arm_for_program() : next_step::close;
}

void connection::close() noexcept
{
	if (path_)
		link_of(path_.get()).close();
}

} // namespace peal
