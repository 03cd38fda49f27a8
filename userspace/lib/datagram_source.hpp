// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A group or an endpoint in an event loop, with the coroutines that send and receive its datagrams.
 * It does not know its queue pair (datagrams.hpp). Only make() allocates.
 */
#pragma once
#include "datagrams.hpp"
#include "loop.hpp"

namespace peal::detail {

/* Where an address handle leads (endpoint.cpp), or without one, the group. */
destination destination_of(const datagrams &, const reachable *) noexcept;

struct datagram_source final : source {
	/* Its descriptors. The other one says that a group has ended. */
	enum descriptor : unsigned { of_queues, of_watched };

	std::atomic<unsigned> users{1};
	const kept<datagrams> of;
	const kept<event_loop> loop;
	/* Coroutines that wait until the datagram before theirs has been sent. */
	list_node senders;
	/* Coroutines that wait for a datagram. */
	list_node receivers;

	datagram_source(kept<datagrams>, kept<event_loop>) noexcept;
	datagram_source(const datagram_source &) = delete;
	~datagram_source() { close(); }

	/* From here on the loop watches it. */
	static result<kept<datagram_source>> make(kept<datagrams>,
						  const kept<event_loop> &) noexcept;
	/* Ends what waits. */
	void close() noexcept;
	/* One that its receiver does not want any more goes to the next one that waits. */
	void put_back(const received &) noexcept;
	/* Posts it, if no other one is being sent. */
	void post(co::sending_datagram &) noexcept;
	void forget(const co::sending_datagram &) noexcept;

	void on_readable(unsigned which) noexcept override;
	void look() noexcept override;
	void arm() noexcept override;

private:
	bool is_watched_ = false;
	bool send_armed_ = false, recv_armed_ = false;
	const char *ended_ = nullptr;
	/* The coroutine whose datagram is being sent, if it still waits, and the address. */
	co::sending_datagram *sender_ = nullptr;
	kept<reachable> to_;
	/* What was put back. There are as many places as receives. */
	std::unique_ptr<received[]> returned_;
	std::uint32_t returned_count_ = 0;

	bool take(received &) noexcept;
	/* Whether a coroutine waits until the datagram has been sent. */
	bool awaits_sent() const noexcept
	{
		return of->is_sending && (sender_ || !senders.empty());
	}
	void leave_loop() noexcept;
};

} // namespace peal::detail
