/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The names that kernel files take from linux/kernel.h: minmax, container_of, errno. */
#ifndef PEAL_SHIM_LINUX_KERNEL_H
#define PEAL_SHIM_LINUX_KERNEL_H

#include <linux/compiler.h>
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/types.h>

#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))
/* Unlike the kernel's, for unsigned types only. */
#define DIV_ROUND_CLOSEST(n, d)	(((n) + (d) / 2) / (d))

/* The number of warnings so far, for tests. */
extern int shim_warnings;

#define WARN_ON(condition) ({			\
	bool warn_ = !!(condition);		\
	shim_warnings += warn_;			\
	warn_;					\
})

/* C++ has its own. */
#ifndef __cplusplus
#define swap(a, b) ({ __typeof__(a) swap_ = (a); (a) = (b); (b) = swap_; })
#endif

#define container_of(pointer, type, member) \
	((type *)((char *)(pointer) - offsetof(type, member)))

#endif
