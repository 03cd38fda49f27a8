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

/* The most waiters that are called in one section with interrupts off. */
#define PEAL_ROOM_CALLS	32

/*
 * The largest room. In bytes of skbs with their overhead (truesize): 800 packets without
 * payload, which fit a queue of the usual 1000 packets, or 120 of the largest path MTU. The
 * waiters are called when half of it is free. The other half keeps a 100 Gb/s link busy for
 * 20 us.
 */
#define PEAL_ROOM_BYTES		(1024 * 1024)

/* What a room always has: seven packets of the largest path MTU, or 50 without payload. */
#define PEAL_ROOM_LEAST		(64 * 1024)

/*
 * What the rooms of a device have together beyond PEAL_ROOM_LEAST each. No room gets more
 * than a quarter of what is left after it has taken its share. This is no limit until four
 * rooms have PEAL_ROOM_BYTES.
 */
#define PEAL_ROOMS_BYTES	(8L << 20)
#define PEAL_ROOMS_PARTS	4

/* A room that asks for more checks this many others, because they may not need theirs. */
#define PEAL_ROOMS_LOOKS	4

/*
 * Opening or closing a context checks this many closed rooms. Each context leaves only one,
 * so the checks keep up with the closed rooms.
 */
#define PEAL_ROOMS_SWEPT	16

/* The fields that each packet needs come first, in one cache line. */
struct peal_room {
	struct socket *sock;		/* unbound: used only to account for packets */
	struct socket *silent;		/* the same, for neighbours that do not answer */

	/* Guarded by rooms.lock: */
	u32 scarce;			/* check the neighbour when more bytes are in use */
	u32 least;			/* what the room always has, in bytes */
	/* Guarded by room.lock: */
	struct list_head waiters;	/* struct peal_waiter, by node */
	struct list_head called;	/* waiters that are being called */

	spinlock_t lock;		/* inside the wait queue's lock */
	wait_queue_entry_t entry;	/* on sock's queue while a queue pair waits */
	struct work_struct work;	/* calls what is left in `called` */
	struct peal_rooms *rooms;

	/* Guarded by rooms.lock: */
	struct list_head node;		/* in rooms->large or rooms->closed */
	u32 extra;			/* what it has beyond the least, in bytes */
	bool closed;
};

/* Under room->lock. */
static void peal_room_call_some(struct peal_room *room)
{
	struct peal_waiter *waiter;
	u32 i;

	lockdep_assert_held(&room->lock);
	for (i = 0; i < PEAL_ROOM_CALLS && !list_empty(&room->called); i++) {
		waiter = list_first_entry(&room->called, struct peal_waiter, node);
		list_del_init(&waiter->node);
		waiter->ready(waiter);
	}
}

/* @all: call also those that wait in `waiters` now. Return: true when some are left to call. */
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

/* Called by the core under the lock of the socket's wait queue, in any context. */
static int peal_room_half_free(wait_queue_entry_t *entry, unsigned int mode, int flags, void *key)
{
	struct peal_room *room = container_of(entry, struct peal_room, entry);

	lockdep_assert_held(&sk_sleep(room->sock->sk)->lock);
	list_del_init(&entry->entry);
	if (peal_room_call(room, true))
		peal_workers_queue(&room->work);
	return 1;
}

/* From now on the waiters are called when half of the room is free. */
static void peal_room_arm(struct peal_room *room)
{
	wait_queue_head_t *queue = sk_sleep(room->sock->sk);
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	if (list_empty(&room->entry.entry))
		__add_wait_queue(queue, &room->entry);
	spin_unlock_irqrestore(&queue->lock, flags);
	/*
	 * H: the entry is on the queue before the caller reads the socket's account. Pairs
	 * with the barrier between the account and the queue in the core's sock_wfree()
	 * (skwq_has_sleeper). Both sides compare the account with half of the room's size,
	 * which may have changed in between. room.h says why no wake-up is lost.
	 */
	smp_mb();
}

/*
 * The waiters that were called first may have used the room up. If so, arm again, and the
 * others are called when half of the room is free again.
 */
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

/*
 * A closed room counts the packets of both sockets. An open one counts only the larger sum,
 * because each of its sockets may hold the room's size.
 */
static u32 peal_room_used(const struct peal_room *room)
{
	u32 used = peal_room_bytes(room->sock), silent = peal_room_bytes(room->silent);

	return room->closed ? used + silent : max(used, silent);
}

static u32 peal_room_beyond(const struct peal_room *room, u32 bytes)
{
	return bytes > room->least ? bytes - room->least : 0;
}

/* Set the size, and move the room to the end of the list where it belongs. */
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

/* Leave an open room twice what it uses, so that it need not ask again at once. */
static void peal_room_shrink(struct peal_room *room)
{
	u32 used = peal_room_used(room);
	u32 needs = peal_room_beyond(room, room->closed ? used : 2 * used);

	lockdep_assert_held(&room->rooms->lock);
	peal_room_resize(room, min(room->extra, needs));
}

static void peal_rooms_shrink(struct list_head *list)
{
	u32 i;

	for (i = 0; i < PEAL_ROOMS_LOOKS && !list_empty(list); i++)
		peal_room_shrink(list_first_entry(list, struct peal_room, node));
}

/*
 * The most that a room may have beyond its least. It is a multiple of PEAL_ROOM_LEAST, so
 * that a room does not ask again after a few packets.
 */
static u32 peal_room_share(const struct peal_room *room)
{
	long left = PEAL_ROOMS_BYTES - (room->rooms->extra - room->extra);
	long share = max(left, 0L) / (PEAL_ROOMS_PARTS + 1);

	lockdep_assert_held(&room->rooms->lock);
	return rounddown(min_t(long, share, PEAL_ROOM_BYTES - room->least), PEAL_ROOM_LEAST);
}

static bool peal_room_is_full(const struct peal_room *room)
{
	return peal_room_bytes(room->sock) >= READ_ONCE(room->sock->sk->sk_sndbuf);
}

/*
 * A full room asks for its share. The share may be less than it has. Then the room keeps
 * what it uses and no more. Return: true when it is still full.
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

/* The socket is never bound, so it receives nothing and no tool lists it. */
static int peal_room_socket(struct net *net, struct socket **sock)
{
	int ret = sock_create_kern(net, AF_INET, SOCK_DGRAM, IPPROTO_UDP, sock);

	return ret == -ENFILE ? -ENOMEM : ret;	/* no memory for an inode; it uses no file */
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
 * Packets that still wait in a queue keep the inner sockets (struct sock) until they are
 * freed. Only code of the core runs then.
 */
static void peal_room_free(struct peal_room *room)
{
	sock_release(room->silent);
	sock_release(room->sock);
	kfree(room);
}

/*
 * Free the closed rooms whose packets are gone, among the first PEAL_ROOMS_SWEPT. With @all
 * free every closed room, also when packets of it still wait.
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
 * A closed room counts as long as its packets wait. Otherwise a program could get a new
 * room for each packet that it leaves behind.
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
 * A kernel thread makes the room of the kernel's users, because kernel threads are in the
 * root cgroup. The administrator that adds the device may be in any cgroup, and the packets
 * of the connection manager must not carry it.
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
 * Return false while queue pairs wait, called or not yet. The waiters are called when half
 * of the room is free, and it would never be free if others filled it again. A queue pair
 * that has been called can use the lower half, because peal_room_wait() returns false while
 * less than half is in use.
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

/* Return: false when the waiter was queued already. */
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
 * The requester and the responder of a queue pair share one waiter but hold different
 * locks. When one of them has queued the waiter and the other finds room, call ready()
 * here, because no callback will.
 */
bool peal_room_wait(struct peal_room *room, struct peal_waiter *waiter)
{
	bool first = peal_room_link(room, waiter);

	peal_room_arm(room);
	if (!sock_writeable(room->sock->sk))
		return true;
	/* If the waiter is not queued any more, ready() was called, so it did wait. */
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
