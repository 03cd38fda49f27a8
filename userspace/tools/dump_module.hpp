// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Between the tool and the file that captures the packets of "peal dump".
 *
 * Owns: the names of the file and of its function.
 * Does not know: how packets are captured (dump_capture.cpp).
 */
#pragma once

#include "dump.hpp"

#define DUMP_MODULE_FILE "peal-dump.so"
#define DUMP_MODULE_FUNCTION "peal_tool_dump"

namespace peal::tool {

using DumpFunction = int (*)(const DumpRequest &request);

} /* namespace peal::tool */

extern "C" [[gnu::visibility("default")]] int peal_tool_dump(
	const peal::tool::DumpRequest &request);
