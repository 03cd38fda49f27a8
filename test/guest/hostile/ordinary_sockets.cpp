// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: wire
/*
 * The user nobody opens UDP sockets of every kind, to receive packets of a device's peers.
 *
 * Holds: No socket of a program receives a packet for an address of a device. A packet for another
 * address still reaches its socket. rdma_rxe works on the same netdev.
 * Does not hold: raw and packet sockets, because they need CAP_NET_RAW (hostile/random_packets).
 */
#include "commands.hpp"
#include "datagram.hpp"
#include "packets.hpp"

#include <grp.h>
#include <netinet/udp.h>
#include <sys/wait.h>

using namespace peal_test;

namespace {

constexpr const char *host4 = "10.77.0.1", *host6 = "fd77::1", *peer4 = "10.77.0.2",
		     *peer6 = "fd77::2", *other4 = "10.78.0.1";
constexpr std::uint32_t nobody_id = 65534, unknown_qpn = 0xabcdee;
constexpr std::uint16_t from_port = 0xc000;
constexpr std::uint8_t send_only = 0x04;

/* ---- sockets ---- */

struct Place {
	sockaddr_storage storage{};
	socklen_t bytes = 0;

	Place(const char *text, std::uint16_t port, bool mapped = false)
	{
		const bool ipv6 = mapped || std::strchr(text, ':');

		if (ipv6) {
			auto *to = reinterpret_cast<sockaddr_in6 *>(&storage);
			const std::string full = (mapped ? "::ffff:" : "") + std::string(text);

			*to = {};
			to->sin6_family = AF_INET6;
			to->sin6_port = htons(port);
			inet_pton(AF_INET6, full.c_str(), &to->sin6_addr);
			bytes = sizeof(*to);
		} else {
			auto *to = reinterpret_cast<sockaddr_in *>(&storage);

			*to = {};
			to->sin_family = AF_INET;
			to->sin_port = htons(port);
			inet_pton(AF_INET, text, &to->sin_addr);
			bytes = sizeof(*to);
		}
	}
	const sockaddr *address() const { return reinterpret_cast<const sockaddr *>(&storage); }
	sockaddr *address() { return reinterpret_cast<sockaddr *>(&storage); }
	int family() const { return storage.ss_family; }
};

class Udp {
	int fd_;

public:
	explicit Udp(int family) : fd_(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0))
	{
		if (fd_ < 0)
			throw_errno("socket");
	}
	explicit Udp(const Place &at) : Udp(at.family())
	{
		if (bind(fd_, at.address(), at.bytes))
			throw_errno("bind");
	}
	Udp(const Udp &) = delete;
	Udp &operator=(const Udp &) = delete;
	~Udp() { close(fd_); }
	operator int() const { return fd_; }

	template <class Value>
	void option(int level, int name, const Value &value) const
	{
		if (setsockopt(fd_, level, name, &value, sizeof(value)))
			throw_errno("setsockopt");
	}
	void connect_to(const Place &to) const
	{
		if (connect(fd_, to.address(), to.bytes))
			throw_errno("connect");
	}
};

/* ---- processes ---- */

void become_nobody()
{
	if (setgroups(0, nullptr) || setresgid(nobody_id, nobody_id, nobody_id) ||
	    setresuid(nobody_id, nobody_id, nobody_id))
		throw_errno("become nobody");
}

/* What a child process may return at most. */
constexpr int child_failed = 255;

template <class Function>
pid_t start_child(Function function)
{
	const pid_t child = fork();

	if (child)
		return child;
	int result = child_failed;
	try {
		result = function();
	} catch (const std::exception &error) {
		std::fprintf(stderr, "child: %s\n", error.what());
	}
	_exit(result);
}

int end_child(pid_t child)
{
	int status = 0;

	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		throw std::runtime_error("a child died");
	if (WEXITSTATUS(status) == child_failed)
		throw std::runtime_error("a child failed");
	return WEXITSTATUS(status);
}

/* ---- the packets of an attacker ---- */

Bytes body_of(std::uint32_t qpn, std::uint32_t psn)
{
	Bytes body;

	Bth{.opcode = send_only, .qpn = qpn, .psn = psn}.put_to(body);
	put(body, 0x7365637265740000ULL, 8);
	return body;
}

std::uint64_t arrivals()
{
	return counter("packets_received") + counter("drops");
}

/* Another netdev, without a device. */
struct OtherNetdev {
	OtherNetdev()
	{
		run_command("ip link add peal-other type dummy && ip address add 10.78.0.1/24 dev "
			    "peal-other && ip link set peal-other up");
	}
	OtherNetdev(const OtherNetdev &) = delete;
	OtherNetdev &operator=(const OtherNetdev &) = delete;
	~OtherNetdev() { run("ip link delete peal-other"); }
};

Bytes frame_to(const char *from, const char *to, std::uint32_t qpn)
{
	return make_frame({.ipv6 = std::strchr(from, ':') != nullptr,
			   .from = address(from),
			   .to = address(to),
			   .from_mac = mac("veth1"),
			   .to_mac = mac("veth0")},
			  body_of(qpn, 0), 0);
}

struct Listener {
	const char *name;
	void (*open)(const Udp &udp);
	int family;
};

constexpr const char *group4 = "239.77.0.9";

constexpr Listener listeners[] = {
	{"any address",
	 [](const Udp &udp) {
		 const Place at("0.0.0.0", roce_port);
		 must(bind(udp, at.address(), at.bytes) ? errno : 0, "bind");
	 },
	 AF_INET},
	{"the device's address",
	 [](const Udp &udp) {
		 const Place at(host4, roce_port);
		 must(bind(udp, at.address(), at.bytes) ? errno : 0, "bind");
	 },
	 AF_INET},
	{"the device's netdev",
	 [](const Udp &udp) {
		 const Place at("0.0.0.0", roce_port);
		 const char netdev[] = "veth0";
		 must(setsockopt(udp, SOL_SOCKET, SO_BINDTODEVICE, netdev, sizeof(netdev)) ? errno
											   : 0,
		      "SO_BINDTODEVICE");
		 must(bind(udp, at.address(), at.bytes) ? errno : 0, "bind");
	 },
	 AF_INET},
	{"connected to the peer",
	 [](const Udp &udp) {
		 const Place at(host4, roce_port);
		 must(bind(udp, at.address(), at.bytes) ? errno : 0, "bind");
		 udp.connect_to(Place(peer4, from_port));
	 },
	 AF_INET},
	{"a member of a group",
	 [](const Udp &udp) {
		 const Place at("0.0.0.0", roce_port);
		 ip_mreqn member{};
		 inet_pton(AF_INET, group4, &member.imr_multiaddr);
		 inet_pton(AF_INET, host4, &member.imr_address);
		 udp.option(IPPROTO_IP, IP_ADD_MEMBERSHIP, member);
		 must(bind(udp, at.address(), at.bytes) ? errno : 0, "bind");
	 },
	 AF_INET},
	{"IPv6 and IPv4",
	 [](const Udp &udp) {
		 const Place at("::", roce_port);
		 udp.option(SOL_UDP, UDP_NO_CHECK6_RX, 1);
		 must(bind(udp, at.address(), at.bytes) ? errno : 0, "bind");
	 },
	 AF_INET6},
	{"IPv6, connected to the peer",
	 [](const Udp &udp) {
		 const Place at(host6, roce_port);
		 udp.option(SOL_UDP, UDP_NO_CHECK6_RX, 1);
		 must(bind(udp, at.address(), at.bytes) ? errno : 0, "bind");
		 udp.connect_to(Place(peer6, from_port));
	 },
	 AF_INET6},
};

struct Pipe {
	int ends[2] = {-1, -1};

	Pipe() { must(pipe(ends) ? errno : 0, "pipe"); }
	Pipe(const Pipe &) = delete;
	Pipe &operator=(const Pipe &) = delete;
	~Pipe()
	{
		close(ends[0]);
		close(ends[1]);
	}
	void tell() const { must(write(ends[1], "x", 1) == 1 ? 0 : errno, "write"); }
	void wait() const
	{
		char byte;
		must(read(ends[0], &byte, 1) == 1 ? 0 : EPIPE, "read");
	}
};

/* How many of the frames the listener, a process of nobody, receives. */
int received(const Listener &listener, std::vector<Bytes> &frames, std::uint64_t handled)
{
	RawSocket wire("veth1");
	const Pipe ready, look;
	const auto before = arrivals();
	const pid_t child = start_child([&] {
		become_nobody();
		const Udp udp(listener.family);
		std::array<char, 256> bytes{};
		int count = 0;

		listener.open(udp);
		ready.tell();
		look.wait();
		while (recv(udp, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0)
			count++;
		return count;
	});

	ready.wait();
	wire.send(frames);
	/* All frames came by one queue, so the last one has been handled as well. */
	eventually([&] { return arrivals() - before >= handled; }, 1s);
	look.tell();
	return end_child(child);
}

} // namespace

TEST_CASE("no program receives a device's packets")
{
	if (!is_peal())
		SKIP_CASE("the counters are peal's");
	Device device;
	make_neighbours();
	for (const auto &listener : listeners) {
		std::vector<Bytes> frames{frame_to(peer4, host4, unknown_qpn),
					  frame_to(peer6, host6, unknown_qpn),
					  frame_to(peer4, host4, unknown_qpn)};
		const auto dropped = counter("drop_socket");
		INFO(listener.name);

		if (std::string(listener.name) == "a member of a group")
			frames.push_back(frame_to(peer4, group4, unknown_qpn));
		CHECK(received(listener, frames, frames.size()) == 0);
		CHECK(counter("drop_socket") > dropped);
	}
}

TEST_CASE("a packet for another netdev's address reaches its socket")
{
	if (!is_peal())
		SKIP_CASE("the counters are peal's");
	const OtherNetdev other;
	Device device;
	make_neighbours();
	std::vector<Bytes> frames{frame_to(peer4, other4, unknown_qpn),
				  frame_to(peer4, host4, unknown_qpn)};

	CHECK(received(listeners[0], frames, 1) == 1);
}

TEST_CASE("rdma_rxe works beside the device")
{
	if (!is_peal())
		SKIP_CASE("it is peal that rdma_rxe works beside");
	if (run("modprobe rdma_rxe 2>/dev/null"))
		SKIP_CASE("this kernel has no rdma_rxe");
	REQUIRE(run("rdma link add rxe9 type rxe netdev veth0") == 0);
	const auto dropped = counter("drop_socket") + counter("drop_qpn");
	/* The server may not listen yet, so the client tries again. */
	const int status =
		run("gid=$(grep -l 0a4d:0001 /sys/class/infiniband/rxe9/ports/1/gids/* | "
		    "head -n 1); gid=${gid##*/}; ibv_rc_pingpong -d rxe9 -g $gid -n 20 "
		    ">/tmp/rxe 2>&1 & until timeout 10 ibv_rc_pingpong -d rxe9 -g $gid "
		    "-n 20 localhost >/dev/null 2>&1; do kill -0 $! || break; done; "
		    "wait $! || { cat /tmp/rxe; false; }");

	CHECK(status == 0);
	CHECK(counter("drop_socket") + counter("drop_qpn") == dropped);
	CHECK(run("rdma link delete rxe9; modprobe -r rdma_rxe") == 0);
}
