// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How two ends find each other, what happens if they do not, and in which order things may end.
 */
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "pair.hpp"

namespace {

/* Connects to a listener whose accept runs in another thread, and returns both sentences. */
std::pair<std::string, std::string> attempt(peal::device &device, const peal::options &theirs = {},
					    const peal::options &mine = {})
{
	auto listener = device.listen(0).value();
	std::string accepted;
	std::thread accepts([&] { accepted = listener.accept({}, 500ms, theirs).why(); });
	std::string connected = device.connect(fake::here, listener.port(), {}, 500ms, mine).why();

	accepts.join();
	return {connected, accepted};
}

} // namespace

TEST_CASE("both ends learn what the other shares", "[connect]")
{
	const Fake fake;
	Ends ends;

	CHECK(ends.client->peer().size() == 4096);
	CHECK(ends.client->peer().key() == ends.theirs->share().key());
	CHECK(ends.client->peer().address() == ends.theirs->share().address());
	CHECK(ends.client->peer().rights() ==
	      (peal::remote_write | peal::remote_read | peal::remote_atomic));
	CHECK(ends.server->peer().rights() == peal::rights::none);
}

TEST_CASE("GID and MTU are those of the route, and READs are as many as both take", "[connect]")
{
	const Fake fake;
	Ends ends;
	const ibv_qp_attr route = fake::last_route();

	CHECK(route.ah_attr.grh.sgid_index == 5);
	CHECK(route.path_mtu == IBV_MTU_2048);
	CHECK(ends.client->mtu() == 2048);
	CHECK(ends.server->mtu() == 2048);
	CHECK(route.min_rnr_timer == 12);
	CHECK(ends.client->local_gid() == peal::gid{std::byte{0},
						    {},
						    {},
						    {},
						    {},
						    {},
						    {},
						    {},
						    {},
						    {},
						    {},
						    {},
						    {},
						    {},
						    std::byte{1},
						    std::byte{5}});
	CHECK(ends.client->peer_gid()[15] == std::byte{9});
	CHECK(ends.client->qp_number() != ends.server->qp_number());
}

TEST_CASE("a connection without a GID of its own shows none", "[connect]")
{
	const Fake fake;

	fake::fail_next("ibv_query_gid", EIO);
	Ends ends;
	/* The accepting end is the first that asks. */
	CHECK(ends.server->local_gid() == peal::gid{});
	CHECK(ends.server->peer_gid() == peal::gid{});
	CHECK(ends.client->local_gid() != peal::gid{});
}

TEST_CASE("the device that reaches a host is opened", "[connect]")
{
	const Fake fake;
	const auto why = [](const char *host, peal::deadline until = patience) {
		return std::string(peal::open_for(host, until).why());
	};

	CHECK(std::string(peal::open_for(fake::here, patience).value().name()) == "fake0");
	CHECK(std::string(peal::open_for(fake::elsewhere, patience).value().name()) == "fake1");
	CHECK(std::string(peal::open_for(fake::sleepy, patience).value().name()) == "fake0");
	CHECK(contains(why(fake::unreachable), "no RDMA device of this host reaches"));
	CHECK(contains(why(fake::absent, moment), "the network of this host knows no 10.0.0.251"));
	CHECK(contains(why(fake::silent, moment), "the network of this host knows no 10.0.0.253"));
	CHECK(contains(why("nowhere.example"), "is not known"));
	for (const char *function : {"rdma_create_event_channel", "rdma_create_id"}) {
		fake::fail_next(function, EMFILE);
		CHECK(contains(why(fake::here), "rdma_ucm"));
	}
	fake::fail_next("rdma_create_event_channel", ENODEV);
	CHECK(contains(why(fake::here), "there is no RDMA device; make one"));
	CHECK(fake::alive() == "");
}

TEST_CASE("a device says whether it has atomics", "[connect]")
{
	const Fake fake;

	CHECK(peal::open("fake0")->has_atomics());
	fake::set_atomics(false);
	auto device = peal::open("fake0").value();
	CHECK(!device.has_atomics());
	auto other = std::move(device);
	CHECK(!device.has_atomics());
}

TEST_CASE("each failure of a connect is a sentence, and leaves nothing behind", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	const auto to = [&](const char *host, peal::deadline until = patience) {
		return std::string(device.connect(host, 4711, {}, until).why());
	};

	CHECK(contains(to(fake::here), "accepts on port 4711; start it first"));
	CHECK(device.connect(fake::here, 4711, {}, patience).code() == ECONNREFUSED);
	CHECK(contains(to(fake::known_name), "accepts on port 4711; start it first"));
	CHECK(contains(to(fake::sleepy), "accepts on port 4711; start it first"));
	CHECK(contains(to(fake::absent, moment), "the network of this host knows no 10.0.0.251"));
	CHECK(contains(to(fake::unreachable), "no RDMA device of this host reaches"));
	CHECK(contains(to(fake::elsewhere), "is reached by fake1, not by fake0"));
	CHECK(contains(to(fake::silent, moment), "the network of this host knows no 10.0.0.253"));
	CHECK(contains(to("nowhere.example"), "is not known"));
	fake::set_ports_up(false);
	CHECK(contains(to(fake::here), "port 1 of fake0, by which 10.0.0.1 is reached, is not up"));
	fake::set_ports_up(true);
	const struct {
		const char *function;
		const char *sentence;
	} rows[] = {
		{"rdma_create_event_channel", "rdma_ucm"},
		{"rdma_create_id", "rdma_ucm"},
		{"rdma_resolve_addr", "no RDMA device"},
		{"rdma_resolve_route", "no route"},
		{"ibv_create_comp_channel", "completion"},
		{"ibv_create_cq", "completion"},
		{"ibv_create_qp", "queue pair"},
		{"ibv_query_port", "port"},
		{"ibv_reg_mr", "ulimit -l"},
		{"rdma_init_qp_attr", "queue pair"},
		{"to INIT", "queue pair"},
		{fake::has_rings() ? "kick of a receive" : "ibv_post_recv", "no receive"},
		{"rdma_connect", "cannot connect"},
	};
	for (const auto &row : rows) {
		INFO(row.function);
		fake::fail_next(row.function, EMFILE);
		CHECK(contains(to(fake::here), row.sentence));
		CHECK(fake::alive() == "context 1 pd 1 ");
	}
}

TEST_CASE("a connect that fails late tells the peer, and leaves nothing behind", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();

	for (const char *function : {"to RTR", "to RTS", "rdma_accept", "rdma_migrate_id"}) {
		INFO(function);
		/* The accepting end is the first that gets there. */
		fake::fail_next(function, EINVAL);
		const auto [connected, accepted] = attempt(device);
		CHECK(connected != "");
		CHECK(accepted != "");
		CHECK(fake::alive() == "context 1 pd 1 ");
	}
	fake::fail_next("rdma_establish", EINVAL);
	const auto [connected, accepted] = attempt(device);
	CHECK(contains(connected, "cannot tell"));
	CHECK(accepted != "");
	CHECK(fake::alive() == "context 1 pd 1 ");
}

TEST_CASE("a peer that never accepts costs no more than the deadline", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto listener = device.listen(0).value();

	CHECK(contains(device.connect(fake::here, listener.port(), {}, moment).why(),
		       "has not answered in time"));
}

TEST_CASE("an accept without a peer ends at its deadline", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();

	CHECK(contains(device.accept(4711, {}, moment).why(),
		       "no peer has connected to port 4711"));
	auto first = device.listen(4711).value();
	CHECK(contains(device.listen(4711).why(), "choose another one"));
	CHECK(first.port() == 4711);
	/* Without IPv6. */
	fake::fail_next("rdma_bind_addr", EAFNOSUPPORT);
	CHECK(device.listen(4712));
	fake::fail_next("rdma_listen", EIO);
	CHECK(contains(device.listen(4713).why(), "cannot be listened on"));
	auto moved = std::move(first);
	CHECK(contains(first.accept({}, moment).why(), "moved"));
	CHECK(first.port() == 0);
}

TEST_CASE("an accept outlives the peers that fail while they connect", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto listener = device.listen(0).value();
	const auto to_listener = [&](peal::deadline until) {
		return std::string(device.connect(fake::here, listener.port(), {}, until).why());
	};
	std::vector<std::uint8_t> other_version(56);
	std::memcpy(other_version.data(), "peal\2", 5);
	std::string accepted = "not yet";

	/* This one has gone before the accept. */
	CHECK(contains(to_listener(moment), "has not answered in time"));
	std::thread accepts([&] { accepted = listener.accept({}, patience).why(); });
	fake::fail_next("rdma_establish", EINVAL);
	CHECK(contains(to_listener(patience), "cannot tell"));
	fake::greet_with(other_version);
	CHECK(contains(to_listener(patience), "refuses"));
	/* The call of the accepting end comes first. */
	for (const char *function : {"to RTR", "to RTS", "rdma_accept"}) {
		INFO(function);
		fake::fail_next(function, EINVAL);
		CHECK(to_listener(500ms) != "");
	}
	CHECK(to_listener(patience) == "");
	accepts.join();
	CHECK(accepted == "");
}

TEST_CASE("a silent peer uses up only half of an accept", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto listener = device.listen(0).value();
	std::string accepted;
	std::thread accepts([&] { accepted = listener.accept({}, 4s).why(); });

	fake::lose_established();
	auto silent = device.connect(fake::here, listener.port(), {}, patience);
	auto second = device.connect(fake::here, listener.port(), {}, patience);
	accepts.join();
	CHECK(silent);
	CHECK(second);
	CHECK(accepted == "");
}

TEST_CASE("a peer that closes before its confirmation comes has connected", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto listener = device.listen(0).value();
	std::optional<peal::connection> server;
	std::thread accepts([&] { server.emplace(listener.accept({}, patience).value()); });

	fake::lose_established();
	{
		auto client = device.connect(fake::here, listener.port(), {}, patience).value();

		auto post = client.batch();

		post.send_imm(7);
		CHECK(post.commit());
		for (auto &done : client.wait(1, patience))
			CHECK(done);
	}
	accepts.join();
	CHECK(server->recv_imm(patience).value() == 7);
	CHECK(contains(server->recv_imm(patience).why(), "the peer has closed the connection"));
}

TEST_CASE("an accept that ends says why the last peer failed", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	std::vector<std::uint8_t> other_version(56);
	std::memcpy(other_version.data(), "peal\2", 5);

	fake::greet_with(other_version);
	CHECK(contains(attempt(device).second, "has version 2 of libpeal's greeting"));
	fake::lose_established();
	{
		auto listener = device.listen(0).value();
		std::string accepted;
		std::thread accepts([&] { accepted = listener.accept({}, 200ms).why(); });
		auto silent = device.connect(fake::here, listener.port(), {}, patience);
		accepts.join();
		CHECK(contains(accepted, "it has not answered"));
	}
	fake::fail_next("rdma_establish", EINVAL);
	CHECK(contains(attempt(device).second, "it has given up"));
	/* Not only this peer: the device fails. */
	fake::fail_next("to RTR", EIO);
	const std::string why = attempt(device).second;
	CHECK(contains(why, "does not get ready"));
	CHECK(!contains(why, "in time"));
}

TEST_CASE("a request that comes by another device is refused", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto other = peal::open("fake1").value();
	auto listener = device.listen(0).value();
	std::string accepted;
	std::thread accepts([&] { accepted = listener.accept({}, 200ms).why(); });
	const auto refused = other.connect(fake::elsewhere, listener.port(), {}, patience);

	accepts.join();
	CHECK(contains(refused.why(), "refuses"));
	CHECK(refused.code() == ECONNRESET);
	CHECK(contains(accepted, "no peer has connected"));
}

TEST_CASE("the deadline covers the look-up of the name", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	const std::string why = device.connect(fake::slow_name, 1, {}, moment).why();

	fake::answer_slow_name();
	CHECK(contains(why, "was not found in time"));
}

TEST_CASE("a peer without libpeal shares nothing, and one of another version is refused",
	  "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	std::vector<std::uint8_t> greeting(196);
	const auto connect = [&] {
		auto listener = device.listen(0).value();
		std::thread accepts([&] { (void)listener.accept({}, 500ms).code(); });
		auto made = device.connect(fake::here, listener.port(), {}, 500ms);

		accepts.join();
		return made;
	};

	fake::answer_with(greeting);
	{
		auto other = connect();
		REQUIRE(other);
		CHECK(other->peer().size() == 0);
	}
	fake::answer_with({1, 2, 3});
	CHECK(connect());
	std::memcpy(greeting.data(), "peal\2", 5);
	fake::answer_with(greeting);
	CHECK(contains(connect().why(), "install one libpeal on both hosts"));
}

TEST_CASE("options that the device has not got are a sentence", "[connect]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();

	CHECK(contains(attempt(device, {}, {.sends = 2000}).first, "at most 1024"));
	CHECK(contains(attempt(device, {}, {.receives = 0}).first, "must not be 0"));
	const auto [connected, accepted] = attempt(device, {.receives = 2000});
	CHECK(contains(connected, "refuses"));
	CHECK(contains(accepted, "at most 1024"));
}

TEST_CASE("everything may end in any order", "[connect]")
{
	/* The bits say what ends first, the rest ends afterwards. */
	for (unsigned first = 0; first < 16; ++first) {
		const Fake fake;
		Ends ends;

		INFO(first);
		auto post = ends.client->batch();
		post.send_inline(std::as_bytes(std::span("x", 1)));
		REQUIRE(post.commit());
		auto message = ends.server->recv(patience).value();
		if (first & 1)
			ends.device.reset();
		if (first & 2)
			ends.mine.reset(), ends.theirs.reset();
		if (first & 4)
			ends.client.reset();
		if (first & 8)
			ends.server.reset();
		/* In the last case only the message and the batch exist now. */
		CHECK(message.text() == "x");
		post.send_imm(1);
		if (first & 4)
			CHECK(contains(post.commit().why(), "closed"));
	}
}

TEST_CASE("a connection that is replaced closes, also while its messages live", "[connect]")
{
	const Fake fake;
	Ends first, second;
	auto post = first.client->batch();

	post.send_inline(std::as_bytes(std::span("x", 1)));
	REQUIRE(post.commit());
	auto message = first.server->recv(patience).value();
	*first.server = std::move(*second.server);
	CHECK(contains(first.client->recv(patience).why(), "the peer has closed"));
	CHECK(message.text() == "x");
	CHECK(first.server->peer().rights() == peal::rights::none);
	CHECK(second.client->arm() == peal::next_step::sleep);
}

TEST_CASE("a connection that was moved from says so", "[connect]")
{
	const Fake fake;
	Ends ends;
	peal::connection other = std::move(*ends.client);

	CHECK(contains(ends.client->wait(1, patience).why(), "moved"));
	CHECK(contains(ends.client->take().why(), "moved"));
	CHECK(contains(ends.client->recv(patience).why(), "moved"));
	CHECK(contains(ends.client->recv_imm(patience).why(), "moved"));
	CHECK(contains(ends.client->batch().commit().why(), "moved"));
	CHECK(ends.client->fd() == -1);
	CHECK(ends.client->arm() == peal::next_step::close);
	CHECK(ends.client->peer().size() == 0);
	CHECK(ends.client->mtu() == 0);
	CHECK(ends.client->qp_number() == 0);
	CHECK(ends.client->local_gid() == peal::gid{});
	CHECK(ends.client->peer_gid() == peal::gid{});
	ends.client->close();
	CHECK(other.peer().size() == 4096);
}
