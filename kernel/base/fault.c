// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See fault.h.
 */
#include <linux/errno.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "base/fault.h"

DEFINE_STATIC_KEY_FALSE(peal_fault_key);

void peal_faults_init(struct peal_faults *faults)
{
	*faults = (struct peal_faults){ };
	spin_lock_init(&faults->lock);
	INIT_LIST_HEAD(&faults->rules);
}

void peal_faults_switch(struct peal_faults *faults, bool on)
{
	if (faults->on == on)
		return;
	WRITE_ONCE(faults->on, on);
	if (on) {
		static_branch_inc(&peal_fault_key);
	} else {
		peal_faults_remove(faults, 0);
		static_branch_dec(&peal_fault_key);
	}
}

void peal_faults_end(struct peal_faults *faults)
{
	peal_faults_switch(faults, false);
}

int peal_faults_add(struct peal_faults *faults, const struct peal_fault *fault, u32 *id)
{
	struct peal_fault_rule *rule;
	int ret = 0;

	if (!faults->on)
		return -EOPNOTSUPP;
	rule = kzalloc(sizeof(*rule), GFP_KERNEL);
	if (!rule)
		return -ENOMEM;
	rule->fault = *fault;
	rule->random = fault->seed;
	spin_lock_bh(&faults->lock);
	if (faults->num_rules < PEAL_FAULT_RULES) {
		rule->id = ++faults->last_id;
		*id = rule->id;
		list_add_tail(&rule->node, &faults->rules);
		WRITE_ONCE(faults->num_rules, faults->num_rules + 1);
	} else {
		ret = -ENOSPC;
	}
	spin_unlock_bh(&faults->lock);
	if (ret)
		kfree(rule);
	return ret;
}

int peal_faults_remove(struct peal_faults *faults, u32 id)
{
	struct peal_fault_rule *rule, *next;
	int ret = id ? -ENOENT : 0;

	spin_lock_bh(&faults->lock);
	list_for_each_entry_safe(rule, next, &faults->rules, node) {
		if (id && rule->id != id)
			continue;
		list_del(&rule->node);
		WRITE_ONCE(faults->num_rules, faults->num_rules - 1);
		kfree(rule);
		ret = 0;
	}
	spin_unlock_bh(&faults->lock);
	return ret;
}

bool peal_faults_next(struct peal_faults *faults, u32 id, struct peal_fault_rule *copy)
{
	struct peal_fault_rule *rule;
	bool found = false;

	spin_lock_bh(&faults->lock);
	list_for_each_entry(rule, &faults->rules, node) {
		found = rule->id > id;
		if (found) {
			*copy = *rule;
			break;
		}
	}
	spin_unlock_bh(&faults->lock);
	return found;
}

static bool peal_fault_matches(const struct peal_fault *fault,
			       const struct peal_fault_message *message)
{
	return message->kinds & 1U << fault->kind && (!fault->qpn || fault->qpn == message->qpn) &&
	       fault->opcodes & 1U << message->opcode &&
	       (!fault->has_peer || !memcmp(fault->peer, message->peer, sizeof(fault->peer)));
}

/*
 * The next number of the generator (splitmix64). The kernel's own generator may change, and a seed
 * must give the same order on each kernel.
 */
static u64 peal_fault_random(u64 *state)
{
	u64 bits;

	*state += 0x9e3779b97f4a7c15ULL;
	bits = *state;
	bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ULL;
	bits = (bits ^ bits >> 27) * 0x94d049bb133111ebULL;
	return bits ^ bits >> 31;
}

/* The message matches. Is it hit? */
static bool peal_fault_fires(struct peal_faults *faults, struct peal_fault_rule *rule)
{
	const struct peal_fault *fault = &rule->fault;
	bool fires;

	lockdep_assert_held(&faults->lock);
	rule->seen++;
	if (rule->fired >= fault->count)
		return false;
	/* The upper half of the product of two 32-bit numbers is less than the second one. */
	if (fault->chance)
		fires = !((peal_fault_random(&rule->random) >> 32) * fault->chance >> 32);
	else
		fires = rule->seen % fault->every == 0;
	rule->fired += fires;
	return fires;
}

bool peal_faults_hit(struct peal_faults *faults, const struct peal_fault_message *message,
		     struct peal_fault *hit)
{
	struct peal_fault_rule *rule;
	bool fires = false;

	lockdep_assert(softirq_count());
	spin_lock(&faults->lock);
	list_for_each_entry(rule, &faults->rules, node) {
		if (peal_fault_matches(&rule->fault, message) && peal_fault_fires(faults, rule)) {
			*hit = rule->fault;
			fires = true;
			break;
		}
	}
	spin_unlock(&faults->lock);
	return fires;
}
