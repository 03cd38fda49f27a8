// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "why.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

#include <nlohmann/json.hpp>
#include <rdma/peal-abi.h>

#include "error.hpp"
#include "formatted.hpp"
#include "module.hpp"
#include "qp_error.hpp"

namespace peal::tool {

namespace {

using Json = nlohmann::ordered_json;

struct Wanted {
	std::string device; /* any if empty */
	std::optional<std::uint64_t> qpn;
};

Wanted read_wanted(const std::string &words)
{
	const auto slash = words.rfind('/');
	Wanted wanted;

	if (words.empty())
		return wanted;
	if (slash != std::string::npos)
		wanted.device = words.substr(0, slash);
	const auto number = slash == std::string::npos ? words : words.substr(slash + 1);
	std::uint64_t qpn = 0;
	const auto [end, problem] =
		std::from_chars(number.data(), number.data() + number.size(), qpn);
	if (problem != std::errc() || end != number.data() + number.size() || number.empty())
		throw WrongUse(formatted("\"{}\" is no queue pair; type its number, or "
					 "DEVICE/NUMBER; \"peal show qp\" lists them",
					 words));
	wanted.qpn = qpn;
	return wanted;
}

bool is_wanted(const QpError &error, const Wanted &wanted)
{
	return (wanted.device.empty() || error.device == wanted.device) &&
	       (!wanted.qpn || error.qpn == *wanted.qpn);
}

/*
 * Do the two errors tell of one message, from its two ends? A responder that had refused another
 * message before is no explanation, but the NAK of this one may have been lost.
 */
bool are_ends(const QpError &requester, const QpError &responder)
{
	return !requester.responder && responder.responder && requester.peer_qpn == responder.qpn &&
	       responder.peer_qpn == requester.qpn &&
	       (requester.status == responder.status ||
		requester.reason == PEAL_REASON_PEER_SILENT);
}

std::string age_of(const QpError &error)
{
	const auto seconds = error.age.value_or(0) / 1000000000;

	if (seconds < 120)
		return formatted("{} s ago", seconds);
	return seconds < 7200 ? formatted("{} min ago", seconds / 60)
			      : formatted("{} h ago", seconds / 3600);
}

void print_remedy(const QpError &error, const char *indent)
{
	const auto remedy = what_to_do(error);

	if (!remedy.empty())
		print("{}-> {}\n", indent, remedy);
}

void print_error(const QpError &error, const QpError *other)
{
	const auto status = status_of(error);

	print("{}/{}: {} {}{}, {}{}\n", error.device, error.qpn, operation_of(error),
	      error.responder ? "of the peer refused" : "failed",
	      status.empty() || error.responder ? "" : ": " + status, age_of(error),
	      error.count.value_or(1) > 1 ? formatted(", the last of {} errors", *error.count)
					  : "");
	print("    {}\n", what_happened(error));
	if (!other) {
		print_remedy(error, "    ");
		return;
	}
	/* The responder knows better what to do. */
	print("    the peer is {}/{}: {}\n", other->device, other->qpn, what_happened(*other));
	print_remedy(*other, "    ");
}

template <typename Value>
Json or_null(const std::optional<Value> &value)
{
	return value ? Json(*value) : Json();
}

Json json_of(const QpError &error)
{
	return {{"device", error.device},
		{"qpn", error.qpn},
		{"side", error.responder ? "responder" : "requester"},
		{"peer_qpn", or_null(error.peer_qpn)},
		{"peer_address", or_null(error.peer_address)},
		{"uid", or_null(error.uid)},
		{"age_ns", or_null(error.age)},
		{"count", or_null(error.count)},
		{"operation", operation_of(error)},
		{"status", status_of(error)},
		{"reason", or_null(error.reason)},
		{"what", what_happened(error)},
		{"remedy", what_to_do(error)},
		{"key", or_null(error.key)},
		{"address", or_null(error.address)},
		{"length", or_null(error.length)}};
}

} /* namespace */

void explain_errors(const std::string &queue_pair, bool json)
{
	const auto wanted = read_wanted(queue_pair);
	Module module;
	auto errors = module.errors();
	auto list = Json::array();
	std::vector<const QpError *> shown;

	if (!wanted.device.empty())
		module.device(wanted.device); /* throws if there is none */
	std::ranges::sort(errors, {}, [](const QpError &error) { return error.age.value_or(0); });
	for (const auto &error : errors) {
		if (!is_wanted(error, wanted))
			continue;
		if (json) {
			list.push_back(json_of(error));
			continue;
		}
		/* The answer of a responder is shown with its requester, if that is shown. */
		if (std::ranges::any_of(errors, [&](const QpError &requester) {
			    return are_ends(requester, error) && is_wanted(requester, wanted);
		    }))
			continue;
		const auto other = std::ranges::find_if(errors, [&](const QpError &responder) {
			return are_ends(error, responder);
		});
		print_error(error, other == errors.end() ? nullptr : &*other);
		shown.push_back(&error);
	}
	if (json)
		print("{}\n", list.dump(2));
	else if (shown.empty())
		print("no error of {} is known; errors of other users are shown to root\n",
		      queue_pair.empty() ? "a queue pair" : queue_pair);
}

} /* namespace peal::tool */
