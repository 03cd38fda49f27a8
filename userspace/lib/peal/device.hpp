// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A device, and what it makes: memory, listeners, connections and groups. The connection manager
 * chooses the port, the GID and the MTU by the route to the peer.
 *
 * Any thread may call these functions at any time. Nothing that a device made ends with it.
 */
#pragma once
#include <cstddef>
#include <cstdint>

#include "connection.hpp"
#include "deadline.hpp"
#include "endpoint.hpp"
#include "group.hpp"
#include "kept.hpp"
#include "memory.hpp"
#include "offer.hpp"
#include "result.hpp"
#include "shared_receives.hpp"
#include "xrc.hpp"

namespace peal {

namespace detail {

struct context;
PEAL_API void keep(context *) noexcept;
PEAL_API void release(context *) noexcept;

struct listening;
PEAL_API void keep(listening *) noexcept;
PEAL_API void release(listening *) noexcept;

} // namespace detail

/* Accepts peers on a port of the connection manager. One thread at a time may use it. */
class PEAL_API listener {
public:
	std::uint16_t port() const noexcept;
	/*
	 * The next peer. It gets `mine`, and peer() of the connection is what it shares. A peer
	 * that goes away or is refused while it connects ends nothing: the call waits for another
	 * one until the deadline. One peer may take half of the time that is left, at most 10 s.
	 */
	result<connection> accept(const region &mine, deadline, const options & = {}) noexcept;

private:
	friend class device;
	friend class co::loop;

	explicit listener(detail::kept<detail::listening> listening) noexcept
		: listening_(std::move(listening))
	{
	}

	detail::kept<detail::listening> listening_;
};

class device;

/* The device of this name, as ibv_devices prints it, or the first whose port is up. */
PEAL_API result<device> open(const char *name = nullptr) noexcept;
/* The device by which this host reaches `host`, a name or an address, as connect() would. */
PEAL_API result<device> open_for(const char *host, deadline) noexcept;

class PEAL_API device {
public:
	/* A device that was moved from makes nothing. */
	device(device &&) noexcept = default;
	device &operator=(device &&) noexcept = default;
	device(const device &) = delete;
	device &operator=(const device &) = delete;

	const char *name() const noexcept;
	/* Whether it executes the atomics of peers and of this program. */
	bool has_atomics() const noexcept;
	/* Whether it has XRC domains (device::xrc_domain). */
	bool has_xrc() const noexcept;
	/* Whether it has memory windows of type 2 (connection::window). */
	bool has_windows() const noexcept;

	/* `count` objects of T, of which a peer may do what `given` says. */
	template <class T>
	result<memory<T>> alloc(std::size_t count, rights given = rights::none) noexcept
	{
		auto made = detail::make_block(context_.get(), count, sizeof(T), given);

		if (!made)
			return made.failure();
		return memory<T>(std::move(made).value());
	}

	/*
	 * Connects to a program that accepts on this port. `host` is a name or an address. The peer
	 * gets `mine`, and peer() of the connection is what it shares. The deadline also covers the
	 * look-up of the name.
	 */
	result<connection> connect(const char *host, std::uint16_t port, const region &mine,
				   deadline, const options & = {}) noexcept;
	/* One peer, of any address. The port is free again afterwards. */
	result<connection> accept(std::uint16_t port, const region &mine, deadline,
				  const options & = {}) noexcept;
	/*
	 * Joins a multicast group, for example 239.1.2.3, on the first port that is up and has an
	 * address of this family. So many datagrams may wait for recv().
	 */
	result<group> join(const char *address, deadline, std::uint16_t receives = 128) noexcept;
	/* For datagrams to single peers. So many may wait for recv(). */
	result<class endpoint> endpoint(std::uint16_t receives = 128) noexcept;
	/* To connect without the connection manager, by a blob. The peer gets `mine`. */
	result<class offer> offer(const region &mine, const options & = {}) noexcept;
	/* Receives for many connections of this device (options::shared). */
	result<shared_receives> share_receives(std::uint16_t count,
					       std::uint32_t bytes = 4096) noexcept;
	/*
	 * The XRC domain that the processes of this host know by this file, which is made if it
	 * does not exist. The file system tells who may open it.
	 */
	result<class xrc_domain> xrc_domain(const char *file) noexcept;
	/* Port 0 takes any free port. */
	result<listener> listen(std::uint16_t port) noexcept;

private:
	friend result<device> open(const char *name) noexcept;
	friend class co::loop;

	explicit device(detail::kept<detail::context> context) noexcept
		: context_(std::move(context))
	{
	}

	detail::kept<detail::context> context_;
};

} // namespace peal
