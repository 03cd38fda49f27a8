// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An open device.
 *
 * Owns: the kernel's user context, the doorbell's mapping, the kick file, and
 * the tables of queue pairs and XRC shared receive queues.
 * Does not know: how the queues work.
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>

#include "../ring/doorbell.hpp"
#include "mapping.hpp"
#include "qp_table.hpp"
#include "uverbs.hpp"

struct verbs_context_ops;

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

	/* Throws if the device was removed or the kernel refuses. */
	static Context *open(uverbs::Device device, std::uint32_t &comp_vectors,
			     std::uint64_t &core_support);
	/* The same for a context that the kernel has already. Another process may use it, too. */
	static Context *import(uverbs::Device device, std::uint32_t &comp_vectors,
			       std::uint64_t &core_support);

private:
	static Context *make(uverbs::Device device, const peal_alloc_ucontext_resp &response);
	Context(uverbs::Device opened, UniqueFd kick, Mapping page, std::uint32_t null_region_lkey);
};

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

/* Ops of verbs_device_ops and verbs_context_ops. */
verbs_context *context_alloc(ibv_device *device, int cmd_fd, void *private_data) noexcept;
verbs_context *context_import(ibv_device *device, int cmd_fd) noexcept;
void context_free(ibv_context *context) noexcept;

} // namespace peal
