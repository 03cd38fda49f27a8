// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connecting without the connection manager. Each of two programs makes an offer, the blob of each
 * offer is carried to the other program in any way, for example by a file, TCP or MPI, and both
 * connect.
 *
 * One thread at a time may use an offer.
 */
#pragma once
#include <cstddef>
#include <span>

#include "connection.hpp"
#include "deadline.hpp"
#include "kept.hpp"
#include "result.hpp"

namespace peal {

namespace detail {

struct offered;
PEAL_API void keep(offered *) noexcept;
PEAL_API void release(offered *) noexcept;

} // namespace detail

class PEAL_API offer {
public:
	/* What the peer needs. It has no secrets but the key of the region that is shared. */
	static constexpr std::size_t blob_size = 256;
	/* It has blob_size bytes, and none if the offer was moved from. */
	std::span<const std::byte> blob() const &noexcept;
	std::span<const std::byte> blob() const && = delete;

	/*
	 * Returns when both programs have called it with the blob of the other one. The GID is the
	 * one that is closest to an address of the peer, and has a route to it. The MTU is the
	 * smaller one of both ports.
	 *
	 * A blob may come from anybody. After one that is wrong, and if no address of the peer can
	 * be reached, the offer is as before. Otherwise it is for one connection.
	 *
	 * An end that closes tells its peer, as with the connection manager. One that is killed
	 * does not: the next request to it fails, and recv() waits until its deadline.
	 */
	result<connection> connect(std::span<const std::byte> theirs, deadline) noexcept;

private:
	friend class device;

	explicit offer(detail::kept<detail::offered> of) noexcept : of_(std::move(of)) {}

	detail::kept<detail::offered> of_;
};

} // namespace peal
