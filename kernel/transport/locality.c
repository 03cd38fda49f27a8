// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See locality.h.
 */
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/random.h>
#include <linux/xarray.h>
#include <crypto/algapi.h>

#include "base/epoch.h"
#include "net/datagram.h"
#include "queue/qp.h"
#include "transport/locality.h"
#include "transport/output.h"

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
	xa_erase(&peal_locality_devices, device->number);
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
 * Prepare a challenge if the peer may be in this kernel. @trip: as in
 * peal_locality_challenge_peer(). Under sq.lock, inside the epoch. Return: false when no challenge
 * is needed.
 */
static bool peal_locality_prepare(struct peal_qp *qp, struct peal_locality_challenge *challenge,
				  u64 trip)
{
	struct peal_locality *loc = qp->locality;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	loc->next = jiffies + PEAL_LOCALITY_RENEW;
	WRITE_ONCE(loc->pending, peal_locality_may_be_here(qp));
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
	loc->until = jiffies + PEAL_LOCALITY_LASTS;
	return true;
}

static bool peal_locality_is_proven(const struct peal_locality *loc)
{
	return loc->proven && !time_after(jiffies, loc->until);
}

/**
 * peal_locality_table() - the tables of the peer's device
 *
 * Under sq.lock, inside the epoch. Return: NULL when it is not proven that
 * packets arrive there.
 */
struct peal_table *peal_locality_table(const struct peal_qp *qp)
{
	const struct peal_locality *loc = qp->locality;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	return peal_locality_is_proven(loc) ? peal_locality_device_table(loc->proven) : NULL;
}

bool peal_locality_look(struct peal_qp *qp)
{
	struct peal_locality *loc = qp->locality;
	struct peal_locality_device *device = NULL;

	peal_epoch_assert_held();
	lockdep_assert_held(&qp->sq.lock);
	if (peal_locality_is_proven(loc))
		device = peal_locality_find(loc->proven);
	loc->wanted = device && peal_locality_is_allowed(qp, device);
	return loc->wanted;
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

void peal_locality_challenge_peer(struct peal_qp *qp, struct peal_output *output, u64 trip)
{
	struct peal_locality_challenge challenge;

	lockdep_assert_held(&qp->sq.lock);
	if (!peal_locality_prepare(qp, &challenge, trip))
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

bool peal_locality_read(const struct peal_datagram *dg, struct peal_locality_challenge *challenge)
{
	if (dg->packet.payload_bytes != sizeof(*challenge))
		return false;
	peal_datagram_copy(dg, 0, challenge, sizeof(*challenge));
	return true;
}
