// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Enums that a C program has written.
 *
 * Owns: reading them without undefined behaviour. In C an enum may have any int value.
 * In C++ it is undefined to load a value that the enum cannot have, so these functions
 * read the bytes.
 * Does not know: which values are valid.
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

/*
 * For the kernel's 8-bit fields. A value that does not fit becomes 255, so that the kernel
 * still refuses it, because no state, MTU or type is 255.
 */
template <class Enum>
std::uint8_t c_enum8(const Enum &value) noexcept
{
	const std::uint32_t number = c_enum(value);

	return number < 255 ? static_cast<std::uint8_t>(number) : 255;
}

} // namespace peal
