/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Work requests, from ring bytes to checked values.
 *
 * Owns: the private copy of each WQE, and every check that needs only the WQE itself. After
 * parsing the kernel does not read the slot again, because the program may change it. Inline data
 * are the exception. The transport copies them from the slot, because the kernel does not check
 * payload.
 * Does not know: rings, keys, queue pairs. Compiles in userspace for the tests.
 */
#ifndef PEAL_WQE_H
#define PEAL_WQE_H

#include <linux/nospec.h>
#include <linux/types.h>

#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

/* The properties of one opcode. */
struct peal_op {
	bool known;
	bool sends;		/* local data go out; false for READ, CMP_SWAP and FETCH_ADD */
	bool receives;		/* consumes a receive WQE at the peer */
	bool remote;		/* uses remote_addr and rkey */
	bool atomic;		/* executed as a whole */
	bool placement;		/* an atomic one of IBTA annex A19: ATOMIC_WRITE, FLUSH */
	bool resource;		/* takes a responder resource at the peer */
	bool local;		/* executed without the peer */
	bool immediate;		/* imm_or_rkey holds immediate data */
	bool invalidates;	/* imm_or_rkey holds an rkey */
	int access;		/* right that the rkey must give: IB_ACCESS_* */
};

/* A checked copy of a send WQE in private memory. */
struct peal_wqe {
	u8 opcode;			/* below PEAL_OP_COUNT */
	u8 flags;
	u8 num_sge;
	u32 index;			/* free-running index of its slot */
	u32 imm_or_rkey;
	u32 rkey;
	u64 remote_addr;
	struct peal_ud_target ud;	/* for datagrams */
	union {
		u32 ah_index;		/* for datagrams; else 0 */
		u32 srqn;		/* for XRC */
	};
	u64 length;			/* bytes of payload, up to PEAL_MAX_MSG */
	const void *inline_data;	/* in the slot; NULL without PEAL_WQE_INLINE */
	union {
		struct peal_atomic_seg atomic;
		struct peal_flush_seg flush;
		struct peal_bind_seg bind;
	};
	struct peal_sge sge[PEAL_MAX_SGE];
};

/* A checked copy of a receive WQE in private memory. */
struct peal_recv {
	u8 num_sge;
	u32 index;
	u64 length;			/* size of the buffer in bytes */
	struct peal_sge sge[PEAL_MAX_SGE];
};

/* The limits of one queue, from its creation. */
struct peal_wqe_limits {
	u32 max_sge;
	u32 max_inline;
	u32 forbidden;		/* bit 1 << enum peal_opcode: refuse the opcode */
	bool datagram;		/* each WQE names its destination */
	u32 max_target;		/* of ah_index or srqn; 0: the WQE has neither */
	bool raw;		/* the data are an Ethernet frame */
};

#define PEAL_UC_FORBIDDEN						\
	(1 << PEAL_OP_SEND_INV | 1 << PEAL_OP_READ | 1 << PEAL_OP_CMP_SWAP |	\
	 1 << PEAL_OP_FETCH_ADD | 1 << PEAL_OP_ATOMIC_WRITE | 1 << PEAL_OP_FLUSH)
#define PEAL_UD_FORBIDDEN	(~(1U << PEAL_OP_SEND | 1U << PEAL_OP_SEND_IMM))
#define PEAL_RAW_FORBIDDEN	(~(1U << PEAL_OP_SEND))

#define PEAL_PROGRAM_FORBIDDEN	(0U | 1U << PEAL_OP_REG_MR)

extern const struct peal_op peal_ops[PEAL_OP_COUNT];

/* An @opcode that is not below PEAL_OP_COUNT counts as 0 (invalid), also under speculation. */
static inline const struct peal_op *peal_op(u8 opcode)
{
	return &peal_ops[array_index_nospec(opcode, PEAL_OP_COUNT)];
}

/* The status of a send WQE that peal_wqe_parse_send() refuses for @reason. */
static inline enum ib_wc_status peal_wqe_status(enum peal_reason reason)
{
	return reason == PEAL_REASON_WQE_LENGTH || reason == PEAL_REASON_WQE_ATOMIC_LENGTH ?
	       IB_WC_LOC_LEN_ERR : IB_WC_LOC_QP_OP_ERR;
}

enum peal_reason peal_wqe_parse_send(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_wqe *send);
enum peal_reason peal_wqe_parse_recv(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_recv *recv);
void peal_wqe_restore_recv(void *slot, const struct peal_recv *recv);

#endif
