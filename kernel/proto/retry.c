// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See retry.h.
 */
#include <linux/limits.h>
#include <linux/minmax.h>

#include "proto/retry.h"
#include "proto/rnr.h"

#define RNR_FOREVER	7
#define MANY		255
#define LONGEST		4
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

void peal_retry_heard(struct peal_retry *r)
{
	r->used = 0;
}

void peal_retry_nak_seen(struct peal_retry *r)
{
	r->nak_seen = true;
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

void peal_retry_postpone(u64 *at, u64 now, u64 since, u64 ns)
{
	if (*at != U64_MAX)
		*at = max_t(u64, *at, min_t(u64, now + ns, since + LONGEST * ns));
}
