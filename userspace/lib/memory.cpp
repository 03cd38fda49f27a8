// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Allocates and registers memory.
 */
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "link.hpp"
#include "moved.hpp"

namespace peal::detail {

namespace {

/* Pages of its own, so that a fork of the program does not take pages from the device. */
constexpr std::size_t page = 4096;

struct registered : block {
	std::atomic<unsigned> users{1};
	kept<context> device;
	ibv_mr *mr = nullptr;

	registered() noexcept : block{} {}
	~registered()
	{
		/* In this order, because the device may write until the region is gone. */
		if (mr)
			ibv_dereg_mr(mr);
		std::free(data);
	}
};

int access_flags(peal::rights given) noexcept
{
	int flags = IBV_ACCESS_LOCAL_WRITE;

	if (includes(given, rights::write))
		flags |= IBV_ACCESS_REMOTE_WRITE;
	if (includes(given, rights::read))
		flags |= IBV_ACCESS_REMOTE_READ;
	if (includes(given, rights::atomic))
		flags |= IBV_ACCESS_REMOTE_ATOMIC;
	if (includes(given, rights::bind))
		flags |= IBV_ACCESS_MW_BIND;
	return flags;
}

} // namespace

void keep(block *of) noexcept
{
	static_cast<registered *>(of)->users.fetch_add(1, std::memory_order_relaxed);
}

void release(block *of) noexcept
{
	auto *all = static_cast<registered *>(of);

	if (all->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete all;
}

ibv_mr *registration_of(const block *of) noexcept
{
	return static_cast<const registered *>(of)->mr;
}

result<kept<block>> make_block(context *device, std::size_t count, std::size_t each,
			       peal::rights given) noexcept
{
	std::size_t bytes, rounded;

	if (!device)
		return error::make(EBADF, "%s", detail::moved::device);
	if (!count)
		return error::make(EINVAL, "memory of no bytes cannot be registered; ask for at "
					   "least one object");
	if (__builtin_mul_overflow(count, each, &bytes) ||
	    __builtin_add_overflow(bytes, page - 1, &rounded))
		return error::make(EOVERFLOW,
				   "%zu objects of %zu bytes are more than memory can "
				   "be; ask for fewer",
				   count, each);
	if (includes(given, rights::bind) && !device->has_windows())
		return error::make(ENOTSUP,
				   "%s has no memory windows of type 2; let the peer reach the "
				   "whole memory, without bindable",
				   device->name());
	std::unique_ptr<registered> made(new (std::nothrow) registered);
	if (made)
		made->data =
			static_cast<std::byte *>(std::aligned_alloc(page, rounded & ~(page - 1)));
	if (!made || !made->data)
		return error::make(ENOMEM, "there is no memory of %zu bytes; ask for less", bytes);
	std::memset(made->data, 0, bytes);
	made->mr = ibv_reg_mr(device->pd, made->data, bytes, access_flags(given));
	if (!made->mr)
		return error::make(errno,
				   "%s cannot register %zu bytes: %s; see what ulimit -l "
				   "allows, or ask for less",
				   device->name(), bytes, strerrordesc_np(errno));
	keep(device);
	made->device = kept<context>(device);
	made->size = bytes;
	made->local = lkey(made->mr->lkey);
	made->remote = rkey(made->mr->rkey);
	made->rights = given;
	return kept<block>(made.release());
}

} // namespace peal::detail
