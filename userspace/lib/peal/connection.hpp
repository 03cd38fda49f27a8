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
#include "options.hpp"
#include "path.hpp"
#include "window.hpp"

namespace peal {

namespace co {

class batch;
class loop;

} // namespace co

class inbox_address;

/* The address of a port, in network order. That of an IPv4 address is ::ffff:10.0.0.1. */
using gid = std::array<std::byte, 16>;

/*
 * Requests that are posted together, with one doorbell. A batch that is destroyed without a commit
 * posts nothing. Each request that was posted gets one completion, in the order of the requests.
 *
 * A request that cannot be right is not posted, and neither is the rest: commit() says why.
 */
class PEAL_API batch {
public:
	batch(batch &&other) noexcept : path_(std::exchange(other.path_, nullptr)), why_(other.why_)
	{
		other.why_ = moved;
	}
	batch &operator=(batch &&) = delete;
	/* Inlined also where an exception ends it, so that the batch needs no place in memory. */
	[[gnu::always_inline]] ~batch()
	{
		if (path_)
			path_->close_batch();
	}

	/* The remote part may be longer than the slice. */
	[[gnu::always_inline]] request write(const slice &from, const remote &to) noexcept
	{
		return add({.opcode = PEAL_OP_WRITE,
			    .needed = rights::write,
			    .local = detail::address_of(from),
			    .part = detail::address_of(to)});
	}
	/* Takes one of the peer's receives, as a send does. */
	[[gnu::always_inline]] request write_imm(const slice &from, const remote &to,
						 std::uint32_t imm) noexcept
	{
		return add({.opcode = PEAL_OP_WRITE_IMM,
			    .needed = rights::write,
			    .imm = imm,
			    .local = detail::address_of(from),
			    .part = detail::address_of(to)});
	}
	[[gnu::always_inline]] request read(const slice &into, const remote &from) noexcept
	{
		return add({.opcode = PEAL_OP_READ,
			    .needed = rights::read,
			    .local = detail::address_of(into),
			    .part = detail::address_of(from)});
	}
	[[gnu::always_inline]] request send(const slice &from) noexcept
	{
		return add({.opcode = PEAL_OP_SEND, .local = detail::address_of(from)});
	}
	[[gnu::always_inline]] request send_imm(const slice &from, std::uint32_t imm) noexcept
	{
		return add({.opcode = PEAL_OP_SEND_IMM,
			    .imm = imm,
			    .local = detail::address_of(from)});
	}
	[[gnu::always_inline]] request send_imm(std::uint32_t imm) noexcept
	{
		return add({.opcode = PEAL_OP_SEND_IMM, .imm = imm});
	}

	/* The bytes are copied now, so they need no registered memory, and may go at once. */
	[[gnu::always_inline]] request write_inline(std::span<const std::byte> from,
						    const remote &to) noexcept
	{
		return add({.opcode = PEAL_OP_WRITE,
			    .needed = rights::write,
			    .bytes = from,
			    .part = detail::address_of(to)});
	}
	[[gnu::always_inline]] request send_inline(std::span<const std::byte> from) noexcept
	{
		return add({.opcode = PEAL_OP_SEND, .bytes = from});
	}

	/*
	 * 8 bytes of the peer, aligned to 8. `old` gets the value before, and has 8 bytes, too. The
	 * values are in the byte order of the peer's host.
	 */
	[[gnu::always_inline]] request fetch_add(const slice &old, const remote &at,
						 std::uint64_t value) noexcept
	{
		return add({.opcode = PEAL_OP_FETCH_ADD,
			    .needed = rights::atomic,
			    .local = detail::address_of(old),
			    .part = detail::address_of(at),
			    .compare_add = value});
	}
	[[gnu::always_inline]] request compare_swap(const slice &old, const remote &at,
						    std::uint64_t expected,
						    std::uint64_t desired) noexcept
	{
		return add({.opcode = PEAL_OP_CMP_SWAP,
			    .needed = rights::atomic,
			    .local = detail::address_of(old),
			    .part = detail::address_of(at),
			    .compare_add = expected,
			    .swap = desired});
	}

	/*
	 * Lets the peer do what `given` says to these bytes, and nothing else of their memory,
	 * which must be `bindable`. window::share() returns the lease at once, so that the same
	 * batch can send it. A window is bound once in a batch.
	 */
	request bind(window &, const slice &to, rights given) noexcept;
	/*
	 * Takes the lease back. When this has completed, requests of the peer that come later fail.
	 * If the peer gives the window back at the same time, a device may refuse this, and then
	 * the connection ends. To destroy the window never fails.
	 */
	request invalidate(window &) noexcept;
	/* Sends, and gives a lease of the peer back by the same message. The lease is then empty.
	 */
	request send_invalidate(const slice &from, lease &) noexcept;
	request send_invalidate(lease &) noexcept;

	/* The requests that are added afterwards go to this inbox (transport::xrc). */
	void to(const inbox_address &) noexcept;

	/* Posts all requests and empties the batch. */
	[[gnu::always_inline]] status commit() noexcept
	{
		if (!path_) [[unlikely]]
			return no_path(why_);
		return path_->commit();
	}
	/*
	 * As above, and waits until these requests and the earlier ones of the connection have
	 * completed. It takes the completions. An error is the first failure, or says that they did
	 * not come in time.
	 */
	status commit(deadline) noexcept;
	/* Empties the batch. */
	void abort() noexcept;
	std::size_t size() const noexcept { return path_ ? path_->batch_size() : 0; }

private:
	friend class connection;
	friend class co::batch;

	static constexpr const char *moved = "the batch or its connection was moved from; use the "
					     "object that it was moved to";
	static constexpr const char *second = "another batch of the connection exists; commit it "
					      "and let it go first";

	explicit batch(detail::path *of) noexcept
	{
		if (!of)
			return;
		if (of->batch_open) {
			why_ = second;
			return;
		}
		of->batch_open = true;
		path_ = of;
	}

	[[gnu::always_inline]] request add(const detail::operation &of) noexcept
	{
		return path_ ? path_->add(of) : request::none;
	}
	static status no_path(const char *why) noexcept;

	/* The batch keeps it by batch_open, also without a connection. */
	detail::path *path_ = nullptr;
	/* Why there is none. */
	const char *why_ = moved;
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
			path_ = std::move(other.path_);
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
	class batch batch() &noexcept { return peal::batch(path_.get()); }
	class batch batch() && = delete;
	/* To lend the peer parts of memory. It is not bound yet. An unreliable one has none. */
	result<class window> window() noexcept;

	/*
	 * Waits for the completions of the `count` oldest requests that have none yet. If they do
	 * not come in time, the completions that came are returned, and behind them one that is
	 * false and says why. A later call returns the others.
	 */
	[[nodiscard, gnu::always_inline]] completions wait(std::size_t count,
							   const deadline &until) &noexcept
	{
		detail::path *const of = path_.get();

		if (of && of->collect(count)) [[likely]]
			return of->give(count);
		return wait_slowly(count, until);
	}
	/* The clock is read only if they are not there yet. */
	template <class Rep, class Period>
	[[nodiscard]] completions wait(std::size_t count,
				       std::chrono::duration<Rep, Period> from_now) &noexcept
	{
		detail::path *const of = path_.get();

		if (of && of->collect(count)) [[likely]]
			return of->give(count);
		return wait_slowly(count, from_now);
	}
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
	friend class offer;
	friend class co::loop;

	/* Of a connection that was not moved from. */
	explicit connection(detail::kept<detail::path> path) noexcept : path_(std::move(path)) {}

	completions wait_slowly(std::size_t count, deadline) noexcept;

	detail::kept<detail::path> path_;
};

} // namespace peal
