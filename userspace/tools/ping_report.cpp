// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "ping_report.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "formatted.hpp"
#include "table.hpp"

namespace peal::tool {

namespace {

using Json = nlohmann::ordered_json;

const char *verdict_word(RowVerdict verdict)
{
	switch (verdict) {
	case RowVerdict::OK:
		return "ok";
	case RowVerdict::WRONG:
		return "wrong data";
	case RowVerdict::FAILED:
		return "failed";
	default:
		return "skipped";
	}
}

/* Return: "3f 41". */
std::string bytes_text(std::uint64_t bytes, std::uint64_t count)
{
	std::string text;

	for (std::uint64_t i = std::min<std::uint64_t>(count, 8); i-- > 0;)
		text += formatted("{:02x}{}", bytes >> (8 * i) & 0xff, i ? " " : "");
	return text;
}

/* Return: where the first wrong byte is. */
std::string place_of(const Mismatch &mismatch, std::uint64_t size)
{
	if (mismatch.offset < 0)
		return formatted("{} bytes in front of the message", -mismatch.offset);
	if (static_cast<std::uint64_t>(mismatch.offset) >= size)
		return formatted("{} bytes behind the message's end",
				 static_cast<std::uint64_t>(mismatch.offset) - size + 1);
	return formatted("at offset {}", mismatch.offset);
}

} /* namespace */

std::optional<Statistics> statistics_of(std::vector<double> values)
{
	if (values.empty())
		return {};
	std::ranges::sort(values);
	const auto middle = values.size() / 2;
	return Statistics{values.front(),
			  values.size() % 2 ? values[middle]
					    : (values[middle - 1] + values[middle]) / 2,
			  values.back()};
}

std::string titles_line(bool colours)
{
	const auto line =
		formatted("{:<14}  {:>10}  {:>6}  {:>10}  {:>10}  {:>10}  {}", "OPERATION", "BYTES",
			  "COUNT", "MIN US", "MEDIAN US", "MAX US", "VERDICT");

	return colours ? "\033[1m" + line + "\033[0m\n" : line + "\n";
}

std::string row_line(const Row &row, bool colours)
{
	const auto times = statistics_of(row.microseconds);
	const auto cell = [&](double value) {
		return times ? formatted("{:.1f}", value) : std::string(MISSING);
	};
	const auto colour = row.verdict == RowVerdict::OK	 ? Colour::GREEN
			    : row.verdict == RowVerdict::SKIPPED ? Colour::YELLOW
								 : Colour::RED;
	const auto shown = times.value_or(Statistics());

	return formatted("{:<14}  {:>10}  {:>6}  {:>10}  {:>10}  {:>10}  {}\n",
			 name_of(row.operation), row.size, row.microseconds.size(), cell(shown.min),
			 cell(shown.median), cell(shown.max),
			 coloured(verdict_word(row.verdict), colour, colours));
}

std::string path_line(const PingPath &path, const std::vector<Row> &rows)
{
	std::size_t rounds = 0;

	for (const auto &row : rows)
		rounds += row.microseconds.size();
	return formatted(
		"{} to {}: {} operations, {}; {}MTU {}, GID {}, the peer's GID {}\n", path.device,
		path.peer, rounds, is_right(rows) ? "every byte right" : "not all right",
		path.path ? *path.path + " path, " : "", path.mtu, path.gid, path.peer_gid);
}

bool is_right(const std::vector<Row> &rows)
{
	return std::ranges::none_of(rows, [](const Row &row) {
		return row.verdict == RowVerdict::WRONG || row.verdict == RowVerdict::FAILED;
	});
}

std::string ping_json(const PingPath &path, const std::vector<Row> &rows)
{
	auto operations = Json::array();

	for (const auto &row : rows) {
		const auto times = statistics_of(row.microseconds);
		const auto value = [&](double Statistics::*member) {
			return times ? Json((*times).*member) : Json();
		};

		operations.push_back({{"operation", name_of(row.operation)},
				      {"size", row.size},
				      {"count", row.microseconds.size()},
				      {"min_us", value(&Statistics::min)},
				      {"median_us", value(&Statistics::median)},
				      {"max_us", value(&Statistics::max)},
				      {"verdict", verdict_word(row.verdict)},
				      {"why", row.why}});
	}
	return Json{{"ok", is_right(rows)},
		    {"peer", path.peer},
		    {"port", path.port},
		    {"device", path.device},
		    {"path", path.path ? Json(*path.path) : Json()},
		    {"mtu", path.mtu},
		    {"gid", path.gid},
		    {"peer_gid", path.peer_gid},
		    {"operations", operations}}
		.dump(2);
}

std::string wrong_sentence(const Round &round, const Note &note, bool at_peer)
{
	const auto &found = note.mismatch;
	const auto begin = formatted("{} of {} bytes: {}", name_of(round.operation), round.size,
				     at_peer ? "the peer has" : "this host has");
	const auto remedy =
		formatted("repeat it with \"--operation {} --size {}\", and if it is wrong again, "
			  "report it with the kernels and devices of both hosts",
			  word_of(round.operation), round.size);

	switch (note.kind) {
	case NoteKind::WRONG_LENGTH:
		return formatted("{} received {} bytes instead of {}; {}", begin, found.found,
				 found.expected, remedy);
	case NoteKind::WRONG_IMM:
		return formatted("{} received the immediate value {:#x} instead of {:#x}; {}",
				 begin, found.found, found.expected, remedy);
	default:
		return formatted("{} {} wrong byte{}, the first {}, with {} instead of {}; {}",
				 begin, found.wrong, found.wrong == 1 ? "" : "s",
				 place_of(found, round.size), bytes_text(found.found, found.shown),
				 bytes_text(found.expected, found.shown), remedy);
	}
}

} /* namespace peal::tool */
