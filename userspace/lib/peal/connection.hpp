// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A reliable connection to one peer, and the batches of requests that are posted on it.
 *
 * One thread at a time may use a connection, its batches and its messages. Different connections
 * need no lock. No function here allocates or throws, except that librdmacm allocates the one event
 * by which a connection ends.
 */
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "completion.hpp"
#include "deadline.hpp"
#include "memory.hpp"

namespace peal {

namespace co {

class batch;
class loop;

} // namespace co

/* The address of a port, in network order. That of an IPv4 address is ::ffff:10.0.0.1. */
using gid = std::array<std::byte, 16>;

/* How large the queues of a connection are. */
struct options {
	std::uint16_t sends = 128;	    /* requests that have no completion yet */
	std::uint16_t receives = 32;	    /* messages that wait for recv() */
	std::uint32_t receive_bytes = 4096; /* the longest message that the peer may send */
	std::uint16_t inline_bytes = 64; /* the longest data of write_inline() and send_inline() */
};

/*
 * Requests that are posted together, with one doorbell. A batch that is destroyed without a commit
 * posts nothing. Each request that was posted gets one completion, in the order of the requests.
 *
 * A request that cannot be right is not posted, and neither is the rest: commit() says why.
 */
class PEAL_API batch {
public:
	batch(batch &&other) noexcept = default;
	batch &operator=(batch &&) = delete;
	~batch();

	/* The remote part may be longer than the slice. */
	request write(const slice &from, const remote &to) noexcept;
	/* Takes one of the peer's receives, as a send does. */
	request write_imm(const slice &from, const remote &to, std::uint32_t imm) noexcept;
	request read(const slice &into, const remote &from) noexcept;
	request send(const slice &from) noexcept;
	request send_imm(const slice &from, std::uint32_t imm) noexcept;
	request send_imm(std::uint32_t imm) noexcept;

	/* The bytes are copied now, so they need no registered memory, and may go at once. */
	request write_inline(std::span<const std::byte> from, const remote &to) noexcept;
	request send_inline(std::span<const std::byte> from) noexcept;

	/*
	 * 8 bytes of the peer, aligned to 8. `old` gets the value before, and has 8 bytes, too. The
	 * values are in the byte order of the peer's host.
	 */
	request fetch_add(const slice &old, const remote &at, std::uint64_t add) noexcept;
	request compare_swap(const slice &old, const remote &at, std::uint64_t expected,
			     std::uint64_t desired) noexcept;

	/* Posts all requests and empties the batch. */
	status commit() noexcept;
	/*
	 * As above, and waits until these requests and the earlier ones of the connection have
	 * completed. It takes the completions. An error is the first failure, or says that they did
	 * not come in time.
	 */
	status commit(deadline) noexcept;
	/* Empties the batch. */
	void abort() noexcept;
	std::size_t size() const noexcept;

private:
	friend class connection;
	friend class co::batch;

	explicit batch(detail::kept<detail::link>) noexcept;

	detail::kept<detail::link> link_;
	/* Why there is no link. */
	const char *why_ = "the batch or its connection was moved from; use the object that it was "
			   "moved to";
};

/* What to do before the next sleep (connection::arm). */
enum class next_step {
	sleep, /* until fd() is readable */
	take,  /* call take() and recv(0s) until they have nothing, then arm() again */
	close, /* the connection has ended, and there is nothing left to take */
};

class PEAL_API connection {
public:
	/* A connection that was moved from has ended. */
	connection(connection &&) noexcept = default;
	connection &operator=(connection &&other) noexcept
	{
		if (this != &other) {
			close();
			link_ = std::move(other.link_);
		}
		return *this;
	}
	/* Closes. Requests that have no completion yet may or may not have been done. */
	~connection() { close(); }

	/* What the peer shares. It has no bytes if the peer shares nothing. */
	const region &peer() const noexcept;
	/* The MTU of the path in bytes. */
	unsigned mtu() const noexcept;
	/* The two ends of the path. They have only zeros if the path goes by LIDs. */
	const gid &local_gid() const noexcept;
	const gid &peer_gid() const noexcept;
	/* The number of the queue pair, by which "rdma resource show qp" knows it. */
	std::uint32_t qp_number() const noexcept;

	/* One at a time: the commit of a second one fails while the first exists. */
	class batch batch() &noexcept;
	class batch batch() && = delete;

	/*
	 * Waits for the completions of the `count` oldest requests that have none yet. If they do
	 * not come in time, the completions that came are returned, and behind them one that is
	 * false and says why. A later call returns the others.
	 */
	[[nodiscard]] completions wait(std::size_t count, deadline) &noexcept;
	[[nodiscard]] completions wait(std::size_t count, deadline) && = delete;
	/* The completions that are there, without waiting. */
	[[nodiscard]] completions take() &noexcept;
	[[nodiscard]] completions take() && = delete;

	/* The next message. */
	result<message> recv(deadline) noexcept;
	/*
	 * The immediate value of the next message, whose bytes are dropped. A message without one
	 * is left for recv().
	 */
	result<std::uint32_t> recv_imm(deadline) noexcept;

	/*
	 * For epoll and the like, also edge-triggered: sleep until this descriptor is readable, but
	 * only if arm() says so. Do not read from it.
	 */
	int fd() const noexcept;
	next_step arm() noexcept;

	/* Ends the connection. The peer's recv() and arm() say so after what was sent before. */
	void close() noexcept;

private:
	friend class device;
	friend class listener;
	friend class co::loop;

	/* Of a connection that was not moved from. */
	explicit connection(detail::kept<detail::link> link) noexcept : link_(std::move(link)) {}

	detail::kept<detail::link> link_;
};

} // namespace peal
