/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * The generic netlink family `peal`: options of devices and of the host, for administrators.
 *
 * Owns: the numbers of commands and attributes, as in
 * Documentation/netlink/specs/peal.yaml. Append new ones, never renumber.
 * Does not know: verbs, and everything that RDMA netlink already offers.
 */
#ifndef RDMA_PEAL_NETLINK_H
#define RDMA_PEAL_NETLINK_H

#define PEAL_NL_FAMILY		"peal"
#define PEAL_NL_VERSION		1

enum peal_nl_command {
	PEAL_NL_CMD_UNSPEC,
	PEAL_NL_CMD_DEV_GET,	/* do: one device by index or name; dump: all devices */
	PEAL_NL_CMD_DEV_SET,	/* needs CAP_NET_ADMIN */
	PEAL_NL_CMD_HOST_GET,
	PEAL_NL_CMD_HOST_SET,	/* needs CAP_NET_ADMIN, and the initial network namespace */
	PEAL_NL_CMD_ERROR_GET,	/* dump: the last errors of queue pairs; see peal_nl_error_attr */
	PEAL_NL_CMD_FAULT_GET,	/* dump: the rules of all devices; see peal_nl_fault_attr */
	PEAL_NL_CMD_FAULT_ADD,	/* needs CAP_NET_ADMIN; the answer has PEAL_NL_FAULT_ID */
	PEAL_NL_CMD_FAULT_DEL,	/* needs CAP_NET_ADMIN; without PEAL_NL_FAULT_ID: all rules */
	PEAL_NL_CMD_FAULT_NOW,	/* needs CAP_NET_ADMIN; raises PEAL_NL_FAULT_EVENT at once */
	PEAL_NL_CMD_COUNT_
};

enum peal_nl_dev_attr {
	PEAL_NL_DEV_UNSPEC,
	PEAL_NL_DEV_INDEX,		/* u32: the device index of RDMA netlink */
	PEAL_NL_DEV_NAME,		/* string */
	PEAL_NL_DEV_DIRECT,		/* u8: 1 if the direct path may be used */
	PEAL_NL_DEV_MAX_RD_ATOMIC,	/* u32: 1..128 */
	PEAL_NL_DEV_RATE,		/* u32: Gb/s, see peal.yaml; 0: the netdev's */
	PEAL_NL_DEV_ECN,		/* u32: enum peal_nl_ecn */
	/*
	 * Limits, see peal.yaml. A value that is higher than the highest one sets that. All are
	 * u32 and 1 or more, except that PEAL_NL_DEV_MAX_INLINE may be 0.
	 */
	PEAL_NL_DEV_MAX_QP,		/* of all programs; so are the next two */
	PEAL_NL_DEV_MAX_CQ,
	PEAL_NL_DEV_MAX_MR,		/* memory regions and windows */
	PEAL_NL_DEV_MAX_WR,		/* of a queue; rounded down to 2^n */
	PEAL_NL_DEV_MAX_CQE,		/* of a completion queue; rounded down to 2^n */
	PEAL_NL_DEV_MAX_SGE,
	PEAL_NL_DEV_MAX_INLINE,		/* bytes */
	PEAL_NL_DEV_WITHOUT,		/* u32: bits 1 << enum peal_nl_feature */
	PEAL_NL_DEV_FAULTS,		/* u8: 1 if the device may have rules for faults */
	PEAL_NL_DEV_COUNT_
};

enum peal_nl_host_attr {
	PEAL_NL_HOST_UNSPEC,
	PEAL_NL_HOST_DIRECT,		/* u32: enum peal_nl_scope */
	PEAL_NL_HOST_COUNT_
};

/*
 * One error of a queue pair. A user sees those of the queue pairs that it made in this network
 * namespace. CAP_NET_ADMIN sees those of all users here, and in the initial network namespace those
 * of all namespaces. An attribute is missing if it says nothing about this error.
 */
enum peal_nl_error_attr {
	PEAL_NL_ERROR_UNSPEC,
	PEAL_NL_ERROR_PAD,
	PEAL_NL_ERROR_DEV_INDEX,	/* u32: the device index of RDMA netlink */
	PEAL_NL_ERROR_DEV_NAME,		/* string */
	PEAL_NL_ERROR_QPN,		/* u32 */
	PEAL_NL_ERROR_QP_TYPE,		/* u8: enum ib_qp_type */
	PEAL_NL_ERROR_PEER_QPN,		/* u32 */
	PEAL_NL_ERROR_RESPONDER,	/* flag: the queue pair refused a message of its peer */
	PEAL_NL_ERROR_UID,		/* u32: who made it; missing: only administrators see it */
	PEAL_NL_ERROR_AGE,		/* u64: time since then, in ns */
	PEAL_NL_ERROR_COUNT,		/* u64: errors so far, of which this is the last one */
	PEAL_NL_ERROR_OPCODE,		/* u8: enum peal_opcode */
	PEAL_NL_ERROR_STATUS,		/* u8: enum ib_wc_status that the requester sees */
	PEAL_NL_ERROR_REASON,		/* u32: enum peal_reason */
	PEAL_NL_ERROR_KEY,		/* u32: rkey or lkey of the range */
	PEAL_NL_ERROR_ADDRESS,		/* u64: of the range */
	PEAL_NL_ERROR_LENGTH,		/* u64: bytes of the range, or of the message */
	PEAL_NL_ERROR_ROOM,		/* u64: bytes of the receive */
	PEAL_NL_ERROR_PDN,		/* u32: protection domain of the queue pair */
	PEAL_NL_ERROR_WANTED,		/* u32: IB_ACCESS_* that the message needs */
	PEAL_NL_ERROR_ALLOWED,		/* u32: IB_ACCESS_* of the queue pair */
	PEAL_NL_ERROR_KEY_PDN,		/* u32: protection domain of the key */
	PEAL_NL_ERROR_KEY_ACCESS,	/* u32: IB_ACCESS_* of the key */
	PEAL_NL_ERROR_KEY_START,	/* u64: first address that the key covers */
	PEAL_NL_ERROR_KEY_LENGTH,	/* u64: bytes that the key covers */
	PEAL_NL_ERROR_RETRIES,		/* u8: attribute retry_cnt */
	PEAL_NL_ERROR_RNR_RETRIES,	/* u8: attribute rnr_retry */
	PEAL_NL_ERROR_TIMEOUT,		/* u8: attribute timeout */
	PEAL_NL_ERROR_PEER_GID,		/* 16 bytes: the address of the peer */
	PEAL_NL_ERROR_COUNT_
};

/*
 * A rule by which messages of a device fail. FAULT_ADD needs PEAL_NL_FAULT_DEV_NAME and
 * PEAL_NL_FAULT_KIND, and the kinds that have a status need it.
 */
enum peal_nl_fault_attr {
	PEAL_NL_FAULT_UNSPEC,
	PEAL_NL_FAULT_PAD,
	PEAL_NL_FAULT_DEV_INDEX,	/* u32: the device index of RDMA netlink */
	PEAL_NL_FAULT_DEV_NAME,		/* string */
	PEAL_NL_FAULT_ID,		/* u32: number of the rule, from 1 on */
	PEAL_NL_FAULT_KIND,		/* u32: enum peal_nl_fault_kind */
	PEAL_NL_FAULT_STATUS,		/* u8: enum ib_wc_status that the requester gets */
	PEAL_NL_FAULT_QPN,		/* u32: only this queue pair; missing: any */
	PEAL_NL_FAULT_PEER_GID,		/* 16 bytes: only with this peer; missing: any */
	PEAL_NL_FAULT_OPCODES,		/* u32: bits 1 << enum peal_opcode; missing: all */
	PEAL_NL_FAULT_COUNT,		/* u64: how often at most; missing: no limit */
	PEAL_NL_FAULT_EVERY,		/* u32: at each so manyth message; missing: 1 */
	PEAL_NL_FAULT_CHANCE,		/* u32: at one of so many messages; not with EVERY */
	PEAL_NL_FAULT_SEED,		/* u64: decides which ones CHANCE hits; missing: 0 */
	PEAL_NL_FAULT_SEEN,		/* u64: messages that matched so far */
	PEAL_NL_FAULT_FIRED,		/* u64: those of them that were hit */
	PEAL_NL_FAULT_EVENT,		/* u32: enum peal_nl_fault_event, for FAULT_NOW */
	PEAL_NL_FAULT_DELAY,		/* u32: microseconds, up to PEAL_NL_FAULT_DELAY_MAX */
	PEAL_NL_FAULT_COUNT_
};

#define PEAL_NL_FAULT_DELAY_MAX	10000000	/* microseconds */

/* What happens to a message or a packet. */
enum peal_nl_fault_kind {
	/* The requester does not send it and completes it with PEAL_NL_FAULT_STATUS. */
	PEAL_NL_FAULT_KIND_STATUS,
	/* The responder refuses it with the NAK of PEAL_NL_FAULT_STATUS, a remote error. */
	PEAL_NL_FAULT_KIND_NAK,
	/* The responder asks for another try, as if it had no receive (RNR NAK). */
	PEAL_NL_FAULT_KIND_RNR,
	/* A packet arrives. These, up to DUPLICATE, have no status and no opcodes. */
	PEAL_NL_FAULT_KIND_DROP,	/* it is lost */
	PEAL_NL_FAULT_KIND_CORRUPT,	/* its ICRC is wrong */
	PEAL_NL_FAULT_KIND_MARK,	/* a router has marked it with CE (ECN) */
	PEAL_NL_FAULT_KIND_DELAY,	/* it arrives later by PEAL_NL_FAULT_DELAY */
	PEAL_NL_FAULT_KIND_REORDER,	/* the next one for the queue pair overtakes it */
	PEAL_NL_FAULT_KIND_DUPLICATE,	/* it arrives twice */
	/* The responder refuses it and completes the receive with PEAL_NL_FAULT_STATUS. */
	PEAL_NL_FAULT_KIND_RECEIVE,
	/* A program makes an object, and there is no memory. No opcodes, no peer, no QPN. */
	PEAL_NL_FAULT_KIND_NO_MEMORY,
	/* A completion becomes visible later by PEAL_NL_FAULT_DELAY. No opcodes, no peer. */
	PEAL_NL_FAULT_KIND_SLOW,
	/* A packet leaves, and there is no memory, so it is lost. No opcodes. */
	PEAL_NL_FAULT_KIND_UNSENT,
	PEAL_NL_FAULT_KIND_COUNT_
};

/* What happens at once. The last two need PEAL_NL_FAULT_QPN. */
enum peal_nl_fault_event {
	PEAL_NL_FAULT_EVENT_DEVICE_FATAL,	/* only the event */
	PEAL_NL_FAULT_EVENT_PORT_ERR,		/* only the event */
	PEAL_NL_FAULT_EVENT_PORT_ACTIVE,	/* only the event */
	PEAL_NL_FAULT_EVENT_QP_FATAL,		/* the queue pair goes into error */
	PEAL_NL_FAULT_EVENT_CQ_ERR,		/* the completion queues of a queue pair overflow */
	PEAL_NL_FAULT_EVENT_COUNT_
};

/* What an administrator can take from the programs of a device. */
enum peal_nl_feature {
	PEAL_NL_FEATURE_RC,		/* queue pairs of this type, and so on */
	PEAL_NL_FEATURE_UC,
	PEAL_NL_FEATURE_UD,
	PEAL_NL_FEATURE_XRC,
	PEAL_NL_FEATURE_RAW,
	PEAL_NL_FEATURE_SRQ,		/* shared receive queues, also those of XRC */
	PEAL_NL_FEATURE_ATOMIC,
	PEAL_NL_FEATURE_MW,
	PEAL_NL_FEATURE_ODP,
	PEAL_NL_FEATURE_COUNT_
};

/* Which ECN bits (RFC 3168) the data packets of connections carry. */
enum peal_nl_ecn {
	PEAL_NL_ECN_OFF,		/* none: Not-ECT */
	PEAL_NL_ECN_ASKED,		/* what the traffic class asks for: ECT(0) or ECT(1) */
	PEAL_NL_ECN_ON,			/* ECT(0) */
	PEAL_NL_ECN_COUNT_
};

/* Which queue pairs may use the direct path. Each scope includes those before it. */
enum peal_nl_scope {
	PEAL_NL_SCOPE_NONE,
	PEAL_NL_SCOPE_DEVICE,		/* queue pairs of one device */
	PEAL_NL_SCOPE_NETNS,		/* also of two devices whose netdevs share a namespace */
	PEAL_NL_SCOPE_HOST,		/* queue pairs of any two devices */
	PEAL_NL_SCOPE_COUNT_
};

#endif /* RDMA_PEAL_NETLINK_H */
