// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends and receives datagrams. Nothing here allocates once the queues are made.
 */
#include "datagrams.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cm.hpp"

namespace peal {

namespace detail {

namespace {

/* In front of each datagram that comes. */
constexpr std::uint32_t header = 40;
/* How often a wait polls before it reads the clock and sleeps. */
constexpr unsigned polls_before_sleep = 64;

constexpr std::size_t four = 20;

bool is_right(const std::byte *header_of_four) noexcept
{
	std::uint32_t sum = 0;

	for (std::size_t i = 0; i < header - four; i += 2)
		sum += std::to_integer<std::uint32_t>(header_of_four[i]) << 8 |
		       std::to_integer<std::uint32_t>(header_of_four[i + 1]);
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

/*
 * The sender's address. A header of IPv4 is in the second half of its place, and the first half is
 * not defined. In a group of IPv4 its first byte tells. Elsewhere that byte may be one of an
 * address of IPv6, so the checksum must be right, too.
 */
gid sender_of(const std::byte *at, int family) noexcept
{
	constexpr std::byte version_and_length{0x45};
	constexpr std::size_t in_six = 8, in_four = four + 12;
	gid sender{};

	if (family == AF_INET6 || at[four] != version_and_length ||
	    (family == AF_UNSPEC && !is_right(at + four))) {
		std::memcpy(sender.data(), at + in_six, sizeof(sender));
		return sender;
	}
	sender[10] = sender[11] = std::byte{0xff};
	std::memcpy(sender.data() + 12, at + in_four, 4);
	return sender;
}

} // namespace

void keep(datagrams *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(datagrams *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

datagrams::~datagrams()
{
	stop();
	if (send_cq)
		ibv_destroy_cq(send_cq);
	if (recv_cq)
		ibv_destroy_cq(recv_cq);
	if (channel)
		ibv_destroy_comp_channel(channel);
	if (epoll >= 0)
		::close(epoll);
}

void datagrams::stop() noexcept
{
	if (qp)
		ibv_destroy_qp(qp);
	qp = nullptr;
}

std::uint32_t datagrams::place_size() const noexcept
{
	return header + longest;
}

std::byte *datagrams::place(std::uint32_t i) const noexcept
{
	return buffers->data + std::size_t{i} * place_size();
}

status datagrams::make_queues(std::uint32_t count, bool with_epoll) noexcept
{
	ibv_qp_init_attr want{};

	if (!count || count > static_cast<std::uint32_t>(device->attr.max_qp_wr) ||
	    count > static_cast<std::uint32_t>(device->attr.max_cqe))
		return error::make(EINVAL,
				   "%s has queues of at most %d requests, and datagrams need at "
				   "least one; choose another number of receives",
				   device->name(),
				   std::min(device->attr.max_qp_wr, device->attr.max_cqe));
	auto made = make_block(device.get(), count + 1, place_size(), rights::none);
	if (!made)
		return made.failure();
	buffers = std::move(made).value();
	receives = count;
	channel = ibv_create_comp_channel(device->verbs);
	if (channel) {
		send_cq = ibv_create_cq(device->verbs, 1, nullptr, channel, 0);
		recv_cq = ibv_create_cq(device->verbs, count, nullptr, channel, 0);
	}
	if (with_epoll)
		epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!channel || !send_cq || !recv_cq || !make_nonblocking(channel->fd) ||
	    (with_epoll &&
	     (epoll < 0 || !watch(epoll, channel->fd) || (watched >= 0 && !watch(epoll, watched)))))
		return error::make(errno,
				   "%s makes no completion queue: %s; leave other groups, or close "
				   "connections",
				   device->name(), strerrordesc_np(errno));
	want.send_cq = send_cq;
	want.recv_cq = recv_cq;
	want.qp_type = IBV_QPT_UD;
	want.cap.max_send_wr = 1;
	want.cap.max_recv_wr = count;
	want.cap.max_send_sge = 1;
	want.cap.max_recv_sge = 1;
	qp = ibv_create_qp(device->pd, &want);
	if (!qp)
		return error::make(errno,
				   "%s makes no queue pair for datagrams: %s; leave other groups, "
				   "or close connections",
				   device->name(), strerrordesc_np(errno));
	return {};
}

status datagrams::start(std::uint8_t port, std::uint32_t qkey) noexcept
{
	ibv_qp_attr attr{};
	int failed;

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = port;
	attr.qkey = qkey;
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
	if (failed)
		return error::make(failed,
				   "the queue pair of %s does not get ready for datagrams: %s; "
				   "see whether its port is up",
				   device->name(), strerrordesc_np(failed));
	return {};
}

void datagrams::post_receive(std::uint32_t at) noexcept
{
	ibv_sge entry{};
	ibv_recv_wr receive{}, *bad;

	if (!qp || ended)
		return;
	entry.addr = reinterpret_cast<std::uintptr_t>(place(at));
	entry.length = place_size();
	entry.lkey = static_cast<std::uint32_t>(buffers->local);
	receive.wr_id = at;
	receive.sg_list = &entry;
	receive.num_sge = 1;
	if (ibv_post_recv(qp, &receive, &bad))
		ended = "the device takes no receive; see whether it still exists, and begin "
			"again";
}

bool datagrams::take(ibv_cq *from, ibv_wc &came) noexcept
{
	const int got = ibv_poll_cq(from, 1, &came);
	if (got > 0 && !came.status)
		return true;
	if (got > 0)
		ended = "the device sends and receives no more datagrams; see whether it still "
			"exists, and begin again";
	else if (got < 0)
		ended = "the device gives no completions; see whether it still exists, and begin "
			"again";
	return false;
}

bool datagrams::take_received(received &to) noexcept
{
	ibv_wc came;

	if (found_) {
		to = *found_;
		found_.reset();
		return true;
	}
	if (!take(recv_cq, came))
		return false;
	to = {.place = static_cast<std::uint32_t>(came.wr_id),
	      .bytes = came.byte_len - header,
	      .has_header = (came.wc_flags & IBV_WC_GRH) != 0,
	      .from_qp = came.src_qp};
	return true;
}

bool datagrams::take_sent() noexcept
{
	ibv_wc done;

	if (!take(send_cq, done))
		return false;
	is_sending = false;
	return true;
}

void datagrams::drain_channel() noexcept
{
	ibv_cq *of;
	void *unused;

	while (!ibv_get_cq_event(channel, &of, &unused))
		ibv_ack_cq_events(of, 1);
	if (errno != EAGAIN && errno != EINTR)
		ended = "the device was removed; open another one";
}

template <class Take>
status datagrams::wait(ibv_cq *from, const deadline &until, const char *late,
		       Take take_one) noexcept
{
	bool is_armed = false;

	for (unsigned polls = 0;; ++polls) {
		if (take_one())
			return {};
		if (!ended && polls < polls_before_sleep && !until.is_immediate())
			continue;
		if (!ended && until.passed())
			look();
		if (ended)
			return error::make(ENODEV, "%s", ended);
		if (until.passed())
			return error::make(ETIMEDOUT, "%s", late);
		if (is_armed) {
			pollfd ready[2] = {{channel->fd, POLLIN, 0}, {watched, POLLIN, 0}};

			if (poll(ready, 2, until.milliseconds_left()) > 0 && ready[1].revents)
				look();
		}
		drain_channel();
		/* What came before the queue was armed raises no event, so it is polled again. */
		ibv_req_notify_cq(from, 0);
		is_armed = true;
	}
}

status datagrams::wait_received(received &to, const deadline &until) noexcept
{
	return wait(recv_cq, until,
		    "no datagram has come in time; wait longer, or see whether a peer sends",
		    [&] { return take_received(to); });
}

status datagrams::wait_sent(const deadline &until) noexcept
{
	return wait(send_cq, until, "the device has not sent it in time; wait longer",
		    [&] { return take_sent(); });
}

next_step datagrams::arm() noexcept
{
	received came;

	drain_channel();
	ibv_req_notify_cq(recv_cq, 0);
	look();
	/* What came before the queue was armed raises no event. */
	if (take_received(came))
		found_ = came;
	if (found_)
		return next_step::take;
	return ended ? next_step::close : next_step::sleep;
}

status datagrams::send(const destination &to, std::span<const std::byte> bytes,
		       const deadline &until) noexcept
{
	status done;

	/* One that was not sent in time still uses the bytes. */
	if (is_sending && bytes.size() <= longest)
		done = wait_sent(until);
	if (done)
		done = post(to, bytes);
	if (done)
		done = wait_sent(until);
	return done;
}

status datagrams::post(const destination &to, std::span<const std::byte> bytes) noexcept
{
	ibv_sge entry{};
	ibv_send_wr request{}, *bad;

	if (bytes.size() > longest)
		return error::make(EMSGSIZE,
				   "a datagram has at most %u bytes here, and these are %zu; send "
				   "them in parts",
				   longest, bytes.size());
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
	request.wr.ud.ah = to.ah;
	request.wr.ud.remote_qpn = to.qp_number;
	request.wr.ud.remote_qkey = to.qkey;
	if (const int failed = ibv_post_send(qp, &request, &bad))
		return error::make(failed, "%s does not send: %s; begin again", device->name(),
				   strerrordesc_np(failed));
	is_sending = true;
	return {};
}

result<datagram> datagrams::recv(const deadline &until, std::uint32_t *from_qp) noexcept
{
	received one;

	if (status found = wait_received(one, until); !found)
		return error::make(found.code(), "%s", found.why());
	if (from_qp)
		*from_qp = one.from_qp;
	return made_datagram(one);
}

datagram datagrams::made_datagram(const received &one) noexcept
{
	keep(this);
	datagram made{kept<datagrams>(this)};

	made.buffer_ = one.place;
	made.bytes_ = {place(one.place) + header, one.bytes};
	if (one.has_header)
		made.from_ = sender_of(place(one.place), family);
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

} // namespace peal
