/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The poller: a thread that scans the doorbells, so that posting is a store.
 *
 * Owns: the thread, when it spins and when it sleeps, and the state that it
 * announces to programs.
 * Does not know: what a turn does.
 */
#ifndef PEAL_POLLER_H
#define PEAL_POLLER_H

#include "engine/engine.h"

int peal_poller_start(struct peal_engine *e, const char *name);
void peal_poller_stop(struct peal_engine *e);

void peal_poller_note_kick(struct peal_engine *e);

#endif
