/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * End-to-end flow control: how many receives the peer says it has (IBTA 9.7.7.2).
 *
 * Owns: the number of messages begun (SSN) and the limit (LSN).
 * Does not know: what a message is, how it is sent.
 */
#ifndef PEAL_CREDIT_H
#define PEAL_CREDIT_H

#include <linux/types.h>

struct peal_credit {
	bool limited;		/* the peer counts; without it there is no limit */
	u32 ssn;		/* messages begun; 24 bits, as MSN */
	u32 limit;		/* the last message that is sure to find a receive */
};

void peal_credit_reset(struct peal_credit *credit);
/* From the AETH of an acknowledgment. Return: something changed. */
bool peal_credit_learn(struct peal_credit *credit, u8 syndrome, u32 msn);
/* Messages of every kind count, because the peer's MSN counts them all (9.7.7.1). */
void peal_credit_use(struct peal_credit *credit);
/* Is message number @ssn covered? */
bool peal_credit_covers(const struct peal_credit *credit, u32 ssn);

#endif
