// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See room.h.
 */
#include <linux/in.h>
#include <linux/skbuff.h>
#include <net/sock.h>

#include "../workers.h"
#include "room.h"

/* So many are called in one section with interrupts off. */
#define PEAL_ROOM_CALLS	32

/* Under room->lock. */
static void peal_room_call_some(struct peal_room *room)
{
	struct peal_waiter *waiter;
	u32 i;

	for (i = 0; i < PEAL_ROOM_CALLS && !list_empty(&room->called); i++) {
		waiter = list_first_entry(&room->called, struct peal_waiter, node);
		list_del_init(&waiter->node);
		waiter->ready(waiter);
	}
}

/* @all: whoever waits now is to be called. Return: true when some are left to call. */
static bool peal_room_call(struct peal_room *room, bool all)
{
	unsigned long flags;
	bool left;

	spin_lock_irqsave(&room->lock, flags);
	if (all)
		list_splice_tail_init(&room->waiters, &room->called);
	peal_room_call_some(room);
	left = !list_empty(&room->called);
	spin_unlock_irqrestore(&room->lock, flags);
	return left;
}

/* Called by the core under the lock of the socket's wait queue, from anywhere. */
static int peal_room_half_free(wait_queue_entry_t *entry, unsigned int mode, int flags, void *key)
{
	struct peal_room *room = container_of(entry, struct peal_room, entry);

	list_del_init(&entry->entry);
	if (peal_room_call(room, true))
		peal_workers_queue(&room->work);
	return 1;
}

/* From now on the waiters are called when there is room. */
static void peal_room_arm(struct peal_room *room)
{
	wait_queue_head_t *queue = sk_sleep(room->sock->sk);
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	if (list_empty(&room->entry.entry))
		__add_wait_queue(queue, &room->entry);
	spin_unlock_irqrestore(&queue->lock, flags);
	/*
	 * H: the entry is on the queue before the caller looks at the socket's
	 * account. Pairs with the barrier between the account and the queue in
	 * the core's sock_wfree() (skwq_has_sleeper).
	 */
	smp_mb();
}

/* The first have used the room up: the others go on when there is room again. */
static bool peal_room_is_used_up(struct peal_room *room)
{
	if (sock_writeable(room->sock->sk))
		return false;
	peal_room_arm(room);
	return !sock_writeable(room->sock->sk);
}

static void peal_room_work(struct work_struct *work)
{
	struct peal_room *room = container_of(work, struct peal_room, work);

	while (!peal_room_is_used_up(room) && peal_room_call(room, false))
		cond_resched();
}

/* Never bound, so nothing can be received by it and no tool lists it. */
static int peal_room_socket(struct net *net, struct socket **sock)
{
	int ret = sock_create_kern(net, AF_INET, SOCK_DGRAM, IPPROTO_UDP, sock);

	if (ret)
		return ret == -ENFILE ? -ENOMEM : ret;	/* its inode is no file */
	WRITE_ONCE((*sock)->sk->sk_sndbuf, PEAL_ROOM_BYTES);
	return 0;
}

/* The core wakes who waits for the socket when half of sk_sndbuf is free. */
int peal_room_open(struct peal_room *room, struct net *net)
{
	int ret = peal_room_socket(net, &room->sock);

	if (ret)
		return ret;
	ret = peal_room_socket(net, &room->silent);
	if (ret) {
		sock_release(room->sock);
		room->sock = NULL;	/* says that it is not open */
		return ret;
	}
	spin_lock_init(&room->lock);
	INIT_LIST_HEAD(&room->waiters);
	INIT_LIST_HEAD(&room->called);
	INIT_WORK(&room->work, peal_room_work);
	init_waitqueue_func_entry(&room->entry, peal_room_half_free);
	INIT_LIST_HEAD(&room->entry.entry);
	return 0;
}

/*
 * Packets that still wait somewhere keep the inner socket (struct sock) until they
 * are freed, by the core alone.
 */
void peal_room_close(struct peal_room *room)
{
	cancel_work_sync(&room->work);
	remove_wait_queue(sk_sleep(room->sock->sk), &room->entry);
	sock_release(room->silent);
	sock_release(room->sock);
}

/*
 * Not before those who wait, called or not: they are called when half of it is free,
 * and nothing else would make it so. Whoever is called has what is left below that.
 */
bool peal_room_is_left(struct peal_room *room)
{
	return sk_wmem_alloc_get(room->sock->sk) < PEAL_ROOM_BYTES &&
	       list_empty_careful(&room->waiters) && list_empty_careful(&room->called);
}

bool peal_room_is_scarce(struct peal_room *room)
{
	return sk_wmem_alloc_get(room->sock->sk) > PEAL_ROOM_BYTES / 4;
}

static bool peal_room_unlink(struct peal_room *room, struct peal_waiter *waiter)
{
	unsigned long flags;
	bool queued;

	spin_lock_irqsave(&room->lock, flags);
	queued = !list_empty(&waiter->node);
	list_del_init(&waiter->node);
	spin_unlock_irqrestore(&room->lock, flags);
	return queued;
}

/* Return: false when it waits already. */
static bool peal_room_link(struct peal_room *room, struct peal_waiter *waiter)
{
	unsigned long flags;
	bool first;

	spin_lock_irqsave(&room->lock, flags);
	first = list_empty(&waiter->node);
	if (first)
		list_add_tail(&waiter->node, &room->waiters);
	spin_unlock_irqrestore(&room->lock, flags);
	return first;
}

/*
 * The requester and the responder of a queue pair wait as one, each under its own
 * lock: who finds that the other has waited, and room, must not let it go on waiting.
 */
bool peal_room_wait(struct peal_room *room, struct peal_waiter *waiter)
{
	bool first = peal_room_link(room, waiter);

	peal_room_arm(room);
	if (!sock_writeable(room->sock->sk))
		return true;
	/* If it is not queued any more, ready() was called: it did wait. */
	if (!peal_room_unlink(room, waiter))
		return true;
	if (!first)
		waiter->ready(waiter);
	return false;
}

void peal_room_cancel(struct peal_room *room, struct peal_waiter *waiter)
{
	peal_room_unlink(room, waiter);
}

void peal_room_charge(struct peal_room *room, struct sk_buff *skb)
{
	skb_set_owner_w(skb, room->sock->sk);
}

bool peal_room_charge_silent(struct peal_room *room, struct sk_buff *skb)
{
	if (sk_wmem_alloc_get(room->silent->sk) >= PEAL_ROOM_BYTES)
		return false;
	skb_set_owner_w(skb, room->silent->sk);
	return true;
}
