// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Objects that release something in their destructor: a mapping of device memory, a
 * file descriptor, and an undo step of a function that may fail.
 */
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "entry.hpp"

namespace peal {

/*
 * Memory shared with the kernel. A forked child inherits it, as it inherits an RNIC's
 * mappings, so that a program can open the device and then become a daemon. The verbs
 * do not allow parent and child to use it at the same time. If they do, they can harm
 * only each other, because the kernel does not trust this memory.
 */
class Mapping {
	void *address_ = MAP_FAILED;
	std::size_t length_ = 0;

public:
	Mapping() = default;
	Mapping(int fd, std::uint64_t offset, std::uint64_t length) : length_(length)
	{
		address_ = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
				  static_cast<off_t>(offset));
		if (address_ == MAP_FAILED)
			throw_errno(errno);
	}
	Mapping(Mapping &&other) noexcept
		: address_(std::exchange(other.address_, MAP_FAILED)), length_(other.length_)
	{
	}
	Mapping &operator=(Mapping &&other) noexcept
	{
		std::swap(address_, other.address_);
		std::swap(length_, other.length_);
		return *this;
	}
	~Mapping()
	{
		if (address_ != MAP_FAILED)
			::munmap(address_, length_);
	}

	std::byte *data() const noexcept { return static_cast<std::byte *>(address_); }
};

/* An array of a mapping, as the kernel describes it, and what the provider expects of it. */
struct MappedArray {
	std::uint64_t offset, entries, stride; /* in bytes, except entries */
	std::uint64_t begin;		       /* where the part before it ends */
	std::uint64_t bytes;		       /* of an element, at least */
	std::uint64_t most;		       /* entries */
	std::uint64_t align;
};

/*
 * Maps the memory of a ring. `shape` is the kernel's response. Throws EPROTO unless all arrays lie
 * inside the mapping and their entries are powers of two.
 */
template <class Shape>
Mapping map_ring(int fd, const Shape &shape, std::initializer_list<MappedArray> arrays)
{
	if (shape.comp_mask)
		throw_errno(EPROTO);
	for (const MappedArray &array : arrays)
		if (!std::has_single_bit(array.entries) || array.entries > array.most ||
		    array.offset < array.begin || array.offset % array.align ||
		    array.stride < array.bytes || array.stride % array.align ||
		    array.offset + array.entries * array.stride > shape.map_bytes)
			throw_errno(EPROTO);
	return Mapping(fd, shape.map_offset, shape.map_bytes);
}

class UniqueFd {
	int fd_;

public:
	explicit UniqueFd(int fd) noexcept : fd_(fd) {}
	UniqueFd(UniqueFd &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
	UniqueFd &operator=(UniqueFd &&) = delete;
	~UniqueFd()
	{
		if (fd_ >= 0)
			::close(fd_);
	}

	int get() const noexcept { return fd_; }
};

/* Runs `undo` when it goes out of scope, unless dismissed. */
template <class Undo>
class Rollback {
	Undo undo_;
	bool armed_ = true;

public:
	explicit Rollback(Undo undo) noexcept : undo_(std::move(undo)) {}
	Rollback(Rollback &&) = delete;
	~Rollback()
	{
		if (armed_)
			undo_();
	}

	void dismiss() noexcept { armed_ = false; }
};

} // namespace peal
