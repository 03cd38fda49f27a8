// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * share: flows that want all of the path from peal_a to peal_b, for the shell tests.
 *
 * 	share --flows N [--operation write|send|read] [--tcp ADDRESS] [--warm MS] [--time MS]
 * 		[--size BYTES] [--outages N]
 *
 * N connections of peal move bytes from peal_a to peal_b, and one TCP connection does too if an
 * ADDRESS is given, from the network namespace share_a to this address of share_b. They run for
 * `warm` ms before the measured `time` begins, and each is never without something to send. Prints
 * one line for each flow, "flow NUMBER BYTES" or "tcp BYTES": what arrived in the measured time.
 *
 * With --outages the router share_r then stops forwarding for 300 ms, N times. Each time it prints
 * "outage MS": how long after that a message of the slowest flow completed.
 *
 * Exit status: 0 if each request succeeded, otherwise 1 with a line that says what failed.
 * Does not know: the queue and the delay of the path (bottleneck.sh).
 */
#include "verbs.hpp"

#include <arpa/inet.h>
#include <atomic>
#include <cstdio>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string_view>
#include <sched.h>
#include <sys/socket.h>

using namespace peal_test;

namespace {

constexpr std::uint32_t depth = 32;

struct Options {
	std::size_t flows = 1;
	ibv_wr_opcode operation = IBV_WR_RDMA_WRITE;
	std::string tcp;
	Duration warm = 2s, time = 5s;
	std::size_t size = 1 << 14; /* of a message */
	int outages = 0;
};

Options parse(int argc, char **argv)
{
	static const option known[] = {
		{"flows", required_argument, nullptr, 'f'},
		{"operation", required_argument, nullptr, 'o'},
		{"tcp", required_argument, nullptr, 't'},
		{"warm", required_argument, nullptr, 'w'},
		{"time", required_argument, nullptr, 'm'},
		{"size", required_argument, nullptr, 's'},
		{"outages", required_argument, nullptr, 'u'},
		{},
	};
	Options options;
	std::string operation = "write";

	for (int c; (c = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
		switch (c) {
		case 'f':
			options.flows = std::strtoul(optarg, nullptr, 0);
			break;
		case 'o':
			operation = optarg;
			break;
		case 't':
			options.tcp = optarg;
			break;
		case 'w':
			options.warm = std::chrono::milliseconds(std::atoi(optarg));
			break;
		case 'm':
			options.time = std::chrono::milliseconds(std::atoi(optarg));
			break;
		case 's':
			options.size = std::strtoul(optarg, nullptr, 0);
			break;
		case 'u':
			options.outages = std::atoi(optarg);
			break;
		default:
			std::exit(1);
		}
	}
	if (optind < argc)
		throw std::runtime_error(std::string("unknown argument ") + argv[optind]);
	if (operation == "send")
		options.operation = IBV_WR_SEND;
	else if (operation == "read")
		options.operation = IBV_WR_RDMA_READ;
	else if (operation != "write")
		throw std::runtime_error("expected write, send or read, got " + operation);
	return options;
}

/* One connection of peal. Its requester always has `depth` requests. */
class Flow {
	ibv_wr_opcode operation_;
	std::size_t size_;
	Endpoint a_, b_;
	Region from_, to_;

	Endpoint &requester() { return operation_ == IBV_WR_RDMA_READ ? b_ : a_; }

	static QpOptions queues()
	{
		QpOptions it;

		it.send_wr = depth;
		it.recv_wr = depth;
		return it;
	}
	static void ready(Endpoint &at, Endpoint &peer)
	{
		Link link;
		auto attr = rtr_attr(at.device, peer.qp->qp_num, peer.device.gid(), link);

		to_init(at.qp, link);
		must(ibv_modify_qp(at.qp, &attr, rtr_mask), "modify to RTR");
		to_rts(at.qp, link);
	}
	void post_one()
	{
		if (operation_ == IBV_WR_SEND)
			post_recv(b_.qp, 0, {to_.sge(0, size_)});
		const Region &local = operation_ == IBV_WR_RDMA_READ ? to_ : from_;
		const Region &remote = operation_ == IBV_WR_RDMA_READ ? from_ : to_;
		post(requester().qp, Send(operation_, {local.sge(0, size_)})
					     .remote(remote.address(), remote.rkey()));
	}

public:
	std::uint64_t bytes = 0;

	Flow(Device &a, Device &b, const Options &options)
		: operation_(options.operation), size_(options.size), a_(a, queues()),
		  b_(b, queues()), from_(a_.pd, size_), to_(b_.pd, size_)
	{
		ready(a_, b_);
		ready(b_, a_);
	}
	void start()
	{
		for (std::uint32_t i = 0; i < depth; i++)
			post_one();
	}
	void poll()
	{
		for (const auto &wc : drain(b_.recv_cq))
			must_succeed(wc);
		for (const auto &wc : drain(requester().send_cq)) {
			must_succeed(wc);
			bytes += size_;
			post_one();
		}
	}
};

/* Takes the calling thread to another network namespace. */
void enter(const char *name)
{
	const int space = open((std::string("/run/netns/") + name).c_str(), O_RDONLY | O_CLOEXEC);

	if (space < 0 || setns(space, CLONE_NEWNET))
		throw_errno(std::string("namespace ") + name);
	close(space);
}

int tcp_socket()
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int bytes = 1 << 22;

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		throw_errno("socket");
	return fd;
}

/* One TCP connection. Its two threads are in the two namespaces, and live as long as the program.
 */
class TcpFlow {
	std::atomic<std::uint64_t> bytes_ = 0;
	std::atomic<bool> listening_ = false;
	sockaddr_in address_{};

	void receive()
	{
		std::vector<char> buffer(1 << 18);

		enter("share_b");
		const int fd = tcp_socket();
		if (bind(fd, reinterpret_cast<sockaddr *>(&address_), sizeof(address_)) ||
		    listen(fd, 1))
			throw_errno("listen");
		listening_ = true;
		const int peer = accept(fd, nullptr, nullptr);
		for (ssize_t n; (n = recv(peer, buffer.data(), buffer.size(), 0)) > 0;)
			bytes_ += static_cast<std::uint64_t>(n);
	}
	void send_all()
	{
		const std::vector<char> buffer(1 << 16);

		enter("share_a");
		const int fd = tcp_socket();
		if (connect(fd, reinterpret_cast<sockaddr *>(&address_), sizeof(address_)))
			throw_errno("connect");
		while (send(fd, buffer.data(), buffer.size(), MSG_NOSIGNAL) > 0)
			;
	}

public:
	explicit TcpFlow(const std::string &address)
	{
		address_.sin_family = AF_INET;
		address_.sin_port = htons(5201);
		inet_pton(AF_INET, address.c_str(), &address_.sin_addr);
		std::thread([this] { receive(); }).detach();
		if (!eventually([this] { return listening_.load(); }))
			throw std::runtime_error("the TCP receiver does not listen");
		std::thread([this] { send_all(); }).detach();
	}
	std::uint64_t bytes() const { return bytes_; }
};

/* The router, whose switch for forwarding only a thread in its namespace can open. */
class Router {
	int forward_ = -1;

public:
	Router()
	{
		std::thread([this] {
			enter("share_r");
			forward_ = open("/proc/sys/net/ipv4/ip_forward", O_WRONLY | O_CLOEXEC);
		}).join();
		if (forward_ < 0)
			throw_errno("ip_forward");
	}
	Router(const Router &) = delete;
	Router &operator=(const Router &) = delete;
	~Router() { close(forward_); }
	void forward(bool on)
	{
		if (pwrite(forward_, on ? "1" : "0", 1, 0) != 1)
			throw_errno("ip_forward");
	}
};

class Run {
	std::vector<std::unique_ptr<Flow>> flows_;

public:
	Run(Device &a, Device &b, const Options &options)
	{
		for (std::size_t i = 0; i < options.flows; i++)
			flows_.push_back(std::make_unique<Flow>(a, b, options));
		for (auto &flow : flows_)
			flow->start();
	}
	/* Lets the flows run until the condition holds, or for this time. */
	template <class Condition>
	bool until(Condition condition, Duration limit)
	{
		for (const auto end = Clock::now() + limit; Clock::now() < end;) {
			for (auto &flow : flows_)
				flow->poll();
			if (condition())
				return true;
			std::this_thread::sleep_for(500us);
		}
		return false;
	}
	void pass(Duration time)
	{
		until([] { return false; }, time);
	}
	std::vector<std::uint64_t> bytes() const
	{
		std::vector<std::uint64_t> all;

		for (const auto &flow : flows_)
			all.push_back(flow->bytes);
		return all;
	}
	/* Return: false if a flow does not go on in time. */
	bool outage(Router &router)
	{
		router.forward(false);
		pass(300ms);
		router.forward(true);
		const auto back = Clock::now();
		const auto before = bytes();
		/* All flows have gone on. */
		const bool used = until(
			[&] { return std::ranges::equal(before, bytes(), std::less()); }, 10s);

		std::printf("outage %lld\n", static_cast<long long>((Clock::now() - back) / 1ms));
		return used;
	}
};

void work(const Options &options)
{
	Device a("peal_a"), b("peal_b");
	Run run(a, b, options);
	std::optional<TcpFlow> tcp;

	if (!options.tcp.empty())
		tcp.emplace(options.tcp);
	run.pass(options.warm);
	const auto before = run.bytes();
	const auto tcp_before = tcp ? tcp->bytes() : 0;
	run.pass(options.time);
	const auto after = run.bytes();
	for (std::size_t i = 0; i < after.size(); i++)
		std::printf("flow %zu %llu\n", i,
			    static_cast<unsigned long long>(after[i] - before[i]));
	if (tcp)
		std::printf("tcp %llu\n",
			    static_cast<unsigned long long>(tcp->bytes() - tcp_before));
	Router router;
	for (int i = 0; i < options.outages; i++) {
		if (!run.outage(router))
			throw std::runtime_error("a flow does not go on after an outage");
		run.pass(300ms);
	}
	/* The threads of the TCP connection never end. */
	std::fflush(stdout);
	std::_Exit(0);
}

} // namespace

int main(int argc, char **argv)
{
	try {
		work(parse(argc, argv));
	} catch (const std::exception &error) {
		std::fprintf(stderr, "share: %s\n", error.what());
		std::fflush(stdout);
		std::_Exit(1);
	}
}
