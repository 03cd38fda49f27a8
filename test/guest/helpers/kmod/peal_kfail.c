// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Makes allocations of one thread fail in a kernel that is built without fault
 * injection. Probes divert the CPU to functions that return what the allocator
 * returns when there is no memory.
 *
 * Owns: slab objects (kmalloc, caches), pages (also those of vmalloc, page
 * tables and user memory), per-CPU memory, and new threads, whose memory another
 * task allocates. As with the kernel's own failslab, allocations in interrupts
 * and allocations that must not fail are left alone. So are page faults of user
 * mode, which the kernel retries for ever; munmap, because no program can handle
 * its failure; the core's list of objects, which tolerates the failure with a
 * warning; and the loader of modules, whose tracing does the same. The init
 * functions of modules are not left alone.
 * Does not know: the purpose of an allocation. The parameter "trace" logs it.
 */
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/kprobes.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/stacktrace.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <asm/syscall.h>

#include "peal_kfail.h"

#define KFAIL_NO_GFP	-1
#define KFAIL_FRAMES	12

static bool kfail_trace;
module_param_named(trace, kfail_trace, bool, 0644);
MODULE_PARM_DESC(trace, "log the callers of what is made to fail");

/* Written while task is NULL, and then only by that task. */
static struct {
	struct task_struct *task;
	unsigned long number;	/* counted from 1 */
	bool more;		/* the later ones, too */
	bool paused;
	bool in_init;		/* of a module that the thread loads */
	unsigned long seen, failed;
} kfail;

static atomic_t kfail_opened = ATOMIC_INIT(0);

/* ---- functions that run instead ---- */

static notrace noinline long kfail_error(void)
{
	return -ENOMEM;
}

static notrace noinline __maybe_unused bool kfail_true(void)
{
	return true;
}

static notrace noinline void *kfail_null(void)
{
	return NULL;
}

/* ---- the probes ---- */

struct kfail_probe {
	struct kprobe kp;
	void *instead;
	int gfp;	/* which argument has the GFP flags */
};

static struct kfail_probe *kfail_probe(struct kprobe *kp)
{
	return container_of(kp, struct kfail_probe, kp);
}

/* Without ftrace a probe is a breakpoint, which runs like an NMI. */
static bool kfail_in_task(void)
{
	return !in_serving_softirq() && hardirq_count() == (in_nmi() ? HARDIRQ_OFFSET : 0);
}

/* Whether this is a system call of the thread that asked for failures. */
static bool kfail_armed(void)
{
	long nr;

	if (READ_ONCE(kfail.task) != current || !kfail_in_task() || kfail.paused)
		return false;
	nr = syscall_get_nr(current, task_pt_regs(current));
	if (nr == __NR_finit_module)
		return kfail.in_init;
	return nr >= 0 && nr != __NR_munmap;
}

static void kfail_log(const char *what)
{
	unsigned long frames[KFAIL_FRAMES];
	unsigned int i, n = stack_trace_save(frames, KFAIL_FRAMES, 4);

	pr_info("peal_kfail: %lu: %s\n", kfail.seen, what);
	for (i = 0; i < n; i++)
		pr_info("peal_kfail:    %pS\n", (void *)frames[i]);
}

static bool kfail_wanted(void)
{
	kfail.seen++;
	return kfail.more ? kfail.seen >= kfail.number : kfail.seen == kfail.number;
}

static bool kfail_strikes(const struct kfail_probe *probe, struct pt_regs *regs)
{
	if (!kfail_armed())
		return false;
	if (probe->gfp != KFAIL_NO_GFP &&
	    regs_get_kernel_argument(regs, probe->gfp) & __GFP_NOFAIL)
		return false;
	if (!kfail_wanted())
		return false;
	kfail.failed++;
	if (kfail_trace)
		kfail_log(probe->kp.symbol_name);
	return true;
}

/* Called at the first instruction, so that another function can return to the caller. */
static int kfail_allocates(struct kprobe *kp, struct pt_regs *regs)
{
	if (!kfail_strikes(kfail_probe(kp), regs))
		return 0;
	instruction_pointer_set(regs, (unsigned long)kfail_probe(kp)->instead);
	return 1;
}

/*
 * It exists so that kprobes does not optimize the probe to a jump, which would ignore a changed IP.
 */
static void kfail_after(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}

/* The report of a failed vmalloc looks like a kernel bug, but this failure is wanted. */
static int kfail_reports(struct kprobe *kp, struct pt_regs *regs)
{
	if (!kfail_armed() || !kfail.failed)
		return 0;
	instruction_pointer_set(regs, (unsigned long)kfail_probe(kp)->instead);
	return 1;
}

static int kfail_pause(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if (READ_ONCE(kfail.task) != current)
		return 1;
	kfail.paused = true;
	return 0;
}

static int kfail_resume(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	kfail.paused = false;
	return 0;
}

static int kfail_init_begins(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if (READ_ONCE(kfail.task) != current)
		return 1;
	kfail.in_init = true;
	return 0;
}

static int kfail_init_ends(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	kfail.in_init = false;
	return 0;
}

static struct kretprobe kfail_module_init = {
	.kp.symbol_name = "do_one_initcall",
	.entry_handler = kfail_init_begins,
	.handler = kfail_init_ends,
};

static struct kretprobe kfail_restrack = {
	.kp.symbol_name = "rdma_restrack_add",
	.entry_handler = kfail_pause,
	.handler = kfail_resume,
};

/*
 * Since 6.11 the two functions that existed to fail are inline, so the allocator's own entries fail, which have the
 * suffix _noprof. KFAIL_PAGES is the one below all others.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define KFAIL_ENTRIES
#define KFAIL_PCPU_ALLOC "pcpu_alloc_noprof"
/* Where the arguments that an option of the kernel adds are before the flags. */
#define KFAIL_SIZE_GFP	(1 + IS_ENABLED(CONFIG_KMALLOC_PARTITION_CACHES))
#define KFAIL_NODE_GFP	(KFAIL_SIZE_GFP + IS_ENABLED(CONFIG_SLAB_BUCKETS))
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
#define KFAIL_PAGES "__alloc_frozen_pages_noprof"
#else
#define KFAIL_PAGES "__alloc_pages_noprof"
#endif
#else
#define KFAIL_PCPU_ALLOC "pcpu_alloc"
#endif

/*
 * Per-CPU memory fails as a whole, because a failure inside of it is reported
 * like a kernel bug. The probe is on a function that the two functions below
 * call. A probe on themselves would be another kind of ftrace user, because it has
 * no post_handler and so may not change the IP. kprobes confuses the two
 * kinds when probes with the same address go. Newer kernels have no such two functions, so there per-CPU memory does
 * not fail.
 */
static struct kretprobe kfail_percpu = {
	.kp.symbol_name = KFAIL_PCPU_ALLOC,
	.entry_handler = kfail_pause,
	.handler = kfail_resume,
};

static struct kretprobe *kfail_returns[] = {
	&kfail_restrack, &kfail_module_init, &kfail_percpu,
};

#define KFAIL_PROBE(symbol, handler, function, number)			\
	{									\
		.kp = {								\
			.symbol_name = symbol, .pre_handler = handler,		\
			.post_handler = kfail_after,				\
		},								\
		.instead = function, .gfp = number,				\
	}

static struct kfail_probe kfail_probes[] = {
#ifdef KFAIL_ENTRIES
	KFAIL_PROBE("kmem_cache_alloc_noprof", kfail_allocates, kfail_null, 1),
	KFAIL_PROBE("kmem_cache_alloc_lru_noprof", kfail_allocates, kfail_null, 2),
	KFAIL_PROBE("kmem_cache_alloc_node_noprof", kfail_allocates, kfail_null, 1),
	KFAIL_PROBE("__kmalloc_noprof", kfail_allocates, kfail_null, KFAIL_SIZE_GFP),
	KFAIL_PROBE("__kmalloc_node_noprof", kfail_allocates, kfail_null, KFAIL_NODE_GFP),
	KFAIL_PROBE("__kmalloc_cache_noprof", kfail_allocates, kfail_null, 1),
	KFAIL_PROBE("__kmalloc_cache_node_noprof", kfail_allocates, kfail_null, 1),
	KFAIL_PROBE(KFAIL_PAGES, kfail_allocates, kfail_null, 0),
#else
	KFAIL_PROBE("should_failslab", kfail_allocates, kfail_error, 1),
	KFAIL_PROBE("should_fail_alloc_page", kfail_allocates, kfail_true, 0),
	KFAIL_PROBE("__alloc_percpu", kfail_allocates, kfail_null, KFAIL_NO_GFP),
	KFAIL_PROBE("__alloc_percpu_gfp", kfail_allocates, kfail_null, 2),
#endif
	KFAIL_PROBE("kthread_create_on_node", kfail_allocates, kfail_error, KFAIL_NO_GFP),
	KFAIL_PROBE("warn_alloc", kfail_reports, kfail_null, KFAIL_NO_GFP),
};

/* ---- the interface ---- */

void peal_kfail_start(unsigned long number, bool more)
{
	WRITE_ONCE(kfail.task, NULL);
	kfail.number = number;
	kfail.more = more;
	kfail.paused = false;
	/* An init function may ask for failures itself. */
	kfail.in_init = syscall_get_nr(current, task_pt_regs(current)) == __NR_finit_module;
	kfail.seen = 0;
	kfail.failed = 0;
	WRITE_ONCE(kfail.task, current);
}
EXPORT_SYMBOL_GPL(peal_kfail_start);

unsigned long peal_kfail_stop(void)
{
	WRITE_ONCE(kfail.task, NULL);
	return kfail.failed;
}
EXPORT_SYMBOL_GPL(peal_kfail_stop);

static long kfail_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case PEAL_KFAIL_ONE:
		peal_kfail_start(arg, false);
		return 0;
	case PEAL_KFAIL_FROM:
		peal_kfail_start(arg, true);
		return 0;
	case PEAL_KFAIL_STOP:
		return peal_kfail_stop();
	}
	return -ENOTTY;
}

static int kfail_open(struct inode *inode, struct file *file)
{
	return atomic_cmpxchg(&kfail_opened, 0, 1) ? -EBUSY : 0;
}

static int kfail_release(struct inode *inode, struct file *file)
{
	peal_kfail_stop();
	atomic_set(&kfail_opened, 0);
	return 0;
}

static const struct file_operations kfail_fops = {
	.owner = THIS_MODULE,
	.open = kfail_open,
	.release = kfail_release,
	.unlocked_ioctl = kfail_ioctl,
};

static struct miscdevice kfail_device = {
	.minor = MISC_DYNAMIC_MINOR, .name = "peal_kfail", .fops = &kfail_fops, .mode = 0600,
};

/* ---- the module ---- */

static void kfail_unregister(int count)
{
	while (count--)
		unregister_kprobe(&kfail_probes[count].kp);
}

static int kfail_register(void)
{
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(kfail_probes); i++) {
		ret = register_kprobe(&kfail_probes[i].kp);
		if (ret) {
			pr_err("peal_kfail: no probe on %s\n", kfail_probes[i].kp.symbol_name);
			kfail_unregister(i);
			return ret;
		}
	}
	return 0;
}

static int __init kfail_init(void)
{
	int ret = register_kretprobes(kfail_returns, ARRAY_SIZE(kfail_returns));

	if (ret)
		return ret;
	ret = kfail_register();
	if (ret)
		goto returns;
	ret = misc_register(&kfail_device);
	if (!ret)
		return 0;
	kfail_unregister(ARRAY_SIZE(kfail_probes));
returns:
	unregister_kretprobes(kfail_returns, ARRAY_SIZE(kfail_returns));
	return ret;
}

static void __exit kfail_exit(void)
{
	misc_deregister(&kfail_device);
	kfail_unregister(ARRAY_SIZE(kfail_probes));
	unregister_kretprobes(kfail_returns, ARRAY_SIZE(kfail_returns));
}

module_init(kfail_init);
module_exit(kfail_exit);

MODULE_DESCRIPTION("Makes allocations of one thread fail");
MODULE_LICENSE("Dual BSD/GPL");
