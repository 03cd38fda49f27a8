// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Owns: ibv_create_qp_ex, and the builders of ibv_wr_*.
 * Does not know: completions, ibv_post_send.
 *
 * From wr_start to wr_complete or wr_abort the thread holds sq_lock, so that no other
 * thread uses Qp::batch. WQEs are built in free slots of the ring, which the kernel
 * does not read before they are published. An abort therefore has nothing to undo.
 * After the first error all calls do nothing, and wr_complete returns that error.
 */
#include "qp_ex.hpp"

#include "ah.hpp"
#include "c_enum.hpp"
#include "qp.hpp"
#include "wr.hpp"

namespace peal {

namespace {

void wr_start(ibv_qp_ex *ibqp) noexcept
{
	Qp &qp = Qp::of(ibqp);

	qp.sq_lock.lock();
	qp.batch.next = qp.sq.head();
	qp.batch.row = &NO_WR_ROW; /* makes a setter before any builder fail */
	qp.batch.error = qp.context.doorbell.gone() ? EIO : send_state_error(qp);
}

void wr_abort(ibv_qp_ex *ibqp) noexcept
{
	Qp::of(ibqp).sq_lock.unlock();
}

int wr_complete(ibv_qp_ex *ibqp) noexcept
{
	Qp &qp = Qp::of(ibqp);
	const int error = qp.batch.error;
	const bool post = !error && qp.batch.next != qp.sq.head();

	if (post)
		qp.sq.publish(qp.batch.next);
	qp.sq_lock.unlock();
	/* Ring outside the lock, because a kick may run the whole queue in this thread. */
	return post ? qp.context.doorbell.ring(qp.qp_index) : error;
}

int begin_error(Qp &qp, const WrRow &row, unsigned int flags) noexcept
{
	/* Accept INLINE with any opcode and ignore it, because the setter decides that. */
	if (!wr_allowed(qp, row) ||
	    !rare_flags_allowed(qp, flags & ~(PLAIN_SEND_FLAGS | IBV_SEND_INLINE)))
		return EINVAL;
	return qp.sq.has_room(qp.batch.next) ? 0 : ENOMEM;
}

/* Takes the next slot and writes `header`. Returns false after an error, now or earlier. */
bool begin(Qp &qp, const WrRow &row, peal_send_wqe header) noexcept
{
	WrBatch &batch = qp.batch;

	if (!batch.error)
		batch.error = begin_error(qp, row, qp.qp_ex.wr_flags);
	if (batch.error)
		return false;
	header.opcode = row.opcode;
	header.flags = wqe_flags(qp, row, qp.qp_ex.wr_flags);
	if (qp.qp_ex.wr_flags & IBV_SEND_IP_CSUM) [[unlikely]]
		header.flags |= PEAL_WQE_IP_CSUM;
	batch.slot = SendSlot(qp.sq.slot(batch.next), header);
	batch.row = &row;
	qp.sq.set_wr_id(batch.next, qp.qp_ex.wr_id);
	++batch.next;
	return true;
}

bool begin(Qp &qp, unsigned int opcode, peal_send_wqe header) noexcept
{
	return begin(qp, wr_row(opcode), header);
}

peal_send_wqe remote_header(std::uint32_t rkey, std::uint64_t addr, std::uint32_t imm = 0) noexcept
{
	peal_send_wqe header{};

	header.remote_addr = addr;
	header.rkey = rkey;
	header.imm_or_rkey = imm;
	return header;
}

void wr_send(ibv_qp_ex *qp) noexcept
{
	begin(Qp::of(qp), IBV_WR_SEND, {});
}

void wr_send_imm(ibv_qp_ex *qp, __be32 imm) noexcept
{
	begin(Qp::of(qp), IBV_WR_SEND_WITH_IMM, remote_header(0, 0, imm));
}

void wr_send_inv(ibv_qp_ex *qp, std::uint32_t rkey) noexcept
{
	begin(Qp::of(qp), IBV_WR_SEND_WITH_INV, remote_header(0, 0, rkey));
}

void wr_rdma_write(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t addr) noexcept
{
	begin(Qp::of(qp), IBV_WR_RDMA_WRITE, remote_header(rkey, addr));
}

void wr_rdma_write_imm(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t addr, __be32 imm) noexcept
{
	begin(Qp::of(qp), IBV_WR_RDMA_WRITE_WITH_IMM, remote_header(rkey, addr, imm));
}

void wr_rdma_read(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t addr) noexcept
{
	begin(Qp::of(qp), IBV_WR_RDMA_READ, remote_header(rkey, addr));
}

void wr_atomic_cmp_swp(ibv_qp_ex *ibqp, std::uint32_t rkey, std::uint64_t addr,
		       std::uint64_t compare, std::uint64_t swap) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP, remote_header(rkey, addr)))
		qp.batch.slot.atomic(compare, swap);
}

void wr_atomic_fetch_add(ibv_qp_ex *ibqp, std::uint32_t rkey, std::uint64_t addr,
			 std::uint64_t add) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, remote_header(rkey, addr)))
		qp.batch.slot.atomic(add, 0);
}

/* The data are inline, whatever the queue pair allows, because they fit every slot. */
void wr_atomic_write(ibv_qp_ex *ibqp, std::uint32_t rkey, std::uint64_t addr,
		     const void *value) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (!begin(qp, IBV_WR_ATOMIC_WRITE, remote_header(rkey, addr)))
		return;
	qp.batch.slot.add_inline(value, sizeof(std::uint64_t));
	qp.batch.slot.mark_inline();
}

[[maybe_unused]] void wr_flush(ibv_qp_ex *ibqp, std::uint32_t rkey, std::uint64_t addr,
			       std::size_t length, std::uint8_t type, std::uint8_t level) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (!qp.batch.error && length > PEAL_MAX_MSG)
		qp.batch.error = EINVAL;
	if (!begin(qp, FLUSH_ROW, remote_header(rkey, addr)))
		return;
	peal_flush_seg segment{};
	segment.length = static_cast<std::uint32_t>(length);
	segment.placement = type;
	segment.selectivity = level;
	qp.batch.slot.flush(segment);
}

void wr_local_inv(ibv_qp_ex *qp, std::uint32_t rkey) noexcept
{
	begin(Qp::of(qp), IBV_WR_LOCAL_INV, remote_header(0, 0, rkey));
}

void wr_bind_mw(ibv_qp_ex *ibqp, ibv_mw *mw, std::uint32_t rkey,
		const ibv_mw_bind_info *info) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (!qp.batch.error && mw->type != IBV_MW_TYPE_2)
		qp.batch.error = EINVAL;
	if (begin(qp, IBV_WR_BIND_MW, remote_header(mw->rkey, 0)))
		qp.batch.slot.bind(bind_segment(*info, rkey));
}

void wr_set_ud_addr(ibv_qp_ex *ibqp, ibv_ah *ah, std::uint32_t remote_qpn,
		    std::uint32_t remote_qkey) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (!qp.batch.error && qp.batch.row == &NO_WR_ROW)
		qp.batch.error = EINVAL;
	if (!qp.batch.error)
		qp.batch.slot.target(Ah::of(ah).index, remote_qpn, remote_qkey);
}

void wr_set_xrc_srqn(ibv_qp_ex *ibqp, std::uint32_t remote_srqn) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (!qp.batch.error && qp.batch.row == &NO_WR_ROW)
		qp.batch.error = EINVAL;
	if (!qp.batch.error)
		qp.batch.slot.name_srq(remote_srqn & NUMBER_MASK);
}

/*
 * Returns whether the current WQE may get `count` entries; if not, the batch fails. A
 * second setter fails too, because `count` does not include the entries of the first one,
 * so the WQE might not fit the slot.
 */
bool accepts_sges(Qp &qp, std::size_t count) noexcept
{
	WrBatch &batch = qp.batch;

	if (!batch.error && (count > sge_limit(qp, *batch.row) || (count && batch.slot.has_data())))
		batch.error = EINVAL;
	return !batch.error;
}

void wr_set_sge(ibv_qp_ex *ibqp, std::uint32_t lkey, std::uint64_t addr,
		std::uint32_t length) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (accepts_sges(qp, 1))
		qp.batch.slot.add_sge(addr, length, lkey);
}

void wr_set_sge_list(ibv_qp_ex *ibqp, std::size_t count, const ibv_sge *list) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (!accepts_sges(qp, count))
		return;
	for (std::size_t i = 0; i < count; ++i)
		qp.batch.slot.add_sge(list[i].addr, list[i].length, list[i].lkey);
}

void wr_set_inline_data_list(ibv_qp_ex *ibqp, std::size_t count, const ibv_data_buf *list) noexcept
{
	Qp &qp = Qp::of(ibqp);
	WrBatch &batch = qp.batch;
	std::size_t room = qp.cap.max_inline_data;

	if (!batch.error && (!batch.row->inline_allowed || batch.slot.has_data()))
		batch.error = EINVAL;
	for (std::size_t i = 0; i < count && !batch.error; ++i) {
		if (list[i].length > room) {
			batch.error = EINVAL;
			return;
		}
		room -= list[i].length;
		batch.slot.add_inline(list[i].addr, static_cast<std::uint32_t>(list[i].length));
	}
	if (!batch.error)
		batch.slot.mark_inline();
}

void wr_set_inline_data(ibv_qp_ex *qp, void *addr, std::size_t length) noexcept
{
	const ibv_data_buf buffer{addr, length};

	wr_set_inline_data_list(qp, 1, &buffer);
}

/* Older releases of verbs.h have no builder for FLUSH. Returns its flag, or 0. */
template <class QpEx>
constexpr std::uint64_t flush_op() noexcept
{
	if constexpr (requires(QpEx qp) { qp.wr_flush; })
		return 1 << 11;
	return 0;
}

template <class QpEx>
void set_flush(QpEx &qp, std::uint64_t ops) noexcept
{
	if constexpr (requires { qp.wr_flush; }) {
		if (ops & flush_op<QpEx>())
			qp.wr_flush = wr_flush;
	}
}

/* The send ops that this type of queue pair supports. 0: the kernel refuses the type. */
std::uint64_t supported_ops(std::uint32_t qp_type) noexcept
{
	constexpr std::uint64_t datagram = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	constexpr std::uint64_t unreliable = datagram | IBV_QP_EX_WITH_RDMA_WRITE |
					     IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
					     IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
	constexpr std::uint64_t reliable =
		unreliable | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |
		IBV_QP_EX_WITH_ATOMIC_WRITE | flush_op<ibv_qp_ex>();

	switch (qp_type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return reliable;
	case IBV_QPT_UC:
		return unreliable;
	case IBV_QPT_UD:
		return datagram;
	case IBV_QPT_RAW_PACKET:
		return IBV_QP_EX_WITH_SEND;
	default:
		return 0;
	}
}

/* Set only the requested builders, so that a program that uses more fails in its first test. */
void set_builders(ibv_qp_ex &qp, std::uint64_t ops) noexcept
{
	if (ops & IBV_QP_EX_WITH_SEND)
		qp.wr_send = wr_send;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_IMM)
		qp.wr_send_imm = wr_send_imm;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_INV)
		qp.wr_send_inv = wr_send_inv;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE)
		qp.wr_rdma_write = wr_rdma_write;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
		qp.wr_rdma_write_imm = wr_rdma_write_imm;
	if (ops & IBV_QP_EX_WITH_RDMA_READ)
		qp.wr_rdma_read = wr_rdma_read;
	if (ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
		qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	if (ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
		qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
	if (ops & IBV_QP_EX_WITH_ATOMIC_WRITE)
		qp.wr_atomic_write = wr_atomic_write;
	set_flush(qp, ops);
	if (ops & IBV_QP_EX_WITH_LOCAL_INV)
		qp.wr_local_inv = wr_local_inv;
	if (ops & IBV_QP_EX_WITH_BIND_MW)
		qp.wr_bind_mw = wr_bind_mw;
}

void set_batch_calls(ibv_qp_ex &qp) noexcept
{
	qp.wr_start = wr_start;
	qp.wr_complete = wr_complete;
	qp.wr_abort = wr_abort;
	if (Qp::of(&qp).is_datagram())
		qp.wr_set_ud_addr = wr_set_ud_addr;
	if (Qp::of(&qp).is_xrc())
		qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
	qp.wr_set_sge = wr_set_sge;
	qp.wr_set_sge_list = wr_set_sge_list;
	qp.wr_set_inline_data = wr_set_inline_data;
	qp.wr_set_inline_data_list = wr_set_inline_data_list;
}

bool is_target(const ibv_qp_init_attr_ex &attr) noexcept
{
	return c_enum(attr.qp_type) == IBV_QPT_XRC_RECV;
}

/* A target needs a domain. Its other attributes are ignored, because it posts nothing. */
ibv_qp *create_target(ibv_context *context, const ibv_qp_init_attr_ex &attr)
{
	ibv_qp_init_attr_ex target{};

	if (!(attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr.xrcd ||
	    attr.xrcd->context != context)
		throw_errno(EINVAL);
	target.qp_type = attr.qp_type;
	target.qp_context = attr.qp_context;
	target.xrcd = attr.xrcd;
	return &Qp::create_target(target).release()->qp;
}

/*
 * Throws EINVAL for an unknown attribute, and EOPNOTSUPP for a known one that peal does not
 * support. CREATE_FLAGS with no flag set are accepted.
 */
void check_attr(const ibv_qp_init_attr_ex &attr)
{
	constexpr std::uint32_t ours = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
				       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	constexpr std::uint32_t known = ours | IBV_QP_INIT_ATTR_XRCD |
					IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
					IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;

	if (attr.comp_mask & ~known)
		throw_errno(EINVAL);
	if (is_target(attr))
		return;
	if (attr.comp_mask & ~ours)
		throw_errno(EOPNOTSUPP);
	if (!(attr.comp_mask & IBV_QP_INIT_ATTR_PD) || !attr.pd)
		throw_errno(EINVAL);
	if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags)
		throw_errno(EOPNOTSUPP);
	if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
	    (attr.send_ops_flags & ~supported_ops(c_enum(attr.qp_type))))
		throw_errno(EOPNOTSUPP);
}

} // namespace

ibv_qp *qp_ex_create(ibv_context *context, ibv_qp_init_attr_ex *attr)
{
	check_attr(*attr);
	if (is_target(*attr))
		return create_target(context, *attr);
	if (attr->pd->context != context)
		throw_errno(EINVAL);
	Qp *qp = Qp::create(*attr).release();

	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		set_batch_calls(qp->qp_ex);
		set_builders(qp->qp_ex, attr->send_ops_flags);
		qp->comp_mask |= PABI_QP_EX;
	}
	return &qp->qp;
}

} // namespace peal
