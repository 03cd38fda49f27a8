/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The NIC half of a device, which is everything below the verbs. The file of each part's name
 * writes that part. The RDMA core's device object (device/dev.h) embeds it.
 */
#ifndef PEAL_NIC_H
#define PEAL_NIC_H

#include "base/options.h"
#include "base/quota.h"
#include "base/table.h"
#include "engine/engine.h"
#include "net/port.h"
#include "object/context.h"
#include "object/qp.h"
#include "transport/ud.h"
#include "transport/local.h"

struct peal_nic {
	struct peal_table table;
	struct peal_engine engine;
	struct peal_options options;
	struct peal_quota quota;
	struct peal_port port;
	struct peal_groups groups;
	struct peal_locality_device locality;
};

static inline struct peal_nic *peal_nic(const struct peal_qp *qp)
{
	return container_of(qp->engine, struct peal_nic, engine);
}

static inline struct peal_nic *peal_nic_of_port(struct peal_port *port)
{
	return container_of(port, struct peal_nic, port);
}

/*
 * Return: the transmit quota that the packets of @ctx are charged to. NULL stands for the kernel's
 * users.
 */
static inline struct peal_tx_quota *peal_nic_tx_quota(const struct peal_nic *nic,
						      const struct peal_context *ctx)
{
	return ctx ? ctx->tx_quota : nic->port.tx_quotas.kernel;
}

#endif
