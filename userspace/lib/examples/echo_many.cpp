// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An echo server for many clients, in one thread: each client has a coroutine. Start it without an
 * argument, then with the address of the server and how many clients there are:
 *
 *	./echo_many
 *	./echo_many ADDRESS CLIENTS MESSAGES
 *
 * All clients are connected before the first one sends. Each checks the answers to its messages. A
 * connection needs two descriptors, so 1,000 clients need "ulimit -n 4096".
 */
#include <peal/co.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace std::chrono_literals;
using peal::co::task;

constexpr std::uint16_t port = 7473;
/* Small queues, because memory for all of them is registered. */
constexpr peal::options small = {.sends = 2, .receives = 2, .receive_bytes = 64};

/* ---- the server ---- */

struct server {
	peal::co::loop &loop;
	peal::device &dev;
	peal::co::listener port;
	unsigned served = 0;
};

/* Sends back what one client sends, until the client closes. */
static task<> echo(server &all, peal::co::connection client)
{
	auto mem = all.dev.alloc<char>(small.receive_bytes);
	if (!mem)
		co_return (void) std::puts(mem.why());
	while (auto message = co_await client.recv(600s)) {
		auto text = mem->put(0, message->text());
		if (auto sent = co_await client.send(text, 5s); !sent)
			co_return (void) std::puts(sent.why());
	}
	++all.served;
}

/* Several of these run, so that a client that connects slowly does not delay the others. */
static task<> accept(server &all)
{
	while (auto client = co_await all.port.accept({}, 10s, small))
		if (auto started = all.loop.spawn(echo(all, std::move(*client))); !started)
			std::puts(started.why());
}

static int serve(peal::co::loop &loop, peal::device &dev)
{
	auto listener = loop.listen(dev, port);
	if (!listener)
		return std::puts(listener.why()), 1;
	server all{loop, dev, std::move(*listener)};
	for (int i = 0; i < 4; ++i)
		if (auto started = loop.spawn(accept(all)); !started)
			return std::puts(started.why()), 1;
	/* It ends when no client has come for ten seconds, and all have gone. */
	auto done = loop.run(peal::deadline::never());
	std::printf("served %u clients\n", all.served);
	return done ? 0 : (std::puts(done.why()), 1);
}

/* ---- the clients ---- */

struct clients {
	peal::co::loop &loop;
	peal::device &dev;
	const char *host;
	unsigned count, messages;
	unsigned good = 0;
};

static task<> talk(clients &all, unsigned number, peal::co::connection server)
{
	char text[32];

	for (unsigned i = 0; i < all.messages; ++i) {
		const int size = std::snprintf(text, sizeof(text), "%u of %u", i, number);
		auto bytes = std::as_bytes(std::span(text, size));
		if (auto sent = co_await server.send_inline(bytes, 60s); !sent)
			co_return (void) std::puts(sent.why());
		auto answer = co_await server.recv(60s);
		if (!answer)
			co_return (void) std::puts(answer.why());
		if (answer->text() != text)
			co_return (void) std::printf("expected '%s'\n", text);
	}
	++all.good;
}

/* One after another, because a listener lets only some wait. Then all of them talk at once. */
static task<> connect(clients &all)
{
	std::vector<peal::co::connection> connected;

	while (connected.size() < all.count) {
		auto server = co_await all.loop.connect(all.dev, all.host, port, {}, 10s, small);
		if (!server)
			co_return (void) std::puts(server.why());
		connected.push_back(std::move(*server));
	}
	for (unsigned i = 0; i < all.count; ++i)
		if (auto started = all.loop.spawn(talk(all, i, std::move(connected[i]))); !started)
			std::puts(started.why());
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev)
		return std::puts(dev.why()), 1;
	auto loop = peal::co::make_loop();
	if (!loop)
		return std::puts(loop.why()), 1;
	if (argc < 4)
		return serve(*loop, *dev);
	clients all{*loop, *dev, argv[1], static_cast<unsigned>(std::atoi(argv[2])),
		    static_cast<unsigned>(std::atoi(argv[3]))};
	if (auto started = loop->spawn(connect(all)); !started)
		return std::puts(started.why()), 1;
	if (auto done = loop->run(600s); !done)
		return std::puts(done.why()), 1;
	std::printf("%u of %u clients got all answers\n", all.good, all.count);
	return all.good == all.count ? 0 : 1;
}
