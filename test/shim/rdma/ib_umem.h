/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The code only asks whether a region has one. */
#ifndef PEAL_SHIM_RDMA_IB_UMEM_H
#define PEAL_SHIM_RDMA_IB_UMEM_H

struct ib_umem {
	int unused;
};

#endif
