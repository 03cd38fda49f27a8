/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Peers in the same kernel.
 *
 * Owns: the proof that a peer is here, and the direct path, which copies a message to it.
 * Does not know: packets of connections (conn.h).
 */
#ifndef PEAL_LOCAL_H
#define PEAL_LOCAL_H

#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "base/options.h"
#include "base/table.h"
#include "net/path.h"
#include "proto/timers.h"
#include "object/mr.h"
#include "object/qp.h"

/*
 * Locality: which device of this kernel the packets of a queue pair arrive at.
 *
 * Two devices of one host, in containers for example, talk by packets. The direct path may
 * replace the packets when it is shown that packets really arrive, through the routes, bridges
 * and firewalls as they are at the moment.
 *
 * Owns: the list of devices, and each queue pair's proof. A challenge leaves with a random number
 * and arrives at the peer's device. The peer's device makes a second number, which comes back
 * as a packet. An observer of the challenge does not know the second number, so only the packet
 * from the peer's device answers the challenge. Both directions must work, because messages of
 * reliable connections are acknowledged. The response must arrive within some round trips, and the
 * proof lasts for seconds, so that a path that is cut is noticed.
 *
 * Addresses prove nothing, because namespaces may use the same ones. They only choose which
 * device is asked, so that machines without peal never get a challenge.
 */

struct net;
struct peal_rx_packet;
struct peal_output;
struct peal_qp;

/* A device as the others of this kernel see it. Only net changes while it is listed. */
struct peal_locality_device {
	u32 number;			/* never 0; not used again soon */
	const struct net *net;		/* of its netdev; NULL: not known yet. Only compared. */
	struct peal_table *table;
	const struct peal_options *options;
};

/* The payload of a challenge packet, in host order, because both ends are this module. */
struct peal_locality_challenge {
	u64 nonce[2];
	u32 device;			/* the asking device; it and qpn are 0 in a response */
	u32 qpn;
	u32 is_response;		/* 1: a response, and nonce is the second number */
	u32 reserved;
};

struct peal_locality {
	const struct peal_locality_device *device;	/* the queue pair's own device */

	/* Guarded by sq.lock: */
	u32 proven;			/* number of the peer's device; 0: no proof */
	bool pending;			/* a challenge or its answer is under way */
	u32 seen;			/* number of the device where it arrived; 0: none yet */
	u64 nonce[2];			/* the number in the last challenge */
	u64 response[2];		/* the second number, valid while seen is not 0 */
	u64 late;			/* ktime, ns: a response after this does not count */
	unsigned long until;		/* end of the proof, in jiffies */
	u32 asked_psn;			/* of the next packet when the last challenge was sent, */
	u32 proven_psn;			/* and the last one that the peer has answered */
	unsigned long next;		/* when to send the next challenge, in jiffies */
	bool wanted;			/* result of the last peal_locality_look() */
	/* The last look-up of a device by number. */
	struct peal_locality_device *peer;	/* NULL: it is gone */
	u32 peer_number;
	unsigned long removals;		/* of devices, loaded before peer was found */
};

int peal_locality_add(struct peal_locality_device *device, struct peal_table *table,
		      const struct peal_options *options);
/*
 * Set the namespace of the device's netdev, before the device is registered. It does not change
 * while the device is registered.
 */
void peal_locality_set_net(struct peal_locality_device *device, const struct net *net);
/* Sleeps. After this no queue pair finds the device. */
void peal_locality_remove(struct peal_locality_device *device);

/* Inside the epoch. Return: the device with this number, or NULL when it is gone. */
struct peal_locality_device *peal_locality_find(u32 number);
/* Inside the epoch. Return: the first device whose number is greater than *@number, or NULL. */
struct peal_locality_device *peal_locality_next(unsigned long *number);

/* How far apart are the two devices? */
enum peal_nl_scope peal_locality_scope(const struct peal_locality_device *a,
				       const struct peal_locality_device *b);
/* Do both devices and the host allow direct messages between them? */
bool peal_locality_allows(const struct peal_locality_device *a,
			  const struct peal_locality_device *b);

/*
 * May the next message go direct? The result is also stored in ->wanted. Under
 * sq.lock, inside the epoch.
 */
bool peal_locality_look(struct peal_qp *qp);
void peal_locality_init(struct peal_locality *loc, const struct peal_locality_device *device);
/* Drop the proof, because the queue pair has a new path or none. Under sq.lock. */
void peal_locality_forget(struct peal_qp *qp);

static inline bool peal_locality_is_due(const struct peal_locality *loc)
{
	return time_after_eq(jiffies, loc->next);
}

bool peal_locality_see(struct peal_locality_challenge *challenge,
		       const struct peal_locality_device *at, u32 qpn);
bool peal_locality_prove(struct peal_qp *qp, const struct peal_locality_challenge *response);
struct peal_table *peal_locality_table(struct peal_qp *qp);
struct peal_table *peal_locality_device_table(u32 number);

/*
 * Send a challenge if the peer may be in this kernel. Under sq.lock. @trip: longest time that an
 * answer takes, in ns, as far as it is known. @psn: of the next packet.
 *
 * Challenges are packets with a manufacturer's opcode (IBTA 9.2.1 leaves 0xc0 and up to
 * manufacturers), and the challenge is their payload. They leave and arrive like all other packets,
 * through routes, netfilter and the ICRC check.
 */
void peal_locality_challenge_peer(struct peal_qp *qp, struct peal_output *output, u64 trip,
				  u32 psn);

/*
 * Does the next message wait because packets before it may not have arrived? Under sq.lock. No
 * packet of an unreliable connection is acknowledged. But a challenge leaves behind the packets,
 * and when it is answered they have arrived, or the network has lost or reordered them. If no
 * answer comes in time, the proof ends, and the messages leave as packets. @psn: of the next
 * packet.
 */
bool peal_locality_waits(struct peal_qp *qp, u32 psn);

/* Send a response. Under rq.lock. */
void peal_locality_respond(struct peal_qp *qp, struct peal_output *output,
			   const struct peal_locality_challenge *response);
/* Return: false when the packet's payload is not a challenge. */
bool peal_locality_read(const struct peal_rx_packet *rx, struct peal_locality_challenge *challenge);

/*
 * Proofs of address handles: at which device of this network namespace do the packets of an address
 * handle arrive?
 *
 * Owns: each handle's proof. A challenge with a random number leaves on the handle's path, as a
 * packet to the queue pair of a datagram. If it arrives at a device of the same namespace in time,
 * datagrams to that device may go direct for some seconds. One direction is enough, because nothing
 * comes back for a datagram. A firewall or a route that stops the packets ends the proof, and so
 * does an address that moves to another device.
 */

struct peal_proof {
	spinlock_t lock;		/* guards the fields marked with it */

	/* Guarded by proof.lock: */
	bool used;			/* a datagram was sent, so the next is worth a challenge */
	bool pending;			/* a challenge is under way */
	u64 nonce[2];			/* the number in the last challenge */
	unsigned long late;		/* after this a challenge does not count, in jiffies */
	unsigned long next;		/* when to send the next challenge, in jiffies */
	u32 device;			/* number of the device where it arrived; 0: no proof */
	u16 vlan_id;			/* as in a packet that arrives there */
	unsigned long until;		/* end of the proof, in jiffies */
};

/* The payload of a challenge packet, in host order, because both ends are this module. */
struct peal_proof_challenge {
	u64 nonce[2];
	u32 device;			/* the asking device */
	u32 address;			/* number of the address handle there */
	u64 reserved;
};

/* Where the datagrams of a handle arrive. */
struct peal_proof_target {
	struct peal_table *table;
	u16 vlan_id;
};

void peal_proof_init(struct peal_proof *proof);

/*
 * May the next datagram of the device @own go direct? Inside the epoch. Return: true with
 * *@target set.
 */
bool peal_proof_find(struct peal_proof *proof, const struct peal_locality_device *own,
		     struct peal_proof_target *target);

/* Is it time for peal_proof_begin()? Only a hint, because no lock is held. */
static inline bool peal_proof_is_due(const struct peal_proof *proof)
{
	return !READ_ONCE(proof->used) || time_after_eq(jiffies, READ_ONCE(proof->next));
}

/*
 * A datagram of the device @own was sent to @qpn on @path. Inside the epoch. Return: true with
 * *@challenge filled in, except for the number of the handle, when a challenge is to follow.
 */
bool peal_proof_begin(struct peal_proof *proof, const struct peal_locality_device *own,
		      struct peal_path *path, u32 qpn, struct peal_proof_challenge *challenge);

/*
 * A challenge of the handle has arrived at the device @at. Inside the epoch. Return: true when it
 * is the last one that was sent, in time and for the first time.
 */
bool peal_proof_end(struct peal_proof *proof, const struct peal_proof_challenge *challenge,
		    const struct peal_locality_device *at, u16 vlan_id);

/*
 * The direct transport. Both queue pairs live in this kernel, so the sender copies a message
 * once, from one registered region into the other.
 *
 * Owns: the progress of the message in sq.wqe, its retries and waits; the search for the
 * peer; the check whether the wire would have delivered the message there (connection,
 * state, packet sequence number).
 */

/* What the send queue waits for. Posts during a wait only queue up. */
enum peal_direct_wait {
	PEAL_DIRECT_RUNS = 0,
	PEAL_DIRECT_WAITS_RECEIVE,	/* the peer has no receive posted (RNR) */
	PEAL_DIRECT_WAITS_ANSWER,	/* the peer does not answer */
	PEAL_DIRECT_WAITS_PAGE,		/* memory of either side is brought in */
	PEAL_DIRECT_WAITS_WIRE,		/* the next turn gives the message to the wire */
};

/*
 * What the fast path need not check for each message. It holds as long as the peer's device is the
 * same, no queue pair has left it, and none of the two queue pairs was modified.
 */
struct peal_direct_known {
	struct peal_qp *peer;		/* the two are each other's peers */
	unsigned long removals;		/* of queue pairs, loaded before peer was found */
	u32 changes;			/* number of modifications of the queue pair, and */
	u32 peer_changes;		/* of its peer */
	u32 opcodes;			/* bit 1 << enum peal_opcode: both allow it; 0: none */
};

struct peal_direct {
	struct peal_transport base;
	struct peal_locality locality;
	/* The send side. */
	/* Guarded by sq.lock: */
	u32 psn;			/* PSN of the next message's first packet */
	u64 done;			/* bytes of sq.wqe that were copied */
	struct peal_retry retry;	/* for sq.wqe */
	enum peal_direct_wait wait;
	u32 page_waits;			/* in a row */
	ktime_t until;			/* end of the wait */
	bool woken;			/* a kick ended the wait for a receive before `until` */
	enum peal_reason why;		/* reason of the wait */
	u32 device;			/* where the peer is, for all below; 0: on our device */
	struct peal_lookup peer;	/* look-up of dest_qp_num there */
	struct peal_direct_known known;
	/* The last look-ups of an lkey here and of an rkey there by the fast path. */
	struct peal_mr_lookup local, remote;
	/* The receive side. */
	/* Guarded by rq.lock: */
	struct peal_recv_psn at;
	bool message;			/* the peer's message is placed in part */
	u32 waiter;			/* device of the sender to wake on a kick; 0: ours */
};

/* Called before @qp, of type RC, UC or XRC, is published. Sleeps. Return: 0 or -ENOMEM. */
int peal_direct_attach(struct peal_qp *qp, const struct peal_locality_device *device);

/*
 * Under sq.lock. The wire carries the message in sq.wqe, if there is one, from its beginning. The
 * peer has not executed it, because the direct path tells the sender at the same moment.
 */
void peal_direct_give_up(struct peal_qp *qp);

#endif
