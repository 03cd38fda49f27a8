/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The task that a kernel file runs in, and where its vector registers are. */
#ifndef PEAL_SHIM_LINUX_SCHED_H
#define PEAL_SHIM_LINUX_SCHED_H

#include <stdbool.h>

#define PF_KTHREAD		0x00200000
#define TIF_NEED_FPU_LOAD	14

struct task_struct {
	unsigned int flags;
};

extern struct task_struct shim_task;
extern bool shim_fpu_saved;

#define current			(&shim_task)
#define test_thread_flag(flag)	((flag) == TIF_NEED_FPU_LOAD && shim_fpu_saved)

#endif
