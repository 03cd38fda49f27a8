// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See world.hpp.
 */
#include "world.hpp"

#include <cstdarg>
#include <cstdio>

namespace peal::sim {

void violation(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	std::vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	throw Violation(text);
}

bool World::step()
{
	if (events_.empty())
		return false;
	Event event = events_.top();

	events_.pop();
	now_ = event.at;
	done_++;
	event.actor->wake(event.what);
	return true;
}

void World::trace(const char *format, ...) const
{
	va_list arguments;

	if (!verbose_)
		return;
	std::printf("%12.3f us  ", static_cast<double>(now_) / 1000);
	va_start(arguments, format);
	std::vprintf(format, arguments);
	va_end(arguments);
	std::printf("\n");
}

} // namespace peal::sim
