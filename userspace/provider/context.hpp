// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An open device.
 *
 * Owns: the kernel's user context, the doorbell's mapping, the kick file, and
 * the table of queue pairs.
 * Does not know: what the queues do.
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
	const bool single_threaded; /* PEAL_SINGLE_THREADED=1: no locks at all */

	static Context &of(ibv_context *context) noexcept;

	/* The device is gone or the kernel refuses: throws. */
	static Context *open(uverbs::Device device, std::uint32_t &comp_vectors,
			     std::uint64_t &core_support);

private:
	Context(uverbs::Device opened, UniqueFd kick, Mapping page);
};

/*
 * The object of a destroy command is gone after 0, of course, and after EIO:
 * this answer means that the device was removed, and the kernel destroyed
 * everything then. The program must still be able to free its side, and waiting
 * for event counts makes no sense, as there are none.
 */
inline bool object_is_gone(int error) noexcept
{
	return !error || error == EIO;
}

/* Verbs, in the form of verbs_device_ops and verbs_context_ops. */
verbs_context *context_alloc(ibv_device *device, int cmd_fd, void *private_data) noexcept;
void context_free(ibv_context *context) noexcept;

} // namespace peal
