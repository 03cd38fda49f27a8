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
#include "datagram_source.hpp"
#include "moved.hpp"
#include "peal/device.hpp"

namespace peal {

namespace detail {

namespace {

} // namespace

struct mailbox final : datagrams {
	end_point mine;

	status make(std::uint16_t receives) noexcept;
	result<kept<reachable>> reach(std::span<const std::byte> blob) noexcept;
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

destination destination_of(const datagrams &from, const reachable *to) noexcept
{
	return to ? to->to : from.all;
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

result<kept<reachable>> mailbox::reach(std::span<const std::byte> blob) noexcept
{
	auto theirs = mine.read_peer(blob);
	if (!theirs)
		return theirs.failure();
	auto by = choose_route(*device.get(), mine.addresses.span(), theirs->addresses.span());
	if (!by)
		return by.failure();
	kept<reachable> made(new (std::nothrow) reachable);
	if (!made)
		return error::make(ENOMEM, "there is no memory for an address; close others");
	ibv_ah_attr attr = by->attr();
	keep(this);
	made->from = kept<mailbox>(this);
	made->longest = 128u << by->mtu();
	made->to = {ibv_create_ah(device->pd, &attr), be32toh(theirs->wire.datagram_qp),
		    be32toh(theirs->wire.qkey)};
	if (!made->to.ah)
		return error::make(errno,
				   "%s makes no address of the peer: %s; see whether the peer's "
				   "host answers to ping",
				   device->name(), strerrordesc_np(errno));
	return made;
}

namespace {

/* Whether these bytes can go from there to the peer. */
status check(const datagrams *from, const reachable *to, std::span<const std::byte> bytes) noexcept
{
	if (!to)
		return error::make(EBADF, "%s", detail::moved::endpoint_or_address);
	if (to->from.get() != from)
		return error::make(EXDEV,
				   "the address is of another endpoint; let this one reach() "
				   "the peer");
	if (bytes.size() > to->longest)
		return error::make(EMSGSIZE,
				   "a datagram to this peer has at most %u bytes, and these are "
				   "%zu; send them in parts",
				   to->longest, bytes.size());
	return {};
}

mailbox &mailbox_of(const kept<datagram_source> &source) noexcept
{
	return static_cast<mailbox &>(*source->of.get());
}

} // namespace
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
		return error::make(EBADF, "%s", detail::moved::endpoint_or_address);
	auto made = of_->reach(blob);
	if (!made)
		return made.failure();
	return address_handle(std::move(made).value());
}

status endpoint::send(const address_handle &to, std::span<const std::byte> bytes,
		      deadline until) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved::endpoint_or_address);
	if (status fits = detail::check(of_.get(), to.of_.get(), bytes); !fits)
		return fits;
	return of_->send(to.of_->to, bytes, until);
}

result<datagram> endpoint::recv(deadline until) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved::endpoint_or_address);
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
		return error::make(EBADF, "%s", detail::moved::device);
	detail::kept<detail::mailbox> made(new (std::nothrow) detail::mailbox);

	if (!made)
		return error::make(ENOMEM, "there is no memory for an endpoint; close others");
	made->device = context_;
	if (status done = made->make(receives); !done)
		return error::make(done.code(), "%s", done.why());
	return peal::endpoint(std::move(made));
}

/* ---- in an event loop ---- */

namespace co {

std::span<const std::byte> endpoint::blob() const &noexcept
{
	return source_ ? std::as_bytes(std::span(&detail::mailbox_of(source_).mine.wire, 1))
		       : std::span<const std::byte>();
}

result<address_handle> endpoint::reach(std::span<const std::byte> blob) noexcept
{
	if (!source_)
		return error::make(EBADF, "%s", detail::moved::endpoint_or_address);
	auto made = detail::mailbox_of(source_).reach(blob);
	if (!made)
		return made.failure();
	return address_handle(std::move(made).value());
}

sending_datagram endpoint::send(const address_handle &to, std::span<const std::byte> bytes,
				deadline until) noexcept
{
	const status fits =
		source_ ? detail::check(source_->of.get(), to.of_.get(), bytes) : status();
	const std::optional<error> refused =
		fits ? std::nullopt : std::optional(error::make(fits.code(), "%s", fits.why()));

	return sending_datagram(source_, to.of_, refused ? &*refused : nullptr, bytes, until);
}

receiving_datagram endpoint::recv(deadline until) noexcept
{
	return receiving_datagram(source_, until);
}

void endpoint::close() noexcept
{
	if (source_)
		source_->close();
}

result<endpoint> loop::adopt(peal::endpoint &&other) noexcept
{
	auto made = detail::datagram_source::make(detail::kept<detail::datagrams>(other.of_.give()),
						  state_);

	if (!made)
		return made.failure();
	return endpoint(std::move(made).value());
}

} // namespace co
} // namespace peal
