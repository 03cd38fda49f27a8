// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "fake_provider.hpp"

extern "C" {

fake_provider_calls fake_provider_does;

int fake_provider_post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad)
{
	return fake_provider_does.post_send(qp, wr, bad);
}

int pealdv_query_device(ibv_context *, pealdv_device *device)
{
	return fake_provider_does.query_device(device);
}

int pealdv_take_cq(ibv_cq *cq, pealdv_cq *ring)
{
	return fake_provider_does.take_cq(cq, ring);
}

int pealdv_take_send_queue(ibv_qp *qp, pealdv_queue *ring)
{
	return fake_provider_does.take_queue(qp, ring, false);
}

int pealdv_take_receive_queue(ibv_qp *qp, pealdv_queue *ring)
{
	return fake_provider_does.take_queue(qp, ring, true);
}
}
