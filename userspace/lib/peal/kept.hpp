// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The pointer by which the objects of libpeal keep each other alive, so that a program may destroy
 * them in any order. It knows an object only by keep() and release(), which count its users.
 */
#pragma once
#include <utility>

namespace peal::detail {

template <class T>
class kept {
public:
	kept() noexcept = default;
	/* Takes over one use of the object. */
	explicit kept(T *object) noexcept : object_(object) {}
	kept(const kept &other) noexcept : object_(other.object_)
	{
		if (object_)
			keep(object_);
	}
	kept(kept &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
	kept &operator=(kept other) noexcept
	{
		std::swap(object_, other.object_);
		return *this;
	}
	~kept()
	{
		if (object_)
			release(object_);
	}

	/* Hands over its use of the object. */
	T *give() noexcept { return std::exchange(object_, nullptr); }
	T *get() const noexcept { return object_; }
	T *operator->() const noexcept { return object_; }
	explicit operator bool() const noexcept { return object_; }

private:
	T *object_ = nullptr;
};

} // namespace peal::detail
