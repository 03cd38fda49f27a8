// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The switches and counters behind the shim's headers, for tests. */
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#include <linux/compiler.h>
#include <linux/cred.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/mm.h>
#include <stdlib.h>

struct shim_cpu_feature shim_cpu[SHIM_CPU_FEATURES];
struct task_struct shim_task;
bool shim_fpu_busy, shim_fpu_saved;
u64 shim_xfeatures;
int shim_fpu_depth, shim_fpu_sections;
ktime_t shim_now;
void (*shim_after_read)(const volatile void *word);
bool shim_no_memory;
int shim_fail_at;
long shim_allocations;
int shim_warnings;
kuid_t shim_uid;
unsigned long shim_pages = 1 << 18;
static struct user_namespace shim_init_user_ns;
struct user_namespace *shim_user_ns = &shim_init_user_ns;

void *shim_calloc(size_t count, size_t size)
{
	bool fails = shim_no_memory || (shim_fail_at && !--shim_fail_at);
	void *memory = fails ? NULL : calloc(count, size);

	if (memory)
		shim_allocations++;
	return memory;
}

void shim_free(const void *memory)
{
	if (memory)
		shim_allocations--;
	free((void *)memory);
}
