// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A store of keys and values. A client gets a value by reading the server's memory, and the
 * server's program does nothing. It puts one by a message, because the server decides where it is.
 *
 *	./kv_store                              the server, which runs until it is ended
 *	./kv_store ADDRESS put KEY VALUE
 *	./kv_store ADDRESS get KEY
 *	./kv_store ADDRESS count KEY TIMES      puts the numbers from 1 on
 *	./kv_store ADDRESS watch KEY TIMES      gets them until TIMES comes
 *
 * All hosts have the same byte order.
 */
#include <peal/co.hpp>
#include <peal/peal.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "kv_table.hpp"

using namespace std::chrono_literals;
using peal::co::task;

constexpr std::uint16_t port = 7475;

/* ---- the server ---- */

enum answer : std::uint32_t { stored, full, broken };

/* An answer to each message, until the client closes. */
static task<> serve_one(peal::memory<kv::entry> &table, peal::co::connection client)
{
	while (auto message = co_await client.recv(peal::deadline::never())) {
		answer said = broken;
		auto put = message->as<kv::entry>();
		if (put && !put->is_free() && put->is_whole())
			said = kv::store({table.data(), table.size()}, *put) ? stored : full;
		if (auto sent = co_await client.send_imm(said, 5s); !sent)
			co_return (void) std::puts(sent.why());
	}
}

static task<> serve(peal::co::loop &loop, peal::device &dev)
{
	auto table = dev.alloc<kv::entry>(kv::entries, peal::remote_read).value();
	auto listener = loop.listen(dev, port).value();
	while (auto client = co_await listener.accept(table.share(), peal::deadline::never()))
		loop.spawn(serve_one(table, std::move(*client))).value();
}

/* ---- a client ---- */

struct client {
	peal::connection server;
	peal::memory<kv::entry> mem;
	unsigned torn = 0; /* how often a get has read again */

	peal::status put(const kv::entry &what)
	{
		auto post = server.batch();
		post.send(mem.put(0, {&what, 1}));
		if (auto done = post.commit(5s); !done)
			return done;
		auto said = server.recv_imm(5s);
		if (!said)
			return said.failure();
		if (*said != stored)
			return peal::error::make(0, *said == full ? "the store is full" : "broken");
		return {};
	}

	/* The entry, or null if the store has none. It is valid until the next call. */
	peal::result<const kv::entry *> get(const kv::text &key)
	{
		const std::size_t first = kv::first_place(key) * sizeof(kv::entry);

		for (;; ++torn) {
			auto post = server.batch();
			post.read(mem.all(), server.peer().at(first, mem.all().size()));
			if (auto done = post.commit(5s); !done)
				return peal::error::make(done.code(), "%s", done.why());
			if (std::all_of(mem.begin(), mem.end(), std::mem_fn(&kv::entry::is_whole)))
				return kv::find({mem.data(), mem.size()}, key);
		}
	}
};

static peal::status count(client &me, const char *key, unsigned times)
{
	peal::status done;

	for (unsigned i = 1; done && i <= times; ++i)
		done = me.put(kv::make_entry(key, std::to_string(i)));
	return done;
}

/* The numbers may only grow, because each get is whole. */
static peal::status watch(client &me, const char *key, unsigned times)
{
	for (unsigned last = 0, gets = 1;; ++gets) {
		auto found = me.get(kv::make_text(key));
		if (!found)
			return found.failure();
		const unsigned now = *found ? std::atoi((*found)->value.data()) : 0;
		if (now < last)
			return peal::error::make(0, "%u came after %u", now, last);
		last = now;
		if (now == times)
			return std::printf("%u gets, %u read again\n", gets, me.torn),
			       peal::status();
	}
}

static peal::status talk(client &me, std::string_view command, char **arguments)
{
	if (command == "put")
		return me.put(kv::make_entry(arguments[0], arguments[1]));
	if (command == "count")
		return count(me, arguments[0], std::atoi(arguments[1]));
	if (command == "watch")
		return watch(me, arguments[0], std::atoi(arguments[1]));
	auto found = me.get(kv::make_text(arguments[0]));
	if (found)
		std::puts(*found ? (*found)->value.data() : "not found");
	return found ? peal::status() : found.failure();
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev)
		return std::puts(dev.why()), 1;
	if (argc < 4) {
		auto loop = peal::co::make_loop().value();
		loop.spawn(serve(loop, *dev)).value();
		auto ended = loop.run(peal::deadline::never());
		return std::puts(ended.why()), 1;
	}
	auto mem = dev->alloc<kv::entry>(kv::places).value();
	auto server = dev->connect(argv[1], port, {}, 5s);
	if (!server)
		return std::puts(server.why()), 1;
	client me{std::move(*server), std::move(mem)};
	auto done = talk(me, argv[2], argv + 3);
	return done ? 0 : (std::puts(done.why()), 1);
}
