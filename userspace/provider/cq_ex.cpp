// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: ibv_create_cq_ex, start_poll .. end_poll, and the accessors.
 * Does not know: how completions are taken (poll).
 */
#include "cq_ex.hpp"

#include "cq.hpp"
#include "pd.hpp"
#include "poll.hpp"

namespace peal {

namespace {

bool take_current(Cq &cq) noexcept
{
	Completion completion;

	if (!take_completion(cq, completion))
		return false;
	cq.current = completion.cqe;
	cq.cq_ex.wr_id = completion.wr_id;
	cq.cq_ex.status = wc_status(*completion.cqe);
	return true;
}

/* Takes the lock, and keeps it if it returns 0. */
int start_poll(ibv_cq_ex *ibcq, ibv_poll_cq_attr *attr) noexcept
{
	Cq &cq = Cq::of(ibcq);

	if (attr->comp_mask)
		return EINVAL;
	cq.lock.lock();
	if (take_current(cq))
		return 0;
	cq.ring.publish(); /* take_current() may have dropped stale CQEs */
	cq.lock.unlock();
	return ENOENT;
}

int next_poll(ibv_cq_ex *ibcq) noexcept
{
	return take_current(Cq::of(ibcq)) ? 0 : ENOENT;
}

void end_poll(ibv_cq_ex *ibcq) noexcept
{
	Cq &cq = Cq::of(ibcq);

	cq.current = nullptr;
	cq.ring.publish();
	cq.lock.unlock();
}

const peal_cqe &current(ibv_cq_ex *cq) noexcept
{
	return *Cq::of(cq).current;
}

ibv_wc_opcode read_opcode(ibv_cq_ex *cq) noexcept
{
	return wc_opcode(current(cq));
}

unsigned int read_wc_flags(ibv_cq_ex *cq) noexcept
{
	return wc_flags(current(cq));
}

/* Returns the member `Field` of the CQE without translation. */
template <auto Field>
std::uint32_t read_field(ibv_cq_ex *cq) noexcept
{
	return current(cq).*Field;
}

/* As above, for the times of the completion. */
template <auto Field>
std::uint64_t read_time(ibv_cq_ex *cq) noexcept
{
	return current(cq).*Field;
}

/* For LIDs and service levels, which RoCE does not have. */
template <class T>
T read_zero(ibv_cq_ex *) noexcept
{
	return 0;
}

void set_readers(ibv_cq_ex &cq, std::uint64_t wc_flags) noexcept
{
	cq.start_poll = start_poll;
	cq.next_poll = next_poll;
	cq.end_poll = end_poll;
	cq.read_opcode = read_opcode;
	cq.read_vendor_err = read_field<&peal_cqe::vendor_err>;
	cq.read_wc_flags = read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq.read_byte_len = read_field<&peal_cqe::byte_len>;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		cq.read_imm_data = read_field<&peal_cqe::imm_or_rkey>;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq.read_qp_num = read_field<&peal_cqe::qp_num>;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq.read_src_qp = read_field<&peal_cqe::src_qp>;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		cq.read_slid = read_zero<std::uint32_t>;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		cq.read_sl = read_zero<std::uint8_t>;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq.read_dlid_path_bits = read_zero<std::uint8_t>;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq.read_completion_ts = read_time<&peal_cqe::clock_ns>;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		cq.read_completion_wallclock_ns = read_time<&peal_cqe::wall_ns>;
}

constexpr std::uint64_t TIME_FLAGS =
	IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

std::uint32_t clocks_of(std::uint64_t wc_flags) noexcept
{
	std::uint32_t clocks = 0;

	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		clocks |= PEAL_CQ_CLOCK;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		clocks |= PEAL_CQ_WALL_CLOCK;
	return clocks;
}

/*
 * Throws EINVAL for an unknown attribute, and EOPNOTSUPP for a known one that peal does not
 * support. Returns whether the completion queue is single-threaded.
 */
bool check_attr(const ibv_context *context, const ibv_cq_init_attr_ex &attr)
{
	constexpr std::uint32_t known_masks =
		IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	constexpr std::uint32_t known_flags =
		IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	const std::uint32_t flags = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr.flags : 0;
	const ibv_pd *domain =
		attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr.parent_domain : nullptr;

	if ((attr.comp_mask & ~known_masks) || (flags & ~known_flags))
		throw_errno(EINVAL);
	if ((attr.wc_flags & ~(std::uint64_t{IBV_WC_STANDARD_FLAGS} | TIME_FLAGS)) ||
	    (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
		throw_errno(EOPNOTSUPP);
	if (domain && (domain->context != context || !static_cast<const Pd *>(domain)->parent))
		throw_errno(EINVAL);
	return (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) ||
	       (domain && static_cast<const Pd *>(domain)->single_threaded());
}

} // namespace

ibv_cq_ex *cq_ex_create(ibv_context *context, ibv_cq_init_attr_ex *attr)
{
	const bool single_threaded = check_attr(context, *attr);
	const CqRequest request{attr->cqe,
				attr->comp_vector,
				attr->channel,
				single_threaded,
				clocks_of(attr->wc_flags),
				attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr->parent_domain
									   : nullptr};
	Cq *cq = Cq::create(Context::of(context), request).release();

	set_readers(cq->cq_ex, attr->wc_flags);
	return &cq->cq_ex;
}

} // namespace peal
