// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The table of kv_store: where a key is, and how a reader finds out that an entry changed while it
 * read. It knows nothing of RDMA.
 */
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kv {

using text = std::array<char, 64>; /* the characters, and zeros to the end */

/* FNV-1a. */
inline std::uint64_t hash(const text &of)
{
	std::uint64_t sum = 0xcbf29ce484222325;

	for (const char byte : of)
		sum = (sum ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
	return sum;
}

/* An entry of zeros is free. */
struct entry {
	text key, value;
	std::uint64_t checksum;

	std::uint64_t sum() const { return (hash(key) * 3 + hash(value)) | 1; }
	bool is_free() const { return checksum == 0; }
	/* An entry that was changed while it was read has another sum. */
	bool is_whole() const { return is_free() || checksum == sum(); }
};

/* What is too long is cut off. */
inline text make_text(std::string_view from)
{
	text made{};

	from.copy(made.data(), made.size() - 1);
	return made;
}

inline entry make_entry(std::string_view key, std::string_view value)
{
	entry made{make_text(key), make_text(value), 0};

	made.checksum = made.sum();
	return made;
}

/* A key has one of the entries from its hash on, so that one read gets all that it may have. */
constexpr std::size_t places = 4;
constexpr std::size_t hashes = 1024;
constexpr std::size_t entries = hashes + places - 1;

inline std::size_t first_place(const text &key)
{
	return hash(key) % hashes;
}

/* Whether there was room. */
inline bool store(std::span<entry> table, const entry &what)
{
	for (entry &to : table.subspan(first_place(what.key), places)) {
		if (!to.is_free() && to.key != what.key)
			continue;
		to = what;
		return true;
	}
	return false;
}

/* The entry of the key, or null. */
inline const entry *find(std::span<const entry> some, const text &key)
{
	for (const entry &one : some)
		if (!one.is_free() && one.key == key)
			return &one;
	return nullptr;
}

} // namespace kv
