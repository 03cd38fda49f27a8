// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* An open device, and what the verbs of all its objects have in common. */
#pragma once
#include <infiniband/verbs.h>
#include <pthread.h>

#include <cstdint>

#include "../ring/doorbell.hpp"
#include "mapping.hpp"
#include "qp_table.hpp"
#include "uverbs.hpp"

namespace peal {

struct Context {
	uverbs::Device device;
	UniqueFd kick_file;
	Mapping doorbell_page;
	Doorbell doorbell;
	QpTable qp_table;
	SrqTable srq_table;	       /* XRC only */
	const std::uint32_t null_lkey; /* of the null region; 0: the kernel has none */
	const bool single_threaded;    /* PEAL_SINGLE_THREADED=1: no locks at all */

	static Context &of(ibv_context *context) noexcept;

	Context(uverbs::Device opened, UniqueFd kick, Mapping page, std::uint32_t null_region_lkey);
};

/* The device of a verbs object. libibverbs sets `context` of some objects only after creation. */
template <class Object>
const uverbs::Device &device_of(const Object *object) noexcept
{
	return Context::of(object->context).device;
}

/*
 * Returns whether the object of a destroy command is gone. EIO means that the device was
 * removed, and that the kernel destroyed all objects then. The program must still be able
 * to free its side. The caller must not wait for events after EIO, because the kernel
 * gives no event counts with it.
 */
inline bool object_is_gone(int error) noexcept
{
	return !error || error == EIO;
}

/* Ends a verb whose destroy command returned `error`. Returns what the verb returns. */
template <class Object>
int delete_if_gone(int error, Object *object) noexcept
{
	if (!object_is_gone(error))
		return error;
	delete object;
	return 0;
}

/* Waits until `done()`, because events that the program has read point to `object` until then. */
template <class Object, class Done>
void wait_for_acks(Object &object, Done done) noexcept
{
	pthread_mutex_lock(&object.mutex);
	while (!done())
		pthread_cond_wait(&object.cond, &object.mutex);
	pthread_mutex_unlock(&object.mutex);
}

} // namespace peal
