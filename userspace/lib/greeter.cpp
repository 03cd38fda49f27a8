// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* See greeter.hpp. */
#include "greeter.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>

namespace peal::detail {

namespace {

constexpr std::uint32_t greeting_receives = 16;
/* The least MTU. */
constexpr std::uint32_t greeting_bytes = 256;
constexpr auto greeting_interval = std::chrono::milliseconds(20);
/* How long a peer that is ready gets to say that it has heard this end. */
constexpr auto greeting_grace = std::chrono::seconds(1);
constexpr auto farewell_patience = std::chrono::milliseconds(100);
/* The network may lose some, and no answer comes. */
constexpr int farewells = 3;
constexpr std::uint64_t farewell_magic = 0x6661726577656c6c; /* "farewell" */

struct greeting_on_wire {
	std::uint64_t nonce; /* of the blob of the end that is to get it */
	std::uint8_t has_heard;
	std::uint8_t reserved[7];
};

/* Its length tells it from a greeting. */
struct farewell_on_wire {
	std::uint64_t nonce; /* of the blob of the end that is to get it */
	std::uint64_t own_nonce;
	std::uint64_t magic; /* in big-endian order */
};

} // namespace

void keep(greeter *of) noexcept
{
	keep(static_cast<datagrams *>(of));
}

void release(greeter *of) noexcept
{
	release(static_cast<datagrams *>(of));
}

greeter::~greeter()
{
	stop();
	if (to_.ah)
		ibv_destroy_ah(to_.ah);
}

status greeter::make_queues() noexcept
{
	longest = greeting_bytes;
	return datagrams::make_queues(greeting_receives, false);
}

status greeter::start(const end_point &mine, const end_point &theirs, const route &by) noexcept
{
	constexpr std::uint8_t four[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	ibv_ah_attr attr = by.attr();

	nonce_ = mine.wire.nonce;
	peer_nonce_ = theirs.wire.nonce;
	std::memcpy(peer_.data(), &by.theirs.gid, sizeof(by.theirs.gid));
	family = std::memcmp(&by.theirs.gid, four, sizeof(four)) ? AF_INET6 : AF_INET;
	if (status done = datagrams::start(by.mine.port, be32toh(mine.wire.qkey)); !done)
		return done;
	to_ = {ibv_create_ah(device->pd, &attr), be32toh(theirs.wire.datagram_qp),
	       be32toh(theirs.wire.qkey)};
	if (!to_.ah)
		return error::make(errno,
				   "%s makes no address of the peer: %s; see whether the peer's "
				   "host answers to ping",
				   device->name(), strerrordesc_np(errno));
	return {};
}

/*
 * Repeats greetings until both ends know that both are ready. The peer may know it earlier and be
 * gone then, so an end that has heard the peer waits for a limited time only.
 */
status greeter::greet(const deadline &until) noexcept
{
	greeting_on_wire greeting{.nonce = peer_nonce_, .has_heard = 0, .reserved = {}};
	deadline grace = deadline::never();
	bool was_heard = false;

	for (;;) {
		const deadline next = deadline::clock::now() + greeting_interval;

		if (status sent = send(to_, std::as_bytes(std::span(&greeting, 1)), until); !sent)
			return sent;
		if (greeting.has_heard && (was_heard || grace.passed() || until.passed()))
			return {};
		if (until.passed())
			return error::make(ETIMEDOUT,
					   "the peer has not connected in time; see whether it has "
					   "this program's blob, and whether a firewall drops UDP "
					   "port 4791");
		std::uint32_t from_qp = 0;
		auto came = recv(std::min(next.at(), until.at()), &from_qp);
		if (!came && came.code() != ETIMEDOUT)
			return came.failure();
		/* The peer was ready, or it would have had nothing to close. */
		if (came && is_farewell(*came, from_qp)) {
			has_heard_farewell_ = true;
			return {};
		}
		const auto theirs = came ? came->as<greeting_on_wire>() : std::nullopt;
		if (!theirs || theirs->nonce != nonce_)
			continue;
		was_heard = was_heard || theirs->has_heard;
		if (!greeting.has_heard)
			grace = greeting_grace;
		greeting.has_heard = 1;
	}
}

bool greeter::is_farewell(const datagram &came, std::uint32_t from_qp) const noexcept
{
	const auto said = came.as<farewell_on_wire>();

	return said && said->nonce == nonce_ && said->own_nonce == peer_nonce_ &&
	       said->magic == htobe64(farewell_magic) && came.from() == peer_ &&
	       from_qp == to_.qp_number;
}

bool greeter::hears_farewell() noexcept
{
	/* At most as many as there are receives came before this. What comes later raises an event,
	 * so strangers that send without end do not keep this loop going. */
	arm();
	for (std::uint32_t i = 0; i < receives; ++i) {
		std::uint32_t from_qp = 0;
		auto came = recv(deadline::clock::time_point::min(), &from_qp);

		if (!came)
			break;
		if (is_farewell(*came, from_qp))
			has_heard_farewell_ = true;
	}
	return has_heard_farewell_;
}

void greeter::say_farewell() noexcept
{
	const farewell_on_wire farewell{
		.nonce = peer_nonce_, .own_nonce = nonce_, .magic = htobe64(farewell_magic)};
	const deadline until = farewell_patience;

	for (int i = 0; i < farewells && !has_heard_farewell_; ++i)
		if (!send(to_, std::as_bytes(std::span(&farewell, 1)), until))
			return;
}

} // namespace peal::detail
