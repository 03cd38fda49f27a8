// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The memory that the kernel would allocate and the program would map, in one process.
 *
 * Owns: zeroed memory in the layout of a QP's or CQ's mapping, with both halves
 * of the rings attached to it.
 * Does not know: doorbells, the provider.
 */
#pragma once
#include <rdma/peal-abi.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "../../userspace/ring/completion_ring.hpp"
#include "../../userspace/ring/shared_recv_ring.hpp"
#include "../../userspace/ring/work_ring.hpp"
#include "kernel_half.h"

namespace peal::test {

/* Fewer rounds with sanitizers, because they make everything ten times slower. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int SLOWDOWN = 10;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
constexpr int SLOWDOWN = 10;
#else
constexpr int SLOWDOWN = 1;
#endif
#else
constexpr int SLOWDOWN = 1;
#endif

struct Page {
	struct Free {
		void operator()(std::byte *memory) const { std::free(memory); }
	};
	std::unique_ptr<std::byte, Free> memory;

	explicit Page(std::size_t bytes)
	{
		bytes = (bytes + PEAL_CACHE_LINE - 1) / PEAL_CACHE_LINE * PEAL_CACHE_LINE;
		memory.reset(static_cast<std::byte *>(std::aligned_alloc(PEAL_CACHE_LINE, bytes)));
		std::memset(memory.get(), 0, bytes);
	}
	std::byte *data() const { return memory.get(); }
};

template <class T, void (*Delete)(T *)>
struct KernelDelete {
	void operator()(T *object) const { Delete(object); }
};

/* One work ring. */
struct WorkPair {
	Page page;
	peal_ring_ctl *ctl;
	WorkRing user;
	std::unique_ptr<kernel_ring, KernelDelete<kernel_ring, kernel_ring_delete>> kernel;

	/* Indices start at `first`, as if the queue had been used and reset before. */
	explicit WorkPair(std::uint32_t entries, std::uint32_t stride = 64, std::uint32_t first = 0)
		: page(sizeof(peal_ring_ctl) + std::size_t{entries} * stride),
		  ctl(reinterpret_cast<peal_ring_ctl *>(page.data()))
	{
		std::byte *slots = page.data() + sizeof(peal_ring_ctl);

		user.attach({ctl, slots, entries, stride});
		kernel.reset(kernel_ring_new(ctl, slots, entries, stride));
		ctl->producer = first;
		kernel_ring_discard(kernel.get());
		user.reset();
	}
};

/* The ring of a shared receive queue. The kernel's half is that of a work ring of numbers. */
struct SharedPair {
	Page page;
	peal_ring_ctl *ctl;
	__u32 *numbers;
	std::byte *slots;
	std::uint32_t mask;
	SharedRecvRing user;
	std::unique_ptr<kernel_ring, KernelDelete<kernel_ring, kernel_ring_delete>> kernel;

	explicit SharedPair(std::uint32_t entries, std::uint32_t stride = 64)
		: page(sizeof(peal_ring_ctl) + PEAL_CACHE_LINE +
		       std::size_t{entries} * (sizeof(__u32) + stride)),
		  ctl(reinterpret_cast<peal_ring_ctl *>(page.data())),
		  numbers(reinterpret_cast<__u32 *>(page.data() + sizeof(peal_ring_ctl))),
		  slots(page.data() + sizeof(peal_ring_ctl) +
			(entries * sizeof(__u32) + 63) / 64 * 64),
		  mask(entries - 1)
	{
		user.attach({ctl, numbers, slots, entries, stride});
		kernel.reset(kernel_ring_new(ctl, slots, entries, stride));
	}
	/* Takes the next WQE as the kernel does. Return: the number of its slot. */
	std::uint32_t take() const
	{
		const std::uint32_t number =
			load_relaxed(numbers[kernel_ring_next(kernel.get()) & mask]);

		kernel_ring_take(kernel.get());
		ctl->consumer = kernel_ring_next(kernel.get());
		return number;
	}
};

/* The memory of another ring for a SharedPair. */
struct OtherRing {
	std::vector<__u32> numbers;
	std::vector<std::byte> slots;
	SharedRingShape shape;

	OtherRing(const SharedPair &pair, std::uint32_t entries)
		: numbers(entries),
		  slots(std::size_t{entries} * 64), shape{pair.ctl, numbers.data(), slots.data(),
							  entries, 64}
	{
	}
	/* The kernel uses this ring from now on. */
	void use(SharedPair &pair)
	{
		pair.numbers = numbers.data();
		pair.slots = slots.data();
		pair.mask = shape.entries - 1;
	}
};

struct CqPair {
	Page page;
	CompletionRing user;
	std::unique_ptr<kernel_cq, KernelDelete<kernel_cq, kernel_cq_delete>> kernel;

	explicit CqPair(std::uint32_t entries)
		: page(PEAL_CQ_RING_OFFSET + std::size_t{entries} * sizeof(peal_cqe)),
		  user(page.data(), entries), kernel(kernel_cq_new(page.data(), entries))
	{
	}
	peal_cq_ctl &ctl() const { return *reinterpret_cast<peal_cq_ctl *>(page.data()); }
};

/* Waits until `done()`. Return: false after a time that is enough unless a wake-up was lost. */
template <class Done>
bool eventually(Done done)
{
	const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);

	for (unsigned turn = 0; !done(); ++turn) {
		if (turn % 64 == 63)
			std::this_thread::yield();
		if (turn % 1024 == 1023 && std::chrono::steady_clock::now() > deadline)
			return false;
		cpu_relax();
	}
	return true;
}

} // namespace peal::test
