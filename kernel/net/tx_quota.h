/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Transmit quotas: how many bytes of packets each program may have waiting in the transmit
 * queues.
 *
 * Each context has a quota. The kernel's users of a device share one. Packets that are held
 * up somewhere (a band that is starved, a class that is shaped) therefore use up the quota
 * of one program, and other programs can still send.
 *
 * Back-pressure comes from the network stack. A packet is charged to the quota's socket until
 * it is freed, and the stack wakes the socket's wait queue when half of the quota is free
 * again. The destructor is the core's (sock_wfree), and so are all its callbacks. No skb
 * calls into this module, so packets that lie in a queueing discipline for seconds delay
 * neither the removal of a device nor that of the module.
 *
 * The socket also tells to which program the packets belong. BPF and netfilter see the
 * cgroup of the program that opened the quota, as they do with that program's own sockets.
 *
 * The size of a quota
 *	The size is sk_sndbuf of the quota's socket. Every quota begins with PEAL_TX_QUOTA_MIN,
 *	which no other quota can take away. A quota that runs full asks for more, up to
 *	PEAL_TX_QUOTA_MAX. quotas->extra counts what all quotas of a device have beyond the
 *	least, and each quota leaves four times as much of PEAL_TX_QUOTAS_BYTES as it gets. So
 *	the largest quotas stop growing first, and a program that comes later still gets a
 *	share. A quota that does not need its size loses it when another quota asks.
 *
 *	The size may change at any time without a lost wake-up, because it is never below
 *	PEAL_TX_QUOTA_MIN. A queue pair waits only while at least half of the least is in use.
 *	So some of the quota's own packets are still to be freed, and when the last of them
 *	is freed the quota is empty whatever its size is then. quotas->extra is exact and
 *	needs no work per packet, because it counts sizes and not packets.
 *
 * Locks: the socket's wait queue, then quota->lock. A queue pair first joins the waiters and
 * then arms. The CPU that frees a packet finds `entry` on the socket's queue, removes it
 * and calls the waiters. It calls the first PEAL_TX_QUOTA_CALLS at once, because a program may
 * have any number of queue pairs. A work item calls the others, in their order and only
 * while half of the quota is free. quotas->lock is taken with the queue pair's locks held, and with
 * neither of the two locks above.
 */
#ifndef PEAL_TX_QUOTA_H
#define PEAL_TX_QUOTA_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct net;
struct peal_tx_quota;
struct sk_buff;
struct sock;

/* The quotas of one device. */
struct peal_tx_quotas {
	struct net *net;		/* the device's namespace */
	struct peal_tx_quota *kernel;	/* quota of the kernel's users; NULL: not open */
	spinlock_t lock;		/* also guards the quotas' sizes */

	/* Guarded by tx_quotas.lock: */
	long extra;			/* what the quotas have beyond their least, in bytes */
	struct list_head large;		/* open quotas with extra; the first shrinks next */
	struct list_head closed;	/* closed quotas whose packets still wait in queues */
};

/*
 * A queue pair that waits for room. @ready is called once when there is room again. The code that
 * frees a packet calls it with quota->lock held, in any context, so interrupts may be off.
 * peal_tx_quota_wait() calls it without that lock. It puts its queue pair on a
 * list. It must not call the functions declared here, because some of them take quota->lock.
 */
struct peal_waiter {
	/* Guarded by tx_quota.lock: */
	struct list_head node;		/* the owner initialises it */

	void (*ready)(struct peal_waiter *waiter);
};

/* From now on the device's sockets belong to @net. Sleeps. Return: 0 or a negative errno. */
int peal_tx_quotas_open(struct peal_tx_quotas *quotas, struct net *net);
/* The socket of the kernel's quota, for functions of the stack that require a socket. */
struct sock *peal_tx_quotas_sock(const struct peal_tx_quotas *quotas);
/* Call when all contexts are gone. Leaves no socket in the namespace. Sleeps. */
void peal_tx_quotas_close(struct peal_tx_quotas *quotas);

/*
 * Open a quota for a context of the calling program. The quota's packets carry the program's
 * cgroup. Sleeps.
 * Return: the quota, or an ERR_PTR when there is no memory.
 */
struct peal_tx_quota *peal_tx_quota_open(struct peal_tx_quotas *quotas);
/* Call when no queue pair waits for the quota, and none will. Sleeps. */
void peal_tx_quota_close(struct peal_tx_quota *quota);

/* May something be sent now? With softirqs off and without the locks of quotas. */
bool peal_tx_quota_is_left(struct peal_tx_quota *quota);
/* Is so much of the quota in use that a silent neighbour's packets need an account of their own? */
bool peal_tx_quota_is_scarce(struct peal_tx_quota *quota);
/*
 * Let @waiter wait for room. Return: false when there was room in the meantime, so that the
 * waiter is not queued. True when it waits, also when it waited before the call.
 */
bool peal_tx_quota_wait(struct peal_tx_quota *quota, struct peal_waiter *waiter);
/*
 * When this returns, ready() is not running and will not be called. Return: true when the waiter
 * waited.
 */
bool peal_tx_quota_cancel(struct peal_tx_quota *quota, struct peal_waiter *waiter);
/* Charge @skb to the quota until @skb is freed. */
void peal_tx_quota_charge(struct peal_tx_quota *quota, struct sk_buff *skb);
/*
 * As peal_tx_quota_charge(), for a packet to a neighbour that does not answer. It is charged to
 * another socket, so that it leaves the quota to other packets. No queue pair can wait for
 * space there. Return: false when packets of the quota's size wait there already.
 */
bool peal_tx_quota_charge_silent(struct peal_tx_quota *quota, struct sk_buff *skb);

#endif
