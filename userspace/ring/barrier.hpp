// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Loads, stores and barriers on the words that the program and the kernel share: the C++ form of
 * the lettered barriers of <rdma/peal-abi.h>.
 *
 *	letter	program's half (here)			kernel's half
 *	A	release store of producer		acquire load of producer
 *	B	doorbell bits; full; load engine	store engine; full; scan bits
 *	C	store producer; full; load flags	store flags; full; load producer
 *	D	acquire load of a CQE's flags byte	release store of it
 *	E	store arm; full; look at the next CQE	store CQE; full; load arm
 *	F	release store of consumer		acquire load of consumer
 *
 * A, D and F hand over memory. B, C and E are store-load pairs. Each side stores
 * one word and then loads the other's, and at least one side must see the other's
 * store. This needs a full barrier on both sides, because release and acquire do
 * not order a store before a later load.
 */
#pragma once
#include <atomic>

namespace peal {

template <class T>
T load_relaxed(const T &word) noexcept
{
	return std::atomic_ref<T>(const_cast<T &>(word)).load(std::memory_order_relaxed);
}

template <class T>
T load_acquire(const T &word) noexcept
{
	return std::atomic_ref<T>(const_cast<T &>(word)).load(std::memory_order_acquire);
}

template <class T>
void store_relaxed(T &word, T value) noexcept
{
	std::atomic_ref<T>(word).store(value, std::memory_order_relaxed);
}

template <class T>
void store_release(T &word, T value) noexcept
{
	std::atomic_ref<T>(word).store(value, std::memory_order_release);
}

/*
 * On x86 a locked operation on the stack is a full barrier for ordinary memory.
 * It costs about a third of mfence, because mfence also waits for write-combining
 * buffers, which peal does not use. It also avoids a warning in ThreadSanitizer
 * builds, because ThreadSanitizer does not support atomic_thread_fence.
 */
inline void full_barrier() noexcept
{
#if defined(__x86_64__)
	asm volatile("lock; orl $0, (%%rsp)" ::: "memory", "cc");
#else
	std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/* Sets bits. This is a full barrier only together with full_barrier_after_or(). */
template <class T>
void or_release(T &word, T bits) noexcept
{
	std::atomic_ref<T>(word).fetch_or(bits, std::memory_order_seq_cst);
}

/* On x86 the locked OR was a full barrier, so only the compiler needs one here. */
inline void full_barrier_after_or() noexcept
{
#if defined(__x86_64__)
	asm volatile("" ::: "memory");
#else
	full_barrier();
#endif
}

/* Call once per iteration of a spin loop, so that the CPU gives way to its sibling. */
inline void cpu_relax() noexcept
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	asm volatile("yield" ::: "memory");
#endif
}

} // namespace peal
