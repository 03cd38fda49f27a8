// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory windows: what a batch does to them, and when their memory may go. A window follows its
 * batch: what was added counts at once, and an abort takes it back. Nothing here allocates but
 * link::make_window().
 */
#include <endian.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "link.hpp"
#include "moved.hpp"
#include "peal/co.hpp"

namespace peal {

namespace {

constexpr const char *other_connection =
	"the window is of another connection; make one by connection::window() of this one";

struct lease_on_wire {
	std::uint64_t address;
	std::uint64_t size;
	std::uint32_t key;
	std::uint8_t rights;
	std::uint8_t reserved[3];
};
static_assert(sizeof(lease_on_wire) == lease::byte_count, "it has no holes");

int access_flags(rights given) noexcept
{
	return (includes(given, rights::write) ? IBV_ACCESS_REMOTE_WRITE : 0) |
	       (includes(given, rights::read) ? IBV_ACCESS_REMOTE_READ : 0) |
	       (includes(given, rights::atomic) ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

} // namespace

namespace detail {

struct window_state {
	/* What an abort of the batch restores. */
	struct binding {
		bool is_bound = false;
		/* Why it can never be bound again. */
		const char *lost = nullptr;
		lease given;
		/* The request that has ended the last one. */
		std::uint64_t ended_by = 0;
	};
	struct place : list_node {
		window_state *of;
	};

	const kept<link> of;
	/* Null after the end of the connection. */
	ibv_mw *mw = nullptr;
	/* What the window may still point into. */
	kept<block> memory;
	binding now;
	/* While `in_batch` has a place in the list of the link. The key is 0 without a bind. */
	binding before;
	std::uint32_t bound_in_batch = 0;
	place in_link;
	place in_batch;

	explicit window_state(kept<link> link) noexcept : of(std::move(link))
	{
		in_link.of = in_batch.of = this;
	}
	window_state(const window_state &) = delete;
	~window_state()
	{
		if (!in_batch.empty())
			of->refuse("a window of the batch was destroyed; keep it until its request "
				   "has completed");
		end();
	}

	/* In this order, because a region with a window stays registered. */
	void end() noexcept
	{
		if (mw)
			ibv_dealloc_mw(mw);
		mw = nullptr;
		memory = {};
	}
	/* A batch is about to change it. */
	void note(list_node &batch) noexcept
	{
		if (!in_batch.empty())
			return;
		before = now;
		bound_in_batch = 0;
		batch.push_back(in_batch);
	}
	const char *why_not_bound_to(const block *, const slice &, rights) const noexcept;
};

void release(window_state *of) noexcept
{
	delete of;
}

result<window> link::make_window() noexcept
{
	if (limits.transport != transport::rc)
		return error::make(ENOTSUP, "only a reliable connection has windows; connect with "
					    "options.transport rc at both ends");
	if (ended)
		return error::make(ENOTCONN, "%s", ended);
	keep(this);
	kept<window_state> made(new (std::nothrow) window_state(kept<link>(this)));
	if (!made)
		return error::make(ENOMEM, "there is no memory for a window; close connections");
	if (device->has_windows())
		made->mw = ibv_alloc_mw(device->pd, IBV_MW_TYPE_2);
	else
		errno = ENOTSUP;
	if (!made->mw)
		return error::make(errno,
				   "%s makes no memory window of type 2: %s; see what ibv_devinfo "
				   "-v says about MEM_WINDOW_TYPE_2B and max_mw",
				   device->name(), strerrordesc_np(errno));
	windows.push_back(made->in_link);
	return window(std::move(made));
}

/* ---- what a batch does ---- */

/* Why the device would refuse the bind, and end the connection. */
const char *window_state::why_not_bound_to(const block *memory_of, const slice &part,
					   rights given) const noexcept
{
	if (now.lost)
		return now.lost;
	if (!part)
		return part.why();
	if (!part.size())
		return "a window of no bytes allows nothing; give it a longer slice";
	if (!memory_of || !includes(memory_of->rights, rights::bind))
		return "the memory of the slice cannot have windows; alloc() it with bindable";
	if (given == rights::none || includes(given, rights::bind))
		return "a window gives the peer remote_write, remote_read or remote_atomic; say "
		       "which";
	if (now.is_bound)
		return "the window is bound; invalidate it, or wait for the message by which the "
		       "peer gives it back";
	if (!in_batch.empty() && bound_in_batch)
		return "the batch has bound the window before; commit it first, or use another "
		       "window";
	/* The device may still let the peer into the old memory, which must not go. */
	if (memory && memory.get() != memory_of && now.ended_by >= of->oldest())
		return "the window was invalidated by a request that has not completed; wait for "
		       "it before you bind other memory";
	return nullptr;
}

request link::add_bind(window_state *to, const slice &part, rights given) noexcept
{
	const char *why = !to			 ? detail::moved::window
			  : to->of.get() != this ? other_connection
						 : nullptr;

	if (!why)
		why = to->why_not_bound_to(part.block_, part, given);
	if (why) {
		refuse(why);
		return request::none;
	}
	const request made = add_checked({.opcode = PEAL_OP_BIND_MW});
	if (made == request::none)
		return made;
	/* The commit has to know that there is a window, so it does not go the short way. */
	set_short(false);
	to->note(batch_windows);
	keep(part.block_);
	to->memory = kept<block>(part.block_);
	region all;
	all.address_ = remote_address(reinterpret_cast<std::uintptr_t>(part.data()));
	all.size_ = part.size();
	all.key_ = rkey(ibv_inc_rkey(to->mw->rkey));
	all.rights_ = given;
	to->bound_in_batch = static_cast<std::uint32_t>(all.key_);
	to->now = {.is_bound = true, .lost = nullptr, .given = lease(all), .ended_by = 0};
	if (direct) {
		SendSlot slot(ring.at(index_of(static_cast<std::uint64_t>(made))),
			      {.opcode = PEAL_OP_BIND_MW,
			       .flags = PEAL_WQE_SIGNALED,
			       .num_sge = 0,
			       .reserved0 = 0,
			       .imm_or_rkey = 0,
			       .remote_addr = 0,
			       .rkey = to->mw->rkey,
			       .inline_len = 0,
			       .ah_index = 0,
			       .reserved1 = 0});

		slot.segment(
			peal_bind_seg{.addr = static_cast<std::uint64_t>(all.address_),
				      .length = all.size_,
				      .mr_lkey = static_cast<std::uint32_t>(part.key()),
				      .access = static_cast<std::uint32_t>(access_flags(given)),
				      .new_rkey = to->bound_in_batch,
				      .reserved = 0});
	} else {
		ibv_send_wr &bind = wr[batch_size() - 1];

		bind.bind_mw.mw = to->mw;
		bind.bind_mw.rkey = to->bound_in_batch;
		bind.bind_mw.bind_info = {.mr = registration_of(part.block_),
					  .addr = static_cast<std::uint64_t>(all.address_),
					  .length = all.size_,
					  .mw_access_flags =
						  static_cast<unsigned>(access_flags(given))};
	}
	return made;
}

request link::add_invalidate(window_state *of) noexcept
{
	const char *why =
		!of		       ? detail::moved::window
		: of->of.get() != this ? other_connection
		: of->now.lost	       ? of->now.lost
		: !of->now.is_bound
			? "the window is not bound, so there is nothing to invalidate; look "
			  "at is_bound() first"
			: nullptr;

	if (why) {
		refuse(why);
		return request::none;
	}
	const request made = add_checked({.opcode = PEAL_OP_LOCAL_INV,
					  .imm = static_cast<std::uint32_t>(of->now.given.key())});
	if (made == request::none)
		return made;
	set_short(false);
	of->note(batch_windows);
	of->now = {.is_bound = false,
		   .lost = nullptr,
		   .given = {},
		   .ended_by = static_cast<std::uint64_t>(made)};
	return made;
}

request link::add_send_invalidate(const slice *from, lease &given) noexcept
{
	const char *why = nullptr;

	if (limits.transport != transport::rc)
		why = "only a reliable connection gives a lease back; connect with "
		      "options.transport rc at both ends";
	else if (!given.size())
		why = "the lease is empty, because it was given back or never came; wait for "
		      "another one";
	if (why) {
		refuse(why);
		return request::none;
	}
	const request made = add_checked({.opcode = PEAL_OP_SEND_INV,
					  .imm = static_cast<std::uint32_t>(given.key()),
					  .local = from});
	if (made != request::none)
		given = {};
	return made;
}

/* The batch was posted. If only a part of it was, nobody knows what its windows are. */
void link::settle_windows(bool whole) noexcept
{
	while (!batch_windows.empty()) {
		window_state &one = *static_cast<window_state::place *>(batch_windows.next)->of;

		one.in_batch.leave_list();
		/* The provider has read the old key. */
		if (one.bound_in_batch && one.mw)
			one.mw->rkey = one.bound_in_batch;
		if (!whole)
			one.now = {.is_bound = false,
				   .lost = "a batch of the window was not posted as a whole; make "
					   "another window",
				   .given = {},
				   .ended_by = 0};
	}
}

void link::restore_windows() noexcept
{
	while (!batch_windows.empty()) {
		window_state &one = *static_cast<window_state::place *>(batch_windows.next)->of;

		one.in_batch.leave_list();
		one.now = one.before;
	}
}

/* ---- how windows end ---- */

bool link::has_lent(rkey key) const noexcept
{
	for (const list_node *at = windows.next; at != &windows; at = at->next) {
		const window_state &one = *static_cast<const window_state::place *>(at)->of;

		if ((one.now.is_bound && one.now.given.key() == key) ||
		    (!one.in_batch.empty() && one.before.given.key() == key))
			return true;
	}
	return false;
}

void link::note_given_back(rkey key) noexcept
{
	for (list_node *at = windows.next; at != &windows; at = at->next) {
		window_state &one = *static_cast<window_state::place *>(at)->of;

		if (one.now.is_bound && one.now.given.key() == key)
			one.now = {};
		if (one.in_batch.empty() || !one.before.is_bound || one.before.given.key() != key)
			continue;
		one.before = {};
		refuse("the peer has given a window back that the batch invalidates; look at "
		       "is_bound() before");
	}
}

/* Before the queue pair, because some software keeps a queue pair that has windows. */
void link::end_windows() noexcept
{
	restore_windows();
	while (!windows.empty()) {
		window_state &one = *static_cast<window_state::place *>(windows.next)->of;

		one.in_link.leave_list();
		one.end();
		one.now = {};
		one.now.lost = "the connection of the window has ended; connect again";
	}
}

} // namespace detail

/* ---- the public objects ---- */

std::array<std::byte, lease::byte_count> lease::bytes() const noexcept
{
	std::array<std::byte, byte_count> made;
	const lease_on_wire wire = {.address = htobe64(static_cast<std::uint64_t>(address())),
				    .size = htobe64(size()),
				    .key = htobe32(static_cast<std::uint32_t>(key())),
				    .rights = static_cast<std::uint8_t>(rights()),
				    .reserved = {}};

	std::memcpy(made.data(), &wire, sizeof(wire));
	return made;
}

std::optional<lease> lease::from(std::span<const std::byte> bytes) noexcept
{
	constexpr auto all = rights::write | rights::read | rights::atomic;
	lease_on_wire wire;
	lease made;

	if (bytes.size() != sizeof(wire))
		return std::nullopt;
	std::memcpy(&wire, bytes.data(), sizeof(wire));
	if (!includes(all, peal::rights(wire.rights)) || wire.reserved[0] || wire.reserved[1] ||
	    wire.reserved[2])
		return std::nullopt;
	made.address_ = remote_address(be64toh(wire.address));
	made.size_ = be64toh(wire.size);
	made.key_ = rkey(be32toh(wire.key));
	made.rights_ = peal::rights(wire.rights);
	return made;
}

bool window::is_bound() const noexcept
{
	return of_ && of_->now.is_bound;
}

lease window::share() const noexcept
{
	return of_ ? of_->now.given : lease();
}

request batch::bind(window &to, const slice &part, rights given) noexcept
{
	return path_ ? link_of(path_).add_bind(to.of_.get(), part, given) : request::none;
}

request batch::invalidate(window &of) noexcept
{
	return path_ ? link_of(path_).add_invalidate(of.of_.get()) : request::none;
}

request batch::send_invalidate(const slice &from, lease &given) noexcept
{
	return path_ ? link_of(path_).add_send_invalidate(&from, given) : request::none;
}

request batch::send_invalidate(lease &given) noexcept
{
	return path_ ? link_of(path_).add_send_invalidate(nullptr, given) : request::none;
}

result<window> connection::window() noexcept
{
	if (!path_)
		return error::make(EBADF, "%s", detail::moved::connection);
	return link_of(path_.get()).make_window();
}

result<window> co::connection::window() noexcept
{
	if (!link_)
		return error::make(EBADF, "%s", detail::moved::connection);
	return link_->make_window();
}

} // namespace peal
