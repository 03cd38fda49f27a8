/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Options that an administrator may change while devices run: those of a device, and one of
 * the whole host.
 * They are read anywhere without a lock, because each is one word and a stale value does no harm.
 */
#ifndef PEAL_OPTIONS_H
#define PEAL_OPTIONS_H

#include <linux/types.h>
#include <rdma/peal-netlink.h>

/*
 * READs and atomics that may be outstanding on a queue pair, either way. modify_qp allows
 * as many even when the device advertises fewer, because programs use the number that their
 * peer advertises.
 */
#define PEAL_MAX_RD_ATOMIC	128

/*
 * Advertised by default. It is low, because real targets refuse connections that ask for a
 * greater depth than they have.
 */
#define PEAL_DEFAULT_RD_ATOMIC	16

/*
 * What the programs of a device may have at most. An administrator lowers it, so that programs meet
 * the limits of other adapters. A lower limit applies to objects that are made later. The device
 * advertises it to the kernel's own users, too, but does not enforce it for them.
 */
enum peal_limit {
	PEAL_LIMIT_NONE,	/* for objects whose number an administrator cannot limit */
	PEAL_LIMIT_RD_ATOMIC,	/* advertised READs and atomics, either way, per queue pair */
	/* Of all programs together: */
	PEAL_LIMIT_QP,		/* queue pairs */
	PEAL_LIMIT_CQ,		/* completion queues */
	PEAL_LIMIT_MR,		/* memory regions and windows */
	/* Of each object: */
	PEAL_LIMIT_WR,		/* WQEs of a send, receive or shared receive queue; 2^n */
	PEAL_LIMIT_CQE,		/* CQEs of a completion queue; 2^n */
	PEAL_LIMIT_SGE,		/* entries of a scatter-gather list */
	PEAL_LIMIT_INLINE,	/* bytes of inline data */
	PEAL_LIMIT_COUNT
};

struct peal_limits {
	/* Guarded by peal_netlink_lock: */
	u32 most[PEAL_LIMIT_COUNT];
	u32 without;		/* bits 1 << enum peal_nl_feature: the device does not have it */
};

/* The highest limits. The kernel's users have them. Only netlink.c knows the values. */
extern const struct peal_limits peal_limits_top;

static inline u32 peal_limits_most(const struct peal_limits *limits, enum peal_limit limit)
{
	return READ_ONCE(limits->most[limit]);
}

static inline bool peal_limits_have(const struct peal_limits *limits, enum peal_nl_feature feature)
{
	return !(READ_ONCE(limits->without) & 1U << feature);
}

struct peal_options {
	/* Guarded by peal_netlink_lock: */
	bool direct;		/* queue pairs and messages that begin may use the direct path */
	struct peal_limits limits;
	u32 rate;		/* shown of the port, in Gb/s; 0: as the netdev says */
	enum peal_nl_ecn ecn;	/* ECN bits of data packets */
};

/* Between which queue pairs the host allows the direct path. Only netlink.c writes it. */
extern enum peal_nl_scope peal_options_host_scope;

static inline bool peal_options_direct(const struct peal_options *options)
{
	return READ_ONCE(options->direct);
}

static inline enum peal_nl_scope peal_options_scope(void)
{
	return READ_ONCE(peal_options_host_scope);
}

/* Do the device and the host allow direct messages between queue pairs as far apart as @scope? */
static inline bool peal_options_allow(const struct peal_options *options, enum peal_nl_scope scope)
{
	return peal_options_direct(options) && scope <= peal_options_scope();
}

static inline u32 peal_options_rate(const struct peal_options *options)
{
	return READ_ONCE(options->rate);
}

static inline enum peal_nl_ecn peal_options_ecn(const struct peal_options *options)
{
	return READ_ONCE(options->ecn);
}

#endif
