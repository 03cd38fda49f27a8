/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The tables of one device: queue pairs by number, memory keys and addresses by
 * index, and the counters. What a request can name, it names through here.
 *
 * Owns: the numbers. They are handed out cyclically, so that a stale number
 * stays unknown for as long as possible. A QP number is all that a stranger has to
 * guess to be heard by a queue pair, so these come in a secret order, which is another
 * one for each device. They are from the lower half of their 24 bits.
 * Does not know: how many of them each program may have (quota.h),
 * what the entries contain. Entries found inside the guard stay
 * valid until its end (guard.h).
 */
#ifndef PEAL_TABLE_H
#define PEAL_TABLE_H

#include <linux/siphash.h>
#include <linux/xarray.h>

#include "counters.h"
#include "quota.h"

struct peal_qp;
struct peal_key;
struct peal_address;

struct peal_table {
	struct xarray qps;	/* by QP number; writers take its xa_lock */
	struct xarray keys;	/* by key >> 8; likewise */
	struct xarray addresses; /* by index; likewise, with interrupts off */
	u32 next_qpn;		/* place in the order of QP numbers; xa_lock of qps */
	siphash_key_t qpn_order;
	u32 next_key;
	u32 next_address;
	struct peal_counters __percpu *counters;
};

int peal_table_init(struct peal_table *table);
void peal_table_destroy(struct peal_table *table);

int peal_table_add_qp(struct peal_table *table, struct peal_qp *qp, u32 *qpn);
int peal_table_add_gsi(struct peal_table *table, struct peal_qp *qp, u32 *qpn);
void peal_table_remove_qp(struct peal_table *table, u32 qpn);
/* These count against @account. Return: 0, -ENOMEM or -ENOSPC. */
int peal_table_add_key(struct peal_table *table, struct peal_account *account,
		       struct peal_key *key, u32 *value);
void peal_table_remove_key(struct peal_table *table, struct peal_account *account, u32 value);
int peal_table_add_address(struct peal_table *table, struct peal_account *account,
			   struct peal_address *address, u32 *index, gfp_t gfp);
void peal_table_remove_address(struct peal_table *table, struct peal_account *account, u32 index);

static inline struct peal_qp *peal_table_qp(struct peal_table *table, u32 qpn)
{
	return xa_load(&table->qps, qpn);
}

/* The caller compares the low byte: an old key has another one. */
static inline struct peal_key *peal_table_key(struct peal_table *table, u32 value)
{
	return xa_load(&table->keys, value >> 8);
}

static inline struct peal_address *peal_table_address(struct peal_table *table, u32 index)
{
	return xa_load(&table->addresses, index);
}

u64 peal_table_counter(const struct peal_table *table, enum peal_counter counter);

#endif
