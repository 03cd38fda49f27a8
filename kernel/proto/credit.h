/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * End-to-end flow control: how many receives the peer says it has posted (IBTA 9.7.7.2).
 *
 * Owns: the number of messages begun (SSN) and the limit (LSN).
 * Does not know: what a message is, how it is sent.
 */
#ifndef PEAL_CREDIT_H
#define PEAL_CREDIT_H

#include <linux/types.h>

struct peal_credit {
	bool limited;		/* the peer sends credits; if not, there is no limit */
	u32 ssn;		/* messages begun; 24 bits like the MSN */
	u32 limit;		/* the last message that surely finds a receive */
};

void peal_credit_reset(struct peal_credit *credit);
/* Take the credits from the AETH of an acknowledgment. Return: true if the limit changed. */
bool peal_credit_learn(struct peal_credit *credit, u8 syndrome, u32 msn);
/*
 * A message begins. Messages of every kind count, because the peer's MSN counts them all
 * (9.7.7.1).
 */
void peal_credit_use(struct peal_credit *credit);
/* Do the credits cover message number @ssn? */
bool peal_credit_covers(const struct peal_credit *credit, u32 ssn);

#endif
