// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See options.h.
 */
#include <rdma/peal-abi.h>

#include "base/options.h"

/*
 * Two namespaces may belong to two owners, and each owner can build a path to the other. So
 * a path between them is no permission. The default therefore ends at the namespace, and an
 * administrator has to extend it.
 */
enum peal_nl_scope peal_options_host_scope = PEAL_NL_SCOPE_NETNS;

void peal_options_init(struct peal_options *options)
{
	options->direct = true;
	options->max_rd_atomic = PEAL_DEFAULT_RD_ATOMIC;
	options->rate = 0;
}

/*
 * Applies to queue pairs that get their path from now on, and to messages between two
 * devices that begin from now on.
 */
void peal_options_set_direct(struct peal_options *options, bool on)
{
	WRITE_ONCE(options->direct, on);
}

/* Applies to the same queue pairs and messages as peal_options_set_direct(). */
void peal_options_set_scope(enum peal_nl_scope scope)
{
	WRITE_ONCE(peal_options_host_scope, scope);
}

/*
 * @attrs: the core's copy of the answer of query_device. The core calls that only once, so
 * the copy must change too.
 */
void peal_options_set_max_rd_atomic(struct peal_options *options, struct ib_device_attr *attrs,
				    u32 max)
{
	WRITE_ONCE(options->max_rd_atomic, max);
	WRITE_ONCE(attrs->max_qp_rd_atom, max);
	WRITE_ONCE(attrs->max_qp_init_rd_atom, max);
	WRITE_ONCE(attrs->max_res_rd_atom, max * PEAL_MAX_QP);
}

/* Only shown. It limits nothing. @gbps: a rate that a port can show, or 0. */
void peal_options_set_rate(struct peal_options *options, u32 gbps)
{
	WRITE_ONCE(options->rate, gbps);
}
