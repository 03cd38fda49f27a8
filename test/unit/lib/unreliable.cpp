// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Unreliable connections (UC), and datagrams to single peers (UD).
 */
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "pair.hpp"

namespace {

constexpr peal::options uc{.transport = peal::transport::uc};

struct Endpoints {
	peal::device devices[2] = {peal::open("fake0").value(), peal::open("fake1").value()};
	peal::endpoint mine = devices[0].endpoint(2).value();
	peal::endpoint theirs = devices[1].endpoint(2).value();
	peal::address_handle to = mine.reach(theirs.blob()).value();
};

} // namespace

TEST_CASE("an unreliable connection writes and sends", "[unreliable]")
{
	const Fake fake;
	Ends ends(uc);

	auto post = ends.client->batch();
	post.write(ends.mine->put(0, "text"), ends.client->peer().at(0));
	post.send_imm(4);
	CHECK(post.commit(patience));
	CHECK(ends.server->recv_imm(patience).value() == 4);
	CHECK(std::string_view(ends.theirs->data()) == "text");
	ends.client->close();
	CHECK(contains(ends.server->recv(patience).why(), "the peer has closed"));
}

TEST_CASE("an unreliable connection has no READ and no atomics", "[unreliable]")
{
	const Fake fake;
	Ends ends(uc);
	const auto why = [&](auto add) {
		auto post = ends.client->batch();

		add(post);
		return std::string(post.commit().why());
	};

	CHECK(ends.client->peer().rights() == peal::rights::write);
	CHECK(contains(why([&](peal::batch &post) {
			       post.read(ends.mine->part(0, 8), ends.client->peer().at(0));
		       }),
		       "no READ and no atomics; connect with options.transport rc"));
	CHECK(contains(why([&](peal::batch &post) {
			       post.fetch_add(ends.mine->part(0, 8), ends.client->peer().at(0), 1);
		       }),
		       "no READ and no atomics"));
	Ends readable(uc, peal::remote_read);
	CHECK(readable.client->peer().rights() == peal::rights::none);
	auto post = readable.client->batch();
	post.write(readable.mine->part(0, 8), readable.client->peer().at(0));
	CHECK(contains(post.commit().why(), "remote_write"));
}

TEST_CASE("an unreliable connection loses what finds no receive", "[unreliable]")
{
	const Fake fake;
	Ends ends({.receives = 1, .transport = peal::transport::uc});
	auto post = ends.client->batch();

	for (std::uint32_t i = 1; i <= 3; ++i) {
		post.send_imm(i);
		CHECK(post.commit(patience));
	}
	CHECK(ends.server->recv_imm(patience).value() == 1);
	CHECK(ends.server->recv_imm(0s).code() == ETIMEDOUT);
	post.send_imm(4);
	CHECK(post.commit(patience));
	CHECK(ends.server->recv_imm(patience).value() == 4);
}

TEST_CASE("unreliable connections share receives, and lose what finds none", "[unreliable]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto pool = device.share_receives(2, 64).value();
	auto listener = device.listen(0).value();
	std::vector<peal::connection> clients, servers;
	const auto send = [&](std::size_t by, std::uint32_t imm) {
		auto post = clients[by].batch();

		post.send_imm(imm);
		CHECK(post.commit(patience));
	};

	for (int i = 0; i < 2; ++i) {
		std::thread accepts([&] {
			servers.push_back(
				listener.accept({}, patience,
						{.transport = peal::transport::uc, .shared = &pool})
					.value());
		});
		clients.push_back(
			device.connect(fake::here, listener.port(), {}, patience, uc).value());
		accepts.join();
	}
	send(0, 1);
	send(1, 2);
	send(0, 3); /* finds no receive, and does not wait for one */
	CHECK(fake::shared_receives_posted() == 0);
	CHECK(servers[1].recv_imm(patience).value() == 2);
	CHECK(servers[0].recv_imm(patience).value() == 1);
	CHECK(servers[0].recv_imm(0s).code() == ETIMEDOUT);
	CHECK(fake::shared_receives_posted() == 2);
	send(0, 4);
	send(0, 5);
	CHECK(servers[0].recv_imm(patience).value() == 4);
	/* A connection that ends gives back what it has not received. */
	servers.erase(servers.begin());
	CHECK(fake::shared_receives_posted() == 2);
	send(1, 6);
	CHECK(servers[0].recv_imm(patience).value() == 6);
}

TEST_CASE("two ends with other transports do not connect", "[unreliable]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto listener = device.listen(0).value();
	std::string accepted;
	std::thread accepts([&] { accepted = listener.accept({}, 500ms, uc).why(); });
	const auto made = device.connect(fake::here, listener.port(), {}, 500ms);

	accepts.join();
	CHECK(!made);
	CHECK(contains(accepted, "give both the same options.transport"));
	auto mine = device.offer({}, uc).value();
	auto theirs = device.offer({}).value();
	CHECK(contains(mine.connect(theirs.blob(), moment).why(), "the same options.transport"));
}

TEST_CASE("an unreliable connection is made by blobs, too", "[unreliable]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto mine = device.offer({}, uc).value();
	auto theirs = device.offer({}, uc).value();
	auto accepted = std::optional<peal::result<peal::connection>>();
	std::thread accepts([&] { accepted.emplace(theirs.connect(mine.blob(), patience)); });
	auto made = mine.connect(theirs.blob(), patience);

	accepts.join();
	REQUIRE(std::string(made.why()) == "");
	auto post = made->batch();
	post.send_imm(9);
	CHECK(post.commit(patience));
	CHECK((*accepted)->recv_imm(patience).value() == 9);
}

TEST_CASE("an endpoint sends datagrams to one peer, and gets those of all", "[unreliable]")
{
	const Fake fake;
	Endpoints ends;
	auto third = ends.devices[0].endpoint(2).value();
	auto back = ends.theirs.reach(ends.mine.blob()).value();

	CHECK(ends.mine.blob().size() == peal::offer::blob_size);
	REQUIRE(ends.mine.send(ends.to, "one", patience));
	REQUIRE(third.send(third.reach(ends.theirs.blob()).value(), "two", patience));
	{
		auto one = ends.theirs.recv(patience).value();

		CHECK(one.text() == "one");
		/* 10.0.0.1 */
		CHECK(std::to_integer<int>(one.from()[11]) == 0xff);
		CHECK(std::to_integer<int>(one.from()[12]) == 10);
		CHECK(std::to_integer<int>(one.from()[15]) == 1);
	}
	CHECK(ends.theirs.recv(patience).value().text() == "two");
	fake::send_from_six();
	REQUIRE(ends.theirs.send(back, "back", patience));
	auto six = ends.mine.recv(patience).value();
	CHECK(six.text() == "back");
	CHECK(std::to_integer<int>(six.from()[0]) == 0xab);
	CHECK(third.recv(0s).code() == ETIMEDOUT);
}

TEST_CASE("edge-triggered epoll loses no datagram of an endpoint", "[unreliable]")
{
	const Fake fake;
	Endpoints ends;
	auto &member = ends.theirs;
	epoll_event event{};
	const int epoll = epoll_create1(EPOLL_CLOEXEC);

	event.events = EPOLLIN | EPOLLET;
	REQUIRE(!epoll_ctl(epoll, EPOLL_CTL_ADD, member.fd(), &event));
	for (int i = 0; i < 50; ++i) {
		/* One comes before the look, and one during the sleep. */
		REQUIRE(ends.mine.send(ends.to, "x", patience));
		CHECK(member.arm() == peal::next_step::take);
		CHECK(member.arm() == peal::next_step::take);
		CHECK(member.recv(0s).value().text() == "x");
		CHECK(member.recv(0s).code() == ETIMEDOUT);
		while (member.arm() != peal::next_step::sleep)
			(void)member.recv(0s);
		std::thread late([&] { CHECK(ends.mine.send(ends.to, "x", patience)); });
		CHECK(epoll_wait(epoll, &event, 1, 60000) == 1);
		late.join();
		CHECK(member.arm() == peal::next_step::take);
		CHECK(member.recv(0s).value().text() == "x");
	}
	CHECK(member.arm() == peal::next_step::sleep);
	auto moved = std::move(member);
	CHECK(member.arm() == peal::next_step::close);
	CHECK(member.fd() == -1);
	close(epoll);
}

TEST_CASE("the closest address and the smaller MTU are used for datagrams", "[unreliable]")
{
	const Fake fake;

	fake::set_mtu(0, IBV_MTU_4096);
	fake::set_mtu(1, IBV_MTU_512);
	fake::set_addresses(1, {"10.0.0.9"});
	Endpoints ends;
	CHECK(ends.to.longest() == 512);
	CHECK(ends.mine.send(ends.to, std::string(512, 'x'), patience));
	CHECK(ends.theirs.recv(patience).value().bytes().size() == 512);
	CHECK(ends.mine.send(ends.to, std::string(513, 'x'), patience).code() == EMSGSIZE);
	fake::cut("10.0.0.9");
	CHECK(contains(ends.mine.reach(ends.theirs.blob()).why(),
		       "no GID of fake0 routes to 10.0.0.9"));
}

TEST_CASE("wrong use of an endpoint is a sentence", "[unreliable]")
{
	const Fake fake;
	Endpoints ends;
	auto offer = ends.devices[1].offer({}).value();

	CHECK(contains(ends.mine.reach(offer.blob()).why(), "another kind of queue pair"));
	CHECK(contains(offer.connect(ends.mine.blob(), moment).why(), "another kind of queue"));
	CHECK(contains(ends.mine.reach(ends.mine.blob()).why(), "own blob"));
	CHECK(contains(ends.mine.reach({}).why(), "no blob of libpeal"));
	CHECK(contains(ends.theirs.send(ends.to, "x", moment).why(), "of another endpoint"));
	fake::fail_next("ibv_create_ah", EHOSTUNREACH);
	CHECK(contains(ends.mine.reach(ends.theirs.blob()).why(), "answers to ping"));
	for (const char *function : {"ibv_query_gid_table", "ibv_create_qp", "to INIT", "to RTS"}) {
		INFO(function);
		const std::string before = fake::alive();

		fake::fail_next(function, EIO);
		CHECK(std::string(ends.devices[0].endpoint().why()) != "");
		CHECK(fake::alive() == before);
	}
	CHECK(contains(ends.devices[0].endpoint(0).why(), "at least one"));
	auto device = std::move(ends.devices[0]);
	CHECK(contains(ends.devices[0].endpoint().why(), "moved"));
	auto to = std::move(ends.to);
	CHECK(contains(ends.mine.send(ends.to, "x", moment).why(), "moved"));
	CHECK(ends.to.longest() == 0);
	auto mine = std::move(ends.mine);
	CHECK(contains(ends.mine.send(to, "x", moment).why(), "moved"));
	CHECK(contains(ends.mine.recv(moment).why(), "moved"));
	CHECK(contains(ends.mine.reach(ends.theirs.blob()).why(), "moved"));
	CHECK(ends.mine.blob().empty());
	/* The address keeps what it needs. */
	{
		auto gone = std::move(mine);
	}
	CHECK(to.longest() == 1024);
}

TEST_CASE("sending datagrams to a peer allocates nothing", "[unreliable]")
{
	const Fake fake;
	Endpoints ends;
	bool good = true;
	unsigned count = 0;

	{
		const fake::CountAllocations allocations;

		for (int i = 0; i < 100; ++i) {
			good = good && ends.mine.send(ends.to, "text", patience);
			good = good && ends.theirs.recv(patience).value().text() == "text";
		}
		count = allocations.count();
	}
	CHECK(good);
	CHECK(count == 0);
}

TEST_CASE("greetings of strangers do not connect an offer", "[unreliable]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto stranger = device.endpoint().value();
	auto mine = device.offer({}).value(), theirs = device.offer({}).value();
	/* An endpoint reaches the queue pair for datagrams of an offer by a blob of its own kind.
	 */
	std::vector<std::byte> blob(mine.blob().begin(), mine.blob().end());
	blob[5] = std::byte(3);
	std::uint32_t crc = ~0u;
	for (std::size_t i = 0; i < blob.size() - 4; ++i) {
		crc ^= std::to_integer<unsigned>(blob[i]);
		for (int bit = 0; bit < 8; ++bit)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	for (std::size_t i = 0; i < 4; ++i)
		blob[blob.size() - 1 - i] = std::byte(~crc >> 8 * i);
	auto to = stranger.reach(blob).value();
	std::string why;
	std::thread connects([&] { why = mine.connect(theirs.blob(), 5 * moment).why(); });
	/* Of the right length and of others, with the wrong number. */
	for (int i = 0; i < 40; ++i) {
		CHECK(stranger.send(to, std::string(i % 2 ? 16 : 200, '\1'), patience));
		std::this_thread::sleep_for(1ms);
	}
	connects.join();
	CHECK(contains(why, "the peer has not connected in time"));
}
