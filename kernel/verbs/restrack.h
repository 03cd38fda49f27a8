/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What `rdma resource show -dd` tells about peal's objects, beyond what the core knows.
 *
 * Owns: the names and values of these attributes. They are for people, so they may change.
 * Does not know: how the objects work. Nothing here changes an object.
 */
#ifndef PEAL_RESTRACK_H
#define PEAL_RESTRACK_H

#include <rdma/ib_verbs.h>

int peal_restrack_fill_cq(struct sk_buff *msg, struct ib_cq *ib);
int peal_restrack_fill_mr(struct sk_buff *msg, struct ib_mr *ib);
int peal_restrack_fill_qp(struct sk_buff *msg, struct ib_qp *ib);
int peal_restrack_fill_srq(struct sk_buff *msg, struct ib_srq *ib);

#endif
