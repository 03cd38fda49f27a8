// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "rdma.hpp"

#include <array>
#include <string_view>

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include "error.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

/* Devices of peal have one port. */
constexpr std::uint32_t PORT = 1;

int type_of(int command)
{
	return RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
}

} /* namespace */

std::string port_state_word(std::optional<std::uint64_t> state)
{
	/* Indexed by enum ib_port_state. */
	constexpr std::array<std::string_view, 6> words{"nop",	 "down",   "init",
							"armed", "active", "active-defer"};

	if (!state)
		return MISSING;
	return *state < words.size() ? std::string(words[*state]) : std::to_string(*state);
}

/* Without the RDMA core there is no such protocol. */
static Socket open_rdma()
{
	try {
		return Socket(NETLINK_RDMA);
	} catch (const KernelError &) {
		throw Failure(
			"the kernel has no RDMA core; type \"modprobe ib_core\", and install a "
			"kernel with CONFIG_INFINIBAND if that fails");
	}
}

Rdma::Rdma() : socket(open_rdma()) {}

void Rdma::new_link(const std::string &name, const std::string &netdev)
{
	Request request(type_of(RDMA_NLDEV_CMD_NEWLINK), 0);

	request.add_string(RDMA_NLDEV_ATTR_DEV_NAME, name)
		.add_string(RDMA_NLDEV_ATTR_LINK_TYPE, "peal")
		.add_string(RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
	socket.ask(request);
}

void Rdma::delete_link(std::uint32_t index)
{
	Request request(type_of(RDMA_NLDEV_CMD_DELLINK), 0);

	request.add_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
	socket.ask(request);
}

Port Rdma::port(std::uint32_t index)
{
	Request request(type_of(RDMA_NLDEV_CMD_PORT_GET), 0);

	request.add_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index).add_u32(RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
	const auto messages = socket.ask(request);
	if (messages.empty())
		return {};
	const auto attributes = messages[0].attributes();
	return {attributes.string(RDMA_NLDEV_ATTR_NDEV_NAME),
		attributes.number(RDMA_NLDEV_ATTR_PORT_STATE)};
}

std::vector<Message> Rdma::objects(int command, std::uint32_t index)
{
	Request request(type_of(command), NLM_F_DUMP);

	request.add_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
	return socket.ask(request);
}

void Rdma::queue_pair(std::uint32_t index, std::uint64_t qpn,
		      const std::function<void(const Attributes &)> &take)
{
	for (const auto &message : objects(RDMA_NLDEV_CMD_RES_QP_GET, index))
		message.attributes()
			.nest(RDMA_NLDEV_ATTR_RES_QP)
			.each([&](int, std::span<const std::byte> entry) {
				const Attributes qp(entry);

				if (qp.number(RDMA_NLDEV_ATTR_RES_LQPN) == qpn)
					take(qp);
			});
}

Counters Rdma::counters(std::uint32_t index)
{
	Request request(type_of(RDMA_NLDEV_CMD_STAT_GET), 0);
	Counters counters;

	request.add_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index).add_u32(RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
	for (const auto &message : socket.ask(request))
		message.attributes()
			.nest(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS)
			.each([&](int, std::span<const std::byte> entry) {
				const Attributes counter(entry);
				const auto name =
					counter.string(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME);
				const auto value =
					counter.number(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE);

				if (name && value)
					counters.emplace_back(*name, *value);
			});
	return counters;
}

} /* namespace peal::tool */
