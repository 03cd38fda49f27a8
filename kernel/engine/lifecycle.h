/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Creation and removal of devices, contexts, queue pairs and shared receive queues, as far as the
 * engine is concerned.
 *
 * Owns: the order of the steps, and the flush of every queue pair when the device is removed.
 * Does not know: the RDMA core.
 */
#ifndef PEAL_LIFECYCLE_H
#define PEAL_LIFECYCLE_H

#include "engine/engine.h"

int peal_engine_start(struct peal_engine *e, struct peal_table *table, const char *name);
void peal_engine_stop(struct peal_engine *e);

struct peal_context *peal_engine_add_context(struct peal_engine *e, struct ib_ucontext *ib,
					     struct peal_quota *quota);
void peal_engine_remove_context(struct peal_engine *e, struct peal_context *ctx);

void peal_engine_add_qp(struct peal_engine *e, struct peal_qp *qp);
void peal_engine_remove_qp(struct peal_qp *qp);
void peal_engine_add_srq(struct peal_srq *srq);
void peal_engine_remove_srq(struct peal_srq *srq);

void peal_engine_abandon(struct peal_engine *e);
void peal_engine_return(struct peal_engine *e);

#endif
