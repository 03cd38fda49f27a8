// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Makes and ends what a connection owns: the steps of its queue pair, and the order in which its
 * parts go.
 */
#include <endian.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cm.hpp"
#include "greeter.hpp"
#include "link.hpp"
#include "moved.hpp"
#include "peal/shared_receives.hpp"

namespace peal {

namespace {

constexpr std::uint32_t greeting_magic = 0x7065616c; /* "peal" */
constexpr std::uint8_t greeting_version = region_on_wire::current_version;
constexpr const char *closed = "the peer has closed the connection; connect again";
constexpr const char *removed = "the device was removed; open another one";

} // namespace

region_on_wire region_on_wire::pack(const region &mine, const options &limits) noexcept
{
	region_on_wire out{};

	out.magic = htobe32(greeting_magic);
	out.version = greeting_version;
	out.rights = static_cast<std::uint8_t>(mine.rights_);
	out.address = htobe64(static_cast<std::uint64_t>(mine.address_));
	out.size = htobe64(mine.size_);
	out.key = htobe32(static_cast<std::uint32_t>(mine.key_));
	out.transport = static_cast<std::uint8_t>(limits.transport);
	out.receive_bytes = htobe32(limits.receive_bytes);
	return out;
}

bool region_on_wire::is_peal() const noexcept
{
	return be32toh(magic) == greeting_magic;
}

region region_on_wire::unpack() const noexcept
{
	region theirs;

	theirs.address_ = remote_address(be64toh(address));
	theirs.size_ = be64toh(size);
	theirs.key_ = rkey(be32toh(key));
	theirs.rights_ = peal::rights(rights);
	if (peal::transport(transport) == peal::transport::uc &&
	    includes(theirs.rights_, rights::write))
		theirs.rights_ = rights::write;
	else if (peal::transport(transport) == peal::transport::uc)
		theirs.rights_ = rights::none;
	return theirs;
}

namespace detail {

namespace {

/* What only a reliable queue pair has. */
constexpr int reliable_only = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |
			      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
/* What only the end that receives has, and only the end that sends. */
constexpr int target_only = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int initiator_only = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
/* A peer without a receive tries again after 0.64 ms. */
constexpr std::uint8_t rnr_timer = 12;

bool is_readable(int fd) noexcept
{
	pollfd one = {fd, POLLIN, 0};

	return poll(&one, 1, 0) > 0;
}

error not_ready(const context &device, int failed) noexcept
{
	return error::make(failed,
			   "the queue pair of %s does not get ready: %s; see whether its port is "
			   "up and its address is still there",
			   device.name(), strerrordesc_np(failed));
}

} // namespace

void keep(link *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

/* A batch that outlives the other users deletes it. */
void release(link *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1 && !of->batch_open)
		delete of;
}

void keep(path *of) noexcept
{
	keep(&link_of(of));
}

void release(path *of) noexcept
{
	release(&link_of(of));
}

link::link(kept<context> of, const peal::options &limits) noexcept
	: path([&] {
		  peal::options own = limits;

		  if (limits.shared && limits.shared->of_) {
			  own.receives = limits.shared->of_->count;
			  own.receive_bytes = limits.shared->of_->bytes;
		  }
		  return own;
	  }()),
	  device(std::move(of)), pool(limits.shared ? limits.shared->of_ : kept<receive_pool>())
{
}

link::~link()
{
	close();
	for (; pool && count; --count, ++first)
		pool->post(arrived[first % limits.receives].buffer);
	if (send_cq)
		ibv_destroy_cq(send_cq);
	if (recv_cq)
		ibv_destroy_cq(recv_cq);
	if (channel)
		ibv_destroy_comp_channel(channel);
	if (events)
		rdma_destroy_event_channel(events);
	if (epoll >= 0)
		::close(epoll);
}

/*
 * The queue pair goes first, so that the device writes to no buffer afterwards. What was received
 * stays readable in `buffers` until the last message has gone.
 */
void link::close() noexcept
{
	/* What has come is delivered. */
	if (loop)
		look();
	end("the connection is closed; connect again");
	leave_loop();
	if (connected)
		rdma_disconnect(id);
	connected = false;
	if (greeter)
		greeter->say_farewell();
	greeter = {};
	direct.reset();
	if (qp && pool)
		leave_pool();
	end_windows();
	if (qp)
		ibv_destroy_qp(qp);
	qp = nullptr;
	if (id)
		rdma_destroy_id(id);
	id = nullptr;
	if (loop) {
		fail_slots();
		look();
	}
}

/*
 * A receive of the pool that the queue pair has taken for a message comes back as a completion. A
 * device says when it was the last one. Some software does not, so this waits for a limited time.
 */
void link::leave_pool() noexcept
{
	const deadline until = std::chrono::milliseconds(100);
	ibv_context *const verbs = device->verbs;
	ibv_qp_attr error_state{};

	error_state.qp_state = IBV_QPS_ERR;
	ibv_modify_qp(qp, &error_state, IBV_QP_STATE);
	while (!has_last_receive && !until.passed()) {
		pollfd one = {verbs->async_fd, POLLIN, 0};
		ibv_async_event event;

		poll(&one, 1, std::min(until.milliseconds_left(), 10));
		while (!ibv_get_async_event(verbs, &event)) {
			/* A queue pair lives until its events are acknowledged, and so its link. */
			if (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
				static_cast<link *>(event.element.qp->qp_context)
					->has_last_receive = true;
			ibv_ack_async_event(&event);
		}
	}
	poll_receives();
}

error link::no_rings(int failed) const noexcept
{
	return error::make(failed,
			   "%s does not give its rings: %s; set PEAL_LIBIBVERBS=1 to go without "
			   "them",
			   device->name(), strerrordesc_np(failed));
}

status link::make_queues(bool for_loop) noexcept
{
	const ibv_device_attr &most = device->attr;
	const auto depth = std::min<std::uint32_t>(most.max_qp_wr, most.max_cqe);
	ibv_qp_init_attr want{};
	int failed = 0;

	if (domain)
		return make_target();
	if (limits.transport == transport::xrc && pool)
		return error::make(EINVAL, "a connection to inboxes receives nothing; leave out "
					   "options.shared");
	if (!limits.sends || !limits.receives || !limits.receive_bytes)
		return error::make(EINVAL,
				   "options.sends, receives and receive_bytes must not be 0; "
				   "leave out what you do not need to change");
	if (limits.sends > depth || limits.receives > depth)
		return error::make(EINVAL,
				   "%s has queues of at most %u requests; lower options.sends "
				   "and options.receives",
				   device->name(), depth);
	if (limits.shared && !pool)
		return error::make(EBADF, "%s", detail::moved::shared_receives);
	if (pool && pool->device.get() != device.get())
		return error::make(EXDEV,
				   "options.shared is of another device than %s; make one "
				   "of each",
				   device->name());
	const std::size_t slots = 2 * std::size_t{limits.sends} + 2;
	wr.reset(new (std::nothrow) ibv_send_wr[limits.sends]());
	sge.reset(new (std::nothrow) ibv_sge[limits.sends]);
	inline_area.reset(new (std::nothrow)
				  std::byte[std::size_t{limits.sends} *
					    std::max<std::size_t>(limits.inline_bytes, 1)]);
	sent.reset(new (std::nothrow) completion[slots]);
	good.reset(new (std::nothrow) completion[limits.sends]);
	arrived.reset(new (std::nothrow) arrival[limits.receives]);
	if (!wr || !sge || !inline_area || !sent || !good || !arrived)
		return error::make(ENOMEM,
				   "there is no memory for the queues of a connection; lower "
				   "options.sends");
	if (pool) {
		buffers = pool->buffers;
	} else if (limits.transport != transport::xrc) {
		auto bytes = make_block(device.get(), limits.receives, limits.receive_bytes,
					rights::none);

		if (!bytes)
			return bytes.failure();
		buffers = std::move(bytes).value();
	}

	channel = ibv_create_comp_channel(device->verbs);
	if (channel) {
		send_cq = ibv_create_cq(device->verbs, limits.sends, nullptr, channel, 0);
		recv_cq = ibv_create_cq(device->verbs, limits.receives, nullptr, channel, 0);
	}
	if (!channel || !send_cq || !recv_cq)
		return error::make(errno,
				   "%s makes no completion queue: %s; close connections, or "
				   "lower options",
				   device->name(), strerrordesc_np(errno));
	/* Rings that were taken have no shared receives. */
	if (!pool && limits.transport != transport::xrc) {
		direct = rings::take(*device.get(), send_cq, recv_cq, ring, failed);
		if (failed)
			return no_rings(failed);
	}
	if (!for_loop)
		epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!make_nonblocking(channel->fd) ||
	    (!for_loop &&
	     (epoll < 0 || !watch(epoll, channel->fd) || (events && !watch(epoll, events->fd)))))
		return error::make(errno,
				   "the program gets no descriptor to wait with: %s; see what "
				   "ulimit -n allows",
				   strerrordesc_np(errno));
	if (for_loop)
		if (status done = make_slots(); !done)
			return done;
	want.send_cq = send_cq;
	want.recv_cq = recv_cq;
	want.qp_type = limits.transport == transport::uc    ? IBV_QPT_UC
		       : limits.transport == transport::xrc ? IBV_QPT_XRC_SEND
							    : IBV_QPT_RC;
	want.qp_context = this;
	want.srq = pool ? pool->srq : nullptr;
	want.cap.max_send_wr = limits.sends;
	want.cap.max_recv_wr = pool || want.qp_type == IBV_QPT_XRC_SEND ? 0 : limits.receives;
	want.cap.max_send_sge = 1;
	want.cap.max_recv_sge = 1;
	want.cap.max_inline_data = limits.inline_bytes;
	qp = ibv_create_qp(device->pd, &want);
	if (!qp)
		return error::make(errno,
				   "%s makes no queue pair: %s; close connections, or lower "
				   "options",
				   device->name(), strerrordesc_np(errno));
	if (direct)
		failed = direct->take(*device.get(), qp, ring);
	if (failed)
		return no_rings(failed);
	qp_number = qp->qp_num;
	choose_way();
	return {};
}

/* Its receives are those of the inboxes, and it sends nothing. */
status link::make_target() noexcept
{
	ibv_qp_init_attr_ex want{};

	want.qp_type = IBV_QPT_XRC_RECV;
	want.qp_context = this;
	want.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	want.xrcd = domain->xrcd;
	qp = ibv_create_qp_ex(device->verbs, &want);
	if (!qp)
		return error::make(errno,
				   "%s makes no target of an XRC domain: %s; destroy other targets",
				   device->name(), strerrordesc_np(errno));
	qp_number = qp->qp_num;
	return {};
}

status link::learn_port(std::uint8_t number) noexcept
{
	ibv_port_attr port{};

	if (ibv_query_port(device->verbs, number, &port))
		return error::make(errno,
				   "%s does not tell about port %u: %s; see whether it still "
				   "exists",
				   device->name(), number, strerrordesc_np(errno));
	longest = port.max_msg_sz;
	return {};
}

status link::post_receives() noexcept
{
	for (std::uint32_t i = 0; buffers && !pool && i < limits.receives; ++i)
		post_receive(i);
	if (ended)
		return error::make(EIO, "%s", ended);
	return {};
}

status link::to_state(ibv_qp_state state, std::uint8_t depth) noexcept
{
	ibv_qp_attr attr{};
	int mask = 0;

	attr.qp_state = state;
	if (rdma_init_qp_attr(id, &attr, &mask))
		return not_ready(*device.get(), errno);
	attr.max_dest_rd_atomic = std::min(attr.max_dest_rd_atomic, depth);
	attr.max_rd_atomic = std::min(attr.max_rd_atomic, depth);
	return to_state(attr, mask);
}

status link::to_state(ibv_qp_attr attr, int mask) noexcept
{
	if (attr.qp_state == IBV_QPS_INIT) {
		mask |= IBV_QP_ACCESS_FLAGS;
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
		if (device->attr.atomic_cap != IBV_ATOMIC_NONE)
			attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	} else if (attr.qp_state == IBV_QPS_RTR) {
		attr.min_rnr_timer = rnr_timer;
		mtu = 128u << attr.path_mtu;
		learn_gids(attr.ah_attr);
	}
	/* The connection manager knows reliable queue pairs only. */
	if (limits.transport == transport::uc)
		mask &= ~reliable_only;
	else if (limits.transport == transport::xrc)
		mask &= domain ? ~initiator_only : ~target_only;
	if (const int failed = ibv_modify_qp(qp, &attr, mask))
		return not_ready(*device.get(), failed);
	return {};
}

void link::learn_gids(const ibv_ah_attr &path) noexcept
{
	ibv_gid own{};

	/* Without its own GID a connection works nevertheless. */
	if (!path.is_global ||
	    ibv_query_gid(device->verbs, path.port_num, path.grh.sgid_index, &own))
		return;
	std::memcpy(local_gid.data(), &own, sizeof(own));
	std::memcpy(peer_gid.data(), &path.grh.dgid, sizeof(path.grh.dgid));
}

status link::learn_peer(const void *private_data, std::size_t length) noexcept
{
	region_on_wire theirs{};

	if (private_data && length >= sizeof(theirs))
		std::memcpy(&theirs, private_data, sizeof(theirs));
	/* A program without libpeal shares nothing. */
	if (!theirs.is_peal())
		return {};
	if (theirs.version != greeting_version)
		return error::make(EPROTO,
				   "the peer has version %u of libpeal's greeting, and this "
				   "program has %u; install one libpeal on both hosts",
				   theirs.version, greeting_version);
	if (theirs.transport != static_cast<std::uint8_t>(limits.transport))
		return error::make(EPROTO, "the peer's connection has another transport than this "
					   "program's; give both the same options.transport");
	peer = theirs.unpack();
	peer_receive_bytes = be32toh(theirs.receive_bytes);
	return {};
}

void link::end(const char *why) noexcept
{
	if (!ended)
		ended = why;
	set_short(false);
}

void link::choose_way() noexcept
{
	set_short(direct && !ended && !refused && !slots);
}

void link::hear(rdma_cm_event_type type) noexcept
{
	if (type == RDMA_CM_EVENT_DISCONNECTED)
		break_off(closed);
	else if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
		break_off(removed);
	else
		return;
	/* The peer gets its answer. */
	rdma_disconnect(id);
}

status link::keep_greeter(kept<detail::greeter> of) noexcept
{
	greeter = std::move(of);
	/* A target never waits. It only says farewell. */
	if (!domain && !watch(epoll, peer_fd()))
		return error::make(errno,
				   "the program gets no descriptor to wait with: %s; see what "
				   "/proc/sys/fs/epoll/max_user_watches allows",
				   strerrordesc_np(errno));
	look_for_farewell();
	return {};
}

void link::look_for_farewell() noexcept
{
	if (greeter->hears_farewell())
		break_off(closed);
	if (!greeter->ended)
		return;
	break_off(removed);
	/* The descriptor stays readable, and tells nothing more. */
	if (is_watched)
		loop->unwatch(peer_fd());
}

void link::break_off(const char *why) noexcept
{
	ibv_qp_attr error_state{};

	end(why);
	error_state.qp_state = IBV_QPS_ERR;
	ibv_modify_qp(qp, &error_state, IBV_QP_STATE);
}

int link::peer_fd() const noexcept
{
	if (events)
		return events->fd;
	return greeter ? greeter->channel->fd : -1;
}

/*
 * librdmacm allocates memory when it is asked for an event, also if there is none. So ask only if
 * there is one, which is rare: a connection ends once.
 */
void link::look_at_peer() noexcept
{
	rdma_cm_event *event;

	while (id && is_readable(events->fd) && !rdma_get_cm_event(events, &event)) {
		const rdma_cm_event_type type = event->event;

		rdma_ack_cm_event(event);
		hear(type);
	}
	if (greeter && is_readable(peer_fd()))
		look_for_farewell();
}

} // namespace detail
} // namespace peal
