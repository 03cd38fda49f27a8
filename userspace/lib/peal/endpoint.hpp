// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Datagrams from one program to another (UD), without a connection. A datagram may be lost, come
 * twice or come late. The sender does not learn of it. One endpoint sends to any number of peers.
 *
 * One thread at a time may use an endpoint, its addresses and its datagrams. Sending and receiving
 * allocate nothing.
 */
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

#include "deadline.hpp"
#include "group.hpp"
#include "kept.hpp"
#include "result.hpp"

namespace peal {

namespace co {

class endpoint;
class loop;

} // namespace co

namespace detail {

struct mailbox;
PEAL_API void keep(mailbox *) noexcept;
PEAL_API void release(mailbox *) noexcept;

struct reachable;
PEAL_API void keep(reachable *) noexcept;
PEAL_API void release(reachable *) noexcept;

} // namespace detail

/* A peer, as one endpoint reaches it. It may outlive the endpoint. */
class PEAL_API address_handle {
public:
	address_handle(address_handle &&) noexcept = default;
	address_handle &operator=(address_handle &&) noexcept = default;

	/* How long a datagram to this peer may be: the smaller MTU of both ports. */
	std::size_t longest() const noexcept;

private:
	friend class endpoint;
	friend class co::endpoint;

	explicit address_handle(detail::kept<detail::reachable> of) noexcept : of_(std::move(of)) {}

	detail::kept<detail::reachable> of_;
};

class PEAL_API endpoint {
public:
	/* An endpoint that was moved from neither sends nor receives. */
	endpoint(endpoint &&) noexcept = default;
	endpoint &operator=(endpoint &&) noexcept = default;

	/*
	 * What a peer needs to send to this endpoint, for any number of peers. It has
	 * offer::blob_size bytes, and the program carries it to them in any way.
	 */
	std::span<const std::byte> blob() const &noexcept;
	std::span<const std::byte> blob() const && = delete;

	/*
	 * The peer that made this blob, which is checked as that of an offer. The GID is chosen in
	 * the same way.
	 */
	result<address_handle> reach(std::span<const std::byte> blob) noexcept;

	/* Returns when the device has sent it, so the bytes may be anywhere. */
	status send(const address_handle &to, std::span<const std::byte>, deadline) noexcept;
	status send(const address_handle &to, std::string_view text, deadline until) noexcept
	{
		return send(to, std::as_bytes(std::span(text)), until);
	}
	/* The next datagram, of any peer. Those that come while no receive is free are lost. */
	result<datagram> recv(deadline) noexcept;
	/* They work like those of a connection. recv(0s) returns a datagram that has come. */
	int fd() const noexcept;
	next_step arm() noexcept;

private:
	friend class device;
	friend class co::loop;

	explicit endpoint(detail::kept<detail::mailbox> of) noexcept : of_(std::move(of)) {}

	detail::kept<detail::mailbox> of_;
};

} // namespace peal
