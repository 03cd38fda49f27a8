// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * idle-pairs DEVICE GID COUNT: makes so many RC queue pairs of 128 sends and 128 receives, which
 * share a completion queue, connects each with itself, and says so. Then they stay idle until
 * standard input ends, so that scripts/bench can measure messages beside them. It posts nothing.
 */
#include "bench_verbs.hpp"

#include <unistd.h>

using namespace peal_bench;

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
	for (int i = 0; i < count; ++i) {
		ibv_qp *qp = made(ibv_create_qp(pd, &init), "ibv_create_qp");
		connect(qp, gid, index, qp->qp_num);
	}
	std::puts("ready");
	std::fflush(stdout);
	char byte;
	while (read(STDIN_FILENO, &byte, 1) > 0) {
	}
	// The kernel destroys the queue pairs.
	return 0;
}
