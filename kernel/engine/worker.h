/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The worker does in process context what a budget or a timer left over.
 *
 * Owns: the works that serve the run lists, and the look whether each CPU serves its list.
 * Does not know: which context has left something to it.
 */
#ifndef PEAL_WORKER_H
#define PEAL_WORKER_H

#include "engine/engine.h"

int peal_worker_start(struct peal_engine *e, const char *name);
void peal_worker_stop(struct peal_engine *e);
bool peal_worker_serve_next(struct peal_runlist *list);

#endif
