// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The parts of the tool that use RDMA. Each is a file of its own, so that the other commands work
 * where libpeal and libibverbs are missing or broken: "peal doctor" is to say so.
 *
 * Owns: where these files are, and how they are loaded.
 * Does not know: what they do.
 */
#pragma once

namespace peal::tool {

/*
 * Return: the function of the file. It throws Failure if the file cannot be loaded. `command` needs
 * `library`, which `package` has.
 */
void *plugin_function(const char *file, const char *function, const char *command,
		      const char *library, const char *package);

} /* namespace peal::tool */
