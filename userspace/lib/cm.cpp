// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Names and events, each with a deadline.
 */
#include <fcntl.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "cm.hpp"

namespace peal::detail {

/*
 * What getaddrinfo() has found. The thread that runs it may outlive the call that asked. It is not
 * in the anonymous namespace, because gcc warns if a file that includes this one keeps it in a
 * coroutine.
 */
struct look_up_job {
	/* Readable from the end on. */
	const int at_end = eventfd(0, EFD_CLOEXEC);
	std::string host;
	char port[8];
	std::atomic<bool> finished{false};
	/* These are the thread's until it has finished. */
	int failed = 0;
	std::vector<sockaddr_storage> found;

	~look_up_job()
	{
		if (at_end >= 0)
			close(at_end);
	}
	void finish() noexcept
	{
		finished.store(true, std::memory_order_release);
		eventfd_write(at_end, 1);
	}
};

namespace {

int resolve(const char *host, const char *port, int flags, std::vector<sockaddr_storage> &found)
{
	addrinfo hints{}, *first = nullptr;

	hints.ai_flags = flags;
	hints.ai_socktype = SOCK_STREAM;
	const int failed = getaddrinfo(host, port, &hints, &first);
	if (failed)
		return failed;
	const std::unique_ptr<addrinfo, void (*)(addrinfo *)> list(first, freeaddrinfo);
	for (const addrinfo *one = first; one; one = one->ai_next) {
		sockaddr_storage to{};

		std::memcpy(&to, one->ai_addr, std::min<std::size_t>(one->ai_addrlen, sizeof(to)));
		found.push_back(to);
	}
	return 0;
}

void run(const std::shared_ptr<look_up_job> &job)
{
	try {
		job->failed = resolve(job->host.c_str(), job->port, 0, job->found);
	} catch (...) {
		job->failed = EAI_MEMORY;
	}
	job->finish();
}

/* getaddrinfo() has no deadline, so another thread runs it, and perhaps in vain. */
std::shared_ptr<look_up_job> begin_look_up(const char *host, std::uint16_t port)
{
	auto job = std::make_shared<look_up_job>();

	if (job->at_end < 0)
		return nullptr;
	std::snprintf(job->port, sizeof(job->port), "%u", port);
	/* An address needs no name server, and no thread. */
	if (!resolve(host, job->port, AI_NUMERICHOST | AI_NUMERICSERV, job->found)) {
		job->finish();
		return job;
	}
	job->host = host;
	std::thread([job] { run(job); }).detach();
	return job;
}

} // namespace

bool make_nonblocking(int fd) noexcept
{
	const int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

bool watch(int epoll, int fd) noexcept
{
	epoll_event event{};

	event.events = EPOLLIN;
	return !epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

rdma_event_channel *make_event_channel() noexcept
{
	rdma_event_channel *made = rdma_create_event_channel();

	if (made && !make_nonblocking(made->fd)) {
		rdma_destroy_event_channel(made);
		return nullptr;
	}
	return made;
}

co::task<result<cm_event>> next_event(const kept<event_loop> &in, rdma_event_channel *channel,
				      deadline until) noexcept
{
	for (;;) {
		rdma_cm_event *event;

		if (!rdma_get_cm_event(channel, &event)) {
			cm_event copy{};

			copy.type = event->event;
			copy.status = event->status;
			copy.id = event->id;
			copy.private_data_len = event->param.conn.private_data
							? event->param.conn.private_data_len
							: 0;
			if (copy.private_data_len)
				std::memcpy(copy.private_data, event->param.conn.private_data,
					    copy.private_data_len);
			copy.initiator_depth = event->param.conn.initiator_depth;
			copy.responder_resources = event->param.conn.responder_resources;
			if (copy.type == RDMA_CM_EVENT_MULTICAST_JOIN)
				copy.group = {nullptr, 0, event->param.ud.ah_attr,
					      event->param.ud.qp_num, event->param.ud.qkey};
			rdma_ack_cm_event(event);
			co_return copy;
		}
		if (errno != EAGAIN && errno != EINTR)
			co_return error::make(errno,
					      "the connection manager gives no events: %s; see "
					      "whether the module rdma_ucm is loaded",
					      strerrordesc_np(errno));
		if (until.passed())
			co_return error::make(ETIMEDOUT,
					      "no answer in time; see whether the peer runs, or "
					      "wait longer");
		const status came = co_await co::readable(in, channel->fd, until);
		if (!came && came.code() != ETIMEDOUT)
			co_return error::make(came.code(), "%s", came.why());
	}
}

co::task<result<std::vector<sockaddr_storage>>> look_up(const kept<event_loop> &in,
							const char *host, std::uint16_t port,
							deadline until) noexcept
{
	std::shared_ptr<look_up_job> job;

	try {
		job = begin_look_up(host, port);
	} catch (...) {
	}
	if (!job)
		co_return error::make(
			ENOMEM,
			"there is no memory, thread or descriptor to look up %s; use an address",
			host);
	const status came = co_await co::readable(in, job->at_end, until);
	if (!job->finished.load(std::memory_order_acquire))
		co_return error::make(came ? ETIMEDOUT : came.code(),
				      "the name %s was not found in time; see whether the "
				      "name server answers, or use an address",
				      host);
	if (job->failed)
		co_return error::make(EHOSTUNREACH,
				      "the name %s is not known (%s); see whether it is "
				      "spelled right, or use an address",
				      host, gai_strerror(job->failed));
	co_return std::move(job->found);
}

} // namespace peal::detail
