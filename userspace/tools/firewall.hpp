// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What rules of a firewall do with peal's packets, as far as their text tells.
 *
 * Owns: a reading of nft's JSON and of iptables-save for packets to UDP port 4791.
 * Does not know: how the text is obtained. Rules that look at more than protocol, port, netdev and
 * state of the connection are not judged.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace peal::tool {

/* A packet to UDP port 4791 at this host. */
struct Packet {
	bool ipv6 = false;
	bool outgoing = false;
	std::string netdev = {};
};

enum class Fate { PASSES, UNSURE, DROPPED };

struct Ruling {
	Fate fate = Fate::PASSES;
	std::string chain; /* "inet filter input": what drops it, or may */
};

/*
 * `ruleset` is the output of "nft -j list ruleset". Tables that iptables-nft made, whose rules nft
 * does not translate, are left to judge_iptables(). Throws nlohmann::json::exception.
 */
Ruling judge_nft(std::string_view ruleset, const Packet &packet);

/* `rules` is the output of iptables-save or ip6tables-save, whichever the packet's family needs. */
Ruling judge_iptables(std::string_view rules, const Packet &packet);

} /* namespace peal::tool */
