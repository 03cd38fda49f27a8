/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* There are no per-CPU counters here. */
#ifndef PEAL_SHIM_LINUX_PERCPU_H
#define PEAL_SHIM_LINUX_PERCPU_H

#define __percpu
/* Only one thread at a time uses this. */
#define this_cpu_ptr(pointer) (pointer)

#endif
