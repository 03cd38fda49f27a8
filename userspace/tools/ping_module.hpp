// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Between the tool and the file that has the two ends of "peal ping".
 *
 * Owns: the names of the file and of its function.
 * Does not know: what the ends do. The function is in ping_client.cpp, the server in
 * ping_server.cpp.
 */
#pragma once

#include "ping.hpp"

#define PING_MODULE_FILE "peal-ping.so"
#define PING_MODULE_FUNCTION "peal_tool_ping"

namespace peal::tool {

using PingFunction = int (*)(const PingRequest &request);

/* Answers clients until the process is ended. Throws Failure. */
[[noreturn]] void serve_pings(const PingRequest &request);

} /* namespace peal::tool */

extern "C" [[gnu::visibility("default")]] int peal_tool_ping(
	const peal::tool::PingRequest &request);
