/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef PEAL_SHIM_ASM_BARRIER_H
#define PEAL_SHIM_ASM_BARRIER_H

#define smp_load_acquire(p)		__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, value)	__atomic_store_n(p, value, __ATOMIC_RELEASE)
#if defined(__x86_64__)
/*
 * As in the kernel. ThreadSanitizer does not know __atomic_thread_fence. x86 keeps stores in order.
 */
#define smp_mb()	__asm__ __volatile__("lock; addl $0, -4(%%rsp)" ::: "memory", "cc")
#define smp_wmb()	__asm__ __volatile__("" ::: "memory")
#else
#define smp_mb()	__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_wmb()	__atomic_thread_fence(__ATOMIC_RELEASE)
#endif

#endif
