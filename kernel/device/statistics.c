// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <linux/slab.h>
#include <linux/xarray.h>
#include <net/netlink.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>
#include <uapi/rdma/rdma_netlink.h>

#include "base/compat.h"
#include "base/epoch.h"
#include "object/mr.h"
#include "object/cq.h"
#include "object/qp.h"
#include "object/srq.h"
#include "device/dev.h"

/* ---- counters of a port, and of queue pairs ---- */

#define PEAL_COUNTER_DESC_(name_, text) { .name = #name_ },
#define PEAL_COUNTER_DROP_DESC_(name_, text) { .name = "drop_" #name_ },
#define PEAL_COUNTER_OPTIONAL_DESC_(name_, text) { .name = #name_, .flags = IB_STAT_FLAG_OPTIONAL },
static const struct rdma_stat_desc peal_statistic_descs[] = {
	PEAL_COUNTERS(PEAL_COUNTER_DESC_)
	PEAL_DROPS(PEAL_COUNTER_DROP_DESC_)
	PEAL_OPTIONAL_COUNTERS(PEAL_COUNTER_OPTIONAL_DESC_)
};

/* Tell the core which optional counters it must not show. */
static void peal_statistic_hide(struct ib_device *ib, struct rdma_hw_stats *stats)
{
	int i;

	for (i = PEAL_COUNTER_OPTIONAL; i < PEAL_COUNTER_COUNT; i++)
		assign_bit(i, stats->is_disabled,
			   !peal_table_counter_is_enabled(&peal_dev(ib)->nic.table, i));
}

struct rdma_hw_stats *peal_statistic_alloc_port(struct ib_device *ib, u32 port)
{
	struct rdma_hw_stats *stats;

	stats = rdma_alloc_hw_stats_struct(peal_statistic_descs, ARRAY_SIZE(peal_statistic_descs),
					   0);
	if (stats)
		peal_statistic_hide(ib, stats);
	return stats;
}

int peal_statistic_get_port(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port,
			    int index)
{
	const struct peal_table *table = &peal_dev(ib)->nic.table;
	int i;

	if (!port)
		return -EINVAL;
	for (i = 0; i < PEAL_COUNTER_COUNT; i++)
		stats->value[i] = peal_table_counter(table, i);
	return PEAL_COUNTER_COUNT;
}

/* The core holds the port's stats->lock, and has checked that the counter is optional. */
int peal_statistic_modify(struct ib_device *ib, u32 port, unsigned int counter, bool enable)
{
	peal_table_enable_counter(&peal_dev(ib)->nic.table, counter, enable);
	return 0;
}

/*
 * Some queue pairs have counters of their own: `rdma statistic qp bind`, and the automatic mode. A
 * queue pair counts in one set only, because the core adds the sets of a port to the port's own
 * values. The core serialises all calls for one set (rdma_counter.lock), except dealloc, which is
 * the last one.
 *
 * From Linux 7.2 on the compiler knows the address space of per-CPU pointers, so the casts go
 * through a number.
 *
 * Return: the set that belongs to @counter, or NULL.
 */
static struct peal_counters __percpu *peal_statistic_find(struct rdma_counter *counter)
{
	return (__force void __percpu *)(unsigned long)
		xa_load(&peal_dev(counter->device)->statistics, counter->id);
}

/* The core asks for a new set by an id of 0. Return: 0, -ENOMEM or -EBUSY (no id is left). */
int peal_statistic_bind_qp(struct rdma_counter *counter, PEAL_COUNTER_QP(struct ib_qp *ib))
{
	struct peal_counters __percpu *counters;
	u32 id;
	int ret;

	if (!counter->id) {
		counters = alloc_percpu_gfp(struct peal_counters, GFP_KERNEL_ACCOUNT);
		if (!counters)
			return -ENOMEM;
		ret = xa_alloc(&peal_dev(counter->device)->statistics, &id,
			       (void *)(__force unsigned long)counters, xa_limit_31b, GFP_KERNEL);
		if (ret) {
			free_percpu(counters);
			return ret;
		}
		counter->id = id;
	}
	peal_qp_set_counters(peal_qp(ib), peal_statistic_find(counter));
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
	struct peal_counters __percpu *counters = peal_statistic_find(counter);

	if (!counters)
		return 0;
	xa_erase(&peal_dev(counter->device)->statistics, counter->id);
	peal_epoch_wait();
	free_percpu(counters);
	return 0;
}

struct rdma_hw_stats *peal_statistic_alloc_stats(struct rdma_counter *counter)
{
	return peal_statistic_alloc_port(counter->device, counter->port);
}

/*
 * Before the first queue pair is bound there is no set. Optional counters are enabled for a port,
 * so that its state may have changed since the last call.
 */
int peal_statistic_update_stats(struct rdma_counter *counter)
{
	const struct peal_counters __percpu *counters = peal_statistic_find(counter);
	int i;

	peal_statistic_hide(counter->device, counter->stats);
	for (i = 0; counters && i < PEAL_COUNTER_COUNT; i++)
		counter->stats->value[i] = peal_counters_sum(counters, i);
	return 0;
}

#ifdef PEAL_HAS_COUNTER_INIT
/* The core's struct is all that there is. The core calls this without looking whether it exists. */
void peal_statistic_init(struct rdma_counter *counter)
{
}
#endif

/* ---- `rdma resource show -dd`: names and values are for people, so they may change ---- */

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

/*
 * Some cores list a queue pair until destroy_qp has returned. Then it has no transport any more,
 * and its rings may be gone. While it has one, the epoch keeps the rings. A program can make its
 * rings' words say anything, so the numbers of posted WQEs, which no message has taken yet, may be
 * below 0.
 */
int peal_restrack_fill_qp(struct sk_buff *msg, struct ib_qp *ib)
{
	int sends_posted = 0, recvs_posted = 0, failed;
	bool in_flight = false, wants_kick = false;
	const char *transport = NULL;
	struct peal_qp *qp = peal_qp(ib);
	struct peal_transport *sender;
	struct nlattr *driver;

	peal_epoch_enter();
	spin_lock(&qp->sq.lock);
	sender = qp->sender;
	if (sender) {
		spin_lock(&qp->rq.lock);
		transport = sender == qp->direct ? "direct" : "packets";
		sends_posted = peal_ring_pending(&qp->sq.ring);
		recvs_posted = peal_ring_pending(&qp->rq.ring);
		in_flight = sender->ops->idle && !sender->ops->idle(sender);
		wants_kick = qp->rq.kicked;
		spin_unlock(&qp->rq.lock);
	}
	spin_unlock(&qp->sq.lock);
	peal_epoch_exit();
	if (!transport)
		return 0;
	driver = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!driver)
		return -EMSGSIZE;
	failed = rdma_nl_put_driver_string(msg, "transport", transport) ||
		 rdma_nl_put_driver_u32(msg, "doorbell", qp->index) ||
		 rdma_nl_put_driver_u32(msg, "sq-entries", qp->sq.ring.mask + 1) ||
		 rdma_nl_put_driver_u32(msg, "sq-posted", max(sends_posted, 0)) ||
		 rdma_nl_put_driver_u32(msg, "sq-in-flight", in_flight) ||
		 rdma_nl_put_driver_u32(msg, "rq-entries", qp->rq.ring.mask + 1) ||
		 rdma_nl_put_driver_u32(msg, "rq-posted", max(recvs_posted, 0)) ||
		 rdma_nl_put_driver_u32(msg, "rq-wants-kick", wants_kick);
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
	wanted = !list_empty(&srq->waiters);
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

/*
 * ---- the performance management agent (IBTA 16.1) ----
 *
 * The port counts only packets. Messages of the direct transport never reach the port.
 */

/* PortSelect of all ports, which are one here (IBTA 16.1.3.5). */
#define PEAL_PMA_ALL_PORTS	0xff

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

/* Answer a Get. Return: the status of the response, in host order. */
static u16 peal_pma_get(const struct peal_table *table, struct ib_pma_mad *mad)
{
	u64 sent_data = peal_table_counter(table, PEAL_COUNTER_packet_bytes_sent) /
			PEAL_PMA_DATA_UNIT;
	u64 received_data = peal_table_counter(table, PEAL_COUNTER_packet_bytes_received) /
			    PEAL_PMA_DATA_UNIT;
	u64 sent = peal_table_counter(table, PEAL_COUNTER_packets_sent);
	u64 received = peal_table_counter(table, PEAL_COUNTER_packets_received);
	u64 unsent = peal_table_counter(table, PEAL_COUNTER_packets_unsent);
	u64 drops = peal_table_counter(table, PEAL_COUNTER_drops);
	struct ib_pma_portcounters_ext *ext = (void *)mad->data;
	struct ib_pma_portcounters *counters = (void *)mad->data;
	u8 port = counters->port_select;

	switch (mad->mad_hdr.attr_id) {
	case IB_PMA_CLASS_PORT_INFO:
		/*
		 * NOIETF means that PortCountersExtended has 64-bit counters, but does not count
		 * unicast and multicast packets apart.
		 */
		*(struct ib_class_port_info *)mad->data = (struct ib_class_port_info){
			.base_version = IB_MGMT_BASE_VERSION,
			.class_version = 1,
			.capability_mask = IB_PMA_CLASS_CAP_ALLPORTSELECT |
					   IB_PMA_CLASS_CAP_EXT_WIDTH_NOIETF,
		};
		return IB_MGMT_MAD_STATUS_SUCCESS;
	case IB_PMA_PORT_COUNTERS:
		if (port != 1 && port != PEAL_PMA_ALL_PORTS)
			return IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE;
		*counters = (struct ib_pma_portcounters){
			.port_select = port,
			.counter_select = counters->counter_select,
			.port_rcv_errors = peal_pma_be16(drops),
			.port_xmit_discards = peal_pma_be16(unsent),
			.port_xmit_data = peal_pma_be32(sent_data),
			.port_rcv_data = peal_pma_be32(received_data),
			.port_xmit_packets = peal_pma_be32(sent),
			.port_rcv_packets = peal_pma_be32(received),
		};
		return IB_MGMT_MAD_STATUS_SUCCESS;
	case IB_PMA_PORT_COUNTERS_EXT:
		if (port != 1 && port != PEAL_PMA_ALL_PORTS)
			return IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE;
		*ext = (struct ib_pma_portcounters_ext){
			.port_select = port,
			.counter_select = ext->counter_select,
			.port_xmit_data = cpu_to_be64(sent_data),
			.port_rcv_data = cpu_to_be64(received_data),
			.port_xmit_packets = cpu_to_be64(sent),
			.port_rcv_packets = cpu_to_be64(received),
		};
		return IB_MGMT_MAD_STATUS_SUCCESS;
	default:
		return IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB;
	}
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
