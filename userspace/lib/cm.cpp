// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Names and events, each with a deadline.
 */
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cm.hpp"

namespace peal::detail {

namespace {

/* What getaddrinfo() has found. The thread that runs it may outlive the call that asked. */
struct look_up_job {
	std::mutex lock;
	std::condition_variable done;
	std::string host;
	char port[8];
	bool finished = false;
	int failed = 0;
	std::vector<sockaddr_storage> found;
};

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
	std::vector<sockaddr_storage> found;
	int failed;

	try {
		failed = resolve(job->host.c_str(), job->port, 0, found);
	} catch (...) {
		failed = EAI_MEMORY;
	}
	const std::lock_guard guard(job->lock);
	job->found = std::move(found);
	job->failed = failed;
	job->finished = true;
	job->done.notify_all();
}

result<std::vector<sockaddr_storage>> ask(const char *host, const char *port, const deadline &until)
{
	auto job = std::make_shared<look_up_job>();

	/* An address needs no name server, and no thread. */
	if (!resolve(host, port, AI_NUMERICHOST | AI_NUMERICSERV, job->found))
		return std::move(job->found);
	job->host = host;
	std::snprintf(job->port, sizeof(job->port), "%s", port);
	/* getaddrinfo() has no deadline, so another thread runs it, and perhaps in vain. */
	std::thread([job] { run(job); }).detach();
	std::unique_lock guard(job->lock);
	while (!job->finished && !until.passed())
		job->done.wait_for(guard, std::chrono::milliseconds(until.milliseconds_left()));
	if (!job->finished)
		return error::make(ETIMEDOUT,
				   "the name %s was not found in time; see whether the "
				   "name server answers, or use an address",
				   host);
	if (job->failed)
		return error::make(EHOSTUNREACH,
				   "the name %s is not known (%s); see whether it is "
				   "spelled right, or use an address",
				   host, gai_strerror(job->failed));
	return std::move(job->found);
}

} // namespace

bool make_nonblocking(int fd) noexcept
{
	const int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !fcntl(fd, F_SETFL, flags | O_NONBLOCK);
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

result<cm_event> next_event(rdma_event_channel *channel, const deadline &until) noexcept
{
	for (;;) {
		pollfd ready = {channel->fd, POLLIN, 0};
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
			rdma_ack_cm_event(event);
			return copy;
		}
		if (errno != EAGAIN && errno != EINTR)
			return error::make(errno,
					   "the connection manager gives no events: %s; see "
					   "whether the module rdma_ucm is loaded",
					   strerrordesc_np(errno));
		if (until.passed())
			return error::make(ETIMEDOUT,
					   "no answer in time; see whether the peer runs, or "
					   "wait longer");
		poll(&ready, 1, until.milliseconds_left());
	}
}

result<std::vector<sockaddr_storage>> look_up(const char *host, std::uint16_t port,
					      const deadline &until) noexcept
{
	char service[8];

	std::snprintf(service, sizeof(service), "%u", port);
	try {
		return ask(host, service, until);
	} catch (...) {
		return error::make(
			ENOMEM, "there is no memory or thread to look up %s; use an address", host);
	}
}

} // namespace peal::detail
