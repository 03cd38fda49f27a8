// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Tables for people.
 */
#include "../../../userspace/tools/table.hpp"
#include "../catch.hpp"

using namespace peal::tool;

TEST_CASE("columns are as wide as their widest cell, and numbers are aligned to the right")
{
	Table table({"DEVICE", "QPN", "COMMAND"});

	table.add({"peal0", "7", "ibv_rc_pingpong"});
	table.add({"a-long-name", "12345", "x"});
	CHECK(table.text(false) == "DEVICE         QPN  COMMAND\n"
				   "peal0            7  ibv_rc_pingpong\n"
				   "a-long-name  12345  x\n");
}

TEST_CASE("a missing value does not change how a column of numbers is aligned")
{
	Table table({"N", "RATE"});

	table.add({"1", "-"});
	table.add({"22", "3.5"});
	CHECK(table.text(false) == " N  RATE\n"
				   " 1     -\n"
				   "22   3.5\n");
}

TEST_CASE("a table without rows has its titles, and a short row ends early")
{
	Table empty({"A", "B"}), single({"A", "B"});

	CHECK(empty.text(false) == "A  B\n");
	single.add({"x"});
	CHECK(single.text(false) == "A  B\nx\n");
}

TEST_CASE("only the titles have a colour, and only where it is wanted")
{
	Table table({"A"});

	table.add({"x"});
	CHECK(table.text(true) == "\033[1mA\033[0m\nx\n");
	CHECK(coloured("bad", Colour::RED, true) == "\033[31mbad\033[0m");
	CHECK(coloured("bad", Colour::RED, false) == "bad");
}
