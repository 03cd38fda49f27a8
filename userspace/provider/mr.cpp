// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of a region in the program.
 * Does not know: pinning (the kernel), fork protection (libibverbs).
 */
#include "mr.hpp"

#include <rdma/peal-abi.h>

#include <cerrno>
#include <memory>
#include <span>

#include "context.hpp"
#include "pabi.hpp"
#include "pd.hpp"

namespace peal {

namespace {

struct Mr : verbs_mr {
	DomainHold domain;

	explicit Mr(ibv_pd *pd) noexcept : verbs_mr{}, domain(pd)
	{
		mr.context = pd->context;
		mr.pd = pd;
	}
	static Mr &of(verbs_mr *mr) noexcept { return *static_cast<Mr *>(mr); }
};

} // namespace

ibv_mr *mr_register(ibv_pd *pd, void *addr, std::size_t length, std::uint64_t iova, int access)
{
	auto mr = std::make_unique<Mr>(pd);
	const peal_reg_mr_req driver_request{};
	ib_uverbs_reg_mr request{};
	ib_uverbs_reg_mr_resp response{};

	request.start = reinterpret_cast<std::uintptr_t>(addr);
	request.length = length;
	request.hca_va = iova;
	request.pd_handle = pd->handle;
	request.access_flags = static_cast<std::uint32_t>(access);
	check(Context::of(pd->context)
		      .device.command(IB_USER_VERBS_CMD_REG_MR, request, response,
				      uverbs::in(driver_request)));
	/* libibverbs sets addr and length. */
	mr->mr.handle = response.mr_handle;
	mr->mr.lkey = response.lkey;
	mr->mr.rkey = response.rkey;
	mr->access = access;
	return &mr.release()->mr;
}

ibv_mr *mr_alloc_null(ibv_pd *pd)
{
	const std::uint32_t lkey = Context::of(pd->context).null_lkey;

	if (!lkey)
		throw_errno(EOPNOTSUPP);
	auto mr = std::make_unique<Mr>(pd);
	mr->mr.length = SIZE_MAX;
	mr->mr.lkey = lkey;
	mr->mr_type = PABI_MR_NULL;
	return &mr.release()->mr;
}

ibv_mr *mr_register_dm(ibv_pd *pd, ibv_dm *dm, std::uint64_t offset, std::size_t length,
		       unsigned access)
{
	if (dm->context != pd->context)
		throw_errno(EINVAL);
	auto mr = std::make_unique<Mr>(pd);

	check(Context::of(pd->context)
		      .device.create(
			      UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG,
			      UVERBS_ATTR_REG_DM_MR_HANDLE, mr->mr.handle,
			      uverbs::attr_handle(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm->handle),
			      uverbs::attr_handle(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd->handle),
			      uverbs::attr_value(UVERBS_ATTR_REG_DM_MR_OFFSET, offset),
			      uverbs::attr_value(UVERBS_ATTR_REG_DM_MR_LENGTH, length),
			      uverbs::attr_in(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS,
					      uverbs::in(access)),
			      uverbs::attr_out(UVERBS_ATTR_REG_DM_MR_RESP_LKEY,
					       uverbs::out(mr->mr.lkey)),
			      uverbs::attr_out(UVERBS_ATTR_REG_DM_MR_RESP_RKEY,
					       uverbs::out(mr->mr.rkey))));
	mr->mr.length = length;
	mr->mr_type = PABI_MR_NO_ADDRESS;
	mr->access = static_cast<int>(access);
	return &mr.release()->mr;
}

ibv_mr *mr_register_dmabuf(ibv_pd *pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
			   int fd, int access)
{
	auto mr = std::make_unique<Mr>(pd);

	check(Context::of(pd->context)
		      .device.create(
			      UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR,
			      UVERBS_ATTR_REG_DMABUF_MR_HANDLE, mr->mr.handle,
			      uverbs::attr_handle(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd->handle),
			      uverbs::attr_value(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset),
			      uverbs::attr_value(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length),
			      uverbs::attr_value(UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova),
			      uverbs::attr_in(UVERBS_ATTR_REG_DMABUF_MR_FD, uverbs::in(fd)),
			      uverbs::attr_in(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS,
					      uverbs::in(access)),
			      uverbs::attr_out(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY,
					       uverbs::out(mr->mr.lkey)),
			      uverbs::attr_out(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY,
					       uverbs::out(mr->mr.rkey))));
	mr->mr.length = length;
	mr->mr_type = PABI_MR_NO_ADDRESS;
	mr->access = access;
	return &mr.release()->mr;
}

int mr_advise(ibv_pd *pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge *list,
	      std::uint32_t num_sge)
{
	/* The kernel has the same structure of 16 bytes. */
	const auto bytes = std::as_bytes(std::span<const ibv_sge>(list, num_sge));

	if (bytes.size() > UINT16_MAX)
		return EINVAL;
	return Context::of(pd->context)
		.device.method(
			UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR,
			uverbs::attr_handle(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd->handle),
			uverbs::attr_value(UVERBS_ATTR_ADVISE_MR_ADVICE, std::uint64_t{advice}),
			uverbs::attr_value(UVERBS_ATTR_ADVISE_MR_FLAGS, std::uint64_t{flags}),
			uverbs::attr_in(UVERBS_ATTR_ADVISE_MR_SGE_LIST, bytes));
}

int mr_reregister(verbs_mr *mr, int flags, ibv_pd *pd, void *addr, std::size_t length, int access)
{
	ib_uverbs_rereg_mr request{};
	ib_uverbs_rereg_mr_resp response{};

	if (mr->mr_type == PABI_MR_NULL ||
	    ((flags & IBV_REREG_MR_CHANGE_PD) && pd->context != mr->mr.context))
		return errno = EINVAL;
	request.mr_handle = mr->mr.handle;
	request.flags = static_cast<std::uint32_t>(flags);
	request.start = reinterpret_cast<std::uintptr_t>(addr);
	request.length = length;
	request.hca_va = request.start;
	request.pd_handle = flags & IBV_REREG_MR_CHANGE_PD ? pd->handle : 0;
	request.access_flags = static_cast<std::uint32_t>(access);
	const int error = Context::of(mr->mr.context)
				  .device.command(IB_USER_VERBS_CMD_REREG_MR, request, response);
	if (error) {
		errno = error; /* libibverbs returns a number of its own */
		return error;
	}
	/* libibverbs sets pd, addr and length. */
	mr->mr.lkey = response.lkey;
	mr->mr.rkey = response.rkey;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		mr->access = access;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		DomainHold now(pd);

		Mr::of(mr).domain.swap(now);
	}
	return 0;
}

ibv_mr *mr_import(ibv_pd *pd, std::uint32_t handle)
{
	auto mr = std::make_unique<Mr>(pd);
	std::uint64_t length = 0;

	check(Context::of(pd->context)
		      .device.method(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR,
				     uverbs::attr_handle(UVERBS_ATTR_QUERY_MR_HANDLE, handle),
				     uverbs::attr_out(UVERBS_ATTR_QUERY_MR_RESP_LKEY,
						      uverbs::out(mr->mr.lkey)),
				     uverbs::attr_out(UVERBS_ATTR_QUERY_MR_RESP_RKEY,
						      uverbs::out(mr->mr.rkey)),
				     uverbs::attr_out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH,
						      uverbs::out(length))));
	mr->mr.handle = handle;
	mr->mr.length = length;
	mr->mr_type = PABI_MR_IMPORTED;
	return &mr.release()->mr;
}

void mr_unimport(ibv_mr *mr) noexcept
{
	delete &Mr::of(reinterpret_cast<verbs_mr *>(mr));
}

int mr_deregister(verbs_mr *mr)
{
	const int error = mr->mr_type == PABI_MR_NULL
				  ? 0
				  : Context::of(mr->mr.context)
					    .device.command(IB_USER_VERBS_CMD_DEREG_MR,
							    ib_uverbs_dereg_mr{mr->mr.handle});

	if (!object_is_gone(error))
		return error;
	delete &Mr::of(mr);
	return 0;
}

bool mr_is_zero_based(const ibv_mr &mr) noexcept
{
	return reinterpret_cast<const verbs_mr &>(mr).access & IBV_ACCESS_ZERO_BASED;
}

} // namespace peal
