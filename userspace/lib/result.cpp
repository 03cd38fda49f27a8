// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sentences of failures, and the end of a program that ignores one.
 */
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "peal/result.hpp"

namespace peal {

error error::make(int code, const char *format, ...) noexcept
{
	error made;
	va_list values;

	made.code_ = code;
	va_start(values, format);
	std::vsnprintf(made.text_, sizeof(made.text_), format, values);
	va_end(values);
	return made;
}

void detail::no_value(const char *why) noexcept
{
	std::fprintf(stderr, "libpeal: the program used a value that does not exist: %s\n", why);
	std::abort();
}

} // namespace peal
