// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A shared receive queue and its buffers. Each buffer is either posted, or belongs to a message of
 * one connection. It does not know the connections.
 */
#pragma once
#include <infiniband/verbs.h>

#include "context.hpp"

namespace peal::detail {

struct receive_pool {
	std::atomic<unsigned> users{1};
	kept<context> device;
	ibv_srq *srq = nullptr;
	kept<block> buffers;
	std::uint16_t count = 0;
	std::uint32_t bytes = 0;

	receive_pool() = default;
	receive_pool(const receive_pool &) = delete;
	~receive_pool();

	/* With a domain the receives complete in this queue, and not in those of queue pairs. */
	status make(std::uint16_t count, std::uint32_t bytes, ibv_xrcd *domain = nullptr,
		    ibv_cq *cq = nullptr) noexcept;
	/* Any thread may call it, because libibverbs locks the queue. Returns 0 or an errno. */
	int post(std::uint32_t buffer) noexcept;
};

} // namespace peal::detail
