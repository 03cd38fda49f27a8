/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The few names of the RDMA core that the data path's parts use. */
#ifndef PEAL_SHIM_RDMA_IB_VERBS_H
#define PEAL_SHIM_RDMA_IB_VERBS_H

#include <linux/atomic.h>
#include <linux/kernel.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* Numbers of the kernel's rdma/ib_verbs.h. They are part of the interface. */
enum ib_access_flags {
	IB_ACCESS_LOCAL_WRITE	= 1,
	IB_ACCESS_REMOTE_WRITE	= 2,
	IB_ACCESS_REMOTE_READ	= 4,
	IB_ACCESS_REMOTE_ATOMIC	= 8,
};

enum ib_wc_status {
	IB_WC_SUCCESS,
	IB_WC_LOC_LEN_ERR,
	IB_WC_LOC_QP_OP_ERR,
	IB_WC_LOC_EEC_OP_ERR,
	IB_WC_LOC_PROT_ERR,
	IB_WC_WR_FLUSH_ERR,
	IB_WC_MW_BIND_ERR,
	IB_WC_BAD_RESP_ERR,
	IB_WC_LOC_ACCESS_ERR,
	IB_WC_REM_INV_REQ_ERR,
	IB_WC_REM_ACCESS_ERR,
	IB_WC_REM_OP_ERR,
	IB_WC_RETRY_EXC_ERR,
	IB_WC_RNR_RETRY_EXC_ERR,
};

enum ib_mr_type {
	IB_MR_TYPE_MEM_REG,
	IB_MR_TYPE_SG_GAPS,
};

struct scatterlist;

struct ib_pd {
	int unused;
};

struct ib_mr {
	u32 lkey;
	u32 rkey;
};

struct ib_mw {
	u32 rkey;
};

#endif
