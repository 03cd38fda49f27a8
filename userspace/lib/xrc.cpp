// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Opens XRC domains, and receives in inboxes.
 */
#include "peal/xrc.hpp"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <new>

#include "cm.hpp"
#include "link.hpp"
#include "moved.hpp"
#include "peal/device.hpp"

namespace peal {

namespace {

constexpr unsigned number_bits = 24;

struct inbox_on_wire {
	region_on_wire shared;
	std::uint32_t number;
	std::uint32_t reserved;
};
static_assert(sizeof(inbox_on_wire) == inbox_address::byte_count, "it has no holes");

} // namespace

namespace detail {

struct inbox_state {
	std::atomic<unsigned> users{1};
	kept<context> device;
	kept<domain_state> domain;
	kept<receive_pool> pool;
	ibv_comp_channel *channel = nullptr;
	ibv_cq *cq = nullptr;
	int epoll = -1;
	std::uint32_t number = 0;
	region shared;
	/* Why nothing more will come. */
	const char *ended = nullptr;

	inbox_state() = default;
	inbox_state(const inbox_state &) = delete;
	~inbox_state()
	{
		/* The queue of receives completes in the other one. */
		pool = {};
		if (cq)
			ibv_destroy_cq(cq);
		if (channel)
			ibv_destroy_comp_channel(channel);
		if (epoll >= 0)
			::close(epoll);
	}

	status make(std::uint16_t count, std::uint32_t bytes) noexcept;
	void post(std::uint32_t buffer) noexcept;
	result<inbox_message> recv(const deadline &) noexcept;
	next_step arm() noexcept;

private:
	/* What arm() has found, for the next recv(). */
	std::optional<ibv_wc> found_;

	bool take(ibv_wc &) noexcept;
	void drain_channel() noexcept;
};

void keep(domain_state *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(domain_state *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

void keep(inbox_state *of) noexcept
{
	of->users.fetch_add(1, std::memory_order_relaxed);
}

void release(inbox_state *of) noexcept
{
	if (of->users.fetch_sub(1, std::memory_order_acq_rel) == 1)
		delete of;
}

status inbox_state::make(std::uint16_t count, std::uint32_t bytes) noexcept
{
	channel = ibv_create_comp_channel(device->verbs);
	if (channel)
		cq = ibv_create_cq(device->verbs, count ? count : 1, nullptr, channel, 0);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!channel || !cq || epoll < 0 || !make_nonblocking(channel->fd) ||
	    !watch(epoll, channel->fd))
		return error::make(errno,
				   "%s makes no completion queue: %s; close connections, or lower "
				   "the number of receives",
				   device->name(), strerrordesc_np(errno));
	pool = kept<receive_pool>(new (std::nothrow) receive_pool);
	if (!pool)
		return error::make(ENOMEM, "there is no memory for a receive queue; close others");
	pool->device = device;
	if (status done = pool->make(count, bytes, domain->xrcd, cq); !done)
		return done;
	if (const int failed = ibv_get_srq_num(pool->srq, &number))
		return error::make(failed,
				   "%s does not tell the number of a receive queue: %s; see "
				   "whether it still exists",
				   device->name(), strerrordesc_np(failed));
	return {};
}

void inbox_state::post(std::uint32_t buffer) noexcept
{
	if (pool->post(buffer))
		ended = "the device takes no receive; see whether it still exists, and begin again";
}

/* A message that failed was its peer's mistake, or the peer has gone in the middle of it. */
bool inbox_state::take(ibv_wc &came) noexcept
{
	if (found_) {
		came = *found_;
		found_.reset();
		return true;
	}
	int got;
	while ((got = ibv_poll_cq(cq, 1, &came)) > 0) {
		if (!came.status)
			return true;
		post(static_cast<std::uint32_t>(came.wr_id));
	}
	if (got < 0)
		ended = "the device gives no completions; see whether it still exists, and begin "
			"again";
	return false;
}

void inbox_state::drain_channel() noexcept
{
	ibv_cq *of;
	void *unused;

	while (!ibv_get_cq_event(channel, &of, &unused))
		ibv_ack_cq_events(of, 1);
	if (errno != EAGAIN && errno != EINTR)
		ended = "the device was removed; open another one";
}

result<inbox_message> inbox_state::recv(const deadline &until) noexcept
{
	constexpr unsigned polls_before_sleep = 64;
	bool is_armed = false;
	ibv_wc came;

	for (unsigned polls = 0; !take(came); ++polls) {
		if (ended)
			return error::make(ENODEV, "%s", ended);
		if (polls < polls_before_sleep && !until.is_immediate())
			continue;
		if (until.passed())
			return error::make(ETIMEDOUT,
					   "no message has come in time; wait longer, or "
					   "see whether a peer sends");
		if (is_armed) {
			pollfd ready = {channel->fd, POLLIN, 0};

			poll(&ready, 1, until.milliseconds_left());
		}
		drain_channel();
		/* What came before the queue was armed raises no event, so it is polled again. */
		ibv_req_notify_cq(cq, 0);
		is_armed = true;
	}
	keep(this);
	inbox_message made{kept<inbox_state>(this)};
	made.buffer_ = static_cast<std::uint32_t>(came.wr_id);
	if (came.wc_flags & IBV_WC_WITH_IMM)
		made.imm_ = be32toh(came.imm_data);
	if (came.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		made.written_ = came.byte_len;
	else
		made.bytes_ = {pool->buffers->data + std::size_t{made.buffer_} * pool->bytes,
			       came.byte_len};
	return made;
}

next_step inbox_state::arm() noexcept
{
	ibv_wc came;

	drain_channel();
	ibv_req_notify_cq(cq, 0);
	/* What came before the queue was armed raises no event. */
	if (take(came))
		found_ = came;
	if (found_)
		return next_step::take;
	return ended ? next_step::close : next_step::sleep;
}

} // namespace detail

/* ---- the public objects ---- */

std::array<std::byte, inbox_address::byte_count> inbox_address::bytes() const noexcept
{
	const inbox_on_wire wire = {
		.shared = region_on_wire::pack(
			shared_, {.receive_bytes = receive_bytes_, .transport = transport::xrc}),
		.number = htobe32(number_),
		.reserved = 0};
	std::array<std::byte, byte_count> made;

	std::memcpy(made.data(), &wire, sizeof(wire));
	return made;
}

std::optional<inbox_address> inbox_address::from(std::span<const std::byte> bytes) noexcept
{
	inbox_on_wire wire;
	inbox_address made;

	if (bytes.size() != sizeof(wire))
		return std::nullopt;
	std::memcpy(&wire, bytes.data(), sizeof(wire));
	made.number_ = be32toh(wire.number);
	if (!wire.shared.is_peal() || wire.shared.version != region_on_wire::current_version ||
	    wire.shared.transport != static_cast<std::uint8_t>(transport::xrc) || !made.number_ ||
	    made.number_ >> number_bits || wire.reserved)
		return std::nullopt;
	made.shared_ = wire.shared.unpack();
	made.receive_bytes_ = be32toh(wire.shared.receive_bytes);
	return made;
}

inbox_message &inbox_message::operator=(inbox_message &&other) noexcept
{
	if (this != &other) {
		this->~inbox_message();
		new (this) inbox_message(std::move(other));
	}
	return *this;
}

inbox_message::~inbox_message()
{
	if (of_)
		of_->post(buffer_);
}

inbox_address inbox::address() const noexcept
{
	inbox_address made;

	if (of_) {
		made.shared_ = of_->shared;
		made.receive_bytes_ = of_->pool->bytes;
		made.number_ = of_->number;
	}
	return made;
}

result<inbox_message> inbox::recv(deadline until) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved::inbox_or_domain);
	return of_->recv(until);
}

int inbox::fd() const noexcept
{
	return of_ ? of_->epoll : -1;
}

next_step inbox::arm() noexcept
{
	return of_ ? of_->arm() : next_step::close;
}

result<inbox> xrc_domain::inbox(const region &mine, std::uint16_t count,
				std::uint32_t bytes) noexcept
{
	if (!of_)
		return error::make(EBADF, "%s", detail::moved::inbox_or_domain);
	detail::kept<detail::inbox_state> made(new (std::nothrow) detail::inbox_state);
	if (!made)
		return error::make(ENOMEM, "there is no memory for an inbox; close others");
	made->device = of_->device;
	made->domain = of_;
	made->shared = mine;
	if (status done = made->make(count, bytes); !done)
		return error::make(done.code(), "%s", done.why());
	return peal::inbox(std::move(made));
}

result<xrc_domain> device::xrc_domain(const char *path) noexcept
{
	constexpr int everybody = 0666; /* with the umask of the process */
	ibv_xrcd_init_attr want{};

	if (!context_)
		return error::make(EBADF, "%s", detail::moved::device);
	detail::kept<detail::domain_state> made(new (std::nothrow) detail::domain_state);
	if (!made)
		return error::make(ENOMEM, "there is no memory for a domain; close others");
	made->device = context_;
	made->file = ::open(path, O_RDONLY | O_CREAT | O_CLOEXEC, everybody);
	if (made->file < 0)
		return error::make(errno,
				   "the file %s, by which processes know the domain, cannot be "
				   "opened: %s; choose another one",
				   path, strerrordesc_np(errno));
	want.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	want.fd = made->file;
	want.oflags = O_CREAT;
	if (context_->attr.device_cap_flags & IBV_DEVICE_XRC)
		made->xrcd = ibv_open_xrcd(context_->verbs, &want);
	else
		errno = ENOTSUP;
	if (!made->xrcd)
		return error::make(errno,
				   "%s opens no XRC domain: %s; see what ibv_devinfo -v says about "
				   "XRC",
				   context_->name(), strerrordesc_np(errno));
	return peal::xrc_domain(std::move(made));
}

} // namespace peal
