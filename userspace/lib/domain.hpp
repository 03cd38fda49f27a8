// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An XRC domain. Inboxes (xrc.cpp) and targets (offer.cpp) keep it. It knows neither.
 */
#pragma once
#include <infiniband/verbs.h>

#include <unistd.h>

#include "context.hpp"

namespace peal::detail {

struct domain_state {
	std::atomic<unsigned> users{1};
	kept<context> device;
	int file = -1;
	ibv_xrcd *xrcd = nullptr;

	domain_state() = default;
	domain_state(const domain_state &) = delete;
	~domain_state()
	{
		if (xrcd)
			ibv_close_xrcd(xrcd);
		if (file >= 0)
			::close(file);
	}
};

} // namespace peal::detail
