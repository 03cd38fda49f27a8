// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Datagrams to peers whose blob the program has. The blob says which queue pair is meant, and the
 * routes say by which addresses.
 */
#include "peal/endpoint.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "blob.hpp"
#include "datagrams.hpp"
#include "peal/device.hpp"

namespace peal {

namespace detail {

namespace {

constexpr const char *moved = "the endpoint or the address was moved from; use the object that it "
			      "was moved to";

} // namespace

struct mailbox final : datagrams {
	end_point mine;

	status make(std::uint16_t receives) noexcept;
};

struct reachable {
	std::atomic<unsigned> users{1};
	kept<mailbox> from;
	destination to{};
	std::uint32_t longest = 0;

	reachable() = default;
	reachable(const reachable &) = delete;
	~reachable()
	{
		if (to.ah)
			ibv_destroy_ah(to.ah);
	}
};

void keep(mailbox *of) noexcept
{
	keep(static_cast<datagrams *>(of));
}

void release(mailbox *of) noexcept
{
	release(static_cast<datagrams *>(of));
}

void keep(reachable *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(reachable *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

status mailbox::make(std::uint16_t count) noexcept
{
	auto end = end_point::make(*device.get(), blob_kind::datagrams, {}, {});

	if (!end)
		return end.failure();
	mine = *end;
	const address &first = mine.addresses.all[0];
	longest = 128u << first.mtu;
	status made = make_queues(count);
	if (made)
		made = start(first.port, be32toh(mine.wire.qkey));
	if (!made)
		return made;
	mine.wire.datagram_qp = htobe32(qp->qp_num);
	mine.seal();
	return {};
}

} // namespace detail

std::size_t address_handle::longest() const noexcept
{
	return of_ ? of_->longest : 0;
}

std::span<const std::byte> endpoint::blob() const &noexcept
{
	return of_ ? std::as_bytes(std::span(&of_->mine.wire, 1)) : std::span<const std::byte>();
}

result<address_handle> endpoint::reach(std::span<const std::byte> blob) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved);
	auto theirs = of_->mine.read_peer(blob);
	if (!theirs)
		return theirs.failure();
	auto by = detail::choose_route(*of_->device.get(), of_->mine.addresses.span(),
				       theirs->addresses.span());
	if (!by)
		return by.failure();
	detail::kept<detail::reachable> made(new (std::nothrow) detail::reachable);
	if (!made)
		return error::make(ENOMEM, "there is no memory for an address; close others");
	ibv_ah_attr attr = by->attr();
	made->from = of_;
	made->longest = 128u << by->mtu();
	made->to = {ibv_create_ah(of_->device->pd, &attr), be32toh(theirs->wire.datagram_qp),
		    be32toh(theirs->wire.qkey)};
	if (!made->to.ah)
		return error::make(errno,
				   "%s makes no address of the peer: %s; see whether the peer's "
				   "host answers to ping",
				   of_->device->name(), strerrordesc_np(errno));
	return address_handle(std::move(made));
}

status endpoint::send(const address_handle &to, std::span<const std::byte> bytes,
		      deadline until) noexcept
{
	if (!of_ || !to.of_)
		return error::make(EBADF, "%s", detail::moved);
	if (to.of_->from.get() != of_.get())
		return error::make(EXDEV,
				   "the address is of another endpoint; let this one reach() "
				   "the peer");
	if (bytes.size() > to.of_->longest)
		return error::make(EMSGSIZE,
				   "a datagram to this peer has at most %u bytes, and these are "
				   "%zu; send them in parts",
				   to.of_->longest, bytes.size());
	return of_->send(to.of_->to, bytes, until);
}

result<datagram> endpoint::recv(deadline until) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved);
	return of_->recv(until);
}

int endpoint::fd() const noexcept
{
	return of_ ? of_->epoll : -1;
}

next_step endpoint::arm() noexcept
{
	return of_ ? of_->arm() : next_step::close;
}

result<endpoint> device::endpoint(std::uint16_t receives) noexcept
{
	if (!context_)
		return error::make(EBADF, "the device was moved from; use the object that it was "
					  "moved to");
	detail::kept<detail::mailbox> made(new (std::nothrow) detail::mailbox);

	if (!made)
		return error::make(ENOMEM, "there is no memory for an endpoint; close others");
	made->device = context_;
	if (status done = made->make(receives); !done)
		return error::make(done.code(), "%s", done.why());
	return peal::endpoint(std::move(made));
}

} // namespace peal
