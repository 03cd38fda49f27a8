// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See timers.h.
 */
#include <linux/limits.h>
#include <linux/minmax.h>

#include "proto/packet.h"
#include "proto/timers.h"

#define STEPS	32

/* As credits these are receives. As RNR timers they are units of 10 us, except the first. */
static const u32 peal_rnr_steps[STEPS] = {
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

u64 peal_rnr_timer_ns(u8 code)
{
	u32 units = peal_rnr_steps[code & (STEPS - 1)];

	return (units ? units : 65536) * 10000ULL;
}

u32 peal_rnr_credits(u8 code)
{
	return peal_rnr_steps[code & (STEPS - 1)];
}

/* The guess before the first sample, longer than most round trips, far shorter than a timeout. */
#define RTO_START_NS	5000000ULL
/* The least wait, because thread scheduling delays answers by about as much. */
#define RTO_LEAST_NS	100000ULL
/* An answer is slow if it takes one SLOW-th of the longest estimate more than the shortest. */
#define SLOW			2
/* Every HEARD_MOST-th silence without a sample keeps its back-off. */
#define HEARD_MOST		3
/* A queue makes an answer take one QUEUE-th and QUEUE_LEAST_NS more than the shortest. */
#define QUEUE			4
/* An answer behind a gap takes up to so many round trips. */
#define GAP			3
#define QUEUE_LEAST_NS		10000ULL
/*
 * The back-off ends at this wait, or at one BACK_OFF_PART-th of the silence, so that a path is used
 * again soon when it is back.
 */
#define BACK_OFF_MOST_NS	50000000ULL
#define BACK_OFF_PART		8
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
	rto->gap = false;
	rto->since = now;
	rto->psn = psn;
}

void peal_rto_sent_again(struct peal_rto *rto, u32 from, u32 to)
{
	if (peal_psn_distance(from, rto->psn) >= 0 && peal_psn_distance(rto->psn, to) > 0)
		rto->timing = false;
}

/* RFC 6298, 2.2 and 2.3. */
static void peal_rto_sample(struct peal_rto *rto, u64 rtt)
{
	u64 off = rto->srtt > rtt ? rto->srtt - rtt : rtt - rto->srtt;

	if (!rto->srtt || rtt < rto->shortest)
		rto->shortest = rtt;
	rto->latest = rto->gap ? rtt / GAP : rtt;
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
	u64 rtt = now - rto->since;

	if (!rto->timing || peal_psn_distance(rto->psn, seen) <= 0)
		return;
	rto->timing = false;
	if (!rto->empty || rtt < rto->empty)
		rto->empty = rtt;
	peal_rto_sample(rto, rtt);
}

/*
 * The response may answer an earlier packet than the probe, so the true round trip may be longer
 * than the time since the probe. This time is therefore a sample only if it is at least srtt, and
 * it never tells how long the empty path takes. Before the first answer srtt is 0. On a path of
 * 10 ms the first probe leaves after 5 ms, and the answer to the packet before it comes 5 ms later.
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

bool peal_rto_sees_queue(const struct peal_rto *rto)
{
	return rto->empty && rto->latest > rto->empty + rto->empty / QUEUE + QUEUE_LEAST_NS;
}

bool peal_rto_sees_long_queue(const struct peal_rto *rto)
{
	return peal_rto_sees_queue(rto) && rto->latest > 2 * rto->empty;
}

void peal_rto_back_off(struct peal_rto *rto, u64 silence)
{
	u64 most = max_t(u64, BACK_OFF_MOST_NS, silence / BACK_OFF_PART);

	peal_rto_set(rto, min_t(u64, 2 * rto->ns, max_t(u64, rto->ns, most)));
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

#define RNR_FOREVER	7
#define MANY		255
#define LONGEST_RNR_NS	1000000
#define MOST_DOUBLED	7	/* reaches LONGEST_RNR_NS from the shortest timer, 10 us */

void peal_retry_progress(struct peal_retry *r)
{
	r->used = 0;
	r->copies = 0;
	r->nak_seen = false;
}

void peal_retry_received(struct peal_retry *r)
{
	r->used_rnr = 0;
	r->waits = 0;
	r->excused = 0;
}

void peal_retry_copied(struct peal_retry *r)
{
	if (r->copies < MANY)
		r->copies++;
}

bool peal_retry_use(struct peal_retry *r, u8 limit)
{
	if (r->used >= limit)
		return false;
	r->used++;
	return true;
}

bool peal_retry_use_rnr(struct peal_retry *r, u8 limit)
{
	if (limit == RNR_FOREVER) {
		r->waits += r->waits < MANY;
		return true;
	}
	if (r->excused) {
		r->excused--;
		return true;
	}
	if (r->used_rnr >= limit)
		return false;
	r->used_rnr++;
	r->excused = r->copies;
	r->copies = 0;
	return true;
}

u64 peal_retry_rnr_ns(const struct peal_retry *r, u8 timer)
{
	u64 ns = peal_rnr_timer_ns(timer);
	u32 times = r->waits ? min_t(u32, r->waits - 1, MOST_DOUBLED) : 0;

	return max_t(u64, ns, min_t(u64, ns << times, LONGEST_RNR_NS));
}

void peal_retry_postpone(u64 *at, u64 now, u64 since, u64 ns, u64 most)
{
	if (*at != U64_MAX)
		*at = max_t(u64, *at, min_t(u64, now + ns, since + most));
}
