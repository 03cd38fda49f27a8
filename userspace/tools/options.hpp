// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The options of a device and of the host, as words of a command line.
 *
 * Owns: the names of options and of their values, and the sentences about wrong ones.
 * Does not know: netlink. The kernel decides which numbers it takes, because a module may be newer
 * than the tool.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace peal::tool {

/* How many limits a device has. */
constexpr std::size_t LIMITS = 8;

/* What a command changes, or what the module says. An older module lacks options. */
struct DeviceOptions {
	std::optional<std::uint8_t> direct;
	std::optional<std::uint32_t> rate;			 /* Gb/s; 0: the netdev's */
	std::optional<std::uint32_t> ecn;			 /* enum peal_nl_ecn */
	std::array<std::optional<std::uint32_t>, LIMITS> limits; /* in the order of limits() */
	std::optional<std::uint32_t> without; /* bits 1 << enum peal_nl_feature */
	std::optional<std::uint8_t> faults;   /* only when the device is added */
};

struct HostOptions {
	std::optional<std::uint32_t> direct; /* enum peal_nl_scope */
};

/* The words are pairs of an option and its value. Throws WrongUse. */
DeviceOptions parse_device_options(std::span<const std::string> words);
HostOptions parse_host_options(std::span<const std::string> words);

/* What the programs of a device may have at most. */
struct Limit {
	const char *name;
	int attribute;	     /* enum peal_nl_dev_attr */
	std::uint32_t least; /* a command can set it to */
	std::uint32_t most;  /* UINT32_MAX: any number, and then there is no limit */
};

const std::array<Limit, LIMITS> &limits();

/* Values in words. A value that this tool does not know is shown as its number. */
std::string switch_word(std::optional<std::uint8_t> value);
std::string rate_word(std::optional<std::uint32_t> rate);
std::string ecn_word(std::optional<std::uint32_t> ecn);
/* Features, see Documentation/manual/peal-link.8.rst. */
std::vector<std::string> without_words(std::uint32_t without);
/* The limits that are below the highest, in the words that set them, but not max-rd-atomic. */
std::string limit_words(const DeviceOptions &options);
std::string scope_word(std::optional<std::uint32_t> scope);

} /* namespace peal::tool */
