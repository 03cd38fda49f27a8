// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * idle-pairs DEVICE GID COUNT: makes so many RC queue pairs of 128 sends and 128 receives, which
 * share a completion queue, connects each with itself, and says so. Then they stay idle until
 * standard input ends, so that scripts/bench can measure messages beside them. It posts nothing.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <infiniband/verbs.h>
#include <unistd.h>

namespace {

[[noreturn]] void fail(const char *what)
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

ibv_context *open_device(const char *name)
{
	int count = 0;
	ibv_device **list = made(ibv_get_device_list(&count), "ibv_get_device_list");
	for (int i = 0; i < count; ++i)
		if (!std::strcmp(ibv_get_device_name(list[i]), name))
			return made(ibv_open_device(list[i]), "ibv_open_device");
	fail(name);
}

void change(ibv_qp *qp, ibv_qp_attr attr, int mask)
{
	if ((errno = ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE)))
		fail("ibv_modify_qp");
}

void connect_with_itself(ibv_qp *qp, const ibv_gid &gid, int index)
{
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	change(qp, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = qp->qp_num;
	attr.max_dest_rd_atomic = 1;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = gid;
	attr.ah_attr.grh.sgid_index = std::uint8_t(index);
	attr.ah_attr.grh.hop_limit = 64;
	change(qp, attr,
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	change(qp, attr,
	       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		       IBV_QP_MAX_QP_RD_ATOMIC);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 4)
		return std::fputs("usage: idle-pairs DEVICE GID COUNT\n", stderr), 2;
	int index = std::atoi(argv[2]), count = std::atoi(argv[3]);
	ibv_context *context = open_device(argv[1]);
	ibv_pd *pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
	ibv_cq *cq = made(ibv_create_cq(context, 256, nullptr, nullptr, 0), "ibv_create_cq");
	ibv_gid gid;
	if (ibv_query_gid(context, 1, index, &gid))
		fail("ibv_query_gid");
	ibv_qp_init_attr init{};
	init.send_cq = init.recv_cq = cq;
	init.qp_type = IBV_QPT_RC;
	init.cap = {128, 128, 1, 1, 0};
	for (int i = 0; i < count; ++i)
		connect_with_itself(made(ibv_create_qp(pd, &init), "ibv_create_qp"), gid, index);
	std::puts("ready");
	std::fflush(stdout);
	char byte;
	while (read(STDIN_FILENO, &byte, 1) > 0) {
	}
	// The kernel destroys the queue pairs.
	return 0;
}
