// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The command "peal stat": the counters of devices, and how fast they grow.
 */
#pragma once

#include <optional>
#include <string>

namespace peal::tool {

struct StatRequest {
	std::string device;	       /* all if empty */
	std::optional<double> seconds; /* between two looks; without it, one look */
	unsigned count = 0;	       /* intervals until the end; 0: no end */
	bool all = false;	       /* also counters that are 0, or do not grow */
	bool json = false;
};

void show_counters(const StatRequest &request);

} /* namespace peal::tool */
