// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See reach.h.
 */
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/random.h>
#include <linux/xarray.h>
#include <crypto/algapi.h>

#include "base/guard.h"
#include "queue/qp.h"
#include "transport/reach.h"

/* A proof is renewed while there is traffic, and given up when that fails twice. */
#define PEAL_REACH_RENEW	(HZ)
#define PEAL_REACH_LASTS	(3 * HZ)

/*
 * An answer counts for so many round trips. On a loaded machine ksoftirqd waits for some
 * ticks of the scheduler, which were not there when the round trip was measured.
 */
#define PEAL_REACH_TRIPS	4
#define PEAL_REACH_LEAST_NS	(100 * NSEC_PER_MSEC)
#define PEAL_REACH_MOST_NS	(500 * NSEC_PER_MSEC)

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
	WRITE_ONCE(reach->asked, false);
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
 * peal_reach_ask() - may the peer be in this kernel, and what is to be asked?
 * @probe: to be sent to the peer as a packet
 * @trip: ns, how long an answer takes at most, as far as it is known
 *
 * sq.lock, inside the guard. Return: false when the peer is not in this kernel.
 */
bool peal_reach_ask(struct peal_qp *qp, struct peal_reach_probe *probe, u64 trip)
{
	struct peal_reach *reach = &qp->reach;

	reach->next = jiffies + PEAL_REACH_RENEW;
	WRITE_ONCE(reach->asked, peal_reach_may_be_here(qp));
	if (!reach->asked)
		return false;
	*probe = (struct peal_reach_probe){
		.home = reach->home->number,
		.qpn = qp->ib.qp_num,
	};
	get_random_bytes(probe->nonce, sizeof(probe->nonce));
	WRITE_ONCE(reach->nonce[0], probe->nonce[0]);
	WRITE_ONCE(reach->nonce[1], probe->nonce[1]);
	WRITE_ONCE(reach->seen, 0);
	reach->late = ktime_get_ns() + clamp_t(u64, PEAL_REACH_TRIPS * trip, PEAL_REACH_LEAST_NS,
					       PEAL_REACH_MOST_NS);
	return true;
}

/*
 * Without a lock, so only a hint: is this what @reach asks, and not seen yet? A remote packet
 * takes the lock of a queue pair elsewhere only when it carries the number of its probe.
 */
static bool peal_reach_may_ask(const struct peal_reach *reach, const struct peal_reach_probe *probe)
{
	u64 differs = (READ_ONCE(reach->nonce[0]) ^ probe->nonce[0]) |
		      (READ_ONCE(reach->nonce[1]) ^ probe->nonce[1]);

	return !differs && READ_ONCE(reach->asked) && !READ_ONCE(reach->seen);
}

/* sq.lock. Forgets a probe that took too long, and counts that where it is noticed. */
static bool peal_reach_is_late(struct peal_reach *reach, struct peal_table *table)
{
	if (ktime_get_ns() <= reach->late)
		return false;
	WRITE_ONCE(reach->asked, false);
	peal_count(table, reach_late);
	return true;
}

/* sq.lock. Has @qp asked this, of the queue pair @qpn that @at has? */
static bool peal_reach_asks(const struct peal_qp *qp, const struct peal_reach_probe *probe,
			    const struct peal_reach_home *at, u32 qpn)
{
	const struct peal_reach *reach = &qp->reach;

	return reach->asked && !reach->seen &&
	       !crypto_memneq(reach->nonce, probe->nonce, sizeof(reach->nonce)) &&
	       qp->attr.dest_qp_num == qpn && peal_reach_may_be_at(qp, at);
}

/* sq.lock. The probe was seen @at; @answer shall come back. */
static void peal_reach_note(struct peal_reach *reach, const struct peal_reach_home *at,
			    struct peal_reach_probe *answer)
{
	WRITE_ONCE(reach->seen, at->number);
	get_random_bytes(reach->answer, sizeof(reach->answer));
	*answer = (struct peal_reach_probe){
		.nonce = { reach->answer[0], reach->answer[1] },
		.answer = 1,
	};
}

/**
 * peal_reach_see() - a probe has come in
 * @probe: becomes the answer
 * @at: the device. Several may look like the peer's: it is the one where it came in
 * @qpn: the queue pair it is addressed to
 *
 * Inside the guard, no lock held. A probe has one answer. A copy that comes in later gets
 * none: another number would make the first answer void, and the same number would be told
 * to whoever sends copies.
 *
 * Return: true when it is what a queue pair of this kernel asks its peer.
 */
bool peal_reach_see(struct peal_reach_probe *probe, const struct peal_reach_home *at, u32 qpn)
{
	struct peal_table *table = peal_reach_home_table(probe->home);
	struct peal_qp *qp = table ? peal_table_qp(table, probe->qpn) : NULL;
	bool asks;

	if (!qp || !peal_reach_may_ask(&qp->reach, probe))
		return false;
	spin_lock(&qp->sq.lock);
	asks = peal_reach_asks(qp, probe, at, qpn) && !peal_reach_is_late(&qp->reach, at->table);
	if (asks)
		peal_reach_note(&qp->reach, at, probe);
	spin_unlock(&qp->sq.lock);
	return asks;
}

/**
 * peal_reach_prove() - an answer has come in for @qp
 *
 * sq.lock, inside the guard. Return: true when it answers the last probe in time.
 */
bool peal_reach_prove(struct peal_qp *qp, const struct peal_reach_probe *answer)
{
	struct peal_reach *reach = &qp->reach;

	if (!reach->asked || !reach->seen ||
	    crypto_memneq(reach->answer, answer->nonce, sizeof(reach->answer)))
		return false;
	if (peal_reach_is_late(reach, qp->table))
		return false;
	WRITE_ONCE(reach->asked, false);
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
