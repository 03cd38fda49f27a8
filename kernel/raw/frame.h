/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Ethernet frames of raw packet queue pairs, in both directions: the fields that a flow rule can
 * match, the checksums, and the way to the netdev.
 */
#ifndef PEAL_FRAME_H
#define PEAL_FRAME_H

#include <linux/if_ether.h>
#include <linux/types.h>

struct peal_port;
struct peal_tx_quota;
struct sk_buff;

/* Bits of peal_frame_fields.kinds. */
#define PEAL_FRAME_VLAN		0x01
#define PEAL_FRAME_IPV4		0x02
#define PEAL_FRAME_IPV6		0x04
#define PEAL_FRAME_TCP		0x08
#define PEAL_FRAME_UDP		0x10

/*
 * What a rule can match. A frame that lacks a header has zeros in its fields, and lacks its bit in
 * `kinds`. The whole is compared as 64-bit words, so it has no hidden padding.
 */
struct peal_frame_fields {
	u8 dst_mac[ETH_ALEN], src_mac[ETH_ALEN];
	__be16 ether_type;	/* behind the VLAN tag */
	__be16 vlan_tag;
	u8 src_ip[16], dst_ip[16];	/* an IPv4 address is in the first four bytes */
	__be32 flow_label;
	__be16 src_port, dst_port;
	u8 kinds;		/* PEAL_FRAME_* */
	u8 protocol;		/* behind the extension headers of IPv6 */
	u8 traffic_class;	/* IPv4: TOS */
	u8 hop_limit;		/* IPv4: TTL */
	u8 ip_flags;		/* enum ib_ipv4_flags */
	u8 reserved[3];
} __aligned(8);

struct peal_frame {
	struct sk_buff *skb;
	struct peal_frame_fields fields;
	int ip, transport;	/* offsets of these headers from the MAC header; 0: none */
	bool fragment;		/* one of several fragments of an IP datagram */
	bool checksums_ok;	/* IPv4 with TCP or UDP, and both checksums are right */
};

/* Read the headers of @skb, whose MAC header is set. Fills all of @frame but checksums_ok. */
void peal_frame_parse(struct peal_frame *frame, struct sk_buff *skb);

/*
 * Make @skb what would be on a wire. A train of segments becomes a list of skbs. A VLAN tag becomes
 * part of the bytes, and so do checksums that were left to hardware. Consumes @skb. Return: the
 * skbs, whose data begin at the MAC header, or NULL without memory.
 */
struct sk_buff *peal_frame_complete(struct sk_buff *skb);
/* Return: the new checksums_ok. @known: the stack knows that the transport's checksum is right. */
bool peal_frame_verify(const struct peal_frame *frame, bool known);

/* Return: an skb for a frame of @length bytes, which begin at skb->data, or NULL without memory. */
struct sk_buff *peal_frame_alloc(const struct peal_port *port, u32 length);
/* The bytes of @skb are written. Tell the stack what they are, and fill @frame. */
void peal_frame_finish(struct peal_frame *frame, struct sk_buff *skb, const struct peal_port *port);
/* Write the checksum of the IPv4 header, and let the stack add that of TCP or UDP. */
void peal_frame_add_checksums(struct peal_frame *frame);
/* Consumes @skb. A frame that the netdev refuses is lost, and counted. With softirqs off. */
void peal_frame_send(struct sk_buff *skb, struct peal_port *port, struct peal_tx_quota *tx_quota);

#endif
