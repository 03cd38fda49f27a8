/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Text from a format of fmt and values.
 *
 * The library fmt checks the format when the caller is compiled. The rest of fmt is compiled once,
 * with formatted.cpp, because it takes the compiler seconds. The tool cannot use the library
 * itself, whose name differs between releases of Debian.
 */
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace peal::tool {

std::string formatted_list(fmt::string_view format, fmt::format_args values);
void print_list(std::FILE *file, fmt::string_view format, fmt::format_args values);

/* As fmt::format(). */
template <class... Values>
std::string formatted(fmt::format_string<Values...> format, Values &&...values)
{
	return formatted_list(format, fmt::make_format_args(values...));
}

/* As fmt::print(). */
template <class... Values>
void print(std::FILE *file, fmt::format_string<Values...> format, Values &&...values)
{
	print_list(file, format, fmt::make_format_args(values...));
}

template <class... Values>
void print(fmt::format_string<Values...> format, Values &&...values)
{
	print_list(stdout, format, fmt::make_format_args(values...));
}

/* The words with `between` between them. */
std::string joined(const auto &words, std::string_view between)
{
	std::string all;

	for (auto word = std::begin(words); word != std::end(words); ++word) {
		if (word != std::begin(words))
			all += between;
		all += *word;
	}
	return all;
}

} /* namespace peal::tool */
