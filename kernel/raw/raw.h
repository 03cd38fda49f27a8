/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The transport of raw packet queue pairs: a message is an Ethernet frame.
 *
 * Owns: the way from a send WQE to a frame, and the way from a frame to a receive.
 * Does not know: when the WQEs are executed (sender.h), the contents of frames, which frames
 * a queue pair receives (flow.h).
 */
#ifndef PEAL_RAW_H
#define PEAL_RAW_H

#include "object/qp.h"

struct peal_frame;
struct peal_ingress;
struct peal_port;
struct peal_tx_quota;

/* Called before @qp is published. @tx_quota outlives @qp. Return: 0 or -ENOMEM. */
int peal_raw_attach(struct peal_qp *qp, struct peal_port *port, struct peal_ingress *ingress,
		    struct peal_tx_quota *tx_quota);

/* Deliver a frame to @qp. Inside the epoch, no lock held. The frame stays the caller's. */
void peal_raw_deliver(struct peal_qp *qp, const struct peal_frame *frame);

#endif
