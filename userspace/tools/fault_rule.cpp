// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "fault_rule.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>

#include <arpa/inet.h>

#include <rdma/peal-abi.h>
#include <rdma/peal-netlink.h>

#include "error.hpp"
#include "formatted.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

/* What a fault happens to, which decides how a rule narrows it. */
enum class Victim { message, packet, object, completion };

struct Kind {
	std::string_view name;
	bool has_status;
	Victim victim;
	bool has_delay = false;
};

/* Indexed by enum peal_nl_fault_kind. */
constexpr std::array<Kind, PEAL_NL_FAULT_KIND_COUNT_> kinds{{
	{"status", true, Victim::message},
	{"nak", true, Victim::message},
	{"rnr", false, Victim::message},
	{"drop", false, Victim::packet},
	{"corrupt", false, Victim::packet},
	{"mark", false, Victim::packet},
	{"delay", false, Victim::packet, true},
	{"reorder", false, Victim::packet},
	{"duplicate", false, Victim::packet},
	{"receive", true, Victim::message},
	{"no-memory", false, Victim::object},
	{"slow", false, Victim::completion, true},
	{"unsent", false, Victim::packet},
}};

/* Indexed by enum peal_nl_fault_event. */
constexpr std::array<std::string_view, PEAL_NL_FAULT_EVENT_COUNT_> events{
	"device-fatal", "port-err", "port-active", "qp-fatal", "cq-err"};

/* Indexed by enum ibv_wc_status, whose names these are. */
constexpr std::array<std::string_view, 22> statuses{
	"",
	"loc-len-err",
	"loc-qp-op-err",
	"loc-eec-op-err",
	"loc-prot-err",
	"wr-flush-err",
	"mw-bind-err",
	"bad-resp-err",
	"loc-access-err",
	"rem-inv-req-err",
	"rem-access-err",
	"rem-op-err",
	"retry-exc-err",
	"rnr-retry-exc-err",
	"loc-rdd-viol-err",
	"rem-inv-rd-req-err",
	"rem-abort-err",
	"inv-eecn-err",
	"inv-eec-state-err",
	"fatal-err",
	"resp-timeout-err",
	"general-err",
};

/* Those between which the ones of a NAK lie. */
constexpr std::uint64_t REM_INV_REQ_ERR = 9, REM_OP_ERR = 11;

struct NamedOpcodes {
	std::string_view name;
	std::uint32_t opcodes;
};

constexpr std::array<NamedOpcodes, 5> named_opcodes{{
	{"send", 1u << PEAL_OP_SEND | 1u << PEAL_OP_SEND_IMM | 1u << PEAL_OP_SEND_INV},
	{"write", 1u << PEAL_OP_WRITE | 1u << PEAL_OP_WRITE_IMM},
	{"read", 1u << PEAL_OP_READ},
	{"atomic", 1u << PEAL_OP_CMP_SWAP | 1u << PEAL_OP_FETCH_ADD | 1u << PEAL_OP_ATOMIC_WRITE},
	{"flush", 1u << PEAL_OP_FLUSH},
}};

/* Return: the number, or nothing if the word is none or less than `least`. */
FaultRule::Number number(std::string_view word, std::uint64_t least, std::uint64_t most)
{
	std::uint64_t value = 0;
	const auto end = word.data() + word.size();
	const auto result = std::from_chars(word.data(), end, value);

	if (result.ec != std::errc() || result.ptr != end || value < least || value > most)
		return {};
	return value;
}

std::uint64_t must_be_number(const std::string &name, std::string_view word, std::uint64_t least,
			     std::uint64_t most = std::numeric_limits<std::uint32_t>::max())
{
	const auto value = number(word, least, most);

	if (!value)
		throw WrongUse(formatted("{} is a number from {}, not \"{}\"", name, least, word));
	return *value;
}

/* Programs call the status IBV_WC_REM_ACCESS_ERR. */
std::uint64_t parse_status(const std::string &word)
{
	constexpr std::string_view prefix = "ibv-wc-";
	auto name = word;

	std::ranges::transform(name, name.begin(), [](unsigned char c) {
		return c == '_' ? '-' : static_cast<char>(std::tolower(c));
	});
	if (name.starts_with(prefix))
		name.erase(0, prefix.size());
	const auto found = std::find(statuses.begin() + 1, statuses.end(), name);
	if (found == statuses.end())
		throw WrongUse(formatted("a status is {}, not \"{}\"",
					 joined(std::span(statuses).subspan(1), ", "), word));
	return static_cast<std::uint64_t>(found - statuses.begin());
}

struct Unit {
	std::string_view name;
	std::uint64_t us;
};

/* The longest name first, because "s" is the end of the others. */
constexpr std::array<Unit, 3> units{{{"us", 1}, {"ms", 1000}, {"s", 1000000}}};

/* Return: microseconds. */
std::uint64_t parse_delay(std::string_view word)
{
	for (const auto &[name, us] : units) {
		if (!word.ends_with(name))
			continue;
		const auto value = number(word.substr(0, word.size() - name.size()), 1,
					  PEAL_NL_FAULT_DELAY_MAX / us);

		if (value)
			return *value * us;
	}
	throw WrongUse(
		formatted("a delay is a number with us, ms or s behind it, from 1us to 10s, not "
			  "\"{}\"",
			  word));
}

std::string delay_word(std::uint64_t us)
{
	const auto unit = std::find_if(units.rbegin(), units.rend(),
				       [us](const Unit &unit) { return us % unit.us == 0; });

	return formatted("{}{}", us / unit->us, unit->name);
}

/* An IPv4 address is the last four bytes of a GID that IPv6 calls mapped. */
FaultRule::Gid parse_peer(const std::string &word)
{
	FaultRule::Gid gid{};

	if (inet_pton(AF_INET, word.c_str(), &gid[12]) == 1)
		gid[10] = gid[11] = std::byte{0xff};
	else if (inet_pton(AF_INET6, word.c_str(), gid.data()) != 1)
		throw WrongUse(formatted(
			"peer is an IPv4 or IPv6 address, as \"ip address\" shows it, not \"{}\"",
			word));
	return gid;
}

std::uint64_t parse_opcodes(const std::string &words)
{
	std::uint64_t opcodes = 0;
	std::size_t begin = 0;

	while (begin <= words.size()) {
		const auto end = std::min(words.find(',', begin), words.size());
		const auto word = words.substr(begin, end - begin);
		const auto found = std::ranges::find(named_opcodes, word, &NamedOpcodes::name);

		if (found == named_opcodes.end())
			throw WrongUse(formatted("opcode is some of send,write,read,atomic,flush"
						 ", not \"{}\"",
						 words));
		opcodes |= found->opcodes;
		begin = end + 1;
	}
	return opcodes;
}

std::uint64_t parse_chance(const std::string &word)
{
	const auto value = word.starts_with("1/")
				   ? number(std::string_view(word).substr(2), 1,
					    std::numeric_limits<std::uint32_t>::max())
				   : std::nullopt;

	if (!value)
		throw WrongUse(formatted(
			"chance is 1/N, for one of N messages on average, not \"{}\"", word));
	return *value;
}

void parse_pair(FaultRule &rule, const std::string &name, const std::string &value)
{
	if (name == "qp")
		rule.qpn = must_be_number("qp", value, 1);
	else if (name == "peer")
		rule.peer = parse_peer(value);
	else if (name == "opcode")
		rule.opcodes = parse_opcodes(value);
	else if (name == "count")
		rule.count = must_be_number("count", value, 1,
					    std::numeric_limits<std::uint64_t>::max());
	else if (name == "every")
		rule.every = must_be_number("every", value, 1);
	else if (name == "chance")
		rule.chance = parse_chance(value);
	else if (name == "seed")
		rule.seed =
			must_be_number("seed", value, 0, std::numeric_limits<std::uint64_t>::max());
	else
		throw WrongUse(formatted("a fault is narrowed by qp, peer, opcode, count, every, "
					 "chance and seed, not by \"{}\"",
					 name));
}

} /* namespace */

FaultRule parse_fault(std::span<const std::string> words)
{
	FaultRule rule;

	const auto kind =
		words.empty() ? kinds.end() : std::ranges::find(kinds, words[0], &Kind::name);

	if (kind == kinds.end())
		throw WrongUse(formatted(
			"a fault is status STATUS, nak STATUS, receive STATUS, rnr, drop, corrupt, "
			"mark, delay TIME, reorder, duplicate, unsent, slow TIME or no-memory{}",
			words.empty() ? std::string() : formatted(", not \"{}\"", words[0])));
	rule.kind = static_cast<std::uint32_t>(kind - kinds.begin());
	words = words.subspan(1);
	if (kind->has_status) {
		if (words.empty())
			throw WrongUse(formatted("name the status behind \"{}\", for example "
						 "rem-access-err",
						 kind->name));
		rule.status = parse_status(words[0]);
		words = words.subspan(1);
	}
	if (kind->has_delay) {
		if (words.empty())
			throw WrongUse(formatted("name the time behind \"{}\", for example 5ms",
						 kind->name));
		rule.delay = parse_delay(words[0]);
		words = words.subspan(1);
	}
	if (rule.kind == PEAL_NL_FAULT_KIND_NAK &&
	    (*rule.status < REM_INV_REQ_ERR || *rule.status > REM_OP_ERR))
		throw WrongUse(formatted("a NAK is rem-inv-req-err, rem-access-err or "
					 "rem-op-err, not {}",
					 fault_status_word(*rule.status)));
	for (; words.size() > 1; words = words.subspan(2))
		parse_pair(rule, words[0], words[1]);
	if (!words.empty())
		throw WrongUse(formatted("\"{}\" has no value behind it", words[0]));
	if (rule.opcodes && kind->victim == Victim::packet)
		throw WrongUse(
			formatted("{} concerns packets, which opcode does not choose", kind->name));
	if (rule.kind == PEAL_NL_FAULT_KIND_RECEIVE && rule.opcodes &&
	    *rule.opcodes & ~std::uint64_t{named_opcodes[0].opcodes | named_opcodes[1].opcodes})
		throw WrongUse("receive concerns send and write, because other operations take no "
			       "receive");
	if ((rule.peer || rule.opcodes) && kind->victim == Victim::completion)
		throw WrongUse(formatted("{} concerns completions, which peer and opcode do not "
					 "choose",
					 kind->name));
	if ((rule.qpn || rule.peer || rule.opcodes) && kind->victim == Victim::object)
		throw WrongUse(formatted("{} concerns objects that a program makes, which qp, "
					 "peer and opcode do not choose",
					 kind->name));
	if (rule.every && rule.chance)
		throw WrongUse("give every or chance, not both");
	if (rule.seed && !rule.chance)
		throw WrongUse("seed needs chance");
	return rule;
}

FaultEvent parse_fault_event(std::span<const std::string> words)
{
	FaultEvent event;
	const auto found = words.empty() ? events.end() : std::ranges::find(events, words[0]);

	if (found == events.end())
		throw WrongUse(formatted(
			"what happens is device-fatal, port-err, port-active, qp-fatal qp N or "
			"cq-err qp N{}",
			words.empty() ? std::string() : formatted(", not \"{}\"", words[0])));
	event.event = static_cast<std::uint32_t>(found - events.begin());
	const bool of_qp = event.event >= PEAL_NL_FAULT_EVENT_QP_FATAL;
	if (words.size() != (of_qp ? 3 : 1) || (of_qp && words[1] != "qp"))
		throw WrongUse(of_qp ? formatted("type \"{} qp N\", with the number of a queue "
						 "pair; \"peal show qp\" lists them",
						 *found)
				     : formatted("nothing stands behind \"{}\"", *found));
	if (of_qp)
		event.qpn = must_be_number("qp", words[2], 1);
	return event;
}

std::string fault_kind_word(const FaultRule &rule)
{
	return rule.kind < kinds.size() ? std::string(kinds[rule.kind].name)
					: formatted("fault {}", rule.kind);
}

std::string fault_status_word(std::uint64_t status)
{
	return status && status < statuses.size() ? std::string(statuses[status])
						  : std::to_string(status);
}

std::string fault_peer_word(const FaultRule::Gid &peer)
{
	std::array<char, INET6_ADDRSTRLEN> text{};
	in6_addr address;

	std::memcpy(&address, peer.data(), sizeof(address));
	if (IN6_IS_ADDR_V4MAPPED(&address))
		inet_ntop(AF_INET, &address.s6_addr[12], text.data(), text.size());
	else
		inet_ntop(AF_INET6, &address, text.data(), text.size());
	return text.data();
}

std::vector<std::string> fault_opcode_words(std::uint64_t opcodes)
{
	std::vector<std::string> words;

	for (const auto &[name, bits] : named_opcodes) {
		if ((opcodes & bits) != bits)
			continue;
		words.emplace_back(name);
		opcodes &= ~std::uint64_t{bits};
	}
	for (unsigned opcode = 0; opcode < 64; opcode++)
		if (opcodes >> opcode & 1)
			words.push_back(std::to_string(opcode));
	return words;
}

std::string fault_words(const FaultRule &rule)
{
	const auto kind = fault_kind_word(rule);

	if (rule.status)
		return formatted("{} {}", kind, fault_status_word(*rule.status));
	return rule.delay ? formatted("{} {}", kind, delay_word(*rule.delay)) : kind;
}

std::string fault_filter_words(const FaultRule &rule)
{
	std::vector<std::string> words;

	if (rule.qpn)
		words.push_back(formatted("qp {}", *rule.qpn));
	if (rule.peer)
		words.push_back(formatted("peer {}", fault_peer_word(*rule.peer)));
	if (rule.opcodes)
		words.push_back(
			formatted("opcode {}", joined(fault_opcode_words(*rule.opcodes), ",")));
	return words.empty() ? MISSING : joined(words, " ");
}

std::string fault_choice_words(const FaultRule &rule)
{
	std::vector<std::string> words;

	if (rule.chance)
		words.push_back(
			formatted("chance 1/{} seed {}", *rule.chance, rule.seed.value_or(0)));
	else if (rule.every.value_or(1) != 1)
		words.push_back(formatted("every {}", *rule.every));
	if (rule.count)
		words.push_back(formatted("count {}", *rule.count));
	return words.empty() ? MISSING : joined(words, " ");
}

} /* namespace peal::tool */
