// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Lesson: read. The server has a table in its memory, and waits until its client goes. The client
 * reads the places that it asks for. No program of the server takes part in that.
 *
 *	./lesson_read
 *	./lesson_read ADDRESS PLACE...
 */
#include <peal/peal.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

using namespace std::chrono_literals;

constexpr std::uint16_t port = 7480;

struct entry {
	char word[24]; /* with a zero at the end */
};

static int serve(peal::device &dev)
{
	constexpr entry words[] = {{"zero"}, {"one"}, {"two"}, {"three"}};
	auto table = dev.alloc<entry>(std::size(words), peal::remote_read).value();
	table.put(0, words);
	auto c = dev.accept(port, table.share(), 60s);
	if (!c)
		return std::puts(c.why()), 1;
	/* No message comes. What ends the wait is that the client has gone. */
	auto gone = c->recv(60s);
	return gone.code() == ENOTCONN ? 0 : (std::puts(gone.why()), 1);
}

static int call(peal::device &dev, const char *host, int count, char **places)
{
	auto mem = dev.alloc<entry>(count).value();
	auto c = dev.connect(host, port, {}, 5s);
	if (!c)
		return std::puts(c.why()), 1;
	auto post = c->batch();
	/* All reads are on their way together, and one wait gets them. */
	for (int i = 0; i < count; ++i) {
		const std::size_t place = std::atoi(places[i]);
		post.read(mem.part(i, 1), c->peer().at(place * sizeof(entry)));
	}
	if (auto done = post.commit(5s); !done)
		return std::puts(done.why()), 1;
	for (const entry &one : mem)
		std::printf("%.*s\n", static_cast<int>(sizeof(entry)), one.word);
	return 0;
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev)
		return std::puts(dev.why()), 1;
	return argc > 2 ? call(*dev, argv[1], argc - 2, argv + 2) : serve(*dev);
}
