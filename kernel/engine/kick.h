/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Kicks: turns in the context of the program or kernel user that has posted.
 *
 * Owns: how much a caller does before it leaves the rest to the worker.
 * Does not know: how a program's call arrives here (kick_file.h), what a turn does.
 */
#ifndef PEAL_KICK_H
#define PEAL_KICK_H

#include "base/kick_file.h"
#include "object/qp.h"

extern const struct peal_kick_file_ops peal_kick_ops;

void peal_kick(struct peal_qp *qp);
void peal_kick_receives(struct peal_qp *qp);
void peal_kick_srq_receives(struct peal_srq *srq);
void peal_kick_srq_work(struct work_struct *work);

#endif
