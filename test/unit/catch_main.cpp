// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* main() of a test program with Catch2 version 2. Version 3 has a library with main(). */
#define CATCH_CONFIG_MAIN
#include "catch.hpp"
