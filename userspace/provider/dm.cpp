// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of device memory in the program.
 * Does not know: the quota (the kernel).
 */
#include "dm.hpp"

#include <rdma/peal-abi.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "context.hpp"

namespace peal {

namespace {

struct Dm : ibv_dm {
	Mapping mapping;
	std::uint64_t length = 0;

	Dm() noexcept : ibv_dm{} {}
	static Dm &of(ibv_dm *dm) noexcept { return *static_cast<Dm *>(dm); }

	/* Offsets and lengths are multiples of four, as with devices that have such memory. */
	bool has(std::uint64_t offset, std::size_t bytes) const noexcept
	{
		return !(offset % 4) && !(bytes % 4) && offset <= length &&
		       bytes <= length - offset;
	}
};

int copy_to_dm(ibv_dm *dm, std::uint64_t offset, const void *from, std::size_t bytes) noexcept
{
	Dm &to = Dm::of(dm);

	if (!to.has(offset, bytes))
		return EINVAL;
	std::memcpy(to.mapping.data() + offset, from, bytes);
	return 0;
}

int copy_from_dm(void *to, ibv_dm *dm, std::uint64_t offset, std::size_t bytes) noexcept
{
	const Dm &from = Dm::of(dm);

	if (!from.has(offset, bytes))
		return EINVAL;
	std::memcpy(to, from.mapping.data() + offset, bytes);
	return 0;
}

int free_command(ibv_context *context, std::uint32_t handle) noexcept
{
	return Context::of(context).device.method(
		UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE,
		uverbs::attr_handle(UVERBS_ATTR_FREE_DM_HANDLE, handle));
}

} // namespace

/* Maps memory that the kernel knows by this handle. */
ibv_dm *dm_import(ibv_context *context, std::uint32_t handle)
{
	auto dm = std::make_unique<Dm>();
	const uverbs::Device &device = Context::of(context).device;
	peal_query_dm_resp shape{};

	check(device.method(UVERBS_OBJECT_DM, PEAL_METHOD_QUERY_DM,
			    uverbs::attr_handle(PEAL_ATTR_QUERY_DM_HANDLE, handle),
			    uverbs::attr_out(PEAL_ATTR_QUERY_DM_RESP, uverbs::out(shape))));
	if (shape.comp_mask || shape.length > shape.map_bytes)
		throw_errno(EPROTO);
	dm->mapping = Mapping(device.fd(), shape.map_offset, shape.map_bytes);
	dm->length = shape.length;
	dm->context = context;
	dm->handle = handle;
	dm->memcpy_to_dm = copy_to_dm;
	dm->memcpy_from_dm = copy_from_dm;
	return dm.release();
}

void dm_unimport(ibv_dm *dm) noexcept
{
	delete &Dm::of(dm);
}

ibv_dm *dm_alloc(ibv_context *context, ibv_alloc_dm_attr *attr)
{
	std::uint32_t handle = 0;

	if (attr->comp_mask)
		throw_errno(EINVAL);
	/* The kernel writes the number of the new object into the attribute of the handle. */
	check(Context::of(context).device.create(
		UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, UVERBS_ATTR_ALLOC_DM_HANDLE, handle,
		uverbs::attr_value(UVERBS_ATTR_ALLOC_DM_LENGTH, std::uint64_t{attr->length}),
		uverbs::attr_in(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, uverbs::in(attr->log_align_req))));
	Rollback undo([&] { free_command(context, handle); });
	ibv_dm *dm = dm_import(context, handle);
	undo.dismiss();
	return dm;
}

int dm_free(ibv_dm *dm)
{
	const int error = free_command(dm->context, dm->handle);

	if (!object_is_gone(error))
		return error;
	dm_unimport(dm);
	return 0;
}

} // namespace peal
