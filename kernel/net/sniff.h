/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What sniffers of a device see besides the frames of its netdev: packets that travel inside this
 * host, and messages that travel without packets, each as the packet that it would be.
 *
 * Owns: the switch that makes this cost nothing while no device has a sniffer.
 * Does not know: the sniffers. raw/raw.c gives them the frames.
 */
#ifndef PEAL_SNIFF_H
#define PEAL_SNIFF_H

#include <linux/jump_label.h>

#include "net/port.h"

struct peal_cursor;
struct peal_packet;
struct peal_path;
struct sk_buff;

DECLARE_STATIC_KEY_FALSE(peal_sniff_key);	/* a device has a sniffer */

/* Does any device have a sniffer? */
static inline bool peal_sniff_is_on(void)
{
	return static_branch_unlikely(&peal_sniff_key);
}

static inline bool peal_sniff_wants(const struct peal_port *port)
{
	return peal_sniff_is_on() && READ_ONCE(port->sniffed);
}

/* Give sniffers of the device a frame, which begins at skb->data. Consumes @skb. */
void peal_sniff_frame(struct peal_port *port, struct sk_buff *skb);
/*
 * A packet, or a train of them, travels inside this host, so no frame of the netdev shows it to the
 * sniffers of the device. The network header of @skb is set. @skb stays as it is.
 */
void peal_sniff_packet(struct peal_port *port, const struct sk_buff *skb);

#endif
