// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a message takes from the post to its completion, once by a kick and once by the poller,
 * without a kernel module and a device. The rings, the doorbell and the kernel's half of
 * the rings are peal's own. The kernel's other work is left out, because it is the same on both
 * ways. It owns a model of the two ways and measures time.
 *
 *	post-path [BYTES [COUNT]]	messages of 64 bytes if not said otherwise; needs two
 *					CPUs; prints nanoseconds
 *
 * kick:    lseek on /dev/null, which enters the kernel as a kick does, and then the work on the
 *          same CPU
 * poller:  a thread on another CPU scans the doorbell and does the work
 *
 * The two ways and the limits beside them take turns, so that the load of the machine affects all.
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "../../userspace/ring/doorbell.hpp"
#include "../unit/shared_memory.hpp"
#include "cpus.hpp"

using namespace peal;
using namespace peal_bench;
using namespace peal::test;

namespace {

constexpr std::uint32_t ENTRIES = 128;

/* One queue pair and its completion queue, with what the kernel does for a WQE. */
class Path {
	WorkPair work_{ENTRIES};
	CqPair cq_{ENTRIES};
	std::vector<std::byte> from_, to_;

	struct Kick {
		Path *path;
		int operator()(peal_kick, std::uint32_t) const
		{
			lseek(path->null_, 0, SEEK_SET);
			path->serve();
			return 0;
		}
	};
	int null_ = open("/dev/null", O_RDWR);
	Page page_{sizeof(peal_doorbell)};
	peal_doorbell *db_ = reinterpret_cast<peal_doorbell *>(page_.data());
	BasicDoorbell<Kick> doorbell_{db_, Kick{this}};
	std::uint32_t posted_ = 0, done_ = 0;

	void serve()
	{
		while (kernel_ring_pending(work_.kernel.get()) > 0) {
			peal_send_wqe wqe;
			peal_cqe cqe{};

			std::memcpy(&wqe, kernel_ring_slot(work_.kernel.get()), sizeof(wqe));
			std::memcpy(to_.data(), from_.data(), from_.size());
			cqe.wqe_index = kernel_ring_next(work_.kernel.get());
			cqe.kind = PEAL_CQE_SEND;
			kernel_ring_take(work_.kernel.get());
			kernel_cq_push(cq_.kernel.get(), &cqe);
		}
	}

public:
	explicit Path(std::size_t bytes) : from_(bytes), to_(bytes) {}

	/* The poller's thread runs this. */
	void scan(const std::atomic<bool> &stop)
	{
		std::atomic_ref bits(db_->bits[0]);

		while (!stop.load(std::memory_order_relaxed))
			if (bits.load(std::memory_order_relaxed) && bits.exchange(0))
				serve();
	}
	void announce(bool awake)
	{
		std::atomic_ref(db_->engine)
			.store(awake ? PEAL_ENGINE_AWAKE : PEAL_ENGINE_ASLEEP,
			       std::memory_order_seq_cst);
	}
	void post()
	{
		peal_send_wqe wqe{};

		wqe.opcode = PEAL_OP_WRITE;
		SendSlot slot(work_.user.claim(posted_, posted_), wqe);
		slot.add_sge(reinterpret_cast<std::uintptr_t>(from_.data()),
			     static_cast<std::uint32_t>(from_.size()), 1);
		work_.user.publish(++posted_);
		doorbell_.ring(0);
	}
	bool poll()
	{
		const peal_cqe *cqe = cq_.user.peek();

		if (!cqe)
			return false;
		work_.user.complete(cqe->wqe_index);
		cq_.user.advance();
		cq_.user.publish();
		done_++;
		return true;
	}
	std::uint32_t outstanding() const { return posted_ - done_; }
};

struct Figures {
	std::vector<double> post, whole, rate;
};

double at(std::vector<double> &figures, double part)
{
	std::ranges::sort(figures);
	return figures[static_cast<std::size_t>(static_cast<double>(figures.size() - 1) * part)];
}

double ns(Clock::duration time)
{
	return std::chrono::duration<double, std::nano>(time).count();
}

void measure(Path &path, long count, Figures &figures)
{
	for (long i = 0; i < count; i++) {
		const auto begin = Clock::now();
		path.post();
		const auto posted = Clock::now();
		while (!path.poll())
			cpu_relax();
		figures.whole.push_back(ns(Clock::now() - begin));
		figures.post.push_back(ns(posted - begin));
	}
	/* As ib_write_bw: the queue is never empty. */
	const auto begin = Clock::now();
	for (long i = 0; i < count || path.outstanding();) {
		if (i < count && path.outstanding() < ENTRIES) {
			path.post();
			i++;
		}
		path.poll();
	}
	figures.rate.push_back(ns(Clock::now() - begin) / static_cast<double>(count));
}

} // namespace

int main(int argc, char **argv)
{
	const long bytes = argc > 1 ? std::atol(argv[1]) : 64;
	const long count = argc > 2 ? std::atol(argv[2]) : 20000;
	const auto all = cpus();

	if (argc > 3 || bytes < 1 || count < 2)
		return std::fputs("usage: post-path [BYTES [COUNT]]\n", stderr), 2;
	if (all.size() < 2)
		return std::fputs("post-path: there is one CPU\n", stderr), 77; /* skipped */
	run_on(all[0]);

	Figures kick, poller;
	std::vector<double> line, call, clock;
	for (int round = 0; round < 15; round++) {
		Path path(static_cast<std::size_t>(bytes));
		path.announce(false);
		measure(path, count, kick);

		std::atomic<bool> stop = false;
		path.announce(true);
		std::thread thread([&] {
			run_on(all[1]);
			path.scan(stop);
		});
		measure(path, count, poller);
		stop = true;
		thread.join();

		/* One way and back. */
		line.push_back(2 * ns_of_handover(all[0], all[1]));
		auto begin = Clock::now();
		for (long i = 0; i < count; i++)
			syscall(SYS_getppid);
		call.push_back(ns(Clock::now() - begin) / static_cast<double>(count));
		begin = Clock::now();
		for (long i = 0; i < count; i++)
			(void)Clock::now();
		clock.push_back(ns(Clock::now() - begin) / static_cast<double>(count));
	}
	std::printf("%-38s%10s%10s%10s\n", "ns", "median", "99 %", "best");
	for (auto [name, figures] : {std::pair{"kick: post to completion", &kick.whole},
				     {"kick: the post itself", &kick.post},
				     {"kick: a message of 128 in flight", &kick.rate},
				     {"poller: post to completion", &poller.whole},
				     {"poller: the post itself", &poller.post},
				     {"poller: a message of 128 in flight", &poller.rate},
				     {"cache line to another CPU and back", &line},
				     {"system call", &call},
				     {"reading the clock (in the first two)", &clock}})
		std::printf("%-38s%10.0f%10.0f%10.0f\n", name, at(*figures, 0.5),
			    at(*figures, 0.99), at(*figures, 0));
}
