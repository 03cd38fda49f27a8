// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the RDMA core tells by netlink: links, objects and counters.
 *
 * Owns: the commands of RDMA netlink that the tool needs.
 * Does not know: which devices are peal's, and how objects are shown.
 */
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "netlink.hpp"

namespace peal::tool {

/* What is known of a device's port. */
struct Port {
	std::optional<std::string> netdev;  /* missing if another namespace has it */
	std::optional<std::uint64_t> state; /* enum ib_port_state */
};

/* Return: "down", "active" and so on, or the number. */
std::string port_state_word(std::optional<std::uint64_t> state);

using Counters = std::vector<std::pair<std::string, std::uint64_t>>;

class Rdma {
public:
	Rdma();

	/* `new_link` asks the kernel to load the module. Both throw KernelError. */
	void new_link(const std::string &name, const std::string &netdev);
	void delete_link(std::uint32_t index);

	Port port(std::uint32_t index);
	/* `command` is RDMA_NLDEV_CMD_RES_*_GET. Return: messages, each with some objects. */
	std::vector<Message> objects(int command, std::uint32_t index);
	/* Calls `take` with the attributes of the queue pair, if the device has it. */
	void queue_pair(std::uint32_t index, std::uint64_t qpn,
			const std::function<void(const Attributes &)> &take);
	Counters counters(std::uint32_t index);

private:
	Socket socket;
};

} /* namespace peal::tool */
