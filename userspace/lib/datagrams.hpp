// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A queue pair for datagrams (UD) with its queues and buffers. It does not know how an address is
 * found, for example by a group's connection manager (group.cpp).
 */
#pragma once
#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <optional>
#include <span>

#include "context.hpp"
#include "peal/deadline.hpp"
#include "peal/group.hpp"

namespace peal::detail {

/* Where a datagram goes. */
struct destination {
	ibv_ah *ah;
	std::uint32_t qp_number;
	std::uint32_t qkey;
};

struct datagrams {
	std::atomic<unsigned> users{1};
	kept<context> device;
	ibv_comp_channel *channel = nullptr;
	ibv_cq *send_cq = nullptr;
	ibv_cq *recv_cq = nullptr;
	ibv_qp *qp = nullptr;
	std::uint32_t longest = 0;
	/* Where a datagram goes that is for all, in a group. */
	destination all{};
	/* Each place has the header and a datagram. The first is for the one that is sent. */
	kept<block> buffers;
	std::uint32_t receives = 0;
	bool is_sending = false;
	/* Why nothing more will come. */
	const char *ended = nullptr;
	/* Of the headers of all datagrams. If it is AF_UNSPEC, each header tells. */
	int family = AF_UNSPEC;
	/* A descriptor that is readable when look() has something to see. */
	int watched = -1;
	/* Readable when something may have come, after arm(). Without one, `channel` is. */
	int epoll = -1;

	datagrams() = default;
	datagrams(const datagrams &) = delete;
	virtual ~datagrams();

	/* `longest` is known. */
	status make_queues(std::uint32_t receives, bool with_epoll = true) noexcept;
	/* To RTS. The receives are posted before the first datagram can come. */
	status start(std::uint8_t port, std::uint32_t qkey) noexcept;
	/* The device writes to no buffer afterwards. */
	void stop() noexcept;
	void post_receive(std::uint32_t place) noexcept;
	status send(const destination &, std::span<const std::byte>, const deadline &) noexcept;
	/* Posts one, if none is being sent. `is_sending` says that it has not completed. */
	status post(const destination &, std::span<const std::byte>) noexcept;
	result<datagram> recv(const deadline &, std::uint32_t *from_qp = nullptr) noexcept;
	next_step arm() noexcept;

	/* These do not wait. If they find nothing, it may have ended. */
	bool take_received(received &) noexcept;
	bool take_sent() noexcept;
	datagram made_datagram(const received &) noexcept;
	void drain_channel() noexcept;
	/* Sees whether something else has ended it. */
	virtual void look() noexcept {}

private:
	/* What arm() has found, for the next recv(). */
	std::optional<received> found_;

	std::uint32_t place_size() const noexcept;
	std::byte *place(std::uint32_t i) const noexcept;
	bool take(ibv_cq *, ibv_wc &) noexcept;
	/* Waits for one of these to find something. */
	status wait_received(received &, const deadline &) noexcept;
	status wait_sent(const deadline &) noexcept;
	template <class Take>
	status wait(ibv_cq *, const deadline &, const char *late, Take) noexcept;
};

} // namespace peal::detail
