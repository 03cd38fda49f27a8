// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The part of the fake that gives its rings away. It is a shared object, as the real provider is,
 * because pealdv_open() finds the functions by the object that has post_send. The fake fills in
 * what they do.
 */
#pragma once
#include <infiniband/pealdv.h>

struct fake_provider_calls {
	int (*post_send)(ibv_qp *, ibv_send_wr *, ibv_send_wr **);
	int (*query_device)(pealdv_device *);
	int (*take_cq)(ibv_cq *, pealdv_cq *);
	int (*take_queue)(ibv_qp *, pealdv_queue *, bool for_receives);
};

extern "C" {

extern fake_provider_calls fake_provider_does;
int fake_provider_post_send(ibv_qp *, ibv_send_wr *, ibv_send_wr **);
}
