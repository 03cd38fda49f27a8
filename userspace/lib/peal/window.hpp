// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory windows (type 2): a part of a memory, lent to the peer of one connection, and taken back
 * without another registration. A `window` is the owner's, and a batch binds it. A `lease` is what
 * the peer gets by a message.
 *
 * One thread at a time may use a window, together with its connection.
 */
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kept.hpp"
#include "memory.hpp"

namespace peal {

namespace detail {

struct window_state;
PEAL_API void release(window_state *) noexcept;

} // namespace detail

/*
 * A region that its owner lends to one peer. Only requests on the connection that the window was
 * bound on may use it. A request after the owner has taken it back fails, and ends the connection.
 */
class PEAL_API lease : public region {
public:
	/* Its address, length, key and rights, for a message. They are the same on each host. */
	static constexpr std::size_t byte_count = 24;
	std::array<std::byte, byte_count> bytes() const noexcept;
	/* What the peer has sent, or nothing if these bytes are no lease. */
	static std::optional<lease> from(std::span<const std::byte>) noexcept;

	/* One that allows nothing. */
	lease() noexcept = default;

private:
	friend struct detail::link;

	explicit lease(const region &part) noexcept : region(part) {}
};

/*
 * What a batch binds to a slice (batch::bind). It keeps the memory of the slice registered and
 * allocated until it is bound to another one or destroyed. It must exist until the request that
 * binds it has completed, because otherwise that request fails.
 *
 * Its destruction takes the lease back, whatever the peer does at that time. It costs a system
 * call, and batch::invalidate does not. When the connection closes, its windows end.
 */
class PEAL_API window {
public:
	window(window &&) noexcept = default;
	window &operator=(window &&) noexcept = default;
	window(const window &) = delete;
	window &operator=(const window &) = delete;

	/*
	 * Whether a batch has bound it, and neither a batch nor the peer has ended that. What the
	 * peer has done is known when its message has come.
	 */
	bool is_bound() const noexcept;
	/* For the peer. It has no bytes while the window is not bound. */
	lease share() const noexcept;

private:
	friend class batch;
	friend struct detail::link;

	explicit window(detail::kept<detail::window_state> of) noexcept : of_(std::move(of)) {}

	detail::kept<detail::window_state> of_;
};

} // namespace peal
