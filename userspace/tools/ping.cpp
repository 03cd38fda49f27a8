// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "ping.hpp"

#include <algorithm>
#include <charconv>

#include "error.hpp"
#include "formatted.hpp"
#include "ping_module.hpp"
#include "plugin.hpp"

namespace peal::tool {

std::uint64_t read_size(const std::string &text)
{
	constexpr std::string_view units = "KMG";
	std::uint64_t size = 0;
	const auto *end = text.data() + text.size();
	const auto [rest, problem] = std::from_chars(text.data(), end, size);
	const auto unit = rest + 1 == end ? units.find(*rest) : std::string_view::npos;
	const auto shift = unit == std::string_view::npos ? 0 : 10 * (unit + 1);

	if (problem != std::errc() || (rest != end && !shift) || !size || size > PING_MOST >> shift)
		throw WrongUse(formatted("\"{}\" is no size from 1 to 1G; type bytes, or for "
					 "example 64K or 2M",
					 text));
	return size << shift;
}

std::vector<Operation> read_operations(const std::vector<std::string> &words)
{
	std::vector<Operation> operations;

	for (const auto &word : words) {
		const auto operation = operation_of(word);

		if (!operation) {
			std::string all;

			for (const auto each : ALL_OPERATIONS)
				all += formatted("{}{}", all.empty() ? "" : ", ", word_of(each));
			throw WrongUse(
				formatted("\"{}\" is no operation; there are {}", word, all));
		}
		operations.push_back(*operation);
	}
	if (operations.empty())
		operations.assign(ALL_OPERATIONS.begin(), ALL_OPERATIONS.end());
	return operations;
}

int ping(const PingRequest &request)
{
	if (request.listen == !request.peer.empty())
		throw WrongUse("type either \"peal ping ADDRESS\" with an address of the peer, or "
			       "\"peal ping --listen\"");
	/* So that wrong words are found also where the module cannot be loaded. */
	read_operations(request.operations);
	std::ranges::for_each(request.sizes, read_size);

	const auto run = reinterpret_cast<PingFunction>(plugin_function(
		PING_MODULE_FILE, PING_MODULE_FUNCTION, "peal ping", "libpeal", "libpeal0"));

	return run(request);
}

} /* namespace peal::tool */
