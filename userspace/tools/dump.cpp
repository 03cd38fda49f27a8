// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "dump.hpp"

#include <charconv>

#include <rdma/rdma_netlink.h>

#include "dump_module.hpp"
#include "error.hpp"
#include "formatted.hpp"
#include "module.hpp"
#include "plugin.hpp"
#include "rdma.hpp"

namespace peal::tool {

namespace {

std::uint64_t parse_qp(const std::vector<std::string> &words)
{
	std::uint64_t qpn = 0;
	const auto number = words.size() == 2 ? words[1] : std::string();
	const auto *end = number.data() + number.size();
	const auto [rest, problem] = std::from_chars(number.data(), end, qpn);

	if (words[0] != "qp" || problem != std::errc() || rest != end)
		throw WrongUse(formatted("behind the device there may be \"qp\" and a number, not "
					 "\"{}\"",
					 joined(words, " ")));
	return qpn;
}

/*
 * A packet names only the queue pair that it goes to, so the packets of a connection are those to
 * either of its ends.
 */
std::vector<std::uint64_t> ends_of(const Device &device, std::uint64_t qpn)
{
	std::vector<std::uint64_t> ends;

	Rdma().queue_pair(device.index, qpn, [&](const Attributes &qp) {
		ends.assign(1, qpn);
		if (const auto peer = qp.number(RDMA_NLDEV_ATTR_RES_RQPN))
			ends.push_back(*peer);
	});
	if (ends.empty())
		throw Failure(formatted("{0} has no queue pair {1}; \"peal show qp {0}\" lists "
					"them",
					device.name, qpn));
	return ends;
}

} /* namespace */

int dump(const DumpRequest &request)
{
	auto what = request;

	if (!request.words.empty())
		what.qpns.assign(1, parse_qp(request.words));
	const auto device = Module().device(request.device); /* throws if there is none */

	if (!what.qpns.empty())
		what.qpns = ends_of(device, what.qpns[0]);
	return reinterpret_cast<DumpFunction>(
		plugin_function(DUMP_MODULE_FILE, DUMP_MODULE_FUNCTION, "peal dump", "libibverbs",
				"ibverbs-provider-peal"))(what);
}

} /* namespace peal::tool */
