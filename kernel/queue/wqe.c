// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See wqe.h.
 */
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "proto/packet.h"
#include "queue/wqe.h"

const struct peal_op peal_ops[PEAL_OP_COUNT] = {
	[PEAL_OP_SEND] = { .known = true, .sends = true, .receives = true },
	[PEAL_OP_SEND_IMM] = {
		.known = true, .sends = true, .receives = true, .immediate = true,
	},
	[PEAL_OP_SEND_INV] = {
		.known = true, .sends = true, .receives = true, .invalidates = true,
	},
	[PEAL_OP_WRITE] = {
		.known = true, .sends = true, .remote = true, .access = IB_ACCESS_REMOTE_WRITE,
	},
	[PEAL_OP_WRITE_IMM] = {
		.known = true, .sends = true, .receives = true, .remote = true,
		.immediate = true, .access = IB_ACCESS_REMOTE_WRITE,
	},
	[PEAL_OP_READ] = {
		.known = true, .remote = true, .resource = true, .access = IB_ACCESS_REMOTE_READ,
	},
	[PEAL_OP_CMP_SWAP] = {
		.known = true, .remote = true, .atomic = true, .resource = true,
		.access = IB_ACCESS_REMOTE_ATOMIC,
	},
	[PEAL_OP_FETCH_ADD] = {
		.known = true, .remote = true, .atomic = true, .resource = true,
		.access = IB_ACCESS_REMOTE_ATOMIC,
	},
	[PEAL_OP_BIND_MW] = { .known = true, .local = true },
	[PEAL_OP_LOCAL_INV] = { .known = true, .local = true, .invalidates = true },
	[PEAL_OP_REG_MR] = { .known = true, .local = true },
	[PEAL_OP_ATOMIC_WRITE] = {
		.known = true, .sends = true, .remote = true, .atomic = true, .placement = true,
		.resource = true, .access = IB_ACCESS_REMOTE_WRITE,
	},
	/* The rights that it needs depend on the placement; see peal_execute_flush(). */
	[PEAL_OP_FLUSH] = {
		.known = true, .remote = true, .atomic = true, .placement = true, .resource = true,
	},
};

/*
 * Copy shared memory to private memory and read each word once. READ_ONCE() keeps the compiler
 * from reading a word again and from dropping the copy. Otherwise the program could change a
 * value after its check. Each caller gives a constant size, so the loop is unrolled.
 */
static __always_inline void peal_wqe_snapshot(void *dst, const void *src, size_t bytes)
{
	u64 *to = dst;
	const u64 *from = src;
	size_t i;

#pragma GCC unroll 4
	for (i = 0; i < bytes / sizeof(*to); i++)
		to[i] = READ_ONCE(from[i]);
}

/* The 64-bit sum cannot overflow, because it is at most num_sge * (2^32 - 1). */
static u64 peal_wqe_copy_sges(struct peal_sge *sge, const void *from, u32 num_sge)
{
	u64 length = 0;
	u32 i;

	for (i = 0; i < num_sge; i++) {
		peal_wqe_snapshot(&sge[i], from + i * sizeof(*sge), sizeof(*sge));
		length += sge[i].length;
	}
	return length;
}

/* The data of an ATOMIC_WRITE fit every slot, so they may be inline on every queue. */
static bool peal_wqe_is_inline_word(const struct peal_send_wqe *wqe)
{
	return wqe->opcode == PEAL_OP_ATOMIC_WRITE && wqe->inline_len == sizeof(u64);
}

static enum peal_reason peal_wqe_check_header(const struct peal_send_wqe *wqe,
					      const struct peal_op *op,
					      const struct peal_wqe_limits *limits)
{
	bool inlined = wqe->flags & PEAL_WQE_INLINE;

	if (unlikely(wqe->flags & ~PEAL_WQE_FLAGS) &&
	    (!limits->raw || wqe->flags & ~(PEAL_WQE_FLAGS | PEAL_WQE_IP_CSUM)))
		return PEAL_REASON_WQE_FLAGS;
	if (unlikely(wqe->reserved0 || wqe->reserved1 || wqe->ah_index > limits->max_target))
		return PEAL_REASON_WQE_RESERVED;
	if (inlined && (wqe->inline_len > limits->max_inline || !op->sends) &&
	    !peal_wqe_is_inline_word(wqe))
		return PEAL_REASON_WQE_INLINE;
	if (unlikely(!inlined && wqe->inline_len))
		return PEAL_REASON_WQE_INLINE;
	if (unlikely(wqe->num_sge > limits->max_sge || (inlined && wqe->num_sge)))
		return PEAL_REASON_WQE_NUM_SGE;
	return PEAL_REASON_NONE;
}

/* The transport looks the address handle up by its index. */
static enum peal_reason peal_wqe_check_target(const struct peal_send_wqe *wqe)
{
	if (unlikely(wqe->rkey))
		return PEAL_REASON_WQE_RESERVED;
	return wqe->ah_index ? PEAL_REASON_NONE : PEAL_REASON_WQE_AH;
}

static enum peal_reason peal_wqe_parse_atomic_write(const void *body, u32 inline_len,
						    struct peal_wqe *send)
{
	if (send->flags & PEAL_WQE_INLINE) {
		send->inline_data = body;
		send->length = inline_len;
	} else {
		send->length = peal_wqe_copy_sges(send->sge, body, send->num_sge);
	}
	if (send->length != sizeof(u64) || send->num_sge > 1)
		return PEAL_REASON_WQE_ATOMIC_LENGTH;
	return PEAL_REASON_NONE;
}

/* The length of the message is 0, because no bytes travel. */
static enum peal_reason peal_wqe_parse_flush(const void *body, struct peal_wqe *send)
{
	send->length = 0;
	if (send->num_sge)
		return PEAL_REASON_WQE_NUM_SGE;
	peal_wqe_snapshot(&send->flush, body, sizeof(send->flush));
	if (send->flush.reserved0 || send->flush.reserved1)
		return PEAL_REASON_WQE_RESERVED;
	if (!send->flush.placement || send->flush.placement & ~PEAL_FLUSH_PLACEMENTS ||
	    send->flush.selectivity > PEAL_FLUSH_REGION)
		return PEAL_REASON_WQE_FLAGS;
	return send->flush.length <= PEAL_MAX_MSG ? PEAL_REASON_NONE : PEAL_REASON_WQE_LENGTH;
}

static enum peal_reason peal_wqe_parse_placement(const void *body, u32 inline_len,
						 struct peal_wqe *send)
{
	if (send->opcode == PEAL_OP_FLUSH)
		return peal_wqe_parse_flush(body, send);
	return peal_wqe_parse_atomic_write(body, inline_len, send);
}

static enum peal_reason peal_wqe_parse_atomic(const void *body, struct peal_wqe *send)
{
	if (send->num_sge != 1)
		return PEAL_REASON_WQE_ATOMIC_LENGTH;
	peal_wqe_snapshot(&send->atomic, body, sizeof(send->atomic));
	send->length = peal_wqe_copy_sges(send->sge, body + sizeof(send->atomic), 1);
	return send->length == 8 ? PEAL_REASON_NONE : PEAL_REASON_WQE_ATOMIC_LENGTH;
}

static enum peal_reason peal_wqe_parse_local(const void *body, struct peal_wqe *send)
{
	send->length = 0;
	if (send->num_sge)
		return PEAL_REASON_WQE_NUM_SGE;
	if (send->opcode == PEAL_OP_LOCAL_INV)
		return PEAL_REASON_NONE;
	peal_wqe_snapshot(&send->bind, body, sizeof(send->bind));
	return send->bind.reserved ? PEAL_REASON_WQE_RESERVED : PEAL_REASON_NONE;
}

static enum peal_reason peal_wqe_parse_body(const void *body, u32 inline_len,
					    const struct peal_op *op, struct peal_wqe *send)
{
	if (op->atomic)
		return unlikely(op->placement) ?
		       peal_wqe_parse_placement(body, inline_len, send) :
		       peal_wqe_parse_atomic(body, send);
	if (op->local)
		return peal_wqe_parse_local(body, send);
	if (send->flags & PEAL_WQE_INLINE) {
		send->inline_data = body;
		send->length = inline_len;
		return PEAL_REASON_NONE;
	}
	send->length = peal_wqe_copy_sges(send->sge, body, send->num_sge);
	return send->length <= PEAL_MAX_MSG ? PEAL_REASON_NONE : PEAL_REASON_WQE_LENGTH;
}

/**
 * peal_wqe_parse_send() - copy and check one send WQE
 * @slot: the slot in the program's ring; 64-byte aligned, large enough for @limits
 * @limits: the limits of the queue
 * @send: the result; the caller sets its index. On failure opcode and flags are valid
 *	too, because the caller writes a CQE from them
 *
 * Return: PEAL_REASON_NONE or the reason to refuse the WQE.
 */
enum peal_reason peal_wqe_parse_send(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_wqe *send)
{
	struct peal_send_wqe wqe;
	const struct peal_op *op;
	enum peal_reason reason;

	BUILD_BUG_ON(sizeof(wqe) % sizeof(u64) || sizeof(struct peal_sge) % sizeof(u64));
	peal_wqe_snapshot(&wqe, slot, sizeof(wqe));
	send->flags = wqe.flags;
	send->opcode = 0;
	if (unlikely(wqe.opcode >= PEAL_OP_COUNT || !peal_op(wqe.opcode)->known ||
		     limits->forbidden & 1U << wqe.opcode))
		return PEAL_REASON_WQE_OPCODE;
	send->opcode = wqe.opcode;
	send->num_sge = wqe.num_sge;
	send->imm_or_rkey = wqe.imm_or_rkey;
	send->rkey = wqe.rkey;
	send->remote_addr = wqe.remote_addr;
	send->ud = wqe.ud;
	send->ud.qpn &= PEAL_NUMBER_MAX;	/* the other bits of remote_qpn do not count */
	send->ah_index = wqe.ah_index;
	send->inline_data = NULL;
	op = peal_op(wqe.opcode);
	reason = peal_wqe_check_header(&wqe, op, limits);
	if (!reason && limits->datagram)
		reason = peal_wqe_check_target(&wqe);
	if (unlikely(reason))
		return reason;
	return peal_wqe_parse_body(slot + sizeof(wqe), wqe.inline_len, op, send);
}

/**
 * peal_wqe_parse_recv() - copy and check one receive WQE
 *
 * The parameters are those of peal_wqe_parse_send().
 *
 * Return: PEAL_REASON_NONE or PEAL_REASON_RECV_WQE.
 */
enum peal_reason peal_wqe_parse_recv(const void *slot, const struct peal_wqe_limits *limits,
				     struct peal_recv *recv)
{
	struct peal_recv_wqe wqe;

	peal_wqe_snapshot(&wqe, slot, sizeof(wqe));
	recv->num_sge = 0;
	recv->length = 0;
	if (unlikely(wqe.num_sge > limits->max_sge || wqe.reserved[0] || wqe.reserved[1] ||
		     wqe.reserved[2]))
		return PEAL_REASON_RECV_WQE;
	recv->num_sge = wqe.num_sge;
	recv->length = peal_wqe_copy_sges(recv->sge, slot + sizeof(wqe), wqe.num_sge);
	return PEAL_REASON_NONE;
}

/* Write @recv as peal_wqe_parse_recv() has read it. A malformed WQE becomes an empty one. */
void peal_wqe_restore_recv(void *slot, const struct peal_recv *recv)
{
	const struct peal_recv_wqe wqe = { .num_sge = recv->num_sge };

	memcpy(slot, &wqe, sizeof(wqe));
	memcpy(slot + sizeof(wqe), recv->sge, recv->num_sge * sizeof(recv->sge[0]));
}
