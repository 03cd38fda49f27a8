/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Why a received packet was dropped. The enum, the device counters `drop_<name>` and the
 * words of the tracepoint all come from this one list.
 *
 * Owns: the list.
 * Does not know: where packets are dropped.
 */
#ifndef PEAL_DROP_H
#define PEAL_DROP_H

#define PEAL_DROPS(X)								\
	X(short, "shorter than its headers")					\
	X(version, "transport header version is not 0")				\
	X(opcode, "unknown opcode, or not of this transport")			\
	X(options, "IP options, extension headers or a fragment, without a defined ICRC") \
	X(pad, "pad count or payload length does not fit the opcode")		\
	X(icrc, "invariant CRC is wrong")					\
	X(pkey, "partition key does not match")					\
	X(qkey, "queue key does not match")					\
	X(qpn, "no such queue pair")						\
	X(socket, "no such queue pair, and the program with a socket there gets no packet") \
	X(state, "queue pair is not ready to receive")				\
	X(source, "sender is not the connected peer")				\
	X(path, "challenge came in by another netdev than leads to the peer")	\
	X(group, "no queue pair is attached to the multicast group")		\
	X(stale, "response to, or repetition of, nothing that is known")			\
	X(sequence, "out of order, and not kept")				\
	X(conflict, "out of order, and another packet speaks against it")	\
	X(order, "opcode does not continue the message")			\
	X(receive, "no receive was posted (UC, UD, raw packets)")		\
	X(length, "longer than the receive buffer (UC, UD, raw packets)")	\
	X(rights, "key, range or right is missing (UC)")			\
	X(resource, "no memory, queue room or time for it")

#define PEAL_DROP_ENUM_(name, text) PEAL_DROP_##name,
enum peal_drop {
	PEAL_DROP_none,		/* not dropped */
	PEAL_DROPS(PEAL_DROP_ENUM_)
	PEAL_DROP_COUNT
};

#undef PEAL_DROP_ENUM_

#endif
