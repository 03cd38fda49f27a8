// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/random.h>

#include <rdma/peal-abi.h>

#include "base/epoch.h"
#include "base/table.h"
#include "proto/packet.h"

/* 0 and 1 are the management queue pairs. The other small numbers stay unused. */
#define PEAL_QPN_LEAST	0x10
/*
 * A number has a left half of 11 bits and a right half of 12 bits, so that it is in the
 * lower half of all 24-bit numbers.
 */
#define PEAL_QPN_MOST	0x7fffff
#define PEAL_QPN_RIGHT_BITS	12
#define PEAL_QPN_RIGHT	0xfff
#define PEAL_QPN_LEFT	0x7ff
/* The index in a key has 24 bits, too. Index 0 is that of PEAL_NULL_LKEY. */
#define PEAL_KEY_LIMIT	XA_LIMIT(1, PEAL_NUMBER_MAX)
#define PEAL_ADDRESS_LIMIT	XA_LIMIT(1, 1 << 20)
#define PEAL_SRQ_LIMIT		XA_LIMIT(1, PEAL_NUMBER_MAX)

/* XA_FLAGS_ACCOUNT: the program's memory cgroup is charged for the xarrays' nodes. */
int peal_table_init(struct peal_table *table)
{
	xa_init_flags(&table->qps, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	xa_init_flags(&table->keys, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	xa_init_flags(&table->addresses,
		      XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ | XA_FLAGS_ACCOUNT);
	xa_init_flags(&table->srqs, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	table->next_qpn = PEAL_QPN_LEAST;
	get_random_bytes(table->qpn_order, sizeof(table->qpn_order));
	table->removals = 0;
	table->key_removals = 0;
	table->counters = alloc_percpu(struct peal_counters);
	table->received = alloc_percpu(struct peal_lookup);
	table->found = alloc_percpu(struct peal_key_lookups);
	if (table->counters && table->received && table->found)
		return 0;
	free_percpu(table->found);
	free_percpu(table->received);
	free_percpu(table->counters);
	return -ENOMEM;
}

void peal_table_destroy(struct peal_table *table)
{
	xa_destroy(&table->qps);
	xa_destroy(&table->keys);
	xa_destroy(&table->addresses);
	xa_destroy(&table->srqs);
	free_percpu(table->found);
	free_percpu(table->received);
	free_percpu(table->counters);
}

static u32 peal_table_mix(const struct peal_table *table, u32 round, u32 half)
{
	const struct peal_qpn_round *key = &table->qpn_order[round];

	return (half + key->add) * (key->multiply | 1) >> (32 - PEAL_QPN_RIGHT_BITS);
}

/*
 * The order of the QP numbers is a Feistel network, so that each ordinal has one number and each
 * number one ordinal, in an order that cannot be told without the key. It need not resist a program
 * that makes thousands of queue pairs to find the key, because such a program learns only numbers
 * of its own host.
 *
 * A number below PEAL_QPN_LEAST is permuted again until it is large enough. The cycle of
 * the permutation returns to @ordinal at the latest, so the loop ends, and each ordinal has a
 * number of its own.
 */
static u32 peal_table_ordinal_to_qpn(const struct peal_table *table, u32 ordinal)
{
	u32 left, right, round;

	do {
		left = ordinal >> PEAL_QPN_RIGHT_BITS;
		right = ordinal & PEAL_QPN_RIGHT;
		for (round = 0; round < PEAL_QPN_ROUNDS; round += 2) {
			left ^= peal_table_mix(table, round, right) & PEAL_QPN_LEFT;
			right ^= peal_table_mix(table, round + 1, left);
		}
		ordinal = left << PEAL_QPN_RIGHT_BITS | right;
	} while (ordinal < PEAL_QPN_LEAST);
	return ordinal;
}

/*
 * The way back. Numbers outside of the order stand for themselves: the GSI's, and those of no queue
 * pair.
 */
static u32 peal_table_ordinal(const struct peal_table *table, u32 qpn)
{
	u32 left, right, round;

	if (qpn < PEAL_QPN_LEAST || qpn > PEAL_QPN_MOST)
		return qpn;
	do {
		left = qpn >> PEAL_QPN_RIGHT_BITS;
		right = qpn & PEAL_QPN_RIGHT;
		for (round = PEAL_QPN_ROUNDS; round; round -= 2) {
			right ^= peal_table_mix(table, round - 1, left);
			left ^= peal_table_mix(table, round - 2, right) & PEAL_QPN_LEFT;
		}
		qpn = left << PEAL_QPN_RIGHT_BITS | right;
	} while (qpn < PEAL_QPN_LEAST);
	return qpn;
}

struct peal_qp *peal_table_qp(struct peal_table *table, u32 qpn)
{
	return xa_load(&table->qps, peal_table_ordinal(table, qpn));
}

/* Reserve the ordinal first, because a queue pair must have its number before it can be found. */
int peal_table_add_qp(struct peal_table *table, struct peal_qp *qp, u32 *qpn)
{
	u32 ordinal;
	int ret = xa_alloc_cyclic(&table->qps, &ordinal, NULL,
				  XA_LIMIT(PEAL_QPN_LEAST, PEAL_QPN_MOST), &table->next_qpn,
				  GFP_KERNEL);

	if (ret < 0)
		return ret;
	*qpn = peal_table_ordinal_to_qpn(table, ordinal);
	xa_store(&table->qps, ordinal, qp, GFP_KERNEL);	/* a reserved ordinal needs no memory */
	return 0;
}

int peal_table_add_srq(struct peal_table *table, struct peal_srq *srq, u32 *number)
{
	int ret = xa_alloc_cyclic(&table->srqs, number, srq, PEAL_SRQ_LIMIT, &table->next_srq,
				  GFP_KERNEL_ACCOUNT);

	return ret < 0 ? ret : 0;
}

void peal_table_remove_srq(struct peal_table *table, u32 number)
{
	xa_erase(&table->srqs, number);
}

/* Return: -EBUSY when there is a GSI already. */
int peal_table_add_gsi(struct peal_table *table, struct peal_qp *qp, u32 *qpn)
{
	*qpn = PEAL_GSI_QPN;
	return xa_insert(&table->qps, PEAL_GSI_QPN, qp, GFP_KERNEL);
}

void peal_table_remove_qp(struct peal_table *table, u32 qpn)
{
	xa_lock(&table->qps);
	__xa_erase(&table->qps, peal_table_ordinal(table, qpn));
	/*
	 * M: a look-up that loads the new value does not find the queue pair in the tree.
	 * Pairs with the load in peal_table_qp_again().
	 */
	smp_store_release(&table->removals, table->removals + 1);
	xa_unlock(&table->qps);
}

/* A key is its index and a random low byte, as with other devices. */
int peal_table_add_key(struct peal_table *table, struct peal_account *account,
		       struct peal_key *key, u32 *value)
{
	u32 index;
	int ret = peal_quota_take(account, PEAL_QUOTA_KEY);

	if (ret)
		return ret;
	ret = xa_alloc_cyclic(&table->keys, &index, key, PEAL_KEY_LIMIT, &table->next_key,
			      GFP_KERNEL);
	if (ret < 0) {
		peal_quota_give(account, PEAL_QUOTA_KEY);
		return ret;
	}
	*value = index << 8 | (get_random_u32() & 0xff);
	return 0;
}

/*
 * Inside the epoch. Find the key of @index, and remember the answer in @last, which is this CPU's.
 *
 * Barrier M: key_removals is loaded before the tree, as removals is for queue pairs. Pairs with
 * peal_table_end_key().
 */
struct peal_key *peal_table_find_key(struct peal_table *table, struct peal_key_lookup *last,
				     u32 index)
{
	peal_epoch_assert_held();
	last->removals = smp_load_acquire(&table->key_removals);	/* M */
	last->index = index;
	last->key = xa_load(&table->keys, index);
	return last->key;
}

/* A key was removed, so CPUs must look up remembered keys again. */
static void peal_table_end_key(struct peal_table *table)
{
	lockdep_assert_held(&table->keys.xa_lock);
	/*
	 * M: a look-up that loads the new value does not find the key in the tree. Pairs with the
	 * loads in peal_table_key() and peal_table_find_key().
	 */
	smp_store_release(&table->key_removals, table->key_removals + 1);
}

void peal_table_remove_key(struct peal_table *table, struct peal_account *account, u32 value)
{
	xa_lock(&table->keys);
	__xa_erase(&table->keys, value >> 8);
	peal_table_end_key(table);
	xa_unlock(&table->keys);
	peal_quota_give(account, PEAL_QUOTA_KEY);
}

/* The index stays taken, but the key is not found any more. A taken index needs no memory. */
void peal_table_hide_key(struct peal_table *table, u32 value)
{
	xa_lock(&table->keys);
	__xa_store(&table->keys, value >> 8, XA_ZERO_ENTRY, GFP_ATOMIC);
	peal_table_end_key(table);
	xa_unlock(&table->keys);
}

void peal_table_show_key(struct peal_table *table, struct peal_key *key, u32 value)
{
	xa_store(&table->keys, value >> 8, key, GFP_KERNEL);
}

/*
 * Without blocking, the caller may hold locks with interrupts off. With blocking, the
 * caller has interrupts on, and the xarray drops its lock to allocate memory.
 */
int peal_table_add_address(struct peal_table *table, struct peal_account *account,
			   struct peal_address *address, u32 *index, gfp_t gfp)
{
	unsigned long flags;
	int ret = peal_quota_take(account, PEAL_QUOTA_AH);

	if (ret)
		return ret;
	if (gfpflags_allow_blocking(gfp)) {
		ret = xa_alloc_cyclic_irq(&table->addresses, index, address, PEAL_ADDRESS_LIMIT,
					  &table->next_address, gfp);
	} else {
		xa_lock_irqsave(&table->addresses, flags);
		ret = __xa_alloc_cyclic(&table->addresses, index, address, PEAL_ADDRESS_LIMIT,
					&table->next_address, gfp);
		xa_unlock_irqrestore(&table->addresses, flags);
	}
	if (ret < 0)
		peal_quota_give(account, PEAL_QUOTA_AH);
	return min(ret, 0);
}

void peal_table_remove_address(struct peal_table *table, struct peal_account *account, u32 index)
{
	unsigned long flags;

	xa_lock_irqsave(&table->addresses, flags);
	__xa_erase(&table->addresses, index);
	xa_unlock_irqrestore(&table->addresses, flags);
	peal_quota_give(account, PEAL_QUOTA_AH);
}

/* The sum is no snapshot, because other CPUs go on counting. */
u64 peal_counters_sum(const struct peal_counters __percpu *counters,
		      enum peal_counter counter)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(counters, cpu)->value[counter]);
	return sum;
}

void peal_table_enable_counter(struct peal_table *table, enum peal_counter counter, bool enable)
{
	assign_bit(counter - PEAL_COUNTER_OPTIONAL, &table->optional, enable);
}

/* Return: whether @counter counts now, which only optional ones may not. */
bool peal_table_counter_is_enabled(const struct peal_table *table, enum peal_counter counter)
{
	return counter < PEAL_COUNTER_OPTIONAL ||
	       test_bit(counter - PEAL_COUNTER_OPTIONAL, &table->optional);
}
