// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See local.h.
 */
#include <crypto/algapi.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "base/budget.h"
#include "base/compat.h"
#include "base/epoch.h"
#include "base/trace.h"
#include "engine/engine.h"
#include "net/rx_packet.h"
#include "net/sniff.h"
#include "proto/packet.h"
#include "proto/responder.h"
#include "object/qp.h"
#include "transport/exec.h"
#include "transport/local.h"
#include "transport/output.h"
#include "transport/sender.h"
#include "transport/show.h"

/* A proof is renewed while there is traffic. It ends when two renewals in a row fail. */
#define PEAL_LOCALITY_RENEW	(HZ)
#define PEAL_LOCALITY_LASTS	(3 * HZ)

/*
 * A response must arrive within so many round trips, and within these limits. The lower limit is
 * for a loaded machine, where ksoftirqd waits for some ticks of the scheduler. The measured
 * round trip does not contain this wait.
 */
#define PEAL_LOCALITY_TRIPS	4
#define PEAL_LOCALITY_LEAST_NS	(100 * NSEC_PER_MSEC)
#define PEAL_LOCALITY_MOST_NS	(500 * NSEC_PER_MSEC)

/* By number. Writers take its xa_lock, readers are inside the epoch. */
static DEFINE_XARRAY_ALLOC1(peal_locality_devices);
static u32 peal_locality_next_number;
static unsigned long peal_locality_removals;	/* devices that have left; readers use barrier M */

int peal_locality_add(struct peal_locality_device *device, struct peal_table *table,
		      const struct peal_options *options)
{
	int ret;

	device->table = table;
	device->options = options;
	device->net = NULL;
	ret = xa_alloc_cyclic(&peal_locality_devices, &device->number, device, xa_limit_31b,
			      &peal_locality_next_number, GFP_KERNEL);
	return min(ret, 0);
}

void peal_locality_set_net(struct peal_locality_device *device, const struct net *net)
{
	WRITE_ONCE(device->net, net);
}

void peal_locality_remove(struct peal_locality_device *device)
{
	xa_lock(&peal_locality_devices);
	__xa_erase(&peal_locality_devices, device->number);
	/*
	 * M: a look-up that loads the new value does not find the device in the tree. Pairs with
	 * the load in peal_locality_peer().
	 */
	smp_store_release(&peal_locality_removals, peal_locality_removals + 1);
	xa_unlock(&peal_locality_devices);
	peal_epoch_wait();
}

static void peal_locality_clear(struct peal_locality *loc)
{
	loc->proven = 0;
	WRITE_ONCE(loc->pending, false);
	loc->wanted = false;
	loc->next = jiffies;
}

void peal_locality_init(struct peal_locality *loc, const struct peal_locality_device *device)
{
	loc->device = device;
	peal_locality_clear(loc);
}

void peal_locality_forget(struct peal_qp *qp)
{
	lockdep_assert_held(&qp->sq.lock);
	peal_locality_clear(qp->locality);
}

struct peal_locality_device *peal_locality_find(u32 number)
{
	peal_epoch_assert_held();
	return xa_load(&peal_locality_devices, number);
}

struct peal_locality_device *peal_locality_next(unsigned long *number)
{
	peal_epoch_assert_held();
	return xa_find_after(&peal_locality_devices, number, ULONG_MAX, XA_PRESENT);
}

/* Inside the epoch. Return: the tables of the device, or NULL when it is gone. */
struct peal_table *peal_locality_device_table(u32 number)
{
	struct peal_locality_device *device = peal_locality_find(number);

	peal_epoch_assert_held();
	return device ? device->table : NULL;
}

/*
 * Do the two queue pairs name each other as peers? Only a hint, because a wrong
 * answer proves nothing.
 */
static bool peal_locality_match(const struct peal_qp *qp, const struct peal_qp *peer)
{
	return peer->ib.qp_type == qp->peer_type && peal_qp_is_on_wire(peer) &&
	       READ_ONCE(peer->attr.dest_qp_num) == qp->ib.qp_num &&
	       !memcmp(&peer->sgid, &qp->attr.ah_attr.grh.dgid, sizeof(peer->sgid)) &&
	       !memcmp(&peer->attr.ah_attr.grh.dgid, &qp->sgid, sizeof(qp->sgid));
}

enum peal_nl_scope peal_locality_scope(const struct peal_locality_device *a,
				       const struct peal_locality_device *b)
{
	const struct net *net = READ_ONCE(a->net);

	if (a == b)
		return PEAL_NL_SCOPE_DEVICE;
	return net && net == READ_ONCE(b->net) ? PEAL_NL_SCOPE_NETNS : PEAL_NL_SCOPE_HOST;
}

bool peal_locality_allows(const struct peal_locality_device *a,
			  const struct peal_locality_device *b)
{
	enum peal_nl_scope scope = peal_locality_scope(a, b);

	return peal_options_allow(a->options, scope) && peal_options_allow(b->options, scope);
}

/* May the next message of @qp go direct to @device? */
static bool peal_locality_is_allowed(const struct peal_qp *qp,
				     const struct peal_locality_device *device)
{
	return peal_locality_allows(qp->locality->device, device);
}

/*
 * A message that has started on the direct path finishes there, whatever an
 * administrator sets meanwhile.
 */
static bool peal_locality_is_in_use(const struct peal_qp *qp,
				    const struct peal_locality_device *device)
{
	return qp->sender == qp->direct && qp->locality->proven == device->number;
}

static bool peal_locality_may_be_at(const struct peal_qp *qp,
				    const struct peal_locality_device *device)
{
	const struct peal_qp *peer;

	if (device == qp->locality->device)
		return false;
	if (!peal_locality_is_allowed(qp, device) && !peal_locality_is_in_use(qp, device))
		return false;
	peer = peal_table_qp(device->table, qp->attr.dest_qp_num);
	return peer && peal_locality_match(qp, peer);
}

static bool peal_locality_may_be_here(const struct peal_qp *qp)
{
	struct peal_locality_device *device;
	unsigned long number = 0;

	while ((device = peal_locality_next(&number)))
		if (peal_locality_may_be_at(qp, device))
			return true;
	return false;
}

/*
 * Prepare a challenge if the peer may be in this kernel. @trip and @psn: as in
 * peal_locality_challenge_peer(). Under sq.lock, inside the epoch. Return: false when no challenge
 * is needed.
 */
static bool peal_locality_prepare(struct peal_qp *qp, struct peal_locality_challenge *challenge,
				  u64 trip, u32 psn)
{
	struct peal_locality *loc = qp->locality;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	WRITE_ONCE(loc->pending, peal_locality_may_be_here(qp));
	/*
	 * The first turn follows the change to RTS, and the peer may not be ready yet. As long as
	 * there is nothing to send, turns go on looking for it.
	 */
	loc->next = jiffies +
		    (loc->pending || peal_ring_pending(&qp->sq.ring) ? PEAL_LOCALITY_RENEW : 1);
	if (!loc->pending)
		return false;
	*challenge = (struct peal_locality_challenge){
		.device = loc->device->number,
		.qpn = qp->ib.qp_num,
	};
	get_random_bytes(challenge->nonce, sizeof(challenge->nonce));
	WRITE_ONCE(loc->nonce[0], challenge->nonce[0]);
	WRITE_ONCE(loc->nonce[1], challenge->nonce[1]);
	WRITE_ONCE(loc->seen, 0);
	loc->asked_psn = psn;
	loc->late = ktime_get_ns() + clamp_t(u64, PEAL_LOCALITY_TRIPS * trip,
					     PEAL_LOCALITY_LEAST_NS,
					     PEAL_LOCALITY_MOST_NS);
	return true;
}

/*
 * Is this the challenge that @loc has sent, and is it not seen yet? Only a hint, because no lock is
 * held. It is checked first so that a remote packet takes the lock of another queue pair only
 * if it carries the number of that queue pair's challenge.
 */
static bool peal_locality_may_have_sent(const struct peal_locality *loc,
					const struct peal_locality_challenge *challenge)
{
	u64 differs = (READ_ONCE(loc->nonce[0]) ^ challenge->nonce[0]) |
		      (READ_ONCE(loc->nonce[1]) ^ challenge->nonce[1]);

	return !differs && READ_ONCE(loc->pending) && !READ_ONCE(loc->seen);
}

/*
 * Under sq.lock. Has the challenge of @qp taken too long? If so, forget it, and count it at
 * @table, the device that notices.
 */
static bool peal_locality_is_late(struct peal_qp *qp, struct peal_table *table)
{
	struct peal_locality *loc = qp->locality;

	lockdep_assert_held(&qp->sq.lock);
	if (ktime_get_ns() <= loc->late)
		return false;
	WRITE_ONCE(loc->pending, false);
	peal_count(table, locality_late);
	return true;
}

/* Under sq.lock of @qp. Has @qp sent this challenge to the queue pair @qpn of the device @at? */
static bool peal_locality_sent(const struct peal_qp *qp,
			       const struct peal_locality_challenge *challenge,
			       const struct peal_locality_device *at, u32 qpn)
{
	const struct peal_locality *loc = qp->locality;

	lockdep_assert_held(&qp->sq.lock);
	return loc->pending && !loc->seen &&
	       !crypto_memneq(loc->nonce, challenge->nonce, sizeof(loc->nonce)) &&
	       qp->attr.dest_qp_num == qpn && peal_locality_may_be_at(qp, at);
}

/*
 * Under sq.lock. The challenge has arrived at the device @at. Make the second number and the
 * response.
 */
static void peal_locality_note(struct peal_qp *qp, const struct peal_locality_device *at,
			       struct peal_locality_challenge *response)
{
	struct peal_locality *loc = qp->locality;

	lockdep_assert_held(&qp->sq.lock);
	WRITE_ONCE(loc->seen, at->number);
	get_random_bytes(loc->response, sizeof(loc->response));
	*response = (struct peal_locality_challenge){
		.nonce = { loc->response[0], loc->response[1] },
		.is_response = 1,
	};
}

/**
 * peal_locality_see() - a challenge has arrived
 * @challenge: becomes the response
 * @at: the device where it arrived. Only this counts, because several devices may look
 *	like the peer's
 * @qpn: the queue pair that it is addressed to
 *
 * Inside the epoch, no lock held. A challenge has one response. A copy of the challenge that
 * arrives later gets none. A different number would make the first response void, and the same
 * number would be told to a sender of copies.
 *
 * Return: true when a queue pair of this kernel has sent this challenge to its peer.
 */
bool peal_locality_see(struct peal_locality_challenge *challenge,
		       const struct peal_locality_device *at, u32 qpn)
{
	struct peal_table *table = peal_locality_device_table(challenge->device);
	struct peal_qp *qp = table ? peal_table_qp(table, challenge->qpn) : NULL;
	bool asks;

	peal_epoch_assert_held();
	if (!qp || !qp->locality || !peal_locality_may_have_sent(qp->locality, challenge))
		return false;
	spin_lock(&qp->sq.lock);
	asks = peal_locality_sent(qp, challenge, at, qpn) && !peal_locality_is_late(qp, at->table);
	if (asks)
		peal_locality_note(qp, at, challenge);
	spin_unlock(&qp->sq.lock);
	return asks;
}

/**
 * peal_locality_prove() - a response has arrived for @qp
 *
 * Under sq.lock, inside the epoch. Return: true when it answers the last challenge in time.
 */
bool peal_locality_prove(struct peal_qp *qp, const struct peal_locality_challenge *response)
{
	struct peal_locality *loc = qp->locality;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (!loc->pending || !loc->seen ||
	    crypto_memneq(loc->response, response->nonce, sizeof(loc->response)))
		return false;
	if (peal_locality_is_late(qp, qp->table))
		return false;
	WRITE_ONCE(loc->pending, false);
	loc->proven = loc->seen;
	loc->proven_psn = loc->asked_psn;
	loc->until = jiffies + PEAL_LOCALITY_LASTS;
	return true;
}

static bool peal_locality_is_proven(const struct peal_locality *loc)
{
	return loc->proven && !time_after(jiffies, loc->until);
}

/*
 * Under sq.lock, inside the epoch. Return: the device where packets are proven to arrive, or NULL.
 *
 * Barrier M, as in peal_table_qp_again(). A device that leaves changes the number of removals
 * before it waits for the epoch. Pairs with peal_locality_remove().
 */
static struct peal_locality_device *peal_locality_peer(struct peal_qp *qp)
{
	unsigned long removals = smp_load_acquire(&peal_locality_removals);	/* M */
	struct peal_locality *loc = qp->locality;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(!peal_locality_is_proven(loc)))
		return NULL;
	if (unlikely(loc->peer_number != loc->proven || loc->removals != removals)) {
		loc->removals = removals;
		loc->peer_number = loc->proven;
		loc->peer = peal_locality_find(loc->proven);
	}
	return loc->peer;
}

/**
 * peal_locality_table() - the tables of the peer's device
 *
 * Under sq.lock, inside the epoch. Return: NULL when it is not proven that
 * packets arrive there.
 */
struct peal_table *peal_locality_table(struct peal_qp *qp)
{
	struct peal_locality_device *device = peal_locality_peer(qp);

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	return device ? device->table : NULL;
}

bool peal_locality_look(struct peal_qp *qp)
{
	struct peal_locality_device *device = peal_locality_peer(qp);

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	qp->locality->wanted = device && peal_locality_is_allowed(qp, device);
	return qp->locality->wanted;
}

bool peal_locality_waits(struct peal_qp *qp, u32 psn)
{
	struct peal_locality *loc = qp->locality;

	lockdep_assert_held(&qp->sq.lock);
	if (peal_qp_is_reliable(qp) || loc->proven_psn == psn)
		return false;
	if (loc->pending && ktime_get_ns() > loc->late) {
		WRITE_ONCE(loc->pending, false);
		loc->proven = 0;
		loc->wanted = false;
		return false;
	}
	return true;
}

/* ---- challenges as packets ---- */

static void peal_locality_emit(struct peal_output *output,
			       const struct peal_locality_challenge *challenge)
{
	struct peal_packet header = {
		.opcode = PEAL_OPCODE_CHALLENGE,
		.payload_bytes = sizeof(*challenge),
	};

	peal_output_send_bytes(output, &header, challenge);
}

void peal_locality_challenge_peer(struct peal_qp *qp, struct peal_output *output, u64 trip,
				  u32 psn)
{
	struct peal_locality_challenge challenge;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_locality_prepare(qp, &challenge, trip, psn))
		return;
	peal_count(qp, locality_challenges);
	peal_locality_emit(output, &challenge);
}

void peal_locality_respond(struct peal_qp *qp, struct peal_output *output,
			   const struct peal_locality_challenge *response)
{
	lockdep_assert_held(&qp->rq.lock);
	peal_count(qp, locality_responses);
	peal_locality_emit(output, response);
}

bool peal_locality_read(const struct peal_rx_packet *rx, struct peal_locality_challenge *challenge)
{
	if (rx->packet.payload_bytes != sizeof(*challenge))
		return false;
	peal_rx_copy(rx, 0, challenge, sizeof(*challenge));
	return true;
}

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

/*
 * The direct path. The functions of the send side are called with sq.lock held. Those of the
 * receive side are called with rq.lock of the peer held. The two are of different lock classes,
 * because a queue pair may be its own peer. Functions that a turn calls run inside the epoch.
 */

/*
 * How often to look for a silent peer when the program set no timeout. These
 * looks count no retries.
 */
#define PEAL_NO_TIMEOUT_NS	(100 * NSEC_PER_MSEC)

/* A step copies at most so much, so that the locks are not held for longer. */
#define PEAL_CHUNK_BYTES	(128 << 10)

static struct peal_direct *peal_direct(const struct peal_transport *transport)
{
	return container_of(transport, struct peal_direct, base);
}

/* ---- one message, or a chunk of it ---- */

/* Return: the tables of the peer's device, or NULL when it is not proven which one that is. */
static struct peal_table *peal_direct_peer_table(struct peal_qp *qp)
{
	lockdep_assert_held(&qp->sq.lock);
	return qp->transport == qp->direct ? qp->table : peal_locality_table(qp);
}

/* Set @cursor to the requester's side of the copy. */
static __always_inline enum peal_reason peal_direct_local(struct peal_qp *qp,
							  const struct peal_op *op,
							  struct peal_cursor *cursor)
{
	const struct peal_wqe *wqe = &qp->sq.wqe;

	if (wqe->inline_data) {
		peal_cursor_inline(cursor, wqe->inline_data, wqe->length);
		return PEAL_REASON_NONE;
	}
	return peal_cursor_local(cursor, qp->table, qp->ib.pd, qp->sq.sge, wqe->num_sge,
				 op->sends ? PEAL_GATHER : PEAL_SCATTER);
}

/* An atomic, an ATOMIC_WRITE or a FLUSH. */
static noinline struct peal_outcome peal_direct_atomic(struct peal_qp *qp, struct peal_qp *peer,
						       const struct peal_op *op,
						       struct peal_notify *notify,
						       struct peal_cursor *local,
						       const struct peal_cursor *remote)
{
	struct peal_outcome outcome;
	struct peal_cursor word PEAL_UNINITIALIZED;
	u64 value = 0;

	peal_cursor_inline(&word, &value, sizeof(value));
	if (op->placement)
		peal_cursor_copy(&word, local, qp->sq.wqe.length);	/* 0 for a FLUSH */
	outcome = peal_execute_atomic(peer, &qp->sq.wqe, qp->ib.qp_num, notify, remote, &value);
	if (outcome.what == PEAL_DONE && !op->placement)
		peal_cursor_copy(local, &word, sizeof(value));
	return outcome;
}

/*
 * Are the next @bytes of both sides in memory? If so, they stay there until the epoch is left. If
 * the program has no such local memory, or it does not come, the message fails. If the peer has
 * none, the peer decides how the message ends.
 */
static noinline struct peal_outcome peal_direct_look(struct peal_direct *d,
						     struct peal_qp *peer,
						     struct peal_notify *notify,
						     const struct peal_cursor *local,
						     const struct peal_cursor *remote, u64 bytes)
{
	const struct peal_wqe *wqe = &d->base.qp->sq.wqe;
	const struct peal_op *op = peal_op(wqe->opcode);
	enum peal_odp_state near, far;

	/* Ask for both, so that both are brought in at the same time. */
	near = peal_cursor_look(local, d->done, bytes, !op->sends);
	far = peal_cursor_look(remote, d->done, bytes, op->sends || op->atomic);
	if (near == PEAL_ODP_FAULT || near == PEAL_ODP_LATE)
		return peal_failed(IB_WC_LOC_PROT_ERR,
				   peal_odp_reason(near, PEAL_REASON_LKEY_PAGE));
	if (far == PEAL_ODP_FAULT || far == PEAL_ODP_LATE)
		return peal_execute_no_page(peer, wqe, d->base.qp->ib.qp_num, notify, far);
	if (near == PEAL_ODP_ABSENT || far == PEAL_ODP_ABSENT)
		return peal_absent();
	d->page_waits = 0;
	return (struct peal_outcome){ .what = PEAL_DONE };
}

/* The messages that peal_direct_fast() takes. */
static const u8 peal_direct_fast_opcodes[] = {
	PEAL_OP_SEND, PEAL_OP_SEND_IMM, PEAL_OP_WRITE, PEAL_OP_WRITE_IMM, PEAL_OP_READ,
	PEAL_OP_CMP_SWAP, PEAL_OP_FETCH_ADD,
};

/*
 * A message has arrived at @peer. Note for the next ones which operations both sides allow. The
 * caller holds the peer's rq.lock.
 */
static noinline void peal_direct_remember(struct peal_direct *d, struct peal_qp *peer)
{
	struct peal_qp *qp = d->base.qp;
	u32 i, opcodes = 0;

	lockdep_assert_held(&qp->sq.lock);
	lockdep_assert_held(&peer->rq.lock);
	for (i = 0; i < ARRAY_SIZE(peal_direct_fast_opcodes); i++) {
		const struct peal_op *op = peal_op(peal_direct_fast_opcodes[i]);

		if (!(op->access & ~peer->attr.qp_access_flags) &&
		    (!op->resource || (qp->attr.max_rd_atomic && peer->attr.max_dest_rd_atomic)))
			opcodes |= 1U << peal_direct_fast_opcodes[i];
	}
	d->known = (struct peal_direct_known){
		.peer = peer, .removals = d->peer.removals, .changes = qp->changes,
		.peer_changes = peer->changes, .opcodes = opcodes & ~qp->sq.limits.refused,
	};
}

/* Would peal_direct_remember() note the same? */
static bool peal_direct_is_known(const struct peal_direct *d, const struct peal_qp *peer)
{
	const struct peal_direct_known *known = &d->known;

	return known->peer == peer && known->removals == d->peer.removals &&
	       known->changes == d->base.qp->changes && known->peer_changes == peer->changes;
}

/*
 * The next @bytes of the message in sq.wqe have been copied. If they are the last, the message has
 * arrived.
 */
static __always_inline struct peal_outcome peal_direct_arrive(struct peal_direct *d,
							      struct peal_qp *peer,
							      struct peal_notify *notify,
							      u64 bytes)
{
	const struct peal_qp *qp = d->base.qp;
	const struct peal_wqe *wqe = &qp->sq.wqe;
	struct peal_direct *to = peal_direct(peer->direct);
	struct peal_outcome outcome = { .what = PEAL_PROGRESS };

	lockdep_assert_held(&peer->rq.lock);
	if (likely(d->done + bytes == wqe->length)) {
		outcome = peal_execute_finish(peer, wqe, qp->ib.qp_num, notify);
		if (likely(outcome.what == PEAL_DONE)) {
			to->message = false;
			to->at.psn = peal_psn_add(to->at.psn, peal_qp_packets(peer, wqe->length));
			to->at.msn = peal_psn_add(to->at.msn, 1);
			if (unlikely(!peal_direct_is_known(d, peer)))
				peal_direct_remember(d, peer);
		}
	}
	outcome.bytes = bytes;
	return outcome;
}

/*
 * Transfer the message in sq.wqe, or its next chunk, from or to the memory of the peer.
 *
 * A peer that would drop the packets of the message does not answer, so that the requester runs
 * into its timeout, as on the wire. A peer that has refused goes into error only when the
 * notifications are raised, because that needs the sq.lock of the peer.
 *
 * A user of memory of a fast registration must not wait for a queue pair's lock (see mr.h). So the
 * use of it ends before the peer's lock is taken, and begins again when the lock is held.
 */
static struct peal_outcome peal_direct_transfer(struct peal_direct *d, const struct peal_op *op,
						struct peal_notify *notify)
{
	struct peal_qp *qp = d->base.qp, *peer;
	const struct peal_wqe *wqe = &qp->sq.wqe;
	struct peal_table *table = qp->table;
	struct peal_cursor remote PEAL_UNINITIALIZED;
	struct peal_cursor local PEAL_UNINITIALIZED;
	enum peal_reason reason = peal_direct_local(qp, op, &local);
	struct peal_outcome outcome;
	struct peal_direct *to;
	u32 sender_device = 0, peer_device = 0, counted, pieces;
	u64 bytes;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(reason))
		return peal_failed(IB_WC_LOC_PROT_ERR, reason);
	pieces = local.num_sge;
	if (unlikely(qp->transport != qp->direct)) {
		table = peal_locality_table(qp);
		sender_device = d->locality.device->number;
		peer_device = d->locality.proven;
	}
	if (unlikely(d->device != peer_device)) {
		/* What was found on another device may not exist any more. */
		d->peer = (struct peal_lookup){};
		d->known = (struct peal_direct_known){};
		d->remote = (struct peal_mr_lookup){};
		d->device = peer_device;
	}
	peer = table ? peal_table_qp_again(table, &d->peer, qp->attr.dest_qp_num) : NULL;
	if (unlikely(!peer)) {
		peal_cursor_end(&local);
		return table ? peal_silent(PEAL_REASON_PEER_UNKNOWN) : peal_unproven();
	}
	counted = local.counted;
	peal_cursor_end(&local);
	spin_lock(&peer->rq.lock);
	if (unlikely(counted))
		reason = peal_direct_local(qp, op, &local);
	if (unlikely(reason)) {
		outcome = peal_failed(IB_WC_LOC_PROT_ERR, reason);
		goto unlock;
	}
	if (unlikely(!peal_qp_receives(peer))) {
		outcome = peal_silent(PEAL_REASON_PEER_STATE);
		goto unlock;
	}
	if (unlikely(peer->ib.qp_type != qp->peer_type ||
		     peer->attr.dest_qp_num != qp->ib.qp_num ||
		     memcmp(&peer->attr.ah_attr.grh.dgid, &qp->sgid, sizeof(qp->sgid)) ||
		     memcmp(&qp->attr.ah_attr.grh.dgid, &peer->sgid, sizeof(peer->sgid)))) {
		outcome = peal_silent(PEAL_REASON_PEER_OTHER);
		goto unlock;
	}
	if (unlikely(peer->receiver != peer->direct))
		peal_qp_change_receiver(peer, peer->direct);
	to = peal_direct(peer->direct);
	/*
	 * After a lost message the PSNs of an unreliable connection differ, so the beginning of a
	 * message may have another one. A peer that was reset meanwhile has forgotten the first
	 * bytes of this message.
	 */
	if (unlikely(to->at.psn != d->psn &&
		     (qp->ib.qp_type != IB_QPT_UC || d->done ||
		      peal_responder_is_late_uc(to->at.psn, d->psn)))) {
		outcome = peal_silent(PEAL_REASON_PEER_PSN);
		goto unlock;
	}
	if (unlikely(d->done && !to->message)) {
		if (qp->ib.qp_type == IB_QPT_UC) {
			outcome = peal_silent(PEAL_REASON_PEER_PSN);
			goto unlock;
		}
		d->done = 0;
	}
	/*
	 * Note the device of a sender that may find no receive. The store is visible before the
	 * flag that asks for a kick, because the kick reads it.
	 */
	if (unlikely(to->waiter != sender_device)) {
		WRITE_ONCE(to->waiter, sender_device);
		smp_wmb();	/* K: pairs with peal_direct_waiting_sender() */
	}

	if (peal_faults_exist(&peer->table->faults) && !d->done &&
	    peal_execute_find_fault(peer, wqe, qp->ib.qp_num, notify, &outcome))
		goto delivered;
	outcome = peal_execute_accept(peer, wqe, qp->ib.qp_num, notify, &remote);
	if (unlikely(outcome.what != PEAL_DONE))
		goto delivered;
	to->message = true;
	to->at.psn = d->psn;
	bytes = min_t(u64, wqe->length - d->done, PEAL_CHUNK_BYTES);
	if (unlikely(local.counted | remote.counted)) {
		outcome = peal_direct_look(d, peer, notify, &local, &remote, bytes);
		if (outcome.what != PEAL_DONE)
			goto end_remote;
	}
	if (op->atomic) {
		outcome = peal_direct_atomic(qp, peer, op, notify, &local, &remote);
		if (unlikely(outcome.what != PEAL_DONE))
			goto end_remote;
	} else {
		if (unlikely(d->done)) {
			peal_cursor_skip(&local, d->done);
			peal_cursor_skip(&remote, d->done);
		}
		pieces += peal_cursor_copy(op->sends ? &remote : &local,
					   op->sends ? &local : &remote, bytes);
	}
	pieces += remote.num_sge;
	peal_cursor_end(&local);	/* a key that is in use cannot be invalidated */
	peal_cursor_end(&remote);
	outcome = peal_direct_arrive(d, peer, notify, bytes);
	outcome.pieces = pieces;
	goto delivered;

end_remote:
	peal_cursor_end(&remote);
delivered:
	if (unlikely(peer->rq.refusing))
		peal_notify_fail(notify, peer, peer->generation);
unlock:
	spin_unlock(&peer->rq.lock);
	peal_cursor_end(&local);
	return outcome;
}

/*
 * May the fast path be used? Only if all that @d knows of the peer is still right, and if no
 * message is traced, because the general path does that. Return: the tables of the peer's device,
 * or NULL. Barrier M, as in peal_table_qp_again().
 */
static __always_inline struct peal_table *peal_direct_known_table(const struct peal_direct *d)
{
	struct peal_qp *qp = d->base.qp;
	struct peal_table *table = qp->table;

	lockdep_assert_held(&qp->sq.lock);
	if (qp->transport != qp->direct) {
		table = peal_locality_table(qp);
		if (unlikely(!table || d->device != d->locality.proven))
			return NULL;
	}
	if (unlikely(qp->changes != d->known.changes ||
		     smp_load_acquire(&table->removals) != d->known.removals ||	/* M */
		     trace_peal_execute_enabled() || trace_peal_complete_enabled()))
		return NULL;
	return table;
}

/*
 * The look-ups of @d and of the peer's @to have found both sides of @bytes, from @done on, of the
 * message in sq.wqe, and at least one side is not contiguous. Return: how many pieces were copied,
 * or 0 with nothing copied, because on-demand paging must look at each page.
 */
static noinline u32 peal_direct_copy_pieces(const struct peal_direct *d,
					    const struct peal_direct *to, const struct peal_op *op,
					    u64 done, u64 bytes)
{
	const struct peal_qp *qp = d->base.qp, *peer = to->base.qp;
	const struct peal_wqe *wqe = &qp->sq.wqe;
	struct peal_extent near, far;

	lockdep_assert_held(&qp->sq.lock);
	lockdep_assert_held(&peer->rq.lock);
	if (wqe->inline_data)
		near = (struct peal_extent){ .at = (void *)wqe->inline_data, .left = bytes };
	else if (!peal_mr_present_begin(&d->local, qp->sq.sge->addr + done, &near))
		return 0;
	if (!(op->remote ?
	      peal_mr_present_begin(&d->remote, wqe->remote_addr + done, &far) :
	      peal_mr_present_begin(&peer->received, peer->rq.wqe.sge->addr + done, &far)))
		return 0;
	return op->sends ? peal_extents_copy(far, near, bytes) :
			   peal_extents_copy(near, far, bytes);
}

/**
 * peal_direct_continue() - transfer the next chunk of a long message
 * @outcome: as peal_direct_transfer() returns it
 *
 * The first chunk has arrived. What peal_direct_fast() is for short messages, this is for the
 * chunks behind it.
 *
 * Return: false with nothing done, if peal_direct_transfer() must look.
 */
static bool peal_direct_continue(struct peal_direct *d, const struct peal_op *op,
				 struct peal_notify *notify, struct peal_outcome *outcome)
{
	struct peal_qp *qp = d->base.qp, *peer = d->known.peer;
	struct peal_table *table = peal_direct_known_table(d);
	const struct peal_wqe *wqe = &qp->sq.wqe;
	const struct peal_sge *sge = qp->sq.sge;
	u64 bytes = min_t(u64, wqe->length - d->done, PEAL_CHUNK_BYTES);
	u64 near_bytes = bytes, far_bytes = bytes;
	enum peal_reason reason;
	struct peal_direct *to;
	void *near, *far = NULL;
	u32 pieces = 1;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(!table || !(d->known.opcodes & 1U << wqe->opcode) || wqe->num_sge != 1))
		return false;
	near = peal_mr_present(qp->table, &d->local, qp->ib.pd, sge->lkey, sge->addr + d->done,
			       bytes, op->sends ? 0 : IB_ACCESS_LOCAL_WRITE, &near_bytes);
	if (op->remote)
		far = peal_mr_present(table, &d->remote, READ_ONCE(peer->rkey_pd), wqe->rkey,
				      wqe->remote_addr + d->done, bytes, op->access, &far_bytes);
	if (unlikely(!near || (op->remote && !far)))
		return false;

	spin_lock(&peer->rq.lock);
	to = peal_direct(peer->direct);
	/* A message of XRC may have another shared receive queue than the last one. */
	if (unlikely(peer->changes != d->known.peer_changes || !peal_qp_receives(peer) ||
		     peer->receiver != peer->direct || to->at.psn != d->psn || !to->message ||
		     peer->xrcd))
		goto doubt;
	if (!op->remote) {
		const struct peal_recv *recv = &peer->rq.wqe;

		/* This is the receive that the first chunk has taken. */
		if (unlikely(peal_qp_take_recv(peer, notify, &reason) != PEAL_RQ_TAKEN ||
			     recv->num_sge != 1 || wqe->length > recv->length))
			goto doubt;
		far = peal_mr_present(table, &peer->received, peer->recv_pd, recv->sge->lkey,
				      recv->sge->addr + d->done, bytes, IB_ACCESS_LOCAL_WRITE,
				      &far_bytes);
		if (unlikely(!far))
			goto doubt;
	}
	if (near_bytes < bytes || far_bytes < bytes)
		pieces = peal_direct_copy_pieces(d, to, op, d->done, bytes);
	else if (op->sends)
		peal_copy(far, near, bytes);
	else
		peal_copy(near, far, bytes);
	if (unlikely(!pieces))
		goto doubt;
	*outcome = peal_direct_arrive(d, peer, notify, bytes);
	outcome->pieces = 2 + pieces;
	if (unlikely(peer->rq.refusing))
		peal_notify_fail(notify, peer, peer->generation);
	spin_unlock(&peer->rq.lock);
	return true;

doubt:
	spin_unlock(&peer->rq.lock);
	return false;
}

/*
 * The peer on an unreliable connection has not taken the message. The message is lost, and
 * counted where packets would be. The requester is not told.
 */
static noinline struct peal_outcome peal_direct_lose(const struct peal_direct *d,
						     const struct peal_outcome *outcome)
{
	struct peal_qp *qp = d->base.qp;
	struct peal_table *table = peal_direct_peer_table(qp);
	enum peal_drop drop = PEAL_DROP_rights;
	struct peal_packet packet = {
		.opcode = peal_opcode_request(PEAL_UC, peal_op(qp->sq.wqe.opcode), !d->done, true),
		.qpn = qp->attr.dest_qp_num,
		.psn = d->psn,
	};

	if (outcome->what == PEAL_NOT_READY)
		drop = PEAL_DROP_receive;
	else if (outcome->reason == PEAL_REASON_PEER_UNKNOWN)
		drop = PEAL_DROP_qpn;
	else if (outcome->reason == PEAL_REASON_PEER_STATE)
		drop = PEAL_DROP_state;
	else if (outcome->reason == PEAL_REASON_PEER_OTHER)
		drop = PEAL_DROP_source;
	else if (outcome->reason == PEAL_REASON_PEER_PSN)
		drop = PEAL_DROP_sequence;
	else if (outcome->reason == PEAL_REASON_RECV_TOO_SHORT)
		drop = PEAL_DROP_length;
	peal_count_drop(table ?: qp->table, drop);
	trace_peal_drop(&packet, drop);
	return (struct peal_outcome){ .what = PEAL_DONE };
}

/*
 * A device has a sniffer. Show it what this attempt to transfer the message, or the next chunk of
 * it, would be on the wire. Nothing would leave if the requester itself has found an error, or
 * tries again at once or on the wire. The locks of the peer are not held any more, so its MSN and
 * its netdev are hints.
 */
static noinline void peal_direct_show(const struct peal_direct *d,
				      struct peal_outcome outcome)
{
	struct peal_qp *qp = d->base.qp, *peer;
	const struct peal_wqe *wqe = &qp->sq.wqe;
	const struct peal_op *op = peal_op(wqe->opcode);
	struct peal_table *table = peal_direct_peer_table(qp);
	struct peal_cursor local PEAL_UNINITIALIZED;
	struct peal_show show = {
		.to = qp->table->port, .psn = d->psn, .done = d->done,
		.bytes = min_t(u64, wqe->length - d->done, PEAL_CHUNK_BYTES),
		.outcome = &outcome, .local = &local,
	};

	lockdep_assert_held(&qp->sq.lock);
	if (outcome.what == PEAL_ABSENT || outcome.what == PEAL_UNPROVEN ||
	    (outcome.what == PEAL_FAILED && !outcome.syndrome) ||
	    (outcome.what == PEAL_PROGRESS && !outcome.bytes))
		return;
	peer = table ? peal_table_qp(table, qp->attr.dest_qp_num) : NULL;
	if (peer && peer->direct) {
		show.to = peer->table->port;
		show.to_ifindex = READ_ONCE(peer->sgid_ifindex);
		show.msn = READ_ONCE(peal_direct(peer->direct)->at.msn);
		/* The MSN rises with the last chunk of a READ, but its responses have one MSN. */
		if (outcome.what == PEAL_PROGRESS)
			show.msn = peal_psn_add(show.msn, 1);
	}
	if (!peal_sniff_wants(qp->table->port) && !peal_sniff_wants(show.to))
		return;
	if (peal_direct_local(qp, op, &local))
		return;
	if (peal_cursor_look(&local, d->done, show.bytes, !op->sends) == PEAL_ODP_PRESENT) {
		if (d->done)
			peal_cursor_skip(&local, d->done);
		peal_show_message(qp, &show);
	}
	peal_cursor_end(&local);
}

/* ---- the send queue ---- */

static void peal_direct_wait(struct peal_direct *d, enum peal_direct_wait wait, u64 ns,
			     enum peal_reason why)
{
	const struct peal_qp *qp = d->base.qp;

	trace_peal_wait(qp->ib.qp_num, qp->sq.wqe.index, why, ns);
	d->wait = wait;
	d->why = why;
	d->until = ktime_add_ns(ktime_get(), ns);
	d->woken = false;
}

/* The message in sq.wqe was not transferred. It waits, or it fails. */
static noinline void peal_direct_stop(struct peal_direct *d, struct peal_notify *notify,
				      const struct peal_outcome *outcome)
{
	struct peal_qp *qp = d->base.qp;

	switch (outcome->what) {
	case PEAL_NOT_READY:
		/*
		 * IBTA 9.7.5.2.8: the peer gives the time to wait, and the attribute rnr_retry
		 * limits the retries. If a kick ended the wait early, but another queue pair has
		 * taken the receive, wait for the rest of the time, because only a wait of the full
		 * time is a retry.
		 */
		if (d->woken && ktime_before(ktime_get(), d->until)) {
			d->wait = PEAL_DIRECT_WAITS_RECEIVE;
			return;
		}
		peal_count(qp, rnr_waits);
		if (peal_retry_use_rnr(&d->retry, qp->attr.rnr_retry))
			peal_direct_wait(d, PEAL_DIRECT_WAITS_RECEIVE,
					 peal_retry_rnr_ns(&d->retry, outcome->syndrome &
						   PEAL_SYNDROME_VALUE),
					 outcome->reason);
		else
			peal_sender_fail(qp, notify, IB_WC_RNR_RETRY_EXC_ERR, outcome->reason);
		break;
	case PEAL_SILENT:
		/*
		 * Without a timeout the wait uses up no retry. The last retry gets a full wait,
		 * too.
		 */
		peal_count(qp, silence_waits);
		peal_direct_wait(d, PEAL_DIRECT_WAITS_ANSWER,
				 peal_qp_timeout_ns(qp) ?: PEAL_NO_TIMEOUT_NS, outcome->reason);
		break;
	case PEAL_ABSENT:
		/* The time between two tries grows, because a page may come from a slow disk. */
		peal_direct_wait(d, PEAL_DIRECT_WAITS_PAGE,
				 PEAL_ODP_RETRY_NS << min_t(u32, d->page_waits,
							    PEAL_ODP_RETRY_SHIFT),
				 outcome->reason);
		d->page_waits++;
		break;
	case PEAL_UNPROVEN:
		peal_direct_wait(d, PEAL_DIRECT_WAITS_WIRE, 0, outcome->reason);
		break;
	default:
		peal_sender_fail(qp, notify, outcome->status, outcome->reason);
		break;
	}
}

/*
 * Process the WQE in sq.wqe, or its next chunk. A READ or atomic needs a depth. The depth was
 * negotiated, so 0 is an error of the program.
 */
static void peal_direct_step(struct peal_direct *d, struct peal_notify *notify,
			     struct peal_budget *budget)
{
	struct peal_qp *qp = d->base.qp;
	const struct peal_wqe *wqe = &qp->sq.wqe;
	const struct peal_op *op = peal_op(wqe->opcode);
	struct peal_outcome outcome;

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(op->local))
		outcome = peal_sender_local(qp);
	else if (unlikely(op->resource && !qp->attr.max_rd_atomic))
		outcome = peal_failed(IB_WC_LOC_QP_OP_ERR, PEAL_REASON_RD_ATOMIC_LIMIT);
	else if (!d->done || !peal_direct_continue(d, op, notify, &outcome))
		outcome = peal_direct_transfer(d, op, notify);
	if (peal_sniff_is_on() && !op->local)
		peal_direct_show(d, outcome);
	if (unlikely(outcome.what > PEAL_PROGRESS) && qp->ib.qp_type == IB_QPT_UC && !op->local &&
	    outcome.what != PEAL_ABSENT && outcome.what != PEAL_UNPROVEN &&
	    !(outcome.what == PEAL_FAILED && outcome.status == IB_WC_LOC_PROT_ERR))
		outcome = peal_direct_lose(d, &outcome);
	if (unlikely(outcome.what > PEAL_PROGRESS)) {
		peal_direct_stop(d, notify, &outcome);
		return;
	}
	peal_budget_spend(budget, outcome.bytes + outcome.pieces * PEAL_COST_PIECE);
	if (outcome.what == PEAL_PROGRESS) {
		d->done += outcome.bytes;
		peal_retry_reset(&d->retry);	/* the peer answered */
		return;
	}
	if (likely(!op->local)) {
		peal_qp_count_message(qp, wqe->opcode, wqe->length);
		peal_count(qp, direct_messages);
		d->psn = peal_psn_add(d->psn, peal_qp_packets(qp, wqe->length));
	}
	peal_sender_finish(qp, notify, IB_WC_SUCCESS, PEAL_REASON_NONE);
}

/*
 * End a wait whose time is over. Another try follows, or the message fails if the last retry
 * was used (IBTA 9.7.6.1.3). In error the flush completes the message, so its wait ends at once and
 * does not fail it.
 */
static noinline void peal_direct_expire(struct peal_direct *d, struct peal_notify *notify)
{
	struct peal_qp *qp = d->base.qp;
	bool silent = d->wait == PEAL_DIRECT_WAITS_ANSWER && peal_qp_timeout_ns(qp);

	if (unlikely(peal_qp_send_failed(qp)))
		silent = false;
	else if (ktime_before(ktime_get(), d->until))
		return;
	d->wait = PEAL_DIRECT_RUNS;
	if (silent && !peal_retry_use(&d->retry, qp->attr.retry_cnt))
		peal_sender_fail(qp, notify, IB_WC_RETRY_EXC_ERR, d->why);
}

/*
 * Does this message of XRC name the shared receive queue that the last one has named? @pd: that of
 * its rkey, as the caller has used it.
 */
static bool peal_direct_names_again(const struct peal_qp *peer, const struct peal_wqe *wqe,
				    const struct ib_pd *pd, const struct peal_op *op)
{
	const struct peal_srq *srq = peer->named_srq;

	lockdep_assert_held(&peer->rq.lock);
	return srq && srq->ib.ext.xrc.srq_num == wqe->srqn && srq->ib.pd == pd &&
	       (!op->receives || peer->srq == srq);
}

/**
 * peal_direct_fast() - take the next message from its WQE to its CQE
 *
 * Most messages are alike. They have one piece of memory on each side, and their peer is in this
 * kernel, connected and ready. This function takes them. The general path below defines what a
 * message does. At the first doubt this function leaves the message to the general path, which
 * fetches the WQE again. A receive that this function has taken stays held, so the general path
 * goes on with it.
 *
 * Return: false, if the general path must look.
 */
static __always_inline bool peal_direct_fast(struct peal_direct *d, struct peal_notify *notify,
					     struct peal_budget *budget)
{
	const struct peal_direct_known *known = &d->known;
	struct peal_qp *qp = d->base.qp, *peer = known->peer;
	struct peal_table *table = qp->table, *far_table = peal_direct_known_table(d);
	const struct peal_wqe *wqe = &qp->sq.wqe;
	const struct peal_sge *sge = qp->sq.sge;
	const struct ib_pd *far_pd;
	u32 sender_device = 0;
	u64 length, near_bytes, far_bytes, value;
	void *near, *far = NULL;
	enum peal_reason reason;
	const struct peal_op *op;
	struct peal_direct *to;
	u32 pieces = 3;		/* one was looked up on each side, and one is copied */

	lockdep_assert_held(&qp->sq.lock);
	if (unlikely(!far_table || qp->sq.busy))
		return false;
	if (qp->transport != qp->direct) {
		sender_device = d->locality.device->number;
		if (unlikely(peal_faults_exist(&far_table->faults)))
			return false;
	}
	if (unlikely(qp->state != IB_QPS_RTS ||
		     peal_faults_exist(&table->faults) || peal_sniff_is_on()))
		return false;
	op = peal_sq_peek(&qp->sq, known->opcodes);
	if (!op)
		return false;
	/* Otherwise the compiler computes the address of the row anew for each of its facts. */
	OPTIMIZER_HIDE_VAR(op);
	length = wqe->length;
	near_bytes = length;
	far_bytes = length;
	if (unlikely(!length || length > PEAL_CHUNK_BYTES ||
		     (op->atomic && length != sizeof(value))))
		return false;
	near = (void *)wqe->inline_data;
	if (!near)
		near = peal_mr_present(table, &d->local, qp->ib.pd, sge->lkey, sge->addr, length,
				       op->sends ? 0 : IB_ACCESS_LOCAL_WRITE, &near_bytes);
	far_pd = READ_ONCE(peer->rkey_pd);
	if (op->remote)
		far = peal_mr_present(far_table, &d->remote, far_pd, wqe->rkey, wqe->remote_addr,
				      length, op->access, &far_bytes);
	if (unlikely(!near || (op->remote && !far) ||
		     (op->atomic && ((unsigned long)far & 7 || far_bytes < length ||
				     near_bytes < length))))
		return false;

	spin_lock(&peer->rq.lock);
	to = peal_direct(peer->direct);
	if (unlikely(peer->changes != known->peer_changes || !peal_qp_receives(peer) ||
		     peer->receiver != peer->direct || to->waiter != sender_device ||
		     to->at.psn != d->psn))
		goto doubt;
	if (peer->xrcd && unlikely(!peal_direct_names_again(peer, wqe, far_pd, op) ||
				   !peal_notify_has_room(notify)))
		goto doubt;
	if (op->receives) {
		const struct peal_recv *recv = &peer->rq.wqe;

		if (unlikely(peal_qp_take_recv(peer, notify, &reason) != PEAL_RQ_TAKEN))
			goto doubt;
		if (!op->remote && likely(recv->num_sge == 1 && length <= recv->length))
			far = peal_mr_present(far_table, &peer->received, peer->recv_pd,
					      recv->sge->lkey, recv->sge->addr, recv->length,
					      IB_ACCESS_LOCAL_WRITE, &far_bytes);
		if (unlikely(!far))
			goto doubt;
	}
	if (op->atomic) {
		value = wqe->opcode == PEAL_OP_CMP_SWAP ?
			atomic64_cmpxchg(far, wqe->atomic.compare_add, wqe->atomic.swap) :
			atomic64_fetch_add(wqe->atomic.compare_add, far);
		far = &value;
	}
	if (unlikely(near_bytes < length || far_bytes < length)) {
		pieces = peal_direct_copy_pieces(d, to, op, 0, length);
		if (unlikely(!pieces))
			goto doubt;
		pieces += 2;	/* look-ups */
	} else if (op->sends) {
		peal_copy(far, near, length);
	} else {
		peal_copy(near, far, length);
	}
	if (op->receives)
		peal_execute_finish_receive(peer, wqe, qp->ib.qp_num, notify);
	d->psn = peal_psn_add(d->psn, peal_qp_packets(qp, length));
	to->at.psn = d->psn;
	to->at.msn = peal_psn_add(to->at.msn, 1);
	to->message = false;
	spin_unlock(&peer->rq.lock);

	peal_budget_spend(budget, PEAL_COST_WQE + length + pieces * PEAL_COST_PIECE);
	peal_sender_take_delivered(qp, notify);
	return true;

doubt:
	spin_unlock(&peer->rq.lock);
	return false;
}

static bool peal_direct_run(struct peal_transport *transport, struct peal_notify *notify,
			    struct peal_budget *budget)
{
	struct peal_direct *d = peal_direct(transport);
	struct peal_qp *qp = transport->qp;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	while (peal_budget_is_left(budget)) {
		if (likely(peal_direct_fast(d, notify, budget))) {
			if (!peal_ring_pending(&qp->sq.ring))
				return false;
			continue;
		}
		if (unlikely(d->wait))
			peal_direct_expire(d, notify);
		if (unlikely(peal_qp_send_failed(qp)))
			return peal_sender_flush(qp, notify, budget);
		if (!peal_sender_may_run(qp, notify))
			return false;
		if (unlikely(d->wait))
			goto wait;
		if (likely(!qp->sq.busy)) {
			if (!peal_ring_pending(&qp->sq.ring) ||
			    !peal_sender_fetch(qp, notify, d->psn))
				return false;
			d->done = 0;
			d->woken = false;
			peal_retry_reset(&d->retry);
		}
		peal_budget_spend(budget, PEAL_COST_WQE);
		/* A malformed WQE is completed already. */
		if (unlikely(!qp->sq.busy))
			continue;
		peal_direct_step(d, notify, budget);
		if (unlikely(d->wait))
			goto wait;
	}
	/* A message may use up the budget and leave nothing to do. Other states do more. */
	return qp->sq.busy || peal_ring_pending(&qp->sq.ring) || qp->state != IB_QPS_RTS;
wait:
	peal_schedule_timer(qp, d->until);
	return false;
}

void peal_direct_give_up(struct peal_qp *qp)
{
	struct peal_direct *d = peal_direct(qp->direct);

	lockdep_assert_held(&qp->sq.lock);
	d->wait = PEAL_DIRECT_RUNS;
	d->page_waits = 0;
}

/* ---- receives were posted ---- */

/*
 * Under @sender's sq.lock. Does @sender send to @qp on the direct path? A program may name
 * any queue pair as its peer. A sender that does not send to @qp must not be woken, because
 * each try in vain costs it a retry.
 */
static bool peal_direct_sends_to(const struct peal_qp *sender, const struct peal_qp *qp)
{
	lockdep_assert_held(&sender->sq.lock);
	if (!peal_qp_is_reliable(sender) || sender->attr.dest_qp_num != qp->ib.qp_num ||
	    !sender->direct || sender->sender != sender->direct)
		return false;
	if (peal_qp_is_on_wire(sender))
		return sender->locality->proven == qp->locality->device->number;
	return sender->table == qp->table;
}

/*
 * Is it worth taking @sender's lock? Not if @sender names another queue pair as its peer,
 * otherwise a program could disturb the queue pairs of others by naming them. Only a hint,
 * because no lock is held. peal_direct_sends_to() decides.
 */
static bool peal_direct_may_send_to(const struct peal_qp *sender, const struct peal_qp *qp)
{
	return peal_qp_is_reliable(sender) && sender->peer_type == qp->ib.qp_type &&
	       READ_ONCE(sender->attr.dest_qp_num) == qp->ib.qp_num;
}

static bool peal_direct_end_wait(struct peal_qp *sender, const struct peal_qp *qp)
{
	struct peal_direct *d;

	if (!peal_direct_sends_to(sender, qp))
		return false;
	d = peal_direct(sender->direct);
	if (d->wait != PEAL_DIRECT_WAITS_RECEIVE)
		return false;
	d->woken = true;
	d->wait = PEAL_DIRECT_RUNS;
	return true;
}

/* Return: the one sender that can wait for receives of this queue pair, if it did wait, or NULL. */
static struct peal_qp *peal_direct_waiting_sender(struct peal_transport *transport)
{
	struct peal_qp *qp = transport->qp, *sender = NULL;
	struct peal_table *table = qp->table;
	bool waited;
	u32 device;

	peal_epoch_assert_held();
	smp_rmb();	/* K: the flag was seen; pairs with peal_direct_transfer() */
	device = READ_ONCE(peal_direct(transport)->waiter);
	if (device)
		table = peal_locality_device_table(device);
	if (table)
		sender = peal_table_qp(table, READ_ONCE(qp->attr.dest_qp_num));
	if (!sender || !peal_direct_may_send_to(sender, qp))
		return NULL;
	spin_lock(&sender->sq.lock);
	waited = peal_direct_end_wait(sender, qp);
	spin_unlock(&sender->sq.lock);
	return waited ? sender : NULL;
}

/* ---- the transport ---- */

/* Under sq.lock and rq.lock. */
static void peal_direct_apply(struct peal_transport *transport, int mask)
{
	struct peal_direct *d = peal_direct(transport);

	peal_qp_assert_both_held(transport->qp);
	if (mask & IB_QP_SQ_PSN)
		d->psn = transport->qp->attr.sq_psn;
	if (mask & IB_QP_RQ_PSN)
		d->at.psn = transport->qp->attr.rq_psn;
}

/* Under sq.lock and rq.lock. */
static void peal_direct_reset(struct peal_transport *transport)
{
	struct peal_direct *d = peal_direct(transport);

	peal_qp_assert_both_held(transport->qp);
	d->wait = PEAL_DIRECT_RUNS;
	d->message = false;
	d->at.msn = 0;
	peal_locality_forget(transport->qp);
}

static u32 peal_direct_send_psn(const struct peal_transport *transport)
{
	lockdep_assert_held(&transport->qp->sq.lock);
	return peal_direct(transport)->psn;
}

static void peal_direct_start_send(struct peal_transport *transport, u32 psn)
{
	lockdep_assert_held(&transport->qp->sq.lock);
	peal_direct(transport)->psn = psn;
}

static struct peal_recv_psn peal_direct_recv_psn(const struct peal_transport *transport)
{
	lockdep_assert_held(&transport->qp->rq.lock);
	return peal_direct(transport)->at;
}

static void peal_direct_start_recv(struct peal_transport *transport, struct peal_recv_psn at)
{
	struct peal_direct *d = peal_direct(transport);

	lockdep_assert_held(&transport->qp->rq.lock);
	/*
	 * If the PSN is the same, a message that goes on here after packets in between
	 * is still the same message.
	 */
	if (d->at.psn != at.psn)
		d->message = false;
	d->at = at;
}

static void peal_direct_free(struct peal_transport *transport)
{
	kfree(peal_direct(transport));
}

static const struct peal_transport_ops peal_direct_ops = {
	.apply = peal_direct_apply,
	.reset = peal_direct_reset,
	.free = peal_direct_free,
	.run = peal_direct_run,
	.send_psn = peal_direct_send_psn,
	.start_send = peal_direct_start_send,
	.recv_psn = peal_direct_recv_psn,
	.start_recv = peal_direct_start_recv,
	.waiting_sender = peal_direct_waiting_sender,
};

int peal_direct_attach(struct peal_qp *qp, const struct peal_locality_device *device)
{
	struct peal_direct *d = kzalloc(sizeof(*d), GFP_KERNEL_ACCOUNT);

	if (!d)
		return -ENOMEM;
	d->base.ops = &peal_direct_ops;
	d->base.qp = qp;
	peal_locality_init(&d->locality, device);
	peal_qp_set_direct(qp, &d->base, &d->locality);
	return 0;
}
