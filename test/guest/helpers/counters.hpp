// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The counters of a device: hw_counters of its port.
 *
 * Holds: one current value by its name, and its growth. Does not hold: the meaning of the names
 * (kernel/base/counters.h).
 */
#pragma once

#include "verbs.hpp"

#include <ctime>
#include <fstream>
#include <unistd.h>

namespace peal_test {

/* Waits for the next jiffy. The coarse clock changes after it. */
inline void wait_jiffy()
{
	const auto now = [] {
		timespec time{};
		clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
		return std::pair(time.tv_sec, time.tv_nsec);
	};
	const auto begin = now();

	while (now() == begin)
		usleep(500);
}

/* A counter of the device. Without sleeping, so the core may repeat a value of the same jiffy. */
inline std::uint64_t counter_at_once(const std::string &name,
				     const std::string &device = device_name())
{
	const std::string folder = "/sys/class/infiniband/" + device + "/ports/1/hw_counters/";
	/* Otherwise the core repeats a value that is up to 10 ms old. */
	std::ofstream(folder + "lifespan") << 0;
	std::ifstream file(folder + name);
	std::uint64_t value = 0;

	if (!(file >> value))
		throw std::runtime_error("no counter " + name);
	return value;
}

/* A counter of the device, as `rdma statistic` shows it. */
inline std::uint64_t counter(const std::string &name, const std::string &device = device_name())
{
	wait_jiffy();
	return counter_at_once(name, device);
}

/* The growth of a counter. */
class Growth {
	std::string name_;
	std::uint64_t before_ = counter(name_);

public:
	explicit Growth(std::string name) : name_(std::move(name)) {}
	std::uint64_t value() const { return counter(name_) - before_; }
	bool is(std::uint64_t much) const
	{
		return eventually([&] { return value() == much; });
	}
};

} // namespace peal_test
