/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * The interface between a program and a peal device: the layout of the memory that they share, the
 * numbers in it, and the order in which the two sides write it. The kernel (C), the provider
 * (C++20) and the tests compile this one copy.
 *
 * Rules of this file
 *  - Types have a fixed width, natural alignment and explicit padding. There are
 *    no flexible arrays, because C and C++ place them differently. Sizes and
 *    offsets are asserted.
 *  - The writer stores zero in a reserved field. The reader refuses other values.
 *  - A structure may grow only at its end. A reader accepts a longer one.
 *  - Every shared word has exactly one writer, which is named next to it. Words
 *    with different writers are PEAL_CACHE_LINE bytes apart.
 *  - "release X" and "acquire X" name the two halves of barrier pair X.
 *    Documentation/memory-ordering.rst explains each pair.
 *  - Slots and rings are 8-byte aligned, mappings are page aligned.
 *  - All integers are in host order, except immediate data. Those travel as the
 *    program gave them (network order), and peal never interprets them.
 */
#ifndef RDMA_PEAL_ABI_H
#define RDMA_PEAL_ABI_H

#include <linux/types.h>
#include <linux/ioctl.h>

/* libibverbs and the uverbs core match the driver and the provider by this number. */
#define PEAL_DRIVER_ID		0x7065616c	/* "peal" */
/* uverbs_abi_ver. It changes when an older provider can no longer work. */
#define PEAL_ABI_VERSION	3

/* Two cache lines, because the adjacent-line prefetcher loads lines in pairs. */
#define PEAL_CACHE_LINE		128

/* Limits that determine the layout. query_device returns the limits of a device. */
#define PEAL_MAX_SGE		32
#define PEAL_MAX_INLINE		512
#define PEAL_MAX_QP_WR		32768
#define PEAL_MAX_SRQ_WR		32768
#define PEAL_MAX_CQE		(1 << 20)
#define PEAL_MAX_MSG		(1U << 31)	/* bytes in one message */

/*
 * The lkey of the null region, of every protection domain. It reads as zeros, and forgets
 * what is written to it. No region that is registered has a key below 256.
 */
#define PEAL_NULL_LKEY		1

/* ------------------------------------------------------------------------
 * Send queue
 * ------------------------------------------------------------------------
 * An array of `entries` (a power of two) slots of `stride` bytes (a multiple
 * of 64). One WQE fills one slot: header, then for atomics the atomic segment, for
 * FLUSH the flush segment and for BIND_MW the bind segment, then num_sge
 * scatter-gather entries or inline_len bytes of data. ATOMIC_WRITE has exactly 8 bytes
 * of data, which may always be inline. Indices are free-running modulo 2^32;
 * slot = index & (entries - 1).
 */

/* Values of peal_send_wqe.opcode. Zero is invalid, so that an unwritten slot fails. */
enum peal_opcode {
	PEAL_OP_INVALID		= 0,
	PEAL_OP_SEND		= 1,
	PEAL_OP_SEND_IMM	= 2,
	PEAL_OP_SEND_INV	= 3,
	PEAL_OP_WRITE		= 4,
	PEAL_OP_WRITE_IMM	= 5,
	PEAL_OP_READ		= 6,
	PEAL_OP_CMP_SWAP	= 7,
	PEAL_OP_FETCH_ADD	= 8,
	PEAL_OP_BIND_MW		= 9,
	PEAL_OP_LOCAL_INV	= 10,
	PEAL_OP_REG_MR		= 11,	/* kernel users only; a program's is refused */
	PEAL_OP_ATOMIC_WRITE	= 12,
	PEAL_OP_FLUSH		= 13,
	PEAL_OP_COUNT
};

/* Bits of peal_send_wqe.flags. */
#define PEAL_WQE_SIGNALED	0x01	/* write a CQE on success too */
#define PEAL_WQE_SOLICITED	0x02	/* mark the peer's CQE as solicited */
#define PEAL_WQE_FENCE		0x04	/* start after earlier READs and atomics finish */
#define PEAL_WQE_INLINE		0x08	/* data follow the header instead of SGEs */
#define PEAL_WQE_FLAGS		0x0f	/* those that every queue pair has */
#define PEAL_WQE_IP_CSUM	0x10	/* raw packets: fill in checksums of IPv4, TCP and UDP */

struct peal_sge {
	__u64 addr;
	__u32 length;	/* bytes; 0 means no bytes */
	__u32 lkey;
};

/* The destination of a datagram. It replaces remote_addr. */
struct peal_ud_target {
	__u32 qpn;
	__u32 qkey;
};

struct peal_send_wqe {
	__u8  opcode;		/* enum peal_opcode */
	__u8  flags;		/* PEAL_WQE_* */
	__u8  num_sge;		/* <= PEAL_MAX_SGE; 0 with PEAL_WQE_INLINE */
	__u8  reserved0;
	__u32 imm_or_rkey;	/* immediate data, or the rkey to invalidate */
	union {
		__u64 remote_addr;
		struct peal_ud_target ud;	/* UD queue pairs */
	};
	__u32 rkey;		/* UD: 0 */
	__u32 inline_len;	/* bytes; 0 without PEAL_WQE_INLINE */
	union {			/* others: 0 */
		__u32 ah_index;	/* UD: peal_create_ah_resp.ah_index */
		__u32 srqn;	/* XRC: number of the peer's shared receive queue, 24 bits */
	};
	__u32 reserved1;
};

/* Follows the header of CMP_SWAP and FETCH_ADD. One SGE follows this segment. */
struct peal_atomic_seg {
	__u64 compare_add;	/* compare operand, or the addend */
	__u64 swap;		/* CMP_SWAP only; FETCH_ADD ignores it */
};

/* Bits of peal_flush_seg.placement, as in the header on the wire. At least one is set. */
#define PEAL_FLUSH_GLOBAL	0x1	/* visible to all of the peer's host */
#define PEAL_FLUSH_PERSISTENT	0x2	/* stored persistently */
#define PEAL_FLUSH_PLACEMENTS	0x3

/* Values of peal_flush_seg.selectivity. */
enum peal_flush_selectivity {
	PEAL_FLUSH_RANGE	= 0,	/* the bytes that the WQE names */
	PEAL_FLUSH_REGION	= 1,	/* the whole memory region */
};

/* Follows the header of FLUSH, whose num_sge is 0. */
struct peal_flush_seg {
	__u32 length;		/* bytes of the range */
	__u8  placement;	/* PEAL_FLUSH_* */
	__u8  selectivity;	/* enum peal_flush_selectivity */
	__u16 reserved0;
	__u64 reserved1;
};

/*
 * Follows the header of BIND_MW, whose num_sge is 0. The header's rkey is any key
 * of the window, because only its index counts. In a REG_MR mr_lkey is any key of
 * the region, and the rkey of the header is not used.
 */
struct peal_bind_seg {
	__u64 addr;
	__u64 length;
	__u32 mr_lkey;
	__u32 access;		/* IB_ACCESS_* */
	__u32 new_rkey;		/* same index as rkey, new low byte */
	__u32 reserved;
};

#define PEAL_WQE_UNIT		64
#define PEAL_WQE_MAX_BYTES	(32 + PEAL_MAX_SGE * 16 + 32)

/* ------------------------------------------------------------------------
 * Receive queue: slots of `stride` bytes, one WQE each.
 */
struct peal_recv_wqe {
	__u32 num_sge;		/* <= PEAL_MAX_SGE; that many peal_sge follow */
	__u32 reserved[3];
};

/* ------------------------------------------------------------------------
 * Control words of a send or receive ring
 */

/* Bits of peal_ring_ctl.flags. */
#define PEAL_RING_WANTS_KICK	0x1	/* kick with PEAL_KICK_RECV or _SRQ after each post */

struct peal_ring_ctl {
	/* Written by the program: WQEs posted. Store with release A after the WQEs. */
	__u32 producer;
	__u8  pad0[PEAL_CACHE_LINE - 4];
	/*
	 * Written by the kernel: WQEs taken. This is informative. A program may
	 * reuse a slot only when it has polled the completion that covers it, as
	 * with an RNIC, because the wr_ids are in an array of the program.
	 * Only RESET depends on this word. The kernel then drops all posted WQEs
	 * and stores the producer index here, and both sides continue from it.
	 */
	__u32 consumer;
	__u8  pad1[PEAL_CACHE_LINE - 4];
	/*
	 * Written by the kernel. The program loads it after each post, with the
	 * full barrier C between the store of producer and this load. On a
	 * receive ring WANTS_KICK is set while a sender waits for a receive (RNR),
	 * and while the queue pair is in error, because posts must be flushed.
	 * RESET and destruction clear it, so it does not tell that the device was
	 * removed; peal_doorbell.engine tells that.
	 */
	__u32 flags;
	__u8  pad2[PEAL_CACHE_LINE - 4];
};

/*
 * The start of a queue pair's mapping. The rings follow at the offsets in
 * peal_create_qp_resp.
 */
struct peal_qp_ctl {
	struct peal_ring_ctl sq;
	struct peal_ring_ctl rq;
};

/* ------------------------------------------------------------------------
 * Shared receive queue (SRQ)
 * ------------------------------------------------------------------------
 * One mapping: a peal_ring_ctl, then at ring_offset the ring, which is `entries` (a
 * power of two) slot numbers of 32 bits, then at slots_offset `entries` slots of
 * `stride` bytes, as those of a receive queue. To post, the program fills any free
 * slot, stores its number in ring[producer & (entries - 1)], and stores producer + 1
 * with release A. Producer is free-running modulo 2^32.
 *
 * The ring holds numbers, because the WQEs of a shared receive queue complete in no
 * order. Each is completed by the queue pair whose message takes it. peal_cqe.wqe_index
 * is then the number of the slot, and the slot is free when the program has read the
 * CQE. As many slots as the ring has entries are free, so the program never overwrites
 * an entry of the ring that the kernel has not read.
 *
 * If the completion queue has overflowed, so that a WQE ends without a CQE, the kernel
 * posts that WQE again, as the next one to take. It writes the WQE into its slot again
 * and the number into the entry before the one that it would have read next, and
 * consumer goes back by one. That entry is free, because the slot is not.
 *
 * Of peal_ring_ctl, `consumer` is informative. WANTS_KICK is set while senders wait for
 * a receive. A producer more than `entries` ahead, or a number that is no slot's, puts
 * the shared receive queue into error for good (IB_EVENT_SRQ_ERR), and each queue pair
 * that then needs a receive goes into error. Nothing else flushes its WQEs. A queue pair
 * that is reset or destroyed while its message fills a slot completes that slot as
 * flushed, so that the program gets the slot back.
 *
 * An XRC shared receive queue is the same, but its WQEs complete in its own completion queue.
 */

/* ------------------------------------------------------------------------
 * Completion queue: control words, then at PEAL_CQ_RING_OFFSET `entries` (a
 * power of two) CQEs. There is no shared producer index, because the program
 * recognises a new CQE by its phase. The kernel writes each CQE once and never
 * reads it. The CQE belongs to the program from the store of its phase until
 * consumer passes it. The program may move it to another valid slot, and must then
 * keep the phase of that slot.
 */

/* Values of peal_cqe.kind: the kind of WQE that completed. */
enum peal_cqe_kind {
	PEAL_CQE_SEND		= 1,	/* a send WQE; opcode is that of the WQE */
	PEAL_CQE_RECV		= 2,	/* a receive WQE; opcode is that of the message */
	/*
	 * A receive WQE of an XRC shared receive queue, in the queue's own completion queue.
	 * qp_index is peal_create_srq_resp.srq_index, and qp_num that of the target queue pair,
	 * which may be another process's.
	 */
	PEAL_CQE_XRC_RECV	= 3,
	/* 4 was the receive WQE of a work queue, which older kernels have. */
};

/* Bits of peal_cqe.flags. */
#define PEAL_CQE_SOLICITED	0x01
#define PEAL_CQE_GRH		0x02	/* UD: the buffer begins with 40 bytes of GRH */
#define PEAL_CQE_IPV4		0x04	/* with GRH: its last 20 bytes are an IPv4 header */
#define PEAL_CQE_VLAN		0x08	/* with GRH: it arrived on VLAN vlan_id */
#define PEAL_CQE_IP_CSUM_OK	0x10	/* raw packets: the sums of IPv4 and TCP or UDP are right */
/*
 * The phase bit. The kernel stores its byte last, with release D. The phase is 1
 * on the first lap and flips with each lap. A CQE at free-running index i is valid
 * when its phase differs from bit log2(entries) of i. No CQE is valid at first,
 * because the memory starts zeroed.
 */
#define PEAL_CQE_PHASE		0x80

struct peal_cqe {
	__u32 qp_index;		/* peal_create_qp_resp.qp_index */
	__u32 qp_num;
	__u32 wqe_index;	/* free-running index of the WQE; SRQ: number of its slot */
	__u32 byte_len;		/* for receives, READ and atomics */
	__u32 imm_or_rkey;	/* with *_IMM: immediate data; SEND_INV: rkey */
	__u32 vendor_err;	/* enum peal_reason; 0 on success */
	__u32 src_qp;		/* receives: the sender's QP number */
	__u8  kind;		/* enum peal_cqe_kind */
	__u8  opcode;		/* enum peal_opcode; 0 when a receive was flushed */
	__u8  status;		/* enum ib_wc_status; same numbers as ibv_wc_status */
	__u8  reserved0;
	__u16 vlan_id;		/* with PEAL_CQE_VLAN, otherwise 0 */
	__u16 reserved1;
	__u32 srq_num;		/* XRC_RECV: number of the shared receive queue; else 0 */
	__u64 clock_ns;		/* with PEAL_CQ_CLOCK: CLOCK_MONOTONIC_RAW; otherwise 0 */
	__u64 wall_ns;		/* with PEAL_CQ_WALL_CLOCK: CLOCK_REALTIME; otherwise 0 */
	__u32 reserved3;
	__u8  reserved4[3];
	__u8  flags;		/* PEAL_CQE_*; written last, because it has the phase */
};

/* The low bits of peal_cq_ctl.arm. The other bits are a counter. */
#define PEAL_CQ_ARM_NEXT	0x1	/* event on the next CQE */
#define PEAL_CQ_ARM_SOLICITED	0x2	/* event on the next solicited or failed CQE */
#define PEAL_CQ_ARM_SHIFT	2	/* each arming adds 1 << this */

struct peal_cq_ctl {
	/*
	 * Written by the program: CQEs read. Store with release F after reading
	 * them. The kernel loads it only when the completion queue seems full.
	 */
	__u32 consumer;
	__u8  pad0[PEAL_CACHE_LINE - 4];
	/*
	 * Written by the program: (armings << PEAL_CQ_ARM_SHIFT) | kind. The
	 * kernel raises at most one event for each value. Program: store arm, full
	 * barrier E, poll once more. Kernel: store CQE, full barrier E, load arm.
	 */
	__u32 arm;
	__u8  pad1[PEAL_CACHE_LINE - 4];
	/*
	 * Written by the kernel before it raises an event: the value of arm that
	 * the event is for. The kernel does not read it. Only the last value of arm
	 * counts. A program that arms for solicited CQEs must therefore store NEXT
	 * if the current arm is a NEXT whose event is outstanding, that is if it
	 * differs from this word.
	 */
	__u32 fired;
	__u8  pad2[PEAL_CACHE_LINE - 4];
};

#define PEAL_CQ_RING_OFFSET	384

/* ------------------------------------------------------------------------
 * Doorbell: one mapping per user context
 *
 * After storing the producer index of queue pair i the program does
 *
 *	if (engine == PEAL_ENGINE_AWAKE) {
 *		set bit i & 63 of bits[i / 64]	(atomic OR, release)
 *		full barrier B
 *		if (engine == PEAL_ENGINE_AWAKE)
 *			return;			no system call
 *	}
 *	lseek(kick_fd, i, PEAL_KICK_SEND);
 *
 * The kernel swaps each word that is not zero with zero (full barrier) and loads
 * the producer indices afterwards. It looks no further than the context's last queue
 * pair. Before it sleeps it stores engine = ASLEEP, executes the full barrier B, and
 * scans once more. A bit may be set without new work, but no bit of a queue pair is
 * lost.
 *
 * When the device is removed, the kernel stores GONE before it flushes and then
 * destroys the queue pairs. GONE stays, because the page remains mapped after the
 * context was destroyed. A program must load engine before it publishes a WQE, and
 * must fail the post with EIO on GONE. The kernel flushes the WQEs published before
 * that, or drops them with the context. No error is returned for those.
 */
enum peal_engine_state {
	PEAL_ENGINE_GONE	= 0,	/* device removed */
	PEAL_ENGINE_AWAKE	= 1,	/* a doorbell bit is enough */
	PEAL_ENGINE_ASLEEP	= 2,	/* a kick is needed; it runs the work in the caller */
};

#define PEAL_DB_WORDS		256
#define PEAL_MAX_QP		(PEAL_DB_WORDS * 64)

struct peal_doorbell {
	__u32 engine;		/* written by the kernel: enum peal_engine_state */
	__u8  pad0[PEAL_CACHE_LINE - 4];
	__u64 bits[PEAL_DB_WORDS]; /* set by the program, cleared by the kernel */
};

/*
 * Kicks: lseek(kick_fd, index, kick) on the file peal_alloc_ucontext_resp.kick_fd.
 * The index is a qp_index, or a srq_index for KICK_SRQ. KICK_SEND runs the send queue
 * in the caller, within a budget. A worker then runs the remaining work. KICK_RECV
 * runs a sender that waits for a receive of this queue pair, and flushes if the queue
 * pair is in error.
 * KICK_SRQ runs senders that wait for receives of this shared receive queue, the one
 * that has waited longest first, as long as there are receives. It has the budget of
 * KICK_SEND.
 * Returns 0. Errors: ENOENT (no such object), EIO (the device was removed), EINVAL
 * (no such kick).
 */
enum peal_kick {
	PEAL_KICK_SEND	= 0,
	PEAL_KICK_RECV	= 1,
	PEAL_KICK_SRQ	= 2,
};

/*
 * The same kick as an ioctl. Programs use it that were built before the kick by lseek, and
 * those that meet a kernel which is older. Such a kernel answers ESPIPE to lseek. An ioctl
 * with another number fails with ENOTTY.
 */
#define PEAL_IOC_MAGIC		0xea
#define PEAL_IOC_KICK(kick)	_IO(PEAL_IOC_MAGIC, 1 + (kick))
/* 4 was the kick of a work queue, which older kernels have. */

/* ------------------------------------------------------------------------
 * Requests and responses of the verbs (driver data, "udata")
 * comp_mask names the optional fields that are present. None exists yet, and the
 * kernel refuses an unknown bit with EINVAL. A request may be absent, because stock
 * tools run without peal's provider. An absent request counts as all zero.
 */
struct peal_alloc_ucontext_req {
	__u32 comp_mask;
	__u32 reserved;
};

struct peal_alloc_ucontext_resp {
	__u32 comp_mask;
	__s32 kick_fd;
	__aligned_u64 doorbell_offset;	/* mmap offset of struct peal_doorbell */
	__u32 doorbell_bytes;		/* bytes to map */
	__u32 max_send_sge;
	__u32 max_inline;
	__u32 null_lkey;		/* PEAL_NULL_LKEY; 0: not supported */
};

/*
 * A driver's attribute of UVERBS_METHOD_QUERY_CONTEXT: a struct peal_alloc_ucontext_resp for a
 * program that imports the context. kick_fd is a new descriptor for the caller. The value
 * is 1 << UVERBS_ID_NS_SHIFT, the first one of a driver.
 */
#define PEAL_ATTR_QUERY_CONTEXT_RESP	0x1000

/*
 * A driver's method of UVERBS_OBJECT_DM, and its attributes: where to map device memory. The
 * program that allocated the memory calls it, and a program that imports the memory.
 */
enum peal_dm_methods {
	PEAL_METHOD_QUERY_DM		= 0x1000,
};

enum peal_query_dm_attributes {
	PEAL_ATTR_QUERY_DM_HANDLE	= 0x1000,
	PEAL_ATTR_QUERY_DM_RESP		= 0x1001,	/* struct peal_query_dm_resp */
};

struct peal_query_dm_resp {
	__u32 comp_mask;
	__u32 reserved;
	__aligned_u64 map_offset;	/* the memory begins at the start of the mapping */
	__aligned_u64 map_bytes;
	__aligned_u64 length;		/* bytes that the program allocated */
};

/* Bits of peal_create_cq_req.clocks: the times that each CQE has. */
#define PEAL_CQ_CLOCK		0x1	/* peal_cqe.clock_ns */
#define PEAL_CQ_WALL_CLOCK	0x2	/* peal_cqe.wall_ns */
#define PEAL_CQ_CLOCKS		0x3

struct peal_create_cq_req {
	__u32 comp_mask;
	__u32 clocks;		/* PEAL_CQ_* */
};

struct peal_create_cq_resp {
	__u32 comp_mask;
	__u32 entries;
	__aligned_u64 map_offset;
	__aligned_u64 map_bytes;
};

/*
 * A resize takes two calls. PREPARE makes a ring, which the program maps. COMMIT lets it
 * take the place of the old one. So a program that cannot map the new ring keeps the old.
 * The CQEs that the program has not consumed are then in the new ring, under the same
 * free-running indices. The control words stay where create_cq put them, because other
 * threads may arm the queue at any time. The program must not poll during a COMMIT.
 */
enum peal_resize_cq_step {
	PEAL_RESIZE_CQ_PREPARE	= 0,
	PEAL_RESIZE_CQ_COMMIT	= 1,
};

struct peal_resize_cq_req {
	__u32 comp_mask;
	__u32 step;		/* enum peal_resize_cq_step */
};

/* The response to PREPARE. A COMMIT has none. */
struct peal_resize_cq_resp {
	__u32 comp_mask;
	__u32 entries;			/* CQEs; they begin at the start of the mapping */
	__aligned_u64 map_offset;
	__aligned_u64 map_bytes;
};

struct peal_create_qp_req {
	__u32 comp_mask;
	__u32 reserved;
};

struct peal_create_qp_resp {
	__u32 comp_mask;
	__u32 qp_index;			/* doorbell bit and peal_cqe.qp_index */
	__aligned_u64 map_offset;	/* the mapping starts with struct peal_qp_ctl */
	__aligned_u64 map_bytes;
	__u32 sq_offset;		/* bytes from the start of the mapping */
	__u32 sq_entries;
	__u32 sq_stride;
	__u32 rq_offset;
	__u32 rq_entries;
	__u32 rq_stride;
};

struct peal_create_srq_req {
	__u32 comp_mask;
	__u32 reserved;
};

struct peal_create_srq_resp {
	__u32 comp_mask;
	__u32 srq_index;		/* for PEAL_KICK_SRQ */
	__aligned_u64 map_offset;	/* the mapping starts with struct peal_ring_ctl */
	__aligned_u64 map_bytes;
	__u32 ring_offset;		/* bytes from the start of the mapping */
	__u32 slots_offset;
	__u32 entries;
	__u32 stride;
};

/*
 * A driver's method of UVERBS_OBJECT_SRQ, in two calls as the resize of a completion queue. After
 * PREPARE the program copies the WQEs that may not have been taken into the new ring, and stores
 * their numbers at the same indices. Until COMMIT it posts nothing, and the kernel goes on to take
 * WQEs from the old ring. If the kernel has posted one again meanwhile, COMMIT fails with EAGAIN,
 * and the program begins with another PREPARE. The control words stay where they are. The numbers
 * are the first ones of a driver.
 */
enum peal_method_srq {
	PEAL_METHOD_SRQ_RESIZE	= 0x1000,
};

enum peal_attr_srq_resize {
	PEAL_ATTR_SRQ_RESIZE_HANDLE	= 0x1000,
	PEAL_ATTR_SRQ_RESIZE_REQ	= 0x1001,	/* struct peal_resize_srq_req */
	PEAL_ATTR_SRQ_RESIZE_RESP	= 0x1002,	/* struct peal_resize_srq_resp */
};

/* Values of peal_resize_srq_req.step. */
enum peal_resize_srq_step {
	PEAL_RESIZE_SRQ_PREPARE	= 1,
	PEAL_RESIZE_SRQ_COMMIT	= 2,
};

struct peal_resize_srq_req {
	__u32 comp_mask;
	__u32 step;			/* enum peal_resize_srq_step */
	__u32 max_wr;			/* PREPARE; 0 in COMMIT */
	__u32 reserved;
};

struct peal_resize_srq_resp {
	__u32 comp_mask;
	__u32 entries;
	__aligned_u64 map_offset;	/* PREPARE: the mapping starts with the ring */
	__aligned_u64 map_bytes;
	__u32 slots_offset;		/* PREPARE */
	__u32 stride;			/* PREPARE */
	__u32 taken;			/* COMMIT: older WQEs came from the old ring */
	__u32 reserved;
};

struct peal_create_ah_req {
	__u32 comp_mask;
	__u32 reserved;
};

struct peal_create_ah_resp {
	__u32 comp_mask;
	__u32 ah_index;			/* for peal_send_wqe.ah_index; never 0 */
};

struct peal_reg_mr_req {
	__u32 comp_mask;
	__u32 reserved;
};

/* ------------------------------------------------------------------------
 * Reasons of failed completions, in peal_cqe.vendor_err, ibv_wc.vendor_err and the
 * tracepoints. The numbers are ABI. Append new ones and never renumber.
 */
#define PEAL_REASONS(X) \
	X(NONE, 0, "no error") \
	X(WQE_OPCODE, 1, "unknown or forbidden opcode in the WQE") \
	X(WQE_FLAGS, 2, "unknown or contradictory flags in the WQE") \
	X(WQE_RESERVED, 3, "reserved field of the WQE is not zero") \
	X(WQE_NUM_SGE, 4, "more scatter-gather entries than the queue allows") \
	X(WQE_INLINE, 5, \
	  "inline data longer than the queue allows, or with an opcode that sends none") \
	X(WQE_LENGTH, 6, "message longer than 2 GiB") \
	X(WQE_ATOMIC_LENGTH, 7, "local data of an atomic are not one entry of 8 bytes") \
	X(RING_INDEX, 8, "producer index ran more than the ring's depth ahead") \
	X(WQE_AH, 9, "address handle unknown or of another protection domain") \
	X(LKEY_UNKNOWN, 10, "lkey names no memory region") \
	X(LKEY_PD, 11, "lkey belongs to another protection domain") \
	X(LKEY_RANGE, 12, "local address range is outside the memory region") \
	X(LKEY_ACCESS, 13, "memory region lacks local write access") \
	X(RKEY_UNKNOWN, 20, "rkey names no memory region or window at the peer") \
	X(RKEY_PD, 21, "rkey belongs to another protection domain than the peer's queue pair") \
	X(RKEY_RANGE, 22, "remote address range is outside the memory region or window") \
	X(RKEY_ACCESS, 23, "memory region or window does not allow this remote operation") \
	X(RKEY_QP, 24, "memory window is bound to another queue pair") \
	X(QP_ACCESS, 25, "the peer's queue pair does not allow this remote operation") \
	X(ATOMIC_ALIGN, 26, "remote address of an atomic is not a multiple of 8") \
	X(RD_ATOMIC_LIMIT, 27, "READ or atomic on a queue pair connected with a depth of 0") \
	X(RECV_TOO_SHORT, 30, "message longer than the receive buffer") \
	X(RECV_WQE, 31, "malformed receive WQE") \
	X(RECV_LKEY_UNKNOWN, 32, "lkey of the receive buffer names no memory region") \
	X(RECV_LKEY_PD, 33, "lkey of the receive buffer belongs to another protection domain") \
	X(RECV_LKEY_RANGE, 34, "receive buffer is outside its memory region") \
	X(RECV_LKEY_ACCESS, 35, "memory region of the receive buffer lacks local write access") \
	X(RECV_RING_INDEX, 36, \
	  "producer index of the receive ring ran more than its depth ahead") \
	X(SRQ_RING, 37, \
	  "producer index or slot number in the ring of the shared receive queue is invalid") \
	X(RNR_EXHAUSTED, 40, "peer had no receive posted through all RNR retries") \
	X(PEER_UNREACHABLE, 41, "peer silent: no way to the destination GID") \
	X(PEER_UNKNOWN, 42, "peer silent: it has no queue pair of that number") \
	X(PEER_STATE, 43, "peer silent: its queue pair is not ready to receive") \
	X(PEER_OTHER, 44, "peer silent: its queue pair is connected to somebody else") \
	X(PEER_PSN, 45, "peer silent: it expects another packet sequence number") \
	X(PEER_SILENT, 46, "no answer from the peer through all retries") \
	X(NAK_SEQUENCE, 47, "peer missed a packet again and again, through all retries") \
	X(NAK_INVALID_REQUEST, 48, "peer's NAK: invalid request") \
	X(NAK_ACCESS, 49, "peer's NAK: remote access error") \
	X(INV_RKEY, 50, \
	  "rkey to invalidate is not an invalidatable key of the peer's protection domain") \
	X(BIND_WINDOW, 51, "no such memory window, or not of this kind and protection domain") \
	X(BIND_REGION, 52, \
	  "memory region to bind to is unknown, of another protection domain or not bindable") \
	X(BIND_RANGE, 53, "range or access of the window exceeds the memory region") \
	X(NAK_OPERATION, 54, "peer's NAK: remote operational error") \
	X(BAD_RESPONSE, 55, "peer's response does not fit the request") \
	X(UD_LENGTH, 56, "datagram longer than the path MTU") \
	X(BAD_REQUEST, 57, "peer's packets do not make a valid request") \
	X(FRAME_LENGTH, 58, \
	  "frame longer than the netdev takes, or shorter than an Ethernet header") \
	X(CQ_OVERFLOW, 60, "completion queue overflowed") \
	X(FLUSHED, 61, "flushed: the queue pair was in error") \
	X(DEVICE_REMOVED, 62, "flushed: the device was removed") \
	X(REG_KEY, 63, "no region for fast registration of that key and protection domain") \
	X(REG_STATE, 64, "region is registered already") \
	X(REG_RANGE, 65, "registration is longer than the pages that were mapped") \
	X(REG_ACCESS, 66, "a fast registration cannot give these rights") \
	X(XRC_SRQ, 68, \
	  "no XRC shared receive queue of that number in the domain of the peer's queue pair") \
	X(NO_ROUTE, 70, "no route, or no source address, to the destination GID") \
	X(PATH_MTU, 71, "path MTU is larger than the link allows") \
	X(LKEY_PAGE, 72, "on-demand paging: the program has no such memory, or may not write it") \
	X(RKEY_PAGE, 73, \
	  "on-demand paging: the peer's program has no such memory, or may not write it") \
	X(RECV_LKEY_PAGE, 74, \
	  "on-demand paging: no memory at the receive buffer, or none that may be written") \
	X(PAGE_LATE, 75, "on-demand paging: a page has not come for 60 seconds") \
	X(ROUTE_MTU, 76, \
	  "packets do not leave, because the MTU of the netdev or the route became too small") \
	X(FAULT, 77, "an administrator asked for this error by \"peal fault\"")

#define PEAL_REASON_ENUM_(name, number, text) PEAL_REASON_##name = number,
enum peal_reason {
	PEAL_REASONS(PEAL_REASON_ENUM_)
};

#undef PEAL_REASON_ENUM_

/* ------------------------------------------------------------------------
 * Checks that the layout does not change
 */
#ifdef __cplusplus
#include <cstddef>
#define PEAL_ABI_ASSERT_(condition) static_assert(condition, #condition)
#else
#define PEAL_ABI_ASSERT_(condition) _Static_assert(condition, #condition)
#ifdef __KERNEL__
#include <linux/stddef.h>
#else
#include <stddef.h>
#endif
#endif

PEAL_ABI_ASSERT_(sizeof(struct peal_sge) == 16);
PEAL_ABI_ASSERT_(sizeof(struct peal_send_wqe) == 32);
PEAL_ABI_ASSERT_(offsetof(struct peal_send_wqe, remote_addr) == 8);
PEAL_ABI_ASSERT_(sizeof(struct peal_ud_target) == 8);
PEAL_ABI_ASSERT_(offsetof(struct peal_send_wqe, inline_len) == 20);
PEAL_ABI_ASSERT_(offsetof(struct peal_send_wqe, ah_index) == 24);
PEAL_ABI_ASSERT_(sizeof(struct peal_atomic_seg) == 16);
PEAL_ABI_ASSERT_(sizeof(struct peal_flush_seg) == 16);
PEAL_ABI_ASSERT_(sizeof(struct peal_bind_seg) == 32);
PEAL_ABI_ASSERT_(sizeof(struct peal_recv_wqe) == 16);
PEAL_ABI_ASSERT_(sizeof(struct peal_ring_ctl) == 3 * PEAL_CACHE_LINE);
PEAL_ABI_ASSERT_(offsetof(struct peal_ring_ctl, consumer) == PEAL_CACHE_LINE);
PEAL_ABI_ASSERT_(offsetof(struct peal_ring_ctl, flags) == 2 * PEAL_CACHE_LINE);
PEAL_ABI_ASSERT_(sizeof(struct peal_qp_ctl) == 6 * PEAL_CACHE_LINE);
PEAL_ABI_ASSERT_(sizeof(struct peal_cqe) == 64);
PEAL_ABI_ASSERT_(offsetof(struct peal_cqe, kind) == 28);
PEAL_ABI_ASSERT_(offsetof(struct peal_cqe, clock_ns) == 40);
PEAL_ABI_ASSERT_(offsetof(struct peal_cqe, flags) == 63);
PEAL_ABI_ASSERT_(sizeof(struct peal_cq_ctl) == PEAL_CQ_RING_OFFSET);
PEAL_ABI_ASSERT_(offsetof(struct peal_cq_ctl, arm) == PEAL_CACHE_LINE);
PEAL_ABI_ASSERT_(offsetof(struct peal_cq_ctl, fired) == 2 * PEAL_CACHE_LINE);
PEAL_ABI_ASSERT_(PEAL_CQ_RING_OFFSET % sizeof(struct peal_cqe) == 0);
PEAL_ABI_ASSERT_(offsetof(struct peal_doorbell, bits) == PEAL_CACHE_LINE);
PEAL_ABI_ASSERT_(sizeof(struct peal_doorbell) == PEAL_CACHE_LINE + 8 * PEAL_DB_WORDS);
PEAL_ABI_ASSERT_(sizeof(struct peal_alloc_ucontext_resp) == 32);
PEAL_ABI_ASSERT_(sizeof(struct peal_query_dm_resp) == 32);
PEAL_ABI_ASSERT_(sizeof(struct peal_create_cq_resp) == 24);
PEAL_ABI_ASSERT_(sizeof(struct peal_resize_cq_resp) == 24);
PEAL_ABI_ASSERT_(sizeof(struct peal_create_qp_resp) == 48);
PEAL_ABI_ASSERT_(sizeof(struct peal_create_srq_resp) == 40);
PEAL_ABI_ASSERT_(sizeof(struct peal_resize_srq_resp) == 40);
PEAL_ABI_ASSERT_(sizeof(struct peal_create_ah_resp) == 8);

#endif /* RDMA_PEAL_ABI_H */
