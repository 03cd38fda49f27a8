// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * library_kinds: libpeal's other kinds of connections, between two ends of this program.
 *
 *	library_kinds ADDRESS
 *
 * Unreliable connections, with the connection manager at this address and without it; datagrams to
 * a peer, also in coroutines; receives that threads share. Exit status: 0, or 1 with a line that
 *says what failed.
 */
#include <peal/co.hpp>
#include "library_program.hpp"

#include <arpa/inet.h>
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr auto patience = 30s;
constexpr peal::options uc{.transport = peal::transport::uc};

struct Ends {
	peal::connection client, server;
};

Ends by_blobs(peal::device &device, const peal::region &shared, const peal::options &options)
{
	auto mine = must(device.offer({}, options), "an offer");
	auto theirs = must(device.offer(shared, options), "an offer");
	std::optional<peal::connection> server;
	std::thread other([&] {
		server.emplace(must(theirs.connect(mine.blob(), patience), "the second blob"));
	});
	auto client = must(mine.connect(theirs.blob(), patience), "the first blob");

	other.join();
	return {std::move(client), std::move(*server)};
}

Ends by_manager(peal::device &device, const char *address, peal::listener &listener,
		const peal::region &shared, const peal::options &theirs, const peal::options &mine)
{
	std::optional<peal::connection> server;
	std::thread other([&] {
		server.emplace(must(listener.accept(shared, patience, theirs), "an accept"));
	});
	auto client =
		must(device.connect(address, listener.port(), {}, patience, mine), "a connect");

	other.join();
	return {std::move(client), std::move(*server)};
}

/* Messages of an unreliable connection come in order and whole, because nothing is lost here. */
void write_and_tell(peal::device &device, Ends ends, peal::memory<std::uint32_t> &theirs)
{
	auto memory = must(device.alloc<std::uint32_t>(1024), "memory");

	for (std::uint32_t i = 0; i < 100; ++i) {
		memory[i] = 7 * i;
		auto post = ends.client.batch();
		post.write_imm(memory.part(0, i + 1), ends.client.peer().at(0), i);
		const auto done = post.commit(patience);
		expect(bool(done), "a write", done.why());
		expect(must(ends.server.recv_imm(patience), "a message") == i, "another message");
		expect(theirs[i] == 7 * i, "the memory is not written");
	}
	auto post = ends.client.batch();
	post.write_imm(memory.part(0, 0), ends.client.peer().at(0), 100);
	expect(bool(post.commit(patience)), "a write of no bytes");
	expect(must(ends.server.recv_imm(patience), "a message") == 100, "another message");
	post.read(memory.part(0, 1), ends.client.peer().at(0));
	expect(!post.commit(), "an unreliable connection reads");
}

void exchange_datagrams(peal::device &device, const char *address)
{
	auto mine = must(device.endpoint(), "an endpoint");
	auto theirs = must(device.endpoint(), "an endpoint");
	auto to = must(mine.reach(theirs.blob()), "the peer's address");
	auto back = must(theirs.reach(mine.blob()), "the own address");
	peal::gid from{};

	from[10] = from[11] = std::byte{0xff};
	inet_pton(AF_INET, address, from.data() + 12);
	for (std::size_t i = 0; i < 100; ++i) {
		const std::string text(i * to.longest() / 99, static_cast<char>('a' + i % 26));

		const auto sent = mine.send(to, text, patience);
		expect(bool(sent), "a datagram", sent.why());
		auto came = must(theirs.recv(patience), "a datagram");
		expect(came.text() == text, "another datagram");
		expect(came.from() == from, "another sender");
		expect(bool(theirs.send(back, came.bytes(), patience)), "an answer");
		expect(must(mine.recv(patience), "an answer").text() == text, "another answer");
	}
	expect(!mine.send(to, std::string(to.longest() + 1, 'x'), patience), "a datagram too long");
	for (int i = 0; i < 20; ++i) {
		pollfd readable{theirs.fd(), POLLIN, 0};

		expect(theirs.arm() == peal::next_step::sleep, "something has come");
		std::thread late([&] { expect(bool(mine.send(to, "late", patience)), "a send"); });
		expect(poll(&readable, 1, 30000) == 1, "the descriptor does not wake");
		late.join();
		expect(theirs.arm() == peal::next_step::take, "nothing has come");
		expect(must(theirs.recv(0s), "a datagram").text() == "late", "another datagram");
	}
}

/* One coroutine sends and gets the answers of another one, and two members of a group meet. */
void await_datagrams(peal::device &device)
{
	auto loop = must(peal::co::make_loop(), "a loop");
	auto mine = must(loop.adopt(must(device.endpoint(), "an endpoint")), "an endpoint");
	auto theirs = must(loop.adopt(must(device.endpoint(), "an endpoint")), "an endpoint");
	auto to = must(mine.reach(theirs.blob()), "the peer's address");
	auto back = must(theirs.reach(mine.blob()), "the own address");
	bool has_come = false;
	const auto ask = [&]() -> peal::co::task<> {
		for (int i = 0; i < 100; ++i) {
			const std::string text = std::to_string(i);
			const auto sent = co_await mine.send(to, text, patience);

			expect(bool(sent), "an awaited send", sent.why());
			expect(must(co_await mine.recv(patience), "an answer").text() == text,
			       "another answer");
		}
	};
	const auto answer = [&]() -> peal::co::task<> {
		for (int i = 0; i < 100; ++i) {
			auto came = must(co_await theirs.recv(patience), "a datagram");

			expect(bool(co_await theirs.send(back, came.bytes(), patience)), "a send");
		}
	};
	const auto subscribe = [&]() -> peal::co::task<> {
		auto group = must(co_await loop.join(device, "239.1.2.3", patience), "a group");

		expect(must(co_await group.recv(patience), "news").text() == "news", "other news");
		has_come = true;
	};
	const auto publish = [&]() -> peal::co::task<> {
		auto group = must(co_await loop.join(device, "239.1.2.3", patience), "a group");

		/* Until the other one has joined. */
		while (!has_come) {
			expect(bool(co_await group.send("news", patience)), "publishing");
			co_await loop.sleep(5ms);
		}
	};

	expect(loop.spawn(ask()) && loop.spawn(answer()) && loop.spawn(subscribe()) &&
		       loop.spawn(publish()),
	       "a coroutine");
	const auto done = loop.run(patience);
	expect(bool(done), "the loop", done.why());
}

void send(peal::connection &by, std::uint32_t value)
{
	auto post = by.batch();

	post.send_inline(std::as_bytes(std::span(&value, 1)));
	const auto done = post.commit(patience);
	expect(bool(done), "a send", done.why());
}

/* More messages are on their way than there are receives, and connections end before they take all.
 */
void share_receives(peal::device &device, const char *address)
{
	constexpr std::size_t count = 3;
	constexpr std::uint32_t messages = 100;
	auto pool = must(device.share_receives(4, 64), "shared receives");
	auto listener = must(device.listen(0), "a listener");
	const peal::options shared{.shared = &pool};
	std::vector<Ends> ends;
	std::vector<std::thread> threads;

	for (int i = 0; i < 10; ++i) {
		auto gone = by_manager(device, address, listener, {}, shared, {});

		send(gone.client, 1);
		send(gone.client, 2);
		if (i % 2)
			(void)must(gone.server.recv(patience), "a message");
	}
	while (ends.size() < count)
		ends.push_back(by_manager(device, address, listener, {}, shared, {}));
	for (Ends &one : ends) {
		threads.emplace_back([&one] {
			for (std::uint32_t i = 0; i < messages; ++i)
				send(one.client, i);
		});
		threads.emplace_back([&one] {
			for (std::uint32_t i = 0; i < messages; ++i)
				expect(must(one.server.recv(patience), "a message")
						       .as<std::uint32_t>() == i,
				       "another message");
		});
	}
	for (std::thread &one : threads)
		one.join();
}

} // namespace

int main(int argc, char **argv)
{
	expect(argc == 2, "library_kinds ADDRESS");
	auto device = must(peal::open(std::getenv("PEAL_DEVICE")), "the device");
	auto memory =
		must(device.alloc<std::uint32_t>(1024, peal::remote_write | peal::remote_read),
		     "memory");
	auto listener = must(device.listen(0), "a listener");

	write_and_tell(device, by_manager(device, argv[1], listener, memory.share(), uc, uc),
		       memory);
	write_and_tell(device, by_blobs(device, memory.share(), uc), memory);
	std::puts("ok: unreliable connections");
	exchange_datagrams(device, argv[1]);
	std::puts("ok: datagrams");
	await_datagrams(device);
	std::puts("ok: datagrams in coroutines");
	share_receives(device, argv[1]);
	std::puts("ok: shared receives");
}
