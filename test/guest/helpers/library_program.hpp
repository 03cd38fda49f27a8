// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * For the programs library_*: each mistake ends the program with its reason. It knows no test.
 */
#pragma once
#include <peal/peal.hpp>

#include <cstdio>
#include <cstdlib>
#include <utility>

inline void expect(bool good, const char *what, const char *why = "")
{
	if (good)
		return;
	std::printf("%s: %s\n", what, why);
	std::exit(1);
}

template <class T>
T must(peal::result<T> made, const char *what)
{
	expect(bool(made), what, made.why());
	return std::move(made).value();
}
