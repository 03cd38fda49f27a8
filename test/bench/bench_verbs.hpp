// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Devices and queue pairs for the programs that scripts/bench runs besides stock ones. Each mistake
 * ends the program with its reason. It measures nothing.
 */
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <infiniband/verbs.h>

namespace peal_bench {

[[noreturn]] inline void fail(const char *what)
{
	std::perror(what);
	std::exit(1);
}

// made(THING, WHAT): ends the program if the verb has returned nothing.
template <class Thing>
Thing *made(Thing *thing, const char *what)
{
	return thing ? thing : (fail(what), nullptr);
}

// done(ERROR, WHAT): ends the program if the verb has returned an error number.
inline void done(int error, const char *what)
{
	if ((errno = error))
		fail(what);
}

inline ibv_context *open_device(const char *name)
{
	int count = 0;
	ibv_device **list = made(ibv_get_device_list(&count), "ibv_get_device_list");
	for (int i = 0; i < count; ++i)
		if (!std::strcmp(ibv_get_device_name(list[i]), name))
			return made(ibv_open_device(list[i]), "ibv_open_device");
	fail(name);
}

inline void change(ibv_qp *qp, ibv_qp_attr attr, int mask)
{
	done(ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE), "ibv_modify_qp");
}

// The way to a queue pair of the device that has this GID.
inline ibv_ah_attr way(const ibv_gid &gid, int index)
{
	ibv_ah_attr attr{};
	attr.is_global = 1;
	attr.port_num = 1;
	attr.grh.dgid = gid;
	attr.grh.sgid_index = std::uint8_t(index);
	attr.grh.hop_limit = 64;
	return attr;
}

// Takes a queue pair from RESET to RTS. `peer` is the number of the queue pair that it sends to, on
// the device that has this GID. Datagrams have none. Its own GID has this index. `reads` READs or
// atomics are in flight at most.
inline void connect(ibv_qp *qp, const ibv_gid &gid, int index, std::uint32_t peer,
		    std::uint8_t reads = 1)
{
	const bool reliable = qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_UD;
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | (reliable ? IBV_ACCESS_REMOTE_READ : 0);
	change(qp, attr,
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.max_dest_rd_atomic = reads;
	attr.ah_attr = way(gid, index);
	change(qp, attr,
	       qp->qp_type == IBV_QPT_UD
		       ? 0
		       : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = reads;
	change(qp, attr,
	       IBV_QP_SQ_PSN | (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						   IBV_QP_MAX_QP_RD_ATOMIC
					 : 0));
}

} // namespace peal_bench
