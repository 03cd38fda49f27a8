// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An open device and its protection domain. Memory, listeners and connections keep it open. It does
 * not know them.
 */
#pragma once
#include <infiniband/pealdv.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstring>

#include "peal/device.hpp"

namespace peal::detail {

struct context {
	std::atomic<unsigned> users{1};
	ibv_context *verbs = nullptr;
	ibv_pd *pd = nullptr;
	ibv_device_attr attr{};
	/* How connections take their rings. Null on devices without rings. */
	pealdv direct{};

	context() = default;
	context(const context &) = delete;
	~context();

	const char *name() const noexcept { return ibv_get_device_name(verbs->device); }
	/* Whether vendor_err of a completion is a reason of <rdma/peal-abi.h>. */
	bool is_peal() const noexcept { return attr.vendor_id == 0x706561; }
	bool has_windows() const noexcept
	{
		return attr.device_cap_flags &
		       (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	}
	/* The connection manager opens devices of its own, so only the name tells. */
	bool is_device_of(const ibv_context *other) const noexcept
	{
		return other && !std::strcmp(ibv_get_device_name(other->device), name());
	}
};

} // namespace peal::detail
