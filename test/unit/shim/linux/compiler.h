/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * As relaxed atomics rather than volatile accesses: the same instructions, and
 * ThreadSanitizer understands them.
 */
#ifndef PEAL_SHIM_LINUX_COMPILER_H
#define PEAL_SHIM_LINUX_COMPILER_H

#define likely(x)		__builtin_expect(!!(x), 1)
#define unlikely(x)		__builtin_expect(!!(x), 0)
#define READ_ONCE(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, value)	__atomic_store_n(&(x), value, __ATOMIC_RELAXED)

#endif
