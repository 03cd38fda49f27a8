/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The rings of a peal device, for programs that write them without libibverbs. Their layout and the
 * barriers are in <rdma/peal-abi.h>.
 *
 * A program takes a completion queue or a queue of a queue pair. From then on the program owns its
 * ring, and the provider uses it no more: ibv_post_send() and ibv_post_recv() of a queue that is
 * taken fail with ENOMEM, and ibv_poll_cq() of such a completion queue returns 0. No lock guards
 * the ring. All other verbs remain, for example ibv_req_notify_cq(), ibv_modify_qp() and
 * ibv_destroy_qp(). But ibv_resize_cq() fails, and so does a change to RESET. Nothing gives a ring
 * back but the destruction of its object, which also unmaps the ring.
 *
 * A completion queue is taken first, and then each queue that completes there, both before their
 * first use. A queue that completes there takes no post of libibverbs, also before it is taken. A
 * queue pair with a shared receive queue cannot complete there: ibv_create_qp() fails with
 * EOPNOTSUPP.
 * One thread at a time may take from an object.
 *
 * A program in C defines _GNU_SOURCE, and links -ldl where dlopen() is not in libc.
 */
#ifndef INFINIBAND_PEALDV_H
#define INFINIBAND_PEALDV_H

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/peal-abi.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pealdv_device {
	struct peal_doorbell *doorbell;
	int kick_fd; /* do not close it; it is open as long as the context */
};

struct pealdv_cq {
	struct peal_cq_ctl *ctl;
	struct peal_cqe *cqes;
	uint32_t entries; /* a power of two */
};

struct pealdv_queue {
	struct peal_ring_ctl *ctl;
	void *slots;
	uint32_t entries; /* a power of two */
	uint32_t stride;  /* bytes of a slot */
	uint32_t qp_index;
};

/*
 * What the provider exports, with the version PEALDV_1. Each returns 0 or an errno.
 *
 * EBUSY: it was used or taken before. EINVAL: the completion queue of this queue was not taken.
 * EOPNOTSUPP: the queue pair has no such queue of its own, because it has a shared receive queue or
 * is an XRC target.
 */
typedef int pealdv_query_device_fn(struct ibv_context *context, struct pealdv_device *device);
typedef int pealdv_take_cq_fn(struct ibv_cq *cq, struct pealdv_cq *ring);
typedef int pealdv_take_queue_fn(struct ibv_qp *qp, struct pealdv_queue *ring);

struct pealdv {
	pealdv_query_device_fn *query_device;
	pealdv_take_cq_fn *take_cq;
	pealdv_take_queue_fn *take_send_queue;
	pealdv_take_queue_fn *take_receive_queue;
};

/* One of the provider's functions. `object` is a handle of dlopen(). */
static inline int pealdv_find(void *object, const char *name, void *function)
{
	void *found = dlvsym(object, name, "PEALDV_1");

	memcpy(function, &found, sizeof(found));
	return found != NULL;
}

/*
 * Finds the functions for a context. No program is linked with the provider, because libibverbs
 * loads it. Returns ENOTSUP if the device is not peal's, or if its provider is too old.
 */
static inline int pealdv_open(struct ibv_context *context, struct pealdv *calls)
{
	Dl_info provider;
	void *post, *object;
	int found;

	memcpy(&post, &context->ops.post_send, sizeof(post));
	if (!dladdr(post, &provider) || !provider.dli_fname)
		return ENOTSUP;
	object = dlopen(provider.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!object)
		return ENOTSUP;
	found = pealdv_find(object, "pealdv_query_device", &calls->query_device) &&
		pealdv_find(object, "pealdv_take_cq", &calls->take_cq) &&
		pealdv_find(object, "pealdv_take_send_queue", &calls->take_send_queue) &&
		pealdv_find(object, "pealdv_take_receive_queue", &calls->take_receive_queue);
	/* The context keeps the provider loaded. */
	dlclose(object);
	return found ? 0 : ENOTSUP;
}

#ifdef __cplusplus
}
#endif

#endif
