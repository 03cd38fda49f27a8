// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory that a device may reach. A `memory` owns its bytes and their registration. A `slice` is a
 * part of it, for requests of this program. A `region` is what a peer may reach, and a `remote` is
 * a part of that. The keys travel inside of them, so that no request has another memory's key.
 *
 * A slice or remote that does not fit makes no request: it is false, says why, and so does the
 * commit of a batch that was given one.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "kept.hpp"
#include "result.hpp"

namespace peal {

/* Keys and addresses of another kind do not convert to each other. */
enum class lkey : std::uint32_t {};
enum class rkey : std::uint32_t {};
enum class remote_address : std::uint64_t {};

/* What a peer may do to memory. The program itself and its device may always read and write it. */
enum class rights : std::uint8_t {
	none = 0,
	write = 1,
	read = 2,
	atomic = 4,
	bind = 8, /* what a window over it says (window.hpp), and nothing without one */
};

constexpr rights operator|(rights a, rights b) noexcept
{
	return static_cast<rights>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

/* Whether all of `wanted` is in `given`. */
constexpr bool includes(rights given, rights wanted) noexcept
{
	return (given | wanted) == given;
}

constexpr rights remote_write = rights::write;
constexpr rights remote_read = rights::read;
constexpr rights remote_atomic = rights::atomic;
constexpr rights bindable = rights::bind;

namespace detail {

struct block;
struct link;
struct path;
struct send_ring;

/* What a WQE of peal says of memory. A request copies it as a whole (path.hpp). */
struct local_words {
	std::byte *data = nullptr;
	std::uint32_t size = 0;
	lkey key{};
};
struct remote_words {
	remote_address address{};
	rkey key{};
	std::uint32_t zero = 0; /* no inline data */
};

} // namespace detail

template <class T>
class memory;
class batch;
class window;

/* A part of registered memory of this program. It stays valid as long as the memory. */
class slice {
public:
	explicit operator bool() const noexcept { return size_ != outside; }
	const char *why() const noexcept
	{
		return *this ? ""
			     : "the slice is not inside its memory; make the memory longer, "
			       "or the slice shorter";
	}
	std::byte *data() const noexcept { return words_.data; }
	std::size_t size() const noexcept { return *this ? size_ : 0; } /* bytes */
	lkey key() const noexcept { return words_.key; }

private:
	template <class T>
	friend class memory;
	friend struct detail::link;
	friend struct detail::path;
	friend struct detail::send_ring;

	/* The size of a slice that does not fit. It is longer than a message, which is refused. */
	static constexpr std::size_t outside = SIZE_MAX;

	slice() noexcept = default;
	slice(std::byte *data, std::size_t size, lkey key, detail::block *block) noexcept
		: words_{data, static_cast<std::uint32_t>(size), key}, size_(size), block_(block)
	{
	}

	/* Their size is cut off if no message is so long. */
	detail::local_words words_;
	std::size_t size_ = outside;
	detail::block *block_ = nullptr;
};

/* A part of a peer's region. */
class remote {
public:
	explicit operator bool() const noexcept { return fits_; }
	const char *why() const noexcept
	{
		return fits_ ? ""
			     : "the remote part is not inside the peer's region; let the peer "
			       "share a longer one, or use a smaller offset";
	}
	remote_address address() const noexcept { return words_.address; }
	std::uint64_t size() const noexcept { return size_; } /* bytes */
	rkey key() const noexcept { return words_.key; }
	peal::rights rights() const noexcept { return rights_; }

private:
	friend class region;
	friend struct detail::send_ring;

	remote() noexcept = default;

	detail::remote_words words_;
	std::uint64_t size_ = 0;
	/* None if it does not fit. */
	peal::rights rights_{};
	bool fits_ = false;
};

/* What a program lets its peer reach. One that was made without memory has no bytes. */
class region {
public:
	region() noexcept = default;

	remote_address address() const noexcept { return address_; }
	std::uint64_t size() const noexcept { return size_; } /* bytes */
	rkey key() const noexcept { return key_; }
	peal::rights rights() const noexcept { return rights_; }

	/* From `offset` to the end. */
	remote at(std::uint64_t offset) const noexcept
	{
		return at(offset, offset <= size_ ? size_ - offset : 0);
	}
	remote at(std::uint64_t offset, std::uint64_t bytes) const noexcept
	{
		remote part;

		if (offset > size_ || bytes > size_ - offset)
			return part;
		part.words_.address = remote_address(static_cast<std::uint64_t>(address_) + offset);
		part.words_.key = key_;
		part.size_ = bytes;
		part.rights_ = rights_;
		part.fits_ = true;
		return part;
	}

private:
	template <class T>
	friend class memory;
	friend class lease;
	friend struct detail::link;
	friend struct region_on_wire;

	remote_address address_{};
	std::uint64_t size_ = 0;
	rkey key_{};
	peal::rights rights_{};
};

namespace detail {

struct context;

/* Bytes and their registration (memory.cpp). */
struct block {
	std::byte *data;
	std::size_t size;
	lkey local;
	rkey remote;
	peal::rights rights;
};

PEAL_API void keep(block *) noexcept;
PEAL_API void release(block *) noexcept;
PEAL_API result<kept<block>> make_block(context *, std::size_t count, std::size_t each,
					peal::rights) noexcept;

} // namespace detail

/* What of these a peer may do without a window. */
constexpr rights without_bind(rights given) noexcept
{
	return static_cast<rights>(static_cast<unsigned>(given) &
				   ~static_cast<unsigned>(rights::bind));
}

/*
 * `size()` objects of T, which begin as zeros. It may outlive the device that made it. After its
 * destruction the device reaches the bytes no more, also if requests are on their way, except by a
 * window that was bound to them.
 */
template <class T>
class memory {
	static_assert(std::is_trivially_copyable_v<T>,
		      "a device copies bytes, so T must be trivially copyable");
	static_assert(!std::is_const_v<T>,
		      "a device must be able to write, so T must not be const");
	static_assert(alignof(T) <= 4096, "memory is aligned to 4096 bytes");

public:
	memory(memory &&) noexcept = default;
	memory &operator=(memory &&) noexcept = default;
	memory(const memory &) = delete;
	memory &operator=(const memory &) = delete;

	/* A memory that was moved from is empty. */
	T *data() const noexcept { return block_ ? reinterpret_cast<T *>(block_->data) : nullptr; }
	std::size_t size() const noexcept { return block_ ? block_->size / sizeof(T) : 0; }
	T *begin() const noexcept { return data(); }
	T *end() const noexcept { return data() + size(); }
	T &operator[](std::size_t i) const noexcept
	{
		if (i >= size())
			detail::no_value("the index is not inside the memory");
		return data()[i];
	}

	/* `count` objects from the object `first` on. */
	slice part(std::size_t first, std::size_t count) const &noexcept
	{
		if (first > size() || count > size() - first)
			return {};
		return bytes(first * sizeof(T), count * sizeof(T));
	}
	slice part(std::size_t, std::size_t) const && = delete;
	/* So many bytes from a byte on, for a member of an object: offsetof() tells where. */
	slice bytes(std::size_t first, std::size_t count) const &noexcept
	{
		if (!block_ || first > block_->size || count > block_->size - first)
			return {};
		return {block_->data + first, count, block_->local, block_.get()};
	}
	slice bytes(std::size_t, std::size_t) const && = delete;
	slice all() const &noexcept { return part(0, size()); }
	slice all() const && = delete;

	/* Copies the objects to `first` and returns the slice that has them. */
	slice put(std::size_t first, std::span<const T> from) const &noexcept
		requires(!std::is_same_v<T, char>)
	{
		return copy(first, from.data(), from.size());
	}
	slice put(std::size_t first, std::string_view text) const &noexcept
		requires(std::is_same_v<T, char>)
	{
		return copy(first, text.data(), text.size());
	}
	slice put(std::size_t, std::string_view) const && = delete;

	/* All of it, for a peer. */
	region share() const &noexcept
	{
		region all;

		if (block_) {
			all.address_ =
				remote_address(reinterpret_cast<std::uintptr_t>(block_->data));
			all.size_ = block_->size;
			all.key_ = block_->remote;
			all.rights_ = without_bind(block_->rights);
		}
		return all;
	}
	region share() const && = delete;

private:
	friend class device;

	explicit memory(detail::kept<detail::block> block) noexcept : block_(std::move(block)) {}

	slice copy(std::size_t first, const T *from, std::size_t count) const noexcept
	{
		const slice to = part(first, count);

		if (to && count)
			std::memcpy(to.data(), from, to.size());
		return to;
	}

	detail::kept<detail::block> block_;
};

} // namespace peal
