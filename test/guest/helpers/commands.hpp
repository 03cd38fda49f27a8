// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Commands that a test runs, and their output.
 *
 * Holds: the exit status and the output of a shell, the RDMA core's count of objects.
 * Does not hold: a deadline, because the runner ends a test that hangs.
 */
#pragma once

#include "check.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace peal_test {

/* Return: what the command printed. */
inline std::string read_command(const std::string &command)
{
	std::string text;
	std::array<char, 4096> buffer{};
	std::unique_ptr<FILE, int (*)(FILE *)> pipe(popen(command.c_str(), "r"), pclose);

	while (pipe && std::fgets(buffer.data(), buffer.size(), pipe.get()))
		text += buffer.data();
	return text;
}

/* Return: its exit status, as wait() gives it. */
inline int run(const std::string &command)
{
	std::printf("+ %s\n", command.c_str());
	std::fflush(stdout);
	return std::system(command.c_str());
}

/* Return: the path of the administrator's tool. This program is in build/guest/test/guest. */
inline std::string peal_tool()
{
	return std::filesystem::read_symlink("/proc/self/exe").parent_path() /
	       "../../../user/userspace/tools/peal";
}

/* Return: the counts of the RDMA core, as "peal0: pd 0 cq 0 ..." */
inline std::string resources()
{
	return read_command("rdma resource show " + device_name());
}

} // namespace peal_test
