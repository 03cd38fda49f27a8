/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Work requests, from ring bytes to checked values.
 *
 * Owns: the one copy of each WQE and every check that needs nothing but the
 * WQE itself. After parsing nobody looks at the slot again, with one exception:
 * inline data are copied from the slot when the message is carried; they are
 * payload, whose value nobody checks.
 * Does not know: rings, keys, queue pairs. Compiles in userspace for the tests.
 */
#ifndef PEAL_WQE_H
#define PEAL_WQE_H

#include <linux/nospec.h>
#include <linux/types.h>

#include <rdma/peal-abi.h>

/* What one opcode may and must do. */
struct peal_op {
	bool known;
	bool sends;		/* local data go out: READ and atomics bring data in */
	bool receives;		/* consumes a receive WQE at the peer */
	bool remote;		/* uses remote_addr and rkey */
	bool atomic;
	bool local;		/* done without the peer */
	bool immediate;		/* imm_or_rkey holds immediate data */
	bool invalidates;	/* imm_or_rkey holds an rkey */
	int access;		/* what the remote key must allow: IB_ACCESS_* */
};

/* A send WQE in private memory, checked. */
struct peal_send {
	u8 opcode;			/* below PEAL_OP_COUNT */
	u8 flags;
	u8 num_sge;
	u32 index;			/* of its slot, free-running */
	u32 imm_or_rkey;
	u32 rkey;
	u64 remote_addr;
	struct peal_ud_target ud;	/* datagrams */
	u32 ah_index;			/* datagrams; else 0 */
	u64 length;			/* bytes of payload, up to PEAL_MAX_MSG */
	const void *inline_data;	/* in the slot; with PEAL_WQE_INLINE */
	union {
		struct peal_atomic_seg atomic;
		struct peal_bind_seg bind;
	};
	struct peal_sge sge[PEAL_MAX_SGE];
};

/* A receive WQE in private memory, checked. */
struct peal_recv {
	u8 num_sge;
	u32 index;
	u64 length;			/* room in bytes */
	struct peal_sge sge[PEAL_MAX_SGE];
};

/* What a queue was created with. */
struct peal_wqe_limits {
	u32 max_sge;
	u32 max_inline;
	u32 forbidden;		/* 1 << enum peal_opcode: not of this transport */
	bool datagram;		/* each WQE names its destination */
};

#define PEAL_UC_FORBIDDEN						\
	(1 << PEAL_OP_SEND_INV | 1 << PEAL_OP_READ | 1 << PEAL_OP_CMP_SWAP |	\
	 1 << PEAL_OP_FETCH_ADD)
#define PEAL_UD_FORBIDDEN	(~(1U << PEAL_OP_SEND | 1U << PEAL_OP_SEND_IMM))

extern const struct peal_op peal_ops[PEAL_OP_COUNT];

/* The properties of an opcode; what parsing accepted is in range. */
static inline const struct peal_op *peal_op(u8 opcode)
{
	return &peal_ops[array_index_nospec(opcode, PEAL_OP_COUNT)];
}

enum peal_reason peal_wqe_parse_send(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_send *send);
enum peal_reason peal_wqe_parse_recv(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_recv *recv);

#endif
