// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See statistics.h.
 */
#include <linux/slab.h>
#include <linux/xarray.h>
#include <net/netlink.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>
#include <uapi/rdma/rdma_netlink.h>

#include "base/epoch.h"
#include "object/mr.h"
#include "object/cq.h"
#include "object/qp.h"
#include "object/srq.h"
#include "device/dev.h"
#include "device/query.h"
#include "device/statistics.h"

/*
 * Counters of queue pairs. The core serialises all calls for one counter (rdma_counter.lock),
 * except dealloc, which is the last one.
 */

/* A set of counters. The per-CPU memory cannot be in the tree itself. */
struct peal_statistic {
	struct peal_counters __percpu *counters;
};

/* Return: the set that belongs to @counter, or NULL. */
static struct peal_statistic *peal_statistic_find(struct rdma_counter *counter)
{
	return xa_load(&peal_dev(counter->device)->statistics, counter->id);
}

static void peal_statistic_free(struct peal_statistic *statistic)
{
	free_percpu(statistic->counters);
	kfree(statistic);
}

/* Return: 0, -ENOMEM or -EBUSY (no number is left). */
static int peal_statistic_number(struct rdma_counter *counter, struct peal_statistic *statistic)
{
	u32 id;
	int ret = xa_alloc(&peal_dev(counter->device)->statistics, &id, statistic, xa_limit_31b,
			   GFP_KERNEL);

	if (!ret)
		counter->id = id;
	return ret;
}

/* The core asks for a new set by an id of 0. Return: as peal_statistic_number(). */
static int peal_statistic_new(struct rdma_counter *counter)
{
	struct peal_statistic *statistic = kzalloc(sizeof(*statistic), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!statistic)
		return -ENOMEM;
	statistic->counters = alloc_percpu_gfp(struct peal_counters, GFP_KERNEL_ACCOUNT);
	ret = statistic->counters ? peal_statistic_number(counter, statistic) : -ENOMEM;
	if (ret)
		peal_statistic_free(statistic);
	return ret;
}

int peal_statistic_bind_qp(struct rdma_counter *counter, PEAL_COUNTER_QP(struct ib_qp *ib))
{
	int ret = counter->id ? 0 : peal_statistic_new(counter);

	if (ret)
		return ret;
	peal_qp_set_counters(peal_qp(ib), peal_statistic_find(counter)->counters);
	ib->counter = counter;	/* the core leaves this to the driver */
	return 0;
}

int peal_statistic_unbind_qp(PEAL_COUNTER_QP(struct ib_qp *ib))
{
	struct peal_qp *qp = peal_qp(ib);

	peal_qp_set_counters(qp, qp->table->counters);
	ib->counter = NULL;
	return 0;
}

/* No queue pair is bound any more, but another CPU may still count. */
int peal_statistic_dealloc(struct rdma_counter *counter)
{
	struct peal_statistic *statistic = xa_erase(&peal_dev(counter->device)->statistics,
						    counter->id);

	if (!statistic)
		return 0;
	peal_epoch_wait();
	peal_statistic_free(statistic);
	return 0;
}

struct rdma_hw_stats *peal_statistic_alloc_stats(struct rdma_counter *counter)
{
	return peal_query_alloc_stats(counter->device, counter->port);
}

/*
 * Before the first queue pair is bound there is no set. Optional counters are enabled for a port,
 * so that its state may have changed since the last call.
 */
int peal_statistic_update_stats(struct rdma_counter *counter)
{
	const struct peal_statistic *statistic = peal_statistic_find(counter);
	int i;

	peal_query_hide_stats(&peal_dev(counter->device)->nic.table, counter->stats);
	for (i = 0; statistic && i < PEAL_COUNTER_COUNT; i++)
		counter->stats->value[i] = peal_counters_sum(statistic->counters, i);
	return 0;
}

#ifdef PEAL_HAS_COUNTER_INIT
/* The core's struct is all that there is. The core calls this without looking whether it exists. */
void peal_statistic_init(struct rdma_counter *counter)
{
}
#endif

/* What a queue pair does, copied under its locks. */
struct peal_restrack_qp {
	const char *transport;
	u32 sends_posted, recvs_posted;	/* WQEs in the rings that no message has taken yet */
	bool sends_in_flight;
	bool wants_kick;
};

/* A program can make its ring's words say anything. */
static u32 peal_restrack_pending(const struct peal_ring *ring)
{
	return max(peal_ring_pending(ring), 0);
}

/*
 * Some cores list a queue pair until destroy_qp has returned. Then it has no transport any more,
 * and its rings may be gone. While it has one, the epoch keeps the rings.
 *
 * Return: false if the queue pair is being destroyed.
 */
static bool peal_restrack_look(struct peal_qp *qp, struct peal_restrack_qp *look)
{
	struct peal_transport *sender;
	bool alive;

	peal_epoch_enter();
	spin_lock(&qp->sq.lock);
	sender = qp->sender;
	alive = sender;
	if (alive) {
		spin_lock(&qp->rq.lock);
		*look = (struct peal_restrack_qp){
			.transport = sender == qp->direct ? "direct" : "packets",
			.sends_posted = peal_restrack_pending(&qp->sq.ring),
			.recvs_posted = peal_restrack_pending(&qp->rq.ring),
			.sends_in_flight = sender->ops->idle && !sender->ops->idle(sender),
			.wants_kick = qp->rq.kicked,
		};
		spin_unlock(&qp->rq.lock);
	}
	spin_unlock(&qp->sq.lock);
	peal_epoch_exit();
	return alive;
}

/* Return: 0 or -EMSGSIZE. */
static int peal_restrack_end(struct sk_buff *msg, struct nlattr *driver, int failed)
{
	if (failed) {
		nla_nest_cancel(msg, driver);
		return -EMSGSIZE;
	}
	nla_nest_end(msg, driver);
	return 0;
}

int peal_restrack_fill_qp(struct sk_buff *msg, struct ib_qp *ib)
{
	struct peal_qp *qp = peal_qp(ib);
	struct peal_restrack_qp look;
	struct nlattr *driver;
	int failed;

	if (!peal_restrack_look(qp, &look))
		return 0;
	driver = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!driver)
		return -EMSGSIZE;
	failed = rdma_nl_put_driver_string(msg, "transport", look.transport) ||
		 rdma_nl_put_driver_u32(msg, "doorbell", qp->index) ||
		 rdma_nl_put_driver_u32(msg, "sq-entries", qp->sq.ring.mask + 1) ||
		 rdma_nl_put_driver_u32(msg, "sq-posted", look.sends_posted) ||
		 rdma_nl_put_driver_u32(msg, "sq-in-flight", look.sends_in_flight) ||
		 rdma_nl_put_driver_u32(msg, "rq-entries", qp->rq.ring.mask + 1) ||
		 rdma_nl_put_driver_u32(msg, "rq-posted", look.recvs_posted) ||
		 rdma_nl_put_driver_u32(msg, "rq-wants-kick", look.wants_kick);
	return peal_restrack_end(msg, driver, failed);
}

/*
 * Only the kernel's own copy of the indices is read, because some cores list a completion queue
 * whose ring is freed already.
 */
int peal_restrack_fill_cq(struct sk_buff *msg, struct ib_cq *ib)
{
	struct peal_cq *cq = peal_cq(ib);
	struct nlattr *driver;
	u32 written, consumed;
	bool overflowed;
	int failed;

	spin_lock_bh(&cq->lock);
	written = cq->ring.next;
	consumed = cq->ring.consumer;
	overflowed = cq->overflowed;
	spin_unlock_bh(&cq->lock);
	driver = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!driver)
		return -EMSGSIZE;
	failed = rdma_nl_put_driver_u32(msg, "written", written) ||
		 rdma_nl_put_driver_u32(msg, "consumed-last-seen", consumed) ||
		 rdma_nl_put_driver_u32(msg, "overflowed", overflowed);
	return peal_restrack_end(msg, driver, failed);
}

int peal_restrack_fill_mr(struct sk_buff *msg, struct ib_mr *ib)
{
	const struct peal_mr *mr = peal_mr(ib);
	struct nlattr *driver = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	int failed;

	if (!driver)
		return -EMSGSIZE;
	failed = rdma_nl_put_driver_u32_hex(msg, "access", mr->key.access) ||
		 rdma_nl_put_driver_u32(msg, "windows", max(atomic_read(&mr->windows), 0));
	return peal_restrack_end(msg, driver, failed);
}

/* Only the kernel's own words are read, because some cores list a queue whose ring is freed. */
int peal_restrack_fill_srq(struct sk_buff *msg, struct ib_srq *ib)
{
	struct peal_srq_ring *srq = &peal_srq(ib)->ring;
	u32 entries, taken, limit;
	struct nlattr *driver;
	bool wanted;
	int failed;

	spin_lock_bh(&srq->lock);
	entries = srq->ring.mask + 1;
	taken = srq->ring.next;
	limit = srq->limit;
	wanted = !list_empty(&srq->starving);
	spin_unlock_bh(&srq->lock);
	driver = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!driver)
		return -EMSGSIZE;
	failed = rdma_nl_put_driver_u32(msg, "entries", entries) ||
		 rdma_nl_put_driver_u32(msg, "taken", taken) ||
		 rdma_nl_put_driver_u32(msg, "limit", limit) ||
		 rdma_nl_put_driver_u32(msg, "senders-wait", wanted);
	return peal_restrack_end(msg, driver, failed);
}

/* PortSelect of all ports, which are one here (IBTA 16.1.3.5). */
#define PEAL_PMA_ALL_PORTS	0xff

/*
 * The port counts only packets. Messages of the direct
 * transport never reach the port.
 */
#define peal_pma_counter(table, name) peal_table_counter(table, PEAL_COUNTER_##name)

/* The unit of the data counters is four bytes (IBTA 16.1.3.5). */
#define PEAL_PMA_DATA_UNIT	4

/* These counters stop at their largest value (IBTA 16.1.3.5). */
static __be16 peal_pma_be16(u64 value)
{
	return cpu_to_be16(min_t(u64, value, U16_MAX));
}

static __be32 peal_pma_be32(u64 value)
{
	return cpu_to_be32(min_t(u64, value, U32_MAX));
}

/*
 * NOIETF means that PortCountersExtended has 64-bit counters, but does not count unicast and
 * multicast packets apart.
 */
static void peal_pma_class_port_info(struct ib_pma_mad *mad)
{
	struct ib_class_port_info *info = (void *)mad->data;

	*info = (struct ib_class_port_info){
		.base_version = IB_MGMT_BASE_VERSION,
		.class_version = 1,
		.capability_mask = IB_PMA_CLASS_CAP_ALLPORTSELECT |
				   IB_PMA_CLASS_CAP_EXT_WIDTH_NOIETF,
	};
}

static void peal_pma_port_counters(const struct peal_table *table, struct ib_pma_mad *mad)
{
	struct ib_pma_portcounters *counters = (void *)mad->data;

	*counters = (struct ib_pma_portcounters){
		.port_select = counters->port_select,
		.counter_select = counters->counter_select,
		.port_rcv_errors = peal_pma_be16(peal_pma_counter(table, drops)),
		.port_xmit_discards = peal_pma_be16(peal_pma_counter(table, packets_unsent)),
		.port_xmit_data = peal_pma_be32(peal_pma_counter(table, packet_bytes_sent) /
						PEAL_PMA_DATA_UNIT),
		.port_rcv_data = peal_pma_be32(peal_pma_counter(table, packet_bytes_received) /
					       PEAL_PMA_DATA_UNIT),
		.port_xmit_packets = peal_pma_be32(peal_pma_counter(table, packets_sent)),
		.port_rcv_packets = peal_pma_be32(peal_pma_counter(table, packets_received)),
	};
}

static void peal_pma_port_counters_ext(const struct peal_table *table, struct ib_pma_mad *mad)
{
	struct ib_pma_portcounters_ext *counters = (void *)mad->data;

	*counters = (struct ib_pma_portcounters_ext){
		.port_select = counters->port_select,
		.counter_select = counters->counter_select,
		.port_xmit_data = cpu_to_be64(peal_pma_counter(table, packet_bytes_sent) /
					      PEAL_PMA_DATA_UNIT),
		.port_rcv_data = cpu_to_be64(peal_pma_counter(table, packet_bytes_received) /
					     PEAL_PMA_DATA_UNIT),
		.port_xmit_packets = cpu_to_be64(peal_pma_counter(table, packets_sent)),
		.port_rcv_packets = cpu_to_be64(peal_pma_counter(table, packets_received)),
	};
}

/* Return: the status of the response, in host order. */
static u16 peal_pma_get(const struct peal_table *table, struct ib_pma_mad *mad)
{
	u8 port = mad->data[offsetof(struct ib_pma_portcounters, port_select)];

	if (mad->mad_hdr.attr_id == IB_PMA_CLASS_PORT_INFO) {
		peal_pma_class_port_info(mad);
		return IB_MGMT_MAD_STATUS_SUCCESS;
	}
	if (mad->mad_hdr.attr_id != IB_PMA_PORT_COUNTERS &&
	    mad->mad_hdr.attr_id != IB_PMA_PORT_COUNTERS_EXT)
		return IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB;
	if (port != 1 && port != PEAL_PMA_ALL_PORTS)
		return IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE;
	if (mad->mad_hdr.attr_id == IB_PMA_PORT_COUNTERS)
		peal_pma_port_counters(table, mad);
	else
		peal_pma_port_counters_ext(table, mad);
	return IB_MGMT_MAD_STATUS_SUCCESS;
}

/**
 * peal_pma_process_mad() - answer a performance management MAD
 *
 * The core calls this for each MAD that the GSI queue pair receives, and for its files in sysfs.
 * A Set is refused, because it would reset counters that others read.
 *
 * Return: IB_MAD_RESULT_* bits. Without REPLY the core looks for an agent.
 */
int peal_pma_process_mad(struct ib_device *ib, int flags, u32 port, const struct ib_wc *wc,
			 const struct ib_grh *grh, const struct ib_mad *in, struct ib_mad *out,
			 size_t *out_bytes, u16 *out_pkey_index)
{
	struct ib_pma_mad *mad = (struct ib_pma_mad *)out;
	u16 status;

	BUILD_BUG_ON(sizeof(*mad) != sizeof(*out));
	if (in->mad_hdr.mgmt_class != IB_MGMT_CLASS_PERF_MGMT || ib_response_mad(&in->mad_hdr))
		return IB_MAD_RESULT_SUCCESS;
	*out = *in;
	if (in->mad_hdr.base_version != IB_MGMT_BASE_VERSION || in->mad_hdr.class_version != 1)
		status = IB_MGMT_MAD_STATUS_BAD_VERSION;
	else if (in->mad_hdr.method != IB_MGMT_METHOD_GET)
		status = IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD;
	else
		status = peal_pma_get(&peal_dev(ib)->nic.table, mad);
	mad->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	mad->mad_hdr.status = cpu_to_be16(status);
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}
