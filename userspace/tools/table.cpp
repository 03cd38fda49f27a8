// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "table.hpp"

#include <algorithm>
#include <cstdlib>

#include <unistd.h>

#include "formatted.hpp"

namespace peal::tool {

namespace {

bool is_number(std::string_view cell)
{
	return !cell.empty() &&
	       std::ranges::all_of(cell, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

std::string cell_of(const std::vector<std::string> &row, std::size_t column)
{
	return column < row.size() ? row[column] : "";
}

} /* namespace */

std::string Table::text(bool colours) const
{
	std::vector<std::string> lines(rows.size());

	for (std::size_t column = 0; column < rows[0].size(); column++) {
		std::size_t width = 0;
		bool numbers = rows.size() > 1;

		for (std::size_t i = 0; i < rows.size(); i++) {
			const auto cell = cell_of(rows[i], column);

			width = std::max(width, cell.size());
			numbers &= i == 0 || cell == MISSING || is_number(cell);
		}
		for (std::size_t i = 0; i < rows.size(); i++) {
			const auto cell = cell_of(rows[i], column);

			lines[i] += column ? "  " : "";
			lines[i] += numbers ? formatted("{:>{}}", cell, width)
					    : formatted("{:<{}}", cell, width);
		}
	}
	std::string text;
	for (std::size_t i = 0; i < lines.size(); i++) {
		lines[i].erase(lines[i].find_last_not_of(' ') + 1);
		text += colours && i == 0 ? "\033[1m" + lines[i] + "\033[0m\n" : lines[i] + "\n";
	}
	return text;
}

std::string coloured(std::string_view text, Colour colour, bool colours)
{
	const int number = colour == Colour::GREEN ? 32 : colour == Colour::YELLOW ? 33 : 31;

	return colours ? formatted("\033[{}m{}\033[0m", number, text) : std::string(text);
}

bool wants_colours()
{
	const char *terminal = std::getenv("TERM");
	const char *refused = std::getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && !(refused && *refused) && terminal &&
	       std::string_view(terminal) != "dumb";
}

} /* namespace peal::tool */
