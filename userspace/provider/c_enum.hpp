// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Enums that a C program filled in.
 *
 * Owns: reading them without undefined behaviour. In C any int fits an enum; in
 * C++ loading a value that the enum cannot have is undefined, so the bytes are
 * read instead.
 * Does not know: which values are right.
 */
#pragma once
#include <cstdint>
#include <cstring>

namespace peal {

template <class Enum>
std::uint32_t c_enum(const Enum &value) noexcept
{
	static_assert(sizeof(Enum) == sizeof(std::uint32_t));
	std::uint32_t number;

	std::memcpy(&number, &value, sizeof(number));
	return number;
}

/* For the kernel's 8-bit fields. What does not fit stays wrong: 255 is no state, MTU or type. */
template <class Enum>
std::uint8_t c_enum8(const Enum &value) noexcept
{
	const std::uint32_t number = c_enum(value);

	return number < 255 ? static_cast<std::uint8_t>(number) : 255;
}

} // namespace peal
