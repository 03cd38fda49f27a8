// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// vm: icount
// timeout: 1000
/*
 * Programs that all want as much as they can get from one device get alike.
 *
 * Holds: Each of 64 processes writes 64 bytes again and again between two queue pairs of its own.
 * In the same time the slowest completes at least half as many messages as the fastest. The guest's
 * clock counts instructions, so the scheduler's share of each process does not depend on this host.
 * On the wire this needs a kernel of 6.5 or later, or a ksoftirqd that comes first, as
 * administration.rst says.
 * Does not hold: programs that want different things (kick_is_bounded, greedy_program), several
 * CPUs.
 */
#include "program.hpp"

#include <atomic>
#include <sys/mman.h>

using namespace peal_test;

namespace {

constexpr std::size_t processes = 64, bytes = 64;
constexpr int window = 16;

/* In memory that all of the processes share. */
struct Board {
	std::atomic<std::size_t> ready;
	std::atomic<Clock::rep> end; /* 0: not begun */
	std::array<std::uint64_t, processes> messages;
};

Board &board()
{
	void *memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		throw_errno("mmap");
	return *new (memory) Board{};
}

int write_all_the_time(Board &at, std::size_t number)
{
	Device device;
	Endpoint a(device), b(device);
	Region from(a.pd, bytes), to(b.pd, bytes);
	std::array<ibv_wc, window> all;

	connect(a, b);
	at.ready++;
	while (!at.end)
		std::this_thread::sleep_for(1ms);
	while (Clock::now().time_since_epoch().count() < at.end) {
		for (int i = 0; i < window; i++)
			post(a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, bytes)})
					   .remote(to.address(), to.rkey()));
		for (int done = 0; done < window;) {
			const int n = ibv_poll_cq(a.send_cq, window, all.data());

			std::for_each(all.begin(), all.begin() + n, must_succeed);
			done += n;
			if (n == 0)
				sched_yield();
		}
		at.messages[number] += window;
	}
	return 0;
}

/* Whether a child has ended. The child is still to be waited for. */
bool any_has_ended()
{
	siginfo_t info{};

	return !waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid;
}

/* While it lives, ksoftirqd comes before all programs. */
class SoftirqsFirst {
public:
	SoftirqsFirst() { must(run("renice -n -20 -p $(pgrep ksoftirqd) >/dev/null"), "renice"); }
	~SoftirqsFirst() { run("renice -n 0 -p $(pgrep ksoftirqd) >/dev/null"); }
	SoftirqsFirst(const SoftirqsFirst &) = delete;
	SoftirqsFirst &operator=(const SoftirqsFirst &) = delete;
};

} // namespace

TEST_CASE("64 processes get alike")
{
	const SoftirqsFirst first;
	Board &at = board();
	std::vector<pid_t> children;

	for (std::size_t i = 0; i < processes; i++)
		children.push_back(spawn([&] { return write_all_the_time(at, i); }));
	/* The guest's clock runs ahead while it waits for files of the host, so it sets no limit.
	 */
	while (at.ready != processes && !any_has_ended())
		std::this_thread::sleep_for(1ms);
	CHECK(at.ready == processes);
	at.end = (Clock::now() + 2s).time_since_epoch().count();
	for (const pid_t child : children)
		CHECK(end_of(child) == 0);
	const auto [slowest, fastest] = std::ranges::minmax(at.messages);
	std::printf("messages of 64 processes: %lu to %lu\n", slowest, fastest);
	CHECK(slowest > 0);
	CHECK(2 * slowest >= fastest);
}
