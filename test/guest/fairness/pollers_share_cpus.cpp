// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
/*
 * Programs that poll do not starve each other or the device.
 *
 * Holds: Two processes that poll without a pause exchange messages, each on its own CPU or both on
 * one. So do as many pollers as there are CPUs. The engine answers a doorbell among a thousand
 * others, and its thread then does not sleep with preemption off. Datagrams that the poller has
 * begun to send are sent, also if the program makes kicks on another CPU.
 * Does not hold: figures (scripts/demo).
 */
#include "datagram.hpp"
#include "program.hpp"
#include "tracing.hpp"

#include <filesystem>
#include <optional>
#include <rdma/peal-abi.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

using namespace peal_test;

namespace {

constexpr int rounds = 2000;

/* Polls without giving up the CPU. */
void spin_for(ibv_cq *cq)
{
	ibv_wc wc{};
	const auto deadline = Clock::now() + 3 * patience;

	while (ibv_poll_cq(cq, 1, &wc) == 0)
		if (Clock::now() > deadline)
			throw std::runtime_error("expected a completion within 30 s, got none");
	must_succeed(wc);
}

void exchange(Endpoint &endpoint, bool first)
{
	for (int i = 0; i < rounds; i++) {
		if (first)
			post(endpoint.qp, Send(IBV_WR_SEND));
		spin_for(endpoint.recv_cq);
		post_recv(endpoint.qp, 1, {});
		if (!first)
			post(endpoint.qp, Send(IBV_WR_SEND));
		spin_for(endpoint.send_cq);
	}
}

/* One side. It writes its number to one pipe and reads the peer's number from the other. */
int play(int cpu, bool first, int in, int out)
{
	if (!pin(cpu))
		throw_errno("sched_setaffinity");
	Device device;
	Endpoint endpoint(device);
	std::uint32_t mine = endpoint.qp->qp_num, peer = 0;

	if (write(out, &mine, sizeof(mine)) != sizeof(mine) ||
	    read(in, &peer, sizeof(peer)) != sizeof(peer))
		throw_errno("the other side is gone");
	connect_to(endpoint.qp, device, peer);
	for (int i = 0; i < 16; i++)
		post_recv(endpoint.qp, 1, {});
	exchange(endpoint, first);
	/* The peer's last message must be acknowledged before this side ends. */
	char byte = 0;
	if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
		throw_errno("the other side is gone");
	return 0;
}

void check_exchange(int cpu_a, int cpu_b)
{
	int there[2], back[2];
	REQUIRE(pipe(there) == 0);
	REQUIRE(pipe(back) == 0);
	const Stopwatch watch;

	const pid_t first = spawn([&] { return play(cpu_a, true, back[0], there[1]); }),
		    second = spawn([&] { return play(cpu_b, false, there[0], back[1]); });
	for (int fd : {there[0], there[1], back[0], back[1]})
		close(fd);
	CHECK(end_of(first) == 0);
	CHECK(end_of(second) == 0);
	std::printf("%d round trips in %.0f ms\n", rounds, milliseconds(watch.elapsed()));
	CHECK(watch.elapsed() < 30s);
}

/*
 * So many contexts that the engine looks at their doorbells in several parts, and tells only some
 * of them at a time that it is awake (kernel/engine/poller.c).
 */
class Crowd {
public:
	explicit Crowd(Device &device)
	{
		const rlimit files{16384, 16384};

		if (setrlimit(RLIMIT_NOFILE, &files))
			throw_errno("setrlimit");
		while (contexts_.size() < 1200)
			contexts_.push_back(must_open(device.context()->device));
	}
	~Crowd()
	{
		for (auto *context : contexts_)
			ibv_close_device(context);
	}
	Crowd(const Crowd &) = delete;
	Crowd &operator=(const Crowd &) = delete;

private:
	static ibv_context *must_open(ibv_device *device)
	{
		auto *context = ibv_open_device(device);
		if (!context)
			throw_errno("ibv_open_device");
		return context;
	}
	std::vector<ibv_context *> contexts_;
};

/*
 * Rings the doorbells one after the other, so that the engine wakes up. The engine or this
 * thread must see each of them.
 */
void ring_often(Pair &pair)
{
	for (int i = 0; i < 100; i++)
		post(pair.a.qp, Send(IBV_WR_RDMA_WRITE));
	wait_success(pair.a.send_cq, 100);
}

/* The device's engine thread, or 0 if there is none. */
pid_t engine_thread()
{
	const std::string name = device_name() + "-engine";

	for (const auto &entry : std::filesystem::directory_iterator("/proc")) {
		std::string comm;

		std::ifstream in(entry.path() / "comm");

		std::getline(in, comm);
		if (comm == name)
			return std::stoi(entry.path().filename());
	}
	return 0;
}

/* The kick file of the program's only context, which the provider does not show. */
int kick_file()
{
	for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
		std::error_code gone;

		if (std::filesystem::read_symlink(entry.path(), gone) == "anon_inode:[peal]")
			return std::stoi(entry.path().filename());
	}
	return -1;
}

} // namespace

TEST_CASE("two pollers on two CPUs")
{
	if (std::thread::hardware_concurrency() < 2)
		SKIP_CASE("one CPU");
	check_exchange(0, 1);
}

TEST_CASE("progress while every CPU polls")
{
	Device device;
	const auto cpus = std::thread::hardware_concurrency();
	std::vector<std::thread> threads;
	std::vector<std::string> failures(cpus);

	for (unsigned i = 0; i < cpus; i++)
		threads.emplace_back([&, i] {
			try {
				pin(static_cast<int>(i));
				Pair pair(device);
				for (int round = 0; round < rounds; round++) {
					post(pair.a.qp, Send(IBV_WR_RDMA_WRITE));
					spin_for(pair.a.send_cq);
				}
			} catch (const std::exception &error) {
				failures[i] = error.what();
			}
		});
	for (auto &thread : threads)
		thread.join();
	for (const auto &failure : failures)
		CHECK(failure == "");
}

TEST_CASE("doorbells among a thousand others")
{
	QpOptions deep;
	deep.send_wr = 128;
	Device before;
	const Crowd crowd(before);
	Device behind;
	Pair first(before, deep), last(behind, deep);
	/* The thread may sleep, and its last look at so many contexts is not at its end. */
	const Probe policy("sched_setattr_nocheck");
	std::optional<EventCount> changes;
	if (policy)
		changes.emplace(policy.event(), "", engine_thread());
	const auto wakeups = counter("engine_wakeups"), doorbells = counter("doorbells");

	for (int round = 0; round < 200; round++) {
		ring_often(first);
		ring_often(last);
	}
	std::printf("the engine woke up %lu times and saw %lu doorbells\n",
		    counter("engine_wakeups") - wakeups, counter("doorbells") - doorbells);
	if (changes)
		CHECK(changes->value() == 0);
}

TEST_CASE("a kick on another CPU does not stop what the poller has begun")
{
	if (std::thread::hardware_concurrency() < 2)
		SKIP_CASE("one CPU");
	constexpr std::uint32_t packets = 128;
	QpOptions deep;
	deep.send_wr = packets;
	deep.cqe = packets;
	Device device;
	std::vector<std::unique_ptr<UdEnd>> ends;
	for (int i = 0; i < 16; i++)
		ends.push_back(std::make_unique<UdEnd>(device, common_qkey, deep));
	const int kicks = kick_file();
	REQUIRE(kicks >= 0);
	REQUIRE(pin(0));
	/* Numbers count from 0, and what a kick of a receive queue finds does not matter. */
	const auto kick = [&] { lseek(kicks, 0, PEAL_KICK_RECV); };
	const auto wakeups = counter("engine_wakeups"), doorbells = counter("doorbells");

	for (int round = 0; round < 20; round++) {
		/* They wake the poller, which runs on the other CPU because this one is busy. */
		for (int i = 0; i < 1000; i++)
			kick();
		for (const auto &end : ends)
			for (std::uint32_t n = 0; n < packets; n++)
				post(end->qp,
				     Datagram(end->to_self, 0x77, {end->memory.sge(0, 1024)}));
		for (int i = 0; i < 200; i++)
			kick();
		for (const auto &end : ends)
			wait_success(end->send_cq, packets);
	}
	std::printf("the engine woke up %lu times and saw %lu doorbells\n",
		    counter("engine_wakeups") - wakeups, counter("doorbells") - doorbells);
}
