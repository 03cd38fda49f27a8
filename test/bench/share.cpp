// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * share: flows that want all of the path from peal_a to peal_b, for scripts/bench and the shell
 * tests.
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
#include "bench_verbs.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <functional>
#include <getopt.h>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace peal_bench;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;

constexpr std::uint32_t depth = 32;

[[noreturn]] void wrong(const char *what, const char *which = "")
{
	std::fprintf(stderr, "share: %s %s\n", what, which);
	std::_Exit(1);
}

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
		wrong("unknown argument", argv[optind]);
	if (operation == "send")
		options.operation = IBV_WR_SEND;
	else if (operation == "read")
		options.operation = IBV_WR_RDMA_READ;
	else if (operation != "write")
		wrong("expected write, send or read, got", operation.c_str());
	return options;
}

/* A device, its address in the form of RoCEv2 over IPv4, and what its queue pairs share. */
struct Device {
	ibv_context *context;
	ibv_pd *pd;
	ibv_gid gid{};
	int index = -1;

	explicit Device(const char *name)
		: context(open_device(name)), pd(made(ibv_alloc_pd(context), "ibv_alloc_pd"))
	{
		static const std::uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
		ibv_gid_entry entry{};

		for (std::uint32_t i = 0; index < 0 && i < 64; i++)
			if (!ibv_query_gid_ex(context, 1, i, &entry, 0) &&
			    entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
			    !std::memcmp(entry.gid.raw, mapped, sizeof(mapped))) {
				gid = entry.gid;
				index = static_cast<int>(i);
			}
		if (index < 0)
			wrong("no IPv4 address of RoCEv2 on", name);
	}
};

/* A queue pair with memory for one message. */
struct End {
	std::vector<std::uint8_t> memory;
	ibv_mr *mr;
	ibv_cq *send_cq, *recv_cq;
	ibv_qp *qp;

	End(const Device &device, std::size_t size) : memory(size)
	{
		mr = made(ibv_reg_mr(device.pd, memory.data(), size,
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					     IBV_ACCESS_REMOTE_READ),
			  "ibv_reg_mr");
		send_cq = made(ibv_create_cq(device.context, depth, nullptr, nullptr, 0),
			       "ibv_create_cq");
		recv_cq = made(ibv_create_cq(device.context, depth, nullptr, nullptr, 0),
			       "ibv_create_cq");
		ibv_qp_init_attr init{};
		init.send_cq = send_cq;
		init.recv_cq = recv_cq;
		init.qp_type = IBV_QPT_RC;
		init.cap = {depth, depth, 1, 1, 0};
		qp = made(ibv_create_qp(device.pd, &init), "ibv_create_qp");
	}
	ibv_sge sge() const
	{
		return {reinterpret_cast<std::uintptr_t>(memory.data()),
			static_cast<std::uint32_t>(memory.size()), mr->lkey};
	}
};

/* Takes all completions. Return: how many there were. */
std::size_t drain(ibv_cq *cq)
{
	std::size_t count = 0;
	ibv_wc wc[16];

	for (int n; (n = ibv_poll_cq(cq, 16, wc)) != 0; count += static_cast<std::size_t>(n)) {
		if (n < 0)
			fail("ibv_poll_cq");
		for (int i = 0; i < n; i++)
			if (wc[i].status)
				wrong("a request failed:", ibv_wc_status_str(wc[i].status));
	}
	return count;
}

/* One connection of peal. Its requester always has `depth` requests. */
class Flow {
	ibv_wr_opcode operation_;
	std::size_t size_;
	End a_, b_;

	End &requester() { return operation_ == IBV_WR_RDMA_READ ? b_ : a_; }
	End &responder() { return operation_ == IBV_WR_RDMA_READ ? a_ : b_; }

	void post_one()
	{
		ibv_sge local = requester().sge(), remote = responder().sge();
		if (operation_ == IBV_WR_SEND) {
			ibv_recv_wr receive{}, *bad;

			receive.sg_list = &remote;
			receive.num_sge = 1;
			done(ibv_post_recv(b_.qp, &receive, &bad), "ibv_post_recv");
		}
		ibv_send_wr request{}, *bad;
		request.sg_list = &local;
		request.num_sge = 1;
		request.opcode = operation_;
		request.send_flags = IBV_SEND_SIGNALED;
		request.wr.rdma.remote_addr = remote.addr;
		request.wr.rdma.rkey = remote.lkey;
		done(ibv_post_send(requester().qp, &request, &bad), "ibv_post_send");
	}

public:
	std::uint64_t bytes = 0;

	Flow(const Device &a, const Device &b, const Options &options)
		: operation_(options.operation), size_(options.size), a_(a, size_), b_(b, size_)
	{
		connect(a_.qp, b.gid, a.index, b_.qp->qp_num, 16);
		connect(b_.qp, a.gid, b.index, a_.qp->qp_num, 16);
	}
	void start()
	{
		for (std::uint32_t i = 0; i < depth; i++)
			post_one();
	}
	void poll()
	{
		drain(b_.recv_cq);
		for (auto n = drain(requester().send_cq); n; n--) {
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
		fail(name);
	close(space);
}

int tcp_socket()
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int bytes = 1 << 22;

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		fail("socket");
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
			fail("listen");
		listening_ = true;
		listening_.notify_all();
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
			fail("connect");
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
		listening_.wait(false);
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
			fail("ip_forward");
	}
	Router(const Router &) = delete;
	Router &operator=(const Router &) = delete;
	~Router() { close(forward_); }
	void forward(bool on)
	{
		if (pwrite(forward_, on ? "1" : "0", 1, 0) != 1)
			fail("ip_forward");
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
			wrong("a flow does not go on after an outage");
		run.pass(300ms);
	}
	/* The threads of the TCP connection never end. */
	std::fflush(stdout);
	std::_Exit(0);
}

} // namespace

int main(int argc, char **argv)
{
	work(parse(argc, argv));
}
