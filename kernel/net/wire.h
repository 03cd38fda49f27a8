/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The wire carrier of connected queue pairs (RC and UC): the requester's side.
 *
 * Owns: struct peal_carrier of such a queue pair: its path, its messages in
 * flight and their buffers.
 * Does not know: the protocol (proto/), IP (path.h, send.h).
 */
#ifndef PEAL_WIRE_H
#define PEAL_WIRE_H

#include "../qp.h"

struct peal_dev;

/**
 * peal_wire_attach() - let @qp speak on the wire
 * @attr: with IB_QP_AV in @mask: the path that the coming modify will apply
 *
 * With `control` held; sleeps. What is not applied in the end is kept for the
 * next time or for free().
 *
 * Return: 0, -ENOMEM, -ENETUNREACH (no route), -EINVAL (path MTU too large for
 * the link, no RoCEv2 GID).
 */
int peal_wire_attach(struct peal_dev *dev, struct peal_qp *qp, const struct ib_qp_attr *attr,
		     int mask);

#endif
