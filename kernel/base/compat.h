/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Differences between the kernels that this module builds for: 6.1, 6.12, 7.2 and 7.3.
 *
 * Owns: shims that make the older kernels look like the newest. The probes in Kbuild
 * (PEAL_HAS_*) decide which shims are used, not the version, wherever a name can be probed.
 * Does not know: anything about peal.
 */
#ifndef PEAL_COMPAT_H
#define PEAL_COMPAT_H

#include <linux/dma-buf.h>
#include <linux/hrtimer.h>
#ifdef PEAL_HAS_GSO_H
#include <net/gso.h>
#endif
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

/*
 * For large stack variables of the data path that are written before they are read. A
 * kernel that is built to zero all stack variables would zero them too, which takes longer
 * than a small message.
 */
#define PEAL_UNINITIALIZED	__attribute__((__uninitialized__))

/*
 * The last argument of create_cq: udata, or in newer kernels the attribute bundle that
 * contains it.
 */
#ifdef PEAL_HAS_CQ_ATTRS
#define PEAL_CQ_UDATA_ARG	struct uverbs_attr_bundle *attrs
#define PEAL_CQ_UDATA		(attrs ? &attrs->driver_udata : NULL)
#else
#define PEAL_CQ_UDATA_ARG	struct ib_udata *cq_udata
#define PEAL_CQ_UDATA		cq_udata
#endif

/* Newer kernels have another name for resize_cq, because kernel users do not have it. */
#ifdef PEAL_HAS_RESIZE_USER_CQ
#define PEAL_RESIZE_CQ_OP	resize_user_cq
#define PEAL_RESIZE_CQ_ENTRIES	unsigned int
#else
#define PEAL_RESIZE_CQ_OP	resize_cq
#define PEAL_RESIZE_CQ_ENTRIES	int
#endif

/*
 * The rights of FLUSH, and what a device can do. The core of older kernels does not know them. It
 * refuses to register a region with these rights, so there FLUSH is not offered to programs.
 */
#ifndef PEAL_HAS_FLUSH
#define IB_ACCESS_FLUSH_GLOBAL		BIT(8)
#define IB_ACCESS_FLUSH_PERSISTENT	BIT(9)
#define IB_DEVICE_FLUSH_GLOBAL		0
#define IB_DEVICE_ATOMIC_WRITE		BIT_ULL(40)
#endif

/* Older kernels have no name for these capabilities of on-demand paging. */
#ifndef PEAL_HAS_ODP_FLUSH
#define IB_ODP_SUPPORT_FLUSH		0
#define IB_ODP_SUPPORT_ATOMIC_WRITE	0
#endif

/* Newer kernels tell the port when a queue pair is bound to a counter. peal has one port. */
#ifdef PEAL_HAS_COUNTER_PORT
#define PEAL_COUNTER_QP(qp)	qp, u32 port
#else
#define PEAL_COUNTER_QP(qp)	qp
#endif

/* In newer kernels reg_user_mr has an argument for a DMA handle. peal has none to offer. */
#ifdef PEAL_HAS_DMAH
#define PEAL_MR_DMAH_ARG	struct ib_dmah *dmah,
#define PEAL_MR_DMAH		dmah
#else
#define PEAL_MR_DMAH_ARG
#define PEAL_MR_DMAH		NULL
#endif

/*
 * The last argument of reg_user_mr_dmabuf: the attribute bundle, or in older kernels the udata
 * in it.
 */
#ifdef PEAL_HAS_DMABUF_ATTRS
#define PEAL_DMABUF_UDATA_ARG	struct uverbs_attr_bundle *attrs
#define PEAL_DMABUF_UDATA	(&attrs->driver_udata)
#else
#define PEAL_DMABUF_UDATA_ARG	struct ib_udata *dmabuf_udata
#define PEAL_DMABUF_UDATA	dmabuf_udata
#endif

/* In newer kernels these take the buffer's lock only under another name. */
#ifdef PEAL_HAS_VMAP_UNLOCKED
#define peal_dma_buf_vmap(buf, map)	dma_buf_vmap_unlocked(buf, map)
#define peal_dma_buf_vunmap(buf, map)	dma_buf_vunmap_unlocked(buf, map)
#else
#define peal_dma_buf_vmap(buf, map)	dma_buf_vmap(buf, map)
#define peal_dma_buf_vunmap(buf, map)	dma_buf_vunmap(buf, map)
#endif

/*
 * Older kernels require this function of every dynamic importer of a DMA buffer. It has nothing to
 * do, because peal pins a buffer before it maps it, and a pinned buffer does not move. In newer
 * kernels it is optional. An importer that has it there promises to stop its access at any time,
 * which peal cannot.
 */
#ifdef PEAL_HAS_MOVE_NOTIFY
static inline void peal_dma_buf_moved(struct dma_buf_attachment *attach)
{
}

#define PEAL_DMABUF_MOVE_NOTIFY	.move_notify = peal_dma_buf_moved,
#else
#define PEAL_DMABUF_MOVE_NOTIFY
#endif

static inline struct ib_umem *peal_umem_get(struct ib_device *dev, u64 start, u64 length,
					    int access)
{
#ifdef PEAL_HAS_UMEM_GET_VA
	return ib_umem_get_va(dev, start, length, access);
#else
	return ib_umem_get(dev, start, length, access);
#endif
}

/*
 * The last arguments of the look-ups of a UDP socket: the table, which was the host's before each
 * network namespace had one, and no packet. The newest kernels have no argument for the table.
 */
#if !defined(PEAL_HAS_UDP_TABLE_ARG)
#define PEAL_UDP_TABLE(net)	NULL
#elif defined(PEAL_HAS_UDP_TABLE_OF_NET)
#define PEAL_UDP_TABLE(net)	(net)->ipv4.udp_table, NULL
#else
#define PEAL_UDP_TABLE(net)	&udp_table, NULL
#endif

/* A workqueue is bound to CPUs by default. Newer kernels require a flag that says so. */
#ifdef PEAL_HAS_WQ_PERCPU
#define PEAL_WQ_PERCPU	WQ_PERCPU
#else
#define PEAL_WQ_PERCPU	0
#endif

static inline void peal_hrtimer_setup(struct hrtimer *timer,
				      enum hrtimer_restart (*function)(struct hrtimer *),
				      clockid_t clock, enum hrtimer_mode mode)
{
#ifdef PEAL_HAS_HRTIMER_SETUP
	hrtimer_setup(timer, function, clock, mode);
#else
	hrtimer_init(timer, clock, mode);
	timer->function = function;
#endif
}

#endif
