// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "fault.hpp"

#include <charconv>
#include <optional>

#include <nlohmann/json.hpp>

#include "error.hpp"
#include "fault_rule.hpp"
#include "formatted.hpp"
#include "module.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json or_null(const std::optional<Value> &value)
{
	return value ? Json(*value) : Json();
}

Json json_of(const FaultRule &rule)
{
	return {{"device", rule.device},
		{"id", rule.id},
		{"fault", fault_kind_word(rule)},
		{"status", rule.status ? Json(fault_status_word(*rule.status)) : Json()},
		{"delay_us", or_null(rule.delay)},
		{"qp", or_null(rule.qpn)},
		{"peer", rule.peer ? Json(fault_peer_word(*rule.peer)) : Json()},
		{"opcodes", rule.opcodes ? Json(fault_opcode_words(*rule.opcodes)) : Json()},
		{"count", or_null(rule.count)},
		{"every", or_null(rule.every)},
		{"chance", or_null(rule.chance)},
		{"seed", or_null(rule.seed)},
		{"seen", or_null(rule.seen)},
		{"fired", or_null(rule.fired)}};
}

std::string cell_of(const FaultRule::Number &value)
{
	return value ? std::to_string(*value) : MISSING;
}

} /* namespace */

void fault_add(const std::string &device, const std::vector<std::string> &words)
{
	auto rule = parse_fault(words);

	rule.device = device;
	print("{}\n", Module().add_fault(rule));
}

void fault_show(const std::string &device, bool json)
{
	Module module;
	Table table({"DEVICE", "ID", "FAULT", "WHERE", "WHEN", "SEEN", "FIRED"});
	auto all = Json::array();

	if (!device.empty())
		module.device(device); /* throws if there is none */
	for (const auto &rule : module.faults()) {
		if (!device.empty() && rule.device != device)
			continue;
		table.add({rule.device, std::to_string(rule.id), fault_words(rule),
			   fault_filter_words(rule), fault_choice_words(rule), cell_of(rule.seen),
			   cell_of(rule.fired)});
		all.push_back(json_of(rule));
	}
	if (json)
		print("{}\n", all.dump(2));
	else if (all.empty())
		print("there are no faults; \"peal fault add --help\" shows how to make some\n");
	else
		print("{}", table.text(wants_colours()));
}

void fault_now(const std::string &device, const std::vector<std::string> &words)
{
	const auto event = parse_fault_event(words);

	Module().raise_fault(device, event);
}

void fault_delete(const std::string &device, const std::string &id)
{
	std::uint32_t number = 0;
	const auto end = id.data() + id.size();
	const auto result = std::from_chars(id.data(), end, number);

	if (!id.empty() && (result.ec != std::errc() || result.ptr != end || !number))
		throw WrongUse(formatted("\"{}\" is no rule; \"peal fault show {}\" lists their "
					 "numbers",
					 id, device));
	Module().delete_fault(device, number);
}

} /* namespace peal::tool */
