// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How the tool reads attributes: those of a newer kernel are passed over, those that an older one
 * does not send are missing, and a message that ends early reads as its whole part.
 */
#include <array>
#include <cstring>
#include <vector>

#include "../../../userspace/tools/netlink.hpp"
#include "../catch.hpp"

using namespace peal::tool;

namespace {

class Bytes {
public:
	Bytes &add(int type, const void *value, std::size_t size)
	{
		const nlattr header{static_cast<std::uint16_t>(NLA_HDRLEN + size),
				    static_cast<std::uint16_t>(type)};

		append(&header, sizeof(header));
		append(value, size);
		bytes.resize(NLA_ALIGN(bytes.size()));
		return *this;
	}
	template <typename Number>
	Bytes &number(int type, Number value)
	{
		return add(type, &value, sizeof(value));
	}
	Bytes &string(int type, const char *value)
	{
		return add(type, value, std::strlen(value) + 1);
	}

	std::vector<std::byte> bytes;

private:
	void append(const void *from, std::size_t size)
	{
		const auto *first = static_cast<const std::byte *>(from);

		bytes.insert(bytes.end(), first, first + size);
	}
};

} /* namespace */

TEST_CASE("an integer of any width is read, and one that is not there is missing")
{
	Bytes message;

	message.number<std::uint8_t>(1, 7)
		.number<std::uint16_t>(2, 700)
		.number<std::uint32_t>(3, 70000)
		.number<std::uint64_t>(4, 1ull << 40);
	const Attributes attributes(message.bytes);

	CHECK(attributes.number(1) == 7);
	CHECK(attributes.number(2) == 700);
	CHECK(attributes.number(3) == 70000);
	CHECK(attributes.number(4) == 1ull << 40);
	CHECK_FALSE(attributes.number(5));
}

TEST_CASE("an attribute that the tool does not know does not hide the next one")
{
	Bytes message;

	message.string(900, "from a newer kernel").string(1, "peal0");
	CHECK(Attributes(message.bytes).string(1) == "peal0");
}

TEST_CASE("a value of a strange size is no integer")
{
	Bytes message;
	const std::array<char, 3> three{};

	message.add(1, three.data(), three.size());
	CHECK_FALSE(Attributes(message.bytes).number(1));
}

TEST_CASE("the bit of a nest is no part of the type")
{
	Bytes inner, message;

	inner.number<std::uint32_t>(2, 5);
	message.add(1 | NLA_F_NESTED, inner.bytes.data(), inner.bytes.size());
	CHECK(Attributes(message.bytes).nest(1).number(2) == 5);
	CHECK_FALSE(Attributes(message.bytes).nest(3).number(2));
}

TEST_CASE("a string without its zero ends with the attribute")
{
	Bytes message;

	message.add(1, "peal0123", 5);
	CHECK(Attributes(message.bytes).string(1) == "peal0");
}

TEST_CASE("a message that is cut at any byte is read up to there")
{
	Bytes message;

	message.number<std::uint32_t>(1, 1).string(2, "peal0");
	for (std::size_t size = 0; size < message.bytes.size(); size++) {
		const std::vector<std::byte> cut(message.bytes.begin(),
						 message.bytes.begin() + size);
		const Attributes attributes(cut);

		CHECK(attributes.number(1).has_value() == (size >= 8));
		CHECK(attributes.string(2).has_value() == (size >= 8 + 4 + 6));
	}
}

TEST_CASE("an attribute shorter than its head ends the message")
{
	Bytes message;

	message.number<std::uint32_t>(1, 1).number<std::uint32_t>(2, 2);
	message.bytes[8] = std::byte{3}; /* the length of the second */
	message.bytes[9] = std::byte{0};
	CHECK(Attributes(message.bytes).number(1) == 1);
	CHECK_FALSE(Attributes(message.bytes).number(2));
}
