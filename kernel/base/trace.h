/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tracepoints: one per step of a request's life, each the answer to a question.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM peal

#if !defined(PEAL_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PEAL_TRACE_H

#include <linux/tracepoint.h>

#include <rdma/peal-abi.h>

#include "proto/packet.h"

/* Has the device taken my WQE, and how did it understand it? */
TRACE_EVENT(peal_execute,
	TP_PROTO(u32 qpn, u32 index, u8 opcode, u64 length, u32 psn),
	TP_ARGS(qpn, index, opcode, length, psn),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, index)
		__field(u8, opcode)
		__field(u64, length)
		__field(u32, psn)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->index = index;
		__entry->opcode = opcode;
		__entry->length = length;
		__entry->psn = psn;
	),
	TP_printk("qpn 0x%x wqe %u opcode %u length %llu psn 0x%x", __entry->qpn,
		  __entry->index, __entry->opcode, __entry->length, __entry->psn)
);

/* Why does my send queue not move (direct path)? */
TRACE_EVENT(peal_wait,
	TP_PROTO(u32 qpn, u32 index, u32 reason, u64 ns),
	TP_ARGS(qpn, index, reason, ns),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, index)
		__field(u32, reason)
		__field(u64, ns)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->index = index;
		__entry->reason = reason;
		__entry->ns = ns;
	),
	TP_printk("qpn 0x%x wqe %u reason %u for %llu ns", __entry->qpn, __entry->index,
		  __entry->reason, __entry->ns)
);

/* What did the responder refuse, with key, address, length and reason? */
TRACE_EVENT(peal_refuse,
	TP_PROTO(u32 qpn, u32 src_qpn, u8 opcode, u32 rkey, u64 addr, u64 length, u32 reason),
	TP_ARGS(qpn, src_qpn, opcode, rkey, addr, length, reason),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, src_qpn)
		__field(u8, opcode)
		__field(u32, rkey)
		__field(u64, addr)
		__field(u64, length)
		__field(u32, reason)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->src_qpn = src_qpn;
		__entry->opcode = opcode;
		__entry->rkey = rkey;
		__entry->addr = addr;
		__entry->length = length;
		__entry->reason = reason;
	),
	TP_printk("qpn 0x%x from 0x%x opcode %u rkey 0x%x addr 0x%llx length %llu reason %u",
		  __entry->qpn, __entry->src_qpn, __entry->opcode, __entry->rkey,
		  __entry->addr, __entry->length, __entry->reason)
);

/* Which completion was written, and why is it an error? */
TRACE_EVENT(peal_complete,
	TP_PROTO(const struct peal_cqe *cqe),
	TP_ARGS(cqe),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, index)
		__field(u8, kind)
		__field(u8, opcode)
		__field(u8, status)
		__field(u32, reason)
		__field(u32, bytes)
	),
	TP_fast_assign(
		__entry->qpn = cqe->qp_num;
		__entry->index = cqe->wqe_index;
		__entry->kind = cqe->kind;
		__entry->opcode = cqe->opcode;
		__entry->status = cqe->status;
		__entry->reason = cqe->vendor_err;
		__entry->bytes = cqe->byte_len;
	),
	TP_printk("qpn 0x%x %s wqe %u opcode %u status %u reason %u bytes %u", __entry->qpn,
		  __entry->kind == PEAL_CQE_SEND ? "send" : "recv", __entry->index,
		  __entry->opcode, __entry->status, __entry->reason, __entry->bytes)
);

/* Names of the numbers, as packet captures have them. */
#define PEAL_TRACE_DROP_ENUM_(name, text) TRACE_DEFINE_ENUM(PEAL_DROP_##name);
#define PEAL_TRACE_DROP_NAME_(name, text) { PEAL_DROP_##name, text },
PEAL_DROPS(PEAL_TRACE_DROP_ENUM_)

DECLARE_EVENT_CLASS(peal_packet_class,
	TP_PROTO(u32 qpn, const struct peal_packet *packet, bool again),
	TP_ARGS(qpn, packet, again),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, dest)
		__field(u32, psn)
		__field(u32, payload)
		__field(u32, packets)
		__field(u8, opcode)
		__field(u8, syndrome)
		__field(bool, ack_request)
		__field(bool, again)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->dest = packet->qpn;
		__entry->psn = packet->psn;
		__entry->payload = packet->payload_bytes;
		__entry->packets = peal_packet_count(packet);
		__entry->opcode = packet->opcode;
		__entry->syndrome = packet->syndrome;
		__entry->ack_request = packet->ack_request;
		__entry->again = again;
	),
	TP_printk("qpn 0x%x to 0x%x opcode 0x%02x psn 0x%06x packets %u payload %u syndrome 0x%02x%s%s",
		  __entry->qpn, __entry->dest, __entry->opcode, __entry->psn, __entry->packets,
		  __entry->payload, __entry->syndrome, __entry->ack_request ? " ack" : "",
		  __entry->again ? " again" : "")
);

/* Which packet, or run of packets, was sent, and was it a repetition (`again`)? */
DEFINE_EVENT(peal_packet_class, peal_packet_sent,
	TP_PROTO(u32 qpn, const struct peal_packet *packet, bool again),
	TP_ARGS(qpn, packet, again)
);

/*
 * Which packet, or run of packets, reached a queue pair, and had it been kept until its turn
 * (`again`)?
 */
DEFINE_EVENT(peal_packet_class, peal_packet_received,
	TP_PROTO(u32 qpn, const struct peal_packet *packet, bool again),
	TP_ARGS(qpn, packet, again)
);

/* Why was a packet dropped? (Frames of raw packet queue pairs have no such event.) */
TRACE_EVENT(peal_drop,
	TP_PROTO(const struct peal_packet *packet, u32 drop),
	TP_ARGS(packet, drop),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(u32, psn)
		__field(u8, opcode)
		__field(u32, drop)
	),
	TP_fast_assign(
		__entry->qpn = packet->qpn;
		__entry->psn = packet->psn;
		__entry->opcode = packet->opcode;
		__entry->drop = drop;
	),
	TP_printk("qpn 0x%x opcode 0x%02x psn 0x%06x: %s", __entry->qpn, __entry->opcode,
		  __entry->psn, __print_symbolic(__entry->drop,
		  PEAL_DROPS(PEAL_TRACE_DROP_NAME_) { PEAL_DROP_none, "not dropped" }))
);

/* Which timer expired, and what is sent again? */
TRACE_EVENT(peal_timeout,
	TP_PROTO(u32 qpn, bool probe, u32 psn, u32 retries),
	TP_ARGS(qpn, probe, psn, retries),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(bool, probe)
		__field(u32, psn)
		__field(u32, retries)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->probe = probe;
		__entry->psn = psn;
		__entry->retries = retries;
	),
	TP_printk("qpn 0x%x %s psn 0x%06x retries %u", __entry->qpn,
		  __entry->probe ? "probe" : "timeout", __entry->psn, __entry->retries)
);

/* Why was an object, or were pages for its rings, refused, and how many are held? */
TRACE_EVENT(peal_quota,
	TP_PROTO(u32 kind, u32 context, u32 user, u32 programs),
	TP_ARGS(kind, context, user, programs),
	TP_STRUCT__entry(
		__field(u32, kind)
		__field(u32, context)
		__field(u32, user)
		__field(u32, programs)
	),
	TP_fast_assign(
		__entry->kind = kind;
		__entry->context = context;
		__entry->user = user;
		__entry->programs = programs;
	),
	TP_printk("kind %u context %u user %u all %u", __entry->kind, __entry->context,
		  __entry->user, __entry->programs)
);

/* Why may no path be used? */
TRACE_EVENT(peal_path,
	TP_PROTO(u32 qpn, int error, u32 reason),
	TP_ARGS(qpn, error, reason),
	TP_STRUCT__entry(
		__field(u32, qpn)
		__field(int, error)
		__field(u32, reason)
	),
	TP_fast_assign(
		__entry->qpn = qpn;
		__entry->error = error;
		__entry->reason = reason;
	),
	TP_printk("qpn 0x%x error %d reason %u", __entry->qpn, __entry->error, __entry->reason)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH base
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
