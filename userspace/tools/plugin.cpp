// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "plugin.hpp"

#include <filesystem>
#include <string>

#include <dlfcn.h>

#include "error.hpp"
#include "formatted.hpp"

namespace peal::tool {

void *plugin_function(const char *file, const char *function, const char *command,
		      const char *library, const char *package)
{
	/* In a build folder it lies beside the tool. */
	std::error_code unreadable;
	const auto beside =
		std::filesystem::read_symlink("/proc/self/exe", unreadable).replace_filename(file);
	const std::string path = std::filesystem::exists(beside, unreadable)
					 ? beside.string()
					 : std::string(PEAL_MODULE_FOLDER "/") + file;
	void *plugin = dlopen(path.c_str(), RTLD_NOW);
	void *found = plugin ? dlsym(plugin, function) : nullptr;

	if (!found)
		throw Failure(formatted("\"{}\" needs the library {}, and it cannot be loaded "
					"({}); type \"apt-get install {}\"",
					command, library, dlerror(), package));
	return found;
}

} /* namespace peal::tool */
