// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: wire
/*
 * The user nobody opens UDP sockets of every kind, to receive packets of a device's peers, and to
 * send packets in the device's name.
 *
 * Holds: No socket of a program receives a packet for an address of a device. A packet for another
 * address still reaches its socket. No program sends to port 4791 from an address of a device, also
 * not through a VLAN on its netdev, behind a masquerade, or with a capability of another user
 * namespace, nor from the address of a peer. The call fails with EPERM, and a counter counts it.
 * A socket that was opened with CAP_NET_RAW may send. So do rdma_rxe on the same netdev, and the
 * device. Other ports and other addresses are free.
 *
 * Does not hold: raw and packet sockets, because they need CAP_NET_RAW (hostile/random_packets).
 */
#include "commands.hpp"
#include "datagram.hpp"
#include "exchange.hpp"
#include "packets.hpp"
#include "program.hpp"

#include <atomic>
#include <fcntl.h>
#include <grp.h>
#include <linux/io_uring.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

using namespace peal_test;

namespace {

constexpr const char *host4 = "10.77.0.1", *host6 = "fd77::1", *peer4 = "10.77.0.2",
		     *peer6 = "fd77::2", *vlan4 = "10.77.5.1", *other4 = "10.78.0.1";
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
	/* The stack then writes identification 0, which the ICRC covers. */
	void whole() const { option(IPPROTO_IP, IP_MTU_DISCOVER, int{IP_PMTUDISC_DO}); }
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

int end_child(pid_t child)
{
	const int status = end_of(child);

	if (status >= child_failed)
		throw std::runtime_error("a child failed");
	return status;
}

/* ---- the packets of an attacker ---- */

Bytes body_of(std::uint32_t qpn, std::uint32_t psn)
{
	Bytes body;

	Bth{.opcode = send_only, .qpn = qpn, .psn = psn}.put_to(body);
	put(body, 0x7365637265740000ULL, 8);
	return body;
}

/* The bytes behind UDP, with a right ICRC for the headers that the stack writes. */
Bytes behind_udp(const char *from, const char *to, const Bytes &body)
{
	const bool ipv6 = std::strchr(from, ':');
	const Route route{.ipv6 = ipv6, .from = address(from), .to = address(to)};
	const Bytes frame = make_frame(route, body, 0);

	return {frame.begin() + static_cast<long>(ethernet_bytes + ip_bytes(ipv6) + udp_bytes),
		frame.end()};
}

/* ---- ways to send; each returns 0 or errno, and throws when it cannot be tried ---- */

int outcome(long sent)
{
	return sent < 0 ? errno : 0;
}

int by_sendto(int fd, const Place &to, const Bytes &bytes, int flags = 0)
{
	return outcome(sendto(fd, bytes.data(), bytes.size(), flags, to.address(), to.bytes));
}

int from_bound(const char *from, const char *to, const Bytes &bytes)
{
	const Udp udp(Place(from, from_port));

	if (!std::strchr(from, ':'))
		udp.whole();
	return by_sendto(udp, Place(to, roce_port), bytes);
}

int from_connected(const char *from, const char *to, const Bytes &bytes)
{
	const Udp udp(Place(from, from_port));

	udp.connect_to(Place(to, roce_port));
	return outcome(send(udp, bytes.data(), bytes.size(), 0));
}

/* A message with one control message, or with none. */
struct Message {
	iovec piece{};
	alignas(cmsghdr) std::array<char, 64> control{};
	msghdr header{};

	Message(Place &to, const Bytes &bytes)
	{
		piece = {const_cast<std::uint8_t *>(bytes.data()), bytes.size()};
		header.msg_name = to.address();
		header.msg_namelen = to.bytes;
		header.msg_iov = &piece;
		header.msg_iovlen = 1;
	}
	template <class Value>
	void add(int level, int type, const Value &value)
	{
		header.msg_control = control.data();
		header.msg_controllen = CMSG_SPACE(sizeof(value));
		cmsghdr *first = CMSG_FIRSTHDR(&header);

		first->cmsg_level = level;
		first->cmsg_type = type;
		first->cmsg_len = CMSG_LEN(sizeof(value));
		std::memcpy(CMSG_DATA(first), &value, sizeof(value));
	}
};

int from_chosen_source(const char *from, const char *to, const Bytes &bytes)
{
	Place where(to, roce_port);
	const Udp udp(Place(std::strchr(from, ':') ? "::" : "0.0.0.0", from_port));
	Message message(where, bytes);

	if (std::strchr(from, ':')) {
		in6_pktinfo info{};

		inet_pton(AF_INET6, from, &info.ipi6_addr);
		message.add(IPPROTO_IPV6, IPV6_PKTINFO, info);
	} else {
		in_pktinfo info{};

		inet_pton(AF_INET, from, &info.ipi_spec_dst);
		message.add(IPPROTO_IP, IP_PKTINFO, info);
	}
	return outcome(sendmsg(udp, &message.header, 0));
}

int by_train(const char *from, const char *to, const Bytes &bytes)
{
	const Udp udp(Place(from, from_port));
	Bytes all = bytes;

	put(all, bytes);
	udp.option(SOL_UDP, UDP_SEGMENT, static_cast<int>(bytes.size()));
	return by_sendto(udp, Place(to, roce_port), all);
}

int by_pieces(const char *from, const char *to, const Bytes &bytes)
{
	const Udp udp(Place(from, from_port));
	const Place where(to, roce_port);
	const auto middle = bytes.begin() + static_cast<long>(bytes.size() / 2);

	udp.whole();
	const int first = by_sendto(udp, where, {bytes.begin(), middle}, MSG_MORE);
	return first ? first : by_sendto(udp, where, {middle, bytes.end()});
}

int by_sendmmsg(const char *from, const char *to, const Bytes &bytes)
{
	Place where(to, roce_port);
	const Udp udp(Place(from, from_port));
	const Message message(where, bytes);
	std::array<mmsghdr, 2> both{mmsghdr{message.header, 0}, mmsghdr{message.header, 0}};

	udp.whole();
	return outcome(sendmmsg(udp, both.data(), both.size(), 0));
}

int from_mapped(const char *from, const char *to, const Bytes &bytes)
{
	const Udp udp(Place(from, from_port, true));

	udp.option(IPPROTO_IP, IP_MTU_DISCOVER, int{IP_PMTUDISC_DO});
	return by_sendto(udp, Place(to, roce_port, true), bytes);
}

/* A segment routing header (RFC 8754) stands between IPv6 and UDP. */
int by_routing_header(const char *from, const char *to, const Bytes &bytes)
{
	struct {
		std::uint8_t next = 0, words = 2, type = 4, left = 0, last = 0, flags = 0;
		std::uint16_t tag = 0;
		in6_addr segment{};
	} header;
	const Udp udp(Place(from, from_port));

	inet_pton(AF_INET6, to, &header.segment);
	udp.option(IPPROTO_IPV6, IPV6_RTHDR, header);
	return by_sendto(udp, Place(to, roce_port), bytes);
}

/* One SENDMSG through a ring of io_uring, without a library. */
int by_io_uring(const char *from, const char *to, const Bytes &bytes)
{
	Place where(to, roce_port);
	const Udp udp(Place(from, from_port));
	Message message(where, bytes);
	io_uring_params params{};
	const int ring = static_cast<int>(syscall(SYS_io_uring_setup, 1, &params));

	if (ring < 0)
		throw_errno("io_uring_setup");
	const auto map = [&](std::size_t size, long offset) {
		void *at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
				ring, offset);
		if (at == MAP_FAILED)
			throw_errno("mmap of io_uring");
		return static_cast<char *>(at);
	};
	char *sq = map(params.sq_off.array + sizeof(std::uint32_t), IORING_OFF_SQ_RING);
	char *cq = map(params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe),
		       IORING_OFF_CQ_RING);
	auto *entry = reinterpret_cast<io_uring_sqe *>(map(sizeof(io_uring_sqe), IORING_OFF_SQES));

	udp.whole();
	*entry = {};
	entry->opcode = IORING_OP_SENDMSG;
	entry->fd = udp;
	entry->addr = reinterpret_cast<std::uintptr_t>(&message.header);
	entry->len = 1;
	reinterpret_cast<std::uint32_t *>(sq + params.sq_off.array)[0] = 0;
	std::atomic_ref(*reinterpret_cast<std::uint32_t *>(sq + params.sq_off.tail)).store(1);
	if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) != 1)
		throw_errno("io_uring_enter");
	const int result = reinterpret_cast<io_uring_cqe *>(cq + params.cq_off.cqes)->res;

	close(ring);
	return result < 0 ? -result : 0;
}

/* IPv6 lets every program use any address. */
int from_foreign(const char *from, const char *to, const Bytes &bytes)
{
	const Udp udp(AF_INET6);
	const Place at(from, from_port);

	udp.option(IPPROTO_IPV6, IPV6_FREEBIND, 1);
	must(bind(udp, at.address(), at.bytes) ? errno : 0, "bind");
	return by_sendto(udp, Place(to, roce_port), bytes);
}

/* CAP_NET_RAW in a user namespace of one's own is none in that of the network namespace. */
int from_user_namespace(const char *from, const char *to, const Bytes &bytes)
{
	if (getuid() == nobody_id && unshare(CLONE_NEWUSER))
		throw_errno("unshare");
	return from_bound(from, to, bytes);
}

struct Way {
	const char *name;
	int (*send)(const char *from, const char *to, const Bytes &bytes);
	bool ipv6;
};

constexpr Way ways[] = {
	{"a bound socket", from_bound, false},
	{"a connected socket", from_connected, false},
	{"a source chosen for the message", from_chosen_source, false},
	{"a train", by_train, false},
	{"a message in pieces", by_pieces, false},
	{"sendmmsg", by_sendmmsg, false},
	{"io_uring", by_io_uring, false},
	{"an IPv4 address of an IPv6 socket", from_mapped, false},
	{"another user namespace", from_user_namespace, false},
	{"a bound IPv6 socket", from_bound, true},
	{"a connected IPv6 socket", from_connected, true},
	{"a source chosen for the IPv6 message", from_chosen_source, true},
	{"an IPv6 train", by_train, true},
	{"a routing header", by_routing_header, true},
};

/* ---- the device ---- */

/* It takes requests that come from the device's own address. */
struct Victim {
	Link link;
	Endpoint end;

	Victim(Device &device, const char *peer) : end(device)
	{
		auto rtr = rtr_attr(device, 0x77, gid_of(peer), link);

		if (std::strchr(peer, ':'))
			rtr.ah_attr.grh.sgid_index = find_address(device, false).value().index;
		to_init(end.qp, link);
		must(ibv_modify_qp(end.qp, &rtr, rtr_mask), "modify to RTR");
	}
	std::uint32_t psn() const
	{
		ibv_qp_attr attr{};
		ibv_qp_init_attr init{};

		must(ibv_query_qp(end.qp, &attr, IBV_QP_RQ_PSN, &init), "query_qp");
		return attr.rq_psn;
	}
};

std::uint64_t arrivals()
{
	return counter("packets_received") + counter("drops");
}

struct Vlan {
	Vlan()
	{
		run_command("ip link add link veth0 name veth0.5 type vlan id 5");
		run_command("ip address add 10.77.5.1/24 dev veth0.5 && ip link set veth0.5 up");
	}
	Vlan(const Vlan &) = delete;
	Vlan &operator=(const Vlan &) = delete;
	~Vlan() { run("ip link delete veth0.5"); }
};

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

int as_nobody(int (*send)(const char *, const char *, const Bytes &), const char *from,
	      const char *to, const Bytes &bytes)
{
	return end_child(spawn([&] {
		become_nobody();
		return send(from, to, bytes);
	}));
}

} // namespace

TEST_CASE("no program sends in a device's name")
{
	Device device;
	Victim victim4(device, host4), victim6(device, host6);

	for (const auto &way : ways) {
		Victim &victim = way.ipv6 ? victim6 : victim4;
		const char *host = way.ipv6 ? host6 : host4;
		const auto bytes =
			behind_udp(host, host, body_of(victim.end.qp->qp_num, victim.psn()));
		const auto arrived = arrivals(), refused = counter("packets_refused");
		INFO(way.name);

		CHECK(errno_name(as_nobody(way.send, host, host, bytes)) == "EPERM");
		CHECK(arrivals() == arrived);
		CHECK(counter("packets_refused") > refused);
		/* The same call by the root user. */
		CHECK(errno_name(way.send(host, host, bytes)) == "0");
		CHECK(eventually([&] { return arrivals() > arrived; }, 2s));
	}
}

TEST_CASE("a right packet of a program does not reach the queue pair")
{
	Device device;
	Victim victim(device, host4);
	const Region area(victim.end.pd, page_bytes);
	const auto bytes = behind_udp(host4, host4, body_of(victim.end.qp->qp_num, victim.psn()));

	post_recv(victim.end.qp, 1, {area.sge(0, 64)});
	as_nobody(from_bound, host4, host4, bytes);
	CHECK(victim.psn() == victim.link.psn);
	CHECK(drain(victim.end.recv_cq).empty());

	/* A socket that was opened with CAP_NET_RAW may be handed on. */
	const Udp udp(Place(host4, from_port));
	udp.whole();
	CHECK(end_child(spawn([&] {
		      become_nobody();
		      return by_sendto(udp, Place(host4, roce_port), bytes);
	      })) == 0);
	wait_success(victim.end.recv_cq);
}

TEST_CASE("no program sends in a peer's name")
{
	Device device;
	make_neighbours();
	Victim victim(device, peer6);
	const auto bytes = behind_udp(peer6, host6, body_of(victim.end.qp->qp_num, victim.psn()));
	const Region area(victim.end.pd, page_bytes);
	const auto refused = counter("packets_refused");

	post_recv(victim.end.qp, 1, {area.sge(0, 64)});
	CHECK(errno_name(as_nobody(from_foreign, peer6, host6, bytes)) == "EPERM");
	CHECK(counter("packets_refused") == refused + 1);
	CHECK(victim.psn() == victim.link.psn);
	CHECK(from_foreign(peer6, host6, bytes) == 0);
	wait_success(victim.end.recv_cq);
}

TEST_CASE("packets from other addresses and to other ports are sent")
{
	const OtherNetdev other;
	const Vlan vlan;
	Device device;
	const Bytes bytes = behind_udp(host4, host4, body_of(unknown_qpn, 0));
	const auto refused = counter("packets_refused");

	/* The address of another netdev, and another port. */
	CHECK(as_nobody(from_bound, other4, host4, bytes) == 0);
	CHECK(as_nobody(
		      [](const char *from, const char *to, const Bytes &some) {
			      const Udp udp(Place(from, from_port));
			      return by_sendto(udp, Place(to, roce_port + 1), some);
		      },
		      host4, host4, bytes) == 0);
	CHECK(counter("packets_refused") == refused);
	/* The address of a VLAN is one of the device. */
	REQUIRE(eventually([&] {
		return run("grep -q 0a4d:0501 /sys/class/infiniband/" + device_name() +
			   "/ports/1/gids/*") == 0;
	}));
	CHECK(errno_name(as_nobody(from_bound, vlan4, vlan4, bytes)) == "EPERM");
}

/* ---- neighbours behind a masquerade ---- */

namespace {

/* A network namespace whose packets leave with the address of the device. */
struct Behind {
	Behind()
	{
		run_command("ip netns add behind && ip link add behind0 type veth peer name "
			    "behind1 netns behind && ip address add 10.90.0.1/24 dev behind0 && "
			    "ip link set behind0 up && ip -n behind address add 10.90.0.2/24 dev "
			    "behind1 && ip -n behind link set behind1 up && ip -n behind route add "
			    "default via 10.90.0.1 && sysctl -qw net.ipv4.ip_forward=1");
		run_command("nft 'add table ip behind; add chain ip behind out { type nat hook "
			    "postrouting priority 100; }; add rule ip behind out oifname veth0 "
			    "masquerade'");
	}
	Behind(const Behind &) = delete;
	Behind &operator=(const Behind &) = delete;
	~Behind()
	{
		run("nft delete table ip behind; ip netns delete behind; "
		    "sysctl -qw net.ipv4.ip_forward=0");
	}
	int send(std::uint16_t port) const
	{
		return end_child(spawn([&] {
			const int fd = ::open("/run/netns/behind", O_RDONLY);

			if (fd < 0 || setns(fd, CLONE_NEWNET))
				throw_errno("setns");
			const Udp udp(Place("10.90.0.2", from_port));
			return by_sendto(udp, Place(peer4, port), Bytes(32));
		}));
	}
};

} // namespace

TEST_CASE("a program does not get a device's address by a masquerade")
{
	if (run("nft list tables >/dev/null 2>&1"))
		SKIP_CASE("this kernel has no nf_tables");
	Device device;
	make_neighbours();
	const Behind behind;
	const int packets = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	sockaddr_ll where{};

	where.sll_family = AF_PACKET;
	where.sll_protocol = htons(ETH_P_ALL);
	where.sll_ifindex = static_cast<int>(if_nametoindex("veth1"));
	REQUIRE(packets >= 0);
	REQUIRE(!bind(packets, reinterpret_cast<sockaddr *>(&where), sizeof(where)));
	const auto refused = counter("packets_refused");

	/* The second packet of a connection must not take a shorter way. */
	for (int i = 0; i < 3; i++)
		CHECK(behind.send(roce_port) == 0);
	CHECK(behind.send(roce_port + 1) == 0);
	unsigned others = 0, forged = 0;
	const auto look = [&] {
		std::array<std::uint8_t, 2048> frame{};
		ssize_t bytes;

		while ((bytes = recv(packets, frame.data(), frame.size(), MSG_DONTWAIT)) > 0) {
			const auto *ip = &frame[ethernet_bytes];
			if (bytes < 42 || frame[12] != 8 || frame[13] || ip[9] != IPPROTO_UDP ||
			    std::memcmp(ip + 12, address(host4).data(), 4))
				continue;
			forged += (ip[22] << 8 | ip[23]) == roce_port;
			others += (ip[22] << 8 | ip[23]) == roce_port + 1;
		}
		return others > 0;
	};
	CHECK(eventually(look));
	CHECK(forged == 0);
	CHECK(counter("packets_refused") - refused == 3);
	close(packets);
}

/* ---- receivers ---- */

namespace {

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

/* Returns how many of the frames arrive at a listener that runs as the user nobody. */
int received(const Listener &listener, std::vector<Bytes> &frames, std::uint64_t handled)
{
	RawSocket wire("veth1");
	const Pipe ready, look;
	const auto before = arrivals();
	const pid_t child = spawn([&] {
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
	const OtherNetdev other;
	Device device;
	make_neighbours();
	std::vector<Bytes> frames{frame_to(peer4, other4, unknown_qpn),
				  frame_to(peer4, host4, unknown_qpn)};

	CHECK(received(listeners[0], frames, 1) == 1);
}

TEST_CASE("rdma_rxe works beside the device")
{
	if (run("modprobe rdma_rxe 2>/dev/null"))
		SKIP_CASE("this kernel has no rdma_rxe");
	REQUIRE(run("rdma link add rxe9 type rxe netdev veth0") == 0);
	const auto dropped = counter("drop_socket") + counter("drop_qpn"),
		   refused = counter("packets_refused");
	/* The server may not listen yet, so the client tries again. */
	const int status =
		run("gid=$(grep -l 0a4d:0001 /sys/class/infiniband/rxe9/ports/1/gids/* | "
		    "head -n 1); gid=${gid##*/}; ibv_rc_pingpong -d rxe9 -g $gid -n 20 "
		    ">/tmp/rxe 2>&1 & until timeout 10 ibv_rc_pingpong -d rxe9 -g $gid "
		    "-n 20 localhost >/dev/null 2>&1; do kill -0 $! || break; done; "
		    "wait $! || { cat /tmp/rxe; false; }");

	CHECK(status == 0);
	CHECK(counter("drop_socket") + counter("drop_qpn") == dropped);
	CHECK(counter("packets_refused") == refused);
	CHECK(run("rdma link delete rxe9; modprobe -r rdma_rxe") == 0);
}
