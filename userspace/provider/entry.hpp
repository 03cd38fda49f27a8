// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The boundary between C and C++: errors and enums.
 *
 * No exception may leave the provider, because libibverbs is C and would be unwound while it holds
 * a mutex. Control-path verbs are therefore entered through entry<>. Data-path functions are
 * noexcept and neither allocate nor throw.
 */
#pragma once
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <system_error>
#include <type_traits>

namespace peal {

[[noreturn]] inline void throw_errno(int error)
{
	throw std::system_error(error, std::generic_category());
}

/* For calls that return 0 or an errno. */
inline void check(int error)
{
	if (error)
		throw_errno(error);
}

/* A verb that returns a pointer fails with null and errno. The others return the error. */
template <class Result>
Result verb_failure(int error) noexcept
{
	if constexpr (std::is_pointer_v<Result>) {
		errno = error;
		return nullptr;
	} else {
		return error;
	}
}

template <auto Verb>
struct Entry;

template <class Result, class... Args, Result (*Verb)(Args...)>
struct Entry<Verb> {
	static Result call(Args... args) noexcept
	{
		try {
			return Verb(args...);
		} catch (const std::system_error &error) {
			return verb_failure<Result>(error.code().value());
		} catch (const std::bad_alloc &) {
			return verb_failure<Result>(ENOMEM);
		} catch (...) {
			return verb_failure<Result>(EIO);
		}
	}
};

/* The entry of the op table for `Verb`. */
template <auto Verb>
constexpr auto entry = &Entry<Verb>::call;

/*
 * Reads an enum that a C program has written, which may have any int value. In C++ it is undefined
 * to load a value that the enum cannot have, so this function reads the bytes.
 */
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
