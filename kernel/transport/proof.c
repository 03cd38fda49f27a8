// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See proof.h.
 */
#include <linux/random.h>
#include <crypto/algapi.h>

#include "base/epoch.h"
#include "queue/qp.h"
#include "transport/proof.h"

/*
 * As for connections, a proof is renewed while there is traffic, and survives two failed renewals.
 */
#define PEAL_PROOF_RENEW	(HZ)
#define PEAL_PROOF_LASTS	(3 * HZ)

/* A challenge must arrive within this time. On a loaded machine ksoftirqd waits for some ticks. */
#define PEAL_PROOF_TRIP		(HZ / 2)

void peal_proof_init(struct peal_proof *proof)
{
	spin_lock_init(&proof->lock);
}

bool peal_proof_find(struct peal_proof *proof, const struct peal_locality_device *own,
		     struct peal_proof_target *target)
{
	const struct peal_locality_device *device = own;
	u32 number;

	peal_epoch_assert_held();
	if (!READ_ONCE(proof->device))
		return false;
	spin_lock(&proof->lock);
	number = time_after(jiffies, proof->until) ? 0 : proof->device;
	target->vlan_id = proof->vlan_id;
	spin_unlock(&proof->lock);
	if (number != own->number)
		device = number ? peal_locality_find(number) : NULL;
	if (!device || !peal_locality_allows(own, device))
		return false;
	target->table = device->table;
	return true;
}

/*
 * Does a device of this namespace to which direct messages are allowed have a UD queue pair with
 * this number?
 */
static bool peal_proof_may_arrive(const struct peal_locality_device *own, u32 qpn)
{
	struct peal_locality_device *device;
	unsigned long number = 0;

	while ((device = peal_locality_next(&number))) {
		const struct peal_qp *qp = peal_table_qp(device->table, qpn);

		if (qp && qp->ib.qp_type == IB_QPT_UD &&
		    peal_locality_scope(own, device) <= PEAL_NL_SCOPE_NETNS &&
		    peal_locality_allows(own, device))
			return true;
	}
	return false;
}

/*
 * Must this sender send the next challenge? Many handles are used for one datagram, and for
 * these a challenge would be a waste.
 */
static bool peal_proof_take_turn(struct peal_proof *proof)
{
	bool mine;

	spin_lock(&proof->lock);
	mine = proof->used && time_after_eq(jiffies, proof->next);
	if (mine || !proof->used)
		WRITE_ONCE(proof->next, jiffies + (mine ? PEAL_PROOF_RENEW : 0));
	WRITE_ONCE(proof->used, true);
	spin_unlock(&proof->lock);
	return mine;
}

bool peal_proof_begin(struct peal_proof *proof, const struct peal_locality_device *own,
		      struct peal_path *path, u32 qpn, struct peal_proof_challenge *challenge)
{
	peal_epoch_assert_held();
	if (!peal_proof_take_turn(proof) || !peal_path_is_local(path) ||
	    !peal_proof_may_arrive(own, qpn))
		return false;
	*challenge = (struct peal_proof_challenge){ .device = own->number };
	get_random_bytes(challenge->nonce, sizeof(challenge->nonce));
	spin_lock(&proof->lock);
	memcpy(proof->nonce, challenge->nonce, sizeof(proof->nonce));
	proof->pending = true;
	proof->late = jiffies + PEAL_PROOF_TRIP;
	spin_unlock(&proof->lock);
	peal_count(own->table, locality_challenges);
	return true;
}

static bool peal_proof_is_late(const struct peal_proof *proof,
			       const struct peal_locality_device *at)
{
	lockdep_assert_held(&proof->lock);
	if (!time_after(jiffies, proof->late))
		return false;
	peal_count(at->table, locality_late);
	return true;
}

bool peal_proof_end(struct peal_proof *proof, const struct peal_proof_challenge *challenge,
		    const struct peal_locality_device *at, u16 vlan_id)
{
	bool proves = false;

	peal_epoch_assert_held();
	spin_lock(&proof->lock);
	if (proof->pending &&
	    !crypto_memneq(proof->nonce, challenge->nonce, sizeof(proof->nonce))) {
		proof->pending = false;
		proves = !peal_proof_is_late(proof, at);
	}
	if (proves) {
		WRITE_ONCE(proof->device, at->number);
		proof->vlan_id = vlan_id;
		proof->until = jiffies + PEAL_PROOF_LASTS;
	}
	spin_unlock(&proof->lock);
	return proves;
}
