/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What a device reports about itself: attributes, port, counters.
 *
 * Owns: the reported values. The create verbs enforce the limits.
 * Does not know: any object but the device.
 */
#ifndef PEAL_QUERY_H
#define PEAL_QUERY_H

#include <rdma/ib_verbs.h>

struct peal_table;

int peal_query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata);
int peal_query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr);
#ifdef PEAL_HAS_PORT_SPEED
/* @speed: in units of 100 Mb/s. */
int peal_query_port_speed(struct ib_device *ib, u32 port, u64 *speed);
#endif
/* May an administrator set this rate? */
bool peal_query_has_rate(u32 gbps);
int peal_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey);
int peal_query_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *immutable);
enum rdma_link_layer peal_query_link_layer(struct ib_device *ib, u32 port);
struct rdma_hw_stats *peal_query_alloc_stats(struct ib_device *ib, u32 port);
void peal_query_hide_stats(const struct peal_table *table, struct rdma_hw_stats *stats);
int peal_query_modify_stat(struct ib_device *ib, u32 port, unsigned int counter, bool enable);
int peal_query_stats(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port, int index);

#endif
