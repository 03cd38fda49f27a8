// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The boundary between C and C++ for control-path verbs.
 *
 * Owns: the translation of exceptions to errors. No exception may leave the
 * provider, because libibverbs is C and would be unwound while it holds a mutex.
 * Does not know: the verbs. Data-path functions do not use this; they are noexcept
 * and neither allocate nor throw.
 */
#pragma once
#include <cerrno>
#include <new>
#include <system_error>
#include <type_traits>

namespace peal {

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

} // namespace peal
