// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See pma.h.
 */
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>

#include "verbs/dev.h"
#include "verbs/pma.h"

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
