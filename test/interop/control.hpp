// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The two ends of verify talk over TCP, one line each way.
 *
 * Owns: the connection. Does not know: the meaning of the lines.
 */
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace verify {

class Control {
public:
	static Control listen(const std::string &port)
	{
		Control listener(socket(AF_INET6, SOCK_STREAM, 0));
		const int on = 1, off = 0;
		sockaddr_in6 here{};

		here.sin6_family = AF_INET6;
		here.sin6_port = htons(static_cast<std::uint16_t>(std::stoul(port)));
		setsockopt(listener.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		setsockopt(listener.fd_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
		if (bind(listener.fd_, reinterpret_cast<sockaddr *>(&here), sizeof(here)) ||
		    ::listen(listener.fd_, 1))
			throw std::runtime_error("cannot listen on port " + port);
		return Control(accept(listener.fd_, nullptr, nullptr));
	}
	static Control connect(const std::string &host, const std::string &port)
	{
		addrinfo hints{}, *found = nullptr;

		hints.ai_socktype = SOCK_STREAM;
		if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found))
			throw std::runtime_error("no such host: " + host);
		const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
		Control control(socket(list->ai_family, list->ai_socktype, 0));
		if (::connect(control.fd_, list->ai_addr, list->ai_addrlen))
			throw std::runtime_error("nobody answers at " + host);
		return control;
	}
	Control(Control &&other) noexcept
		: fd_(std::exchange(other.fd_, -1)), rest_(std::move(other.rest_))
	{
	}
	~Control()
	{
		if (fd_ >= 0)
			close(fd_);
	}

	void send(const std::string &line)
	{
		const std::string text = line + "\n";

		if (::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) !=
		    static_cast<ssize_t>(text.size()))
			throw std::runtime_error("the other end is gone");
	}
	/* Return: false when the other end has left. */
	bool receive(std::string &line)
	{
		std::size_t end;
		char buffer[4096];

		while ((end = rest_.find('\n')) == std::string::npos) {
			const auto got = recv(fd_, buffer, sizeof(buffer), 0);
			if (got <= 0)
				return false;
			rest_.append(buffer, static_cast<std::size_t>(got));
		}
		line = rest_.substr(0, end);
		rest_.erase(0, end + 1);
		return true;
	}

private:
	explicit Control(int fd) : fd_(fd)
	{
		const int on = 1;

		if (fd < 0)
			throw std::runtime_error(std::string("socket: ") + std::strerror(errno));
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	int fd_;
	std::string rest_;
};

/* No further request makes sense. */
struct Lost : std::runtime_error {
	using std::runtime_error::runtime_error;
};

} // namespace verify
