// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a device counts: hw_counters of its port.
 *
 * Holds: one value by name, as fresh as can be had. Does not hold: what the names mean
 * (kernel/base/counters.h).
 */
#pragma once

#include "verbs.hpp"

#include <fstream>

namespace peal_test {

/* A counter of the device, as `rdma statistic` shows it. */
inline std::uint64_t counter(const std::string &name, const std::string &device = device_name())
{
	const std::string folder = "/sys/class/infiniband/" + device + "/ports/1/hw_counters/";
	/* Otherwise the core repeats what it read up to 10 ms ago, and not only in this tick. */
	std::ofstream(folder + "lifespan") << 0;
	std::ifstream file(folder + name);
	std::uint64_t value = 0;

	if (!(file >> value))
		throw std::runtime_error("no counter " + name);
	return value;
}

} // namespace peal_test
