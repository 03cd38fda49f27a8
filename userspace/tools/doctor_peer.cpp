// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The checks of the way to a peer: its route, its neighbour, and their MTU.
 */
#include "finding.hpp"

#include <algorithm>
#include <chrono>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include <arpa/inet.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "formatted.hpp"
#include "netlink.hpp"

namespace peal::tool {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/* An address of either family. */
struct Address {
	int family;
	std::vector<std::byte> bytes;

	std::string text() const
	{
		char buffer[INET6_ADDRSTRLEN];

		inet_ntop(family, bytes.data(), buffer, sizeof(buffer));
		return buffer;
	}
};

std::optional<Address> resolve(const std::string &name)
{
	const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(
		[&]() -> addrinfo * {
			addrinfo hints{}, *found = nullptr;

			hints.ai_socktype = SOCK_DGRAM;
			return getaddrinfo(name.c_str(), nullptr, &hints, &found) ? nullptr : found;
		}(),
		freeaddrinfo);

	if (!list)
		return {};
	const auto *address = list->ai_addr;
	const auto copy = [&](const void *from, std::size_t bytes) {
		const auto *first = static_cast<const std::byte *>(from);

		return Address{list->ai_family, {first, first + bytes}};
	};
	if (list->ai_family == AF_INET)
		return copy(&reinterpret_cast<const sockaddr_in *>(address)->sin_addr, 4);
	return copy(&reinterpret_cast<const sockaddr_in6 *>(address)->sin6_addr, 16);
}

struct Route {
	bool is_local;
	std::string netdev;
	Address next_hop;
	unsigned long mtu; /* 0: that of the netdev */
};

/* Throws KernelError. */
std::optional<Route> find_route(const Address &address)
{
	Socket socket(NETLINK_ROUTE);
	Request request(RTM_GETROUTE, 0);
	rtmsg header{};

	header.rtm_family = static_cast<unsigned char>(address.family);
	header.rtm_dst_len = static_cast<unsigned char>(address.bytes.size() * 8);
	request.header(header).add(RTA_DST, address.bytes.data(), address.bytes.size());
	const auto messages = socket.ask(request);
	if (messages.empty() || messages[0].payload().size() < sizeof(header))
		return {};
	std::memcpy(&header, messages[0].payload().data(), sizeof(header));
	const auto attributes = messages[0].attributes(sizeof(header));
	Route route{header.rtm_type == RTN_LOCAL, "", address,
		    attributes.nest(RTA_METRICS).number(RTAX_MTU).value_or(0)};
	char name[IF_NAMESIZE];
	if (if_indextoname(static_cast<unsigned>(attributes.number(RTA_OIF).value_or(0)), name))
		route.netdev = name;
	if (const auto gateway = attributes.data(RTA_GATEWAY))
		route.next_hop = {address.family, {gateway->begin(), gateway->end()}};
	return route;
}

/* Return: whether the netdev is `lower`, or is above it as a VLAN, a bridge or a bond is. */
bool is_above(const std::string &netdev, const std::string &lower)
{
	if (netdev == lower)
		return true;
	std::error_code error;
	for (const auto &entry : fs::directory_iterator("/sys/class/net/" + netdev, error)) {
		const auto name = entry.path().filename().string();

		if (name.starts_with("lower_") && is_above(name.substr(6), lower))
			return true;
	}
	return false;
}

/* Return: the state of the neighbour (NUD_*), if the kernel knows it. */
std::optional<unsigned> neighbour_state(const Route &route)
{
	Socket socket(NETLINK_ROUTE);
	Request request(RTM_GETNEIGH, NLM_F_DUMP);
	ndmsg header{};

	header.ndm_family = static_cast<unsigned char>(route.next_hop.family);
	request.header(header);
	for (const auto &message : socket.ask(request)) {
		if (message.payload().size() < sizeof(header))
			continue;
		std::memcpy(&header, message.payload().data(), sizeof(header));
		const auto address = message.attributes(sizeof(header)).data(NDA_DST);

		if (address && std::ranges::equal(*address, route.next_hop.bytes) &&
		    if_nametoindex(route.netdev.c_str()) ==
			    static_cast<unsigned>(header.ndm_ifindex))
			return header.ndm_state;
	}
	return {};
}

/* Sends a byte to the discard service, so that the kernel looks for the neighbour. */
void knock(const Address &address)
{
	constexpr std::uint16_t DISCARD = 9;
	sockaddr_storage storage{};
	socklen_t length;

	storage.ss_family = static_cast<sa_family_t>(address.family);
	if (address.family == AF_INET) {
		auto *to = reinterpret_cast<sockaddr_in *>(&storage);

		to->sin_port = htons(DISCARD);
		std::memcpy(&to->sin_addr, address.bytes.data(), 4);
		length = sizeof(*to);
	} else {
		auto *to = reinterpret_cast<sockaddr_in6 *>(&storage);

		to->sin6_port = htons(DISCARD);
		std::memcpy(&to->sin6_addr, address.bytes.data(), 16);
		length = sizeof(*to);
	}
	const int file = ::socket(address.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	/* If the byte cannot be sent, the neighbour stays unknown, which is what is asked. */
	sendto(file, "", 1, MSG_DONTWAIT, reinterpret_cast<sockaddr *>(&storage), length);
	close(file);
}

/* The kernel gives up after three questions, a second apart. */
constexpr auto PATIENCE = 5s;
constexpr unsigned NUD_USABLE =
	NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;

void check_neighbour(Findings &findings, const Address &address, const Route &route)
{
	const auto end = std::chrono::steady_clock::now() + PATIENCE;
	const auto flags = first_line("/sys/class/net/" + route.netdev + "/flags");

	if (flags && std::strtoul(flags->c_str(), nullptr, 16) & IFF_NOARP)
		return findings.ok("neighbour",
				   formatted("{} asks for no neighbours", route.netdev));
	knock(address);
	while (true) {
		const auto state = neighbour_state(route);
		const auto hop = formatted("{} on {}", route.next_hop.text(), route.netdev);

		if (state && *state & NUD_USABLE)
			return findings.ok("neighbour", formatted("{} answers", hop));
		if ((state && *state & NUD_FAILED) || std::chrono::steady_clock::now() > end)
			return findings.add(Verdict::PROBLEM, "neighbour",
					    formatted("nobody answers for {}", hop),
					    "look whether the peer is up and in this network, and "
					    "at the address");
		std::this_thread::sleep_for(50ms);
	}
}

/* Headers of a packet outside of its payload (Documentation/administration.rst). */
unsigned long headers(int family)
{
	return family == AF_INET ? 68 : 88;
}

void check_path_mtu(Findings &findings, const Address &address, const Route &route,
		    const Patient &patient)
{
	const auto line = first_line("/sys/class/net/" + *patient.port.netdev + "/mtu");
	const auto netdev_mtu = line ? std::strtoul(line->c_str(), nullptr, 10) : 0;
	const auto mtu = route.mtu ? route.mtu : netdev_mtu;
	unsigned long longest = 0;

	/* What programs take from ibv_query_port counts with the headers of IPv6. */
	for (const unsigned long payload : {256, 512, 1024, 2048, 4096})
		if (payload == 256 || payload + headers(AF_INET6) <= netdev_mtu)
			longest = payload;
	if (longest + headers(address.family) <= mtu)
		return findings.ok("path", formatted("packets of {} bytes fit the MTU {} of the "
						     "route",
						     longest, mtu));
	findings.add(Verdict::PROBLEM, "path",
		     formatted("the port's MTU is {}, and its packets do not fit the MTU {} of "
			       "the route",
			       longest, mtu),
		     "let programs use a smaller path MTU, or raise that of the route (\"ip route "
		     "change\")");
}

} /* namespace */

void check_peer(Findings &findings, const std::vector<Patient> &patients, const std::string &peer)
{
	const auto address = resolve(peer);
	std::optional<Route> route;

	if (!address)
		return findings.add(Verdict::PROBLEM, "route",
				    formatted("\"{}\" is no address, and no name of a host", peer),
				    "type the address of the peer's device");
	try {
		route = find_route(*address);
	} catch (const KernelError &error) {
		return findings.add(Verdict::PROBLEM, "route",
				    formatted("there is no route to {} ({})", address->text(),
					      std::strerror(error.number)),
				    "add one: \"ip route add NETWORK via GATEWAY\"");
	}
	if (!route)
		return findings.add(
			Verdict::UNKNOWN, "route",
			formatted("the kernel does not tell the route to {}", address->text()),
			formatted("look with \"ip route get {}\"", address->text()));
	if (route->is_local)
		return findings.ok("route",
				   formatted("{} is an address of this host", address->text()));
	const auto owner = std::ranges::find_if(patients, [&](const Patient &patient) {
		return patient.port.netdev && is_above(route->netdev, *patient.port.netdev);
	});
	if (owner == patients.end())
		return findings.add(
			Verdict::PROBLEM, "route",
			formatted("the route to {} leaves by {}, on which there is no device",
				  address->text(), route->netdev),
			formatted("type \"peal link add peal{} netdev {}\", or change the route",
				  patients.size(), route->netdev));
	findings.ok("route", formatted("the route to {} leaves by {}, the netdev of {}",
				       address->text(), route->netdev, owner->device.name));
	check_neighbour(findings, *address, *route);
	check_path_mtu(findings, *address, *route, *owner);
}

} /* namespace peal::tool */
