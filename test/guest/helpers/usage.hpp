// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The kernel's figures of the memory that it uses.
 *
 * Holds: numbers of /proc, by name. Does not hold: the limits that tests set.
 */
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace peal_test {

/* In KiB, from a line of /proc/meminfo. */
inline long meminfo(const std::string &name)
{
	std::ifstream file("/proc/meminfo");
	std::string key, rest;
	long value = 0;

	while (file >> key >> value) {
		if (key == name + ":")
			return value;
		std::getline(file, rest);
	}
	throw std::runtime_error("no " + name + " in /proc/meminfo");
}

/*
 * Free memory in KiB. Each CPU keeps a list of free pages, which do not count as free. In
 * a guest of 3 GiB the list may grow to 56 MiB, more than most leaks that tests look for. So it is
 * made as short as the kernel allows, about 1 MiB.
 */
inline long available_memory()
{
	std::ofstream("/proc/sys/vm/percpu_pagelist_high_fraction") << 1000000;
	std::ofstream("/proc/sys/vm/stat_refresh") << 1;
	return meminfo("MemAvailable");
}

/* The first number behind a name at the start of a line, or -1 when there is none. */
inline long number_in(const std::string &path, const std::string &name)
{
	std::ifstream file(path);
	std::string line, key;
	long value = 0;

	while (std::getline(file, line)) {
		std::istringstream words(line);

		if (words >> key >> value && key == name)
			return value;
	}
	return -1;
}

/* Objects in use of a slab cache. */
inline long slab(const std::string &name)
{
	return number_in("/proc/slabinfo", name);
}

/* Each CPU keeps slabs whose free objects count as used until they are given back. */
inline long exact_slab(const std::string &name)
{
	std::ofstream("/sys/kernel/slab/" + name + "/shrink") << 1;
	return slab(name);
}

constexpr const char *pins_taken = "nr_foll_pin_acquired",
		     *pins_given_back = "nr_foll_pin_released";

inline bool counts_pins()
{
	return number_in("/proc/vmstat", pins_taken) >= 0;
}

/* Pages that are pinned now. The CPUs count apart until they are told to add it up. */
inline long pinned_pages()
{
	std::ofstream("/proc/sys/vm/stat_refresh") << 1;
	return number_in("/proc/vmstat", pins_taken) - number_in("/proc/vmstat", pins_given_back);
}

} // namespace peal_test
