/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Hints, attributes, single accesses, and a hook for tests that change memory between two reads. */
#ifndef PEAL_SHIM_LINUX_COMPILER_H
#define PEAL_SHIM_LINUX_COMPILER_H

#include <asm/barrier.h>

#define likely(x)		__builtin_expect(!!(x), 1)
#define unlikely(x)		__builtin_expect(!!(x), 0)

#ifndef __packed
#define __packed	__attribute__((__packed__))
#endif
#ifndef __cplusplus
#define noinline	__attribute__((__noinline__))
#endif
#ifndef __always_inline
#define __always_inline	inline __attribute__((__always_inline__))
#endif

/* Called with the address of each word that was just read, when a test has set it. */
extern void (*shim_after_read)(const volatile void *word);

/*
 * Volatile, as in the kernel, because the order of accesses is tested. They may be
 * unaligned. ThreadSanitizer understands only atomics.
 */
#if defined(__SANITIZE_THREAD__)
#define SHIM_LOAD(p)		__atomic_load_n(p, __ATOMIC_RELAXED)
#define SHIM_STORE(p, value)	__atomic_store_n(p, value, __ATOMIC_RELAXED)
#else
#define SHIM_LOAD(p)		(*(p))
#define SHIM_STORE(p, value)	((void)(*(p) = (value)))
#endif

#define READ_ONCE(x) ({						\
	const volatile __typeof__(x) *word_ = &(x);		\
	__typeof__(x) read_ = SHIM_LOAD(word_);			\
	if (shim_after_read)					\
		shim_after_read(word_);				\
	read_;							\
})
#define WRITE_ONCE(x, value) ({					\
	volatile __typeof__(x) *word_ = &(x);			\
	SHIM_STORE(word_, value);				\
})

#endif
