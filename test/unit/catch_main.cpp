// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* main() of a test program with Catch2 version 2; version 3 brings a library. */
#define CATCH_CONFIG_MAIN
#include "catch.hpp"
