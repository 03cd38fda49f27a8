// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "firewall.hpp"

#include <algorithm>
#include <optional>
#include <sstream>

#include <nlohmann/json.hpp>

#include "formatted.hpp"
#include "roce.hpp"

namespace peal::tool {

namespace {

using nlohmann::json;

/* nft refuses deeper jumps, too. */
constexpr int DEEPEST_JUMP = 16;

/* ---- nft: does a match hold? ---- */

enum class Truth { NO, YES, UNKNOWN };

Truth truth(bool holds)
{
	return holds ? Truth::YES : Truth::NO;
}

bool is_member(const json &set, const std::string &word, std::optional<unsigned> number)
{
	if (set.is_string())
		return set == word;
	if (set.is_number())
		return number && set == *number;
	return false;
}

/* Return: does `right` have the value? It is one value, a list, a set or a range. */
Truth has(const json &right, const std::string &word, std::optional<unsigned> number = {})
{
	if (right.is_string() && right.get<std::string>().starts_with('@'))
		return Truth::UNKNOWN; /* a set with a name, whose elements may change */
	if (right.is_object() && right.contains("range") && number)
		return truth(right["range"][0] <= *number && *number <= right["range"][1]);
	if (right.is_object() && right.contains("set"))
		return has(right["set"], word, number);
	if (!right.is_array())
		return right.is_object() ? Truth::UNKNOWN : truth(is_member(right, word, number));
	Truth found = Truth::NO;
	for (const auto &element : right) {
		const auto one = has(element, word, number);

		if (one == Truth::YES)
			return one;
		if (one == Truth::UNKNOWN)
			found = one;
	}
	return found;
}

Truth has_netdev(const json &right, const std::string &netdev)
{
	if (right.is_string() && right.get<std::string>().ends_with('*')) {
		const auto prefix = right.get<std::string>();

		return truth(netdev.starts_with(prefix.substr(0, prefix.size() - 1)));
	}
	return has(right, netdev);
}

Truth payload_has(const json &payload, const json &right, const Packet &packet)
{
	const auto protocol = payload.value("protocol", "");
	const auto field = payload.value("field", "");

	if ((protocol == "udp" || protocol == "th") && field == "dport")
		return has(right, "roce", ROCE_PORT);
	if (protocol == "ip" || protocol == "ip6") {
		if (packet.ipv6 != (protocol == "ip6"))
			return Truth::NO;
		return field == "protocol" || field == "nexthdr" ? has(right, "udp", 17)
								 : Truth::UNKNOWN;
	}
	/* A match on a header that the packet does not have never holds. */
	for (const auto *other : {"tcp", "icmp", "icmpv6", "sctp", "dccp", "esp", "ah"})
		if (protocol == other)
			return Truth::NO;
	return Truth::UNKNOWN;
}

Truth meta_has(const std::string &key, const json &right, const Packet &packet)
{
	if (key == "l4proto")
		return has(right, "udp", 17);
	if (key == "nfproto")
		return has(right, packet.ipv6 ? "ipv6" : "ipv4");
	if (key == (packet.outgoing ? "oifname" : "iifname") ||
	    key == (packet.outgoing ? "oif" : "iif"))
		return has_netdev(right, packet.netdev);
	return Truth::UNKNOWN;
}

/*
 * Packets in both directions go to port 4791, so that connection tracking sees no answer, and each
 * packet is "new".
 */
Truth key_has(const json &left, const json &right, const Packet &packet)
{
	if (left.contains("payload"))
		return payload_has(left["payload"], right, packet);
	if (left.contains("meta"))
		return meta_has(left["meta"].value("key", ""), right, packet);
	if (left.contains("ct") && left["ct"].value("key", "") == "state")
		return has(right, "new");
	return Truth::UNKNOWN;
}

Truth match_holds(const json &match, const Packet &packet)
{
	const auto holds = key_has(match["left"], match["right"], packet);
	const auto op = match.value("op", "==");

	if (holds == Truth::UNKNOWN || (op != "==" && op != "!=" && op != "in"))
		return Truth::UNKNOWN;
	return op == "!=" ? truth(holds == Truth::NO) : holds;
}

/* ---- nft: chains ---- */

struct Chain {
	json head;
	std::vector<json> rules; /* each is a list of statements */
};

/* What may become of a packet at a rule or in a chain. */
struct Outcomes {
	bool passes = false;
	bool drops = false;
	bool goes_on = false; /* to the next rule */
	bool returns = false; /* to the chain that jumped here */

	void add(const Outcomes &other)
	{
		passes |= other.passes;
		drops |= other.drops;
	}
};

class Walk {
public:
	Walk(const std::vector<Chain> &chains, const Packet &packet)
		: chains(chains), packet(packet)
	{
	}

	Outcomes chain(const Chain &chain, int depth = 0) const
	{
		Outcomes all;

		if (depth > DEEPEST_JUMP)
			return {.passes = true, .drops = true};
		for (const auto &statements : chain.rules) {
			const auto one = rule(statements, chain.head, depth);

			all.add(one);
			all.returns |= one.returns;
			if (!one.goes_on)
				return all;
		}
		if (!chain.head.contains("hook"))
			all.returns = true;
		else if (chain.head.value("policy", "accept") == "drop")
			all.drops = true;
		else
			all.passes = true;
		return all;
	}

private:
	const Chain *find(const json &head, const std::string &name) const
	{
		for (const auto &chain : chains)
			if (chain.head["family"] == head["family"] &&
			    chain.head["table"] == head["table"] && chain.head["name"] == name)
				return &chain;
		return nullptr;
	}

	/* A statement that decides nothing, such as "counter", has the outcome that it goes on. */
	Outcomes decide(const json &statement, const json &head, int depth) const
	{
		if (statement.contains("accept"))
			return {.passes = true};
		if (statement.contains("drop") || statement.contains("reject"))
			return {.drops = true};
		if (statement.contains("queue"))
			return {.passes = true, .drops = true};
		if (statement.contains("return"))
			return {.returns = true};
		for (const auto *jump : {"jump", "goto"}) {
			if (!statement.contains(jump))
				continue;
			const auto *target = find(head, statement[jump].value("target", ""));

			if (!target)
				return {.passes = true, .drops = true, .goes_on = true};
			auto there = chain(*target, depth + 1);
			if (jump == std::string_view("jump"))
				std::swap(there.goes_on, there.returns);
			return there;
		}
		return {.goes_on = true};
	}

	/* A map from keys to verdicts. */
	Outcomes look_up(const json &vmap, const json &head, int depth) const
	{
		Outcomes all;

		if (!vmap["data"].is_object() || !vmap["data"].contains("set"))
			return {.passes = true, .drops = true, .goes_on = true};
		for (const auto &element : vmap["data"]["set"]) {
			const auto holds = key_has(vmap["key"], element[0], packet);

			if (holds == Truth::NO)
				continue;
			const auto one = decide(element[1], head, depth);
			all.add(one);
			all.goes_on |= one.goes_on;
			all.returns |= one.returns;
			if (holds == Truth::YES)
				return all;
		}
		all.goes_on = true;
		return all;
	}

	Outcomes rule(const json &statements, const json &head, int depth) const
	{
		bool sure = true;

		for (const auto &statement : statements) {
			if (statement.contains("match")) {
				const auto holds = match_holds(statement["match"], packet);

				if (holds == Truth::NO)
					return {.goes_on = true};
				sure &= holds == Truth::YES;
				continue;
			}
			if (statement.contains("limit")) {
				sure = false;
				continue;
			}
			auto one = statement.contains("vmap")
					   ? look_up(statement["vmap"], head, depth)
					   : decide(statement, head, depth);
			if (one.passes || one.drops || one.returns) {
				one.goes_on |= !sure;
				return one;
			}
		}
		return {.goes_on = true};
	}

	const std::vector<Chain> &chains;
	const Packet &packet;
};

bool is_on_the_way(const json &head, const Packet &packet)
{
	const auto family = head.value("family", "");
	const auto hook = head.value("hook", "");

	if (family != "inet" && family != (packet.ipv6 ? "ip6" : "ip"))
		return false;
	if (packet.outgoing)
		return hook == "output" || hook == "postrouting";
	return hook == "prerouting" || hook == "input";
}

bool is_of_iptables(const std::vector<Chain> &chains, const json &head)
{
	for (const auto &chain : chains)
		if (chain.head["family"] == head["family"] && chain.head["table"] == head["table"])
			for (const auto &rule : chain.rules)
				for (const auto &statement : rule)
					if (statement.contains("xt"))
						return true;
	return false;
}

} /* namespace */

Ruling judge_nft(std::string_view ruleset, const Packet &packet)
{
	std::vector<Chain> chains;
	Ruling ruling;

	const auto all = json::parse(ruleset);
	for (const auto &object : all.at("nftables")) {
		if (object.contains("chain"))
			chains.push_back({object["chain"], {}});
		if (!object.contains("rule"))
			continue;
		const auto &rule = object["rule"];
		for (auto &chain : chains)
			if (chain.head["family"] == rule["family"] &&
			    chain.head["table"] == rule["table"] &&
			    chain.head["name"] == rule["chain"])
				chain.rules.push_back(rule.value("expr", json::array()));
	}
	for (const auto &chain : chains) {
		if (!is_on_the_way(chain.head, packet) || is_of_iptables(chains, chain.head))
			continue;
		const auto outcomes = Walk(chains, packet).chain(chain);
		const auto fate = !outcomes.drops   ? Fate::PASSES
				  : outcomes.passes ? Fate::UNSURE
						    : Fate::DROPPED;

		if (fate > ruling.fate)
			ruling = {fate, formatted("{} {} {}", chain.head.value("family", ""),
						  chain.head.value("table", ""),
						  chain.head.value("name", ""))};
	}
	return ruling;
}

/* ---- iptables-save ---- */

namespace {

/* Return: the word behind `name` in a rule. */
std::optional<std::string> word_behind(const std::vector<std::string> &words, const char *name)
{
	const auto found = std::ranges::find(words, name);

	return found == words.end() || found + 1 == words.end() ? std::nullopt
								: std::optional(found[1]);
}

bool has_port(const std::string &range)
{
	unsigned first = 0, last = 0;

	if (std::sscanf(range.c_str(), "%u:%u", &first, &last) == 1)
		last = first;
	return first <= ROCE_PORT && ROCE_PORT <= last;
}

bool is_state(const std::string &option)
{
	return option == "--ctstate" || option == "--state";
}

/* Options that a rule may have. The others make the rule's effect unsure. */
Truth rule_holds(const std::vector<std::string> &words, const Packet &packet)
{
	const std::string device = packet.outgoing ? "-o" : "-i";
	Truth holds = Truth::YES;

	for (std::size_t i = 2; i + 1 < words.size(); i += 2) {
		const auto &option = words[i];
		const auto &value = words[i + 1];

		if (option == "-j" || option == "-g")
			break;
		if (option == "-m")
			continue;
		if ((option == "-p" && value != "udp" && value != "17" && value != "all") ||
		    (option == "--dport" && !has_port(value)) ||
		    (option == device && value != packet.netdev) ||
		    (is_state(option) && value.find("NEW") == std::string::npos))
			return Truth::NO;
		if (option != "-p" && option != "--dport" && option != device && !is_state(option))
			holds = Truth::UNKNOWN;
	}
	return holds;
}

} /* namespace */

Ruling judge_iptables(std::string_view rules, const Packet &packet)
{
	const std::string chain = packet.outgoing ? "OUTPUT" : "INPUT";
	std::istringstream lines{std::string(rules)};
	Fate fate = Fate::PASSES, unsure = Fate::PASSES;
	bool is_filter = false, decided = false;

	for (std::string line; std::getline(lines, line);) {
		std::istringstream stream(line);
		std::vector<std::string> words;

		for (std::string word; stream >> word;)
			words.push_back(word);
		if (line.starts_with('*'))
			is_filter = line == "*filter";
		if (!is_filter || words.size() < 2 || decided)
			continue;
		if (words[0] == ":" + chain && words[1] == "DROP")
			fate = Fate::DROPPED;
		if (words[0] != "-A" || words[1] != chain)
			continue;
		const auto holds = rule_holds(words, packet);
		const auto target = word_behind(words, "-j");
		if (holds == Truth::NO || !target)
			continue;
		const bool drops = *target == "DROP" || *target == "REJECT";
		if (holds == Truth::YES && (drops || *target == "ACCEPT")) {
			fate = drops ? Fate::DROPPED : Fate::PASSES;
			decided = true;
		} else if (*target != "LOG") {
			unsure = Fate::UNSURE;
		}
	}
	if (unsure == Fate::UNSURE)
		fate = Fate::UNSURE;
	return {fate, fate == Fate::PASSES
			      ? ""
			      : formatted("{} filter {}", packet.ipv6 ? "ip6" : "ip", chain)};
}

} /* namespace peal::tool */
