// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Extended reliable connections (XRC), for programs of many processes: a peer needs one connection
 * to a host, and each process of the host has an inbox, which receives on all of them. The
 * processes of the host open one domain, which they know by a file. One of them makes a target for
 * each connection. Requests of a connection name an inbox (batch::to).
 *
 * Any thread may use a domain. One thread at a time may use an inbox with its messages, or a
 * target. Receiving allocates nothing.
 */
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "completion.hpp"
#include "connection.hpp"
#include "deadline.hpp"
#include "kept.hpp"
#include "memory.hpp"
#include "result.hpp"

namespace peal {

namespace detail {

struct domain_state;
PEAL_API void keep(domain_state *) noexcept;
PEAL_API void release(domain_state *) noexcept;

struct inbox_state;
PEAL_API void keep(inbox_state *) noexcept;
PEAL_API void release(inbox_state *) noexcept;

struct offered;
PEAL_API void keep(offered *) noexcept;
PEAL_API void release(offered *) noexcept;

} // namespace detail

/* An inbox, as its peers know it. */
class PEAL_API inbox_address {
public:
	/* For the peers, by any way. They are the same on each host. */
	static constexpr std::size_t byte_count = 40;
	std::array<std::byte, byte_count> bytes() const noexcept;
	/* What a peer has brought, or nothing if these bytes are no address of an inbox. */
	static std::optional<inbox_address> from(std::span<const std::byte>) noexcept;

	/* What its process shares with all peers of the domain. */
	const region &shared() const noexcept { return shared_; }
	/* The longest message that it takes. */
	std::uint32_t receive_bytes() const noexcept { return receive_bytes_; }
	/* The number of the shared receive queue. */
	std::uint32_t number() const noexcept { return number_; }

private:
	friend class inbox;

	inbox_address() noexcept = default;

	region shared_;
	std::uint32_t receive_bytes_ = 0;
	std::uint32_t number_ = 0;
};

/* What a peer has sent to an inbox. Its buffer is posted again when the message is destroyed. */
class PEAL_API inbox_message {
public:
	inbox_message(inbox_message &&) noexcept = default;
	inbox_message &operator=(inbox_message &&) noexcept;
	~inbox_message();

	std::span<const std::byte> bytes() const noexcept { return bytes_; }
	std::string_view text() const noexcept { return detail::text_of(bytes_); }
	/* The object that the peer has sent, unless the message has another length. */
	template <class T>
	std::optional<T> as() const noexcept
	{
		return detail::object_of<T>(bytes_);
	}
	/* The immediate value, if the peer sent one. */
	std::optional<std::uint32_t> imm() const noexcept { return imm_; }
	/* How many bytes a write_imm of the peer has written to the region, otherwise 0. */
	std::uint32_t written() const noexcept { return written_; }

private:
	friend struct detail::inbox_state;

	explicit inbox_message(detail::kept<detail::inbox_state> of) noexcept : of_(std::move(of))
	{
	}

	detail::kept<detail::inbox_state> of_;
	std::span<const std::byte> bytes_;
	std::optional<std::uint32_t> imm_;
	std::uint32_t buffer_ = 0;
	std::uint32_t written_ = 0;
};

/* The receives of one process (an XRC shared receive queue), for all connections to its domain. */
class PEAL_API inbox {
public:
	/* An inbox that was moved from receives nothing. */
	inbox(inbox &&) noexcept = default;
	inbox &operator=(inbox &&) noexcept = default;

	inbox_address address() const noexcept;
	/*
	 * The next message, of any peer. While no receive is free, the peers wait. A message that
	 * is too long is dropped, and ends the connection of its peer.
	 */
	result<inbox_message> recv(deadline) noexcept;
	/* They work like those of a connection. recv(0s) returns a message that has come. */
	int fd() const noexcept;
	next_step arm() noexcept;

private:
	friend class xrc_domain;

	explicit inbox(detail::kept<detail::inbox_state> of) noexcept : of_(std::move(of)) {}

	detail::kept<detail::inbox_state> of_;
};

/*
 * The end of a connection at a host that has inboxes. The peer makes an offer with transport xrc,
 * the blobs are exchanged, and both connect. The connection ends with the target, so its process
 * keeps it as long as any process of the host is to receive by it.
 */
class PEAL_API target {
public:
	target(target &&) noexcept = default;
	target &operator=(target &&) noexcept = default;

	/* As that of an offer. */
	std::span<const std::byte> blob() const &noexcept;
	std::span<const std::byte> blob() const && = delete;
	/* As that of an offer. It is for one peer. */
	status connect(std::span<const std::byte> theirs, deadline) noexcept;

private:
	friend class xrc_domain;

	explicit target(detail::kept<detail::offered> of) noexcept : of_(std::move(of)) {}

	detail::kept<detail::offered> of_;
};

class PEAL_API xrc_domain {
public:
	xrc_domain(xrc_domain &&) noexcept = default;
	xrc_domain &operator=(xrc_domain &&) noexcept = default;
	xrc_domain(const xrc_domain &) = delete;
	xrc_domain &operator=(const xrc_domain &) = delete;

	/*
	 * So many messages of at most `bytes` bytes may wait for recv(). The peers reach `mine`,
	 * which is memory of the device object that opened the domain.
	 */
	result<class inbox> inbox(const region &mine, std::uint16_t count,
				  std::uint32_t bytes = 4096) noexcept;
	/* For one connection to the host. */
	result<class target> target() noexcept;

private:
	friend class device;

	explicit xrc_domain(detail::kept<detail::domain_state> of) noexcept : of_(std::move(of)) {}

	detail::kept<detail::domain_state> of_;
};

} // namespace peal
