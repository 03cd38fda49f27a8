// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: creation and destruction of a window, and the key of a type 1 window.
 * Does not know: how a bind is posted (post).
 */
#include "mw.hpp"

#include <memory>

#include "c_enum.hpp"
#include "context.hpp"
#include "mr.hpp"
#include "pd.hpp"
#include "post.hpp"

namespace peal {

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
	check(Context::of(pd->context)
		      .device.command(IB_USER_VERBS_CMD_ALLOC_MW, request, response));
	mw->context = pd->context;
	mw->pd = pd;
	mw->type = type;
	mw->handle = response.mw_handle;
	mw->rkey = response.rkey;
	return mw.release();
}

int mw_dealloc(ibv_mw *mw)
{
	const int error = Context::of(mw->context)
				  .device.command(IB_USER_VERBS_CMD_DEALLOC_MW,
						  ib_uverbs_dealloc_mw{mw->handle});

	if (!object_is_gone(error))
		return error;
	delete static_cast<Mw *>(mw);
	return 0;
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

	if (info.mw_access_flags & IBV_ACCESS_ZERO_BASED || (info.mr && mr_is_zero_based(*info.mr)))
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

} // namespace peal
