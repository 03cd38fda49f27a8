// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What rules do with packets to UDP port 4791, as their text tells. The JSON is what nft prints for
 * the rule in the comment.
 */
#include <string>
#include <vector>

#include "../../../userspace/tools/firewall.hpp"
#include "../catch.hpp"

using namespace peal::tool;

namespace {

/* udp dport 4791 */
const std::string roce =
	R"({"match":{"op":"==","left":{"payload":{"protocol":"udp","field":"dport"}},"right":4791}})";
/* tcp dport 22 */
const std::string ssh =
	R"({"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":22}})";
/* ip saddr 10.0.0.9 */
const std::string from =
	R"({"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":"10.0.0.9"}})";
/* ct state established,related */
const std::string known =
	R"({"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["established","related"]}})";
const std::string accept = R"({"accept":null})";
const std::string drop = R"({"drop":null})";

std::string chain(const std::string &name, const std::string &hook, const std::string &policy,
		  const std::string &family = "inet")
{
	return R"({"chain":{"family":")" + family + R"(","table":"t","name":")" + name +
	       (hook.empty() ? "" : R"(","type":"filter","hook":")" + hook) +
	       (policy.empty() ? "" : R"(","policy":")" + policy) + "\"}}";
}

std::string rule(const std::string &chain, const std::vector<std::string> &statements,
		 const std::string &family = "inet")
{
	std::string list;

	for (const auto &statement : statements)
		list += (list.empty() ? "" : ",") + statement;
	return R"({"rule":{"family":")" + family + R"(","table":"t","chain":")" + chain +
	       R"(","expr":[)" + list + "]}}";
}

Ruling judge(const std::vector<std::string> &objects, const Packet &packet = {})
{
	std::string list = R"({"metainfo":{}})";

	for (const auto &object : objects)
		list += "," + object;
	return judge_nft(R"({"nftables":[)" + list + "]}", packet);
}

Fate fate(const std::vector<std::string> &objects, const Packet &packet = {})
{
	return judge(objects, packet).fate;
}

const auto in = chain("in", "input", "accept");
const auto closed = chain("in", "input", "drop");

} /* namespace */

TEST_CASE("without rules packets pass, and a rule that drops the port is named")
{
	CHECK(fate({}) == Fate::PASSES);
	CHECK(fate({in}) == Fate::PASSES);
	const auto ruling = judge({in, rule("in", {roce, drop})});
	CHECK(ruling.fate == Fate::DROPPED);
	CHECK(ruling.chain == "inet t in");
	CHECK(fate({in, rule("in", {roce, R"({"reject":null})"})}) == Fate::DROPPED);
}

TEST_CASE("a policy that drops needs a rule that accepts")
{
	CHECK(fate({closed}) == Fate::DROPPED);
	CHECK(fate({closed, rule("in", {ssh, accept})}) == Fate::DROPPED);
	CHECK(fate({closed, rule("in", {roce, R"({"counter":{"packets":0}})", accept})}) ==
	      Fate::PASSES);
}

TEST_CASE("a rule about established connections does not let a packet in, because none is one")
{
	CHECK(fate({closed, rule("in", {known, accept})}) == Fate::DROPPED);
	const std::string map =
		R"({"vmap":{"key":{"ct":{"key":"state"}},"data":{"set":[["established",{"accept":null}],["new",{"drop":null}]]}}})";
	CHECK(fate({in, rule("in", {map})}) == Fate::DROPPED);
}

TEST_CASE("the first rule that holds decides")
{
	CHECK(fate({in, rule("in", {roce, accept}), rule("in", {drop})}) == Fate::PASSES);
	CHECK(fate({in, rule("in", {drop}), rule("in", {roce, accept})}) == Fate::DROPPED);
}

TEST_CASE("a match that cannot be judged makes the fate unsure, unless all comes to the same")
{
	CHECK(fate({in, rule("in", {from, drop})}) == Fate::UNSURE);
	CHECK(fate({closed, rule("in", {from, accept})}) == Fate::UNSURE);
	CHECK(fate({in, rule("in", {from, accept})}) == Fate::PASSES);
	CHECK(fate({closed, rule("in", {from, drop})}) == Fate::DROPPED);
	CHECK(fate({in, rule("in", {from, drop})}, {.ipv6 = true}) == Fate::PASSES);
}

TEST_CASE("sets and ranges of ports, and a set with a name")
{
	const auto port = [](const std::string &right) {
		return R"({"match":{"op":"==","left":{"payload":{"protocol":"udp","field":"dport"}},"right":)" +
		       right + "}}";
	};

	CHECK(fate({in, rule("in", {port(R"({"set":[53,4791]})"), drop})}) == Fate::DROPPED);
	CHECK(fate({in, rule("in", {port(R"({"set":[53,{"range":[4000,5000]}]})"), drop})}) ==
	      Fate::DROPPED);
	CHECK(fate({in, rule("in", {port(R"({"range":[1,4790]})"), drop})}) == Fate::PASSES);
	CHECK(fate({in, rule("in", {port(R"("@ports")"), drop})}) == Fate::UNSURE);
}

TEST_CASE("a netdev is compared by its name, also with a star")
{
	const auto netdev = [](const std::string &op, const std::string &name) {
		return R"({"match":{"op":")" + op +
		       R"(","left":{"meta":{"key":"iifname"}},"right":")" + name + R"("}})";
	};
	const Packet packet{.netdev = "eth0"};

	CHECK(fate({in, rule("in", {netdev("==", "eth0"), drop})}, packet) == Fate::DROPPED);
	CHECK(fate({in, rule("in", {netdev("==", "eth*"), drop})}, packet) == Fate::DROPPED);
	CHECK(fate({in, rule("in", {netdev("==", "lo"), drop})}, packet) == Fate::PASSES);
	CHECK(fate({in, rule("in", {netdev("!=", "lo"), drop})}, packet) == Fate::DROPPED);
}

TEST_CASE("jumps come back, and a return ends only its chain")
{
	const std::string jump = R"({"jump":{"target":"more"}})", leave = R"({"return":null})";
	const auto more = chain("more", "", "");

	CHECK(fate({in, more, rule("in", {jump}), rule("more", {roce, drop})}) == Fate::DROPPED);
	CHECK(fate({in, more, rule("in", {jump}), rule("in", {drop}), rule("more", {ssh, drop})}) ==
	      Fate::DROPPED);
	CHECK(fate({in, more, rule("in", {jump}), rule("more", {roce, leave}),
		    rule("more", {drop})}) == Fate::PASSES);
	CHECK(fate({in, more, rule("in", {R"({"goto":{"target":"more"}})"}), rule("in", {drop})}) ==
	      Fate::PASSES);
	CHECK(fate({in, rule("in", {R"({"jump":{"target":"gone"}})"})}) == Fate::UNSURE);
	CHECK(fate({in, more, rule("in", {jump}), rule("more", {jump})}) != Fate::DROPPED);
}

TEST_CASE("only hooks on the packet's way, and tables of its family, count")
{
	const auto out = chain("out", "output", "drop");

	CHECK(fate({out}) == Fate::PASSES);
	CHECK(fate({out}, {.outgoing = true}) == Fate::DROPPED);
	CHECK(fate({chain("f", "forward", "drop")}) == Fate::PASSES);
	CHECK(fate({chain("in", "input", "drop", "ip6")}) == Fate::PASSES);
	CHECK(fate({chain("in", "input", "drop", "ip6")}, {.ipv6 = true}) == Fate::DROPPED);
	CHECK(fate({chain("raw", "prerouting", "drop", "ip")}) == Fate::DROPPED);
}

TEST_CASE("a limit, a queue and a statement that is not known leave it open")
{
	CHECK(fate({in, rule("in", {roce, R"({"limit":{"rate":10,"per":"second"}})", drop})}) ==
	      Fate::UNSURE);
	CHECK(fate({in, rule("in", {roce, R"({"queue":null})"})}) == Fate::UNSURE);
	CHECK(fate({in, rule("in", {roce, R"({"log":null})"})}) == Fate::PASSES);
}

TEST_CASE("iptables: policy, ports, netdevs, states and rules that cannot be judged")
{
	const auto of = [](const std::string &rules, const Packet &packet = {.netdev = "eth0"}) {
		return judge_iptables("*filter\n:INPUT ACCEPT [0:0]\n" + rules + "COMMIT\n", packet)
			.fate;
	};

	CHECK(of("") == Fate::PASSES);
	CHECK(of(":INPUT DROP [0:0]\n") == Fate::DROPPED);
	CHECK(of("-A INPUT -p udp -m udp --dport 4791 -j DROP\n") == Fate::DROPPED);
	CHECK(of("-A INPUT -p udp -m udp --dport 4000:5000 -j REJECT --reject-with "
		 "icmp-port-unreachable\n") == Fate::DROPPED);
	CHECK(of("-A INPUT -p tcp -m tcp --dport 4791 -j DROP\n") == Fate::PASSES);
	CHECK(of("-A INPUT -i lo -j DROP\n") == Fate::PASSES);
	CHECK(of("-A INPUT -i eth0 -j DROP\n") == Fate::DROPPED);
	CHECK(of("-A INPUT -s 10.0.0.9/32 -j DROP\n") == Fate::UNSURE);
	CHECK(of(":INPUT DROP [0:0]\n-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT\n") ==
	      Fate::DROPPED);
	CHECK(of(":INPUT DROP [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\n") ==
	      Fate::PASSES);
	CHECK(of("-A OUTPUT -j DROP\n") == Fate::PASSES);
	CHECK(of("-A OUTPUT -j DROP\n", {.outgoing = true}) == Fate::DROPPED);
	CHECK(judge_iptables("*nat\n:INPUT DROP [0:0]\nCOMMIT\n", {}).fate == Fate::PASSES);
}
