// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Data for services: each 8 bytes depend on their position and on a salt, so that data in a wrong
 * place are found, too. And how the programs that compare such data end.
 */
#ifndef PEAL_TEST_POSITION_DATA_HPP
#define PEAL_TEST_POSITION_DATA_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

/* End the program with the exit status that the shell tests expect. */
[[noreturn]] inline void system_error(const std::string &what)
{
	std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(errno));
	std::exit(2);
}

[[noreturn]] inline void wrong(const std::string &what)
{
	std::fprintf(stderr, "FAILED: %s\n", what.c_str());
	std::exit(1);
}

inline std::uint64_t position_word(std::uint64_t position, std::uint64_t salt)
{
	return (position / 8 + salt * 0x10001) * 0x9e3779b97f4a7c15U;
}

inline void fill_by_position(std::uint64_t *words, std::size_t bytes, std::uint64_t position,
			     std::uint64_t salt)
{
	for (std::size_t i = 0; i < bytes; i += 8)
		words[i / 8] = position_word(position + i, salt);
}

/* Return: the first difference in words, or nothing. */
inline std::string compare_by_position(const std::uint64_t *words, std::size_t bytes,
				       std::uint64_t position, std::uint64_t salt)
{
	for (std::size_t i = 0; i < bytes; i += 8) {
		const auto expected = position_word(position + i, salt);

		if (words[i / 8] == expected)
			continue;
		char text[100];
		std::snprintf(text, sizeof(text), "byte %llu: expected %016llx, got %016llx",
			      static_cast<unsigned long long>(position + i),
			      static_cast<unsigned long long>(expected),
			      static_cast<unsigned long long>(words[i / 8]));
		return text;
	}
	return "";
}

#endif
