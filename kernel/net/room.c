// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See room.h.
 */
#include <linux/in.h>
#include <linux/net.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/sock.h>

#include "base/workers.h"
#include "net/room.h"

/* So many are called in one section with interrupts off. */
#define PEAL_ROOM_CALLS	32

/*
 * The largest room. In bytes of skbs with their overhead (truesize): 800 packets
 * without payload, which a queue of the usual 1000 packets holds, or 120 of the largest
 * path MTU. Half of it, when the waiters are called, is 20 us of a 100 Gb/s link.
 */
#define PEAL_ROOM_BYTES		(1024 * 1024)

/* What a room always has: seven packets of the largest path MTU, or 50 without payload. */
#define PEAL_ROOM_LEAST		(64 * 1024)

/*
 * What the rooms of a device have together beyond that. No room gets more than a
 * quarter of what is left then, which is no limit before four have PEAL_ROOM_BYTES.
 */
#define PEAL_ROOMS_BYTES	(8L << 20)
#define PEAL_ROOMS_PARTS	4

/* A room that asks for more looks at so many others that may not need theirs. */
#define PEAL_ROOMS_LOOKS	4

/* A context that comes or goes looks at so many closed rooms, each of which is one that went. */
#define PEAL_ROOMS_SWEPT	16

/* What each packet looks at comes first, in one cache line. */
struct peal_room {
	struct socket *sock;		/* unbound: it accounts, nothing else */
	struct socket *silent;		/* the same, for neighbours that do not answer */
	u32 scarce;			/* it matters for whom when more is in use */
	u32 least;			/* what it always has */
	struct list_head waiters;	/* struct peal_waiter, by node */
	struct list_head called;	/* those whose turn it is */
	spinlock_t lock;		/* guards both lists; inside the wait queue's lock */
	wait_queue_entry_t entry;	/* on sock's queue while somebody waits */
	struct work_struct work;	/* calls them */
	struct peal_rooms *rooms;
	struct list_head node;		/* rooms->large or rooms->closed; rooms->lock */
	u32 extra;			/* what it has beyond the least; rooms->lock */
	bool closed;			/* rooms->lock */
};

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
	 * the core's sock_wfree() (skwq_has_sleeper). Both compare the account with
	 * half of the room's size, which may have changed in between: see room.h.
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

/* ---- sizes ---- */

static u32 peal_room_bytes(const struct socket *sock)
{
	return sk_wmem_alloc_get(sock->sk);
}

/* A closed room's packets all count; an open one may hold its size of either kind. */
static u32 peal_room_used(const struct peal_room *room)
{
	u32 used = peal_room_bytes(room->sock), silent = peal_room_bytes(room->silent);

	return room->closed ? used + silent : max(used, silent);
}

static u32 peal_room_beyond(const struct peal_room *room, u32 bytes)
{
	return bytes > room->least ? bytes - room->least : 0;
}

/* Which list it is on follows from what it has. It becomes the last there. */
static void peal_room_resize(struct peal_room *room, u32 extra)
{
	struct peal_rooms *rooms = room->rooms;

	lockdep_assert_held(&rooms->lock);
	rooms->extra += (long)extra - room->extra;
	room->extra = extra;
	WRITE_ONCE(room->sock->sk->sk_sndbuf, room->least + extra);
	if (room->closed)
		list_move_tail(&room->node, &rooms->closed);
	else if (extra)
		list_move_tail(&room->node, &rooms->large);
	else
		list_del_init(&room->node);
}

/* Twice what an open room uses is left to it, so that it need not ask again at once. */
static void peal_room_shrink(struct peal_room *room)
{
	u32 used = peal_room_used(room);
	u32 needs = peal_room_beyond(room, room->closed ? used : 2 * used);

	peal_room_resize(room, min(room->extra, needs));
}

static void peal_rooms_shrink(struct list_head *list)
{
	u32 i;

	for (i = 0; i < PEAL_ROOMS_LOOKS && !list_empty(list); i++)
		peal_room_shrink(list_first_entry(list, struct peal_room, node));
}

/*
 * What a room may have beyond its least, in whole PEAL_ROOM_LEAST, so that a room does
 * not ask again after a few packets.
 */
static u32 peal_room_share(const struct peal_room *room)
{
	long left = PEAL_ROOMS_BYTES - (room->rooms->extra - room->extra);
	long share = max(left, 0L) / (PEAL_ROOMS_PARTS + 1);

	return rounddown(min_t(long, share, PEAL_ROOM_BYTES - room->least), PEAL_ROOM_LEAST);
}

static bool peal_room_is_full(const struct peal_room *room)
{
	return peal_room_bytes(room->sock) >= READ_ONCE(room->sock->sk->sk_sndbuf);
}

/*
 * A full room asks for its share, which may be less than it has: then it keeps what
 * it uses and no more. Return: is it still full?
 */
static noinline bool peal_room_stays_full(struct peal_room *room)
{
	struct peal_rooms *rooms = room->rooms;
	u32 share;

	if (room->least == PEAL_ROOM_BYTES)
		return true;
	spin_lock(&rooms->lock);
	share = peal_room_share(room);
	if (share < PEAL_ROOM_BYTES - room->least) {
		peal_rooms_shrink(&rooms->closed);
		peal_rooms_shrink(&rooms->large);
		share = peal_room_share(room);
	}
	share = max(share, min(room->extra, peal_room_beyond(room, peal_room_used(room))));
	peal_room_resize(room, share);
	WRITE_ONCE(room->scarce, (room->least + share) / 4);
	spin_unlock(&rooms->lock);
	return peal_room_is_full(room);
}

/* ---- life ---- */

/* Never bound, so nothing can be received by it and no tool lists it. */
static int peal_room_socket(struct net *net, struct socket **sock)
{
	int ret = sock_create_kern(net, AF_INET, SOCK_DGRAM, IPPROTO_UDP, sock);

	return ret == -ENFILE ? -ENOMEM : ret;	/* its inode is no file */
}

static int peal_room_sockets(struct peal_room *room, struct net *net)
{
	int ret = peal_room_socket(net, &room->sock);

	if (ret)
		return ret;
	ret = peal_room_socket(net, &room->silent);
	if (ret)
		sock_release(room->sock);
	return ret;
}

static void peal_room_init(struct peal_room *room, struct peal_rooms *rooms, u32 least)
{
	room->rooms = rooms;
	room->least = least;
	room->scarce = PEAL_ROOM_BYTES / 4;
	INIT_LIST_HEAD(&room->node);
	spin_lock_init(&room->lock);
	INIT_LIST_HEAD(&room->waiters);
	INIT_LIST_HEAD(&room->called);
	INIT_WORK(&room->work, peal_room_work);
	init_waitqueue_func_entry(&room->entry, peal_room_half_free);
	INIT_LIST_HEAD(&room->entry.entry);
	WRITE_ONCE(room->sock->sk->sk_sndbuf, least);
}

/* The sockets take the cgroup, the classid and the user of `current`. */
static struct peal_room *peal_room_new(struct peal_rooms *rooms, u32 least)
{
	struct peal_room *room = kzalloc(sizeof(*room), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!room)
		return ERR_PTR(-ENOMEM);
	ret = peal_room_sockets(room, rooms->net);
	if (ret) {
		kfree(room);
		return ERR_PTR(ret);
	}
	peal_room_init(room, rooms, least);
	return room;
}

/*
 * Packets that still wait somewhere keep the inner sockets (struct sock) until they
 * are freed, by the core alone.
 */
static void peal_room_free(struct peal_room *room)
{
	sock_release(room->silent);
	sock_release(room->sock);
	kfree(room);
}

/*
 * Some closed rooms, which are freed when their packets are gone; with @all every one,
 * whatever it has.
 */
static void peal_rooms_sweep(struct peal_rooms *rooms, bool all)
{
	struct peal_room *room, *next;
	LIST_HEAD(gone);
	u32 i;

	spin_lock_bh(&rooms->lock);
	for (i = 0; (all || i < PEAL_ROOMS_SWEPT) && !list_empty(&rooms->closed); i++) {
		room = list_first_entry(&rooms->closed, struct peal_room, node);
		peal_room_resize(room, all ? 0 : peal_room_used(room));
		if (!room->extra)
			list_move(&room->node, &gone);
	}
	spin_unlock_bh(&rooms->lock);
	list_for_each_entry_safe(room, next, &gone, node)
		peal_room_free(room);
}

struct peal_room *peal_room_open(struct peal_rooms *rooms)
{
	peal_rooms_sweep(rooms, false);
	return peal_room_new(rooms, PEAL_ROOM_LEAST);
}

/*
 * A program must not get a new room for each packet that it leaves behind: closed
 * rooms count as long as their packets wait.
 */
void peal_room_close(struct peal_room *room)
{
	struct peal_rooms *rooms = room->rooms;

	cancel_work_sync(&room->work);
	remove_wait_queue(sk_sleep(room->sock->sk), &room->entry);
	spin_lock_bh(&rooms->lock);
	room->closed = true;
	room->least = 0;
	peal_room_resize(room, peal_room_used(room));
	spin_unlock_bh(&rooms->lock);
	peal_rooms_sweep(rooms, false);
}

struct peal_room_opening {
	struct work_struct work;
	struct peal_rooms *rooms;
};

static void peal_rooms_open_kernel(struct work_struct *work)
{
	struct peal_rooms *rooms = container_of(work, struct peal_room_opening, work)->rooms;

	rooms->kernel = peal_room_new(rooms, PEAL_ROOM_BYTES);
}

/*
 * Kernel threads are in the root cgroup. The administrator that adds the device may be
 * in any, and has nothing to do with what the connection manager sends.
 */
int peal_rooms_open(struct peal_rooms *rooms, struct net *net)
{
	struct peal_room_opening opening = { .rooms = rooms };
	int ret;

	rooms->net = net;
	spin_lock_init(&rooms->lock);
	INIT_LIST_HEAD(&rooms->large);
	INIT_LIST_HEAD(&rooms->closed);
	INIT_WORK_ONSTACK(&opening.work, peal_rooms_open_kernel);
	schedule_work(&opening.work);
	flush_work(&opening.work);
	destroy_work_on_stack(&opening.work);
	ret = PTR_ERR_OR_ZERO(rooms->kernel);
	if (ret)
		rooms->kernel = NULL;
	return ret;
}

struct sock *peal_rooms_sock(const struct peal_rooms *rooms)
{
	return rooms->kernel->sock->sk;
}

void peal_rooms_close(struct peal_rooms *rooms)
{
	peal_room_close(rooms->kernel);
	rooms->kernel = NULL;
	peal_rooms_sweep(rooms, true);
	WARN_ON(rooms->extra);
}

/* ---- use ---- */

/*
 * Not before those who wait, called or not: they are called when half of it is free,
 * and nothing else would make it so. Whoever is called has what is left below that.
 */
bool peal_room_is_left(struct peal_room *room)
{
	if (!list_empty_careful(&room->waiters) || !list_empty_careful(&room->called))
		return false;
	return likely(!peal_room_is_full(room)) || !peal_room_stays_full(room);
}

bool peal_room_is_scarce(struct peal_room *room)
{
	return peal_room_bytes(room->sock) > READ_ONCE(room->scarce);
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
	if (peal_room_bytes(room->silent) >= READ_ONCE(room->sock->sk->sk_sndbuf))
		return false;
	skb_set_owner_w(skb, room->silent->sk);
	return true;
}
