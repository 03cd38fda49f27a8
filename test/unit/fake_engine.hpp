// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The kernel's side of the doorbell, as a thread.
 *
 * Owns: the model of kernel/engine/poller.c, which scans, serves, falls asleep
 * and is kicked.
 * Does not know: rings. The "work" of queue pair i is a pair of counters.
 *
 * Only a kick wakes the engine when it sleeps, so a lost doorbell leaves work undone for
 * ever and the test notices it.
 */
#pragma once
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "../../userspace/ring/doorbell.hpp"
#include "shared_memory.hpp"

namespace peal::test {

struct FakeEngine {
	struct Work {
		std::atomic<std::uint32_t> posted = 0;
		std::atomic<std::uint32_t> served = 0;
		std::mutex lock; /* the queue pair's sq.lock */
	};
	struct Kick {
		FakeEngine *engine;
		int operator()(unsigned long command, std::uint32_t index) const
		{
			return engine->knock(command, index);
		}
	};

	Page page{sizeof(peal_doorbell)};
	peal_doorbell *db = reinterpret_cast<peal_doorbell *>(page.data());
	std::unique_ptr<Work[]> work = std::make_unique<Work[]>(PEAL_MAX_QP);
	BasicDoorbell<Kick> doorbell{db, Kick{this}};
	std::atomic<bool> wanted = false, stop = false;
	std::atomic<std::uint64_t> kicks = 0, doorbells = 0;
	std::thread thread;

	void start()
	{
		announce(PEAL_ENGINE_ASLEEP);
		thread = std::thread([this] { run(); });
	}
	void finish()
	{
		stop = true;
		thread.join();
	}

	int knock(unsigned long, std::uint32_t index)
	{
		++kicks;
		serve(index);
		wanted = true;
		return 0;
	}

	void serve(std::uint32_t index)
	{
		std::lock_guard guard(work[index].lock);
		work[index].served.store(work[index].posted.load(std::memory_order_acquire),
					 std::memory_order_release);
	}

	void announce(std::uint32_t state)
	{
		std::atomic_ref(db->engine).store(state, std::memory_order_relaxed);
		full_barrier(); /* B */
	}

	/* Waits a little for the engine, as a program would, so that bits are used at all. */
	void await_awake() const
	{
		for (int turn = 0; turn < 20 && load_relaxed(db->engine) != PEAL_ENGINE_AWAKE;
		     ++turn)
			std::this_thread::yield();
	}

	/* Return: whether there was any work. */
	bool scan()
	{
		bool any = false;

		for (std::uint32_t w = 0; w < PEAL_DB_WORDS; ++w) {
			if (!load_relaxed(db->bits[w]))
				continue;
			any = true;
			serve_bits(w * 64, std::atomic_ref(db->bits[w]).exchange(0));
		}
		return any;
	}

	void serve_bits(std::uint32_t first, __u64 bits)
	{
		for (; bits; bits &= bits - 1) {
			doorbells.fetch_add(1, std::memory_order_relaxed);
			serve(first + static_cast<std::uint32_t>(__builtin_ctzll(bits)));
		}
	}

	/* Falls asleep after few scans, with or without work, to make the race frequent. */
	void run()
	{
		unsigned patience = 0;

		while (!stop) {
			if (!wanted.exchange(false)) {
				std::this_thread::yield();
				continue;
			}
			announce(PEAL_ENGINE_AWAKE);
			patience = patience % 37 + 1;
			for (unsigned turn = 0; turn < patience; ++turn) {
				/*
				 * Lets programs see the engine awake, even if there are few CPUs.
				 */
				if (!scan() && turn % 8 == 0)
					std::this_thread::yield();
			}
			announce(PEAL_ENGINE_ASLEEP);
			scan();
		}
	}
};

} // namespace peal::test
