/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The few names of the RDMA core that the data path's parts use. */
#ifndef PEAL_KSHIM_RDMA_IB_VERBS_H
#define PEAL_KSHIM_RDMA_IB_VERBS_H

#include <linux/atomic.h>
#include <linux/kernel.h>
#include <linux/types.h>

/* Numbers of the kernel's rdma/ib_verbs.h, which are the interface's. */
enum ib_access_flags {
	IB_ACCESS_LOCAL_WRITE	= 1,
	IB_ACCESS_REMOTE_WRITE	= 2,
	IB_ACCESS_REMOTE_READ	= 4,
	IB_ACCESS_REMOTE_ATOMIC	= 8,
};

struct ib_pd {
	int unused;
};

struct ib_mr {
	u32 lkey;
	u32 rkey;
};

#endif
