// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Joins a multicast group, and sends and receives its datagrams. The connection manager joins the
 * group in the network and tells its address. The queue pair is this program's own.
 */
#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "cm.hpp"
#include "context.hpp"
#include "loop.hpp"
#include "peal/group.hpp"

namespace peal {

namespace detail {

namespace {

constexpr const char *moved = "the group was moved from; use the object that it was moved to";
constexpr const char *removed = "the device was removed; open another one";
/* In front of each datagram that comes. */
constexpr std::uint32_t header = 40;
/* How often a wait polls before it sleeps. */
constexpr unsigned polls_before_sleep = 64;

/* An address of the device, by which the connection manager finds it. It has the port 0. */
bool find_own_address(const context &device, int family, std::uint8_t &port,
		      sockaddr_storage &own) noexcept
{
	constexpr std::uint8_t four[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	ibv_port_attr state{};

	for (port = 1; port <= device.attr.phys_port_cnt; ++port) {
		if (ibv_query_port(device.verbs, port, &state) || state.state != IBV_PORT_ACTIVE)
			continue;
		for (int i = 0; i < state.gid_tbl_len; ++i) {
			const ibv_gid none{};
			ibv_gid one{};

			if (ibv_query_gid(device.verbs, port, i, &one) ||
			    !std::memcmp(&one, &none, sizeof(one)))
				continue;
			const bool is_four = !std::memcmp(one.raw, four, sizeof(four));
			own = {};
			own.ss_family = family;
			if (family == AF_INET && is_four) {
				std::memcpy(&reinterpret_cast<sockaddr_in &>(own).sin_addr,
					    one.raw + sizeof(four), 4);
				return true;
			}
			/* A link-local address names no link. */
			if (family == AF_INET6 && !is_four &&
			    !(one.raw[0] == 0xfe && (one.raw[1] & 0xc0) == 0x80)) {
				std::memcpy(&reinterpret_cast<sockaddr_in6 &>(own).sin6_addr, &one,
					    sizeof(one));
				return true;
			}
		}
	}
	return false;
}

/*
 * The sender's address. A header of IPv4 is in the second half of its place, and the first half is
 * not defined. Only a group of IPv4 can have one.
 */
gid sender_of(const std::byte *at, int family) noexcept
{
	constexpr std::byte version_and_length{0x45};
	constexpr std::size_t four = 20, in_six = 8, in_four = four + 12;
	gid sender{};

	if (family != AF_INET || at[four] != version_and_length) {
		std::memcpy(sender.data(), at + in_six, sizeof(sender));
		return sender;
	}
	sender[10] = sender[11] = std::byte{0xff};
	std::memcpy(sender.data() + 12, at + in_four, 4);
	return sender;
}

} // namespace

struct membership {
	std::atomic<unsigned> users{1};
	kept<context> device;
	rdma_event_channel *events = nullptr;
	rdma_cm_id *id = nullptr;
	sockaddr_storage address{};
	bool has_asked = false; /* to join */
	ibv_comp_channel *channel = nullptr;
	ibv_cq *send_cq = nullptr;
	ibv_cq *recv_cq = nullptr;
	ibv_qp *qp = nullptr;
	rdma_ud_param to{};
	ibv_ah *ah = nullptr;
	bool is_attached = false;
	std::uint32_t longest = 0;
	/* Each place has the header and a datagram. The first is for the one that is sent. */
	kept<block> buffers;
	bool is_sending = false;
	/* Why nothing more will come. */
	const char *ended = nullptr;

	membership() = default;
	membership(const membership &) = delete;
	~membership();

	status join(const char *name, const sockaddr_storage &, const deadline &) noexcept;
	status make_queues(std::uint32_t receives) noexcept;
	status start(std::uint32_t receives) noexcept;
	std::uint32_t place_size() const noexcept { return header + longest; }
	std::byte *place(std::uint32_t i) const noexcept
	{
		return buffers->data + std::size_t{i} * place_size();
	}
	void post_receive(std::uint32_t place) noexcept;
	/* The next completion of one of the queues. */
	status next(ibv_cq *, ibv_wc &, const deadline &) noexcept;
	void look_at_group() noexcept;
	status send(std::span<const std::byte>, const deadline &) noexcept;
	result<datagram> recv(const deadline &) noexcept;
};

void keep(membership *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(membership *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

/* The queue pair goes before the buffers, so that the device writes to none afterwards. */
membership::~membership()
{
	if (is_attached)
		ibv_detach_mcast(qp, &to.ah_attr.grh.dgid, to.ah_attr.dlid);
	if (qp)
		ibv_destroy_qp(qp);
	if (ah)
		ibv_destroy_ah(ah);
	if (has_asked)
		rdma_leave_multicast(id, reinterpret_cast<sockaddr *>(&address));
	if (id)
		rdma_destroy_id(id);
	if (send_cq)
		ibv_destroy_cq(send_cq);
	if (recv_cq)
		ibv_destroy_cq(recv_cq);
	if (channel)
		ibv_destroy_comp_channel(channel);
	if (events)
		rdma_destroy_event_channel(events);
}

/* ---- joining ---- */

status membership::join(const char *name, const sockaddr_storage &group,
			const deadline &until) noexcept
{
	std::uint8_t port = 0;
	sockaddr_storage own;
	ibv_port_attr state{};

	address = group;
	if (!find_own_address(*device.get(), group.ss_family, port, own))
		return error::make(EADDRNOTAVAIL,
				   "%s has no address of IPv%d on a port that is up; set its link "
				   "up, and give its netdev an address",
				   device->name(), group.ss_family == AF_INET ? 4 : 6);
	events = make_event_channel();
	if (!events || rdma_create_id(events, &id, nullptr, RDMA_PS_UDP)) {
		id = nullptr;
		return error::make(errno,
				   "the connection manager cannot be used: %s; load the module "
				   "rdma_ucm, and see who may open /dev/infiniband/rdma_cm",
				   strerrordesc_np(errno));
	}
	if (rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&own)))
		return error::make(errno,
				   "the connection manager does not find %s by its address: %s; "
				   "see whether its netdev still has it",
				   device->name(), strerrordesc_np(errno));
	if (!device->is_device_of(id->verbs))
		return error::make(EXDEV, "another device has the address of %s; open that device",
				   device->name());
	if (rdma_join_multicast(id, reinterpret_cast<sockaddr *>(&address), nullptr))
		return error::make(errno,
				   "%s cannot join %s: %s; see whether it is the address of "
				   "a multicast group",
				   device->name(), name, strerrordesc_np(errno));
	has_asked = true;
	auto event = run_blocking(next_event({}, events, until));
	if (!event)
		return error::make(event.code(), "joining %s failed: %s", name, event.why());
	if (event->type != RDMA_CM_EVENT_MULTICAST_JOIN)
		return error::make(EPROTO, "%s cannot join %s: %s; try again", device->name(), name,
				   rdma_event_str(event->type));
	to = event->group;
	if (ibv_query_port(device->verbs, id->port_num, &state))
		return error::make(errno,
				   "%s does not tell about port %u: %s; see whether it still "
				   "exists",
				   device->name(), id->port_num, strerrordesc_np(errno));
	longest = 128u << state.active_mtu;
	return {};
}

status membership::make_queues(std::uint32_t receives) noexcept
{
	ibv_qp_init_attr want{};

	if (!receives || receives > static_cast<std::uint32_t>(device->attr.max_qp_wr) ||
	    receives > static_cast<std::uint32_t>(device->attr.max_cqe))
		return error::make(EINVAL,
				   "%s has queues of at most %d requests, and a group needs at "
				   "least one; choose another number of receives",
				   device->name(),
				   std::min(device->attr.max_qp_wr, device->attr.max_cqe));
	auto made = make_block(device.get(), receives + 1, place_size(), rights::none);
	if (!made)
		return made.failure();
	buffers = std::move(made).value();
	channel = ibv_create_comp_channel(device->verbs);
	if (channel) {
		send_cq = ibv_create_cq(device->verbs, 1, nullptr, channel, 0);
		recv_cq = ibv_create_cq(device->verbs, receives, nullptr, channel, 0);
	}
	if (!channel || !send_cq || !recv_cq || !make_nonblocking(channel->fd))
		return error::make(errno,
				   "%s makes no completion queue: %s; leave other groups, or close "
				   "connections",
				   device->name(), strerrordesc_np(errno));
	want.send_cq = send_cq;
	want.recv_cq = recv_cq;
	want.qp_type = IBV_QPT_UD;
	want.cap.max_send_wr = 1;
	want.cap.max_recv_wr = receives;
	want.cap.max_send_sge = 1;
	want.cap.max_recv_sge = 1;
	qp = ibv_create_qp(device->pd, &want);
	ah = qp ? ibv_create_ah(device->pd, &to.ah_attr) : nullptr;
	if (!qp || !ah)
		return error::make(errno,
				   "%s makes no queue pair for a group: %s; leave other groups, or "
				   "close connections",
				   device->name(), strerrordesc_np(errno));
	return {};
}

/* The receives are posted before the first datagram can come. */
status membership::start(std::uint32_t receives) noexcept
{
	ibv_qp_attr attr{};
	int failed;

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = id->port_num;
	attr.qkey = to.qkey;
	failed = ibv_modify_qp(qp, &attr,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	for (std::uint32_t i = 1; !failed && i <= receives; ++i)
		post_receive(i);
	if (ended)
		return error::make(EIO, "%s", ended);
	attr.qp_state = IBV_QPS_RTR;
	if (!failed)
		failed = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	if (!failed)
		failed = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (!failed)
		failed = ibv_attach_mcast(qp, &to.ah_attr.grh.dgid, to.ah_attr.dlid);
	if (failed)
		return error::make(failed,
				   "the queue pair of %s does not get ready for the group: %s; "
				   "see whether its port is up, and how many groups it may have",
				   device->name(), strerrordesc_np(failed));
	is_attached = true;
	return {};
}

/* ---- sending and receiving ---- */

void membership::post_receive(std::uint32_t at) noexcept
{
	ibv_sge entry{};
	ibv_recv_wr receive{}, *bad;

	entry.addr = reinterpret_cast<std::uintptr_t>(place(at));
	entry.length = place_size();
	entry.lkey = static_cast<std::uint32_t>(buffers->local);
	receive.wr_id = at;
	receive.sg_list = &entry;
	receive.num_sge = 1;
	if (!ended && ibv_post_recv(qp, &receive, &bad))
		ended = "the device takes no receive; see whether it still exists, and join again";
}

status membership::next(ibv_cq *from, ibv_wc &came, const deadline &until) noexcept
{
	bool is_armed = false;

	for (unsigned polls = 0;; ++polls) {
		const int got = ibv_poll_cq(from, 1, &came);

		if (got > 0 && came.status)
			ended = "the device has ended the group; see whether it still exists, and "
				"join again";
		else if (got > 0)
			return {};
		if (got < 0)
			ended = "the device gives no completions; see whether it still exists, and "
				"join again";
		if (!ended && until.passed())
			look_at_group();
		if (ended)
			return error::make(ENODEV, "%s", ended);
		if (until.passed())
			return error::make(ETIMEDOUT,
					   from == recv_cq
						   ? "no datagram has come in time; wait longer, "
						     "or see whether a member sends"
						   : "the device has not sent it in time; wait "
						     "longer");
		if (polls < polls_before_sleep)
			continue;
		if (is_armed) {
			pollfd ready[2] = {{channel->fd, POLLIN, 0}, {events->fd, POLLIN, 0}};

			if (poll(ready, 2, until.milliseconds_left()) > 0 && ready[1].revents)
				look_at_group();
		}
		ibv_cq *of;
		void *unused;
		while (!ibv_get_cq_event(channel, &of, &unused))
			ibv_ack_cq_events(of, 1);
		if (errno != EAGAIN && errno != EINTR)
			ended = removed;
		/* What came before the queue was armed raises no event, so it is polled again. */
		ibv_req_notify_cq(from, 0);
		is_armed = true;
	}
}

/* librdmacm allocates memory when it is asked for an event, so it is asked only if there is one. */
void membership::look_at_group() noexcept
{
	pollfd one = {events->fd, POLLIN, 0};
	rdma_cm_event *event;

	while (poll(&one, 1, 0) > 0 && !rdma_get_cm_event(events, &event)) {
		if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			ended = removed;
		else if (event->event == RDMA_CM_EVENT_MULTICAST_ERROR)
			ended = "the network has ended the group; join again";
		rdma_ack_cm_event(event);
	}
}

status membership::send(std::span<const std::byte> bytes, const deadline &until) noexcept
{
	ibv_sge entry{};
	ibv_send_wr request{}, *bad;
	ibv_wc done;

	if (bytes.size() > longest)
		return error::make(EMSGSIZE,
				   "a datagram has at most %u bytes here, and these are %zu; send "
				   "them in parts",
				   longest, bytes.size());
	/* One that was not sent in time still uses the bytes. */
	if (is_sending)
		if (status sent = next(send_cq, done, until); !sent)
			return sent;
	is_sending = false;
	if (!bytes.empty())
		std::memcpy(place(0), bytes.data(), bytes.size());
	entry.addr = reinterpret_cast<std::uintptr_t>(place(0));
	entry.length = bytes.size();
	entry.lkey = static_cast<std::uint32_t>(buffers->local);
	request.sg_list = &entry;
	/* For some devices an entry of length 0 means 2 GiB. */
	request.num_sge = !bytes.empty();
	request.opcode = IBV_WR_SEND;
	request.send_flags = IBV_SEND_SIGNALED;
	request.wr.ud.ah = ah;
	request.wr.ud.remote_qpn = to.qp_num;
	request.wr.ud.remote_qkey = to.qkey;
	if (const int failed = ibv_post_send(qp, &request, &bad))
		return error::make(failed, "%s does not send: %s; join again", device->name(),
				   strerrordesc_np(failed));
	is_sending = true;
	status sent = next(send_cq, done, until);
	is_sending = !sent;
	return sent;
}

result<datagram> membership::recv(const deadline &until) noexcept
{
	ibv_wc came;

	if (status found = next(recv_cq, came, until); !found)
		return error::make(found.code(), "%s", found.why());
	const auto at = static_cast<std::uint32_t>(came.wr_id);
	keep(this);
	datagram made{kept<membership>(this)};
	made.buffer_ = at;
	made.bytes_ = {place(at) + header, came.byte_len - header};
	if (came.wc_flags & IBV_WC_GRH)
		made.from_ = sender_of(place(at), address.ss_family);
	return made;
}

} // namespace detail

datagram &datagram::operator=(datagram &&other) noexcept
{
	if (this != &other) {
		this->~datagram();
		new (this) datagram(std::move(other));
	}
	return *this;
}

datagram::~datagram()
{
	if (of_)
		of_->post_receive(buffer_);
}

std::size_t group::longest() const noexcept
{
	return of_ ? of_->longest : 0;
}

status group::send(std::span<const std::byte> bytes, deadline until) noexcept
{
	return of_ ? of_->send(bytes, until) : error::make(EBADF, "%s", detail::moved);
}

result<datagram> group::recv(deadline until) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved);
	return of_->recv(until);
}

result<group> device::join(const char *address, deadline until, std::uint16_t receives) noexcept
{
	if (!context_)
		return error::make(EBADF, "the device was moved from; use the object that it was "
					  "moved to");
	auto found = detail::run_blocking(detail::look_up({}, address, 0, until));
	detail::kept<detail::membership> made(new (std::nothrow) detail::membership);

	if (!found)
		return found.failure();
	if (!made || found->empty())
		return error::make(ENOMEM, "there is no memory for a group; leave others");
	made->device = context_;
	status done = made->join(address, found->front(), until);
	if (done)
		done = made->make_queues(receives);
	if (done)
		done = made->start(receives);
	if (!done)
		return error::make(done.code(), "%s", done.why());
	return group(std::move(made));
}

} // namespace peal
