// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Tables and colours for people.
 *
 * Owns: widths, alignment, and when colours are used.
 * Does not know: what the cells mean.
 */
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace peal::tool {

/* A cell whose value the kernel did not give. */
inline constexpr const char *MISSING = "-";

/* Columns are as wide as their widest cell. A column of numbers is aligned to the right. */
class Table {
public:
	explicit Table(std::vector<std::string> titles) : rows{std::move(titles)} {}

	/* A row may be shorter than the titles. */
	void add(std::vector<std::string> row) { rows.push_back(std::move(row)); }
	/* Return: lines that end in a newline, without spaces at their end. */
	std::string text(bool colours) const;

private:
	std::vector<std::vector<std::string>> rows;
};

enum class Colour { GREEN, YELLOW, RED };

std::string coloured(std::string_view text, Colour colour, bool colours);

/* Return: true if the standard output is a terminal that shows colours, and NO_COLOR is not set. */
bool wants_colours();

} /* namespace peal::tool */
