// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Extended reliable connections (XRC): domains, shared receive queues, and connections between an
 * initiator and a target.
 */
#ifndef PEAL_TEST_XRC_HPP
#define PEAL_TEST_XRC_HPP

#include "verbs.hpp"

#include <fcntl.h>

namespace peal_test::xrc {

using Xrcd = Handle<ibv_xrcd, ibv_close_xrcd>;

constexpr std::size_t bytes = 8192; /* of a receive */

inline ibv_xrcd *try_open(ibv_context *context, int fd = -1, int flags = O_CREAT)
{
	ibv_xrcd_init_attr attr{};

	attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	attr.fd = fd;
	attr.oflags = flags;
	return ibv_open_xrcd(context, &attr);
}

inline Xrcd open_domain(ibv_context *context, int fd = -1, int flags = O_CREAT)
{
	return {try_open(context, fd, flags), "open_xrcd"};
}

/* An XRC shared receive queue with its own domains and completion queue, and buffers. */
struct Shared {
	Shared(Device &device, ibv_xrcd *xrcd, ibv_comp_channel *channel = nullptr,
	       int access = all_access)
		: pd(ibv_alloc_pd(device), "alloc_pd"), cq(create_cq(device, 64, channel)),
		  memory(pd, 8 * bytes, access), srq(create(device, xrcd))
	{
		must(ibv_get_srq_num(srq, &number), "get_srq_num");
	}
	Srq create(Device &device, ibv_xrcd *xrcd) const
	{
		auto init = xrc_srq_attr(pd, xrcd, cq, 8);

		return {ibv_create_srq_ex(device, &init), "create_srq_ex"};
	}
	void post(std::uint64_t i) const
	{
		must(try_post_srq_recv(srq, i, {memory.sge(i % 8 * bytes, bytes)}),
		     "post_srq_recv");
	}
	std::span<std::uint8_t> buffer(std::uint64_t i, std::size_t length) const
	{
		return memory.bytes(i % 8 * bytes, length);
	}

	Pd pd;
	Cq cq;
	Region memory;
	Srq srq;
	std::uint32_t number = 0;
};

inline Qp create_target(Device &device, ibv_xrcd *xrcd)
{
	ibv_qp_init_attr_ex init{};

	init.qp_type = IBV_QPT_XRC_RECV;
	init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	init.xrcd = xrcd;
	return {ibv_create_qp_ex(device, &init), "create_qp_ex"};
}

inline QpOptions initiator()
{
	QpOptions options;

	options.type = IBV_QPT_XRC_SEND;
	return options;
}

/* The initiator's attributes are a subset, and so are the target's. */
inline void connect_initiator(ibv_qp *qp, const Device &device, std::uint32_t dest,
			      const Link &link)
{
	auto rtr = rtr_attr(device, dest, device.gid(), link);

	to_init(qp, link);
	must(ibv_modify_qp(qp, &rtr, uc_rtr_mask), "modify to RTR");
	to_rts(qp, link);
}

inline void connect_target(ibv_qp *qp, const Device &device, std::uint32_t source, const Link &link)
{
	auto rts = rts_attr(link);

	to_init(qp, link);
	to_rtr(qp, device, source, link);
	must(ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN),
	     "modify to RTS");
}

/*
 * An initiator that is connected to a target in `xrcd`. The target's packets have the service level
 * `responses`.
 */
struct Lane {
	Lane(Device &device, ibv_xrcd *xrcd, const Link &link = {}, std::uint8_t responses = 0)
		: a(device, initiator()), from(a.pd, 4 * bytes), target(create_target(device, xrcd))
	{
		Link back = link;

		back.service_level = responses;
		connect_initiator(a.qp, device, target->qp_num, link);
		connect_target(target, device, a.qp->qp_num, back);
	}
	void send(const Shared &to, std::uint32_t tag, std::size_t length)
	{
		fill_pattern(from.bytes(0, length), tag);
		post_to(to.number,
			Send(IBV_WR_SEND_WITH_IMM, {from.sge(0, length)}).imm(tag).id(tag));
	}
	void post_to(std::uint32_t number, Send send) const
	{
		send.wr.qp_type.xrc.remote_srqn = number;
		post(a.qp, std::move(send));
	}
	Endpoint a;
	Region from;
	Qp target;
};

} // namespace peal_test::xrc

#endif
