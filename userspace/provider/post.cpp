// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Posting: from a work request to a published WQE and a rung doorbell, by ibv_post_send and the
 * receive posts, and by ibv_wr_start .. ibv_wr_complete.
 *
 * Data path: nothing here allocates or throws. A system call is made only when the
 * engine sleeps, or when the receive ring wants a kick. The doorbell is rung outside the lock,
 * because a kick may run the whole queue in this thread.
 *
 * The checks here only give the program an early error. The kernel checks every WQE
 * again, because it does not trust the program.
 */
#include <mutex>

#include "entry.hpp"
#include "library.hpp"
#include "qp.hpp"
#include "ops.hpp"

namespace peal {

namespace {

/* Of the number of a shared receive queue only these bits count, as of that of a queue pair. */
constexpr std::uint32_t NUMBER_MASK = 0xffffff;

/* IBV_SEND_INLINE is checked separately, because only some opcodes allow it. */
constexpr unsigned int PLAIN_SEND_FLAGS = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

/*
 * Returns whether the queue pair accepts the opcode, and the flags `rare`, which are those that not
 * every queue pair has. Only raw packets have checksums that the device fills in.
 */
inline bool is_allowed(const Qp &qp, const OpcodeFacts &opcode, unsigned int rare) noexcept
{
	return opcode.transports & qp.transport &&
	       (!rare || (rare == IBV_SEND_IP_CSUM && qp.transport == TRANSPORT_RAW));
}

/* The most scatter-gather entries that a WQE of this opcode may have. */
inline std::uint32_t sge_limit(const Qp &qp, const OpcodeFacts &opcode) noexcept
{
	switch (opcode.shape) {
	case WrShape::SEND:
	case WrShape::RDMA:
		return qp.cap.max_send_sge;
	case WrShape::ATOMIC:
		return 1; /* more might not fit the slot */
	default:
		return 0;
	}
}

/* Drops SOLICITED if the opcode ignores it. INLINE is set by SendSlot::mark_inline(). */
inline std::uint8_t wqe_flags(const Qp &qp, const OpcodeFacts &opcode,
			      unsigned int send_flags) noexcept
{
	unsigned int flags = 0;

	if (qp.signal_all || (send_flags & IBV_SEND_SIGNALED))
		flags |= PEAL_WQE_SIGNALED;
	if (opcode.solicited && (send_flags & IBV_SEND_SOLICITED))
		flags |= PEAL_WQE_SOLICITED;
	if (send_flags & IBV_SEND_FENCE)
		flags |= PEAL_WQE_FENCE;
	return static_cast<std::uint8_t>(flags);
}

/*
 * Returns EINVAL before RTS. Posts are allowed in all later states, because the kernel
 * flushes them in error and keeps them for later in SQD.
 */
inline int send_state_error(const Qp &qp) noexcept
{
	switch (qp.state.load(std::memory_order_relaxed)) {
	case IBV_QPS_RESET:
	case IBV_QPS_INIT:
	case IBV_QPS_RTR:
		return EINVAL;
	default:
		return 0;
	}
}

peal_bind_seg bind_segment(const ibv_mw_bind_info &info, std::uint32_t new_rkey) noexcept
{
	peal_bind_seg segment{};

	segment.addr = info.addr;
	segment.length = info.length;
	segment.mr_lkey = info.mr ? info.mr->lkey : 0; /* length 0 unbinds */
	/* Drop LOCAL_WRITE. Programs set it as for a region, but a window has no local access. */
	segment.access = info.mw_access_flags & ~unsigned{IBV_ACCESS_LOCAL_WRITE};
	segment.new_rkey = new_rkey;
	return segment;
}

/* Writes one work request into the slot of `index`, which is not published yet. */
inline int build_send(Qp &qp, std::uint32_t index, const ibv_send_wr &wr,
		      ibv_mw_type window) noexcept
{
	const std::uint32_t number = c_enum(wr.opcode);
	const OpcodeFacts &opcode = number < WR_OPCODES.size() - 1 ? WR_OPCODES[number] : NO_OPCODE;
	const unsigned int inline_flag = opcode.inline_allowed ? unsigned{IBV_SEND_INLINE} : 0;
	const unsigned int rare_flags = wr.send_flags & ~(PLAIN_SEND_FLAGS | inline_flag);

	if (!is_allowed(qp, opcode, rare_flags) ||
	    (opcode.shape == WrShape::BIND && wr.bind_mw.mw->type != window))
		return EINVAL;
	std::byte *const memory = qp.sq.claim(index, wr.wr_id);
	if (!memory)
		return ENOMEM;
	SendSlot slot(memory, {});
	peal_send_wqe &header = slot.header();

	header.opcode = opcode.opcode;
	header.flags = wqe_flags(qp, opcode, wr.send_flags);
	if (rare_flags) [[unlikely]]
		header.flags |= PEAL_WQE_IP_CSUM;
	if (qp.is_xrc() && opcode.shape != WrShape::BIND && opcode.shape != WrShape::INVALIDATE)
		[[unlikely]]
		header.srqn = wr.qp_type.xrc.remote_srqn & NUMBER_MASK;
	if (opcode.immediate)
		header.imm_or_rkey = wr.imm_data;
	switch (opcode.shape) {
	case WrShape::SEND:
		if (qp.is_datagram()) {
			header.ah_index = Ah::of(wr.wr.ud.ah).index;
			header.ud = {wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey};
		}
		break;
	case WrShape::RDMA:
		header.remote_addr = wr.wr.rdma.remote_addr;
		header.rkey = wr.wr.rdma.rkey;
		break;
	case WrShape::ATOMIC:
		header.remote_addr = wr.wr.atomic.remote_addr;
		header.rkey = wr.wr.atomic.rkey;
		slot.segment(
			peal_atomic_seg{wr.wr.atomic.compare_add,
					opcode.opcode == PEAL_OP_CMP_SWAP ? wr.wr.atomic.swap : 0});
		break;
	case WrShape::BIND:
		header.rkey = wr.bind_mw.mw->rkey;
		slot.segment(bind_segment(wr.bind_mw.bind_info, wr.bind_mw.rkey));
		return 0;
	default:
		return 0;
	}
	if (static_cast<std::uint32_t>(wr.num_sge) > sge_limit(qp, opcode))
		return EINVAL;
	if (!(wr.send_flags & IBV_SEND_INLINE)) {
		for (int i = 0; i < wr.num_sge; ++i)
			slot.add_sge(wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey);
		return 0;
	}
	std::uint32_t room = qp.cap.max_inline_data;
	for (int i = 0; i < wr.num_sge; ++i) {
		const ibv_sge &sge = wr.sg_list[i];

		if (sge.length > room)
			return EINVAL;
		room -= sge.length;
		slot.add_inline(reinterpret_cast<const void *>(sge.addr), sge.length);
	}
	slot.mark_inline(); /* even for 0 bytes */
	return 0;
}

/* As build_send(), for a receive. */
template <class Ring>
int build_recv(Ring &ring, std::uint32_t max_sge, std::uint32_t index,
	       const ibv_recv_wr &wr) noexcept
{
	if (static_cast<std::uint32_t>(wr.num_sge) > max_sge)
		return EINVAL;
	std::byte *const memory = ring.claim(index, wr.wr_id);
	if (!memory)
		return ENOMEM;
	RecvSlot slot(memory);
	for (int i = 0; i < wr.num_sge; ++i)
		slot.add_sge(wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey);
	return 0;
}

/* What post_list() needs of each kind of queue. Each is passed in registers. */
struct SendQueue {
	Qp &qp;
	ibv_mw_type window; /* whose binds may be posted */

	Context &context() const noexcept { return qp.context; }
	Lock &lock() const noexcept { return qp.sq_lock; }
	WorkRing &ring() const noexcept { return qp.sq; }
	int state_error() const noexcept { return send_state_error(qp); }
	int build(std::uint32_t index, const ibv_send_wr &wr) const noexcept
	{
		return build_send(qp, index, wr, window);
	}
	bool wants_kick() const noexcept { return true; }
	int kick() const noexcept { return qp.context.doorbell.ring(qp.qp_index); }
};

struct RecvQueue {
	Qp &qp;

	Context &context() const noexcept { return qp.context; }
	Lock &lock() const noexcept { return qp.rq_lock; }
	WorkRing &ring() const noexcept { return qp.rq; }
	int state_error() const noexcept
	{
		return qp.shared || qp.state.load(std::memory_order_relaxed) == IBV_QPS_RESET
			       ? EINVAL
			       : 0;
	}
	int build(std::uint32_t index, const ibv_recv_wr &wr) const noexcept
	{
		return build_recv(qp.rq, qp.cap.max_recv_sge, index, wr);
	}
	bool wants_kick() const noexcept { return ring().wants_kick(); }
	int kick() const noexcept { return qp.context.doorbell.kick(PEAL_KICK_RECV, qp.qp_index); }
};

struct SharedQueue {
	Srq &srq;

	Context &context() const noexcept { return srq.context; }
	Lock &lock() const noexcept { return srq.lock; }
	SharedRecvRing &ring() const noexcept { return srq.ring; }
	int state_error() const noexcept { return 0; }
	int build(std::uint32_t index, const ibv_recv_wr &wr) const noexcept
	{
		return build_recv(srq.ring, srq.max_sge, index, wr);
	}
	bool wants_kick() const noexcept { return ring().wants_kick(); }
	int kick() const noexcept
	{
		return srq.context.doorbell.kick(PEAL_KICK_SRQ, srq.srq_index);
	}
};

/*
 * A whole list is published by one release store of the producer index and one kick. If a work
 * request is bad, the ones before it are published. Returns 0 or an errno; `bad` is then set.
 */
template <class Queue, class Wr>
int post_list(Queue queue, Wr *wr, Wr **bad) noexcept
{
	Wr *const first = wr;
	bool kick = false;
	int error;

	/* Refuse the post, because nothing completes a WQE after the removal of the device. */
	if (queue.context().doorbell.gone()) [[unlikely]] {
		*bad = wr;
		return EIO;
	}
	{
		std::lock_guard guard(queue.lock());
		const std::uint32_t head = queue.ring().head();
		std::uint32_t next = head;

		error = queue.state_error();
		for (; wr && !error; wr = wr->next) {
			error = queue.build(next, *wr);
			if (error)
				break;
			++next;
		}
		if (next != head) {
			queue.ring().publish(next);
			kick = queue.wants_kick();
		}
	}
	if (error)
		*bad = wr;
	if (!kick)
		return error;
	if (const int kick_error = queue.kick()) {
		*bad = first;
		return kick_error;
	}
	return error;
}

/* Is this one work request that post_plain() can post? */
inline bool is_plain(const Qp &qp, const ibv_send_wr &wr) noexcept
{
	const std::uint32_t number = c_enum(wr.opcode);

	return !wr.next && wr.num_sge == 1 && !(wr.send_flags & ~unsigned{IBV_SEND_SIGNALED}) &&
	       number < WR_OPCODES.size() && qp.plain_opcodes >> number & 1;
}

/*
 * Publishes one work request of the commonest form: one scatter-gather entry, and no flag but
 * SIGNALED. build_send() and post_list() define the result, and do the same in 1.7 times as many
 * instructions. Returns false without a change if post_list() must say what is wrong. Call it after
 * the device was found not to be gone.
 */
inline bool post_plain(Qp &qp, const ibv_send_wr &wr) noexcept
{
	const OpcodeFacts &opcode = WR_OPCODES[c_enum(wr.opcode)];

	static_assert(IBV_SEND_SIGNALED == 2 && PEAL_WQE_SIGNALED == 1);
	std::lock_guard guard(qp.sq_lock);
	if (send_state_error(qp)) [[unlikely]]
		return false;
	const std::uint32_t head = qp.sq.head();
	std::byte *const memory = qp.sq.claim(head, wr.wr_id);
	if (!memory) [[unlikely]]
		return false;
	SendSlot slot(memory, {});
	peal_send_wqe &header = slot.header();

	header.opcode = opcode.opcode;
	header.flags = static_cast<std::uint8_t>(qp.signal_all | wr.send_flags >> 1);
	header.num_sge = 1;
	if (qp.transport & (TRANSPORT_UD | TRANSPORT_XRC)) {
		if (qp.is_xrc()) {
			header.srqn = wr.qp_type.xrc.remote_srqn & NUMBER_MASK;
		} else {
			header.ah_index = Ah::of(wr.wr.ud.ah).index;
			header.ud = {wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey};
		}
	}
	if (opcode.shape == WrShape::RDMA) {
		header.remote_addr = wr.wr.rdma.remote_addr;
		header.rkey = wr.wr.rdma.rkey;
	} else if (opcode.shape == WrShape::ATOMIC) {
		header.remote_addr = wr.wr.atomic.remote_addr;
		header.rkey = wr.wr.atomic.rkey;
		slot.segment(
			peal_atomic_seg{wr.wr.atomic.compare_add,
					opcode.opcode == PEAL_OP_CMP_SWAP ? wr.wr.atomic.swap : 0});
	}
	slot.segment(peal_sge{wr.sg_list[0].addr, wr.sg_list[0].length, wr.sg_list[0].lkey});
	qp.sq.publish(head + 1);
	return true;
}

} // namespace

int post_send(ibv_qp *ibqp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept
{
	Qp &qp = Qp::of(ibqp);

	const std::uint32_t engine = qp.context.doorbell.engine();

	if (wr && engine != PEAL_ENGINE_GONE && is_plain(qp, *wr) && post_plain(qp, *wr))
		[[likely]] {
		const int error = qp.context.doorbell.ring(qp.qp_index, engine);

		if (error) [[unlikely]]
			*bad = wr;
		return error;
	}
	return post_list(SendQueue{qp, IBV_MW_TYPE_2}, wr, bad);
}

int post_send_bind(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad) noexcept
{
	return post_list(SendQueue{Qp::of(qp), IBV_MW_TYPE_1}, wr, bad);
}

int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept
{
	return post_list(RecvQueue{Qp::of(qp)}, wr, bad);
}

int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad) noexcept
{
	return post_list(SharedQueue{Srq::of(srq)}, wr, bad);
}

/*
 * From wr_start to wr_complete or wr_abort the thread holds sq_lock, so that no other
 * thread uses Qp::batch. WQEs are built in free slots of the ring, which the kernel
 * does not read before they are published. An abort therefore has nothing to undo.
 * After the first error all calls do nothing, and wr_complete returns that error.
 */
namespace {

void wr_start(ibv_qp_ex *ibqp) noexcept
{
	Qp &qp = Qp::of(ibqp);

	qp.sq_lock.lock();
	qp.batch.next = qp.sq.head();
	qp.batch.opcode = &NO_OPCODE; /* makes a setter before any builder fail */
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
	return post ? qp.context.doorbell.ring(qp.qp_index) : error;
}

/* Takes the next slot and writes its header. Returns false after an error, now or earlier. */
bool begin(Qp &qp, const OpcodeFacts &opcode, std::uint32_t rkey = 0, std::uint64_t addr = 0,
	   std::uint32_t imm_or_rkey = 0) noexcept
{
	const unsigned int flags = qp.qp_ex.wr_flags;
	WrBatch &batch = qp.batch;

	if (batch.error)
		return false;
	/* Accept INLINE with any opcode and ignore it, because the setter decides that. */
	if (!is_allowed(qp, opcode, flags & ~(PLAIN_SEND_FLAGS | IBV_SEND_INLINE))) {
		batch.error = EINVAL;
		return false;
	}
	std::byte *const memory = qp.sq.claim(batch.next, qp.qp_ex.wr_id);
	if (!memory) {
		batch.error = ENOMEM;
		return false;
	}
	batch.slot = SendSlot(memory, {});
	batch.opcode = &opcode;
	++batch.next;
	peal_send_wqe &header = batch.slot.header();
	header.opcode = opcode.opcode;
	header.flags = wqe_flags(qp, opcode, flags);
	if (flags & IBV_SEND_IP_CSUM) [[unlikely]]
		header.flags |= PEAL_WQE_IP_CSUM;
	header.remote_addr = addr;
	header.rkey = rkey;
	header.imm_or_rkey = imm_or_rkey;
	return true;
}

void wr_send(ibv_qp_ex *qp) noexcept
{
	begin(Qp::of(qp), OPCODES[PEAL_OP_SEND]);
}

/* The builders of opcodes that have immediate data, or a key to invalidate, and no address. */
template <peal_opcode Opcode>
void wr_send_with(ibv_qp_ex *qp, std::uint32_t imm_or_rkey) noexcept
{
	begin(Qp::of(qp), OPCODES[Opcode], 0, 0, imm_or_rkey);
}

template <peal_opcode Opcode>
void wr_rdma(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t addr) noexcept
{
	begin(Qp::of(qp), OPCODES[Opcode], rkey, addr);
}

void wr_rdma_write_imm(ibv_qp_ex *qp, std::uint32_t rkey, std::uint64_t addr, __be32 imm) noexcept
{
	begin(Qp::of(qp), OPCODES[PEAL_OP_WRITE_IMM], rkey, addr, imm);
}

void wr_atomic_cmp_swp(ibv_qp_ex *ibqp, std::uint32_t rkey, std::uint64_t addr,
		       std::uint64_t compare, std::uint64_t swap) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (begin(qp, OPCODES[PEAL_OP_CMP_SWAP], rkey, addr))
		qp.batch.slot.segment(peal_atomic_seg{compare, swap});
}

void wr_atomic_fetch_add(ibv_qp_ex *ibqp, std::uint32_t rkey, std::uint64_t addr,
			 std::uint64_t add) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (begin(qp, OPCODES[PEAL_OP_FETCH_ADD], rkey, addr))
		qp.batch.slot.segment(peal_atomic_seg{add, 0});
}

/* The data are inline, whatever the queue pair allows, because they fit every slot. */
void wr_atomic_write(ibv_qp_ex *ibqp, std::uint32_t rkey, std::uint64_t addr,
		     const void *value) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (!begin(qp, OPCODES[PEAL_OP_ATOMIC_WRITE], rkey, addr))
		return;
	qp.batch.slot.add_inline(value, sizeof(std::uint64_t));
	qp.batch.slot.mark_inline();
}

void wr_flush(ibv_qp_ex *ibqp, std::uint32_t rkey, std::uint64_t addr, std::size_t length,
	      std::uint8_t type, std::uint8_t level) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (!qp.batch.error && length > PEAL_MAX_MSG)
		qp.batch.error = EINVAL;
	if (!begin(qp, OPCODES[PEAL_OP_FLUSH], rkey, addr))
		return;
	peal_flush_seg segment{};
	segment.length = static_cast<std::uint32_t>(length);
	segment.placement = type;
	segment.selectivity = level;
	qp.batch.slot.segment(segment);
}

void wr_bind_mw(ibv_qp_ex *ibqp, ibv_mw *mw, std::uint32_t rkey,
		const ibv_mw_bind_info *info) noexcept
{
	Qp &qp = Qp::of(ibqp);

	if (!qp.batch.error && mw->type != IBV_MW_TYPE_2)
		qp.batch.error = EINVAL;
	if (begin(qp, OPCODES[PEAL_OP_BIND_MW], mw->rkey, 0))
		qp.batch.slot.segment(bind_segment(*info, rkey));
}

/* Returns the header of the current WQE, or null after an error. No current WQE is one. */
peal_send_wqe *current_header(Qp &qp) noexcept
{
	if (!qp.batch.error && qp.batch.opcode == &NO_OPCODE)
		qp.batch.error = EINVAL;
	return qp.batch.error ? nullptr : &qp.batch.slot.header();
}

void wr_set_ud_addr(ibv_qp_ex *qp, ibv_ah *ah, std::uint32_t remote_qpn,
		    std::uint32_t remote_qkey) noexcept
{
	if (peal_send_wqe *header = current_header(Qp::of(qp))) {
		header->ah_index = Ah::of(ah).index;
		header->ud = {remote_qpn, remote_qkey};
	}
}

void wr_set_xrc_srqn(ibv_qp_ex *qp, std::uint32_t remote_srqn) noexcept
{
	if (peal_send_wqe *header = current_header(Qp::of(qp)))
		header->srqn = remote_srqn & NUMBER_MASK;
}

/*
 * Returns whether the current WQE may get `count` entries; if not, the batch fails. A
 * second setter fails too, because `count` does not include the entries of the first one,
 * so the WQE might not fit the slot.
 */
bool accepts_sges(Qp &qp, std::size_t count) noexcept
{
	WrBatch &batch = qp.batch;

	if (!batch.error &&
	    (count > sge_limit(qp, *batch.opcode) || (count && batch.slot.has_data())))
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

	if (!batch.error && (!batch.opcode->inline_allowed || batch.slot.has_data()))
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

} // namespace

void set_builders(Qp &qp, std::uint64_t builders) noexcept
{
	ibv_qp_ex &ex = qp.qp_ex;
	const auto wanted = [&](peal_opcode opcode) { return builders & OPCODES[opcode].builder; };

	ex.wr_start = wr_start;
	ex.wr_complete = wr_complete;
	ex.wr_abort = wr_abort;
	if (qp.is_datagram())
		ex.wr_set_ud_addr = wr_set_ud_addr;
	if (qp.is_xrc())
		ex.wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex.wr_set_sge = wr_set_sge;
	ex.wr_set_sge_list = wr_set_sge_list;
	ex.wr_set_inline_data = wr_set_inline_data;
	ex.wr_set_inline_data_list = wr_set_inline_data_list;
	/* Only the requested builders, so that a program that uses more fails in its first test. */
	if (wanted(PEAL_OP_SEND))
		ex.wr_send = wr_send;
	if (wanted(PEAL_OP_SEND_IMM))
		ex.wr_send_imm = wr_send_with<PEAL_OP_SEND_IMM>;
	if (wanted(PEAL_OP_SEND_INV))
		ex.wr_send_inv = wr_send_with<PEAL_OP_SEND_INV>;
	if (wanted(PEAL_OP_WRITE))
		ex.wr_rdma_write = wr_rdma<PEAL_OP_WRITE>;
	if (wanted(PEAL_OP_WRITE_IMM))
		ex.wr_rdma_write_imm = wr_rdma_write_imm;
	if (wanted(PEAL_OP_READ))
		ex.wr_rdma_read = wr_rdma<PEAL_OP_READ>;
	if (wanted(PEAL_OP_CMP_SWAP))
		ex.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	if (wanted(PEAL_OP_FETCH_ADD))
		ex.wr_atomic_fetch_add = wr_atomic_fetch_add;
	if (wanted(PEAL_OP_ATOMIC_WRITE))
		qp.newest.wr_atomic_write = wr_atomic_write;
	if (wanted(PEAL_OP_FLUSH))
		qp.newest.wr_flush = wr_flush;
	if (wanted(PEAL_OP_LOCAL_INV))
		ex.wr_local_inv = wr_send_with<PEAL_OP_LOCAL_INV>;
	if (wanted(PEAL_OP_BIND_MW))
		ex.wr_bind_mw = wr_bind_mw;
	library().qp_mask(qp) |= PABI_QP_EX;
}

} // namespace peal
