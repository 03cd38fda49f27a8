// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See datagram.h.
 *
 * The UDP checksum is not checked, because the ICRC covers everything that it covers. The
 * one exception is the BTH byte that routers may change and receivers ignore.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/ipv6.h>

#include "object/extents.h"
#include "net/crc.h"
#include "net/datagram.h"
#include "proto/packet.h"

/* The payloads of two packets are compared in pieces of this many bytes. */
#define PEAL_DATAGRAM_PIECE	64

bool peal_datagram_is_multicast(const struct sk_buff *skb, bool ipv6)
{
	return ipv6 ? ipv6_addr_is_multicast(&ipv6_hdr(skb)->daddr) :
		      ipv4_is_multicast(ip_hdr(skb)->daddr);
}

static void peal_datagram_addresses(struct peal_datagram *dg)
{
	const struct iphdr *ip4 = ip_hdr(dg->skb);
	const struct ipv6hdr *ip6 = ipv6_hdr(dg->skb);

	if (dg->ipv6) {
		memcpy(dg->sgid.raw, &ip6->saddr, sizeof(dg->sgid));
		memcpy(dg->dgid.raw, &ip6->daddr, sizeof(dg->dgid));
	} else {
		ipv6_addr_set_v4mapped(ip4->saddr, (struct in6_addr *)dg->sgid.raw);
		ipv6_addr_set_v4mapped(ip4->daddr, (struct in6_addr *)dg->dgid.raw);
	}
}

enum peal_drop peal_datagram_parse(struct sk_buff *skb, struct peal_datagram *dg)
{
	enum peal_drop drop = peal_packet_parse(skb->data, skb_headlen(skb), skb->len, &dg->packet);
	const struct udphdr *udp = (struct udphdr *)(skb->data - sizeof(*udp));

	dg->skb = skb;
	dg->ipv6 = peal_arrival(skb)->ipv6;
	dg->vlan_id = peal_arrival(skb)->vlan_id;
	dg->multicast = peal_datagram_is_multicast(skb, dg->ipv6);
	dg->payload = dg->packet.header_bytes;
	dg->packet.flow = (__force u16)udp->source;
	peal_datagram_addresses(dg);
	return drop;
}

static bool peal_datagram_same_payload(const struct peal_datagram *a, const struct peal_datagram *b)
{
	u8 one[PEAL_DATAGRAM_PIECE], other[PEAL_DATAGRAM_PIECE];
	u32 at, n;

	for (at = 0; at < a->packet.payload_bytes; at += n) {
		const void *x, *y;

		n = min_t(u32, a->packet.payload_bytes - at, PEAL_DATAGRAM_PIECE);
		x = skb_header_pointer(a->skb, a->payload + at, n, one);
		y = skb_header_pointer(b->skb, b->payload + at, n, other);
		if (!x || !y || memcmp(x, y, n))
			return false;
	}
	return true;
}

bool peal_datagram_same(struct sk_buff *kept, const struct peal_datagram *dg)
{
	struct peal_datagram other;

	peal_datagram_parse(kept, &other);
	return peal_packet_same(&other.packet, &dg->packet) &&
	       peal_datagram_same_payload(&other, dg);
}

/* Walks over the pieces of a range of the skb, wherever they are. */
struct peal_pieces {
	struct skb_seq_state state;
	u32 bytes;
	u32 done;
};

static void peal_datagram_pieces(struct peal_pieces *pieces, struct sk_buff *skb, u32 from,
				 u32 bytes)
{
	skb_prepare_seq_read(skb, from, from + bytes, &pieces->state);
	pieces->bytes = bytes;
	pieces->done = 0;
}

/*
 * Return: the length of the next piece, or 0 after the last. The stack may return a longer
 * piece than was asked for, so it is cut here.
 */
static u32 peal_datagram_next(struct peal_pieces *pieces, const u8 **data)
{
	u32 n = skb_seq_read(pieces->done, data, &pieces->state);

	n = min(n, pieces->bytes - pieces->done);
	pieces->done += n;
	return n;
}

static u32 peal_datagram_crc(struct sk_buff *skb, u32 crc, u32 from, u32 bytes)
{
	struct peal_pieces pieces;
	const u8 *data;
	u32 n;

	if (from + bytes <= skb_headlen(skb))
		return peal_crc_add(crc, skb->data + from, bytes);
	peal_datagram_pieces(&pieces, skb, from, bytes);
	while ((n = peal_datagram_next(&pieces, &data)))
		crc = peal_crc_add(crc, data, n);
	return crc;
}

bool peal_datagram_icrc_is_right(struct sk_buff *skb, bool ipv6)
{
	u32 end = skb->len - PEAL_ICRC_BYTES, crc;
	const u8 *udp = skb->data - sizeof(struct udphdr);
	__le32 icrc;

	if (ipv6)
		crc = peal_icrc_begin_v6(ipv6_hdr(skb), udp, skb->data);
	else
		crc = peal_icrc_begin_v4(ip_hdr(skb), udp, skb->data);
	crc = peal_datagram_crc(skb, crc, PEAL_BTH_BYTES, end - PEAL_BTH_BYTES);
	if (skb_copy_bits(skb, end, &icrc, sizeof(icrc)))
		return false;
	return le32_to_cpu(icrc) == peal_icrc_end(crc);
}

static void peal_datagram_copy_pieces(struct sk_buff *skb, u32 from, void *to, u32 bytes)
{
	struct peal_pieces pieces;
	const u8 *data;
	u32 n;

	peal_datagram_pieces(&pieces, skb, from, bytes);
	for (; (n = peal_datagram_next(&pieces, &data)); to += n)
		peal_copy(to, data, n);
}

void peal_datagram_copy(const struct peal_datagram *dg, u32 offset, void *to, u32 bytes)
{
	u32 from = dg->payload + offset;

	if (from + bytes <= skb_headlen(dg->skb))
		peal_copy(to, dg->skb->data + from, bytes);
	else
		peal_datagram_copy_pieces(dg->skb, from, to, bytes);
}

void peal_datagram_scatter(const struct peal_datagram *dg, struct peal_cursor *to, u32 bytes)
{
	u64 at, piece;
	void *here;

	peal_cursor_skip(to, 0);	/* to an entry with room */
	for (at = 0; at < bytes; at += piece) {
		piece = bytes - at;
		here = peal_cursor_here(to, &piece);
		peal_datagram_copy(dg, at, here, piece);
		peal_cursor_skip(to, piece);
	}
}

/*
 * Only PACKET_HOST counts. The stack gives a copy of a broadcast back to this host, as if
 * it had come in by the netdev through which it leaves, and a raw socket may write any
 * destination address into such a packet.
 */
int peal_datagram_iif(const struct peal_datagram *dg)
{
	return dg->skb->pkt_type == PACKET_HOST ? dg->skb->skb_iif : 0;
}

void peal_datagram_grh(const struct peal_datagram *dg, void *to)
{
	u32 bytes = dg->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	u32 front = sizeof(struct ib_grh) - bytes;

	memset(to, 0, front);
	memcpy(to + front, skb_network_header(dg->skb), bytes);
}
