// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include <rdma/peal-netlink.h>

#include "error.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

/* Indexed by enum peal_nl_scope. */
constexpr std::array<std::string_view, PEAL_NL_SCOPE_COUNT_> scopes{"none", "device", "netns",
								    "host"};

/* Indexed by enum peal_nl_ecn. */
constexpr std::array<std::string_view, PEAL_NL_ECN_COUNT_> ecns{"off", "asked", "on"};

template <typename Number>
Number number(std::string_view value, const char *sentence)
{
	Number parsed = 0;
	const auto end = value.data() + value.size();
	const auto result = std::from_chars(value.data(), end, parsed);

	if (result.ec != std::errc() || result.ptr != end)
		throw WrongUse(fmt::format("{}, not \"{}\"", sentence, value));
	return parsed;
}

template <std::size_t N>
std::uint32_t choice(const std::array<std::string_view, N> &words, std::string_view value,
		     const char *sentence)
{
	const auto found = std::ranges::find(words, value);

	if (found == words.end())
		throw WrongUse(fmt::format("{}, not \"{}\"", sentence, value));
	return static_cast<std::uint32_t>(found - words.begin());
}

/* Values that a newer module may have are numbers, and the kernel judges them. */
std::uint8_t parse_direct(std::string_view value)
{
	if (value == "on" || value == "off")
		return value == "on";
	return number<std::uint8_t>(value, "direct is on or off");
}

std::uint32_t parse_rate(std::string_view value)
{
	return value == "auto" ? 0
			       : number<std::uint32_t>(
					 value, "rate is auto, 10, 25, 40, 50, 100, 200 or 400");
}

/* Calls `take(name, value)` for each pair. */
template <typename Take>
void pairs(std::span<const std::string> words, const Take &take)
{
	for (std::size_t i = 0; i < words.size(); i += 2) {
		if (i + 1 == words.size())
			throw WrongUse(
				fmt::format("the option \"{}\" has no value behind it", words[i]));
		take(words[i], words[i + 1]);
	}
}

template <std::size_t N>
std::string word(const std::array<std::string_view, N> &words, std::optional<std::uint32_t> value)
{
	if (!value)
		return MISSING;
	return *value < N ? std::string(words[*value]) : std::to_string(*value);
}

} /* namespace */

DeviceOptions parse_device_options(std::span<const std::string> words)
{
	DeviceOptions options;

	pairs(words, [&](const std::string &name, const std::string &value) {
		if (name == "direct")
			options.direct = parse_direct(value);
		else if (name == "max-rd-atomic")
			options.max_rd_atomic = number<std::uint32_t>(
				value, "max-rd-atomic is a number from 1 to 128");
		else if (name == "rate")
			options.rate = parse_rate(value);
		else if (name == "ecn")
			options.ecn = choice(ecns, value, "ecn is off, asked or on");
		else
			throw WrongUse(fmt::format("a device has the options direct, max-rd-atomic,"
						   " rate and ecn, not \"{}\"",
						   name));
	});
	return options;
}

HostOptions parse_host_options(std::span<const std::string> words)
{
	HostOptions options;

	pairs(words, [&](const std::string &name, const std::string &value) {
		if (name != "direct")
			throw WrongUse(
				fmt::format("the host has the option direct, not \"{}\"", name));
		options.direct =
			choice(scopes, value, "direct of the host is none, device, netns or host");
	});
	return options;
}

std::string direct_word(std::optional<std::uint8_t> direct)
{
	if (!direct)
		return MISSING;
	return *direct ? "on" : "off";
}

std::string rate_word(std::optional<std::uint32_t> rate)
{
	if (!rate)
		return MISSING;
	return *rate ? std::to_string(*rate) : "auto";
}

std::string ecn_word(std::optional<std::uint32_t> ecn)
{
	return word(ecns, ecn);
}

std::string scope_word(std::optional<std::uint32_t> scope)
{
	return word(scopes, scope);
}

} /* namespace peal::tool */
