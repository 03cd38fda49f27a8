// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Multicast groups. What one member sends goes to all others that have joined, as a datagram: it
 * may be lost, come twice or come late, and nobody is told. It knows no connections.
 *
 * One thread at a time may use a group and its datagrams. Sending and receiving allocate nothing,
 * except that librdmacm allocates the event by which a group ends.
 */
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "completion.hpp"
#include "connection.hpp"
#include "deadline.hpp"
#include "kept.hpp"
#include "result.hpp"

namespace peal {

namespace detail {

/* A datagram that came, in a place of the buffers. */
struct received {
	std::uint32_t place;
	std::uint32_t bytes;
	bool has_header;
	std::uint32_t from_qp;
};

struct datagrams;
PEAL_API void keep(datagrams *) noexcept;
PEAL_API void release(datagrams *) noexcept;

struct membership;
PEAL_API void keep(membership *) noexcept;
PEAL_API void release(membership *) noexcept;

} // namespace detail

/* What a member has sent. Its buffer is posted again when the datagram is destroyed. */
class PEAL_API datagram {
public:
	datagram(datagram &&) noexcept = default;
	datagram &operator=(datagram &&other) noexcept;
	~datagram();

	std::span<const std::byte> bytes() const noexcept { return bytes_; }
	std::string_view text() const noexcept { return detail::text_of(bytes_); }
	/* The object that the member has sent, unless the datagram has another length. */
	template <class T>
	std::optional<T> as() const noexcept
	{
		return detail::object_of<T>(bytes_);
	}
	/* The address of the sender, as the network has it. Anybody can send with any address. */
	const gid &from() const noexcept { return from_; }

private:
	friend struct detail::datagrams;

	explicit datagram(detail::kept<detail::datagrams> of) noexcept : of_(std::move(of)) {}

	detail::kept<detail::datagrams> of_;
	std::span<const std::byte> bytes_;
	gid from_{};
	std::uint32_t buffer_ = 0;
};

/* A membership in a group. It ends when the group and its last datagram are destroyed. */
class PEAL_API group {
public:
	/* A group that was moved from neither sends nor receives. */
	group(group &&) noexcept = default;
	group &operator=(group &&) noexcept = default;

	/* How long a datagram may be. The network may be smaller elsewhere. */
	std::size_t longest() const noexcept;
	/* Returns when the device has sent it, so the bytes may be anywhere. */
	status send(std::span<const std::byte>, deadline) noexcept;
	status send(std::string_view text, deadline until) noexcept
	{
		return send(std::as_bytes(std::span(text)), until);
	}
	/*
	 * The next datagram. Those that come while no receive is free are lost. Whether a member
	 * gets what it sends itself is up to the device.
	 */
	result<datagram> recv(deadline) noexcept;
	/* They work like those of a connection. recv(0s) returns a datagram that has come. */
	int fd() const noexcept;
	next_step arm() noexcept;

private:
	friend class device;
	friend class co::loop;

	explicit group(detail::kept<detail::membership> of) noexcept : of_(std::move(of)) {}

	detail::kept<detail::membership> of_;
};

} // namespace peal
