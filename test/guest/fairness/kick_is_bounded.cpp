// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// vm: icount
// run: long
// timeout: 300
// transport: any
/*
 * A kick keeps its caller in the kernel for a bounded time. The test counts instructions, because
 * the guest's clock counts those (scripts/vm --icount).
 *
 * Holds: A kick returns after its budget if another thread wants the CPU, and else after eight
 * times its budget, whatever is posted. The worker does the rest, nothing is lost, and the
 * context's next kick continues with it. The test posts expensive work: long messages, many
 * entries, parts without a common alignment, and memory whose pages are all apart. It lets many
 * senders wait for one shared receive queue. Does not hold: how long an instruction takes
 * (Documentation/testing.rst), the cost of a packet in the network stack.
 */
#include "counters.hpp"
#include "raw.hpp"

#include <sched.h>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::uint32_t depth = 1024, sges = 32;

/*
 * 100 us of a CPU that executes at most 1.2 instructions in a nanosecond. The checks of a debug
 * kernel take twelve times as many (1.4 million have been seen).
 */
const std::int64_t most = slowness() == 1 ? 120000 : 2000000;
/* Nobody else wants the CPU. */
const std::int64_t most_alone = 8 * most;

/* Work for one kick: some send WQEs, and a receive for each one that needs it. */
struct Load {
	std::string name;
	std::vector<RawSend> sends;
	std::vector<std::vector<peal_sge>> recvs;
};

struct Count {
	std::int64_t kick = INT64_MAX;
	bool deferred = false; /* the kick left some of the work */
};

std::int64_t instructions()
{
	timespec now{};

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* The core caches what it has read for 10 ms, or for one tick if that is longer. */
std::uint64_t deferrals()
{
	std::this_thread::sleep_for(20ms);
	return counter("deferrals");
}

/*
 * No other thread runs on the only CPU while this object lives, so the
 * worker's time is not counted.
 */
class Undisturbed {
public:
	Undisturbed() { become(SCHED_FIFO, 1); }
	~Undisturbed() { become(SCHED_OTHER, 0); }
	Undisturbed(const Undisturbed &) = delete;
	Undisturbed &operator=(const Undisturbed &) = delete;

private:
	static void become(int policy, int priority)
	{
		const sched_param param{priority};

		if (sched_setscheduler(0, policy, &param))
			perror("sched_setscheduler");
	}
};

std::int64_t kick(RawQp &qp)
{
	const Undisturbed undisturbed;
	const auto begin = instructions();

	qp.kick();
	return instructions() - begin;
}

Count measure_once(RawQp &qp, const Load &load)
{
	for (const auto &recv : load.recvs)
		qp.write_recv({static_cast<std::uint32_t>(recv.size()), {}}, recv);
	qp.publish_recv();
	for (const auto &send : load.sends)
		qp.write_send(send);
	std::atomic_ref(qp.control().sq.producer).store(qp.sq_next(), std::memory_order_release);

	const auto before = deferrals();
	const auto count = kick(qp);
	peal_cqe cqe{};
	for (std::size_t i = 0; i < load.sends.size() + load.recvs.size(); i++)
		if (!qp.wait(cqe) || cqe.status)
			throw std::runtime_error(load.name + ": expected completions, got status " +
						 std::to_string(cqe.status) + " " +
						 reason_name(cqe.vendor_err));
	return {count, deferrals() > before};
}

/* Takes the smallest of several results, because timer interrupts add to the others. */
Count measure(RawQp &qp, const Load &load)
{
	Count least;

	for (int i = 0; i < 5; i++) {
		const auto count = measure_once(qp, load);
		if (count.kick < least.kick)
			least = count;
	}
	std::printf("%-50s %8lld %s\n", load.name.c_str(), static_cast<long long>(least.kick),
		    least.deferred ? "deferred" : "");
	return least;
}

RawSend remote(const RawQp &qp, std::uint8_t opcode, std::size_t offset)
{
	RawSend send;

	send.header.opcode = opcode;
	send.header.flags = PEAL_WQE_SIGNALED;
	send.header.remote_addr = qp.memory().address(offset);
	send.header.rkey = qp.rkey();
	return send;
}

} // namespace

TEST_CASE("one kick is bounded, also if nothing else wants the CPU")
{
	Device device;
	RawContext context;
	constexpr std::size_t size = 64 << 20, half = size / 2;
	RawQp qp(context, device, {.depth = depth, .sges = sges, .bytes = size, .scattered = true});

	const auto check = [&](const Load &load) {
		CAPTURE(load.name);
		const auto count = measure(qp, load);
		CHECK(count.kick < most_alone);
		return count;
	};
	const auto recvs_of = [&](const std::vector<peal_sge> &list, std::size_t n) {
		return std::vector<std::vector<peal_sge>>(n, list);
	};

	SECTION("short messages")
	{
		auto one = remote(qp, PEAL_OP_WRITE, half);
		one.sge(qp.sge(0, 1));
		const auto few = check({"1 write of 1 byte", {one}, {}});
		CHECK_FALSE(few.deferred);
		CHECK(few.kick < most / 10);
		CHECK(check({"1024 writes of 1 byte", std::vector(depth, one), {}}).deferred);
	}
	SECTION("long messages")
	{
		for (const auto opcode : {PEAL_OP_WRITE, PEAL_OP_READ})
			for (const std::size_t skew : {0, 1, 8}) {
				auto send = remote(qp, opcode, half + skew);
				send.sge(qp.sge(0, 16 << 20));
				const auto name =
					std::string(opcode == PEAL_OP_READ ? "read" : "write") +
					" of 16 MiB, " + std::to_string(skew) + " bytes apart";
				CHECK(check({name, {send}, {}}).deferred);
			}
	}
	SECTION("many entries")
	{
		for (const std::uint32_t bytes : {1, 64, 4096, 65535}) {
			auto send = remote(qp, PEAL_OP_WRITE, half + 1);
			for (std::size_t i = 0; i < sges; i++)
				send.sge(qp.sge(i * 65537 + 4095, bytes));
			const auto name = "64 writes of 32 x " + std::to_string(bytes);
			CHECK(check({name, std::vector(64, send), {}}).deferred);
		}
	}
	SECTION("many entries on both sides, and none at the place of the other")
	{
		for (const std::uint32_t bytes : {2, 63, 511, 4095, 65535}) {
			auto send = remote(qp, PEAL_OP_SEND, 0);
			send.header.remote_addr = send.header.rkey = 0;
			std::vector<peal_sge> recv;
			for (std::size_t i = 0; i < sges; i++) {
				send.sge(qp.sge(i * 65537 + 4095, bytes));
				recv.push_back(qp.sge(half + i * 131073 + 4095,
						      i ? bytes : bytes / 2 + 1));
			}
			recv.back().length = 2 * bytes;
			const auto name = "64 sends of 32 x " + std::to_string(bytes) + ", shifted";
			CHECK(check({name, std::vector(64, send), recvs_of(recv, 64)}).deferred);
		}
	}
}

namespace {

/*
 * A thread of higher priority wants the CPU at @when, while @work runs. The caller is a real-time
 * thread. Return: how late the thread got the CPU.
 */
template <class Work>
std::int64_t lateness(std::int64_t when, const Work &work)
{
	std::int64_t woken = 0;
	std::thread thread([&] {
		const sched_param param{2};
		const timespec until{when / 1000000000, when % 1000000000};

		if (sched_setscheduler(0, SCHED_FIFO, &param))
			perror("sched_setscheduler");
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
		woken = instructions();
	});

	sched_yield(); /* until it sleeps */
	work();
	thread.join();
	return woken - when;
}

} // namespace

TEST_CASE("a thread that wants the CPU gets it within a kick's budget")
{
	constexpr std::size_t size = 64 << 20, half = size / 2;
	Device device;
	RawContext context;
	RawQp qp(context, device, {.depth = 4, .bytes = size});
	auto send = remote(qp, PEAL_OP_WRITE, half);
	unsigned hits = 0;

	send.sge(qp.sge(0, 16 << 20));
	for (int round = 0; round < 20 && hits < 5; round++) {
		const Undisturbed undisturbed;
		std::int64_t begin = 0, end = 0;
		const auto when = instructions() + 20 * most;
		const auto late = lateness(when, [&] {
			qp.write_send(send);
			std::atomic_ref(qp.control().sq.producer)
				.store(qp.sq_next(), std::memory_order_release);
			while (instructions() < when - most)
				;
			begin = instructions();
			qp.kick();
			end = instructions();
		});

		std::printf("late by %lld, kick of %lld\n", static_cast<long long>(late),
			    static_cast<long long>(end - begin));
		if (begin < when && when < end) {
			hits++;
			CHECK(late < most);
		}
		peal_cqe cqe{};
		while (!qp.cq().poll(cqe))
			qp.kick();
		CHECK(cqe.status == 0);
	}
	CHECK(hits == 5);
}

namespace {

/* The instructions of the kick that follows one publication of many shared receives. */
std::int64_t kick_waiters(const RawContext &context, RawSrq &srq)
{
	const Undisturbed undisturbed;

	std::atomic_ref(srq.control().producer).store(srq.next(), std::memory_order_seq_cst);
	const auto begin = instructions();
	context.kick(PEAL_KICK_SRQ, srq.response().srq_index);
	return instructions() - begin;
}

} // namespace

TEST_CASE("a kick of a shared receive queue is bounded, and all senders that wait are woken")
{
	constexpr std::uint32_t senders = 300;
	Device device;
	RawContext context;
	RawSrq srq(context, 512, 1);
	std::vector<std::unique_ptr<RawQp>> all;
	auto least = INT64_MAX;
	unsigned woken = 0;

	for (std::uint32_t i = 0; i < senders; i++)
		all.push_back(std::make_unique<RawQp>(
			context, device,
			RawShape{.depth = 4, .bytes = page_bytes, .srq = &srq, .rnr_timer = 0}));
	for (int round = 0; round < 3; round++) {
		for (auto &qp : all) {
			RawSend send;
			send.header.opcode = PEAL_OP_SEND;
			send.header.flags = PEAL_WQE_SIGNALED;
			qp->post(send.sge(qp->sge(0, 64)));
		}
		const peal_sge entry = srq.sge(0, 64);
		for (std::uint32_t i = 0; i < senders; i++) {
			srq.write(i, {1, {}}, std::span(&entry, 1));
			srq.enqueue(i);
		}
		const Stopwatch watch;
		least = std::min(least, kick_waiters(context, srq));
		peal_cqe cqe{};
		for (auto &qp : all)
			for (int i = 0; i < 2; i++)
				if (!qp->wait(cqe) || cqe.status)
					throw std::runtime_error("expected success, got status " +
								 std::to_string(cqe.status));
		woken += watch.elapsed() < 600ms; /* the timers take 655 ms */
	}
	std::printf("%-50s %8lld\n", "300 senders that wait", static_cast<long long>(least));
	CHECK(least < most);
	CHECK(woken > 0);
}

namespace {

/* Messages for several kicks. */
class Heap {
public:
	Heap(const RawContext &context, const Device &device)
		: qp_(context, device, {.depth = messages, .bytes = 2 * bytes})
	{
		auto send = remote(qp_, PEAL_OP_WRITE, bytes);
		send.sge(qp_.sge(0, bytes));
		for (std::uint32_t i = 0; i < messages; i++)
			qp_.write_send(send);
	}
	void post() { qp_.publish(); }
	std::uint32_t done()
	{
		for (peal_cqe cqe{}; qp_.cq().poll(cqe); done_++)
			if (cqe.status)
				throw std::runtime_error(status_name(cqe.status));
		return done_;
	}
	static constexpr std::uint32_t messages = 8, bytes = 512 << 10;

private:
	RawQp qp_;
	std::uint32_t done_ = 0;
};

} // namespace

TEST_CASE("a context's next kick goes on with what the last one left")
{
	Device device;
	RawContext context, other;
	Heap first(context, device), second(context, device);
	RawQp empty(context, device), stranger(other, device);
	const Undisturbed the_worker_does_not_run;

	first.post();
	second.post();
	const auto left_first = first.done(), left_second = second.done();
	CHECK(left_first > 0);
	CHECK(left_first < Heap::messages);
	CHECK(left_second > 0);
	CHECK(left_second < Heap::messages);

	for (int i = 0; i < 4; i++)
		stranger.kick();
	CHECK(first.done() == left_first);
	CHECK(second.done() == left_second);

	/* A kick has four turns for both, and a message needs eight. */
	for (int i = 0; i < 6; i++)
		empty.kick();
	CHECK(first.done() > left_first);
	CHECK(second.done() > left_second);
	for (int i = 0; i < 40; i++)
		empty.kick();
	CHECK(first.done() == Heap::messages);
	CHECK(second.done() == Heap::messages);
	CHECK(counter("overdue_turns") > 0);
}
