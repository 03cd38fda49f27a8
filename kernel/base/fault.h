/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Faults on demand: an administrator makes messages fail, so that people see how their programs
 * behave.
 *
 * Owns: the rules of a device, which messages each rule hits, and how often it did.
 * Does not know: what a fault does to a message (transport/), and how rules arrive
 * (device/netlink.c).
 *
 * Only a device that was made for faults has rules. While there is no such device, a static key
 * turns each look at the rules into a no-op.
 *
 * Lock: faults.lock. Nothing is taken inside it. The data path takes it only if the device has
 * rules.
 */
#ifndef PEAL_FAULT_H
#define PEAL_FAULT_H

#include <linux/compiler.h>
#include <linux/jump_label.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <rdma/peal-netlink.h>

#define PEAL_FAULT_RULES	64	/* of a device; bounds the look at each message */

/* What an administrator asks for. */
struct peal_fault {
	enum peal_nl_fault_kind kind;
	u8 status;		/* enum ib_wc_status that a program gets, if the kind has one */
	u32 delay_us;		/* if the kind has one */
	u32 qpn;		/* only this queue pair; 0: any */
	bool has_peer;		/* only queue pairs whose peer has the GID `peer` */
	u8 peer[16];
	u32 opcodes;		/* only these, bits 1 << enum peal_opcode */
	u64 count;		/* how often it happens at most */
	u32 every;		/* at each so manyth message; not used with `chance` */
	u32 chance;		/* at one of so many messages on average; 0: see `every` */
	u64 seed;		/* decides which messages `chance` hits */
};

struct peal_fault_rule {
	u32 id;			/* from 1 on, in the order of the rules */
	struct peal_fault fault;

	/* Guarded by faults.lock: */
	struct list_head node;
	u64 seen;		/* messages that match */
	u64 fired;		/* those of them that were hit */
	u64 random;		/* state of the generator */
};

struct peal_faults {
	spinlock_t lock;	/* guards the fields marked with it */

	/* Guarded by peal_netlink_lock: */
	bool on;		/* the device was made for faults; read at any time */

	/* Guarded by faults.lock: */
	struct list_head rules;	/* by id */
	u32 num_rules;
	u32 last_id;
};

/* A message or a packet, which rules are compared with. */
struct peal_fault_message {
	u32 kinds;			/* that can happen now, bits 1 << enum peal_nl_fault_kind */
	u32 qpn;
	const u8 *peer;			/* 16 bytes: the GID of the peer; NULL: there is none */
	u8 opcode;			/* enum peal_opcode; 0 if it has none */
};

DECLARE_STATIC_KEY_FALSE(peal_fault_key);	/* a device was made for faults */

/* May a rule hit a message of this device? */
static inline bool peal_faults_exist(const struct peal_faults *faults)
{
	return static_branch_unlikely(&peal_fault_key) && READ_ONCE(faults->num_rules);
}

void peal_faults_init(struct peal_faults *faults);
/* Call when no message looks at the rules any more. Sleeps. */
void peal_faults_end(struct peal_faults *faults);
/* Was the device made for faults? */
static inline bool peal_faults_are_on(const struct peal_faults *faults)
{
	return READ_ONCE(faults->on);
}

/* Allow or forbid rules. Forbidding removes them. Sleeps. */
void peal_faults_switch(struct peal_faults *faults, bool on);

/*
 * Add a rule behind the others. Return: 0 and *id, -EOPNOTSUPP if the device was not made for
 * faults, -ENOSPC or -ENOMEM.
 */
int peal_faults_add(struct peal_faults *faults, const struct peal_fault *fault, u32 *id);
/* Remove rule @id, or all if it is 0. Return: 0 or -ENOENT. */
int peal_faults_remove(struct peal_faults *faults, u32 id);
/* Copy the first rule whose number is greater than @id. Return: false if there is none. */
bool peal_faults_next(struct peal_faults *faults, u32 id, struct peal_fault_rule *rule);

/*
 * Does a rule hit this message? The first one that does decides, and later ones do not see the
 * message. The caller has softirqs off. Return: true with a copy of what the rule asks for in @hit.
 */
bool peal_faults_hit(struct peal_faults *faults, const struct peal_fault_message *message,
		     struct peal_fault *hit);

#endif
