/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sockets of the kernel: rdma_rxe's, a tunnel's, or those of peal's transmit quotas.
 *
 * Owns: the rule which sockets may have packets of an address of a device.
 * Does not know: packets.
 */
#ifndef PEAL_KERNEL_SOCKET_H
#define PEAL_KERNEL_SOCKET_H

#include <linux/in.h>
#include <linux/udp.h>
#include <net/sock.h>

/*
 * Is @sk a socket that the kernel has made for itself? The one of AF_RXRPC is not, because it
 * carries the data of a program that chose the port.
 */
static inline bool peal_socket_is_kernels(const struct sock *sk)
{
	return sk_fullsock(sk) && sk->sk_kern_sock &&
	       !(sk->sk_protocol == IPPROTO_UDP && udp_sk(sk)->encap_type == UDP_ENCAP_RXRPC);
}

#endif
