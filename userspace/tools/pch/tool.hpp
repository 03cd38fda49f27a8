// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Headers that are compiled once for the tool, because they take much longer than its own files. A
 * file includes what it uses nevertheless.
 */
#include <fmt/core.h>
#include <nlohmann/json.hpp>
