// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See rx_packet.h.
 *
 * The UDP checksum is not checked, because the ICRC covers everything that it covers. The
 * one exception is the BTH byte that routers may change and receivers ignore.
 */
#include <linux/udp.h>

#include "base/compat.h"
#include "base/table.h"
#include "net/crc.h"
#include "net/rx_packet.h"
#include "proto/reorder.h"

/* The payloads of two packets are compared in pieces of this many bytes. */
#define PEAL_RX_PIECE	64

/* Let @part, which ends in front of offset @at from skb->data, become the one with this byte. */
static noinline void peal_rx_find_part(const struct sk_buff *skb, struct peal_rx_part *part, u32 at)
{
	const struct skb_shared_info *shared = skb_shinfo(skb);
	const skb_frag_t *fragment;

	while (at >= part->end && part->next < shared->nr_frags) {
		fragment = &shared->frags[part->next++];
		part->begin = part->end;
		part->end += skb_frag_size(fragment);
		part->bytes = skb_frag_address_safe(fragment);
	}
}

/*
 * Return: the packet at offset @at from skb->data, if it lies in one part of the skb; or NULL.
 * @part is that part or one before it, and becomes it.
 */
static const u8 *peal_rx_here(const struct peal_rx_packet *rx, struct peal_rx_part *part, u32 at)
{
	if (unlikely(at >= part->end))
		peal_rx_find_part(rx->skb, part, at);
	if (unlikely(!part->bytes || at < part->begin || at + rx->bytes > part->end))
		return NULL;
	return part->bytes + (at - part->begin);
}

/* The same for the packet behind the one at @here, which lies in @part or is NULL. */
static const u8 *peal_rx_behind(const struct peal_rx_packet *rx, struct peal_rx_part *part,
				const u8 *here, u32 at)
{
	if (likely(here && at + rx->bytes <= part->end))
		return here + rx->bytes;
	return peal_rx_here(rx, part, at);
}

void peal_rx_begin(struct sk_buff *skb, struct peal_rx_packet *rx)
{
	const struct udphdr *udp = (struct udphdr *)(skb->data - sizeof(*udp));

	rx->skb = skb;
	rx->at = 0;
	rx->bytes = skb->len;
	rx->number = 0;
	rx->train = false;
	rx->marked = false;
	rx->head_crc = 0;
	rx->part = (struct peal_rx_part){ .end = skb_headlen(skb), .bytes = skb->data };
	rx->ipv6 = peal_arrival(skb)->ipv6;
	rx->vlan_id = peal_arrival(skb)->vlan_id;
	rx->multicast = peal_rx_is_multicast(skb, rx->ipv6);
	rx->flow = (__force u16)udp->source;
	if (rx->ipv6) {
		memcpy(rx->sgid.raw, &ipv6_hdr(skb)->saddr, sizeof(rx->sgid));
		memcpy(rx->dgid.raw, &ipv6_hdr(skb)->daddr, sizeof(rx->dgid));
	} else {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, (struct in6_addr *)rx->sgid.raw);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, (struct in6_addr *)rx->dgid.raw);
	}
}

/*
 * The headers are read from a copy, unless they lie in the linear part. The sender may still write
 * the other parts.
 */
enum peal_drop peal_rx_parse(struct peal_rx_packet *rx)
{
	u32 linear = min_t(u32, rx->bytes, PEAL_HEADERS_MAX);
	enum peal_drop drop;

	rx->here = peal_rx_here(rx, &rx->part, rx->at);
	rx->bth = rx->headers;
	if (rx->at + linear <= skb_headlen(rx->skb))
		rx->bth = rx->skb->data + rx->at;
	else if (likely(rx->here && linear == PEAL_HEADERS_MAX))
		memcpy(rx->headers, rx->here, PEAL_HEADERS_MAX);
	else if (rx->here)
		memcpy(rx->headers, rx->here, linear);
	else if (WARN_ON_ONCE(skb_copy_bits(rx->skb, rx->at, rx->headers, linear)))
		memset(rx->headers, 0, linear);		/* the range lies inside the skb */
	drop = peal_packet_parse(rx->bth, linear, rx->bytes, &rx->packet);
	rx->payload = rx->at + rx->packet.header_bytes;
	rx->packet.flow = rx->flow;
	return drop;
}

void peal_rx_read_again(struct sk_buff *skb, struct peal_rx_packet *rx)
{
	peal_rx_begin(skb, rx);
	peal_rx_parse(rx);
}

/*
 * The IP header of this packet. In a train, the stack would write such a header if it divided the
 * skb, and the sender has computed the ICRC for it: the identifications count. The ICRC does not
 * cover the checksum, so that is not right here in a train.
 */
static void peal_rx_ip(const struct peal_rx_packet *rx, void *to)
{
	u32 udp_bytes = sizeof(struct udphdr) + rx->bytes;

	if (rx->ipv6) {
		struct ipv6hdr *ip = to;

		*ip = *ipv6_hdr(rx->skb);
		if (rx->train)
			ip->payload_len = htons(udp_bytes);
	} else {
		struct iphdr *ip = to;

		*ip = *ip_hdr(rx->skb);
		if (!rx->train)
			return;
		ip->tot_len = htons(sizeof(*ip) + udp_bytes);
		ip->id = htons(ntohs(ip->id) + rx->number);
	}
}

static void peal_rx_checked_ip(const struct peal_rx_packet *rx, void *to)
{
	peal_rx_ip(rx, to);
	if (rx->train && !rx->ipv6)
		ip_send_check(to);
}

bool peal_rx_own(struct peal_rx_packet *rx)
{
	u32 ip_bytes = rx->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	u32 front = ip_bytes + sizeof(struct udphdr);
	struct udphdr *udp;
	struct sk_buff *skb;

	if (!rx->train)
		return true;
	skb = alloc_skb(front + rx->bytes, GFP_ATOMIC | __GFP_NOWARN);
	if (!skb)
		return false;
	skb_reset_network_header(skb);
	peal_rx_checked_ip(rx, skb_put(skb, ip_bytes));
	udp = skb_put_data(skb, rx->skb->data - sizeof(*udp), sizeof(*udp));
	udp->len = htons(sizeof(*udp) + rx->bytes);	/* it was that of the train */
	if (skb_copy_bits(rx->skb, rx->at, skb_put(skb, rx->bytes), rx->bytes)) {
		kfree_skb(skb);
		return false;
	}
	__skb_pull(skb, front);
	*peal_arrival(skb) = *peal_arrival(rx->skb);
	rx->payload -= rx->at;
	rx->here = skb->data;
	rx->part = (struct peal_rx_part){ .end = rx->bytes, .bytes = skb->data };
	rx->at = 0;
	rx->number = 0;
	rx->train = false;
	rx->skb = skb;
	return true;
}

bool peal_rx_same(struct sk_buff *kept, const struct peal_rx_packet *rx)
{
	u8 one[PEAL_RX_PIECE], another[PEAL_RX_PIECE];
	struct peal_rx_packet other;
	const void *x, *y;
	u32 at, n;

	peal_rx_read_again(kept, &other);
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

/* Write the bytes over which the ICRC begins. Return: how many they are. */
static u32 peal_rx_icrc_head(const struct peal_rx_packet *rx, __be32 *head)
{
	struct udphdr udp = *(const struct udphdr *)(rx->skb->data - sizeof(udp));
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} ip PEAL_UNINITIALIZED;

	peal_rx_ip(rx, &ip);
	if (rx->train)
		udp.len = htons(sizeof(udp) + rx->bytes);
	return peal_icrc_head(head, rx->ipv6, &ip, &udp, rx->bth);
}

bool peal_rx_icrc_is_right(struct peal_rx_packet *rx)
{
	u32 from = rx->at + PEAL_BTH_BYTES, end = rx->at + rx->bytes - PEAL_ICRC_BYTES;
	__be32 head[PEAL_ICRC_HEAD_MOST / sizeof(__be32)] PEAL_UNINITIALIZED;
	struct peal_pieces pieces PEAL_UNINITIALIZED;
	struct sk_buff *skb = rx->skb;
	u32 head_bytes, crc, n;
	const u8 *data;
	__le32 icrc;
	bool fpu;

	head_bytes = peal_rx_icrc_head(rx, head);
	fpu = peal_fpu_begin(rx->bytes);
	crc = peal_crc_begin(head, head_bytes, rx->ipv6, fpu);
	rx->head_crc = crc;
	if (likely(rx->here)) {
		crc = peal_crc_add(crc, rx->here + PEAL_BTH_BYTES, end - from, fpu);
	} else {
		peal_rx_pieces(&pieces, skb, from, end - from);
		while ((n = peal_rx_next(&pieces, &data)))
			crc = peal_crc_add(crc, data, n, fpu);
	}
	peal_fpu_end(fpu);
	if (likely(rx->here))
		memcpy(&icrc, rx->here + (end - rx->at), sizeof(icrc));
	else if (skb_copy_bits(skb, end, &icrc, sizeof(icrc)))
		return false;
	return le32_to_cpu(icrc) == peal_icrc_end(crc);
}

void peal_rx_check_train(const struct peal_rx_packet *rx, struct peal_rx_icrcs *icrcs)
{
	u32 most = min_t(u32, (rx->skb->len - rx->at) / rx->bytes, BITS_PER_TYPE(icrcs->right));
	u32 end = rx->bytes - PEAL_ICRC_BYTES, head_bytes, word_crc, crc, n;
	__be32 head[PEAL_ICRC_HEAD_MOST / sizeof(__be32)] PEAL_UNINITIALIZED;
	struct peal_rx_part part = rx->part;
	const u16 first_id = rx->ipv6 ? 0 : ntohs(ip_hdr(rx->skb)->id) + rx->number;
	u16 id = first_id;
	const u32 word = sizeof(__be32);	/* the first of the BTH */
	const u8 *here = NULL;
	__le32 icrc;
	bool fpu;

	icrcs->begin = rx->number;
	icrcs->right = 0;
	head_bytes = peal_rx_icrc_head(rx, head) - (PEAL_BTH_BYTES - word);
	fpu = peal_fpu_begin(most * rx->bytes);
	word_crc = peal_crc_begin(head, head_bytes, rx->ipv6, fpu);
	for (n = 0; n < most; n++) {
		here = peal_rx_behind(rx, &part, here, rx->at + n * rx->bytes);
		if (!here || memcmp(here, rx->bth, word))
			break;
		word_crc = peal_icrc_word_of(word_crc, rx->ipv6, id, first_id + n);
		id = first_id + n;
		crc = peal_icrc_behind_word(word_crc, here);
		crc = peal_crc_add(crc, here + word, end - word, fpu);
		memcpy(&icrc, here + end, sizeof(icrc));
		icrcs->right |= (u64)(le32_to_cpu(icrc) == peal_icrc_end(crc)) << n;
	}
	peal_fpu_end(fpu);
	icrcs->end = icrcs->begin + n;
}

void peal_rx_extend(struct peal_rx_packet *rx, u32 most)
{
	u32 most_in_skb = (rx->skb->len - rx->at) / rx->bytes, crc, psn = rx->packet.psn;
	u32 header_bytes = rx->packet.header_bytes, end = rx->bytes - PEAL_ICRC_BYTES;
	struct peal_rx_part part = rx->part;
	u16 id = rx->ipv6 ? 0 : ntohs(ip_hdr(rx->skb)->id);
	bool fpu, ack_request = rx->packet.ack_request;
	u8 headers[PEAL_HEADERS_MAX] PEAL_UNINITIALIZED;
	u32 head_crc = rx->head_crc, more, at = rx->at;
	const u8 *here = NULL;
	__le32 icrc;

	most = min(most, most_in_skb);
	fpu = peal_fpu_begin(most * rx->bytes);
	for (more = 1; more < most; more++) {
		at += rx->bytes;
		here = peal_rx_behind(rx, &part, here, at);
		if (!here)
			break;
		/* The sender may still write the packet, so look only at a copy. */
		memcpy(headers, here, PEAL_BTH_BYTES);
		if (header_bytes > PEAL_BTH_BYTES)
			memcpy(headers, here, header_bytes);
		psn = peal_psn_add(psn, 1);
		if (!peal_packet_follows(rx->bth, headers, header_bytes, psn))
			break;
		head_crc = peal_icrc_next(head_crc, rx->ipv6, id + rx->number + more, psn);
		crc = head_crc ^ peal_icrc_flags(rx->bth, headers);
		crc = peal_crc_add(crc, here + PEAL_BTH_BYTES, end - PEAL_BTH_BYTES, fpu);
		memcpy(&icrc, here + end, sizeof(icrc));
		if (unlikely(le32_to_cpu(icrc) != peal_icrc_end(crc)))
			break;
		ack_request |= peal_packet_asks_ack(headers);
	}
	peal_fpu_end(fpu);
	rx->packet.more = more - 1;
	rx->packet.ack_request = ack_request;
}

bool peal_rx_parse_next(const struct peal_rx_packet *rx, struct peal_rx_packet *next)
{
	u32 packets = peal_packet_count(&rx->packet);

	*next = *rx;
	next->at += packets * rx->bytes;
	next->number += packets;
	next->bytes = min(rx->bytes, rx->skb->len - next->at);
	return next->bytes && !peal_rx_parse(next);
}

static noinline void peal_rx_copy_pieces(const struct peal_rx_packet *rx, u32 at, void *to,
					 u32 bytes)
{
	struct peal_pieces pieces PEAL_UNINITIALIZED;
	const u8 *data;
	u32 n;

	peal_rx_pieces(&pieces, rx->skb, at, bytes);
	for (; (n = peal_rx_next(&pieces, &data)); to += n)
		peal_copy(to, data, n);
}

/*
 * Copy payload, from @offset on. @at: offset of the packet from skb->data. @here: as rx->here, of
 * this packet. @fpu: as peal_fpu_copy().
 */
static void peal_rx_copy_of(const struct peal_rx_packet *rx, u32 at, const u8 *here, u32 offset,
			    void *to, u32 bytes, bool fpu)
{
	offset += rx->packet.header_bytes;
	if (likely(here))
		peal_fpu_copy(to, here + offset, bytes, fpu);
	else
		peal_rx_copy_pieces(rx, at + offset, to, bytes);
}

void peal_rx_copy(const struct peal_rx_packet *rx, u32 offset, void *to, u32 bytes)
{
	peal_rx_copy_of(rx, rx->at, rx->here, offset, to, bytes, false);
}

void peal_rx_scatter(const struct peal_rx_packet *rx, struct peal_cursor *to, u32 bytes)
{
	u32 payload = rx->packet.payload_bytes, offset = 0, at = rx->at, n;
	struct peal_rx_part part = rx->part;
	const u8 *here = rx->here, *behind = NULL;
	bool fpu = rx->packet.more && peal_fpu_begin_copy(bytes, payload);
	u64 room;
	void *dst;

	while (bytes) {
		room = bytes;
		dst = peal_cursor_take(to, &room);
		bytes -= room;
		for (; room; room -= n, dst += n, offset += n) {
			if (offset == payload) {	/* the next packet of the run */
				at += rx->bytes;
				behind = peal_rx_behind(rx, &part, behind, at);
				here = behind;
				offset = 0;
			}
			n = min_t(u32, room, payload - offset);
			peal_rx_copy_of(rx, at, here, offset, dst, n, fpu);
		}
	}
	peal_fpu_end(fpu);
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
	peal_rx_checked_ip(rx, to + front);
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

struct sk_buff *peal_reorder_mem_may(struct peal_reorder_mem *mem, struct peal_rx_packet *rx,
				     u32 mtu, u32 kept)
{
	long left = PEAL_REORDER_MEM_BYTES - atomic_long_read(&mem->bytes);

	if (rx->packet.payload_bytes > mtu || left < (long)(kept + 1) * PEAL_REORDER_MEM_PART ||
	    !peal_rx_own(rx) ||
	    rx->skb->truesize > PEAL_REORDER_MEM_PACKETS * mtu + PEAL_REORDER_MEM_OVERHEAD)
		return NULL;
	return rx->skb;
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
