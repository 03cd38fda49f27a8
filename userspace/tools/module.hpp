// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What peal's module tells by its generic netlink family.
 *
 * Owns: the commands of the family, and the sentences about its errors.
 * Does not know: RDMA netlink, and how options are written on a command line.
 */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "error.hpp"
#include "fault_rule.hpp"
#include "netlink.hpp"
#include "options.hpp"
#include "qp_error.hpp"

namespace peal::tool {

struct Device {
	std::uint32_t index = 0;
	std::string name;
	DeviceOptions options;
};

/* Return: what to do about an error of a request that is about the rules of `device`. */
Failure fault_failure(const std::string &device, std::uint32_t id, const KernelError &error);

class Module {
public:
	/* Return: whether the module is loaded. */
	static bool is_loaded();

	/* Throws Failure if the module is not loaded. */
	Module();

	/* Return: the devices that this network namespace sees, or the one of this name. */
	std::vector<Device> devices();
	Device device(const std::string &name);
	/* Return: the one of this name, or all if the name is empty. */
	std::vector<Device> devices_named(const std::string &name);
	void set(const std::string &name, const DeviceOptions &options);

	/* Return: the errors of queue pairs that this user may see. */
	std::vector<QpError> errors();

	/* Return: the rules of all devices that this network namespace sees. */
	std::vector<FaultRule> faults();
	/* Return: the number of the new rule. */
	std::uint64_t add_fault(const FaultRule &rule);
	/* Removes all rules of the device if `id` is 0. */
	void delete_fault(const std::string &device, std::uint32_t id);

	void raise_fault(const std::string &device, const FaultEvent &event);

	HostOptions host();
	void set_host(const HostOptions &options);

private:
	Request request(int command, int flags) const;

	Socket socket;
	int family;
};

} /* namespace peal::tool */
