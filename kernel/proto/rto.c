// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See rto.h.
 */
#include <linux/limits.h>
#include <linux/minmax.h>

#include "proto/psn.h"
#include "proto/rto.h"

/* The guess before the first sample, longer than most round trips, far shorter than a timeout. */
#define RTO_START_NS	5000000ULL
/* The least wait, because thread scheduling delays answers by about as much. */
#define RTO_LEAST_NS	100000ULL
/* An answer is slow if it takes one SLOW-th of the longest estimate more than the shortest. */
#define SLOW			4
/* Every HEARD_MOST-th silence without a sample keeps its back-off. */
#define HEARD_MOST		3
#define PATIENCE_LEAST_NS	20000ULL
#define PATIENCE_START_NS	500000ULL

static void peal_rto_set(struct peal_rto *rto, u64 ns)
{
	rto->ns = min_t(u64, max_t(u64, ns, RTO_LEAST_NS), rto->longest);
}

u64 peal_rto_estimate(const struct peal_rto *rto)
{
	return rto->srtt ? rto->srtt + 4 * rto->rttvar : RTO_START_NS;
}

void peal_rto_reset(struct peal_rto *rto)
{
	*rto = (struct peal_rto) { .longest = rto->longest };
	peal_rto_set(rto, peal_rto_estimate(rto));
}

void peal_rto_limit(struct peal_rto *rto, u64 longest)
{
	rto->longest = longest;
	peal_rto_set(rto, peal_rto_estimate(rto));
}

void peal_rto_start(struct peal_rto *rto, u32 psn, u64 now)
{
	if (rto->timing)
		return;
	rto->timing = true;
	rto->since = now;
	rto->psn = psn;
}

void peal_rto_sent_again(struct peal_rto *rto, u32 from, u32 to)
{
	if (peal_psn_distance(from, rto->psn) >= 0 && peal_psn_distance(rto->psn, to) > 0)
		rto->timing = false;
}

void peal_rto_forget(struct peal_rto *rto)
{
	rto->timing = false;
}

/* RFC 6298, 2.2 and 2.3. */
static void peal_rto_sample(struct peal_rto *rto, u64 rtt)
{
	u64 off = rto->srtt > rtt ? rto->srtt - rtt : rtt - rto->srtt;

	if (!rto->srtt || rtt < rto->shortest)
		rto->shortest = rtt;
	if (rtt <= rto->shortest + rto->longest / SLOW)
		rto->slow = 0;
	else if (rto->slow < U8_MAX)
		rto->slow++;
	if (rto->srtt) {
		rto->rttvar = rto->rttvar - rto->rttvar / 4 + off / 4;
		rto->srtt = rto->srtt - rto->srtt / 8 + rtt / 8;
	} else {
		rto->rttvar = rtt / 2;
		rto->srtt = max_t(u64, rtt, 1);
	}
	peal_rto_set(rto, peal_rto_estimate(rto));
}

void peal_rto_answered(struct peal_rto *rto, u32 seen, u64 now)
{
	if (!rto->timing || peal_psn_distance(rto->psn, seen) <= 0)
		return;
	rto->timing = false;
	peal_rto_sample(rto, now - rto->since);
}

/*
 * The response may answer an earlier packet than the probe, so the true round trip may be longer
 * than the time since the probe. This time is therefore a sample only if it is at least srtt.
 *
 * Then undo most of the back-off, because on a path with many losses no clean sample would ever
 * undo it. But keep the back-off at every HEARD_MOST-th silence without a sample. If the round
 * trip has become longer than the estimate, one packet must be waited for until it is answered.
 */
void peal_rto_heard(struct peal_rto *rto, u64 since, u64 now)
{
	u64 least = rto->ns / 8;

	if (now - since >= rto->srtt) {
		peal_rto_sample(rto, now - since);
	} else if (++rto->heard < HEARD_MOST) {
		peal_rto_set(rto, peal_rto_estimate(rto));
	} else {
		rto->heard = 0;
		return;
	}
	peal_rto_set(rto, max_t(u64, rto->ns, least));
}

u8 peal_rto_slow(const struct peal_rto *rto)
{
	return rto->slow;
}

void peal_rto_back_off(struct peal_rto *rto)
{
	peal_rto_set(rto, 2 * rto->ns);
}

u64 peal_rto_patience(const struct peal_rto *rto)
{
	if (!rto->srtt)
		return min_t(u64, PATIENCE_START_NS, rto->ns);
	return max_t(u64, max_t(u64, rto->srtt / 4, rto->rttvar), PATIENCE_LEAST_NS);
}

bool peal_rto_plausible(const struct peal_rto *rto, u64 since, u64 now)
{
	return now - since >= rto->shortest / 2;
}

void peal_rto_doubt(struct peal_rto *rto)
{
	rto->shortest /= 2;
}
