// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "ping.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>

#include "error.hpp"
#include "ping_module.hpp"

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
		throw WrongUse(fmt::format("\"{}\" is no size from 1 to 1G; type bytes, or for "
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
				all += fmt::format("{}{}", all.empty() ? "" : ", ", word_of(each));
			throw WrongUse(
				fmt::format("\"{}\" is no operation; there are {}", word, all));
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

	/* In a build folder it lies beside the tool. */
	std::error_code unreadable;
	const auto beside = std::filesystem::read_symlink("/proc/self/exe", unreadable)
				    .replace_filename(PING_MODULE_FILE);
	const std::string file = std::filesystem::exists(beside, unreadable) ? beside.string()
									     : PEAL_MODULE_FOLDER
					 "/" PING_MODULE_FILE;
	void *module = dlopen(file.c_str(), RTLD_NOW);
	const auto run =
		module ? reinterpret_cast<PingFunction>(dlsym(module, PING_MODULE_FUNCTION))
		       : nullptr;
	if (!run)
		throw Failure(fmt::format("\"peal ping\" needs the library libpeal, and it cannot "
					  "be loaded ({}); type \"apt-get install libpeal0\"",
					  dlerror()));
	return run(request);
}

} /* namespace peal::tool */
