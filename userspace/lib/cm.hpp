// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The connection manager with deadlines: names, and events of a channel. It does not know what a
 * connection does with them.
 *
 * These coroutines wait in the event loop that they are given. Without one they block and never
 * suspend, so that connecting is written once.
 */
#pragma once
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <vector>

#include "peal/co.hpp"

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
	/* Of RDMA_CM_EVENT_MULTICAST_JOIN: the address of the group, without private data. */
	rdma_ud_param group{};
};

bool make_nonblocking(int fd) noexcept;
/* Makes an epoll readable by what makes the descriptor readable. */
bool watch(int epoll, int fd) noexcept;

/* A channel whose events can be waited for, or null with errno. */
rdma_event_channel *make_event_channel() noexcept;

/* The next event, or ETIMEDOUT. */
co::task<result<cm_event>> next_event(const kept<event_loop> &, rdma_event_channel *,
				      deadline) noexcept;

/* The addresses of the host, with the port. */
co::task<result<std::vector<sockaddr_storage>>> look_up(const kept<event_loop> &, const char *host,
							std::uint16_t port, deadline) noexcept;

} // namespace peal::detail
