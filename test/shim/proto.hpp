// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The transport core's headers for C++.
 *
 * Owns: nothing. The code behind these declarations is compiled as C. Include
 * this last, because the kernel's names are short. The simulation has core.hpp instead,
 * which names completion statuses itself.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {
#include <linux/limits.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/peal-abi.h>

#include "proto/reorder.h"
#include "proto/packet.h"
#include "proto/requester.h"
#include "proto/responder.h"
#include "proto/timers.h"
}
#undef min
#undef max
