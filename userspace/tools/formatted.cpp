// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "formatted.hpp"

#include <fmt/format.h>

namespace peal::tool {

std::string formatted_list(fmt::string_view format, fmt::format_args values)
{
	return fmt::vformat(format, values);
}

void print_list(std::FILE *file, fmt::string_view format, fmt::format_args values)
{
	fmt::vprint(file, format, values);
}

} /* namespace peal::tool */
