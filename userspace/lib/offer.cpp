// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connects by exchanged blobs. A queue pair does not answer before it knows its peer, and requests
 * that it misses are repeated for some seconds only. So both ends first greet each other with
 * datagrams until each knows that the other is ready (greeter.hpp).
 */
#include "peal/offer.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#include "blob.hpp"
#include "domain.hpp"
#include "greeter.hpp"
#include "moved.hpp"
#include "peal/device.hpp"

namespace peal {

namespace detail {

namespace {

/* The timeout is that of the connection manager for RoCE: 1 s. The specification counts 7 retries,
 * but rdma_rxe takes a count of 7 for no limit. 7 of the RNR retries is for ever, and the deadlines
 * of the waits end it. */
constexpr std::uint8_t ack_timeout = 18, retries = 6, rnr_retries = 7;

} // namespace

struct offered {
	std::atomic<unsigned> users{1};
	kept<link> of;
	kept<detail::greeter> greeter;
	end_point mine;
	/* Its queue pair has begun to connect. */
	bool used = false;

	offered() = default;
	offered(const offered &) = delete;

	/* With a domain it is a target. */
	status make(const kept<context> &, const region &, const options &,
		    const kept<domain_state> &) noexcept;
	/* Afterwards its link is connected. */
	status connect(std::span<const std::byte> blob, const deadline &) noexcept;

private:
	status to_rtr(const ibv_qp_attr &, const deadline &) noexcept;
	status connect(const end_point &theirs, const route &, const deadline &) noexcept;
};

void keep(offered *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(offered *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

blob_kind kind_of(const options &limits, bool is_target) noexcept
{
	switch (limits.transport) {
	case transport::uc:
		return blob_kind::unreliable;
	case transport::xrc:
		return is_target ? blob_kind::target : blob_kind::initiator;
	default:
		return blob_kind::reliable;
	}
}

status offered::make(const kept<context> &device, const region &shared, const options &limits,
		     const kept<domain_state> &domain) noexcept
{
	of = kept<link>(new (std::nothrow) link(device, limits));
	greeter = kept<detail::greeter>(new (std::nothrow) detail::greeter);
	if (!of || !greeter)
		return error::make(ENOMEM, "there is no memory for a connection; close others");
	of->domain = domain;
	auto end =
		end_point::make(*device.get(), kind_of(limits, bool(domain)), shared, of->limits);
	if (!end)
		return end.failure();
	greeter->device = device;
	status made = of->make_queues(false);
	if (made)
		made = greeter->make_queues();
	if (!made)
		return made;
	mine = *end;
	mine.wire.qp_number = htobe32(of->qp_number);
	mine.wire.datagram_qp = htobe32(greeter->qp->qp_num);
	mine.seal();
	return {};
}

/* The kernel asks for the peer's link address, and waits for one second only. */
status offered::to_rtr(const ibv_qp_attr &attr, const deadline &until) noexcept
{
	for (;;) {
		const status done = of->to_state(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
							       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
							       IBV_QP_MAX_DEST_RD_ATOMIC |
							       IBV_QP_MIN_RNR_TIMER);
		if (done || done.code() != ETIMEDOUT || until.passed())
			return done;
	}
}

status offered::connect(std::span<const std::byte> blob, const deadline &until) noexcept
{
	if (used)
		return error::make(EALREADY, "the offer was used for a connection; make another "
					     "one for each");
	auto theirs = mine.read_peer(blob);
	if (!theirs)
		return theirs.failure();
	const auto by =
		choose_route(*of->device.get(), mine.addresses.span(), theirs->addresses.span());
	if (!by)
		return by.failure();
	status done = connect(*theirs, by.value(), until);
	/* The link keeps the greeter, unless it has failed. */
	greeter = {};
	if (!done)
		of = {};
	return done;
}

status offered::connect(const end_point &theirs, const route &by, const deadline &until) noexcept
{
	ibv_qp_attr attr{};

	used = true;
	status done = of->learn_port(by.mine.port);
	if (done)
		done = of->learn_peer(&theirs.wire.shared, sizeof(theirs.wire.shared));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = by.mine.port;
	if (done)
		done = of->to_state(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	if (done)
		done = of->post_receives();
	attr.qp_state = IBV_QPS_RTR;
	attr.ah_attr = by.attr();
	attr.path_mtu = by.mtu();
	attr.dest_qp_num = be32toh(theirs.wire.qp_number);
	attr.rq_psn = be32toh(theirs.wire.psn);
	attr.max_dest_rd_atomic = std::min(mine.wire.reads_in, theirs.wire.reads_out);
	if (done)
		done = to_rtr(attr, until);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = be32toh(mine.wire.psn);
	attr.timeout = ack_timeout;
	attr.retry_cnt = retries;
	attr.rnr_retry = rnr_retries;
	attr.max_rd_atomic = std::min(mine.wire.reads_out, theirs.wire.reads_in);
	if (done)
		done = of->to_state(attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
						  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						  IBV_QP_MAX_QP_RD_ATOMIC);
	if (done)
		done = greeter->start(mine, theirs, by);
	if (done)
		done = greeter->greet(until);
	if (done)
		done = of->keep_greeter(greeter);
	return done;
}

} // namespace detail

std::span<const std::byte> offer::blob() const &noexcept
{
	static_assert(blob_size == sizeof(blob_on_wire));
	return of_ ? std::as_bytes(std::span(&of_->mine.wire, 1)) : std::span<const std::byte>();
}

result<connection> offer::connect(std::span<const std::byte> blob, deadline until) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved::offer);
	if (status done = of_->connect(blob, until); !done)
		return error::make(done.code(), "%s", done.why());
	return connection(detail::as_path(std::exchange(of_->of, {})));
}

result<offer> device::offer(const region &mine, const options &limits) noexcept
{
	if (!context_)
		return error::make(EBADF, "%s", detail::moved::device);
	detail::kept<detail::offered> made(new (std::nothrow) detail::offered);

	if (!made)
		return error::make(ENOMEM, "there is no memory for a connection; close others");
	if (status done = made->make(context_, mine, limits, {}); !done)
		return error::make(done.code(), "%s", done.why());
	return peal::offer(std::move(made));
}

std::span<const std::byte> target::blob() const &noexcept
{
	return of_ ? std::as_bytes(std::span(&of_->mine.wire, 1)) : std::span<const std::byte>();
}

status target::connect(std::span<const std::byte> blob, deadline until) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved::target);
	return of_->connect(blob, until);
}

result<target> xrc_domain::target() noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved::domain);
	detail::kept<detail::offered> made(new (std::nothrow) detail::offered);

	if (!made)
		return error::make(ENOMEM, "there is no memory for a target; close others");
	if (status done = made->make(of_->device, {}, {.transport = transport::xrc}, of_); !done)
		return error::make(done.code(), "%s", done.why());
	return peal::target(std::move(made));
}

} // namespace peal
