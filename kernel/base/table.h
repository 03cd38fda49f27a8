/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The tables of one device: queue pairs and XRC shared receive queues by number, memory keys and
 * addresses by index, and the counters. A request can name an object only through these tables.
 *
 * Numbers are handed out cyclically, so that a stale number stays unknown for as long as possible.
 * QP numbers come in a secret order, which differs from device to device, because a sender that
 * sees no packets has to guess the number of a queue pair before that queue pair accepts anything
 * from it. QP numbers are from the lower half of the 24-bit numbers.
 *
 * Entries found inside the epoch stay valid until its end (epoch.h).
 */
#ifndef PEAL_TABLE_H
#define PEAL_TABLE_H

#include <linux/xarray.h>

#include "base/counters.h"
#include "base/fault.h"
#include "base/quota.h"

struct peal_qp;
struct peal_port;
struct peal_key;
struct peal_address;
struct peal_srq;

#define PEAL_QPN_ROUNDS	4

/* The queue pair of the port's general services interface, GSI (IBTA 3.9.3, 10.2.4.1). */
#define PEAL_GSI_QPN	1

/* The key of one round of the permutation that orders the QP numbers. */
struct peal_qpn_round {
	u32 add, multiply;
};

/*
 * The last look-up of a queue pair by one user, for example a sender. It saves turning the
 * number into its ordinal, and the walk through the tree. A peal_lookup belongs to one table. Its
 * owner clears it before it is used for another. Only peal_table_qp_again() fills it.
 */
struct peal_lookup {
	struct peal_qp *qp;	/* NULL: there was none */
	u32 qpn;
	unsigned long removals;	/* the table's value, loaded before qp was found */
};

/* How many look-ups of keys each CPU remembers. A power of two. */
#define PEAL_KEYS_REMEMBERED	8

/* A look-up of a key. */
struct peal_key_lookup {
	struct peal_key *key;	/* NULL: there was none */
	u32 index;
	unsigned long removals;	/* the table's key_removals, loaded before key was found */
};

/* The last look-ups of keys on one CPU, each in the place that its index has. */
struct peal_key_lookups {
	struct peal_key_lookup last[PEAL_KEYS_REMEMBERED];
};

struct peal_table {
	/* Guarded by table.qps.xa_lock: */
	unsigned long removals;	/* queue pairs that have left; readers use barrier M */

	/* Guarded by table.keys.xa_lock: */
	unsigned long key_removals;	/* keys that have left; readers use barrier M */

	struct peal_key_lookups __percpu *found;	/* of keys; used inside the epoch */
	struct peal_lookup __percpu *received;	/* last look-up for packets; inside the epoch */
	struct xarray qps;	/* by ordinal; writers take its xa_lock */
	struct xarray keys;	/* by key >> 8; lock as for qps */
	struct xarray addresses; /* by index; lock as for qps, with interrupts off */

	struct xarray srqs;	/* XRC only, by number; lock as for qps */

	/* Guarded by table.qps.xa_lock: */
	u32 next_qpn;		/* next ordinal in the order of QP numbers */

	struct peal_qpn_round qpn_order[PEAL_QPN_ROUNDS];	/* from ordinals to QP numbers */

	/* Guarded by table.keys.xa_lock: */
	u32 next_key;
	/* Guarded by table.addresses.xa_lock: */
	u32 next_address;
	/* Guarded by table.srqs.xa_lock: */
	u32 next_srq;

	struct peal_counters __percpu *counters;
	struct peal_errors *errors;	/* of the queue pairs */
	unsigned long optional;	/* bit n: PEAL_COUNTER_OPTIONAL + n is enabled; atomic bits */
	struct peal_faults faults;	/* that an administrator asks for */
	struct peal_port *port;		/* of the device */
};

int peal_table_init(struct peal_table *table);
void peal_table_destroy(struct peal_table *table);

int peal_table_add_qp(struct peal_table *table, struct peal_qp *qp, u32 *qpn);
int peal_table_add_gsi(struct peal_table *table, struct peal_qp *qp, u32 *qpn);
void peal_table_remove_qp(struct peal_table *table, u32 qpn);
/* Keys and address handles count against @account. Return: 0, -ENOMEM or -ENOSPC. */
int peal_table_add_key(struct peal_table *table, struct peal_account *account,
		       struct peal_key *key, u32 *value);
void peal_table_remove_key(struct peal_table *table, struct peal_account *account, u32 value);
void peal_table_hide_key(struct peal_table *table, u32 value);
void peal_table_show_key(struct peal_table *table, struct peal_key *key, u32 value);
int peal_table_add_address(struct peal_table *table, struct peal_account *account,
			   struct peal_address *address, u32 *index, gfp_t gfp);
void peal_table_remove_address(struct peal_table *table, struct peal_account *account, u32 index);

/* Return: 0, -ENOMEM or -EBUSY (no number is left). */
int peal_table_add_srq(struct peal_table *table, struct peal_srq *srq, u32 *number);
void peal_table_remove_srq(struct peal_table *table, u32 number);

struct peal_qp *peal_table_qp(struct peal_table *table, u32 qpn);

/* Call inside the epoch, which the caller asserts. */
static inline struct peal_srq *peal_table_srq(struct peal_table *table, u32 number)
{
	return xa_load(&table->srqs, number);
}

/*
 * As peal_table_qp(), but remembers the answer in @last. Only the caller uses @last, under
 * a lock or on one CPU.
 *
 * Barrier M: removals is loaded before the tree. So @last never holds a queue pair that had
 * left when removals was loaded. A queue pair that leaves later changes removals before its
 * destroyer waits for the epoch (G). Pairs with peal_table_remove_qp().
 */
static inline struct peal_qp *peal_table_qp_again(struct peal_table *table,
						  struct peal_lookup *last, u32 qpn)
{
	unsigned long removals = smp_load_acquire(&table->removals);	/* M */

	if (likely(last->qpn == qpn && last->removals == removals && last->qp))
		return last->qp;
	last->removals = removals;
	last->qpn = qpn;
	last->qp = peal_table_qp(table, qpn);
	return last->qp;
}

/*
 * For packets, inside the epoch, which the caller asserts, because tests compile this file
 * without the epoch. Consecutive packets are often for one queue pair.
 */
static inline struct peal_qp *peal_table_receiver(struct peal_table *table, u32 qpn)
{
	return peal_table_qp_again(table, this_cpu_ptr(table->received), qpn);
}

struct peal_key *peal_table_find_key(struct peal_table *table, struct peal_key_lookup *last,
				     u32 index);

/*
 * Inside the epoch, which the caller asserts. It keeps the caller on this CPU, and softirqs off it,
 * so no other user changes the look-ups that this CPU remembers. The caller must compare the low
 * byte, because the value may be an old key of the same index with another low byte.
 *
 * Barrier M, as in peal_table_find_key(). Pairs with peal_table_remove_key() and
 * peal_table_hide_key().
 */
static inline struct peal_key *peal_table_key(struct peal_table *table, u32 value)
{
	u32 index = value >> 8;
	struct peal_key_lookup *last = this_cpu_ptr(table->found)->last +
				       index % PEAL_KEYS_REMEMBERED;

	if (likely(last->removals == smp_load_acquire(&table->key_removals) &&	/* M */
		   last->index == index && last->key))
		return last->key;
	return peal_table_find_key(table, last, index);
}

static inline struct peal_address *peal_table_address(struct peal_table *table, u32 index)
{
	return xa_load(&table->addresses, index);
}

u64 peal_counters_sum(const struct peal_counters __percpu *counters, enum peal_counter counter);
static inline u64 peal_table_counter(const struct peal_table *table, enum peal_counter counter)
{
	return peal_counters_sum(table->counters, counter);
}

void peal_table_enable_counter(struct peal_table *table, enum peal_counter counter, bool enable);
bool peal_table_counter_is_enabled(const struct peal_table *table, enum peal_counter counter);

#endif
