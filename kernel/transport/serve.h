/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The wire carrier of connected queue pairs: the responder's side.
 *
 * Owns: struct peal_serve, one half of a queue pair's carrier: what has been
 * requested so far and which replies are due.
 * Does not know: the protocol (proto/inbound.h), the checks of a request
 * (responder.h), how packets arrive.
 *
 * Everything under rq.lock, inside the guard; what is named below can be read
 * without the lock, as a hint.
 */
#ifndef PEAL_SERVE_H
#define PEAL_SERVE_H

#include "proto/inbound.h"
#include "queue/wqe.h"
#include "transport/line.h"
#include "transport/requester.h"

struct peal_datagram;

struct peal_serve {
	struct peal_line *line;
	struct peal_inbound in;
	struct peal_resource *resource;	/* the array behind `in` */
	struct peal_send ask;		/* the request under execution, as the responder has it */
	bool due;			/* hint: replies are left */
	u64 deadline;			/* hint: when inbound wants to be called, ns */
};

int peal_serve_init(struct peal_serve *s, struct peal_line *line);
void peal_serve_free(struct peal_serve *s);
void peal_serve_configure(struct peal_serve *s);
void peal_serve_set_psn(struct peal_serve *s, u32 psn);
void peal_serve_lend(struct peal_serve *s);
void peal_serve_take_back(struct peal_serve *s);
void peal_serve_reset(struct peal_serve *s);
void peal_serve_forget_early(struct peal_serve *s);

void peal_serve_request(struct peal_serve *s, struct peal_datagram *dg, struct peal_burst *burst,
			struct peal_budget *budget);
bool peal_serve_reply(struct peal_serve *s, struct peal_burst *burst,
		      struct peal_budget *budget);
ktime_t peal_serve_deadline(const struct peal_serve *s);
bool peal_serve_is_due(const struct peal_serve *s);
bool peal_serve_run(struct peal_serve *s, struct peal_burst *burst, struct peal_budget *budget);

#endif
