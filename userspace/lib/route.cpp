// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See route.hpp. The routing table of the kernel says whether an address is reached by the netdev
 * of another one.
 */
#include "route.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <tuple>

namespace peal::detail {

namespace {

constexpr std::size_t bits_of_gid = 128, bits_before_four = 96;
constexpr std::uint16_t roce_port = 4791;
constexpr std::uint8_t hops = 64;

bool is_four(const ibv_gid &gid) noexcept
{
	constexpr std::uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return !std::memcmp(gid.raw, prefix, sizeof(prefix));
}

bool is_of_link(const ibv_gid &gid) noexcept
{
	return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

bool same_family(const ibv_gid &a, const ibv_gid &b) noexcept
{
	return is_four(a) == is_four(b) && is_of_link(a) == is_of_link(b);
}

std::size_t common_bits(const ibv_gid &a, const ibv_gid &b) noexcept
{
	std::size_t bits = 0;

	while (bits < bits_of_gid && !((a.raw[bits / 8] ^ b.raw[bits / 8]) & 0x80 >> bits % 8))
		++bits;
	return bits;
}

/* Of the bits of an address of IPv4 each counts as four, so that both families compare. */
std::size_t closeness(const ibv_gid &a, const ibv_gid &b) noexcept
{
	/* All links have the same prefix, so it says nothing. */
	if (is_of_link(a))
		return 0;
	return is_four(a) ? 4 * (common_bits(a, b) - bits_before_four) : common_bits(a, b);
}

bool has_route(const address &from, const address &to) noexcept
{
	const bool four = is_four(to.gid);
	const int netdev = static_cast<int>(from.netdev);
	sockaddr_in to_four{};
	sockaddr_in6 to_six{};

	/* The same device. */
	if (!std::memcmp(&from.gid, &to.gid, sizeof(from.gid)))
		return true;
	to_four.sin_family = AF_INET;
	to_four.sin_port = htons(roce_port);
	std::memcpy(&to_four.sin_addr, to.gid.raw + 12, sizeof(to_four.sin_addr));
	to_six.sin6_family = AF_INET6;
	to_six.sin6_port = htons(roce_port);
	to_six.sin6_scope_id = is_of_link(to.gid) ? from.netdev : 0;
	std::memcpy(&to_six.sin6_addr, &to.gid, sizeof(to_six.sin6_addr));
	const int fd = socket(four ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	/* An old kernel refuses it to ordinary users. Then any route counts. */
	if (netdev)
		setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &netdev, sizeof(netdev));
	/* This sends nothing. It fails if there is no route. */
	const int failed =
		four ? connect(fd, reinterpret_cast<sockaddr *>(&to_four), sizeof(to_four))
		     : connect(fd, reinterpret_cast<sockaddr *>(&to_six), sizeof(to_six));
	close(fd);
	return !failed;
}

/* The better one is greater, for both ends. */
bool is_better(const route &a, const route &b) noexcept
{
	const auto order = [](const route &of, bool smaller) {
		const int sign = std::memcmp(&of.mine.gid, &of.theirs.gid, sizeof(ibv_gid));
		const ibv_gid &gid = (sign < 0) == smaller ? of.mine.gid : of.theirs.gid;
		std::array<std::uint8_t, sizeof(ibv_gid)> bytes;

		std::memcpy(bytes.data(), &gid, sizeof(gid));
		return bytes;
	};
	const std::size_t of_a = closeness(a.mine.gid, a.theirs.gid);
	const std::size_t of_b = closeness(b.mine.gid, b.theirs.gid);

	if (of_a != of_b)
		return of_a > of_b;
	return std::tuple(order(a, true), order(a, false)) <
	       std::tuple(order(b, true), order(b, false));
}

} // namespace

result<address_list> addresses_of(const context &device) noexcept
{
	constexpr std::size_t most = 256; /* so that an index has 8 bits */
	const std::unique_ptr<ibv_gid_entry[]> table(new (std::nothrow) ibv_gid_entry[most]);
	address_list found;

	if (!table)
		return error::make(ENOMEM,
				   "there is no memory for the addresses of %s; close "
				   "connections",
				   device.name());
	const ssize_t count = ibv_query_gid_table(device.verbs, table.get(), most, 0);
	if (count < 0)
		return error::make(static_cast<int>(-count),
				   "%s does not tell its addresses: %s; see whether it still "
				   "exists",
				   device.name(), strerrordesc_np(static_cast<int>(-count)));
	for (const bool of_link : {false, true})
		for (ssize_t i = 0; i < count && found.count < most_addresses; ++i) {
			const ibv_gid_entry &entry = table[i];
			ibv_port_attr port{};

			if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || entry.gid_index >= most ||
			    is_of_link(entry.gid) != of_link ||
			    ibv_query_port(device.verbs, entry.port_num, &port) ||
			    port.state != IBV_PORT_ACTIVE)
				continue;
			found.all[found.count++] = {
				.gid = entry.gid,
				.mtu = port.active_mtu,
				.port = static_cast<std::uint8_t>(entry.port_num),
				.index = static_cast<std::uint8_t>(entry.gid_index),
				.netdev = entry.ndev_ifindex};
		}
	if (!found.count)
		return error::make(
			EADDRNOTAVAIL,
			"%s has no address for RoCEv2 on a port that is up; set its link "
			"up, and give its netdev an address",
			device.name());
	return found;
}

ibv_mtu route::mtu() const noexcept
{
	return std::min(mine.mtu, theirs.mtu);
}

ibv_ah_attr route::attr() const noexcept
{
	ibv_ah_attr made{};

	made.is_global = 1;
	made.port_num = mine.port;
	made.grh.sgid_index = mine.index;
	made.grh.dgid = theirs.gid;
	made.grh.hop_limit = hops;
	return made;
}

result<route> choose_route(const context &device, std::span<const address> mine,
			   std::span<const address> theirs) noexcept
{
	char text[INET6_ADDRSTRLEN] = "";
	route best{};
	bool found = false;

	for (const address &from : mine)
		for (const address &to : theirs) {
			const route one{from, to};

			if (!same_family(from.gid, to.gid) || (found && !is_better(one, best)) ||
			    !has_route(from, to))
				continue;
			best = one;
			found = true;
		}
	if (found)
		return best;
	const ibv_gid &first = theirs.front().gid;
	inet_ntop(is_four(first) ? AF_INET : AF_INET6, first.raw + (is_four(first) ? 12 : 0), text,
		  sizeof(text));
	return error::make(EHOSTUNREACH,
			   "no GID of %s routes to %s or to another address of the peer; see what "
			   "ip route get says, and whether both have an address of the same family",
			   device.name(), text);
}

} // namespace peal::detail
