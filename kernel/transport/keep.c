// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See keep.h.
 */
#include "net/receive.h"
#include "proto/early.h"
#include "transport/keep.h"
#include "verbs/dev.h"

/*
 * In bytes of skbs with their overhead (truesize): a hundred times the window of a
 * peer like us, at the largest path MTU.
 */
#define PEAL_KEEP_BYTES		(64L << 20)

/*
 * Who keeps n packets may keep another while n + 1 of these are left. That is no
 * limit to anybody before half of it all is in use; then who keeps much stops first,
 * and who keeps nothing yet finds something left.
 */
#define PEAL_KEEP_PART		(PEAL_KEEP_BYTES / 2 / PEAL_EARLY_SLOTS)

/*
 * What one packet may weigh, in payloads of the path MTU and bytes: drivers take a
 * buffer of a page or of a jumbo frame for each.
 */
#define PEAL_KEEP_PACKETS	4
#define PEAL_KEEP_OVERHEAD	(16 << 10)

/*
 * The requester sends a missing packet again within a round trip. When that is lost as
 * well, the requester's timeout helps. The queue pair's own timeout is the best guess of it;
 * before that is set, or without one, a second is. A packet that has waited for several
 * timeouts waits for nothing that the requester knows of.
 */
#define PEAL_KEEP_TIMEOUTS	2
#define PEAL_KEEP_LEAST_NS	(50 * NSEC_PER_MSEC)
#define PEAL_KEEP_MOST_NS	(30 * NSEC_PER_SEC)

/* What the network stack divides into fragments (SKB_FRAG_PAGE_ORDER). */
#define PEAL_KEEP_PAGES		(32 << 10)

static struct peal_keep *peal_keep_of(const struct peal_qp *qp)
{
	return &peal_dev(qp->ib.device)->keep;
}

void peal_keep_end(const struct peal_keep *keep)
{
	WARN_ON(atomic_long_read(&keep->bytes));
}

u64 peal_keep_ns(const struct peal_qp *qp)
{
	u64 timeout = qp->attr.timeout ? 4096ULL << qp->attr.timeout : NSEC_PER_SEC;

	return clamp_t(u64, PEAL_KEEP_TIMEOUTS * timeout, PEAL_KEEP_LEAST_NS, PEAL_KEEP_MOST_NS);
}

static bool peal_keep_shares(const struct peal_keep *keep, u32 kept)
{
	return PEAL_KEEP_BYTES - atomic_long_read(&keep->bytes) >=
	       (long)(kept + 1) * PEAL_KEEP_PART;
}

struct sk_buff *peal_keep_may(const struct peal_qp *qp, const struct peal_datagram *dg, u32 kept)
{
	u32 mtu = ib_mtu_enum_to_int(qp->attr.path_mtu);

	if (dg->packet.payload_bytes > mtu ||
	    dg->skb->truesize > PEAL_KEEP_PACKETS * mtu + PEAL_KEEP_OVERHEAD)
		return NULL;
	return peal_keep_shares(peal_keep_of(qp), kept) ? dg->skb : NULL;
}

/*
 * truesize knows a part of a page, but the skb holds the page: 32 KiB of a sender's
 * or a driver's fragments. What is kept gets memory of its own, and where there is
 * none it weighs as much as it holds.
 */
static void peal_keep_detach(struct sk_buff *skb)
{
	u32 pages = skb_shinfo(skb)->nr_frags + skb->head_frag;

	if (!pages && !skb_has_frag_list(skb))
		return;
	if (skb_linearize(skb) || (skb->head_frag && pskb_expand_head(skb, 0, 0, GFP_ATOMIC)))
		skb->truesize += pages * PEAL_KEEP_PAGES;
	else
		skb->truesize = SKB_TRUESIZE(skb_end_offset(skb));
}

/*
 * What the stack attached on the way up has been looked at (the IPsec policy), and would stay
 * as long as the packet: a security path holds the states that it names, and their modules.
 */
void peal_keep_add(const struct peal_qp *qp, struct sk_buff *skb)
{
	skb_ext_reset(skb);
	peal_keep_detach(skb);
	atomic_long_add(skb->truesize, &peal_keep_of(qp)->bytes);
	peal_count(qp->table, early_kept);
}

void peal_keep_take(const struct peal_qp *qp, const struct sk_buff *skb)
{
	atomic_long_sub(skb->truesize, &peal_keep_of(qp)->bytes);
}

void peal_keep_lose(const struct peal_qp *qp, struct sk_buff *skb)
{
	peal_keep_take(qp, skb);
	peal_count(qp->table, early_lost);
	kfree_skb(skb);
}
