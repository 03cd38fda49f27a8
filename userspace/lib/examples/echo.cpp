// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends each line of its input to a server, which sends it back. Start it without an argument, then
 * with the address of the server. The server sleeps in epoll, as a program with other descriptors
 * does, and ends with its client.
 */
#include <peal/peal.hpp>

#include <sys/epoll.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

using namespace std::chrono_literals;

constexpr std::uint16_t port = 7472;
constexpr std::size_t longest = 4096;

/* Sends the text and waits until the peer has it, so that the memory is free again. */
static peal::status send(peal::connection &c, peal::memory<char> &mem, std::string_view text)
{
	auto post = c.batch();
	post.send(mem.put(0, text));
	return post.commit(5s);
}

static int serve(peal::device &dev, peal::memory<char> &mem)
{
	auto c = dev.accept(port, {}, 60s);
	if (!c)
		return std::puts(c.why()), 1;
	const int epoll = epoll_create1(0);
	epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
	epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd(), &event);
	for (;;) {
		switch (c->arm()) {
		case peal::next_step::sleep:
			epoll_wait(epoll, &event, 1, -1);
			break;
		case peal::next_step::take:
			while (auto message = c->recv(0s))
				if (auto done = send(*c, mem, message->text()); !done)
					return std::puts(done.why()), 1;
			break;
		case peal::next_step::close:
			return 0;
		}
	}
}

static int talk(peal::device &dev, peal::memory<char> &mem, const char *host)
{
	auto c = dev.connect(host, port, {}, 5s);
	if (!c)
		return std::puts(c.why()), 1;
	for (std::string line; std::getline(std::cin, line);) {
		if (auto done = send(*c, mem, line); !done)
			return std::puts(done.why()), 1;
		auto answer = c->recv(5s);
		if (!answer)
			return std::puts(answer.why()), 1;
		std::cout << answer->text() << std::endl;
	}
	return 0;
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev)
		return std::puts(dev.why()), 1;
	auto mem = dev->alloc<char>(longest);
	if (!mem)
		return std::puts(mem.why()), 1;
	return argc > 1 ? talk(*dev, *mem, argv[1]) : serve(*dev, *mem);
}
