// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Joins a multicast group. The connection manager joins the group in the network and tells its
 * address. The queue pair is this program's own.
 */
#include <arpa/inet.h>
#include <poll.h>

#include <cerrno>
#include <new>

#include "cm.hpp"
#include "datagram_source.hpp"
#include "moved.hpp"

namespace peal {

namespace detail {

namespace {

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

} // namespace

struct membership final : datagrams {
	rdma_event_channel *events = nullptr;
	rdma_cm_id *id = nullptr;
	sockaddr_storage address{};
	bool has_asked = false; /* to join */
	rdma_ud_param to{};
	ibv_ah *ah = nullptr;
	bool is_attached = false;

	~membership() override;

	co::task<status> join(const kept<event_loop> &, const char *name, sockaddr_storage,
			      deadline) noexcept;
	/* With queues, and in the group. */
	status attach() noexcept;
	void look() noexcept override;
};

void keep(membership *of) noexcept
{
	keep(static_cast<datagrams *>(of));
}

void release(membership *of) noexcept
{
	release(static_cast<datagrams *>(of));
}

membership::~membership()
{
	if (is_attached)
		ibv_detach_mcast(qp, &to.ah_attr.grh.dgid, to.ah_attr.dlid);
	stop();
	if (ah)
		ibv_destroy_ah(ah);
	if (has_asked)
		rdma_leave_multicast(id, reinterpret_cast<sockaddr *>(&address));
	if (id)
		rdma_destroy_id(id);
	if (events)
		rdma_destroy_event_channel(events);
}

/* ---- joining ---- */

co::task<status> membership::join(const kept<event_loop> &in, const char *name,
				  sockaddr_storage group, deadline until) noexcept
{
	std::uint8_t port = 0;
	sockaddr_storage own;
	ibv_port_attr state{};

	address = group;
	family = group.ss_family;
	if (!find_own_address(*device.get(), group.ss_family, port, own))
		co_return error::make(
			EADDRNOTAVAIL,
			"%s has no address of IPv%d on a port that is up; set its link "
			"up, and give its netdev an address",
			device->name(), family == AF_INET ? 4 : 6);
	events = make_event_channel();
	if (!events || rdma_create_id(events, &id, nullptr, RDMA_PS_UDP)) {
		id = nullptr;
		co_return error::make(errno,
				      "the connection manager cannot be used: %s; load the module "
				      "rdma_ucm, and see who may open /dev/infiniband/rdma_cm",
				      strerrordesc_np(errno));
	}
	watched = events->fd;
	if (rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&own)))
		co_return error::make(errno,
				      "the connection manager does not find %s by its address: %s; "
				      "see whether its netdev still has it",
				      device->name(), strerrordesc_np(errno));
	if (!device->is_device_of(id->verbs))
		co_return error::make(EXDEV,
				      "another device has the address of %s; open that device",
				      device->name());
	if (rdma_join_multicast(id, reinterpret_cast<sockaddr *>(&address), nullptr))
		co_return error::make(errno,
				      "%s cannot join %s: %s; see whether it is the address of "
				      "a multicast group",
				      device->name(), name, strerrordesc_np(errno));
	has_asked = true;
	auto event = co_await next_event(in, events, until);
	if (!event)
		co_return error::make(event.code(), "joining %s failed: %s", name, event.why());
	if (event->type != RDMA_CM_EVENT_MULTICAST_JOIN)
		co_return error::make(EPROTO, "%s cannot join %s: %s; try again", device->name(),
				      name, rdma_event_str(event->type));
	to = event->group;
	if (ibv_query_port(device->verbs, id->port_num, &state))
		co_return error::make(errno,
				      "%s does not tell about port %u: %s; see whether it still "
				      "exists",
				      device->name(), id->port_num, strerrordesc_np(errno));
	longest = 128u << state.active_mtu;
	co_return status();
}

status membership::attach() noexcept
{
	ah = ibv_create_ah(device->pd, &to.ah_attr);
	if (!ah)
		return error::make(errno, "%s makes no address of a group: %s; leave other groups",
				   device->name(), strerrordesc_np(errno));
	if (status ready = start(id->port_num, to.qkey); !ready)
		return ready;
	if (const int failed = ibv_attach_mcast(qp, &to.ah_attr.grh.dgid, to.ah_attr.dlid))
		return error::make(failed,
				   "the queue pair of %s does not get into the group: %s; see how "
				   "many groups it may have",
				   device->name(), strerrordesc_np(failed));
	is_attached = true;
	all = {ah, to.qp_num, to.qkey};
	return {};
}

/* librdmacm allocates memory when it is asked for an event, so it is asked only if there is one. */
void membership::look() noexcept
{
	pollfd one = {events->fd, POLLIN, 0};
	rdma_cm_event *event;

	while (poll(&one, 1, 0) > 0 && !rdma_get_cm_event(events, &event)) {
		if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			ended = "the device was removed; open another one";
		else if (event->event == RDMA_CM_EVENT_MULTICAST_ERROR)
			ended = "the network has ended the group; join again";
		rdma_ack_cm_event(event);
	}
}

} // namespace detail

std::size_t group::longest() const noexcept
{
	return of_ ? of_->longest : 0;
}

status group::send(std::span<const std::byte> bytes, deadline until) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved::group);
	return of_->send(of_->all, bytes, until);
}

result<datagram> group::recv(deadline until) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved::group);
	return of_->recv(until);
}

int group::fd() const noexcept
{
	return of_ ? of_->epoll : -1;
}

next_step group::arm() noexcept
{
	return of_ ? of_->arm() : next_step::close;
}

namespace detail {

namespace {

co::task<result<kept<membership>>> join_group(kept<event_loop> in, kept<context> device,
					      const char *address, deadline until,
					      std::uint16_t receives) noexcept
{
	if (!device)
		co_return error::make(EBADF, "%s", detail::moved::device);
	auto found = co_await look_up(in, address, 0, until);
	kept<membership> made(new (std::nothrow) membership);

	if (!found)
		co_return found.failure();
	if (!made || found->empty())
		co_return error::make(ENOMEM, "there is no memory for a group; leave others");
	made->device = device;
	status done = co_await made->join(in, address, found->front(), until);
	if (done)
		done = made->make_queues(receives);
	if (done)
		done = made->attach();
	if (!done)
		co_return error::make(done.code(), "%s", done.why());
	co_return std::move(made);
}

} // namespace
} // namespace detail

result<group> device::join(const char *address, deadline until, std::uint16_t receives) noexcept
{
	auto made =
		detail::run_blocking(detail::join_group({}, context_, address, until, receives));

	if (!made)
		return made.failure();
	return group(std::move(made).value());
}

/* ---- in an event loop ---- */

namespace co {

std::size_t group::longest() const noexcept
{
	return source_ ? source_->of->longest : 0;
}

sending_datagram group::send(std::span<const std::byte> bytes, deadline until) noexcept
{
	return sending_datagram(source_, {}, nullptr, bytes, until);
}

receiving_datagram group::recv(deadline until) noexcept
{
	return receiving_datagram(source_, until);
}

void group::close() noexcept
{
	if (source_)
		source_->close();
}

task<result<group>> loop::join(device &of, const char *address, deadline until,
			       std::uint16_t receives) noexcept
{
	const auto in = state_;

	if (!in)
		co_return error::make(EBADF, "%s", detail::moved::loop);
	if (const char *why = in->refuses())
		co_return error::make(EBADF, "%s", why);
	auto joined = co_await detail::join_group(in, of.context_, address, until, receives);
	if (!joined)
		co_return joined.failure();
	auto made =
		detail::datagram_source::make(detail::kept<detail::datagrams>(joined->give()), in);
	if (!made)
		co_return made.failure();
	co_return group(std::move(made).value());
}

result<group> loop::adopt(peal::group &&other) noexcept
{
	auto made = detail::datagram_source::make(detail::kept<detail::datagrams>(other.of_.give()),
						  state_);

	if (!made)
		return made.failure();
	return group(std::move(made).value());
}

} // namespace co
} // namespace peal
