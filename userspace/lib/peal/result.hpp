// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a call of libpeal returns: a value, or one sentence that says why there is none and what to
 * do. Neither allocates nor throws. This file knows nothing of RDMA.
 */
#pragma once
#include <new>
#include <utility>

#define PEAL_API [[gnu::visibility("default")]]

namespace peal {

template <class T>
class result;

/* Why a call failed. The sentence is cut off if it does not fit. */
class PEAL_API error {
public:
	/* `code` is an errno, or 0 if no system call failed. */
	[[gnu::format(printf, 2, 3)]] static error make(int code, const char *format, ...) noexcept;

	const char *why() const noexcept { return text_; }
	int code() const noexcept { return code_; }

private:
	template <class T>
	friend class result;

	/* No failure. The rest of the text is not written, because the data path makes these. */
	error() noexcept { text_[0] = '\0'; }

	int code_ = 0;
	char text_[252];
};

namespace detail {

/* Prints the sentence and aborts the program. */
[[noreturn]] PEAL_API void no_value(const char *why) noexcept;

} // namespace detail

/*
 * Use the value only if the result is true. A program that takes the value of a failure ends with
 * the sentence on stderr, because a library without exceptions has nothing else to give it.
 */
template <class T>
class [[nodiscard]] result {
public:
	result(T value) noexcept : value_(std::move(value)), has_value_(true) {}
	result(const error &failure) noexcept : failure_(failure), has_value_(false) {}
	result(result &&other) noexcept : has_value_(other.has_value_) { take(other); }
	result &operator=(result &&other) noexcept
	{
		if (this != &other) {
			end();
			has_value_ = other.has_value_;
			take(other);
		}
		return *this;
	}
	~result() { end(); }

	explicit operator bool() const noexcept { return has_value_; }
	/* An empty string if there is a value. */
	const char *why() const noexcept { return has_value_ ? "" : failure_.why(); }
	int code() const noexcept { return has_value_ ? 0 : failure_.code(); }
	/* To return it as another result. Call it only if there is no value. */
	const error &failure() const noexcept { return failure_; }

	T &value() &noexcept { return checked(); }
	const T &value() const &noexcept { return const_cast<result *>(this)->checked(); }
	T value() &&noexcept { return std::move(checked()); }
	T &operator*() noexcept { return checked(); }
	T *operator->() noexcept { return &checked(); }
	const T *operator->() const noexcept { return &value(); }

private:
	T &checked() noexcept
	{
		if (!has_value_)
			detail::no_value(failure_.why());
		return value_;
	}
	void take(result &other) noexcept
	{
		if (has_value_)
			new (&value_) T(std::move(other.value_));
		else
			new (&failure_) error(other.failure_);
	}
	void end() noexcept
	{
		if (has_value_)
			value_.~T();
	}

	union {
		T value_;
		error failure_;
	};
	bool has_value_;
};

/* Success, or why not. */
template <>
class [[nodiscard]] result<void> {
public:
	/* Not defaulted, because {} would then write the whole text. */
	result() noexcept {}
	result(const error &failure) noexcept : failure_(failure), ok_(false) {}

	explicit operator bool() const noexcept { return ok_; }
	const char *why() const noexcept { return failure_.why(); }
	int code() const noexcept { return failure_.code(); }
	void value() const noexcept
	{
		if (!ok_)
			detail::no_value(failure_.why());
	}

private:
	error failure_;
	bool ok_ = true;
};

using status = result<void>;

} // namespace peal
