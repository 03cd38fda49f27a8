/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Proofs of address handles: at which device of this network namespace do the packets of an address
 * handle arrive?
 *
 * Owns: each handle's proof. A challenge with a random number leaves on the handle's path, as a
 * packet to the queue pair of a datagram. If it arrives at a device of the same namespace in time,
 * datagrams to that device may go direct for some seconds. One direction is enough, because nothing
 * comes back for a datagram. A firewall or a route that stops the packets ends the proof, and so
 * does an address that moves to another device.
 * Does not know: connections, whose proofs need both directions (locality.h); how packets and
 * datagrams are transferred.
 */
#ifndef PEAL_PROOF_H
#define PEAL_PROOF_H

#include <linux/jiffies.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "net/path.h"
#include "transport/locality.h"

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

#endif
