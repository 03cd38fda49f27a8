/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A path: how the packets of one address vector get to the other side. And packets out, on a path.
 *
 * Only peal_path_init() and peal_path_resolve() write a path, before any packet is sent on
 * it. A new address vector needs a new path. Only caches change later. The cached route has a
 * lock of its own (path->lock, innermost), so that the senders of several queue pairs may
 * share an address handle's path.
 *
 * A path holds no reference on a netdev, so that a VLAN can be removed while queue pairs
 * use its address. Their packets are lost from then on.
 */
#ifndef PEAL_PATH_H
#define PEAL_PATH_H

#include <linux/spinlock.h>
#include <linux/types.h>
#include <net/dst.h>
#include <rdma/ib_verbs.h>

#include "object/cursor.h"
#include "proto/packet.h"

struct peal_port;
struct peal_tx_quota;
struct sk_buff;

struct peal_path {
	struct peal_port *port;		/* sends the packets; outlives the path */
	struct peal_tx_quota *tx_quota;	/* charged for the packets; outlives the path's senders */
	int ifindex;			/* of the GID's netdev: the device's, or a VLAN's on it */
	bool ipv6;
	bool multicast;
	bool bound;			/* look up routes through this interface only */
	union ib_gid sgid, dgid;	/* IPv4 as mapped addresses */
	u16 sport;			/* UDP source port, host order, 0xc000 and up */
	u8 tclass;			/* without the ECN bits */
	u8 ecn;				/* that the address vector asks for; never INET_ECN_CE */
	u8 hop_limit;			/* 0: the stack's choice */
	u8 sl;
	u32 flow_label;
	u32 route_mtu;			/* most bytes of an IP packet, by the first route */
	/*
	 * Hints for tx.c, for packets without payload, for ONLY and MIDDLE packets, and for FIRST
	 * and LAST packets: the length of the last one, in the upper half, and the CRC of its IP
	 * and UDP header. Each is read and written as a whole.
	 */
	u64 front_crc[3];
	bool linear;			/* the netdev of the last route needs linear skbs; a hint */
	spinlock_t lock;		/* guards the fields marked with it */

	/* Guarded by path.lock: */
	struct dst_entry *dst;		/* cached route; NULL: look up at the next packet */
	u32 cookie;
};

/*
 * May the calling program send with this service level? The level becomes the priority of
 * the packets, so the rule is that of SO_PRIORITY. Return: 0 or -EPERM.
 */
int peal_path_permit(const struct peal_port *port, const struct rdma_ah_attr *attr);

/**
 * peal_path_resolve() - make a path from an address vector, and look up its first route
 * @path: not in use. Its contents do not matter, also when this fails.
 * @port: the device's. The GID's attribute may name a VLAN on its netdev.
 * @tx_quota: of the context whose queue pairs send there, or the kernel's
 * @attr: with GRH and sgid_attr
 * @hash: chooses the source port when the flow label is 0 (from the queue pairs)
 *
 * Call with interrupts on. An unresolved neighbour is no error, because packets wait for it
 * in the stack.
 *
 * Return: 0; -EINVAL: no RoCEv2 GID, or source and destination of different IP versions;
 * -ENETUNREACH or another error of the route lookup.
 */
int peal_path_resolve(struct peal_path *path, struct peal_port *port,
		      struct peal_tx_quota *tx_quota, const struct rdma_ah_attr *attr, u32 hash);
/*
 * As peal_path_resolve(), but the route is not looked up before the first packet. Address
 * handles need this, because the connection manager creates and destroys them with
 * interrupts off. Neither peal_path_init() nor peal_path_release() sleeps. Both may be
 * called in any context.
 */
int peal_path_init(struct peal_path *path, struct peal_port *port, struct peal_tx_quota *tx_quota,
		   const struct rdma_ah_attr *attr, u32 hash);
/* Return: the index of the GID's netdev, the device's or a VLAN's on it. 0: there is none. */
int peal_path_ifindex(const struct ib_gid_attr *gid);
/*
 * Fill only what the headers of packets take from a path. Nothing can be sent on it, and it is not
 * released. peal_tx_show() also takes `ifindex` and `sl` from it.
 */
void peal_path_draw(struct peal_path *path, struct peal_port *port, const union ib_gid *sgid,
		    const struct ib_global_route *grh, u32 hash);
/* Call once after a successful init or resolve, when no sender uses the path any more. */
void peal_path_release(struct peal_path *path);

/* Did a packet of path MTU @mtu fit the route that peal_path_resolve() has found? */
bool peal_path_fits(const struct peal_path *path, enum ib_mtu mtu);

/* Is the route local, so that the destination is on this host, in this network namespace? */
bool peal_path_is_local(struct peal_path *path);

/*
 * Do the path's packets leave through the netdev of index @ifindex? Packets to this host
 * leave through the loopback device.
 */
bool peal_path_leaves_by(struct peal_path *path, int ifindex);

/*
 * For tx.c. The route of the next packet. It is looked up again when the stack has
 * invalidated the last one. Under RCU. The caller gets no reference, and the route is valid
 * until the RCU section ends. Return: the route or an ERR_PTR.
 */
struct dst_entry *peal_path_route(struct peal_path *path);
/* For tx.c. As peal_path_is_local(), for the route that peal_path_route() has returned. */
bool peal_path_route_is_local(const struct peal_path *path, const struct dst_entry *dst);

/* ---- packets out (tx.c) ---- */

/*
 * Packets that leave together, in one skb that the stack, or the netdev, divides only where it must
 * (UDP segmentation offload). The stack's work for a train is that for one packet. All packets of a
 * train have the length of the first, and the last may be shorter. Each has headers and an ICRC of
 * its own, so a receiver needs no support for trains.
 *
 * On the stack of the sender. The path must not change before the flush. With softirqs off. Between
 * the first packet and the flush the sender may be in a section for vector registers, so the rules
 * of peal_fpu_begin() apply to it.
 */
#define PEAL_TRAIN_PACKETS	64	/* at most; a guest and some drivers take no more */

struct peal_train {
	struct peal_path *path;
	struct sk_buff *skb;	/* NULL: the next packet is the first */
	u32 packets;
	u32 bytes;		/* of them, from BTH to ICRC */
	u32 segment;		/* bytes of the first */
	const u8 *first;	/* the BTH of the first */
	u8 tos;			/* TOS or traffic class of all, with the ECN bits */
	/* What the netdev and the route allow each train until peal_tx_begin(): */
	u32 limit;		/* most bytes; 0: not known yet */
	u32 longest;		/* most bytes of a packet that others may follow */
	u16 most;		/* most packets */
	u16 word_number;
	u32 front_crc;		/* of the LRH, IP and UDP headers of the first packet */
	u32 word_crc;		/* with the first word of this BTH, in a packet `word_number` */
	bool has_word_crc;	/* these two are known */
	bool closed;		/* the last packet was shorter than the first */
	bool fpu;		/* inside a section for vector registers (crc.h) */
	u32 psn;		/* of the first */
	/* Until the flush returns it: the reason why packets could not leave. */
	int error;
	u32 error_psn;		/* the first of them */
};

static inline void peal_tx_begin(struct peal_train *train, struct peal_path *path)
{
	train->path = path;
	train->skb = NULL;
	train->packets = 0;
	train->bytes = 0;
	train->limit = 0;
	train->fpu = false;
	train->error = 0;
}

/*
 * Add @packet, or a run of packets. What was added before is sent first where it must be. @tos: TOS
 * or traffic class, with the ECN bits. @payload: peal_packet_bytes() bytes are taken from there. It
 * is not used if there are none. Return: false when there is no memory. The caller then treats the
 * packets as lost.
 */
bool peal_tx_add(struct peal_train *train, const struct peal_packet *packet, u8 tos,
		 struct peal_cursor *payload);
/*
 * Find the route, and send the packets through the stack, netfilter included. The train is empty
 * afterwards. Packets that the stack refuses count as lost.
 * The stack may take a packet for this host through its whole receive side within this
 * call. rx.c ensures that peal_demux_deliver() is not called inside it.
 * Return: 0, or the reason as a negative errno for the first packets of the train that did not
 * leave, from train->error_psn on. It is -EMSGSIZE when the MTU of the netdev or the route is too
 * small. It is counted here.
 */
int peal_tx_flush(struct peal_train *train);
/*
 * A message of @path's device has reached the device @to without packets. Show @packet, one of
 * those that would have carried it, to the sniffers of both devices. peal_path_draw() suffices for
 * @path. @payload: packet->payload_bytes bytes are taken from there. With softirqs off.
 */
void peal_tx_show(struct peal_path *path, struct peal_port *to, const struct peal_packet *packet,
		  struct peal_cursor *payload);
/* For main.c. No packet is sent any more. */
void peal_tx_exit(void);
/*
 * Write the 40 bytes that a receiver on this host finds in front of the payload of a packet, as
 * peal_rx_grh() does for a packet that has arrived. With softirqs off. Return: false when the
 * route does not end on this host.
 */
bool peal_tx_grh(struct peal_path *path, u8 opcode, u32 payload_bytes, void *to);

#endif
