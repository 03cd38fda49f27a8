// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Receives that several connections share. No buffer is lost when a connection ends, and threads
 * need no lock.
 */
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "pair.hpp"

namespace {

/* Several clients of one server, whose ends share receives. */
struct Shared {
	peal::device device = peal::open("fake0").value();
	peal::shared_receives pool;
	peal::listener listener = device.listen(0).value();
	std::vector<peal::connection> clients, servers;

	explicit Shared(std::uint16_t receives, int count = 2)
		: pool(device.share_receives(receives, 64).value())
	{
		for (int i = 0; i < count; ++i)
			add();
	}

	void add()
	{
		std::thread accepts([&] {
			servers.push_back(listener.accept({}, patience, {.shared = &pool}).value());
		});
		clients.push_back(
			device.connect(fake::here, listener.port(), {}, patience).value());
		accepts.join();
	}
};

void send(peal::connection &by, std::string_view text)
{
	auto post = by.batch();

	post.send_inline(std::as_bytes(std::span(text)));
	const auto done = post.commit(patience);
	CHECK(std::string(done.why()) == "");
}

} // namespace

TEST_CASE("connections share receives, and each gets its own messages", "[shared_receives]")
{
	const Fake fake;
	Shared shared(3);

	CHECK(shared.pool.size() == 3);
	CHECK(shared.pool.bytes() == 64);
	send(shared.clients[0], "one");
	send(shared.clients[1], "two");
	send(shared.clients[0], "three");
	CHECK(fake::shared_receives_posted() == 0);
	CHECK(shared.servers[1].recv(patience).value().text() == "two");
	CHECK(shared.servers[0].recv(patience).value().text() == "one");
	CHECK(shared.servers[0].recv(patience).value().text() == "three");
	CHECK(fake::shared_receives_posted() == 3);
	/* The peer knows how long a message may be. */
	auto memory = shared.device.alloc<char>(65).value();
	auto post = shared.clients[0].batch();
	post.send(memory.all());
	CHECK(contains(post.commit().why(), "longer than the peer's receive buffers"));
}

TEST_CASE("without a free receive a peer waits", "[shared_receives]")
{
	const Fake fake;
	Shared shared(1);

	send(shared.clients[0], "kept");
	std::optional<peal::message> kept(shared.servers[0].recv(patience).value());
	auto post = shared.clients[1].batch();
	post.send_imm(7);
	CHECK(post.commit(moment).code() == ETIMEDOUT);
	/* The end of the connection of a message does not give its buffer to others. */
	shared.servers[0].close();
	CHECK(kept->text() == "kept");
	CHECK(shared.servers[1].recv(0s).code() == ETIMEDOUT);
	kept.reset();
	CHECK(shared.servers[1].recv_imm(patience).value() == 7);
	for (auto &done : shared.clients[1].wait(1, patience))
		CHECK(done);
}

TEST_CASE("a connection that ends gives back what it has not received", "[shared_receives]")
{
	const Fake fake;
	Shared shared(4);

	for (int round = 0; round < 10; ++round) {
		/* One was taken from the queue, and one not. */
		send(shared.clients.back(), "one");
		CHECK(shared.servers.back().arm() == peal::next_step::take);
		send(shared.clients.back(), "two");
		CHECK(fake::shared_receives_posted() == 2);
		shared.servers.pop_back();
		shared.clients.pop_back();
		CHECK(fake::shared_receives_posted() == 4);
		shared.add();
	}
	/* A message that is too long breaks a connection, but not the others. */
	auto post = shared.clients[0].batch();
	auto memory = shared.device.alloc<char>(64).value();
	post.send(memory.all());
	fake::fail_next_request(IBV_WC_GENERAL_ERR, 0);
	CHECK(!post.commit(patience));
	send(shared.clients[1], "text");
	CHECK(shared.servers[1].recv(patience).value().text() == "text");
	CHECK(fake::shared_receives_posted() == 4);
}

TEST_CASE("a device that does not tell of the last receive costs little time", "[shared_receives]")
{
	const Fake fake;
	Shared shared(2);

	fake::hide_last_receives();
	send(shared.clients[0], "one");
	shared.servers.erase(shared.servers.begin());
	CHECK(fake::shared_receives_posted() == 2);
}

TEST_CASE("shared receives may end before their connections", "[shared_receives]")
{
	const Fake fake;
	Shared shared(2);

	{
		auto gone = std::move(shared.pool);
		CHECK(gone.size() == 2);
	}
	CHECK(shared.pool.size() == 0);
	send(shared.clients[0], "one");
	CHECK(shared.servers[0].recv(patience).value().text() == "one");
}

TEST_CASE("shared receives are used by several threads without a lock", "[shared_receives]")
{
	constexpr int count = 2, messages = 200;
	const Fake fake;
	Shared shared(4, count);
	std::vector<std::thread> threads;
	std::array<int, count> good{};

	for (int i = 0; i < count; ++i) {
		threads.emplace_back([&, i] {
			for (int n = 0; n < messages; ++n)
				send(shared.clients[i], std::to_string(i * messages + n));
		});
		threads.emplace_back([&, i] {
			for (int n = 0; n < messages; ++n) {
				auto came = shared.servers[i].recv(patience);

				good[i] += came && came->text() == std::to_string(i * messages + n);
			}
			/* Both may end at the same time. */
			shared.servers[i].close();
		});
	}
	for (std::thread &one : threads)
		one.join();
	CHECK(good[0] == messages);
	CHECK(good[1] == messages);
}

TEST_CASE("shared receives that cannot be made or used are a sentence", "[shared_receives]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto pool = device.share_receives(2).value();

	CHECK(contains(device.share_receives(0).why(), "choose another number"));
	CHECK(contains(device.share_receives(2, 0).why(), "at least one byte"));
	CHECK(contains(device.share_receives(1025).why(), "shares 1 to 1024"));
	for (const char *function : {"ibv_reg_mr", "ibv_create_srq", "ibv_post_srq_recv"}) {
		INFO(function);
		const std::string before = fake::alive();

		fake::fail_next(function, ENOSYS);
		CHECK(std::string(device.share_receives(2).why()) != "");
		CHECK(fake::alive() == before);
	}
	auto other = peal::open("fake0").value();
	CHECK(contains(other.offer({}, {.shared = &pool}).why(), "of another device"));
	CHECK(device.offer({}, {.shared = &pool}));
	auto moved = std::move(pool);
	CHECK(contains(device.offer({}, {.shared = &pool}).why(), "moved"));
	auto gone = std::move(device);
	CHECK(contains(device.share_receives(2).why(), "moved"));
}

TEST_CASE("a connection fails if the device takes no shared receive any more", "[shared_receives]")
{
	const Fake fake;
	Shared shared(2);

	send(shared.clients[0], "one");
	fake::fail_next("ibv_post_srq_recv", EIO);
	(void)shared.servers[0].recv(patience).value();
	CHECK(contains(shared.servers[0].recv(0s).why(), "the device takes no receive"));
}
