/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The barrier that ring.h does not need. x86 keeps stores in order. */
#ifndef PEAL_KSHIM_ASM_BARRIER_H
#define PEAL_KSHIM_ASM_BARRIER_H

#include_next <asm/barrier.h>

#if defined(__x86_64__)
#define smp_wmb()	__asm__ __volatile__("" ::: "memory")
#else
#define smp_wmb()	__atomic_thread_fence(__ATOMIC_RELEASE)
#endif

#endif
