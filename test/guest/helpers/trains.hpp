// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Trains of forged packets, for a machine with one CPU.
 *
 * Holds: a UDP socket of this host that forges packets of a peer, queue pairs that answer them, and
 * a time in which their work runs in softirq only. Does not hold: how much work is allowed.
 */
#pragma once

#include "packets.hpp"
#include "verbs.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <netinet/udp.h>
#include <sched.h>

namespace peal_test {

constexpr const char *host = "10.77.0.1";
constexpr unsigned cars = 64;		  /* packets of a train; Linux before 6.9 allows no more */
constexpr std::uint64_t budget = 1 << 20; /* what a train may cause at once */
constexpr std::uint8_t send_only = 0x04, write_only = 0x0a, read_request = 0x0c,
		       datagram_only = 0x64;

/* The thread to which the kernel hands softirqs that take too long. */
inline pid_t softirq_thread()
{
	for (const auto &process : std::filesystem::directory_iterator("/proc")) {
		std::string name;

		std::getline(std::ifstream(process.path() / "comm"), name);
		if (name == "ksoftirqd/0")
			return std::stoi(process.path().filename());
	}
	throw std::runtime_error("expected a thread ksoftirqd/0, found none");
}

/*
 * Work that is left to other threads does not run while this object lives, because there is one
 * CPU. Packets are processed before their sender continues. The thread of softirqs precedes the
 * sender, because the kernel may hand the packets to that thread.
 */
class Undisturbed {
	const pid_t softirqs_ = softirq_thread();

	static void become(pid_t who, int policy, int priority)
	{
		const sched_param param{priority};

		must(sched_setscheduler(who, policy, &param), "sched_setscheduler");
	}

public:
	Undisturbed()
	{
		become(softirqs_, SCHED_FIFO, 2);
		become(0, SCHED_FIFO, 1);
	}
	~Undisturbed()
	{
		become(softirqs_, SCHED_OTHER, 0);
		become(0, SCHED_OTHER, 0);
	}
	Undisturbed(const Undisturbed &) = delete;
	Undisturbed &operator=(const Undisturbed &) = delete;
};

/* A peer at the device's own address, with a queue pair that does not exist. */
class Forger {
	int fd_;
	const char *to_;
	const Route route_{.from = address(host), .to = address(to_)};

	static sockaddr_in place(const char *where, std::uint16_t port)
	{
		sockaddr_in result{};

		result.sin_family = AF_INET;
		result.sin_port = htons(port);
		inet_pton(AF_INET, where, &result.sin_addr);
		return result;
	}
	/* The bytes behind UDP. The stack writes the same headers as make_frame(). */
	Bytes datagram(const Bytes &body, std::uint16_t id) const
	{
		constexpr std::size_t at = ethernet_bytes + 4,
				      udp_end = ethernet_bytes + 20 + udp_bytes;
		Bytes frame = make_frame(route_, body, 0);

		frame[at] = static_cast<std::uint8_t>(id >> 8);
		frame[at + 1] = static_cast<std::uint8_t>(id);
		frame.resize(frame.size() - icrc_bytes);
		put(frame, __builtin_bswap32(icrc(frame, false)), icrc_bytes);
		return {frame.begin() + udp_end, frame.end()};
	}
	void send_all(const Bytes &bytes, int piece)
	{
		const sockaddr_in to = place(to_, roce_port);

		must(setsockopt(fd_, SOL_UDP, UDP_SEGMENT, &piece, sizeof(piece)), "UDP_SEGMENT");
		if (sendto(fd_, bytes.data(), bytes.size(), 0,
			   reinterpret_cast<const sockaddr *>(&to), sizeof(to)) < 0)
			throw std::runtime_error(std::string("sendto: ") + std::strerror(errno));
	}

public:
	explicit Forger(const char *to = host) : fd_(socket(AF_INET, SOCK_DGRAM, 0)), to_(to)
	{
		const sockaddr_in from = place(host, 0xc000);
		const int whole = IP_PMTUDISC_DO;

		must(setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole)), "PMTU");
		must(bind(fd_, reinterpret_cast<const sockaddr *>(&from), sizeof(from)), "bind");
	}
	Forger(const Forger &) = delete;
	Forger &operator=(const Forger &) = delete;
	~Forger() { close(fd_); }

	struct Train {
		Bytes bytes;
		int piece;
	};

	/* All bodies but the last have one length. To build takes longer than to send. */
	Train build(const std::vector<Bytes> &bodies) const
	{
		Bytes all;

		for (std::size_t n = 0; n < bodies.size(); n++)
			put(all, datagram(bodies[n], static_cast<std::uint16_t>(n)));
		return {all, static_cast<int>(datagram(bodies.front(), 0).size())};
	}
	void send(const Bytes &body) { send_all(datagram(body, 0), 0); }
	void send(const Train &train) { send_all(train.bytes, train.piece); }
	void send_train(const std::vector<Bytes> &bodies) { send(build(bodies)); }
};

/* It answers all requests that come from the device's own address. */
struct Victim {
	Link link;
	Endpoint end;
	std::uint32_t psn = link.psn;

	Victim(Device &device, ibv_mtu mtu) : end(device, small())
	{
		auto rtr = rtr_attr(device, 0x77, gid_of(host), link);

		rtr.path_mtu = mtu;
		to_init(end.qp, link);
		must(ibv_modify_qp(end.qp, &rtr, rtr_mask), "modify to RTR");
	}
	static QpOptions small()
	{
		QpOptions options;

		options.send_wr = options.recv_wr = 1;
		options.cqe = 1;
		return options;
	}
	/* The number of packets that it has executed. */
	std::uint32_t progress() const
	{
		ibv_qp_attr attr{};
		ibv_qp_init_attr init{};

		must(ibv_query_qp(end.qp, &attr, IBV_QP_RQ_PSN, &init), "query_qp");
		return (attr.rq_psn - link.psn) & 0xffffff;
	}
	Bytes request(std::uint8_t opcode, std::uint32_t at_psn) const
	{
		Bytes body;

		Bth{.opcode = opcode, .qpn = end.qp->qp_num, .psn = at_psn}.put_to(body);
		return body;
	}
	/* A READ or WRITE of that length at the beginning of @to. */
	Bytes access(std::uint8_t opcode, std::uint32_t at_psn, const Region &to,
		     std::uint32_t bytes) const
	{
		Bytes body = request(opcode, at_psn);

		put(body, to.address(), 8);
		put(body, to.rkey(), 4);
		put(body, bytes, 4);
		body.resize(body.size() + (opcode == write_only ? bytes : 0));
		return body;
	}
};

} // namespace peal_test
