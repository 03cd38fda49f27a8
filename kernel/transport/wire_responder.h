/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * RC, UC and XRC on the wire: the responder's side.
 *
 * Owns: struct peal_wire_responder, one half of a queue pair's transport. It knows what has
 * been requested so far and which replies are due.
 * Does not know: the protocol (proto/responder.h), the checks of a request
 * (execute.h), how packets arrive.
 *
 * Lock: everything is under rq.lock, inside the epoch. The fields marked as hints can also
 * be read without the lock.
 */
#ifndef PEAL_WIRE_RESPONDER_H
#define PEAL_WIRE_RESPONDER_H

#include "proto/responder.h"
#include "queue/wqe.h"
#include "transport/output.h"

struct peal_datagram;

struct peal_wire_responder {
	struct peal_output *output;

	/* Guarded by rq.lock: */
	struct peal_responder responder;
	struct peal_resource *resource;	/* the responder's array of resources */
	struct peal_wqe executing;	/* the request being executed, as execute.h wants it */
	bool due;			/* hint: replies are left to send */
	u64 deadline;			/* hint: when run() is due, ns; U64_MAX: never */
};

int peal_wire_responder_init(struct peal_wire_responder *r, struct peal_output *output);
void peal_wire_responder_free(struct peal_wire_responder *r);
void peal_wire_responder_configure(struct peal_wire_responder *r);
void peal_wire_responder_set_psn(struct peal_wire_responder *r, u32 psn);
struct peal_recv_psn peal_wire_responder_psn(const struct peal_wire_responder *r);
void peal_wire_responder_start(struct peal_wire_responder *r, struct peal_recv_psn at);
void peal_wire_responder_reset(struct peal_wire_responder *r);
void peal_wire_responder_forget_reordered(struct peal_wire_responder *r);

void peal_wire_responder_request(struct peal_wire_responder *r, struct peal_datagram *dg,
				 struct peal_notify *notify, struct peal_budget *budget);
bool peal_wire_responder_reply(struct peal_wire_responder *r, struct peal_notify *notify,
			       struct peal_budget *budget);
ktime_t peal_wire_responder_deadline(const struct peal_wire_responder *r);
bool peal_wire_responder_is_due(const struct peal_wire_responder *r);
bool peal_wire_responder_run(struct peal_wire_responder *r, struct peal_notify *notify,
			     struct peal_budget *budget);

#endif
