// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Catch2, version 2 (Debian 12) or 3 (Debian 13).
 *
 * Assertions of version 2 are not thread-safe, so assert only in the main thread,
 * after the others have been joined.
 */
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
