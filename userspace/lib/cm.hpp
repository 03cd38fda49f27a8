// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The connection manager with deadlines: names, and events of a channel. It does not know what a
 * connection does with them.
 */
#pragma once
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <vector>

#include "peal/deadline.hpp"
#include "peal/result.hpp"

namespace peal::detail {

/* A copy, so that the event can be acknowledged at once. */
struct cm_event {
	rdma_cm_event_type type{};
	int status = 0;
	rdma_cm_id *id = nullptr;
	std::uint8_t private_data[256] = {};
	std::uint8_t private_data_len = 0;
	std::uint8_t initiator_depth = 0;
	std::uint8_t responder_resources = 0;
};

bool make_nonblocking(int fd) noexcept;

/* A channel whose events can be waited for, or null with errno. */
rdma_event_channel *make_event_channel() noexcept;

/* The next event, or ETIMEDOUT. */
result<cm_event> next_event(rdma_event_channel *, const deadline &) noexcept;

/* The addresses of the host, with the port. */
result<std::vector<sockaddr_storage>> look_up(const char *host, std::uint16_t port,
					      const deadline &) noexcept;

} // namespace peal::detail
