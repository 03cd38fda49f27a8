// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connections, groups and endpoints for coroutines: co_await waits for a request, a message or a
 * datagram, and meanwhile the event loop runs other coroutines. An operation allocates nothing and
 * throws nothing.
 *
 * A loop, its coroutines and its connections, groups and endpoints belong to one thread at a time.
 */
#pragma once
#include "device.hpp"
#include "task.hpp"

namespace peal {

namespace detail {

PEAL_API void keep(event_loop *) noexcept;
PEAL_API void release(event_loop *) noexcept;

struct datagram_source;
PEAL_API void keep(datagram_source *) noexcept;
PEAL_API void release(datagram_source *) noexcept;

/* A request that may have to wait until the queue has room. */
struct posting {
	operation what{}; /* without pointers */
	std::optional<slice> local{};
	std::optional<remote> part{};
};

/* Base of what waits for a message. */
struct PEAL_API receiver : waiter {
	kept<link> from;
	deadline until;
	const bool wants_imm;
	bool has_arrived = false;
	arrival came{};
	const char *why = nullptr;
	int code = 0;

	receiver(kept<link>, const deadline &, bool for_imm) noexcept;

	bool await_ready() noexcept;
	void await_suspend(std::coroutine_handle<> by) noexcept { suspend(by, until); }
	void give_up() noexcept override;
	void fail(int, const char *sentence) noexcept;

protected:
	~receiver();
};

} // namespace detail

namespace co {

/*
 * Requests that were posted, or that wait for room in the queue. co_await returns how they ended:
 * the first failure, or else the last completion. If that takes longer than the deadline, the
 * completion says so, but the request may still be done.
 *
 * It may be destroyed at any time. Requests that were posted are done nevertheless, and the memory
 * of their slices stays until the device has finished with it, also if its owner has gone.
 */
class [[nodiscard]] PEAL_API sending final : public detail::waiter {
public:
	sending(const sending &) = delete;
	~sending();

	bool await_ready() noexcept;
	void await_suspend(std::coroutine_handle<> by) noexcept { suspend(by, until_); }
	completion await_resume() const noexcept { return ended_; }

private:
	friend class batch;
	friend class connection;
	friend struct detail::link;

	/* Posts it, or waits for room. */
	sending(detail::kept<detail::link>, const detail::posting &, const deadline &) noexcept;
	/* Posts the batch that the link has. */
	sending(detail::kept<detail::link>, const char *why, const deadline &) noexcept;

	void give_up() noexcept override;
	void fail(const char *why) noexcept;
	void post() noexcept;

	detail::kept<detail::link> to_;
	detail::posting what_;
	/* Keeps the memory while the request waits for room. */
	detail::kept<detail::block> local_;
	deadline until_;
	std::uint32_t left_ = 0;
	completion ended_;
};

/* The next message. co_await returns a result<message>. It may be awaited again for later ones. */
class [[nodiscard]] PEAL_API receiving final : public detail::receiver {
public:
	receiving(const receiving &) = delete;
	result<message> await_resume() noexcept;

private:
	friend class connection;
	receiving(detail::kept<detail::link> link, const deadline &by) noexcept
		: receiver(std::move(link), by, false)
	{
	}
};

/* The immediate value of the next message. co_await returns a result<std::uint32_t>. */
class [[nodiscard]] PEAL_API receiving_imm final : public detail::receiver {
public:
	receiving_imm(const receiving_imm &) = delete;
	result<std::uint32_t> await_resume() noexcept;

private:
	friend class connection;
	receiving_imm(detail::kept<detail::link> link, const deadline &by) noexcept
		: receiver(std::move(link), by, true)
	{
	}
};

/* Requests that are posted together, with one doorbell. They must all fit into the queue. */
class PEAL_API batch : private peal::batch {
public:
	using peal::batch::abort;
	using peal::batch::bind;
	using peal::batch::compare_swap;
	using peal::batch::fetch_add;
	using peal::batch::invalidate;
	using peal::batch::read;
	using peal::batch::send;
	using peal::batch::send_imm;
	using peal::batch::send_inline;
	using peal::batch::send_invalidate;
	using peal::batch::size;
	using peal::batch::to;
	using peal::batch::write;
	using peal::batch::write_imm;
	using peal::batch::write_inline;

	/* Posts all requests. Nothing can be added afterwards. */
	sending commit(deadline) noexcept;

private:
	friend class connection;
	explicit batch(detail::path *of) noexcept : peal::batch(of) {}
};

/*
 * A connection of an event loop. Several coroutines may use it. Their requests are posted in the
 * order of the calls, and messages are given to them in the order in which they began to wait.
 *
 * A request is posted by the call. co_await waits for its end. If the queue has no room, the
 * request waits for room. The bytes of an inline request must stay until co_await returns.
 */
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
	/* Closes. Coroutines that wait for it are told. */
	~connection() { close(); }

	/* What the peer shares. It has no bytes if the peer shares nothing. */
	const region &peer() const noexcept;
	/* The MTU of the path in bytes. */
	unsigned mtu() const noexcept;

	/* As those of peal::batch. */
	sending write(const slice &from, const remote &to, deadline) noexcept;
	sending write_imm(const slice &from, const remote &to, std::uint32_t imm,
			  deadline) noexcept;
	sending read(const slice &into, const remote &from, deadline) noexcept;
	sending send(const slice &from, deadline) noexcept;
	sending send_imm(const slice &from, std::uint32_t imm, deadline) noexcept;
	sending send_imm(std::uint32_t imm, deadline) noexcept;
	sending write_inline(std::span<const std::byte> from, const remote &to, deadline) noexcept;
	sending send_inline(std::span<const std::byte> from, deadline) noexcept;
	sending fetch_add(const slice &old, const remote &at, std::uint64_t add, deadline) noexcept;
	sending compare_swap(const slice &old, const remote &at, std::uint64_t expected,
			     std::uint64_t desired, deadline) noexcept;

	/*
	 * One at a time: the commit of a second one fails while the first exists and has no commit.
	 * Other requests wait until then.
	 */
	class batch batch() &noexcept;
	class batch batch() && = delete;
	/* As that of peal::connection. */
	result<class window> window() noexcept;

	receiving recv(deadline) noexcept;
	/* A message without an immediate value is an error, and is left for recv(). */
	receiving_imm recv_imm(deadline) noexcept;

	/* Ends the connection, and what waits for it. */
	void close() noexcept;

private:
	friend class loop;
	friend class listener;

	explicit connection(detail::kept<detail::link> link) noexcept : link_(std::move(link)) {}

	detail::kept<detail::link> link_;
};

/* Accepts peers on a port of the connection manager. */
class PEAL_API listener {
public:
	std::uint16_t port() const noexcept;
	/*
	 * The next peer, as peal::listener::accept. Each coroutine that waits in it deals with one
	 * peer at a time, so several of them accept peers side by side.
	 */
	task<result<connection>> accept(region mine, deadline, options = {}) noexcept;

private:
	friend class loop;

	listener(detail::kept<detail::listening> listening,
		 detail::kept<detail::event_loop> in) noexcept
		: listening_(std::move(listening)), in_(std::move(in))
	{
	}

	detail::kept<detail::listening> listening_;
	detail::kept<detail::event_loop> in_;
};

/*
 * A datagram that was posted, or that waits for the one before it. co_await returns a status when
 * the device has sent it. The bytes must stay until then. It may be destroyed at any time: a
 * datagram that was posted is sent nevertheless, from a buffer of the group or the endpoint.
 */
class [[nodiscard]] PEAL_API sending_datagram final : public detail::waiter {
public:
	sending_datagram(const sending_datagram &) = delete;
	~sending_datagram();

	bool await_ready() noexcept;
	void await_suspend(std::coroutine_handle<> by) noexcept { suspend(by, until_); }
	status await_resume() const noexcept;

private:
	friend class endpoint;
	friend class group;
	friend struct detail::datagram_source;

	sending_datagram(detail::kept<detail::datagram_source>, detail::kept<detail::reachable>,
			 const error *refused, std::span<const std::byte>,
			 const deadline &) noexcept;

	void begin() noexcept;
	void give_up() noexcept override;
	void fail(int code, const char *why) noexcept;

	detail::kept<detail::datagram_source> by_;
	detail::kept<detail::reachable> to_;
	std::span<const std::byte> bytes_;
	deadline until_;
	std::optional<error> why_;
};

/*
 * The next datagram. co_await returns a result<datagram>. It may be awaited again for later ones.
 * One that came for it when it is destroyed goes to the next that waits.
 */
class [[nodiscard]] PEAL_API receiving_datagram final : public detail::waiter {
public:
	receiving_datagram(const receiving_datagram &) = delete;
	~receiving_datagram();

	bool await_ready() noexcept;
	void await_suspend(std::coroutine_handle<> by) noexcept { suspend(by, until_); }
	result<datagram> await_resume() noexcept;

private:
	friend class endpoint;
	friend class group;
	friend struct detail::datagram_source;

	receiving_datagram(detail::kept<detail::datagram_source>, const deadline &) noexcept;

	void take(const detail::received &) noexcept;
	void give_up() noexcept override;
	void fail(int code, const char *why) noexcept;

	detail::kept<detail::datagram_source> from_;
	deadline until_;
	std::optional<detail::received> came_;
	int code_ = 0;
	const char *why_ = nullptr;
};

/*
 * A multicast group of an event loop. Several coroutines may use it. Datagrams are sent in the
 * order of the calls, and are given to the coroutines in the order in which they began to wait.
 */
class PEAL_API group {
public:
	/* A group that was moved from neither sends nor receives. */
	group(group &&) noexcept = default;
	group &operator=(group &&other) noexcept
	{
		if (this != &other) {
			close();
			source_ = std::move(other.source_);
		}
		return *this;
	}
	/* Coroutines that wait for it are told. */
	~group() { close(); }

	/* As those of peal::group. */
	std::size_t longest() const noexcept;
	sending_datagram send(std::span<const std::byte>, deadline) noexcept;
	sending_datagram send(std::string_view text, deadline until) noexcept
	{
		return send(std::as_bytes(std::span(text)), until);
	}
	receiving_datagram recv(deadline) noexcept;

	/* Ends what waits for it. */
	void close() noexcept;

private:
	friend class loop;

	explicit group(detail::kept<detail::datagram_source> source) noexcept
		: source_(std::move(source))
	{
	}

	detail::kept<detail::datagram_source> source_;
};

/* An endpoint of an event loop. Several coroutines may use it, as a group. */
class PEAL_API endpoint {
public:
	/* An endpoint that was moved from neither sends nor receives. */
	endpoint(endpoint &&) noexcept = default;
	endpoint &operator=(endpoint &&other) noexcept
	{
		if (this != &other) {
			close();
			source_ = std::move(other.source_);
		}
		return *this;
	}
	/* Coroutines that wait for it are told. */
	~endpoint() { close(); }

	/* As those of peal::endpoint. */
	std::span<const std::byte> blob() const &noexcept;
	std::span<const std::byte> blob() const && = delete;
	result<address_handle> reach(std::span<const std::byte> blob) noexcept;
	sending_datagram send(const address_handle &to, std::span<const std::byte>,
			      deadline) noexcept;
	sending_datagram send(const address_handle &to, std::string_view text,
			      deadline until) noexcept
	{
		return send(to, std::as_bytes(std::span(text)), until);
	}
	receiving_datagram recv(deadline) noexcept;

	/* Ends what waits for it. */
	void close() noexcept;

private:
	friend class loop;

	explicit endpoint(detail::kept<detail::datagram_source> source) noexcept
		: source_(std::move(source))
	{
	}

	detail::kept<detail::datagram_source> source_;
};

/* Waits until a descriptor is readable. co_await returns a status. */
class [[nodiscard]] PEAL_API readable final : public detail::waiter {
public:
	/* Without a loop it blocks. */
	readable(detail::kept<detail::event_loop>, int fd, const deadline &) noexcept;
	readable(const readable &) = delete;
	~readable();

	bool await_ready() noexcept;
	void await_suspend(std::coroutine_handle<>) noexcept;
	status await_resume() noexcept;

private:
	friend struct detail::event_loop;

	void give_up() noexcept override;
	void fail(int code) noexcept;

	detail::kept<detail::event_loop> keeps_;
	int fd_;
	deadline until_;
	int code_ = 0;
};

/* Waits until a time. co_await returns nothing. */
class [[nodiscard]] PEAL_API sleeping final : public detail::waiter {
public:
	sleeping(const sleeping &) = delete;
	~sleeping() { leave(); }

	bool await_ready() const noexcept { return false; }
	void await_suspend(std::coroutine_handle<> by) noexcept { suspend(by, until_); }
	void await_resume() const noexcept {}

private:
	friend class loop;

	sleeping(detail::kept<detail::event_loop> loop, const deadline &until) noexcept
		: waiter(loop.get()), keeps_(std::move(loop)), until_(until)
	{
	}
	void give_up() noexcept override { wake(); }

	detail::kept<detail::event_loop> keeps_;
	deadline until_;
};

/* A coroutine that ends at the latest when its job is destroyed. It must not destroy its own job.
 */
class [[nodiscard]] PEAL_API job {
public:
	job(job &&) noexcept;
	job &operator=(job &&) noexcept;
	~job();

	bool has_ended() const noexcept { return !root_; }

private:
	friend class loop;
	friend struct detail::event_loop;

	explicit job(detail::root *) noexcept;

	detail::root *root_;
};

/*
 * Runs coroutines, and sleeps while all of them wait. When it is destroyed it destroys those that
 * have not ended.
 */
class PEAL_API loop {
public:
	loop(loop &&) noexcept = default;
	loop &operator=(loop &&other) noexcept
	{
		if (this != &other) {
			end();
			state_ = std::move(other.state_);
		}
		return *this;
	}
	~loop() { end(); }

	/* run() runs the coroutine to its end. An error means that it was not started. */
	status spawn(task<>) noexcept;
	/* As above, but the owner of the job may end the coroutine earlier. */
	result<job> start(task<>) noexcept;
	/*
	 * Runs coroutines until all have ended, or stop() was called. At the deadline it returns an
	 * error, and a later run() goes on.
	 */
	status run(deadline) noexcept;
	/* Ends run() when the coroutine that calls this waits the next time. */
	void stop() noexcept;

	/* Port 0 takes any free port. */
	result<listener> listen(device &, std::uint16_t port) noexcept;
	/* As device::connect. `host` must stay until the end. */
	task<result<connection>> connect(device &, const char *host, std::uint16_t port,
					 region mine, deadline, options = {}) noexcept;
	/* Takes over a connection that has no request on its way, and no batch. */
	result<connection> adopt(peal::connection &&) noexcept;
	/* As device::join. `address` must stay until the end. */
	task<result<group>> join(device &, const char *address, deadline,
				 std::uint16_t receives = 128) noexcept;
	/* Takes over a group or an endpoint. It ends if this fails. */
	result<group> adopt(peal::group &&) noexcept;
	result<endpoint> adopt(peal::endpoint &&) noexcept;

	sleeping sleep(deadline) noexcept;
	/* Of any descriptor that epoll knows. */
	readable wait_readable(int fd, deadline) noexcept;

private:
	friend result<loop> make_loop() noexcept;

	explicit loop(detail::kept<detail::event_loop> state) noexcept : state_(std::move(state)) {}
	void end() noexcept;

	detail::kept<detail::event_loop> state_;
};

PEAL_API result<loop> make_loop() noexcept;

} // namespace co
} // namespace peal
