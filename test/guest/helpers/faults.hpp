// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Kernel allocations that fail because a test wants it: the client of peal_kfail.ko.
 *
 * Holds: which allocations of this thread fail, and how many failed.
 * Does not hold: which allocations may fail (kmod/peal_kfail.c).
 */
#pragma once

#include "commands.hpp"
#include "verbs.hpp"

#include "kmod/peal_kfail.h"

#include <fcntl.h>
#include <sys/ioctl.h>

namespace peal_test {

enum class Which { one, from };

/* Loads the module that makes allocations of this thread fail, and unloads it. */
class Faults {
public:
	Faults()
	{
		if (run("modprobe peal_kfail $KFAIL_OPTIONS"))
			throw std::runtime_error("peal_kfail does not load");
		fd_ = open("/dev/peal_kfail", O_RDWR | O_CLOEXEC);
		if (fd_ < 0)
			throw_errno("open /dev/peal_kfail");
	}
	~Faults()
	{
		close(fd_);
		run("rmmod peal_kfail");
	}
	Faults(const Faults &) = delete;
	Faults &operator=(const Faults &) = delete;

	void start(Which which, unsigned long number) const
	{
		ioctl(fd_, which == Which::one ? PEAL_KFAIL_ONE : PEAL_KFAIL_FROM, number);
	}
	/* Return: how many have failed. */
	int stop() const { return ioctl(fd_, PEAL_KFAIL_STOP); }

private:
	int fd_;
};

} // namespace peal_test
