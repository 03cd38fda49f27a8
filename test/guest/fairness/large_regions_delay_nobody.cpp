// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// vm: icount
// run: long
// timeout: 300
// transport: any
/*
 * Another thread of the only CPU gets it soon while the kernel works on a large region. The test
 * counts instructions, because the guest's clock counts those (scripts/vm --icount).
 *
 * Holds: Half a million pages of a region with on-demand paging are brought in, unmapped by the
 * program, brought in again and deregistered, and a pinned region of scattered pages is registered.
 * No call keeps the CPU for long, although each takes much longer as a whole. Does not hold: how
 * long such a call takes.
 */
#include "verbs.hpp"

#include <atomic>
#include <sys/mman.h>
#include <thread>

using namespace peal_test;

namespace {

constexpr std::size_t page = 4096;

/* In instructions. The scheduler gives each of two threads some milliseconds in turn. */
constexpr std::int64_t most = 20000000;

std::int64_t now()
{
	timespec time{};

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* A thread that looks at the clock all the time, and notes the longest time without it. */
class Watch {
public:
	Watch() : thread_([this] { look(); })
	{
		while (!looks_.load())
			sched_yield();
	}
	~Watch()
	{
		end_ = true;
		thread_.join();
	}
	Watch(const Watch &) = delete;
	Watch &operator=(const Watch &) = delete;
	std::int64_t longest() const { return longest_.load(); }

private:
	void look()
	{
		for (auto last = now(); !end_.load(); looks_ = true) {
			const auto time = now();

			longest_ = std::max(longest_.load(), time - last);
			last = time;
		}
	}

	std::atomic<std::int64_t> longest_{0};
	std::atomic<bool> end_{false}, looks_{false};
	std::thread thread_;
};

void check_delay(const char *what, const std::function<void()> &call)
{
	const Watch watch;
	const auto begin = now();

	call();
	const auto took = now() - begin;
	const auto longest = watch.longest();
	std::printf("%s: %ld thousand instructions, the other thread waited for %ld thousand\n",
		    what, static_cast<long>(took / 1000), static_cast<long>(longest / 1000));
	CHECK(longest <= most);
	/* Otherwise the call was too short to show anything. */
	CHECK(took >= 3 * most);
}

struct Pages {
	Pages(std::size_t pages, int prot) : bytes(pages * page)
	{
		base = mmap(nullptr, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			    0);
		if (base == MAP_FAILED)
			throw_errno("mmap");
		must(madvise(base, bytes, MADV_NOHUGEPAGE) ? errno : 0, "madvise");
	}
	~Pages() { munmap(base, bytes); }
	Pages(const Pages &) = delete;
	Pages &operator=(const Pages &) = delete;
	void *base;
	std::size_t bytes;
};

} // namespace

TEST_CASE("a region with on-demand paging")
{
	/* Reading maps the page of zeros again and again, which takes no memory. */
	Pages memory(1 << 19, PROT_READ);
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Mr mr(ibv_reg_mr(pd, memory.base, memory.bytes, IBV_ACCESS_ON_DEMAND), "reg_mr");
	const auto bring_in = [&] {
		ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory.base),
			    static_cast<std::uint32_t>(memory.bytes), mr->lkey};

		must(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH,
				   &sge, 1),
		     "advise_mr");
	};

	check_delay("bringing in", bring_in);
	check_delay("unmapping", [&] {
		must(madvise(memory.base, memory.bytes, MADV_DONTNEED) ? errno : 0, "madvise");
	});
	bring_in();
	check_delay("deregistering", [&] { mr.reset(); });
}

TEST_CASE("a pinned region")
{
	Pages memory(1 << 18, PROT_READ | PROT_WRITE);
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Mr mr;

	check_delay("registering", [&] {
		mr = Mr(ibv_reg_mr(pd, memory.base, memory.bytes, IBV_ACCESS_LOCAL_WRITE),
			"reg_mr");
	});
	check_delay("deregistering", [&] { mr.reset(); });
}
