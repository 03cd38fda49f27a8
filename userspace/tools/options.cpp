// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

#include <rdma/peal-abi.h>
#include <rdma/peal-netlink.h>

#include "error.hpp"
#include "formatted.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

/* Indexed by enum peal_nl_scope. */
constexpr std::array<std::string_view, PEAL_NL_SCOPE_COUNT_> scopes{"none", "device", "netns",
								    "host"};

/* Indexed by enum peal_nl_ecn. */
constexpr std::array<std::string_view, PEAL_NL_ECN_COUNT_> ecns{"off", "asked", "on"};

/* Indexed by enum peal_nl_feature. */
constexpr std::array<std::string_view, PEAL_NL_FEATURE_COUNT_> features{
	"rc", "uc", "ud", "xrc", "raw", "srq", "atomic", "mw", "odp"};

constexpr auto ANY = std::numeric_limits<std::uint32_t>::max();

constexpr std::array<Limit, LIMITS> all_limits{{
	{"max-rd-atomic", PEAL_NL_DEV_MAX_RD_ATOMIC, 1, 128},
	{"max-qp", PEAL_NL_DEV_MAX_QP, 1, ANY},
	{"max-cq", PEAL_NL_DEV_MAX_CQ, 1, ANY},
	{"max-mr", PEAL_NL_DEV_MAX_MR, 1, ANY},
	{"max-wr", PEAL_NL_DEV_MAX_WR, 1, PEAL_MAX_QP_WR},
	{"max-cqe", PEAL_NL_DEV_MAX_CQE, 1, PEAL_MAX_CQE},
	{"max-sge", PEAL_NL_DEV_MAX_SGE, 1, PEAL_MAX_SGE},
	{"max-inline", PEAL_NL_DEV_MAX_INLINE, 0, PEAL_MAX_INLINE},
}};

template <typename Number>
Number number(std::string_view value, const char *sentence)
{
	Number parsed = 0;
	const auto end = value.data() + value.size();
	const auto result = std::from_chars(value.data(), end, parsed);

	if (result.ec != std::errc() || result.ptr != end)
		throw WrongUse(formatted("{}, not \"{}\"", sentence, value));
	return parsed;
}

template <std::size_t N>
std::uint32_t choice(const std::array<std::string_view, N> &words, std::string_view value,
		     const char *sentence)
{
	const auto found = std::ranges::find(words, value);

	if (found == words.end())
		throw WrongUse(formatted("{}, not \"{}\"", sentence, value));
	return static_cast<std::uint32_t>(found - words.begin());
}

/* Values that a newer module may have are numbers, and the kernel judges them. */
std::uint8_t parse_switch(std::string_view value, const char *sentence)
{
	if (value == "on" || value == "off")
		return value == "on";
	return number<std::uint8_t>(value, sentence);
}

std::uint32_t parse_rate(std::string_view value)
{
	return value == "auto" ? 0
			       : number<std::uint32_t>(
					 value, "rate is auto, 10, 25, 40, 50, 100, 200 or 400");
}

/* Return: the value, or the highest one for "max". */
std::uint32_t parse_limit(const Limit &limit, const std::string &value)
{
	const auto sentence = limit.most == ANY ? formatted("{} is max or a number from {}",
							    limit.name, limit.least)
						: formatted("{} is max or a number from {} to {}",
							    limit.name, limit.least, limit.most);

	return value == "max" ? limit.most : number<std::uint32_t>(value, sentence.c_str());
}

/* The words are separated by commas. */
std::uint32_t parse_without(const std::string &value)
{
	const auto sentence = formatted("without is none or some of {}", joined(features, ","));
	std::uint32_t without = 0;
	std::size_t begin = 0;

	if (value == "none")
		return 0;
	while (begin <= value.size()) {
		const auto end = std::min(value.find(',', begin), value.size());
		const auto feature = value.substr(begin, end - begin);

		without |= 1u << choice(features, feature, sentence.c_str());
		begin = end + 1;
	}
	return without;
}

/* Calls `take(name, value)` for each pair. */
template <typename Take>
void pairs(std::span<const std::string> words, const Take &take)
{
	for (std::size_t i = 0; i < words.size(); i += 2) {
		if (i + 1 == words.size())
			throw WrongUse(
				formatted("the option \"{}\" has no value behind it", words[i]));
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

std::vector<std::string_view> names_of_limits()
{
	std::vector<std::string_view> names;

	for (const auto &limit : all_limits)
		names.push_back(limit.name);
	return names;
}

} /* namespace */

const std::array<Limit, LIMITS> &limits()
{
	return all_limits;
}

DeviceOptions parse_device_options(std::span<const std::string> words)
{
	DeviceOptions options;

	pairs(words, [&](const std::string &name, const std::string &value) {
		const auto limit = std::ranges::find(all_limits, name, &Limit::name);

		if (limit != all_limits.end())
			options.limits[static_cast<std::size_t>(limit - all_limits.begin())] =
				parse_limit(*limit, value);
		else if (name == "direct")
			options.direct = parse_switch(value, "direct is on or off");
		else if (name == "rate")
			options.rate = parse_rate(value);
		else if (name == "ecn")
			options.ecn = choice(ecns, value, "ecn is off, asked or on");
		else if (name == "without")
			options.without = parse_without(value);
		else if (name == "faults")
			options.faults = parse_switch(value, "faults is on or off");
		else
			throw WrongUse(formatted(
				"a device has the options direct, rate, ecn, {}, without and "
				"faults, not \"{}\"",
				joined(names_of_limits(), ", "), name));
	});
	return options;
}

HostOptions parse_host_options(std::span<const std::string> words)
{
	HostOptions options;

	pairs(words, [&](const std::string &name, const std::string &value) {
		if (name != "direct")
			throw WrongUse(
				formatted("the host has the option direct, not \"{}\"", name));
		options.direct =
			choice(scopes, value, "direct of the host is none, device, netns or host");
	});
	return options;
}

std::string switch_word(std::optional<std::uint8_t> value)
{
	if (!value)
		return MISSING;
	return *value ? "on" : "off";
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

std::vector<std::string> without_words(std::uint32_t without)
{
	std::vector<std::string> words;

	for (std::uint32_t feature = 0; feature < 32; feature++)
		if (without & 1u << feature)
			words.push_back(word(features, feature));
	return words;
}

std::string limit_words(const DeviceOptions &options)
{
	std::vector<std::string> words;

	for (std::size_t i = 0; i < LIMITS; i++) {
		const auto &[name, attribute, least, most] = all_limits[i];

		if (attribute != PEAL_NL_DEV_MAX_RD_ATOMIC && options.limits[i] &&
		    *options.limits[i] < most)
			words.push_back(formatted("{} {}", name, *options.limits[i]));
	}
	if (options.without.value_or(0))
		words.push_back(
			formatted("without {}", joined(without_words(*options.without), ",")));
	return words.empty() ? MISSING : joined(words, " ");
}

std::string scope_word(std::optional<std::uint32_t> scope)
{
	return word(scopes, scope);
}

} /* namespace peal::tool */
