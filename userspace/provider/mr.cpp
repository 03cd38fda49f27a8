// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Memory regions, memory windows and device memory. libibverbs protects regions from fork. */
#include "ops.hpp"

#include <rdma/peal-abi.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "context.hpp"
#include "entry.hpp"
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
	check(device_of(pd).command(IB_USER_VERBS_CMD_REG_MR, request, response,
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

	check(device_of(pd).create(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG,
				   UVERBS_ATTR_REG_DM_MR_HANDLE, mr->mr.handle,
				   uverbs::attr_handle(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm->handle),
				   uverbs::attr_handle(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd->handle),
				   uverbs::attr_value(UVERBS_ATTR_REG_DM_MR_OFFSET, offset),
				   uverbs::attr_value(UVERBS_ATTR_REG_DM_MR_LENGTH, length),
				   uverbs::attr_in(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, access),
				   uverbs::attr_out(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, mr->mr.lkey),
				   uverbs::attr_out(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, mr->mr.rkey)));
	mr->mr.length = length;
	mr->mr_type = PABI_MR_NO_ADDRESS;
	mr->access = static_cast<int>(access);
	return &mr.release()->mr;
}

ibv_mr *mr_register_dmabuf(ibv_pd *pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
			   int fd, int access)
{
	auto mr = std::make_unique<Mr>(pd);

	check(device_of(pd).create(
		UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, UVERBS_ATTR_REG_DMABUF_MR_HANDLE,
		mr->mr.handle, uverbs::attr_handle(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd->handle),
		uverbs::attr_value(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset),
		uverbs::attr_value(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length),
		uverbs::attr_value(UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova),
		uverbs::attr_in(UVERBS_ATTR_REG_DMABUF_MR_FD, fd),
		uverbs::attr_in(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, access),
		uverbs::attr_out(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, mr->mr.lkey),
		uverbs::attr_out(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, mr->mr.rkey)));
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
	return device_of(pd).method(
		UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR,
		uverbs::attr_handle(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd->handle),
		uverbs::attr_value(UVERBS_ATTR_ADVISE_MR_ADVICE, advice),
		uverbs::attr_value(UVERBS_ATTR_ADVISE_MR_FLAGS, flags),
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
	const int error = device_of(&mr->mr).command(IB_USER_VERBS_CMD_REREG_MR, request, response);
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

	check(device_of(pd).method(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR,
				   uverbs::attr_handle(UVERBS_ATTR_QUERY_MR_HANDLE, handle),
				   uverbs::attr_out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, mr->mr.lkey),
				   uverbs::attr_out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, mr->mr.rkey),
				   uverbs::attr_out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, length)));
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
	int error = 0;

	if (mr->mr_type != PABI_MR_NULL)
		error = device_of(&mr->mr).command(IB_USER_VERBS_CMD_DEREG_MR,
						   ib_uverbs_dereg_mr{mr->mr.handle});
	return delete_if_gone(error, &Mr::of(mr));
}

namespace {

struct Mw : ibv_mw {
	DomainHold domain;

	explicit Mw(ibv_pd *owner) noexcept : ibv_mw{}, domain(owner) {}
};

} // namespace

ibv_mw *mw_alloc(ibv_pd *pd, ibv_mw_type type)
{
	auto mw = std::make_unique<Mw>(pd);
	ib_uverbs_alloc_mw request{};
	ib_uverbs_alloc_mw_resp response{};

	request.pd_handle = pd->handle;
	request.mw_type = c_enum8(type);
	check(device_of(pd).command(IB_USER_VERBS_CMD_ALLOC_MW, request, response));
	mw->context = pd->context;
	mw->pd = pd;
	mw->type = type;
	mw->handle = response.mw_handle;
	mw->rkey = response.rkey;
	return mw.release();
}

int mw_dealloc(ibv_mw *mw)
{
	return delete_if_gone(device_of(mw).command(IB_USER_VERBS_CMD_DEALLOC_MW,
						    ib_uverbs_dealloc_mw{mw->handle}),
			      static_cast<Mw *>(mw));
}

/*
 * Binds a type 1 window, for which the provider chooses the new rkey. mw->rkey changes when
 * the bind is posted, because ibv_bind_mw promises that. If the bind then fails, the new
 * rkey gives no access. Neither the window nor its region may be zero-based. The providers of
 * RNICs and of rdma_rxe say so at once, because a bind that fails ends the queue pair.
 */
int mw_bind(ibv_qp *qp, ibv_mw *mw, ibv_mw_bind *bind) noexcept
{
	const ibv_mw_bind_info &info = bind->bind_info;
	ibv_send_wr wr{};
	ibv_send_wr *bad;

	if (info.mw_access_flags & IBV_ACCESS_ZERO_BASED ||
	    (info.mr &&
	     reinterpret_cast<const verbs_mr *>(info.mr)->access & IBV_ACCESS_ZERO_BASED))
		return EINVAL;
	wr.wr_id = bind->wr_id;
	wr.opcode = IBV_WR_BIND_MW;
	wr.send_flags = bind->send_flags;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;
	const int error = post_send_bind(qp, &wr, &bad);
	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}

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

int free_command(const uverbs::Device &device, std::uint32_t handle) noexcept
{
	return device.method(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE,
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
			    uverbs::attr_out(PEAL_ATTR_QUERY_DM_RESP, shape)));
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
	const uverbs::Device &device = Context::of(context).device;
	std::uint32_t handle = 0;

	if (attr->comp_mask)
		throw_errno(EINVAL);
	/* The kernel writes the number of the new object into the attribute of the handle. */
	check(device.create(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, UVERBS_ATTR_ALLOC_DM_HANDLE,
			    handle, uverbs::attr_value(UVERBS_ATTR_ALLOC_DM_LENGTH, attr->length),
			    uverbs::attr_in(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, attr->log_align_req)));
	Rollback undo([&] { free_command(device, handle); });
	ibv_dm *dm = dm_import(context, handle);
	undo.dismiss();
	return dm;
}

int dm_free(ibv_dm *dm)
{
	return delete_if_gone(free_command(device_of(dm), dm->handle), &Dm::of(dm));
}

} // namespace peal
