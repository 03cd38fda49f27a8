// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Opens devices, connects and accepts. The queue pair belongs to this program's own context, and
 * the connection manager only carries its number, so that one device can have memory before it has
 * a peer. rdma_init_qp_attr() tells what the route needs: port, GID and MTU.
 */
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cm.hpp"
#include "link.hpp"
#include "moved.hpp"

namespace peal {

namespace detail {

/* A port on which peers connect. */
struct listening {
	std::atomic<unsigned> users{1};
	kept<context> device;
	rdma_event_channel *events = nullptr;
	rdma_cm_id *id = nullptr;

	listening() = default;
	listening(const listening &) = delete;
	~listening()
	{
		if (id)
			rdma_destroy_id(id);
		if (events)
			rdma_destroy_event_channel(events);
	}
};

context::~context()
{
	if (pd)
		ibv_dealloc_pd(pd);
	if (verbs)
		ibv_close_device(verbs);
}

void keep(context *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(context *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

void keep(listening *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(listening *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

namespace {

constexpr const char *no_device = "there is no RDMA device; make one, for example by: "
				  "rdma link add peal0 type peal netdev eth0";
constexpr const char *not_by_manager =
	"the connection manager does not know options.transport xrc; "
	"connect by an offer to a target";
/* rdma_rxe takes a count of 7 for no limit, and would never say that a peer does not answer. */
constexpr std::uint8_t retries = 6;
/* How many peers may wait for an accept. */
constexpr int backlog = 64;

/* Who is to be reached, for sentences. */
struct target {
	const char *host;
	std::uint16_t port;
};

std::uint8_t at_most(int wanted, int limit) noexcept
{
	return static_cast<std::uint8_t>(std::clamp(wanted, 0, limit));
}

/* Whether connections use libibverbs also where they could write the rings themselves. */
bool wants_verbs() noexcept
{
	const char *value = std::getenv("PEAL_LIBIBVERBS");

	return value && !std::strcmp(value, "1");
}

bool is_active(ibv_context *verbs, std::uint8_t port) noexcept
{
	ibv_port_attr state{};

	return !ibv_query_port(verbs, port, &state) && state.state == IBV_PORT_ACTIVE;
}

bool has_active_port(ibv_context *verbs, const ibv_device_attr &attr) noexcept
{
	for (int port = 1; port <= attr.phys_port_cnt; ++port)
		if (is_active(verbs, static_cast<std::uint8_t>(port)))
			return true;
	return false;
}

/* A link with a channel of its own. */
result<kept<link>> make_link(const kept<context> &device, const options &limits) noexcept
{
	kept<link> made(new (std::nothrow) link(device, limits));

	if (!made)
		return error::make(ENOMEM, "there is no memory for a connection; close others");
	made->events = make_event_channel();
	if (!made->events)
		return error::make(errno,
				   "the connection manager cannot be used: %s; load the module "
				   "rdma_ucm, and see who may open /dev/infiniband/rdma_cm",
				   strerrordesc_np(errno));
	return made;
}

rdma_conn_param parameters(const link &of, const region_on_wire &greeting) noexcept
{
	rdma_conn_param param{};

	param.private_data = &greeting;
	param.private_data_len = sizeof(greeting);
	param.responder_resources = at_most(of.device->attr.max_qp_rd_atom, most_reads);
	param.initiator_depth = at_most(of.device->attr.max_qp_init_rd_atom, most_reads);
	param.retry_count = retries;
	/* 7 is for ever. The deadlines of the waits end it. */
	param.rnr_retry_count = 7;
	param.qp_num = of.qp->qp_num;
	return param;
}

/* ---- connecting ---- */

error explain(const cm_event &event, const target &to, const char *device) noexcept
{
	/* Reasons of a reject, from the specification's connection manager. */
	constexpr int no_listener = 8, by_the_program = 28;
	const int code = event.status < 0 ? -event.status : ECONNREFUSED;

	switch (event.type) {
	case RDMA_CM_EVENT_ADDR_ERROR:
		if (code == ETIMEDOUT)
			return error::make(code,
					   "the network of this host knows no %s; see whether "
					   "the address is right, and what ping says",
					   to.host);
		return error::make(code,
				   "no RDMA device of this host reaches %s (%s); see what ip "
				   "route get says, and whether the address is right",
				   to.host, strerrordesc_np(code));
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return error::make(code, "%s has no route to %s (%s); see what ip route get says",
				   device, to.host, strerrordesc_np(code));
	case RDMA_CM_EVENT_UNREACHABLE:
		return error::make(code,
				   "%s does not answer; see whether it runs, and whether a "
				   "firewall drops UDP port 4791",
				   to.host);
	case RDMA_CM_EVENT_REJECTED:
		if (event.status == no_listener)
			return error::make(ECONNREFUSED,
					   "no program at %s accepts on port %u; start "
					   "it first",
					   to.host, to.port);
		if (event.status == by_the_program)
			return error::make(ECONNRESET,
					   "the program at %s refuses; see what it "
					   "prints",
					   to.host);
		return error::make(ECONNRESET,
				   "%s refuses (reason %d of the connection manager); "
				   "see its log",
				   to.host, event.status);
	default:
		return error::make(EPROTO, "connecting to %s failed: %s; try again", to.host,
				   rdma_event_str(event.type));
	}
}

/* A call has failed as this event would. */
cm_event failed_event(rdma_cm_event_type type) noexcept
{
	cm_event made;

	made.type = type;
	made.status = -errno;
	return made;
}

/* Why there was no event. */
error too_late(const error &why, const target &to) noexcept
{
	if (why.code() != ETIMEDOUT)
		return why;
	return error::make(ETIMEDOUT,
			   "%s has not answered in time; see whether its program accepts, or "
			   "wait longer",
			   to.host);
}

/* Waits for this event. Any other is a failure. */
co::task<result<cm_event>> expect(const kept<event_loop> &in, link &of, rdma_cm_event_type wanted,
				  const target &to, const deadline &until) noexcept
{
	auto event = co_await next_event(in, of.events, until);

	if (!event)
		co_return too_late(event.failure(), to);
	if (event->type != wanted)
		co_return explain(*event, to, of.device->name());
	co_return event;
}

int for_cm(const deadline &until, int most = INT_MAX) noexcept
{
	return std::clamp(until.milliseconds_left(), 1, most);
}

/*
 * Finds the device by which an address is reached. The kernel asks the network for the peer's link
 * address, and may look for the answer only when the time that it was given has run out. So it gets
 * little time, again and again.
 */
co::task<status> resolve_address(const kept<event_loop> &in, rdma_cm_id *id,
				 const sockaddr_storage &address, const target &to,
				 const deadline &until) noexcept
{
	constexpr int first = 16, last = 1024; /* ms */
	auto *sa = reinterpret_cast<sockaddr *>(const_cast<sockaddr_storage *>(&address));

	for (int most = first;; most = std::min(2 * most, last)) {
		if (rdma_resolve_addr(id, nullptr, sa, for_cm(until, most)))
			co_return explain(failed_event(RDMA_CM_EVENT_ADDR_ERROR), to, "");
		auto event = co_await next_event(in, id->channel, until);
		if (!event && event.code() != ETIMEDOUT)
			co_return event.failure();
		if (!event) {
			errno = ETIMEDOUT;
			co_return explain(failed_event(RDMA_CM_EVENT_ADDR_ERROR), to, "");
		}
		if (event->type == RDMA_CM_EVENT_ADDR_RESOLVED)
			co_return status();
		if (event->type != RDMA_CM_EVENT_ADDR_ERROR || event->status != -ETIMEDOUT ||
		    until.passed())
			co_return explain(*event, to, "");
	}
}

/* Until the link knows by which device and port the peer is reached. */
co::task<status> find_route(const kept<event_loop> &in, link &of, const sockaddr_storage &address,
			    const target &to, const deadline &until) noexcept
{
	if (rdma_create_id(of.events, &of.id, nullptr, RDMA_PS_TCP)) {
		const int code = errno;

		of.id = nullptr;
		co_return error::make(code,
				      "the connection manager cannot be used: %s; load the module "
				      "rdma_ucm",
				      strerrordesc_np(code));
	}
	status found = co_await resolve_address(in, of.id, address, to, until);
	if (!found)
		co_return found;
	if (!of.device->is_device_of(of.id->verbs))
		co_return error::make(
			EXDEV, "%s is reached by %s, not by %s; open that device", to.host,
			of.id->verbs ? ibv_get_device_name(of.id->verbs->device) : "no device",
			of.device->name());
	/* An address of this host itself is found nevertheless, and the peer would not answer. */
	if (!is_active(of.device->verbs, of.id->port_num))
		co_return error::make(
			ENETDOWN,
			"port %u of %s, by which %s is reached, is not up; set its link up, "
			"for example by: ip link set eth0 up",
			of.id->port_num, of.device->name(), to.host);
	if (rdma_resolve_route(of.id, for_cm(until)))
		co_return explain(failed_event(RDMA_CM_EVENT_ROUTE_ERROR), to, of.device->name());
	auto event = co_await expect(in, of, RDMA_CM_EVENT_ROUTE_RESOLVED, to, until);
	if (!event)
		co_return event.failure();
	co_return status();
}

co::task<result<kept<link>>> dial(const kept<event_loop> &in, const kept<context> &device,
				  const sockaddr_storage &address, const target &to,
				  const region &mine, const deadline &until,
				  const options &limits) noexcept
{
	auto made = make_link(device, limits);

	if (!made)
		co_return made.failure();
	link &of = *made->get();
	const status found = co_await find_route(in, of, address, to, until);
	if (!found)
		co_return error::make(found.code(), "%s", found.why());
	status ready = of.make_queues(bool(in));
	if (ready)
		ready = of.learn_port(of.id->port_num);
	if (ready)
		ready = of.to_state(IBV_QPS_INIT);
	if (ready)
		ready = of.post_receives();
	if (!ready)
		co_return error::make(ready.code(), "%s", ready.why());
	const auto greeting = region_on_wire::pack(mine, of.limits);
	rdma_conn_param param = parameters(of, greeting);
	if (rdma_connect(of.id, &param))
		co_return error::make(errno, "%s cannot connect to %s: %s; try again",
				      device->name(), to.host, strerrordesc_np(errno));
	auto answer = co_await expect(in, of, RDMA_CM_EVENT_CONNECT_RESPONSE, to, until);
	if (!answer)
		co_return answer.failure();
	/* From here on the peer waits, and is told if this fails. */
	of.connected = true;
	for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS})
		if (status done = of.to_state(state); !done)
			co_return error::make(done.code(), "%s", done.why());
	if (status done = of.learn_peer(answer->private_data, answer->private_data_len); !done)
		co_return error::make(done.code(), "%s", done.why());
	if (rdma_establish(of.id))
		co_return error::make(errno,
				      "%s cannot tell %s that it is connected: %s; try again",
				      device->name(), to.host, strerrordesc_np(errno));
	co_return std::move(made).value();
}

co::task<result<kept<link>>> dial_any(kept<event_loop> in, kept<context> device, const char *host,
				      std::uint16_t port, region mine, deadline until,
				      options limits) noexcept
{
	const target to{host, port};
	auto found = co_await look_up(in, host, port, until);
	error last = error::make(EHOSTUNREACH, "%s has no address; use an address", host);

	if (!found)
		co_return found.failure();
	if (limits.transport == transport::xrc)
		co_return error::make(ENOTSUP, "%s", not_by_manager);
	for (const sockaddr_storage &address : *found) {
		auto made = co_await dial(in, device, address, to, mine, until, limits);

		if (made)
			co_return std::move(made).value();
		last = made.failure();
		if (until.passed())
			break;
	}
	co_return last;
}

/* ---- accepting ---- */

/*
 * Binds to every address: to those of IPv6, which includes IPv4, or only to IPv4 where this host
 * has no IPv6.
 */
bool bind_any(rdma_cm_id *id, std::uint16_t port) noexcept
{
	sockaddr_in6 six{};
	sockaddr_in four{};

	six.sin6_family = AF_INET6;
	six.sin6_port = htons(port);
	if (!rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&six)))
		return true;
	if (errno == EADDRINUSE || errno == EACCES)
		return false;
	four.sin_family = AF_INET;
	four.sin_port = htons(port);
	return !rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&four));
}

/*
 * How long one peer may take to connect. The others wait meanwhile, so a silent peer must not use
 * up the deadline. The connection manager repeats a lost answer after 4 s.
 */
deadline of_one_peer(const deadline &until) noexcept
{
	constexpr int most = 10000; /* ms */

	return std::chrono::milliseconds(std::min(until.milliseconds_left() / 2, most));
}

/* Whether the device has failed, so that no other peer can connect either. */
bool is_of_device(const status &failed) noexcept
{
	return failed.code() == EIO || failed.code() == ENODEV;
}

/* A link for the request of `event`. On a failure, which is this program's, the peer is refused. */
result<kept<link>> take_request(const kept<context> &device, const cm_event &event,
				const options &limits, bool for_loop) noexcept
{
	auto made = make_link(device, limits);

	if (!made || rdma_migrate_id(event.id, (*made)->events)) {
		const int code = errno;

		rdma_reject(event.id, nullptr, 0);
		rdma_destroy_id(event.id);
		if (!made)
			return made;
		return error::make(code,
				   "the connection manager cannot move a connection: %s; try "
				   "again",
				   strerrordesc_np(code));
	}
	link &of = *made->get();
	of.id = event.id;
	status done = of.make_queues(for_loop);
	if (done)
		done = of.learn_port(of.id->port_num);
	if (!done) {
		rdma_reject(of.id, nullptr, 0);
		return error::make(done.code(), "%s", done.why());
	}
	return made;
}

/* Answers the peer and waits until it is connected. A peer that has gone can fail every step. */
co::task<status> shake_hands(const kept<event_loop> &in, link &of, const cm_event &event,
			     const region &mine, deadline until) noexcept
{
	const auto greeting = region_on_wire::pack(mine, of.limits);
	rdma_conn_param param = parameters(of, greeting);
	status done = of.learn_peer(event.private_data, event.private_data_len);

	param.responder_resources = std::min(param.responder_resources, event.responder_resources);
	param.initiator_depth = std::min(param.initiator_depth, event.initiator_depth);
	if (done)
		done = of.to_state(IBV_QPS_INIT);
	if (done)
		done = of.post_receives();
	if (done)
		done = of.to_state(IBV_QPS_RTR, param.responder_resources);
	if (done)
		done = of.to_state(IBV_QPS_RTS, param.initiator_depth);
	if (!done) {
		rdma_reject(of.id, nullptr, 0);
		co_return done;
	}
	if (rdma_accept(of.id, &param))
		co_return error::make(errno, "%s cannot accept: %s; try again", of.device->name(),
				      strerrordesc_np(errno));
	of.connected = true;
	auto ready = co_await next_event(in, of.events, until);
	if (!ready && ready.code() != ETIMEDOUT)
		co_return ready.failure();
	if (!ready)
		co_return error::make(
			ETIMEDOUT, "it has not answered; see whether it still runs, and whether a "
				   "firewall drops UDP port 4791");
	if (ready->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
		co_return error::make(ENODEV, "%s was removed; open another device",
				      of.device->name());
	/*
	 * A peer asks for the end only after it has got the answer. That may come before its
	 * confirmation, or the confirmation is lost. Its messages have been received.
	 */
	if (ready->type == RDMA_CM_EVENT_DISCONNECTED)
		of.hear(ready->type);
	else if (ready->type != RDMA_CM_EVENT_ESTABLISHED)
		co_return error::make(ECONNRESET, "it has given up; see what it prints");
	co_return status();
}

/* A peer that does not get connected is refused, and the next one has its turn. */
co::task<result<kept<link>>> next_peer(kept<event_loop> in, kept<listening> by, region mine,
				       deadline until, options limits) noexcept
{
	listening &of = *by.get();
	const std::uint16_t port = ntohs(rdma_get_src_port(of.id));
	status last;

	if (limits.transport == transport::xrc)
		co_return error::make(ENOTSUP, "%s", not_by_manager);
	/* Also ends if peers that fail keep coming. */
	do {
		auto event = co_await next_event(in, of.events, until);

		if (!event) {
			if (event.code() != ETIMEDOUT)
				co_return event.failure();
			break;
		}
		if (event->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			co_return error::make(ENODEV, "%s was removed; open another device",
					      of.device->name());
		if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		/* Every device of this host listens. Only the program's own serves. */
		if (!of.device->is_device_of(event->id->verbs)) {
			rdma_reject(event->id, nullptr, 0);
			rdma_destroy_id(event->id);
			continue;
		}
		auto made = take_request(of.device, *event, limits, bool(in));
		if (!made)
			co_return made.failure();
		last = co_await shake_hands(in, *made->get(), *event, mine, of_one_peer(until));
		if (last)
			co_return std::move(made).value();
		if (is_of_device(last))
			co_return error::make(last.code(), "%s", last.why());
	} while (!until.passed());
	if (!last)
		co_return error::make(ETIMEDOUT,
				      "no peer has connected to port %u in time; the last one that "
				      "tried failed: %s",
				      port, last.why());
	co_return error::make(
		ETIMEDOUT,
		"no peer has connected to port %u in time; see what the peer prints, or "
		"wait longer",
		port);
}

} // namespace
} // namespace detail

std::uint16_t listener::port() const noexcept
{
	return listening_ ? ntohs(rdma_get_src_port(listening_->id)) : 0;
}

result<connection> listener::accept(const region &mine, deadline until,
				    const options &limits) noexcept
{
	if (!listening_)
		return error::make(EBADF, "%s", detail::moved::listener);
	auto made = detail::run_blocking(detail::next_peer({}, listening_, mine, until, limits));

	if (!made)
		return made.failure();
	return connection(detail::as_path(std::move(made).value()));
}

const char *device::name() const noexcept
{
	return context_ ? context_->name() : "";
}

bool device::has_atomics() const noexcept
{
	return context_ && context_->attr.atomic_cap != IBV_ATOMIC_NONE;
}

bool device::has_xrc() const noexcept
{
	return context_ && context_->attr.device_cap_flags & IBV_DEVICE_XRC;
}

bool device::has_windows() const noexcept
{
	return context_ && context_->has_windows();
}

result<connection> device::connect(const char *host, std::uint16_t port, const region &mine,
				   deadline until, const options &limits) noexcept
{
	if (!context_)
		return error::make(EBADF, "%s", detail::moved::device);
	auto made = detail::run_blocking(
		detail::dial_any({}, context_, host, port, mine, until, limits));

	if (!made)
		return made.failure();
	return connection(detail::as_path(std::move(made).value()));
}

result<connection> device::accept(std::uint16_t port, const region &mine, deadline until,
				  const options &limits) noexcept
{
	auto made = listen(port);

	if (!made)
		return made.failure();
	return made->accept(mine, until, limits);
}

result<listener> device::listen(std::uint16_t port) noexcept
{
	if (!context_)
		return error::make(EBADF, "%s", detail::moved::device);
	detail::kept<detail::listening> made(new (std::nothrow) detail::listening);

	if (!made)
		return error::make(ENOMEM, "there is no memory for a listener; close others");
	made->device = context_;
	made->events = detail::make_event_channel();
	if (!made->events || rdma_create_id(made->events, &made->id, nullptr, RDMA_PS_TCP)) {
		made->id = nullptr;
		return error::make(errno,
				   "the connection manager cannot be used: %s; load the module "
				   "rdma_ucm, and see who may open /dev/infiniband/rdma_cm",
				   strerrordesc_np(errno));
	}
	if (!detail::bind_any(made->id, port) || rdma_listen(made->id, detail::backlog))
		return error::make(errno, "port %u cannot be listened on: %s; choose another one",
				   port, strerrordesc_np(errno));
	return listener(std::move(made));
}

result<device> open(const char *name) noexcept
{
	int count = 0;
	ibv_device **list = ibv_get_device_list(&count);
	const std::unique_ptr<ibv_device *, void (*)(ibv_device **)> freed(
		list, [](ibv_device **all) {
			if (all)
				ibv_free_device_list(all);
		});
	error why = name ? error::make(ENODEV,
				       "there is no RDMA device %s; ibv_devices lists those "
				       "that there are",
				       name)
			 : error::make(ENODEV, "%s", detail::no_device);

	for (int i = 0; list && i < count; ++i) {
		const char *found = ibv_get_device_name(list[i]);

		if (name && std::strcmp(found, name))
			continue;
		detail::kept<detail::context> made(new (std::nothrow) detail::context);
		if (!made)
			return error::make(ENOMEM, "there is no memory for a device; close others");
		made->verbs = ibv_open_device(list[i]);
		if (!made->verbs) {
			why = error::make(errno,
					  "%s cannot be opened: %s; see who may open the files "
					  "in /dev/infiniband",
					  found, strerrordesc_np(errno));
			continue;
		}
		if (const int failed = ibv_query_device(made->verbs, &made->attr)) {
			why = error::make(failed,
					  "%s does not tell its limits: %s; see whether it "
					  "still exists",
					  found, strerrordesc_np(failed));
			continue;
		}
		if (!name && !detail::has_active_port(made->verbs, made->attr)) {
			why = error::make(ENETDOWN,
					  "no port of %s is up; set its link up, for example "
					  "by: ip link set eth0 up",
					  found);
			continue;
		}
		made->pd = ibv_alloc_pd(made->verbs);
		if (!made->pd) {
			why = error::make(errno,
					  "%s makes no protection domain: %s; close other "
					  "programs",
					  found, strerrordesc_np(errno));
			continue;
		}
		if (!detail::wants_verbs() && pealdv_open(made->verbs, &made->direct))
			made->direct = {};
		return device(std::move(made));
	}
	return why;
}

result<device> open_for(const char *host, deadline until) noexcept
{
	const detail::target to{host, 0};
	auto found = detail::run_blocking(detail::look_up({}, host, 0, until));
	error last = error::make(EHOSTUNREACH, "%s has no address; use an address", host);

	if (!found)
		return found.failure();
	const std::unique_ptr<rdma_event_channel, void (*)(rdma_event_channel *)> events(
		detail::make_event_channel(), [](rdma_event_channel *made) {
			if (made)
				rdma_destroy_event_channel(made);
		});
	/* Without a device librdmacm makes no channel. */
	if (!events && errno == ENODEV)
		return error::make(ENODEV, "%s", detail::no_device);
	for (const sockaddr_storage &address : *found) {
		rdma_cm_id *made = nullptr;

		if (!events || rdma_create_id(events.get(), &made, nullptr, RDMA_PS_TCP))
			return error::make(errno,
					   "the connection manager cannot be used: %s; load the "
					   "module rdma_ucm, and see who may open "
					   "/dev/infiniband/rdma_cm",
					   strerrordesc_np(errno));
		const std::unique_ptr<rdma_cm_id, int (*)(rdma_cm_id *)> id(made, rdma_destroy_id);
		if (status done = detail::run_blocking(
			    detail::resolve_address({}, made, address, to, until));
		    !done)
			last = error::make(done.code(), "%s", done.why());
		else if (made->verbs)
			return open(ibv_get_device_name(made->verbs->device));
		else
			last = error::make(
				ENODEV,
				"no RDMA device of this host reaches %s; make one on the "
				"netdev that ip route get shows",
				host);
	}
	return last;
}

/* ---- in an event loop ---- */

namespace co {

std::uint16_t listener::port() const noexcept
{
	return listening_ ? ntohs(rdma_get_src_port(listening_->id)) : 0;
}

task<result<connection>> listener::accept(region mine, deadline until, options limits) noexcept
{
	/* The listener may go or move while this waits. */
	const auto listening = listening_;
	const auto in = in_;

	if (!listening)
		co_return error::make(EBADF, "%s", detail::moved::listener);
	if (const char *why = in->refuses())
		co_return error::make(EBADF, "%s", why);
	auto made = co_await detail::next_peer(in, listening, mine, until, limits);
	if (!made)
		co_return made.failure();
	if (status done = (*made)->join(in); !done)
		co_return error::make(done.code(), "%s", done.why());
	co_return connection(std::move(made).value());
}

result<listener> loop::listen(device &of, std::uint16_t port) noexcept
{
	if (!state_)
		return error::make(EBADF, "%s", detail::moved::loop);
	auto made = of.listen(port);

	if (!made)
		return made.failure();
	return listener(std::move(made->listening_), state_);
}

task<result<connection>> loop::connect(device &of, const char *host, std::uint16_t port,
				       region mine, deadline until, options limits) noexcept
{
	const auto in = state_;
	const auto context = of.context_;

	if (!in)
		co_return error::make(EBADF, "%s", detail::moved::loop);
	if (!context)
		co_return error::make(EBADF, "%s", detail::moved::device);
	if (const char *why = in->refuses())
		co_return error::make(EBADF, "%s", why);
	auto made = co_await detail::dial_any(in, context, host, port, mine, until, limits);
	if (!made)
		co_return made.failure();
	if (status done = (*made)->join(in); !done)
		co_return error::make(done.code(), "%s", done.why());
	co_return connection(std::move(made).value());
}

} // namespace co
} // namespace peal
