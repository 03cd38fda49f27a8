// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The transport core's headers, as C++ sees them.
 *
 * Owns: nothing; the code behind these declarations is compiled as C. Include
 * it after everything else: the kernel's names are short.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {
#include "proto/early.h"
#include "proto/icrc.h"
#include "proto/responder.h"
#include "proto/opcode.h"
#include "proto/packet.h"
#include "proto/psn.h"
}
