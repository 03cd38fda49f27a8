// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the two ends of "peal ping" tell each other, and which bytes each round moves.
 *
 * The client announces a round (PREPARE), and the server lays out its area and answers (READY). The
 * client executes the operation and asks (CHECK). The server compares every byte that it should
 * have now and answers (RIGHT, or what is wrong). Then the client compares what came back to it.
 *
 * Each round has its own bytes. Both ends calculate them from the seed of the round, so that bytes
 * of an earlier round, of another place or of another operation are noticed.
 *
 * Owns: operations, notes, and the bytes of a round.
 * Does not know: RDMA, and how anything is printed.
 */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace peal::tool {

inline constexpr std::uint16_t PING_PORT = 7175;
/* The longest message that a server takes unless it is told otherwise. With its receives it stays
 * below 8 MiB, which Debian lets users register. */
inline constexpr std::uint64_t PING_LONGEST = 2 << 20;
inline constexpr std::uint64_t PING_MOST = 1 << 30;

enum class Operation : std::uint8_t {
	SEND,
	SEND_WITH_IMM,
	WRITE,
	WRITE_WITH_IMM,
	READ,
	FETCH_ADD,
	COMPARE_SWAP,
};

inline constexpr std::array ALL_OPERATIONS{Operation::SEND,	   Operation::SEND_WITH_IMM,
					   Operation::WRITE,	   Operation::WRITE_WITH_IMM,
					   Operation::READ,	   Operation::FETCH_ADD,
					   Operation::COMPARE_SWAP};

/* Return: "SEND_WITH_IMM". */
std::string_view name_of(Operation operation);
/* Return: "send-imm", as it is typed. */
std::string_view word_of(Operation operation);
/* Return: the operation with this word. */
std::optional<Operation> operation_of(std::string_view word);

constexpr bool is_atomic(Operation operation)
{
	return operation == Operation::FETCH_ADD || operation == Operation::COMPARE_SWAP;
}
/* Whether the bytes come to a receive buffer of the server. */
constexpr bool is_send(Operation operation)
{
	return operation == Operation::SEND || operation == Operation::SEND_WITH_IMM;
}
constexpr bool has_imm(Operation operation)
{
	return operation == Operation::SEND_WITH_IMM || operation == Operation::WRITE_WITH_IMM;
}
/* Whether it takes a receive of the server. */
constexpr bool takes_receive(Operation operation)
{
	return is_send(operation) || has_imm(operation);
}

inline constexpr std::uint64_t ATOMIC_SIZE = 8;

struct Round {
	Operation operation = Operation::SEND;
	std::uint64_t size = 0; /* bytes */
	std::uint64_t seed = 0;

	std::uint32_t imm() const;
	/* The value of an atomic's 8 bytes before the round and after it, in the host's order. */
	std::uint64_t value_before() const;
	std::uint64_t value_after() const;
	/* What a FETCH_ADD adds, or what a COMPARE_SWAP stores. */
	std::uint64_t operand() const;
	/* What a COMPARE_SWAP compares with. If the seed is odd, it differs and stores nothing. */
	std::uint64_t compared() const;
};

/* ---- bytes ---- */

/*
 * An area has guards in front of the message and behind it, which no operation may change.
 * Functions get the part of the area that the round uses: both guards with the message between
 * them.
 */
inline constexpr std::size_t GUARD = 64;

struct Mismatch {
	std::int64_t offset = 0; /* of the first wrong byte, from the beginning of the message */
	std::uint64_t wrong = 0; /* how many bytes are wrong */
	/* The bytes from the offset on, `shown` of them, the last as the least significant. */
	std::uint64_t expected = 0;
	std::uint64_t found = 0;
	std::uint64_t shown = 0; /* at most 8 */

	bool operator==(const Mismatch &) const = default;
};

/* The message has the bytes of the round, and the guards have theirs. */
void lay_out(std::span<std::byte> used, const Round &round);
/* Every byte of the message is wrong, so that bytes which do not arrive are noticed. */
void lay_out_wrong(std::span<std::byte> used, const Round &round);
/* As lay_out(), with this value as the message. */
void lay_out_value(std::span<std::byte> used, const Round &round, std::uint64_t value);

/* Compare with what lay_out() and lay_out_value() make. */
std::optional<Mismatch> compare(std::span<const std::byte> used, const Round &round);
std::optional<Mismatch> compare_value(std::span<const std::byte> used, const Round &round,
				      std::uint64_t value);
/* Compares a message that has no guards. */
std::optional<Mismatch> compare_message(std::span<const std::byte> message, const Round &round);

/* ---- notes ---- */

enum class NoteKind : std::uint8_t {
	/* From the client. */
	PREPARE = 1,
	CHECK,
	/* From the server. */
	READY = 16,
	REFUSED,      /* it does not know this round, or takes only shorter messages */
	RIGHT,	      /* every byte is right */
	WRONG_BYTES,  /* `mismatch` says which */
	WRONG_LENGTH, /* of the received message, in mismatch.expected and mismatch.found */
	WRONG_IMM,    /* in the same */
};

struct Note {
	NoteKind kind = NoteKind::PREPARE;
	Round round{};	     /* of a client's note */
	Mismatch mismatch{}; /* of a server's note */
};

inline constexpr std::size_t NOTE_BYTES = 64;

/* In big-endian order, with a version. */
std::array<std::byte, NOTE_BYTES> pack(const Note &note);
/* Return: nothing if these are not the bytes of a note of this version. */
std::optional<Note> unpack(std::span<const std::byte> bytes);

} /* namespace peal::tool */
