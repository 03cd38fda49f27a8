// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See rx_packet.h.
 *
 * The UDP checksum is not checked, because the ICRC covers everything that it covers. The
 * one exception is the BTH byte that routers may change and receivers ignore.
 */
#include <linux/udp.h>

#include "base/table.h"
#include "net/crc.h"
#include "net/rx_packet.h"
#include "proto/reorder.h"

/* The payloads of two packets are compared in pieces of this many bytes. */
#define PEAL_RX_PIECE	64

enum peal_drop peal_rx_parse(struct sk_buff *skb, struct peal_rx_packet *rx)
{
	enum peal_drop drop = peal_packet_parse(skb->data, skb_headlen(skb), skb->len, &rx->packet);
	const struct udphdr *udp = (struct udphdr *)(skb->data - sizeof(*udp));

	rx->skb = skb;
	rx->ipv6 = peal_arrival(skb)->ipv6;
	rx->vlan_id = peal_arrival(skb)->vlan_id;
	rx->multicast = peal_rx_is_multicast(skb, rx->ipv6);
	rx->payload = rx->packet.header_bytes;
	rx->packet.flow = (__force u16)udp->source;
	if (rx->ipv6) {
		memcpy(rx->sgid.raw, &ipv6_hdr(skb)->saddr, sizeof(rx->sgid));
		memcpy(rx->dgid.raw, &ipv6_hdr(skb)->daddr, sizeof(rx->dgid));
	} else {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, (struct in6_addr *)rx->sgid.raw);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, (struct in6_addr *)rx->dgid.raw);
	}
	return drop;
}

bool peal_rx_same(struct sk_buff *kept, const struct peal_rx_packet *rx)
{
	u8 one[PEAL_RX_PIECE], another[PEAL_RX_PIECE];
	struct peal_rx_packet other;
	const void *x, *y;
	u32 at, n;

	peal_rx_parse(kept, &other);
	if (!peal_packet_same(&other.packet, &rx->packet))
		return false;
	for (at = 0; at < rx->packet.payload_bytes; at += n) {
		n = min_t(u32, rx->packet.payload_bytes - at, PEAL_RX_PIECE);
		x = skb_header_pointer(rx->skb, rx->payload + at, n, one);
		y = skb_header_pointer(kept, other.payload + at, n, another);
		if (!x || !y || memcmp(x, y, n))
			return false;
	}
	return true;
}

/* Walks over the pieces of a range of the skb, wherever they are. */
struct peal_pieces {
	struct skb_seq_state state;
	u32 bytes;
	u32 done;
};

static void peal_rx_pieces(struct peal_pieces *pieces, struct sk_buff *skb, u32 from,
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
static u32 peal_rx_next(struct peal_pieces *pieces, const u8 **data)
{
	u32 n = skb_seq_read(pieces->done, data, &pieces->state);

	n = min(n, pieces->bytes - pieces->done);
	pieces->done += n;
	return n;
}

bool peal_rx_icrc_is_right(struct sk_buff *skb, bool ipv6)
{
	u32 end = skb->len - PEAL_ICRC_BYTES, bytes = end - PEAL_BTH_BYTES, crc, n;
	const u8 *udp = skb->data - sizeof(struct udphdr), *data;
	struct peal_pieces pieces;
	__le32 icrc;

	if (ipv6)
		crc = peal_icrc_begin_v6(ipv6_hdr(skb), udp, skb->data);
	else
		crc = peal_icrc_begin_v4(ip_hdr(skb), udp, skb->data);
	if (end <= skb_headlen(skb)) {
		crc = peal_crc_add(crc, skb->data + PEAL_BTH_BYTES, bytes);
	} else {
		peal_rx_pieces(&pieces, skb, PEAL_BTH_BYTES, bytes);
		while ((n = peal_rx_next(&pieces, &data)))
			crc = peal_crc_add(crc, data, n);
	}
	if (skb_copy_bits(skb, end, &icrc, sizeof(icrc)))
		return false;
	return le32_to_cpu(icrc) == peal_icrc_end(crc);
}

void peal_rx_copy(const struct peal_rx_packet *rx, u32 offset, void *to, u32 bytes)
{
	u32 from = rx->payload + offset, n;
	struct peal_pieces pieces;
	const u8 *data;

	if (from + bytes <= skb_headlen(rx->skb)) {
		peal_copy(to, rx->skb->data + from, bytes);
		return;
	}
	peal_rx_pieces(&pieces, rx->skb, from, bytes);
	for (; (n = peal_rx_next(&pieces, &data)); to += n)
		peal_copy(to, data, n);
}

void peal_rx_scatter(const struct peal_rx_packet *rx, struct peal_cursor *to, u32 bytes)
{
	u64 at, piece;
	void *here;

	peal_cursor_skip(to, 0);	/* to an entry with room */
	for (at = 0; at < bytes; at += piece) {
		piece = bytes - at;
		here = peal_cursor_here(to, &piece);
		peal_rx_copy(rx, at, here, piece);
		peal_cursor_skip(to, piece);
	}
}

/*
 * Only PACKET_HOST counts. The stack gives a copy of a broadcast back to this host, as if
 * it had come in by the netdev through which it leaves, and a raw socket may write any
 * destination address into such a packet.
 */
int peal_rx_iif(const struct peal_rx_packet *rx)
{
	return rx->skb->pkt_type == PACKET_HOST ? rx->skb->skb_iif : 0;
}

void peal_rx_grh(const struct peal_rx_packet *rx, void *to)
{
	u32 bytes = rx->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	u32 front = sizeof(struct ib_grh) - bytes;

	memset(to, 0, front);
	memcpy(to + front, skb_network_header(rx->skb), bytes);
}

/*
 * The limit of a device, in bytes of skbs with their overhead (truesize): a hundred times
 * the window of a peal peer at the largest path MTU.
 */
#define PEAL_REORDER_MEM_BYTES		(64L << 20)

/*
 * A queue pair that keeps n packets may keep one more while (n + 1) parts are free. Nothing
 * is limited until half of the memory is in use. After that the heaviest users stop first,
 * and a newcomer still finds space.
 */
#define PEAL_REORDER_MEM_PART		(PEAL_REORDER_MEM_BYTES / 2 / PEAL_REORDER_SLOTS)

/*
 * The largest truesize of one packet: payloads of the path MTU, plus bytes of overhead. It
 * is generous because drivers take a buffer of a page or of a jumbo frame for each packet.
 */
#define PEAL_REORDER_MEM_PACKETS	4
#define PEAL_REORDER_MEM_OVERHEAD	(16 << 10)

/* In bytes: the pages that the network stack divides into fragments (SKB_FRAG_PAGE_ORDER). */
#define PEAL_REORDER_MEM_PAGES		(32 << 10)

struct sk_buff *peal_reorder_mem_may(struct peal_reorder_mem *mem, const struct peal_rx_packet *rx,
				     u32 mtu, u32 kept)
{
	long left = PEAL_REORDER_MEM_BYTES - atomic_long_read(&mem->bytes);

	if (rx->packet.payload_bytes > mtu ||
	    rx->skb->truesize > PEAL_REORDER_MEM_PACKETS * mtu + PEAL_REORDER_MEM_OVERHEAD)
		return NULL;
	return left >= (long)(kept + 1) * PEAL_REORDER_MEM_PART ? rx->skb : NULL;
}

void peal_reorder_mem_add(struct peal_reorder_mem *mem, struct sk_buff *skb)
{
	u32 pages = skb_shinfo(skb)->nr_frags + skb->head_frag;

	/*
	 * Drop the skb extensions that the stack attached on the way up. They have done their
	 * work, because the IPsec policy was checked. If they stayed, the security path would hold
	 * its xfrm states and their modules for as long as the packet is kept.
	 */
	skb_ext_reset(skb);
	/*
	 * Copy the packet to memory of its own. Its truesize counts only a part of a page, but the
	 * skb holds the whole page: 32 KiB of a sender's or a driver's fragments. When there is no
	 * memory for the copy, truesize becomes what the skb really holds.
	 */
	if (pages || skb_has_frag_list(skb)) {
		if (skb_linearize(skb) ||
		    (skb->head_frag && pskb_expand_head(skb, 0, 0, GFP_ATOMIC)))
			skb->truesize += pages * PEAL_REORDER_MEM_PAGES;
		else
			skb->truesize = SKB_TRUESIZE(skb_end_offset(skb));
	}
	atomic_long_add(skb->truesize, &mem->bytes);
	peal_count(mem->table, reorder_kept);
}

void peal_reorder_mem_take(struct peal_reorder_mem *mem, const struct sk_buff *skb)
{
	atomic_long_sub(skb->truesize, &mem->bytes);
}

void peal_reorder_mem_lose(struct peal_reorder_mem *mem, struct sk_buff *skb)
{
	peal_reorder_mem_take(mem, skb);
	peal_count(mem->table, reorder_lost);
	kfree_skb(skb);
}
