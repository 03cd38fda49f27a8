// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See sniff.h.
 */
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/skbuff.h>
#include <net/ip.h>

#include "base/table.h"
#include "net/sniff.h"

DEFINE_STATIC_KEY_FALSE(peal_sniff_key);

void peal_sniff_packet(struct peal_port *port, const struct sk_buff *skb)
{
	struct sk_buff *copy;
	struct ethhdr *eth;

	/* The headers of the copy are its own, because the stack goes on to write those of @skb. */
	copy = pskb_copy((struct sk_buff *)skb, GFP_ATOMIC);
	if (!copy) {
		peal_count(port->table, frames_missed);
		return;
	}
	__skb_pull(copy, skb_network_offset(copy));
	if (copy->protocol == htons(ETH_P_IP))
		ip_send_check(ip_hdr(copy));
	copy->dev = port->ndev;
	/* As on the loopback interface, where such a packet travels. */
	eth = skb_push(copy, ETH_HLEN);
	*eth = (struct ethhdr){ .h_proto = copy->protocol };
	skb_reset_mac_header(copy);
	peal_sniff_frame(port, copy);
}
