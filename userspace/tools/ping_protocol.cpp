// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "ping_protocol.hpp"

#include <algorithm>
#include <cstring>

#include <endian.h>

namespace peal::tool {

namespace {

/* "pealpin" and the version. */
constexpr std::uint64_t MAGIC = 0x7065616c70696e01;

struct Words {
	const char *name;
	const char *word;
};

/* Indexed by Operation. */
constexpr std::array<Words, ALL_OPERATIONS.size()> words{{
	{"SEND", "send"},
	{"SEND_WITH_IMM", "send-imm"},
	{"WRITE", "write"},
	{"WRITE_WITH_IMM", "write-imm"},
	{"READ", "read"},
	{"FETCH_ADD", "fetch-add"},
	{"COMPARE_SWAP", "compare-swap"},
}};

/* Numbers of neighbouring seeds and indices have nothing in common. */
std::uint64_t mixed(std::uint64_t seed, std::uint64_t index)
{
	constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15;
	std::uint64_t x = seed;

	for (const std::uint64_t part : {index, seed, index}) {
		x = (x ^ part) * golden_ratio;
		x ^= x >> 32;
	}
	return x;
}

/* Fills with the bytes of the round from `first` on, a multiple of 8. In a guard they are inverted.
 */
void fill(std::span<std::byte> to, std::uint64_t seed, std::uint64_t first, bool inverted)
{
	for (std::size_t at = 0; at < to.size(); at += 8) {
		const std::uint64_t word =
			htole64(mixed(seed, (first + at) / 8) ^ (inverted ? ~std::uint64_t{0} : 0));

		std::memcpy(&to[at], &word, std::min<std::size_t>(8, to.size() - at));
	}
}

/* Collects what is wrong in parts that follow one another. */
class Comparison {
public:
	/* `expected` may be longer. */
	void add(std::span<const std::byte> found, std::span<const std::byte> expected,
		 std::int64_t offset)
	{
		if (!std::memcmp(found.data(), expected.data(), found.size()))
			return;
		for (std::size_t i = 0; i < found.size(); i++) {
			if (found[i] == expected[i])
				continue;
			if (!mismatch) {
				mismatch = {.offset = offset + static_cast<std::int64_t>(i)};
				for (; mismatch->shown < 8 && i + mismatch->shown < found.size();
				     mismatch->shown++) {
					const auto at = i + mismatch->shown;

					mismatch->expected =
						mismatch->expected << 8 |
						std::to_integer<unsigned>(expected[at]);
					mismatch->found = mismatch->found << 8 |
							  std::to_integer<unsigned>(found[at]);
				}
			}
			mismatch->wrong++;
		}
	}

	std::optional<Mismatch> mismatch;
};

/* Compares with what fill() makes, without memory for all of it. */
void add_filled(Comparison &comparison, std::span<const std::byte> found, std::uint64_t seed,
		std::uint64_t first, bool inverted)
{
	std::array<std::byte, 4096> expected;

	for (std::size_t at = 0; at < found.size(); at += expected.size()) {
		const auto part = found.subspan(at, std::min(expected.size(), found.size() - at));

		fill(std::span(expected).first(part.size()), seed, first + at, inverted);
		comparison.add(part, expected, static_cast<std::int64_t>(first + at - GUARD));
	}
}

template <class Byte>
std::span<Byte> message_of(std::span<Byte> used)
{
	return used.subspan(GUARD, used.size() - 2 * GUARD);
}

/* The guard behind the message begins anywhere, but its bytes begin at a multiple of 8. */
std::uint64_t end_of(const Round &round)
{
	return GUARD + (round.size + 7) / 8 * 8;
}

void fill_guards(std::span<std::byte> used, const Round &round)
{
	fill(used.first(GUARD), round.seed, 0, true);
	fill(used.last(GUARD), round.seed, end_of(round), true);
}

/* `compare_middle` adds the message. */
template <class Middle>
std::optional<Mismatch> compare_used(std::span<const std::byte> used, const Round &round,
				     Middle compare_middle)
{
	std::array<std::byte, GUARD> expected;
	Comparison comparison;

	add_filled(comparison, used.first(GUARD), round.seed, 0, true);
	compare_middle(comparison, message_of(used));
	fill(expected, round.seed, end_of(round), true);
	comparison.add(used.last(GUARD), expected, static_cast<std::int64_t>(round.size));
	return comparison.mismatch;
}

} /* namespace */

std::string_view name_of(Operation operation)
{
	return words[static_cast<std::size_t>(operation)].name;
}

std::string_view word_of(Operation operation)
{
	return words[static_cast<std::size_t>(operation)].word;
}

std::optional<Operation> operation_of(std::string_view word)
{
	for (const auto operation : ALL_OPERATIONS)
		if (word_of(operation) == word)
			return operation;
	return {};
}

/* ---- the round ---- */

/* Numbers of a round that are no bytes. Their indices are beyond those of the longest message. */
std::uint32_t Round::imm() const
{
	return static_cast<std::uint32_t>(mixed(seed, UINT64_MAX - 1));
}

std::uint64_t Round::value_before() const
{
	return mixed(seed, UINT64_MAX - 2);
}

std::uint64_t Round::operand() const
{
	return mixed(seed, UINT64_MAX - 3);
}

std::uint64_t Round::compared() const
{
	return value_before() ^ (seed & 1);
}

std::uint64_t Round::value_after() const
{
	if (operation == Operation::FETCH_ADD)
		return value_before() + operand();
	return compared() == value_before() ? operand() : value_before();
}

/* ---- bytes ---- */

void lay_out(std::span<std::byte> used, const Round &round)
{
	fill_guards(used, round);
	fill(message_of(used), round.seed, GUARD, false);
}

void lay_out_wrong(std::span<std::byte> used, const Round &round)
{
	fill_guards(used, round);
	fill(message_of(used), round.seed, GUARD, true);
}

void lay_out_value(std::span<std::byte> used, const Round &round, std::uint64_t value)
{
	fill_guards(used, round);
	std::memcpy(message_of(used).data(), &value, ATOMIC_SIZE);
}

std::optional<Mismatch> compare(std::span<const std::byte> used, const Round &round)
{
	return compare_used(used, round, [&](Comparison &comparison, auto message) {
		add_filled(comparison, message, round.seed, GUARD, false);
	});
}

std::optional<Mismatch> compare_value(std::span<const std::byte> used, const Round &round,
				      std::uint64_t value)
{
	return compare_used(used, round, [&](Comparison &comparison, auto message) {
		comparison.add(message.first(ATOMIC_SIZE), std::as_bytes(std::span(&value, 1)), 0);
	});
}

std::optional<Mismatch> compare_message(std::span<const std::byte> message, const Round &round)
{
	Comparison comparison;

	add_filled(comparison, message, round.seed, GUARD, false);
	return comparison.mismatch;
}

/* ---- notes ---- */

std::array<std::byte, NOTE_BYTES> pack(const Note &note)
{
	std::array<std::uint64_t, NOTE_BYTES / 8> numbers{
		MAGIC, static_cast<std::uint64_t>(note.kind) << 8 |
			       static_cast<std::uint64_t>(note.round.operation)};
	std::array<std::byte, NOTE_BYTES> bytes;

	if (note.kind < NoteKind::READY) {
		numbers[2] = note.round.size;
		numbers[3] = note.round.seed;
	} else {
		numbers[2] = static_cast<std::uint64_t>(note.mismatch.offset);
		numbers[3] = note.mismatch.wrong;
		numbers[4] = note.mismatch.expected;
		numbers[5] = note.mismatch.found;
		numbers[6] = note.mismatch.shown;
	}
	std::ranges::transform(numbers, numbers.begin(),
			       [](std::uint64_t number) { return htobe64(number); });
	std::memcpy(bytes.data(), numbers.data(), sizeof(numbers));
	return bytes;
}

std::optional<Note> unpack(std::span<const std::byte> bytes)
{
	std::array<std::uint64_t, NOTE_BYTES / 8> numbers;
	Note note;

	if (bytes.size() != NOTE_BYTES)
		return {};
	std::memcpy(numbers.data(), bytes.data(), sizeof(numbers));
	std::ranges::transform(numbers, numbers.begin(),
			       [](std::uint64_t number) { return be64toh(number); });
	const auto kind = static_cast<NoteKind>(numbers[1] >> 8);
	const auto operation = numbers[1] & 0xff;
	const bool of_client = kind == NoteKind::PREPARE || kind == NoteKind::CHECK;
	const bool of_server = kind >= NoteKind::READY && kind <= NoteKind::WRONG_IMM;
	if (numbers[0] != MAGIC || numbers[1] >> 16 || (!of_client && !of_server) ||
	    operation >= ALL_OPERATIONS.size())
		return {};
	note.kind = kind;
	note.round.operation = static_cast<Operation>(operation);
	if (of_client) {
		note.round.size = numbers[2];
		note.round.seed = numbers[3];
	} else {
		note.mismatch = {static_cast<std::int64_t>(numbers[2]), numbers[3], numbers[4],
				 numbers[5], numbers[6]};
	}
	return note;
}

} /* namespace peal::tool */
