/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * The generic netlink family `peal`: options of devices and of the host, for administrators.
 *
 * Owns: the numbers of commands and attributes, as
 * Documentation/netlink/specs/peal.yaml describes them. Append, never renumber.
 * Does not know: verbs; what RDMA netlink offers is not repeated here.
 */
#ifndef RDMA_PEAL_NETLINK_H
#define RDMA_PEAL_NETLINK_H

#define PEAL_NL_FAMILY		"peal"
#define PEAL_NL_VERSION		1

enum peal_nl_command {
	PEAL_NL_CMD_UNSPEC,
	PEAL_NL_CMD_DEV_GET,	/* do: one by index or name; dump: all */
	PEAL_NL_CMD_DEV_SET,	/* needs CAP_NET_ADMIN */
	PEAL_NL_CMD_HOST_GET,
	PEAL_NL_CMD_HOST_SET,	/* the same, and the initial network namespace */
	PEAL_NL_CMD_COUNT_
};

enum peal_nl_dev_attr {
	PEAL_NL_DEV_UNSPEC,
	PEAL_NL_DEV_INDEX,		/* u32: as RDMA netlink numbers it */
	PEAL_NL_DEV_NAME,		/* string */
	PEAL_NL_DEV_DIRECT,		/* u8: 1 when the direct carrier may be used */
	PEAL_NL_DEV_MAX_RD_ATOMIC,	/* u32: 1..128 */
	PEAL_NL_DEV_COUNT_
};

enum peal_nl_host_attr {
	PEAL_NL_HOST_UNSPEC,
	PEAL_NL_HOST_DIRECT,		/* u32: enum peal_nl_scope */
	PEAL_NL_HOST_COUNT_
};

/* Between which queue pairs messages may go direct. Each includes those before it. */
enum peal_nl_scope {
	PEAL_NL_SCOPE_NONE,
	PEAL_NL_SCOPE_DEVICE,		/* of one device */
	PEAL_NL_SCOPE_NETNS,		/* also of two whose netdevs share a namespace */
	PEAL_NL_SCOPE_HOST,		/* of any two devices */
	PEAL_NL_SCOPE_COUNT_
};

#endif /* RDMA_PEAL_NETLINK_H */
