// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Packets out: from header values and payload to the stack.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/udp.h>
#include <net/dsfield.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <net/sock.h>

#include "base/compat.h"
#include "net/crc.h"
#include "net/path.h"
#include "net/port.h"
#include "net/sniff.h"
#include "net/tx_quota.h"

static u32 peal_tx_ip_bytes(const struct peal_path *path)
{
	return path->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

#define PEAL_TX_PAGES	16
/*
 * A first packet of at most so many bytes lies behind its IP header. A longer one lies in a page,
 * as all others do, because the memory behind the header is allocated for each train, and many
 * kernels fill it with zeros (init_on_alloc). But if the netdev needs linear skbs, the stack would
 * copy it.
 */
#define PEAL_TX_LINEAR_MOST	256

/*
 * Where packets are written, except short first ones of a train. A CPU uses a page until it is
 * full, and then the first one that no skb refers to any more. So few pages are used, which stay in
 * the cache, while few bytes are in flight. Only if all are referred to, it gives one up and
 * allocates another. Pages of the stack are 32 KiB, and the longest train needs three. So a host
 * whose packets are received soon allocates none. With softirqs off.
 */
struct peal_tx_pages {
	u32 now;
	struct page_frag at[PEAL_TX_PAGES];
};

static DEFINE_PER_CPU(struct peal_tx_pages, peal_tx_pages);

/* Bytes of @packet on the wire from BTH to ICRC. */
static u32 peal_tx_bytes(const struct peal_packet *packet)
{
	return peal_packet_opcode(packet)->header_bytes + ALIGN(packet->payload_bytes, 4) +
	       PEAL_ICRC_BYTES;
}

/*
 * How long may trains be? One packet, if the netdev needs a linear skb or has to be helped with
 * checksums. Otherwise a train costs less than its packets one by one, also where the stack has to
 * divide it for the netdev.
 */
static noinline void peal_tx_find_limit(struct peal_train *train)
{
	const netdev_features_t needs = NETIF_F_SG | NETIF_F_GSO;
	u32 front = peal_tx_ip_bytes(train->path) + sizeof(struct udphdr);
	const struct net_device *ndev;
	struct dst_entry *dst;

	train->limit = U16_MAX - front;
	train->longest = 0;
	train->most = 1;
	rcu_read_lock();
	dst = peal_path_route(train->path);
	if (!IS_ERR(dst)) {
		ndev = dst->dev;
		train->longest = dst_mtu(dst) - front;
		if ((ndev->features & needs) == needs && ndev->features & NETIF_F_CSUM_MASK &&
		    !dst_xfrm(dst)) {
			train->most = min_t(u32, READ_ONCE(ndev->gso_max_segs),
					    PEAL_TRAIN_PACKETS);
			train->limit = min_t(u32, READ_ONCE(ndev->gso_max_size), U16_MAX) - front;
		}
	}
	rcu_read_unlock();
}

/* Go on with another page: one that is free or not allocated yet, or else one to give up. */
static noinline struct page_frag *peal_tx_next_page(struct peal_tx_pages *pages)
{
	u32 i, next = (pages->now + 1) % PEAL_TX_PAGES;

	for (i = 0; i < PEAL_TX_PAGES; i++)
		if (!pages->at[i].page || page_ref_count(pages->at[i].page) == 1)
			break;
	pages->now = i < PEAL_TX_PAGES ? i : next;
	return &pages->at[pages->now];
}

/* Find a page with room for @bytes bytes. Return: false when there is none. */
static bool peal_tx_find_page(u32 bytes)
{
	struct peal_tx_pages *pages = this_cpu_ptr(&peal_tx_pages);
	struct page_frag *page = &pages->at[pages->now];

	if (likely(page->page && page->offset + bytes <= page->size))
		return true;
	page = peal_tx_next_page(pages);
	/* When memory is short, a page may be too small for a packet. */
	return skb_page_frag_refill(bytes, page, GFP_ATOMIC | __GFP_NOWARN) &&
	       page->offset + bytes <= page->size;
}

/*
 * May a packet of @bytes bytes be added now? If not, the others must be sent first. @count: so many
 * packets, from this one to the end of the message, are added together; 1 if the end is not.
 */
static bool peal_tx_fits(struct peal_train *train, u32 bytes, u32 count, u8 tos)
{
	if (!train->packets)
		return true;
	if (train->closed || bytes > train->segment || tos != train->tos)
		return false;
	if (!train->limit)
		peal_tx_find_limit(train);
	if (train->packets >= train->most || train->segment > train->longest ||
	    train->bytes + bytes > train->limit ||
	    skb_shinfo(train->skb)->nr_frags == MAX_SKB_FRAGS)
		return false;
	/*
	 * A shorter packet is the last of a train. If the rest of the message fits another train,
	 * all of it goes there, because a receiver would have to process this packet by itself.
	 */
	if (bytes < train->segment && count > 1 && count <= train->most &&
	    count * bytes <= train->limit)
		return false;
	return peal_tx_find_page(bytes);
}

/* Take @bytes bytes of the page that peal_tx_find_page() has found, for one or several packets. */
static u8 *peal_tx_fragment(struct peal_train *train, u32 bytes)
{
	struct peal_tx_pages *pages = this_cpu_ptr(&peal_tx_pages);
	struct page_frag *page = &pages->at[pages->now];
	struct sk_buff *skb = train->skb;
	int n = skb_shinfo(skb)->nr_frags;
	u8 *at = page_address(page->page) + page->offset;

	if (skb_can_coalesce(skb, n, page->page, page->offset)) {
		skb_frag_size_add(&skb_shinfo(skb)->frags[n - 1], bytes);
	} else {
		skb_fill_page_desc(skb, n, page->page, page->offset, bytes);
		get_page(page->page);
	}
	page->offset += bytes;
	skb->len += bytes;
	skb->data_len += bytes;
	skb->truesize += bytes;
	return at;
}

/*
 * Write the IP header of a packet of @bytes bytes. The ICRC covers length and identification, so
 * both must be final here. In IPv4 DF is set and the identification is 0, as RFC 6864 allows. In a
 * train it is the number of the packet, because the code that divides the train counts it up. The
 * stack adds the checksum.
 */
static void peal_tx_ip(const struct peal_path *path, void *to, u32 bytes, u16 number, u8 tos,
		       u8 hops)
{
	if (path->ipv6) {
		struct ipv6hdr *ip = to;

		ip6_flow_hdr(ip, tos, htonl(path->flow_label));
		ip->payload_len = htons(bytes - sizeof(*ip));
		ip->nexthdr = IPPROTO_UDP;
		ip->hop_limit = hops;
		memcpy(&ip->saddr, path->sgid.raw, sizeof(ip->saddr));
		memcpy(&ip->daddr, path->dgid.raw, sizeof(ip->daddr));
		return;
	}
	*(struct iphdr *)to = (struct iphdr){
		.version = 4,
		.ihl = sizeof(struct iphdr) / 4,
		.tos = tos,
		.tot_len = htons(bytes),
		.id = htons(number),
		.frag_off = htons(IP_DF),
		.ttl = hops,
		.protocol = IPPROTO_UDP,
		.saddr = ((struct in6_addr *)path->sgid.raw)->s6_addr32[3],
		.daddr = ((struct in6_addr *)path->dgid.raw)->s6_addr32[3],
	};
}

static u8 peal_tx_hops(const struct peal_path *path, struct dst_entry *dst)
{
	if (path->hop_limit)
		return path->hop_limit;
	if (path->ipv6)
		return path->multicast ? IPV6_DEFAULT_MCASTHOPS : ip6_dst_hoplimit(dst);
	return path->multicast ? 1 : ip4_dst_hoplimit(dst);
}

/*
 * Send no UDP checksum with a packet alone, not even in IPv6, because the ICRC covers more. RFC
 * 6935 allows this for such encapsulations. RNICs and rdma_rxe send none either, and accept packets
 * without one.
 */
static struct udphdr peal_tx_udp(const struct peal_path *path, u32 bytes)
{
	return (struct udphdr){
		.source = htons(path->sport),
		.dest = htons(PEAL_ROCE_PORT),
		.len = htons(sizeof(struct udphdr) + bytes),
	};
}

/*
 * Packets for a neighbour that does not answer wait for seconds in a queue of that neighbour, which
 * the stack bounds. While they wait there, they must not take the transmit quota of all other
 * packets.
 */
static noinline bool peal_tx_neighbour_is_silent(const struct peal_path *path,
						 struct dst_entry *dst)
{
	const struct in6_addr *to = (const struct in6_addr *)path->dgid.raw;
	struct neighbour *neighbour;
	bool silent;

	if (path->multicast)
		return false;
	neighbour = dst_neigh_lookup(dst, path->ipv6 ? (const void *)to : &to->s6_addr32[3]);
	if (!neighbour)
		return false;
	silent = !(READ_ONCE(neighbour->nud_state) & NUD_VALID);
	neigh_release(neighbour);
	return silent;
}

/*
 * Let the stack divide the skb where it must. It computes a UDP checksum for each packet, because
 * the code that divides an skb cannot leave the checksum out.
 */
static void peal_tx_offload(struct peal_train *train, struct udphdr *udp)
{
	const struct peal_path *path = train->path;
	struct sk_buff *skb = train->skb;
	u32 bytes = sizeof(*udp) + train->bytes;

	skb_shinfo(skb)->gso_type = SKB_GSO_UDP_L4;
	skb_shinfo(skb)->gso_size = train->segment;
	skb_shinfo(skb)->gso_segs = train->packets;
	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_transport_header(skb) - skb->head;
	skb->csum_offset = offsetof(struct udphdr, check);
	if (path->ipv6)
		udp->check = ~csum_ipv6_magic(&ipv6_hdr(skb)->saddr, &ipv6_hdr(skb)->daddr, bytes,
					      IPPROTO_UDP, 0);
	else
		udp->check = ~csum_tcpudp_magic(ip_hdr(skb)->saddr, ip_hdr(skb)->daddr, bytes,
						IPPROTO_UDP, 0);
}

/*
 * The priority of a packet. VLANs map it to that of the tag. Without a service level it follows
 * from the traffic class, as for a socket with IP_TOS.
 */
static u32 peal_tx_priority(const struct peal_path *path, u8 tos)
{
	return path->sl ? path->sl : rt_tos2priority(tos);
}

static void peal_tx_send(struct peal_train *train)
{
	u32 packets = train->packets, bytes = train->bytes;
	struct peal_path *path = train->path;
	struct peal_table *table = path->port->table;
	struct net *net = path->port->net;
	struct sk_buff *skb = train->skb;
	struct dst_entry *dst;
	bool linear;
	int ret = 0;

	peal_fpu_end(train->fpu);
	rcu_read_lock();
	dst = peal_path_route(path);
	if (IS_ERR(dst)) {
		ret = PTR_ERR(dst);
		goto free;
	}
	linear = !(dst->dev->features & NETIF_F_SG);
	if (unlikely(READ_ONCE(path->linear) != linear))
		WRITE_ONCE(path->linear, linear);
	peal_tx_ip(path, skb_network_header(skb), skb->len, 0, train->tos,
		   peal_tx_hops(path, dst));
	*udp_hdr(skb) = peal_tx_udp(path, bytes);
	if (packets > 1)
		peal_tx_offload(train, udp_hdr(skb));
	skb->protocol = htons(path->ipv6 ? ETH_P_IPV6 : ETH_P_IP);
	skb->priority = peal_tx_priority(path, train->tos);
	if (unlikely(peal_sniff_wants(path->port)) && peal_path_route_is_local(path, dst) &&
	    !(path->port->ndev->flags & IFF_LOOPBACK))
		peal_sniff_packet(path->port, skb);
	skb_dst_set_noref(skb, dst);
	if (likely(!peal_tx_quota_is_scarce(path->tx_quota)) ||
	    !peal_tx_neighbour_is_silent(path, dst)) {
		peal_tx_quota_charge(path->tx_quota, skb);
	} else if (!peal_tx_quota_charge_silent(path->tx_quota, skb)) {
		ret = -ENOBUFS;
		goto free;
	}
	ret = path->ipv6 ? ip6_local_out(net, skb->sk, skb) : ip_local_out(net, skb->sk, skb);
	if (ret > 0)
		ret = net_xmit_errno(ret);
	goto out;
free:
	kfree_skb(skb);
out:
	rcu_read_unlock();
	if (likely(!ret)) {
		peal_count_by(table, packets_sent, packets);
		peal_count_by(table, packet_bytes_sent, bytes);
	} else {
		peal_count_by(table, packets_unsent, packets);
		if (ret == -EMSGSIZE)
			peal_count_by(table, packets_too_long, packets);
		if (!train->error) {
			train->error = ret;
			train->error_psn = train->psn;
		}
	}
	train->skb = NULL;
	train->packets = 0;
	train->bytes = 0;
	train->fpu = false;
}

/* Fill the padding, if there is any, and write the ICRC behind it. @end: end of the payload. */
static __always_inline void peal_tx_finish(u8 *end, u32 crc, u32 pad, bool fpu)
{
	__le32 icrc;

	if (unlikely(pad)) {
		memset(end, 0, pad);
		crc = peal_crc_add(crc, end, pad, fpu);
	}
	icrc = cpu_to_le32(peal_icrc_end(crc));
	memcpy(end + pad, &icrc, sizeof(icrc));
}

/*
 * The CRC of the LRH, IP and UDP headers of packet @number of a train. From its BTH to its ICRC the
 * packet has @bytes bytes.
 */
static noinline u32 peal_tx_front_crc(const struct peal_path *path, u32 bytes, u16 number, bool fpu)
{
	u32 ip_bytes = peal_tx_ip_bytes(path), front = ip_bytes + sizeof(struct udphdr);
	__be32 head[PEAL_ICRC_HEAD_MOST / sizeof(__be32)] PEAL_UNINITIALIZED;

	/* TOS and hop limit are not covered. */
	peal_tx_ip(path, head, front + bytes, number, 0, 0);
	*(struct udphdr *)((u8 *)head + ip_bytes) = peal_tx_udp(path, bytes);
	memset((u8 *)head + front, 0, PEAL_BTH_BYTES);
	peal_icrc_mask(head, path->ipv6);
	return peal_crc_add(PEAL_ICRC_FRONT, head, front, fpu);
}

/* What the MIDDLE packets of a run have in common. */
struct peal_tx_run {
	u32 header_bytes;		/* 0: not built yet for this train */
	u32 crc;			/* up to the end of the BTH, of its last packet so far */
	u8 headers[PEAL_HEADERS_MAX];	/* of its first packet, without AckReq */
};

/* Write the headers of @packet, the first of a run. AckReq is that of the last one. */
static u32 peal_tx_build(const struct peal_packet *packet, u8 *bth)
{
	u32 bytes = peal_packet_build(packet, bth);

	if (packet->more)
		peal_packet_build_next(bth, packet->psn, false);
	return bytes;
}

/* Which of the hints path->front_crc is for the packet? */
static u32 peal_tx_kind(const struct peal_packet *packet)
{
	u32 has = peal_packet_opcode(packet)->has;

	if (!packet->payload_bytes)
		return 0;
	return !(has & PEAL_HAS_FIRST) == !(has & PEAL_HAS_LAST) ? 1 : 2;
}

/*
 * The first packet of a train. The IP and UDP headers in front of it are written by peal_tx_send().
 * Most trains have no other packet. Its BTH is masked in place for the ICRC. The CRC of the IP and
 * UDP headers is often known, because a packet of the same length left before. @run: is begun if
 * other packets of the run follow. Return: false when there is no memory.
 */
static bool peal_tx_first(struct peal_train *train, const struct peal_packet *packet, u32 bytes,
			  struct peal_crc_source *source, struct peal_tx_run *run)
{
	struct peal_path *path = train->path;
	u32 ip_bytes = peal_tx_ip_bytes(path), front = ip_bytes + sizeof(struct udphdr);
	u64 *hint = &path->front_crc[peal_tx_kind(packet)], known = READ_ONCE(*hint);
	bool in_page = bytes > PEAL_TX_LINEAR_MOST && !READ_ONCE(path->linear) &&
		       peal_tx_find_page(bytes);
	u32 header_bytes, covered = 0, crc = known;
	struct sk_buff *skb;
	u8 *bth, marks;

	skb = alloc_skb(MAX_HEADER + front + (in_page ? 0 : bytes), GFP_ATOMIC | __GFP_NOWARN);
	if (unlikely(!skb))
		return false;
	skb_reserve(skb, MAX_HEADER);
	skb_reset_network_header(skb);
	skb_set_transport_header(skb, ip_bytes);
	__skb_put(skb, front);
	train->skb = skb;
	bth = in_page ? peal_tx_fragment(train, bytes) : __skb_put(skb, bytes);
	train->first = bth;
	train->psn = packet->psn;
	train->segment = bytes;
	train->fpu = peal_fpu_begin(bytes);

	header_bytes = peal_tx_build(packet, bth);
	if (packet->more) {
		memcpy(run->headers, bth, header_bytes);
		run->header_bytes = header_bytes;
	}
	marks = bth[PEAL_BTH_MARKS];
	if (unlikely(known >> 32 != bytes)) {
		crc = peal_tx_front_crc(path, bytes, 0, train->fpu);
		WRITE_ONCE(*hint, (u64)bytes << 32 | crc);
	}
	train->front_crc = crc;
	train->has_word_crc = false;
	bth[PEAL_BTH_MARKS] = 0xff;
	if (packet->more) {
		covered = PEAL_BTH_BYTES;
		crc = peal_icrc_add(crc, bth, covered);
		run->crc = crc;
	}
	crc = peal_crc_gather(crc, bth + header_bytes, header_bytes - covered, source,
			      packet->payload_bytes, train->fpu);
	bth[PEAL_BTH_MARKS] = marks;
	peal_tx_finish(bth + header_bytes + packet->payload_bytes, crc, -packet->payload_bytes & 3,
		       train->fpu);
	return true;
}

/*
 * The next packet of a train has @bytes bytes and the BTH @bth. Return: the CRC of its headers up
 * to the end of the first word of the BTH. Only the last packet of a train may be shorter than the
 * first.
 */
static u32 peal_tx_word_crc(struct peal_train *train, const u8 *bth, u32 bytes)
{
	const u8 *first = train->first;

	if (unlikely(bytes != train->segment))
		return peal_icrc_add(peal_tx_front_crc(train->path, bytes, train->packets,
						       train->fpu), bth, sizeof(__be32));
	if (!train->has_word_crc) {
		train->word_crc = peal_icrc_add(train->front_crc, first, sizeof(__be32));
		train->word_number = 0;
		train->has_word_crc = true;
	}
	train->word_crc = peal_icrc_word_of(train->word_crc, train->path->ipv6, train->word_number,
					    train->packets);
	train->word_number = train->packets;
	return train->word_crc ^ peal_icrc_word(first, bth);
}

/* Another packet of a train. */
static void peal_tx_next(struct peal_train *train, const struct peal_packet *packet, u32 bytes,
			 struct peal_crc_source *source)
{
	u32 payload_bytes = packet->payload_bytes, header_bytes, crc;
	u8 *bth = peal_tx_fragment(train, bytes), *payload;

	if (!train->fpu)
		train->fpu = peal_fpu_begin(train->bytes + bytes);
	header_bytes = peal_tx_build(packet, bth);
	payload = bth + header_bytes;
	crc = peal_icrc_behind_word(peal_tx_word_crc(train, bth, bytes), bth);
	crc = peal_crc_gather(crc, payload, header_bytes - sizeof(__be32), source, payload_bytes,
			      train->fpu);
	peal_tx_finish(payload + payload_bytes, crc, -payload_bytes & 3, train->fpu);
}

static noinline void peal_tx_begin_run(struct peal_tx_run *run, const struct peal_train *train,
				       const struct peal_packet *packet, u32 bytes)
{
	__be32 head[PEAL_ICRC_HEAD_MOST / sizeof(__be32)] PEAL_UNINITIALIZED;
	const struct peal_path *path = train->path;
	struct udphdr udp = peal_tx_udp(path, bytes);
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} ip PEAL_UNINITIALIZED;
	u32 head_bytes;

	run->header_bytes = peal_tx_build(packet, run->headers);
	peal_tx_ip(path, &ip, peal_tx_ip_bytes(path) + sizeof(udp) + bytes, train->packets, 0, 0);
	head_bytes = peal_icrc_head(head, path->ipv6, &ip, &udp, run->headers);
	run->crc = peal_crc_begin(head, head_bytes, path->ipv6, train->fpu);
}

/*
 * Other packets of a train, as many of the MIDDLE packets from @packet on as there is room for.
 * They have the length of the first packet. They fill the path MTU, so they have no padding.
 * peal_tx_fits() has found that there is room for one. Return: how many.
 */
static u32 peal_tx_next_of_run(struct peal_train *train, const struct peal_packet *packet,
			       u32 bytes, struct peal_crc_source *source, struct peal_tx_run *run)
{
	const struct peal_tx_pages *pages = this_cpu_ptr(&peal_tx_pages);
	const struct page_frag *page = &pages->at[pages->now];
	u32 payload_bytes = packet->payload_bytes, header_bytes, crc, psn = packet->psn;
	u32 ack_at = packet->ack_request ? packet->more : U32_MAX, n, i;
	u8 *bth, *payload;
	bool fpu;

	n = min3(packet->more + 1, train->most - train->packets,
		 min(train->limit - train->bytes, page->size - page->offset) / bytes);
	bth = peal_tx_fragment(train, n * bytes);
	if (!train->fpu)
		train->fpu = peal_fpu_begin(train->bytes + n * bytes);
	fpu = train->fpu;
	if (!run->header_bytes)
		peal_tx_begin_run(run, train, packet, bytes);
	else
		run->crc = peal_icrc_next(run->crc, train->path->ipv6, train->packets, psn);
	header_bytes = run->header_bytes;
	for (i = 0;; bth += bytes) {
		if (likely(header_bytes == PEAL_BTH_BYTES))
			memcpy(bth, run->headers, PEAL_BTH_BYTES);
		else
			memcpy(bth, run->headers, header_bytes);
		crc = run->crc;
		if (unlikely(i == ack_at)) {
			peal_packet_build_next(bth, psn, true);
			crc ^= peal_icrc_flags(run->headers, bth);
		} else {
			peal_packet_build_next(bth, psn, false);
		}
		payload = bth + header_bytes;
		crc = peal_crc_gather(crc, payload, header_bytes - PEAL_BTH_BYTES, source,
				      payload_bytes, fpu);
		peal_tx_finish(payload + payload_bytes, crc, 0, fpu);
		if (++i == n)
			return n;
		psn = peal_psn_add(psn, 1);
		run->crc = peal_icrc_next(run->crc, train->path->ipv6, train->packets + i, psn);
	}
}

bool peal_tx_add(struct peal_train *train, const struct peal_packet *packet, u8 tos,
		 struct peal_cursor *payload)
{
	struct peal_crc_source source = peal_crc_from(payload, peal_packet_bytes(packet));
	u32 count = peal_packet_count(packet), number, bytes, n = 0;
	struct peal_tx_run run PEAL_UNINITIALIZED;
	struct peal_packet part PEAL_UNINITIALIZED;

	run.header_bytes = 0;
	for (number = 0; number < count; number += n) {
		const struct peal_packet *now = packet;

		if (count > 1) {
			if (number && n <= part.more)
				peal_packet_skip(&part, n);
			else
				peal_packet_part(packet, number, &part);
			now = &part;
		}
		n = 1;
		bytes = peal_tx_bytes(now);
		if (!peal_tx_fits(train, bytes, packet->last ? count - number : 1, tos))
			peal_tx_send(train);
		if (!train->packets) {
			run.header_bytes = 0;
			if (unlikely(!peal_tx_first(train, now, bytes, &source, &run))) {
				peal_count_by(train->path->port->table, packets_unsent,
					      count - number);
				return false;
			}
		} else if (now->more && bytes == train->segment) {
			n = peal_tx_next_of_run(train, now, bytes, &source, &run);
		} else {
			peal_tx_next(train, now, bytes, &source);
		}
		train->tos = tos;
		train->bytes += n * bytes;
		train->closed = bytes < train->segment;
		train->packets += n;
	}
	return true;
}

int peal_tx_flush(struct peal_train *train)
{
	int error;

	if (train->packets)
		peal_tx_send(train);
	error = train->error;
	train->error = 0;
	return error;
}

/* The GID may be that of a VLAN on the device's netdev. Frames of this netdev have a tag then. */
static void peal_tx_tag(const struct peal_path *path, struct sk_buff *skb)
{
	struct net_device *ndev;

	rcu_read_lock();
	ndev = dev_get_by_index_rcu(path->port->net, path->ifindex);
	if (ndev && is_vlan_dev(ndev))
		__vlan_hwaccel_put_tag(skb, vlan_dev_vlan_proto(ndev),
				       vlan_dev_vlan_id(ndev) |
				       vlan_dev_get_egress_qos_mask(ndev, skb->priority));
	rcu_read_unlock();
}

void peal_tx_show(struct peal_path *path, struct peal_port *to, const struct peal_packet *packet,
		  struct peal_cursor *payload)
{
	struct peal_crc_source source = peal_crc_from(payload, packet->payload_bytes);
	struct peal_port *from = path->port;
	u32 bytes = peal_tx_bytes(packet);
	struct sk_buff *skb, *copy = NULL;
	struct peal_train train;
	struct ethhdr *eth;

	if (!peal_sniff_wants(from) && !peal_sniff_wants(to))
		return;
	peal_tx_begin(&train, path);
	if (!peal_tx_first(&train, packet, bytes, &source, NULL)) {
		peal_count(from->table, frames_missed);
		return;
	}
	peal_fpu_end(train.fpu);
	skb = train.skb;
	skb->protocol = htons(path->ipv6 ? ETH_P_IPV6 : ETH_P_IP);
	peal_tx_ip(path, skb_network_header(skb), skb->len, 0, path->tclass,
		   path->hop_limit ?: IPDEFTTL);
	if (!path->ipv6)
		ip_send_check(ip_hdr(skb));
	*udp_hdr(skb) = peal_tx_udp(path, bytes);
	eth = skb_push(skb, ETH_HLEN);
	ether_addr_copy(eth->h_dest, to->ndev->dev_addr);
	ether_addr_copy(eth->h_source, from->ndev->dev_addr);
	eth->h_proto = skb->protocol;
	skb_reset_mac_header(skb);
	skb->priority = peal_tx_priority(path, path->tclass);
	peal_tx_tag(path, skb);
	if (to != from && peal_sniff_wants(to)) {
		copy = peal_sniff_wants(from) ? skb_clone(skb, GFP_ATOMIC) : skb;
		if (copy)
			peal_sniff_frame(to, copy);
		else
			peal_count(to->table, frames_missed);
	}
	if (copy != skb)
		peal_sniff_frame(from, skb);
}

void peal_tx_exit(void)
{
	struct page *page;
	int cpu, i;

	for_each_possible_cpu(cpu)
		for (i = 0; i < PEAL_TX_PAGES; i++) {
			page = per_cpu(peal_tx_pages, cpu).at[i].page;
			if (page)
				put_page(page);
		}
}

bool peal_tx_grh(struct peal_path *path, u8 opcode, u32 payload_bytes, void *to)
{
	u32 ip_bytes = peal_tx_ip_bytes(path), front = sizeof(struct ib_grh) - ip_bytes;
	u32 bytes = ip_bytes + sizeof(struct udphdr) + peal_wire_opcode(opcode)->header_bytes +
		    ALIGN(payload_bytes, 4) + PEAL_ICRC_BYTES;
	struct dst_entry *dst;
	bool local;

	rcu_read_lock();
	dst = peal_path_route(path);
	local = !IS_ERR(dst) && peal_path_route_is_local(path, dst);
	if (likely(local)) {
		memset(to, 0, front);
		peal_tx_ip(path, to + front, bytes, 0, path->tclass, peal_tx_hops(path, dst));
		/* The stack never sees this header. */
		if (!path->ipv6)
			ip_send_check(to + front);
	}
	rcu_read_unlock();
	return local;
}
