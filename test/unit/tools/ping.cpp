// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The parts of "peal ping" that need no device: words, bytes, notes, rows and sentences.
 */
#include <algorithm>
#include <string>
#include <vector>

#include "../../../userspace/tools/error.hpp"
#include "../../../userspace/tools/ping.hpp"
#include "../../../userspace/tools/ping_report.hpp"
#include "../catch.hpp"

using namespace peal::tool;

namespace {

using Bytes = std::vector<std::byte>;

/* Guards and a message. */
Bytes used_of(const Round &round)
{
	return Bytes(GUARD + round.size + GUARD);
}

bool contains(const std::string &text, const std::string &part)
{
	return text.find(part) != text.npos;
}

void flip(std::byte &one)
{
	one ^= std::byte{0x10};
}

} /* namespace */

TEST_CASE("sizes may have a unit, and other words are refused")
{
	CHECK(read_size("1") == 1);
	CHECK(read_size("65536") == 65536);
	CHECK(read_size("64K") == 65536);
	CHECK(read_size("2M") == 2097152);
	CHECK(read_size("1G") == 1073741824);
	for (const char *text : {"", "0", "0K", "-1", "1.5K", "K", "64k", "64KB", "2G", "1025M",
				 "1073741825", "99999999999999999999", "18014398509481985K"})
		CHECK_THROWS_AS(read_size(text), WrongUse);
}

TEST_CASE("operations are those that were typed, in their order, or all")
{
	CHECK(read_operations({}).size() == ALL_OPERATIONS.size());
	CHECK(read_operations({"read", "send-imm"}) ==
	      std::vector{Operation::READ, Operation::SEND_WITH_IMM});
	for (const auto operation : ALL_OPERATIONS)
		CHECK(operation_of(word_of(operation)) == operation);
	CHECK_THROWS_WITH(read_operations({"flush"}),
			  Catch::Contains("\"flush\" is no operation; there are send, send-imm"));
}

TEST_CASE("bytes that were laid out compare as right, with any length")
{
	for (const std::uint64_t size : {1, 7, 8, 9, 64, 4095, 4096, 4097, 10000}) {
		const Round round{Operation::WRITE, size, 42};
		auto used = used_of(round);

		INFO(size);
		lay_out(used, round);
		CHECK(!compare(used, round));
		CHECK(!compare_message(std::span(used).subspan(GUARD, size), round));
	}
}

TEST_CASE("each byte that is changed is found, also in the guards")
{
	const Round round{Operation::WRITE, 100, 42};
	auto used = used_of(round);

	lay_out(used, round);
	for (std::size_t i = 0; i < used.size(); i++) {
		flip(used[i]);
		const auto mismatch = compare(used, round);
		REQUIRE(mismatch);
		CHECK(mismatch->offset ==
		      static_cast<std::int64_t>(i) - static_cast<std::int64_t>(GUARD));
		CHECK(mismatch->wrong == 1);
		const auto shift = 8 * (mismatch->shown - 1);
		CHECK((mismatch->expected ^ mismatch->found) == std::uint64_t{0x10} << shift);
		flip(used[i]);
	}
	CHECK(!compare(used, round));
}

TEST_CASE("before the bytes arrive every byte of the message is wrong, and no guard")
{
	const Round round{Operation::READ, 5000, 7};
	auto used = used_of(round);

	lay_out_wrong(used, round);
	const auto mismatch = compare(used, round);
	REQUIRE(mismatch);
	CHECK(mismatch->wrong == round.size);
	CHECK(mismatch->offset == 0);
	CHECK(mismatch->shown == 8);
}

TEST_CASE("the bytes of another round or of another place are wrong")
{
	const Round round{Operation::WRITE, 64, 42}, next{Operation::WRITE, 64, 43};
	auto used = used_of(round);

	lay_out(used, next);
	CHECK(compare(used, round)->wrong > 150);
	lay_out(used, round);
	std::rotate(used.begin() + GUARD, used.begin() + GUARD + 8, used.end() - GUARD);
	CHECK(compare(used, round)->wrong > 50);
}

TEST_CASE("an atomic has the value of its round, and a comparison fails every second time")
{
	const Round add{Operation::FETCH_ADD, 8, 1};
	const Round swap{Operation::COMPARE_SWAP, 8, 2}, refused{Operation::COMPARE_SWAP, 8, 3};
	auto used = used_of(add);

	CHECK(add.value_after() == add.value_before() + add.operand());
	CHECK(swap.compared() == swap.value_before());
	CHECK(swap.value_after() == swap.operand());
	CHECK(refused.compared() != refused.value_before());
	CHECK(refused.value_after() == refused.value_before());
	lay_out_value(used, add, add.value_after());
	CHECK(!compare_value(used, add, add.value_after()));
	CHECK(compare_value(used, add, add.value_before()));
	flip(used[GUARD + 8]);
	CHECK(compare_value(used, add, add.value_after())->offset == 8);
}

TEST_CASE("notes arrive as they were sent, and other bytes are no notes")
{
	const Note question{.kind = NoteKind::CHECK,
			    .round = {Operation::READ, 1 << 20, 0x123456789}};
	const Note answer{.kind = NoteKind::WRONG_BYTES, .mismatch = {-3, 2, 0x41, 0x3f, 1}};
	auto bytes = pack(question);

	CHECK(unpack(bytes)->kind == NoteKind::CHECK);
	CHECK(unpack(bytes)->round.operation == Operation::READ);
	CHECK(unpack(bytes)->round.size == 1 << 20);
	CHECK(unpack(bytes)->round.seed == 0x123456789);
	CHECK(unpack(pack(answer))->kind == NoteKind::WRONG_BYTES);
	CHECK(unpack(pack(answer))->mismatch == answer.mismatch);
	CHECK(!unpack(std::span(bytes).first(NOTE_BYTES - 1)));
	/* Each byte of the magic, the version, the kind and the operation counts. */
	for (std::size_t i = 0; i < 16; i++) {
		auto other = bytes;

		other[i] ^= std::byte{0x80};
		INFO(i);
		CHECK(!unpack(other));
	}
}

TEST_CASE("a row has the least, the middle and the most")
{
	CHECK(!statistics_of({}));
	CHECK(statistics_of({3})->median == 3);
	const auto odd = *statistics_of({9, 1, 5});
	CHECK((odd.min == 1 && odd.median == 5 && odd.max == 9));
	CHECK(statistics_of({4, 1, 2, 100})->median == 3);
}

TEST_CASE("a row shows its verdict, and a dash for each time without a measurement")
{
	Row row{.operation = Operation::WRITE, .size = 64, .microseconds = {2, 4, 12}};

	CHECK(row_line(row, false) == "WRITE                   64       3         2.0         4.0  "
				      "      12.0  ok\n");
	CHECK(is_right({row}));
	row.verdict = RowVerdict::SKIPPED;
	CHECK(is_right({row}));
	row.verdict = RowVerdict::WRONG;
	CHECK(!is_right({row}));
	row = {.operation = Operation::READ, .size = 1, .verdict = RowVerdict::FAILED};
	CHECK(row_line(row, false)
		      .ends_with("       0           -           -           -  failed\n"));
	CHECK(!is_right({row}));
}

TEST_CASE("JSON has the path and a member for each row")
{
	const PingPath path{"host", 7175, "peal0", "::1", "::2", 1024, "wire"};
	const auto json = ping_json(path, {{.operation = Operation::FETCH_ADD, .size = 8}});

	for (const char *part :
	     {"\"ok\": true", "\"path\": \"wire\"", "\"mtu\": 1024", "\"peer_gid\": \"::2\"",
	      "\"operation\": \"FETCH_ADD\"", "\"min_us\": null"})
		CHECK(contains(json, part));
	CHECK(contains(ping_json({}, {}), "\"path\": null"));
}

TEST_CASE("a sentence says which bytes are wrong, where, and at which end")
{
	const Round round{Operation::WRITE, 64, 1};
	const auto sentence = [&](Mismatch mismatch, bool at_peer = true) {
		return wrong_sentence(round, {.kind = NoteKind::WRONG_BYTES, .mismatch = mismatch},
				      at_peer);
	};

	CHECK(contains(
		sentence({5, 2, 0x0041, 0x003f, 2}),
		"WRITE of 64 bytes: the peer has 2 wrong bytes, the first at offset 5, with 00 3f "
		"instead of 00 41; repeat it with \"--operation write --size 64\""));
	CHECK(contains(sentence({64, 1, 0, 1, 1}), "1 bytes behind the message's end"));
	CHECK(contains(sentence({-2, 1, 0, 1, 1}), "2 bytes in front of the message"));
	CHECK(contains(sentence({}, false), "this host has"));
	CHECK(contains(
		wrong_sentence(round,
			       {.kind = NoteKind::WRONG_LENGTH, .mismatch = {0, 0, 64, 63, 0}},
			       true),
		"received 63 bytes instead of 64"));
	CHECK(contains(
		wrong_sentence(round,
			       {.kind = NoteKind::WRONG_IMM, .mismatch = {0, 0, 0xa, 0xb, 0}},
			       true),
		"received the immediate value 0xb instead of 0xa"));
}
