// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See credit.h.
 */
#include "proto/credit.h"
#include "proto/packet.h"
#include "proto/psn.h"
#include "proto/rnr.h"

void peal_credit_reset(struct peal_credit *credit)
{
	*credit = (struct peal_credit) { .limited = false };
}

/* The limit only rises, because an older acknowledgment may arrive later (9.7.7.2.4). */
bool peal_credit_learn(struct peal_credit *credit, u8 syndrome, u32 msn)
{
	u32 code = syndrome & PEAL_SYNDROME_VALUE;
	bool was_limited = credit->limited;
	u32 limit;

	credit->limited = code != PEAL_CREDITS_UNLIMITED;
	if (!credit->limited)
		return was_limited;
	limit = peal_psn_add(msn, peal_rnr_credits(code));
	if (was_limited && peal_psn_distance(credit->limit, limit) <= 0)
		return false;
	credit->limit = limit;
	return true;
}

void peal_credit_use(struct peal_credit *credit)
{
	credit->ssn = peal_psn_add(credit->ssn, 1);
}

bool peal_credit_covers(const struct peal_credit *credit, u32 ssn)
{
	return !credit->limited || peal_psn_distance(credit->limit, ssn) <= 0;
}
