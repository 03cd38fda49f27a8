// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connecting without the connection manager. Both ends choose the same pair of addresses, and a
 * blob that is wrong is a sentence.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "pair.hpp"
#include "peal/co.hpp"

namespace {

using blob = std::vector<std::byte>;

blob copy_of(std::span<const std::byte> bytes)
{
	return {bytes.begin(), bytes.end()};
}

peal::result<peal::connection> nothing()
{
	return peal::error::make(0, "nothing");
}

/* Two offers of two devices that connect at the same time. */
struct Offers {
	peal::device devices[2] = {peal::open("fake0").value(), peal::open("fake1").value()};
	peal::memory<char> memory = devices[1].alloc<char>(4096, peal::remote_write).value();
	peal::offer mine, theirs;
	peal::result<peal::connection> client = nothing(), server = nothing();

	explicit Offers(const peal::options &options = {})
		: mine(devices[0].offer({}, options).value()),
		  theirs(devices[1].offer(memory.share(), options).value())
	{
	}

	void connect(peal::deadline until = patience)
	{
		std::thread other([&] { server = theirs.connect(mine.blob(), until); });

		client = mine.connect(theirs.blob(), until);
		other.join();
	}
};

/* Gives a blob the right checksum, which is the CRC-32 of Ethernet, at its end. */
void seal(blob &bytes)
{
	std::uint32_t crc = ~0u;

	for (std::size_t i = 0; i < bytes.size() - 4; ++i) {
		crc ^= std::to_integer<unsigned>(bytes[i]);
		for (int bit = 0; bit < 8; ++bit)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	for (std::size_t i = 0; i < 4; ++i)
		bytes[bytes.size() - 1 - i] = std::byte(~crc >> 8 * i);
}

} // namespace

TEST_CASE("two ends connect by the blobs that they exchange", "[offer]")
{
	const Fake fake;
	Offers offers;

	CHECK(offers.mine.blob().size() == peal::offer::blob_size);
	offers.connect();
	REQUIRE(std::string(offers.client.why()) == "");
	REQUIRE(std::string(offers.server.why()) == "");
	CHECK(offers.client->peer().key() == offers.memory.share().key());
	CHECK(offers.client->peer().size() == 4096);
	CHECK(offers.server->peer().size() == 0);
	auto text = offers.devices[0].alloc<char>(16).value();
	{
		auto post = offers.client->batch();

		post.write(text.put(0, "hello"), offers.client->peer().at(1));
		post.send_imm(5);
		CHECK(post.commit(patience));
	}
	CHECK(offers.server->recv_imm(patience).value() == 5);
	CHECK(std::string_view(offers.memory.data() + 1, 5) == "hello");
	auto back = offers.server->batch();
	back.send_imm(6);
	CHECK(back.commit(patience));
	CHECK(offers.client->recv_imm(patience).value() == 6);
	CHECK(offers.client->arm() == peal::next_step::sleep);
}

TEST_CASE("an end that closes tells its peer without the connection manager", "[offer]")
{
	const auto transport = GENERATE(peal::transport::rc, peal::transport::uc);
	const Fake fake;
	Offers offers({.transport = transport});

	offers.connect();
	{
		auto post = offers.client->batch();

		post.send_imm(5);
		CHECK(post.commit(patience));
	}
	std::thread closes([&] {
		std::this_thread::sleep_for(moment);
		offers.client->close();
	});
	/* What was sent before comes first. */
	CHECK(offers.server->recv_imm(patience).value() == 5);
	const auto end = offers.server->recv(patience);
	closes.join();
	CHECK(end.code() == ENOTCONN);
	CHECK(contains(end.why(), "the peer has closed"));
	CHECK(offers.server->arm() == peal::next_step::close);
	auto post = offers.server->batch();
	post.send_imm(7);
	CHECK(contains(post.commit(patience).why(), "the peer has closed"));
}

TEST_CASE("a farewell ends the requests that the peer has not done", "[offer]")
{
	const Fake fake;
	Offers offers;

	offers.connect();
	auto post = offers.server->batch();
	/* More than the peer has receives. */
	for (std::uint32_t i = 0; i < 40; ++i)
		post.send_imm(i);
	CHECK(post.commit());
	std::thread closes([&] {
		std::this_thread::sleep_for(moment);
		offers.client->close();
	});
	const auto done = offers.server->wait(40, patience);
	closes.join();
	CHECK(done.size() == 40);
	CHECK(!done);
	CHECK(contains(done.why(), "connect again"));
}

TEST_CASE("a farewell wakes a program that sleeps in epoll", "[offer]")
{
	const Fake fake;
	Offers offers;
	epoll_event event{};
	const int epoll = epoll_create1(EPOLL_CLOEXEC);

	offers.connect();
	event.events = EPOLLIN | EPOLLET;
	REQUIRE(!epoll_ctl(epoll, EPOLL_CTL_ADD, offers.server->fd(), &event));
	while (offers.server->arm() != peal::next_step::sleep)
		(void)offers.server->recv(0s);
	std::thread closes([&] { auto gone = std::move(*offers.client); });
	CHECK(epoll_wait(epoll, &event, 1, 60000) == 1);
	closes.join();
	CHECK(offers.server->arm() == peal::next_step::close);
	close(epoll);
}

TEST_CASE("an end that closes as soon as it has connected tells its peer", "[offer]")
{
	for (int i = 0; i < 20; ++i) {
		const Fake fake;
		Offers offers;
		std::string why;

		std::thread other([&] {
			auto made = offers.theirs.connect(offers.mine.blob(), patience);

			why = made.why();
		});
		offers.client = offers.mine.connect(offers.theirs.blob(), patience);
		other.join();
		REQUIRE(why == "");
		REQUIRE(std::string(offers.client.why()) == "");
		CHECK(contains(offers.client->recv(patience).why(), "the peer has closed"));
	}
}

TEST_CASE("a lost farewell is repeated", "[offer]")
{
	const Fake fake;
	Offers offers;

	offers.connect();
	fake::lose_next_datagrams(2);
	offers.client->close();
	CHECK(contains(offers.server->recv(patience).why(), "the peer has closed"));
}

TEST_CASE("a connection without its peer's farewell waits until its deadline", "[offer]")
{
	const Fake fake;
	Offers offers;

	offers.connect();
	/* As if the peer was killed. */
	fake::lose_datagrams(100);
	offers.client->close();
	CHECK(offers.server->recv(moment).code() == ETIMEDOUT);
	auto post = offers.server->batch();
	post.send_imm(7);
	CHECK(contains(post.commit(patience).why(), "the peer does not answer"));
	CHECK(contains(offers.server->recv(0s).why(), "connect again"));
}

TEST_CASE("a farewell that was changed ends nothing", "[offer]")
{
	const Fake fake;

	for (std::size_t byte = 0; byte < 24; ++byte) {
		INFO(byte);
		Offers offers;

		fake::change_datagrams(SIZE_MAX);
		offers.connect();
		fake::change_datagrams(byte);
		offers.client->close();
		CHECK(offers.server->recv(moment).code() == ETIMEDOUT);
	}
}

/* The stranger has read both blobs, and even runs at an address of the peer. */
TEST_CASE("no stranger can say farewell", "[offer]")
{
	const Fake fake;
	Offers offers;
	const blob mine = copy_of(offers.mine.blob()), theirs = copy_of(offers.theirs.blob());
	auto stranger = offers.devices[0].endpoint().value();
	/* An endpoint reaches the queue pair for datagrams by a blob of its own kind. */
	blob to_theirs = theirs;
	to_theirs[5] = std::byte(3);
	seal(to_theirs);
	auto to = stranger.reach(to_theirs).value();
	std::string farewell(24, '\0');
	std::memcpy(farewell.data(), &theirs[16], 8);
	std::memcpy(farewell.data() + 8, &mine[16], 8);
	std::memcpy(farewell.data() + 16, "farewell", 8);

	offers.connect();
	REQUIRE(offers.server);
	/* As many as there are receives, and more. */
	for (int i = 0; i < 50; ++i) {
		REQUIRE(stranger.send(to, farewell, patience));
		CHECK(offers.server->arm() == peal::next_step::sleep);
	}
	for (int i = 0; i < 50; ++i)
		REQUIRE(stranger.send(to, i % 2 ? farewell : std::string(200, 'x'), patience));
	CHECK(offers.server->recv(moment).code() == ETIMEDOUT);
	/* The peer's own is heard nevertheless. */
	offers.client->close();
	CHECK(contains(offers.server->recv(patience).why(), "the peer has closed"));
}

TEST_CASE("a farewell ends coroutines that wait", "[offer]")
{
	const Fake fake;
	Offers offers;
	std::string why;
	const auto receive = [&](peal::co::connection &from) -> peal::co::task<> {
		why = (co_await from.recv(patience)).why();
	};

	offers.connect();
	auto loop = peal::co::make_loop().value();
	auto server = loop.adopt(std::move(*offers.server)).value();
	REQUIRE(loop.spawn(receive(server)));
	CHECK(loop.run(moment).code() == ETIMEDOUT);
	std::thread closes([&] {
		std::this_thread::sleep_for(moment);
		offers.client->close();
	});
	CHECK(loop.run(patience));
	closes.join();
	CHECK(contains(why, "the peer has closed"));
}

TEST_CASE("connections by blobs can be awaited", "[offer]")
{
	const Fake fake;
	Offers offers;
	bool good = false;
	const auto exchange = [&](peal::co::connection &from,
				  peal::co::connection &to) -> peal::co::task<> {
		auto sent = from.send_imm(3, patience);
		auto came = co_await to.recv_imm(patience);

		good = bool(co_await sent) && came && *came == 3;
	};

	offers.connect();
	auto loop = peal::co::make_loop().value();
	auto client = loop.adopt(std::move(*offers.client)).value();
	auto server = loop.adopt(std::move(*offers.server)).value();
	REQUIRE(loop.spawn(exchange(client, server)));
	CHECK(loop.run(patience));
	CHECK(good);
}

TEST_CASE("an end that is not there yet is waited for", "[offer]")
{
	const Fake fake;
	Offers offers;
	std::thread late([&] {
		std::this_thread::sleep_for(5 * moment);
		offers.server = offers.theirs.connect(offers.mine.blob(), patience);
	});

	offers.client = offers.mine.connect(offers.theirs.blob(), patience);
	REQUIRE(std::string(offers.client.why()) == "");
	/* Perhaps before the other call has returned. */
	auto post = offers.client->batch();
	post.send_imm(1);
	CHECK(post.commit(patience));
	late.join();
	REQUIRE(std::string(offers.server.why()) == "");
	CHECK(offers.server->recv_imm(patience).value() == 1);
}

TEST_CASE("a link address that is found late does not end a connect by blobs", "[offer]")
{
	const Fake fake;
	Offers offers;

	fake::fail_next("to RTR", ETIMEDOUT);
	offers.connect();
	CHECK(std::string(offers.client.why()) == "");
	CHECK(std::string(offers.server.why()) == "");
	auto late = offers.devices[0].offer({}).value();
	fake::fail_next("to RTR", ETIMEDOUT);
	CHECK(late.connect(offers.theirs.blob(), 0s).code() == ETIMEDOUT);
}

TEST_CASE("two ends connect although most of their greetings are lost", "[offer]")
{
	for (int i = 0; i < 5; ++i) {
		const Fake fake;
		Offers offers;

		fake::lose_datagrams(60);
		offers.connect();
		CHECK(std::string(offers.client.why()) == "");
		CHECK(std::string(offers.server.why()) == "");
	}
}

TEST_CASE("an end without its peer gives up at its deadline", "[offer]")
{
	const Fake fake;
	Offers offers;
	const auto made = offers.mine.connect(offers.theirs.blob(), moment);

	CHECK(made.code() == ETIMEDOUT);
	CHECK(contains(made.why(), "the peer has not connected in time"));
	CHECK(contains(offers.mine.connect(offers.theirs.blob(), moment).why(), "make another"));
}

TEST_CASE("both ends choose the closest addresses that have a route", "[offer]")
{
	/* The last bytes of the addresses of the first and of the second end. */
	using pair = std::pair<int, int>;
	const auto chosen = [](const std::vector<std::string> &mine,
			       const std::vector<std::string> &theirs,
			       const std::vector<std::string> &cut = {}) {
		const Fake fake;

		fake::set_addresses(0, mine);
		fake::set_addresses(1, theirs);
		for (const std::string &one : cut)
			fake::cut(one);
		Offers offers;
		offers.connect();
		REQUIRE(std::string(offers.client.why()) == "");
		REQUIRE(std::string(offers.server.why()) == "");
		return pair(std::to_integer<int>(offers.server->peer_gid()[15]),
			    std::to_integer<int>(offers.client->peer_gid()[15]));
	};

	/* Those of the same network. */
	CHECK(chosen({"fe80::1", "10.0.0.1", "192.168.1.2"}, {"192.168.1.9", "fd00::3"}) ==
	      pair(2, 9));
	/* Those that have a route. */
	CHECK(chosen({"192.168.1.1", "fd00::2"}, {"192.168.1.9", "fd00::3"},
		     {"192.168.1.9", "192.168.1.1"}) == pair(2, 3));
	/* Those of the same family, although they are far away. */
	CHECK(chosen({"10.0.0.1", "fd00::2"}, {"2001::7"}) == pair(2, 7));
	/* Those of one link only if there is nothing else. */
	CHECK(chosen({"fe80::1", "10.0.0.2"}, {"fe80::4", "172.16.0.3"}) == pair(2, 3));
	CHECK(chosen({"fe80::1", "10.0.0.2"}, {"fe80::4"}) == pair(1, 4));
	/* 10.0.0.1 is as close to one as to the other, and so is 10.0.0.2. */
	CHECK(chosen({"10.0.0.2", "10.0.0.1"}, {"10.0.0.9", "10.0.0.8"}) == pair(1, 8));
}

TEST_CASE("GID index and MTU are those of the route, not those of a habit", "[offer]")
{
	const Fake fake;

	fake::set_addresses(0, {"fe80::1", "fd00::1", "192.168.1.1"});
	fake::set_addresses(1, {"192.168.1.9"});
	fake::set_mtu(0, IBV_MTU_4096);
	fake::set_mtu(1, IBV_MTU_512);
	Offers offers;
	std::optional<peal::result<peal::connection>> late;
	std::thread other([&] {
		/* This end is the second one, whose route is checked. */
		std::this_thread::sleep_for(moment);
		late.emplace(offers.mine.connect(offers.theirs.blob(), patience));
	});
	offers.server = offers.theirs.connect(offers.mine.blob(), patience);
	other.join();
	REQUIRE(*late);
	const ibv_qp_attr route = fake::last_route();
	CHECK(route.ah_attr.grh.sgid_index == 5);
	CHECK(route.ah_attr.grh.dgid.raw[15] == 9);
	CHECK(route.ah_attr.grh.hop_limit > 1);
	CHECK(route.max_dest_rd_atomic == 8);
	CHECK((*late)->mtu() == 512);
	CHECK(offers.server->mtu() == 512);
}

TEST_CASE("no route between two ends is a sentence, and a later one is used", "[offer]")
{
	const Fake fake;

	fake::set_addresses(1, {"10.0.0.9"});
	fake::cut("10.0.0.9");
	Offers offers;
	CHECK(offers.mine.connect(offers.theirs.blob(), patience).code() == EHOSTUNREACH);
	CHECK(contains(offers.mine.connect(offers.theirs.blob(), patience).why(),
		       "no GID of fake0 routes to 10.0.0.9"));
	fake::set_addresses(1, {"fd00::9"});
	auto other = offers.devices[1].offer({}).value();
	std::thread accepts([&] { offers.server = other.connect(offers.mine.blob(), patience); });
	CHECK(offers.mine.connect(other.blob(), patience));
	accepts.join();
	CHECK(offers.server);
}

TEST_CASE("no wrong blob connects, and each is a sentence", "[offer]")
{
	const Fake fake;
	Offers offers;
	const blob good = copy_of(offers.theirs.blob());
	const auto why = [&](const blob &bytes) {
		return std::string(offers.mine.connect(bytes, patience).why());
	};
	const auto sealed = [&](std::size_t at, int value) {
		blob bytes = good;

		bytes[at] = std::byte(value);
		seal(bytes);
		return why(bytes);
	};

	for (std::size_t size = 0; size < good.size(); ++size)
		CHECK(why({good.begin(), good.begin() + static_cast<int>(size)}) != "");
	for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
		blob bytes = good;

		bytes[bit / 8] ^= std::byte(1 << bit % 8);
		CHECK(why(bytes) != "");
	}
	CHECK(contains(why({}), "these 0 bytes are no blob of libpeal"));
	CHECK(contains(why(blob(256)), "are no blob of libpeal"));
	CHECK(contains(why({good.begin(), good.end() - 1}), "has 255 bytes"));
	blob longer = good;
	longer.push_back({});
	CHECK(contains(why(longer), "has 257 bytes"));
	blob changed = good;
	changed[100] ^= std::byte(1);
	CHECK(contains(why(changed), "was changed on its way"));
	CHECK(contains(why(copy_of(offers.mine.blob())), "own blob"));
	CHECK(contains(sealed(4, 2), "install one libpeal on both hosts"));
	CHECK(contains(sealed(5, 9), "another kind of queue pair"));
	/* The number of addresses, the MTU of the first, and numbers of more than 24 bits. */
	for (const int count : {0, 9, 255})
		CHECK(contains(sealed(6, count), "cannot be"));
	for (const int mtu : {0, 6, 255})
		CHECK(contains(sealed(72 + 16, mtu), "cannot be"));
	for (const std::size_t number : {24, 28, 32})
		CHECK(contains(sealed(number, 1), "cannot be"));
	/* The offer is as before. */
	offers.connect();
	CHECK(offers.client);
	CHECK(offers.server);
}

TEST_CASE("a greeting of another version is a sentence", "[offer]")
{
	const Fake fake;
	Offers offers;
	blob bytes = copy_of(offers.theirs.blob());

	bytes[40 + 4] = std::byte(9);
	seal(bytes);
	CHECK(contains(offers.mine.connect(bytes, patience).why(), "version 9 of libpeal's"));
}

TEST_CASE("each failure of an offer is a sentence, and leaves nothing behind", "[offer]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();

	for (const char *function : {"ibv_query_gid_table", "ibv_create_comp_channel",
				     "ibv_create_cq", "ibv_create_qp", "ibv_reg_mr"}) {
		INFO(function);
		fake::fail_next(function, EMFILE);
		CHECK(std::string(device.offer({}).why()) != "");
		CHECK(fake::alive() == "context 1 pd 1 ");
	}
	CHECK(contains(device.offer({}, {.receives = 0}).why(), "must not be 0"));
	fake::set_ports_up(false);
	CHECK(contains(device.offer({}).why(), "no address for RoCEv2 on a port that is up"));
	fake::set_ports_up(true);
	fake::set_addresses(0, {});
	CHECK(device.offer({}).code() == EADDRNOTAVAIL);
	auto gone = std::move(device);
	CHECK(contains(device.offer({}).why(), "moved"));
}

TEST_CASE("each failure of a connect by blobs is a sentence, and leaves nothing behind", "[offer]")
{
	const Fake fake;

	for (const char *function : {"ibv_query_port", "to INIT",
				     fake::has_rings() ? "kick of a receive" : "ibv_post_recv",
				     "to RTR", "to RTS", "ibv_create_ah", "ibv_post_send"}) {
		INFO(function);
		Offers offers;
		CHECK(contains(fake::alive(), "qp 4 "));
		fake::fail_next(function, EIO);
		CHECK(std::string(offers.mine.connect(offers.theirs.blob(), moment).why()) != "");
		CHECK(contains(fake::alive(), "qp 2 "));
		CHECK(contains(offers.mine.connect(offers.theirs.blob(), moment).why(), "used"));
	}
	Offers offers;
	auto other = std::move(offers.mine);
	CHECK(contains(offers.mine.connect(offers.theirs.blob(), moment).why(), "moved"));
	CHECK(offers.mine.blob().empty());
}

TEST_CASE("a device that disappears ends a connection by blobs", "[offer]")
{
	const Fake fake;
	Offers offers;

	offers.connect();
	REQUIRE(offers.client);
	fake::remove_devices();
	CHECK(!offers.client->recv(patience));
	CHECK(!offers.client->batch().commit());
}
