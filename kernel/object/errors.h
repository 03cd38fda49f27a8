/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The last errors of a device's queue pairs, for people who ask why a program failed.
 *
 * Owns: for each queue pair the last message that failed as a requester and the last one that it
 * refused as a responder, with the numbers that explain them. They outlive the queue pair, because
 * the program has usually ended when somebody asks. It decides who may see them.
 * Does not know: how somebody asks (device/netlink.c), and the words (userspace/tools/why.cpp).
 *
 * The memory is bounded: PEAL_ERRORS records a device. A user has at most PEAL_ERRORS_SHARE of
 * them, also while others are unused, so that it cannot hide what happened to others. At that limit
 * a new record replaces the oldest of the same user, else the oldest of all. Nothing is written
 * unless an error occurs.
 */
#ifndef PEAL_ERRORS_H
#define PEAL_ERRORS_H

#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <rdma/ib_verbs.h>

struct peal_qp;
struct peal_sge;
struct peal_wqe;

#define PEAL_ERRORS		128
#define PEAL_ERRORS_SHARE	(PEAL_ERRORS / 4)

struct peal_error {
	u64 at;			/* when it occurred last, ktime_get_ns() */
	u64 serial;		/* which queue pair's, in the order of first errors; 0: no record */
	u64 count;		/* how many there were */
	u64 netns;		/* cookie of the network namespace of who made the queue pair */
	kuid_t uid;		/* who made it, or INVALID_UID: only administrators see it */
	kuid_t payer;		/* whose share of the records this is */
	u32 qpn;
	u32 peer_qpn;		/* 0: none, or not known */
	u8 side;		/* enum peal_error_side */
	u8 qp_type;		/* enum ib_qp_type */
	u8 opcode;		/* enum peal_opcode */
	u8 status;		/* enum ib_wc_status that the requester sees */
	u8 retries, rnr_retries;	/* attributes of the requester */
	u8 timeout;		/* attribute of the requester: 4.096 us * 2^timeout */
	bool has_key;		/* key and address are set; both may be 0 by mistake */
	bool key_found;		/* the key names something: the fields key_* are set */
	u32 reason;		/* enum peal_reason */
	u32 key;		/* rkey or lkey that was refused, or the message's rkey */
	union ib_gid peer_gid;	/* 0 if no peer is set */
	u64 address, length;	/* the range that the message names, or its length alone */
	u64 room;		/* bytes of the receive */
	u32 pdn;		/* protection domain of the queue pair, as restrack counts */
	u32 wanted;		/* IB_ACCESS_* that the message needs */
	u32 allowed;		/* IB_ACCESS_* of the queue pair */
	u32 key_pdn;
	u32 key_access;
	u64 key_start, key_length;
};

/* Who asks for errors. */
struct peal_error_reader {
	u64 netns;		/* cookie of the network namespace */
	kuid_t uid;
	bool admin;		/* CAP_NET_ADMIN in the initial user namespace */
};

struct peal_errors {
	spinlock_t lock;	/* inside the locks of queue pairs; taken with softirqs off */

	/* Guarded by errors.lock: */
	u64 serials;		/* queue pairs that had an error */
	struct peal_error record[PEAL_ERRORS];
};

/* Return: the records of a new device, or NULL. Free them by kvfree(). */
struct peal_errors *peal_errors_alloc(void);

/*
 * The message @wqe of @qp failed. Inside the epoch, under sq.lock. @sge: its scatter-gather list.
 * @status: enum ib_wc_status.
 */
void peal_errors_add_failed(struct peal_qp *qp, const struct peal_wqe *wqe,
			    const struct peal_sge *sge, u8 status, u32 reason);
/* @qp refused a message of its peer @src_qpn. Inside the epoch, under rq.lock. */
void peal_errors_add_refused(struct peal_qp *qp, const struct peal_wqe *wqe, u32 src_qpn,
			     u8 status, u32 reason);

/*
 * The queue pair was made for the program that runs now. Without this only administrators see its
 * errors. A program that has changed its user ids tells none of them, as for ptrace(2).
 */
void peal_errors_set_owner(struct peal_qp *qp);

/* Copy record number @n. Return: false if there is none that @reader may see. */
bool peal_errors_get(struct peal_errors *errors, u32 n, const struct peal_error_reader *reader,
		     struct peal_error *error);

#endif
