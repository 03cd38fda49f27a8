// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What only rings of peal can meet: rings that the provider does not give, a doorbell that fails,
 * and a device that goes. The other tests of the data path run over rings, too (meson.build).
 */
#include <cerrno>
#include <string>

#include "pair.hpp"

namespace {

struct Rings : Fake {
	Rings() { fake::give_rings(); }
};

} // namespace

TEST_CASE("a doorbell that fails has posted the batch nevertheless", "[rings]")
{
	const Rings fake;
	Ends ends;
	auto post = ends.client->batch();

	post.send_imm(1);
	post.send_imm(2);
	fake::fail_next("kick", ENOMEM);
	CHECK(contains(post.commit().why(), "took 2 of 2 requests"));
	CHECK(contains(ends.client->wait(2, moment).why(), "have not completed in time"));
	/* The next doorbell tells of all of them. */
	const peal::request third = post.send_imm(3);
	REQUIRE(post.commit());
	const auto done = ends.client->wait(3, patience);
	CHECK(done);
	REQUIRE(done.size() == 3);
	CHECK(done.begin()[2].request() == third);
	for (unsigned sent = 1; sent <= 3; ++sent)
		CHECK(ends.server->recv_imm(patience).value() == sent);
}

TEST_CASE("a device that has gone posts nothing", "[rings]")
{
	const Rings fake;
	Ends ends;
	auto post = ends.client->batch();

	post.send_imm(1);
	fake::remove_devices();
	const peal::status failed = post.commit();
	CHECK(failed.code() == EIO);
	CHECK(contains(failed.why(), "took 0 of 1 requests"));
	CHECK(contains(ends.client->wait(1, patience).why(), "more completions than"));
	CHECK(ends.client->recv(patience).code() == ENOTCONN);
}

TEST_CASE("a wait takes no more completions than it returns", "[rings]")
{
	const Rings fake;
	Ends ends({.sends = 4});
	auto post = ends.client->batch();
	unsigned next = 1;

	/* The rings and the names go round many times. */
	for (unsigned round = 0; round < 100; ++round) {
		peal::request names[4];

		for (peal::request &name : names) {
			name = post.send_imm(next++);
			CHECK(name == peal::request(next - 1));
		}
		REQUIRE(post.commit());
		CHECK(post.write(ends.mine->part(0, 1), ends.client->peer().at(0)) ==
		      peal::request::none);
		CHECK(contains(post.commit().why(), "queue is full"));
		const auto first = ends.client->wait(1, patience);
		REQUIRE(first.size() == 1);
		CHECK(first.begin()->request() == names[0]);
		const auto two = ends.client->wait(2, 60s);
		REQUIRE(two.size() == 2);
		CHECK(two.begin()[1].request() == names[2]);
		const auto rest = ends.client->take();
		REQUIRE(rest.size() == 1);
		CHECK(rest.begin()->request() == names[3]);
		for (unsigned i = 4; i--;)
			CHECK(ends.server->recv_imm(patience).value() == next - 1 - i);
	}
}

TEST_CASE("completions stay readable while the connection receives", "[rings]")
{
	const Rings fake;
	Ends ends;
	auto post = ends.client->batch();
	auto answer = ends.server->batch();
	peal::request names[4];

	for (unsigned i = 0; i < 2; ++i)
		names[i] = post.send_imm(i);
	REQUIRE(post.commit());
	const auto first = ends.client->wait(2, patience);
	for (unsigned i = 2; i < 4; ++i)
		names[i] = post.send_imm(i);
	REQUIRE(post.commit());
	/* This polls the later requests, too. */
	answer.send_imm(5);
	REQUIRE(answer.commit());
	CHECK(ends.client->recv_imm(patience).value() == 5);
	REQUIRE(first);
	REQUIRE(first.size() == 2);
	CHECK(first.begin()[0].request() == names[0]);
	CHECK(first.begin()[1].request() == names[1]);
	for (unsigned i = 2; i < 4; ++i) {
		const auto later = ends.client->wait(1, patience);
		REQUIRE(later.size() == 1);
		CHECK(*later.begin());
		CHECK(later.begin()->request() == names[i]);
	}
	CHECK(contains(ends.client->wait(1, patience).why(), "more completions than"));
}

TEST_CASE("a failure among completions keeps those around it", "[rings]")
{
	const Rings fake;
	Ends ends;
	auto post = ends.client->batch();

	fake::hold();
	const peal::request good = post.send_imm(1);
	const peal::request bad = post.send_imm(2);
	const peal::request behind = post.send_imm(3);
	REQUIRE(post.commit());
	fake::resume(1);
	fake::fail_next_request(IBV_WC_REM_ACCESS_ERR, 0);
	fake::resume();
	const auto done = ends.client->wait(3, patience);
	REQUIRE(done.size() == 3);
	CHECK(done.begin()[0]);
	CHECK(done.begin()[0].request() == good);
	CHECK(done.begin()[1].verbs_status() == IBV_WC_REM_ACCESS_ERR);
	CHECK(done.begin()[1].request() == bad);
	CHECK(done.begin()[2].verbs_status() == IBV_WC_WR_FLUSH_ERR);
	CHECK(done.begin()[2].request() == behind);
	post.send_imm(4);
	CHECK(post.commit().code() == ENOTCONN);
}

TEST_CASE("rings that a provider does not give keep a connection from being made", "[rings]")
{
	const Rings fake;
	auto device = peal::open("fake0").value();
	auto mine = device.alloc<char>(4096).value();
	auto listener = device.listen(0).value();

	for (const char *call : {"pealdv_query_device", "pealdv_take_cq", "pealdv_take_queue"}) {
		INFO(call);
		fake::fail_next(call, EBUSY);
		const auto made = device.connect(fake::here, listener.port(), {}, moment);
		CHECK(contains(made.why(), "PEAL_LIBIBVERBS=1"));
	}
}

TEST_CASE("a batch may outlive its connection and its device", "[rings]")
{
	const Rings fake;
	std::optional<Ends> ends(std::in_place);
	auto post = ends->client->batch();

	post.send_imm(1);
	ends->client.reset();
	post.send_imm(2);
	CHECK(post.commit().code() == ENOTCONN);
	ends.reset();
	CHECK(post.commit().code() == ENOTCONN);
}
