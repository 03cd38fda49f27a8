// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The table of the example kv_store. A key that was stored is found. A reader notices an entry that
 * has the beginning of one value and the end of another, at whatever byte they meet.
 */
#include <cstring>
#include <string>
#include <vector>

#include "../catch.hpp"
#include "examples/kv_table.hpp"

TEST_CASE("a stored key is found with the value that was stored last", "[examples]")
{
	std::vector<kv::entry> table(kv::entries);
	const kv::text key = kv::make_text("colour");

	CHECK(!kv::find(table, key));
	REQUIRE(kv::store(table, kv::make_entry("colour", "green")));
	REQUIRE(kv::store(table, kv::make_entry("shape", "circle")));
	REQUIRE(kv::store(table, kv::make_entry("colour", "blue")));
	const std::span<const kv::entry> read =
		std::span(table).subspan(kv::first_place(key), kv::places);
	const kv::entry *found = kv::find(read, key);
	REQUIRE(found);
	CHECK(found->is_whole());
	CHECK(std::string(found->value.data()) == "blue");
}

TEST_CASE("keys with one hash have as many places as a read gets", "[examples]")
{
	std::vector<kv::entry> table(kv::entries);
	std::vector<kv::text> same;
	const std::size_t last = kv::hashes - 1;

	/* The last hash, because its places are at the end of the table. */
	for (unsigned i = 0; same.size() <= kv::places; ++i) {
		const kv::text key = kv::make_text(std::to_string(i));

		if (kv::first_place(key) == last)
			same.push_back(key);
	}
	for (std::size_t i = 0; i < same.size(); ++i)
		CHECK(kv::store(table, kv::make_entry(same[i].data(), "x")) == (i < kv::places));
	for (std::size_t i = 0; i < kv::places; ++i)
		CHECK(kv::find(std::span(table).subspan(last, kv::places), same[i]));
	CHECK(!kv::find(table, same.back()));
	/* A full place still takes a new value of its key. */
	CHECK(kv::store(table, kv::make_entry(same[1].data(), "y")));
}

TEST_CASE("an entry that was read while it changed is not whole", "[examples]")
{
	const kv::entry before = kv::make_entry("number", "1");
	const kv::entry after = kv::make_entry("number", "2");
	const kv::entry free{};

	CHECK(before.is_whole());
	CHECK(free.is_whole());
	CHECK(free.is_free());
	for (const kv::entry &old : {before, free}) {
		for (std::size_t bytes = 0; bytes <= sizeof(kv::entry); ++bytes) {
			kv::entry front = old, back = after;

			/* The new bytes may be first or last, because a device copies in any order.
			 */
			std::memcpy(static_cast<void *>(&front), &after, bytes);
			std::memcpy(static_cast<void *>(&back), &old, bytes);
			for (const kv::entry &mixed : {front, back}) {
				const bool is_old = !std::memcmp(&mixed, &old, sizeof(old));
				const bool is_new = !std::memcmp(&mixed, &after, sizeof(after));

				CHECK((mixed.is_whole() && !mixed.is_free()) ==
				      ((is_old && !old.is_free()) || is_new));
			}
		}
	}
}

TEST_CASE("a key or value that is too long is cut off", "[examples]")
{
	const std::string many(100, 'x');
	const kv::entry made = kv::make_entry(many, many);

	CHECK(made.is_whole());
	CHECK(std::string(made.value.data()) == std::string(63, 'x'));
}
