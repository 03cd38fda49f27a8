// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See reach.h.
 */
#include <linux/random.h>
#include <linux/xarray.h>
#include <crypto/algapi.h>

#include "guard.h"
#include "qp.h"
#include "reach.h"

/* A proof is renewed while there is traffic, and given up when that fails twice. */
#define PEAL_REACH_RENEW	(HZ)
#define PEAL_REACH_LASTS	(3 * HZ)

/* By number; writers take its xa_lock, readers are inside the guard. */
static DEFINE_XARRAY_ALLOC1(peal_reach_homes);
static u32 peal_reach_next;

int peal_reach_add(struct peal_reach_home *home, struct peal_table *table,
		   const struct peal_options *options)
{
	int ret;

	home->table = table;
	home->options = options;
	home->net = NULL;
	ret = xa_alloc_cyclic(&peal_reach_homes, &home->number, home, xa_limit_31b,
			      &peal_reach_next, GFP_KERNEL);
	return min(ret, 0);
}

void peal_reach_settle(struct peal_reach_home *home, const struct net *net)
{
	WRITE_ONCE(home->net, net);
}

void peal_reach_remove(struct peal_reach_home *home)
{
	xa_erase(&peal_reach_homes, home->number);
	peal_guard_wait();
}

void peal_reach_init(struct peal_reach *reach, const struct peal_reach_home *home)
{
	reach->home = home;
	peal_reach_forget(reach);
}

void peal_reach_forget(struct peal_reach *reach)
{
	reach->proven = 0;
	reach->asked = false;
	reach->wanted = false;
	reach->direct = false;
	reach->next = jiffies;
}

void peal_reach_go(struct peal_reach *reach, bool direct)
{
	reach->direct = direct;
}

static struct peal_reach_home *peal_reach_home(u32 number)
{
	return xa_load(&peal_reach_homes, number);
}

/* Inside the guard: the tables of a device, or NULL when it is gone. */
struct peal_table *peal_reach_home_table(u32 number)
{
	struct peal_reach_home *home = peal_reach_home(number);

	return home ? home->table : NULL;
}

/* Do the two queue pairs name each other? A hint: a wrong one proves nothing. */
static bool peal_reach_match(const struct peal_qp *qp, const struct peal_qp *peer)
{
	return peer->ib.qp_type == qp->ib.qp_type && READ_ONCE(peer->on_wire) &&
	       READ_ONCE(peer->attr.dest_qp_num) == qp->ib.qp_num &&
	       !memcmp(&peer->sgid, &qp->attr.ah_attr.grh.dgid, sizeof(peer->sgid)) &&
	       !memcmp(&peer->attr.ah_attr.grh.dgid, &qp->sgid, sizeof(qp->sgid));
}

/* How far apart are two devices? */
static enum peal_nl_scope peal_reach_scope(const struct peal_reach_home *a,
					   const struct peal_reach_home *b)
{
	const struct net *net = READ_ONCE(a->net);

	return net && net == READ_ONCE(b->net) ? PEAL_NL_SCOPE_NETNS : PEAL_NL_SCOPE_HOST;
}

/* May the next message of @qp go direct to that device? */
static bool peal_reach_is_allowed(const struct peal_qp *qp, const struct peal_reach_home *home)
{
	enum peal_nl_scope scope = peal_reach_scope(qp->reach.home, home);

	return peal_options_allow(qp->reach.home->options, scope) &&
	       peal_options_allow(home->options, scope);
}

/* A direct message that is under way ends as it began, whatever an administrator sets. */
static bool peal_reach_is_in_use(const struct peal_reach *reach, const struct peal_reach_home *home)
{
	return reach->direct && reach->proven == home->number;
}

static bool peal_reach_may_be_at(const struct peal_qp *qp, const struct peal_reach_home *home)
{
	const struct peal_qp *peer;

	if (home == qp->reach.home)
		return false;
	if (!peal_reach_is_allowed(qp, home) && !peal_reach_is_in_use(&qp->reach, home))
		return false;
	peer = peal_table_qp(home->table, qp->attr.dest_qp_num);
	return peer && peal_reach_match(qp, peer);
}

static bool peal_reach_may_be_here(const struct peal_qp *qp)
{
	struct peal_reach_home *home;
	unsigned long number;

	xa_for_each(&peal_reach_homes, number, home)
		if (peal_reach_may_be_at(qp, home))
			return true;
	return false;
}

/**
 * peal_reach_ask() - is there somebody to ask, and what?
 * @probe: to be sent to the peer as a packet
 *
 * sq.lock, inside the guard. Return: false when the peer is not on this host.
 */
bool peal_reach_ask(struct peal_qp *qp, struct peal_reach_probe *probe)
{
	struct peal_reach *reach = &qp->reach;

	reach->next = jiffies + PEAL_REACH_RENEW;
	reach->asked = peal_reach_may_be_here(qp);
	if (!reach->asked)
		return false;
	reach->seen = 0;
	get_random_bytes(reach->nonce, sizeof(reach->nonce));
	*probe = (struct peal_reach_probe){
		.nonce = { reach->nonce[0], reach->nonce[1] },
		.home = reach->home->number,
		.qpn = qp->ib.qp_num,
	};
	return true;
}

/* sq.lock. Is this the number that we sent last, and does it still count? */
static bool peal_reach_is_ours(const struct peal_reach *reach,
			       const struct peal_reach_probe *probe)
{
	return reach->asked && !crypto_memneq(reach->nonce, probe->nonce, sizeof(reach->nonce));
}

/**
 * peal_reach_see() - a probe has come in
 * @at: the device. Several may look like the peer's: it is the one where it came in
 * @qpn: the queue pair it is addressed to
 *
 * Inside the guard, no lock held. Return: true when it is what a queue pair of
 * this kernel has asked its peer; then it shall be sent back.
 */
bool peal_reach_see(const struct peal_reach_probe *probe, const struct peal_reach_home *at,
		    u32 qpn)
{
	struct peal_table *table = peal_reach_home_table(probe->home);
	struct peal_qp *qp = table ? peal_table_qp(table, probe->qpn) : NULL;
	bool ours;

	if (!qp)
		return false;
	spin_lock(&qp->sq.lock);
	ours = peal_reach_is_ours(&qp->reach, probe) && qp->attr.dest_qp_num == qpn &&
	       peal_reach_may_be_at(qp, at);
	if (ours)
		qp->reach.seen = at->number;
	spin_unlock(&qp->sq.lock);
	return ours;
}

/**
 * peal_reach_prove() - the probe of @qp has come back
 *
 * sq.lock, inside the guard. Who has not seen the number cannot send it; who has
 * seen it elsewhere does not make it seen at a device of ours. Return: true when
 * it is the answer.
 */
bool peal_reach_prove(struct peal_qp *qp, const struct peal_reach_probe *probe)
{
	struct peal_reach *reach = &qp->reach;

	if (!peal_reach_is_ours(reach, probe) || !reach->seen)
		return false;
	reach->asked = false;
	reach->proven = reach->seen;
	reach->until = jiffies + PEAL_REACH_LASTS;
	return true;
}

static bool peal_reach_is_proven(const struct peal_reach *reach)
{
	return reach->proven && !time_after(jiffies, reach->until);
}

/**
 * peal_reach_table() - where the peer lives, if packets get there at present
 *
 * sq.lock, inside the guard. Return: NULL: nothing gets there.
 */
struct peal_table *peal_reach_table(const struct peal_qp *qp)
{
	const struct peal_reach *reach = &qp->reach;

	return peal_reach_is_proven(reach) ? peal_reach_home_table(reach->proven) : NULL;
}

bool peal_reach_look(struct peal_qp *qp)
{
	struct peal_reach *reach = &qp->reach;
	struct peal_reach_home *home = NULL;

	if (peal_reach_is_proven(reach))
		home = peal_reach_home(reach->proven);
	reach->wanted = home && peal_reach_is_allowed(qp, home);
	return reach->wanted;
}
