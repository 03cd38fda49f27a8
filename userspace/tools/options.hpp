// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The options of a device and of the host, as words of a command line.
 *
 * Owns: the names of options and of their values, and the sentences about wrong ones.
 * Does not know: netlink. The kernel decides which numbers it takes, because a module may be newer
 * than the tool.
 */
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace peal::tool {

/* What a command changes, or what the module says. An older module lacks options. */
struct DeviceOptions {
	std::optional<std::uint8_t> direct;
	std::optional<std::uint32_t> max_rd_atomic;
	std::optional<std::uint32_t> rate; /* Gb/s; 0: the netdev's */
	std::optional<std::uint32_t> ecn;  /* enum peal_nl_ecn */
};

struct HostOptions {
	std::optional<std::uint32_t> direct; /* enum peal_nl_scope */
};

/* The words are pairs of an option and its value. Throws WrongUse. */
DeviceOptions parse_device_options(std::span<const std::string> words);
HostOptions parse_host_options(std::span<const std::string> words);

/* Values in words. A value that this tool does not know is shown as its number. */
std::string direct_word(std::optional<std::uint8_t> direct);
std::string rate_word(std::optional<std::uint32_t> rate);
std::string ecn_word(std::optional<std::uint32_t> ecn);
std::string scope_word(std::optional<std::uint32_t> scope);

} /* namespace peal::tool */
