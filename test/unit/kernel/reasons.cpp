// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The reasons of failed completions: the numbers of PEAL_REASONS.
 *
 * Holds: No number changes or is used twice, because programs store and print them. Each has a
 * text. New ones must be added to the list below.
 */
#include <map>
#include <set>
#include <string>

#include "../catch.hpp"
#include "kernel_parts.hpp"

namespace {

struct Reason {
	std::string name;
	int number;
	std::string text;
};

#define REASON_ROW(name, number, text) Reason{#name, number, text},
const Reason reasons[] = {PEAL_REASONS(REASON_ROW)};
#undef REASON_ROW

/* Append new reasons, and never change an old one. */
const std::map<std::string, int> frozen = {
	{"NONE", 0},
	{"WQE_OPCODE", 1},
	{"WQE_FLAGS", 2},
	{"WQE_RESERVED", 3},
	{"WQE_NUM_SGE", 4},
	{"WQE_INLINE", 5},
	{"WQE_LENGTH", 6},
	{"WQE_ATOMIC_LENGTH", 7},
	{"RING_INDEX", 8},
	{"WQE_AH", 9},
	{"LKEY_UNKNOWN", 10},
	{"LKEY_PD", 11},
	{"LKEY_RANGE", 12},
	{"LKEY_ACCESS", 13},
	{"RKEY_UNKNOWN", 20},
	{"RKEY_PD", 21},
	{"RKEY_RANGE", 22},
	{"RKEY_ACCESS", 23},
	{"RKEY_QP", 24},
	{"QP_ACCESS", 25},
	{"ATOMIC_ALIGN", 26},
	{"RD_ATOMIC_LIMIT", 27},
	{"RECV_TOO_SHORT", 30},
	{"RECV_WQE", 31},
	{"RECV_LKEY_UNKNOWN", 32},
	{"RECV_LKEY_PD", 33},
	{"RECV_LKEY_RANGE", 34},
	{"RECV_LKEY_ACCESS", 35},
	{"RECV_RING_INDEX", 36},
	{"SRQ_RING", 37},
	{"RNR_EXHAUSTED", 40},
	{"PEER_UNREACHABLE", 41},
	{"PEER_UNKNOWN", 42},
	{"PEER_STATE", 43},
	{"PEER_OTHER", 44},
	{"PEER_PSN", 45},
	{"PEER_SILENT", 46},
	{"NAK_SEQUENCE", 47},
	{"NAK_INVALID_REQUEST", 48},
	{"NAK_ACCESS", 49},
	{"INV_RKEY", 50},
	{"BIND_WINDOW", 51},
	{"BIND_REGION", 52},
	{"BIND_RANGE", 53},
	{"NAK_OPERATION", 54},
	{"BAD_RESPONSE", 55},
	{"UD_LENGTH", 56},
	{"BAD_REQUEST", 57},
	{"FRAME_LENGTH", 58},
	{"CQ_OVERFLOW", 60},
	{"FLUSHED", 61},
	{"DEVICE_REMOVED", 62},
	{"REG_KEY", 63},
	{"REG_STATE", 64},
	{"REG_RANGE", 65},
	{"REG_ACCESS", 66},
	{"XRC_SRQ", 68},
	{"NO_ROUTE", 70},
	{"PATH_MTU", 71},
	{"LKEY_PAGE", 72},
	{"RKEY_PAGE", 73},
	{"RECV_LKEY_PAGE", 74},
	{"PAGE_LATE", 75},
	{"ROUTE_MTU", 76},
	{"FAULT", 77},
};

} // namespace

TEST_CASE("every reason keeps its number", "[reasons]")
{
	std::map<std::string, int> now;

	for (const Reason &reason : reasons)
		now[reason.name] = reason.number;
	for (const auto &[name, number] : frozen) {
		CAPTURE(name, number);
		CHECK(now.count(name) == 1);
		CHECK(now[name] == number);
	}
	for (const Reason &reason : reasons) {
		CAPTURE(reason.name);
		CHECK(frozen.count(reason.name) == 1); /* append a new reason there */
	}
}

TEST_CASE("no two reasons share a number, a name or a text", "[reasons]")
{
	std::set<int> numbers;
	std::set<std::string> names, texts;

	for (const Reason &reason : reasons) {
		CHECK(numbers.insert(reason.number).second);
		CHECK(names.insert(reason.name).second);
		CHECK(texts.insert(reason.text).second);
	}
}

TEST_CASE("every reason has a text of one line", "[reasons]")
{
	for (const Reason &reason : reasons) {
		CAPTURE(reason.name);
		CHECK_FALSE(reason.text.empty());
		CHECK(reason.text.find_first_of("\n\t") == std::string::npos);
	}
}

TEST_CASE("success is zero", "[reasons]")
{
	CHECK(PEAL_REASON_NONE == 0);
	for (const Reason &reason : reasons)
		CHECK((reason.number > 0 || reason.name == "NONE"));
}

/* Code adds and subtracts these: LKEY from RKEY, RECV_LKEY from LKEY. */
TEST_CASE("the key reasons of the two sides lie in the same order", "[reasons]")
{
	CHECK(PEAL_REASON_LKEY_PD - PEAL_REASON_LKEY_UNKNOWN ==
	      PEAL_REASON_RKEY_PD - PEAL_REASON_RKEY_UNKNOWN);
	CHECK(PEAL_REASON_LKEY_RANGE - PEAL_REASON_LKEY_UNKNOWN ==
	      PEAL_REASON_RKEY_RANGE - PEAL_REASON_RKEY_UNKNOWN);
	CHECK(PEAL_REASON_LKEY_ACCESS - PEAL_REASON_LKEY_UNKNOWN ==
	      PEAL_REASON_RKEY_ACCESS - PEAL_REASON_RKEY_UNKNOWN);
	CHECK(PEAL_REASON_RECV_LKEY_PD - PEAL_REASON_RECV_LKEY_UNKNOWN ==
	      PEAL_REASON_LKEY_PD - PEAL_REASON_LKEY_UNKNOWN);
	CHECK(PEAL_REASON_RECV_LKEY_RANGE - PEAL_REASON_RECV_LKEY_UNKNOWN ==
	      PEAL_REASON_LKEY_RANGE - PEAL_REASON_LKEY_UNKNOWN);
	CHECK(PEAL_REASON_RECV_LKEY_ACCESS - PEAL_REASON_RECV_LKEY_UNKNOWN ==
	      PEAL_REASON_LKEY_ACCESS - PEAL_REASON_LKEY_UNKNOWN);
}
