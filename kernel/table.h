/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The tables of one device: queue pairs by number, memory keys by index, and
 * the counters. What an incoming request can name, it names through here.
 *
 * Owns: the numbers. Both are handed out cyclically, so that a stale number
 * stays unknown for as long as possible.
 * Does not know: what the entries contain. Entries found inside the guard stay
 * valid until its end (guard.h).
 */
#ifndef PEAL_TABLE_H
#define PEAL_TABLE_H

#include <linux/xarray.h>

#include "counters.h"

struct peal_qp;
struct peal_key;

struct peal_table {
	struct xarray qps;	/* by QP number; writers take its xa_lock */
	struct xarray keys;	/* by key >> 8; likewise */
	u32 next_qpn;
	u32 next_key;
	struct peal_counters __percpu *counters;
};

int peal_table_init(struct peal_table *table);
void peal_table_destroy(struct peal_table *table);

int peal_table_add_qp(struct peal_table *table, struct peal_qp *qp, u32 *qpn);
void peal_table_remove_qp(struct peal_table *table, u32 qpn);
int peal_table_add_key(struct peal_table *table, struct peal_key *key, u32 *value);
void peal_table_remove_key(struct peal_table *table, u32 value);

static inline struct peal_qp *peal_table_qp(struct peal_table *table, u32 qpn)
{
	return xa_load(&table->qps, qpn);
}

/* The caller compares the low byte: an old key has another one. */
static inline struct peal_key *peal_table_key(struct peal_table *table, u32 value)
{
	return xa_load(&table->keys, value >> 8);
}

u64 peal_table_counter(const struct peal_table *table, enum peal_counter counter);

#endif
