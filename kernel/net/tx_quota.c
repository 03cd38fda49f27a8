// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See tx_quota.h.
 */
#include <linux/in.h>
#include <linux/net.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/sock.h>

#include "base/budget.h"
#include "net/tx_quota.h"

/* The most waiters that are called in one section with interrupts off. */
#define PEAL_TX_QUOTA_CALLS	32

/*
 * The largest quota. In bytes of skbs with their overhead (truesize): 800 packets without
 * payload, which fit a queue of the usual 1000 packets, or 190 of the largest path MTU. The
 * waiters are called when half of it is free. The other half keeps a 100 Gb/s link busy for
 * 30 us.
 */
#define PEAL_TX_QUOTA_MAX		(1024 * 1024)

/* What a quota always has: twelve packets of the largest path MTU, or 50 without payload. */
#define PEAL_TX_QUOTA_MIN		(64 * 1024)

/*
 * How many bytes all quotas of a device may have beyond PEAL_TX_QUOTA_MIN each. A quota leaves
 * four times as much as it gets. So the limit has no effect until four quotas have
 * PEAL_TX_QUOTA_MAX.
 */
#define PEAL_TX_QUOTAS_BYTES	(8L << 20)
#define PEAL_TX_QUOTAS_PARTS	4

/* A quota that asks for more checks this many others, because they may not need theirs. */
#define PEAL_TX_QUOTAS_LOOKS	4

/*
 * Opening or closing a context checks this many closed quotas. Each context leaves only one,
 * so the checks keep up with the closed quotas.
 */
#define PEAL_TX_QUOTAS_SWEPT	16

/* The fields that each packet needs come first, in one cache line. */
struct peal_tx_quota {
	struct socket *sock;		/* unbound: used only to account for packets */
	struct socket *silent;		/* the same, for neighbours that do not answer */

	/* Guarded by tx_quotas.lock: */
	u32 scarce;			/* check the neighbour when more bytes are in use */
	u32 least;			/* what the quota always has, in bytes */
	/* Guarded by tx_quota.lock: */
	struct list_head waiters;	/* struct peal_waiter, by node */
	struct list_head called;	/* waiters that are being called */

	spinlock_t lock;		/* inside the wait queue's lock */
	wait_queue_entry_t entry;	/* on sock's queue while a queue pair waits */
	struct work_struct work;	/* calls the waiters that are left in `called` */
	struct peal_tx_quotas *quotas;

	/* Guarded by tx_quotas.lock: */
	struct list_head node;		/* in quotas->large or quotas->closed */
	u32 extra;			/* what it has beyond the least, in bytes */
	bool closed;
};

/* @all: call also those that wait in `waiters` now. Return: true when some are left to call. */
static bool peal_tx_quota_call(struct peal_tx_quota *quota, bool all)
{
	struct peal_waiter *waiter;
	unsigned long flags;
	bool left;
	u32 i;

	spin_lock_irqsave(&quota->lock, flags);
	if (all)
		list_splice_tail_init(&quota->waiters, &quota->called);
	for (i = 0; i < PEAL_TX_QUOTA_CALLS && !list_empty(&quota->called); i++) {
		waiter = list_first_entry(&quota->called, struct peal_waiter, node);
		list_del_init(&waiter->node);
		waiter->ready(waiter);
	}
	left = !list_empty(&quota->called);
	spin_unlock_irqrestore(&quota->lock, flags);
	return left;
}

/* Called by the core under the lock of the socket's wait queue, in any context. */
static int peal_tx_quota_half_free(wait_queue_entry_t *entry, unsigned int mode, int flags,
				   void *key)
{
	struct peal_tx_quota *quota = container_of(entry, struct peal_tx_quota, entry);

	lockdep_assert_held(&sk_sleep(quota->sock->sk)->lock);
	list_del_init(&entry->entry);
	if (peal_tx_quota_call(quota, true))
		peal_workers_queue(&quota->work);
	return 1;
}

/*
 * From now on the waiters are called when half of the quota is free. Return: true when it is free
 * already.
 */
static bool peal_tx_quota_arm(struct peal_tx_quota *quota)
{
	wait_queue_head_t *queue = sk_sleep(quota->sock->sk);
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	if (list_empty(&quota->entry.entry))
		__add_wait_queue(queue, &quota->entry);
	spin_unlock_irqrestore(&queue->lock, flags);
	/*
	 * H: the entry is on the queue before the socket's account is read. Pairs with the
	 * barrier between the account and the queue in the core's sock_wfree()
	 * (skwq_has_sleeper). Both sides compare the account with half of the quota's size,
	 * which may have changed in between. tx_quota.h says why no wake-up is lost.
	 */
	smp_mb();
	return sock_writeable(quota->sock->sk);
}

/*
 * The waiters that were called first may have used the quota up. Then arm again, and the others are
 * called when half of the quota is free again.
 */
static void peal_tx_quota_work(struct work_struct *work)
{
	struct peal_tx_quota *quota = container_of(work, struct peal_tx_quota, work);

	while ((sock_writeable(quota->sock->sk) || peal_tx_quota_arm(quota)) &&
	       peal_tx_quota_call(quota, false))
		cond_resched();
}

/* ---- sizes ---- */

static u32 peal_tx_quota_bytes(const struct socket *sock)
{
	return sk_wmem_alloc_get(sock->sk);
}

/*
 * A closed quota counts the packets of both sockets. An open one counts only the larger sum,
 * because each of its sockets may hold the quota's size.
 */
static u32 peal_tx_quota_used(const struct peal_tx_quota *quota)
{
	u32 used = peal_tx_quota_bytes(quota->sock), silent = peal_tx_quota_bytes(quota->silent);

	return quota->closed ? used + silent : max(used, silent);
}

static u32 peal_tx_quota_beyond(const struct peal_tx_quota *quota, u32 bytes)
{
	return bytes > quota->least ? bytes - quota->least : 0;
}

/* Set the size, and move the quota to the end of the list where it belongs. */
static void peal_tx_quota_resize(struct peal_tx_quota *quota, u32 extra)
{
	struct peal_tx_quotas *quotas = quota->quotas;

	lockdep_assert_held(&quotas->lock);
	quotas->extra += (long)extra - quota->extra;
	quota->extra = extra;
	WRITE_ONCE(quota->sock->sk->sk_sndbuf, quota->least + extra);
	if (quota->closed)
		list_move_tail(&quota->node, &quotas->closed);
	else if (extra)
		list_move_tail(&quota->node, &quotas->large);
	else
		list_del_init(&quota->node);
}

/*
 * Take from the first quotas of @list what they do not need. Leave an open quota twice what it
 * uses, so that it need not ask again at once.
 */
static void peal_tx_quotas_shrink(struct list_head *list)
{
	u32 i, used, needs;

	for (i = 0; i < PEAL_TX_QUOTAS_LOOKS && !list_empty(list); i++) {
		struct peal_tx_quota *quota = list_first_entry(list, struct peal_tx_quota, node);

		used = peal_tx_quota_used(quota);
		needs = peal_tx_quota_beyond(quota, quota->closed ? used : 2 * used);
		peal_tx_quota_resize(quota, min(quota->extra, needs));
	}
}

/*
 * The most that a quota may have beyond its least. It is a multiple of PEAL_TX_QUOTA_MIN, so
 * that a quota does not ask again after a few packets.
 */
static u32 peal_tx_quota_share(const struct peal_tx_quota *quota)
{
	long left = PEAL_TX_QUOTAS_BYTES - (quota->quotas->extra - quota->extra);
	long share = max(left, 0L) / (PEAL_TX_QUOTAS_PARTS + 1);

	lockdep_assert_held(&quota->quotas->lock);
	return rounddown(min_t(long, share, PEAL_TX_QUOTA_MAX - quota->least), PEAL_TX_QUOTA_MIN);
}

static bool peal_tx_quota_is_full(const struct peal_tx_quota *quota)
{
	return peal_tx_quota_bytes(quota->sock) >= READ_ONCE(quota->sock->sk->sk_sndbuf);
}

/*
 * A full quota asks for its share. The share may be less than it has. Then the quota keeps
 * what it uses and no more. Return: true when it is still full.
 */
static noinline bool peal_tx_quota_stays_full(struct peal_tx_quota *quota)
{
	struct peal_tx_quotas *quotas = quota->quotas;
	u32 share;

	if (quota->least == PEAL_TX_QUOTA_MAX)
		return true;
	spin_lock(&quotas->lock);
	share = peal_tx_quota_share(quota);
	if (share < PEAL_TX_QUOTA_MAX - quota->least) {
		peal_tx_quotas_shrink(&quotas->closed);
		peal_tx_quotas_shrink(&quotas->large);
		share = peal_tx_quota_share(quota);
	}
	share = max(share,
		    min(quota->extra, peal_tx_quota_beyond(quota, peal_tx_quota_used(quota))));
	peal_tx_quota_resize(quota, share);
	WRITE_ONCE(quota->scarce, (quota->least + share) / 4);
	spin_unlock(&quotas->lock);
	return peal_tx_quota_is_full(quota);
}

/* ---- open and close ---- */

/* The socket is never bound, so it receives nothing and no tool lists it. */
static int peal_tx_quota_socket(struct net *net, struct socket **sock)
{
	int ret = sock_create_kern(net, AF_INET, SOCK_DGRAM, IPPROTO_UDP, sock);

	return ret == -ENFILE ? -ENOMEM : ret;	/* no memory for an inode; it uses no file */
}

/* The sockets take the cgroup, the classid and the user of `current`. */
static struct peal_tx_quota *peal_tx_quota_new(struct peal_tx_quotas *quotas, u32 least)
{
	struct peal_tx_quota *quota = kzalloc(sizeof(*quota), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!quota)
		return ERR_PTR(-ENOMEM);
	ret = peal_tx_quota_socket(quotas->net, &quota->sock);
	if (ret)
		goto free;
	ret = peal_tx_quota_socket(quotas->net, &quota->silent);
	if (ret)
		goto release;
	quota->quotas = quotas;
	quota->least = least;
	quota->scarce = PEAL_TX_QUOTA_MAX / 4;
	INIT_LIST_HEAD(&quota->node);
	spin_lock_init(&quota->lock);
	INIT_LIST_HEAD(&quota->waiters);
	INIT_LIST_HEAD(&quota->called);
	INIT_WORK(&quota->work, peal_tx_quota_work);
	init_waitqueue_func_entry(&quota->entry, peal_tx_quota_half_free);
	INIT_LIST_HEAD(&quota->entry.entry);
	WRITE_ONCE(quota->sock->sk->sk_sndbuf, least);
	return quota;

release:
	sock_release(quota->sock);
free:
	kfree(quota);
	return ERR_PTR(ret);
}

/*
 * Free the closed quotas whose packets are gone, among the first PEAL_TX_QUOTAS_SWEPT. With @all
 * free every closed quota, also when packets of it still wait.
 */
static void peal_tx_quotas_sweep(struct peal_tx_quotas *quotas, bool all)
{
	struct peal_tx_quota *quota, *next;
	LIST_HEAD(gone);
	u32 i;

	spin_lock_bh(&quotas->lock);
	for (i = 0; (all || i < PEAL_TX_QUOTAS_SWEPT) && !list_empty(&quotas->closed); i++) {
		quota = list_first_entry(&quotas->closed, struct peal_tx_quota, node);
		peal_tx_quota_resize(quota, all ? 0 : peal_tx_quota_used(quota));
		if (!quota->extra)
			list_move(&quota->node, &gone);
	}
	spin_unlock_bh(&quotas->lock);
	/*
	 * Packets that still wait in a queue keep the inner sockets (struct sock) until they are
	 * freed. Only code of the core runs then.
	 */
	list_for_each_entry_safe(quota, next, &gone, node) {
		sock_release(quota->silent);
		sock_release(quota->sock);
		kfree(quota);
	}
}

struct peal_tx_quota *peal_tx_quota_open(struct peal_tx_quotas *quotas)
{
	peal_tx_quotas_sweep(quotas, false);
	return peal_tx_quota_new(quotas, PEAL_TX_QUOTA_MIN);
}

/*
 * A closed quota counts as long as its packets wait. Otherwise a program could get a new
 * quota for each packet that it leaves behind.
 */
void peal_tx_quota_close(struct peal_tx_quota *quota)
{
	struct peal_tx_quotas *quotas = quota->quotas;

	cancel_work_sync(&quota->work);
	remove_wait_queue(sk_sleep(quota->sock->sk), &quota->entry);
	spin_lock_bh(&quotas->lock);
	quota->closed = true;
	quota->least = 0;
	peal_tx_quota_resize(quota, peal_tx_quota_used(quota));
	spin_unlock_bh(&quotas->lock);
	peal_tx_quotas_sweep(quotas, false);
}

struct peal_tx_quota_opening {
	struct work_struct work;
	struct peal_tx_quotas *quotas;
};

static void peal_tx_quotas_open_kernel(struct work_struct *work)
{
	struct peal_tx_quotas *quotas =
		container_of(work, struct peal_tx_quota_opening, work)->quotas;

	quotas->kernel = peal_tx_quota_new(quotas, PEAL_TX_QUOTA_MAX);
}

/*
 * A kernel thread makes the quota of the kernel's users, because kernel threads are in the
 * root cgroup. The administrator that adds the device may be in any cgroup, and the packets
 * of the connection manager must not carry it.
 */
int peal_tx_quotas_open(struct peal_tx_quotas *quotas, struct net *net)
{
	struct peal_tx_quota_opening opening = { .quotas = quotas };
	int ret;

	quotas->net = net;
	spin_lock_init(&quotas->lock);
	INIT_LIST_HEAD(&quotas->large);
	INIT_LIST_HEAD(&quotas->closed);
	INIT_WORK_ONSTACK(&opening.work, peal_tx_quotas_open_kernel);
	schedule_work(&opening.work);
	flush_work(&opening.work);
	destroy_work_on_stack(&opening.work);
	ret = PTR_ERR_OR_ZERO(quotas->kernel);
	if (ret)
		quotas->kernel = NULL;
	return ret;
}

struct sock *peal_tx_quotas_sock(const struct peal_tx_quotas *quotas)
{
	return quotas->kernel->sock->sk;
}

void peal_tx_quotas_close(struct peal_tx_quotas *quotas)
{
	peal_tx_quota_close(quotas->kernel);
	quotas->kernel = NULL;
	peal_tx_quotas_sweep(quotas, true);
	WARN_ON(quotas->extra);
}

/* ---- use ---- */

/*
 * Return false while queue pairs wait, called or not yet. The waiters are called when half
 * of the quota is free, and it would never be free if others filled it again. A queue pair
 * that has been called can use the lower half, because peal_tx_quota_wait() returns false while
 * less than half is in use.
 */
bool peal_tx_quota_is_left(struct peal_tx_quota *quota)
{
	if (!list_empty_careful(&quota->waiters) || !list_empty_careful(&quota->called))
		return false;
	return likely(!peal_tx_quota_is_full(quota)) || !peal_tx_quota_stays_full(quota);
}

bool peal_tx_quota_is_scarce(struct peal_tx_quota *quota)
{
	return peal_tx_quota_bytes(quota->sock) > READ_ONCE(quota->scarce);
}

bool peal_tx_quota_cancel(struct peal_tx_quota *quota, struct peal_waiter *waiter)
{
	unsigned long flags;
	bool queued;

	spin_lock_irqsave(&quota->lock, flags);
	queued = !list_empty(&waiter->node);
	list_del_init(&waiter->node);
	spin_unlock_irqrestore(&quota->lock, flags);
	return queued;
}

/*
 * The requester and the responder of a queue pair share one waiter but hold different
 * locks. When one of them has queued the waiter and the other finds room, call ready()
 * here, because no callback will.
 */
bool peal_tx_quota_wait(struct peal_tx_quota *quota, struct peal_waiter *waiter)
{
	unsigned long flags;
	bool first;

	spin_lock_irqsave(&quota->lock, flags);
	first = list_empty(&waiter->node);
	if (first)
		list_add_tail(&waiter->node, &quota->waiters);
	spin_unlock_irqrestore(&quota->lock, flags);
	if (!peal_tx_quota_arm(quota))
		return true;
	/* If the waiter is not queued any more, ready() was called, so it did wait. */
	if (!peal_tx_quota_cancel(quota, waiter))
		return true;
	if (!first)
		waiter->ready(waiter);
	return false;
}

void peal_tx_quota_charge(struct peal_tx_quota *quota, struct sk_buff *skb)
{
	skb_set_owner_w(skb, quota->sock->sk);
}

bool peal_tx_quota_charge_silent(struct peal_tx_quota *quota, struct sk_buff *skb)
{
	if (peal_tx_quota_bytes(quota->silent) >= READ_ONCE(quota->sock->sk->sk_sndbuf))
		return false;
	skb_set_owner_w(skb, quota->silent->sk);
	return true;
}
