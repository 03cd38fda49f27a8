// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Publish and subscribe over a multicast group. Each line of the publisher's input goes to all
 * subscribers as one datagram. A datagram may be lost, so each has a number, and a subscriber says
 * how many it has missed.
 *
 *	./publish GROUP                      publishes its input
 *	./publish GROUP COUNT                subscribes until the line with this number has come
 *
 * GROUP is for example 239.1.2.3. All hosts have the same byte order.
 */
#include <peal/peal.hpp>

#include <arpa/inet.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

using namespace std::chrono_literals;

struct news {
	std::uint64_t number; /* from 1 on */
	char text[120];	      /* with a zero at the end */
};

static peal::status publish(peal::group &group)
{
	std::string line;

	for (std::uint64_t number = 1; std::getline(std::cin, line); ++number) {
		news one{number, {}};
		line.copy(one.text, sizeof(one.text) - 1);
		if (auto sent = group.send(std::as_bytes(std::span(&one, 1)), 5s); !sent)
			return sent;
	}
	return {};
}

static peal::status subscribe(peal::group &group, std::uint64_t count)
{
	std::uint64_t last = 0, missed = 0;

	std::puts("joined");
	std::fflush(stdout);
	while (last < count) {
		auto datagram = group.recv(60s);
		if (!datagram)
			return datagram.failure();
		auto one = datagram->as<news>();
		/* Anybody may send to the group, and a datagram may come late or twice. */
		if (!one || one->text[sizeof(one->text) - 1] || one->number <= last)
			continue;
		missed += one->number - last - 1;
		last = one->number;
		char from[INET6_ADDRSTRLEN];
		inet_ntop(AF_INET6, datagram->from().data(), from, sizeof(from));
		std::printf("%llu %s from %s\n", static_cast<unsigned long long>(last), one->text,
			    from);
	}
	std::printf("missed %llu\n", static_cast<unsigned long long>(missed));
	return {};
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev || argc < 2)
		return std::puts(dev ? "publish GROUP [COUNT]" : dev.why()), 1;
	auto group = dev->join(argv[1], 10s);
	if (!group)
		return std::puts(group.why()), 1;
	auto done = argc == 2 ? publish(*group) : subscribe(*group, std::atoll(argv[2]));
	return done ? 0 : (std::puts(done.why()), 1);
}
