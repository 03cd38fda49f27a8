// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Receive buffers for many connections (SRQ). A server with many clients, of which few send at the
 * same time, needs fewer of them than if each connection had its own.
 *
 * Any thread may give it to new connections at any time. Connections that share it need no lock,
 * and each of them and its messages may be in another thread.
 */
#pragma once
#include <cstddef>

#include "kept.hpp"

namespace peal {

namespace detail {

struct link;
struct receive_pool;
PEAL_API void keep(receive_pool *) noexcept;
PEAL_API void release(receive_pool *) noexcept;

} // namespace detail

class PEAL_API shared_receives {
public:
	/* The connections keep what they need of it, so it may end before them. */
	shared_receives(shared_receives &&) noexcept = default;
	shared_receives &operator=(shared_receives &&) noexcept = default;
	shared_receives(const shared_receives &) = delete;
	shared_receives &operator=(const shared_receives &) = delete;

	/* How many messages may wait for recv() or be kept, in all connections together. */
	std::size_t size() const noexcept;
	/* The longest message that a peer may send. */
	std::size_t bytes() const noexcept;

private:
	friend class device;
	friend struct detail::link;

	explicit shared_receives(detail::kept<detail::receive_pool> of) noexcept
		: of_(std::move(of))
	{
	}

	detail::kept<detail::receive_pool> of_;
};

} // namespace peal
