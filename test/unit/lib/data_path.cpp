// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Batches and messages: which requests are posted, and which are refused before. The data path
 * allocates nothing.
 */
#include <cerrno>
#include <cstring>
#include <string>

#include "pair.hpp"

namespace {

std::span<const std::byte> bytes(std::string_view text)
{
	return std::as_bytes(std::span(text));
}

} // namespace

TEST_CASE("a batch is posted by one call, and completes in order", "[data_path]")
{
	const Fake fake;
	Ends ends;
	const peal::slice text = ends.mine->put(0, "hello");
	auto post = ends.client->batch();
	const peal::request first = post.write(text, ends.client->peer().at(100));
	const peal::request second = post.send_imm(5);

	CHECK(post.size() == 2);
	CHECK(fake::posts() == 0);
	REQUIRE(post.commit());
	CHECK(post.size() == 0);
	CHECK(fake::posts() == 1);
	const auto done = ends.client->wait(2, patience);
	CHECK(done);
	REQUIRE(done.size() == 2);
	CHECK(done.begin()[0].request() == first);
	CHECK(done.begin()[1].request() == second);
	CHECK(first != second);
	CHECK(ends.server->recv_imm(patience).value() == 5);
	CHECK(std::string_view(ends.theirs->data() + 100, 5) == "hello");
}

TEST_CASE("a commit with a deadline waits for all requests of the connection", "[data_path]")
{
	const Fake fake;
	Ends ends;
	auto post = ends.client->batch();

	post.send_imm(1);
	REQUIRE(post.commit());
	fake::hold();
	post.send_imm(2);
	post.send_imm(3);
	const peal::status late = post.commit(moment);
	CHECK(late.code() == ETIMEDOUT);
	CHECK(contains(late.why(), "have not completed in time"));
	fake::resume();
	/* The commit of an empty batch waits for the earlier requests. */
	CHECK(post.commit(patience));
	CHECK(ends.client->take().size() == 0);
	CHECK(contains(ends.client->wait(1, patience).why(), "more completions than"));
	for (unsigned sent = 1; sent <= 3; ++sent)
		CHECK(ends.server->recv_imm(patience).value() == sent);
}

TEST_CASE("a commit with a deadline says why a request failed or was not posted", "[data_path]")
{
	const Fake fake;
	Ends ends;
	auto post = ends.client->batch();

	post.send(ends.mine->part(4096, 1));
	const peal::status refused = post.commit(patience);
	CHECK(refused.code() == EINVAL);
	CHECK(contains(refused.why(), "its memory"));
	CHECK(fake::posts() == 0);
	fake::fail_next_request(IBV_WC_REM_ACCESS_ERR, 0);
	post.write(ends.mine->part(0, 1), ends.client->peer().at(0));
	post.send_imm(1);
	const peal::status failed = post.commit(patience);
	CHECK(failed.code() == EIO);
	CHECK(contains(failed.why(), "peer"));
	CHECK(post.commit(patience).code() == ENOTCONN);
	auto moved = std::move(post);
	CHECK(post.commit(patience).code() == EBUSY);
}

TEST_CASE("a batch without a commit posts nothing", "[data_path]")
{
	const Fake fake;
	Ends ends;

	{
		auto post = ends.client->batch();
		post.send_imm(1);
	}
	auto post = ends.client->batch();
	post.send_imm(2);
	post.abort();
	CHECK(post.commit());
	CHECK(fake::posts() == 0);
	CHECK(contains(ends.client->wait(1, patience).why(), "more completions than"));
	post.send_imm(3);
	REQUIRE(post.commit());
	CHECK(ends.server->recv_imm(patience).value() == 3);
	CHECK(ends.client->wait(1, patience));
}

TEST_CASE("every operation does what it says", "[data_path]")
{
	const Fake fake;
	Ends ends;
	const peal::region &there = ends.client->peer();
	auto numbers = ends.device->alloc<std::uint64_t>(3).value();
	auto post = ends.client->batch();

	std::memcpy(ends.theirs->data() + 1000, "from there", 10);
	post.read(ends.mine->part(0, 10), there.at(1000));
	post.write_inline(bytes("inline"), there.at(2000));
	post.fetch_add(numbers.part(0, 1), there.at(8), 5);
	post.compare_swap(numbers.part(1, 1), there.at(8), 5, 77);
	post.compare_swap(numbers.part(2, 1), there.at(8), 5, 99);
	post.send(ends.mine->put(500, "a message"));
	post.send_imm(ends.mine->put(600, "with a value"), 42);
	post.write_imm(ends.mine->put(700, "written"), there.at(3000), 43);
	post.send_inline(bytes("small"));
	post.send(ends.mine->part(0, 0));
	REQUIRE(post.commit());
	CHECK(ends.client->wait(10, patience));
	CHECK(std::string_view(ends.mine->data(), 10) == "from there");
	CHECK(std::string_view(ends.theirs->data() + 2000, 6) == "inline");
	CHECK(numbers[0] == 0);
	CHECK(numbers[1] == 5);
	CHECK(numbers[2] == 77);

	auto first = ends.server->recv(patience).value();
	CHECK(first.text() == "a message");
	CHECK(!first.imm());
	CHECK(first.written() == 0);
	auto second = ends.server->recv(patience).value();
	CHECK(second.text() == "with a value");
	CHECK(second.imm() == 42u);
	auto third = ends.server->recv(patience).value();
	CHECK(third.bytes().empty());
	CHECK(third.imm() == 43u);
	CHECK(third.written() == 7);
	CHECK(std::string_view(ends.theirs->data() + 3000, 7) == "written");
	CHECK(ends.server->recv(patience).value().text() == "small");
	CHECK(ends.server->recv(patience).value().bytes().empty());
	CHECK(first.text() == "a message");
}

TEST_CASE("inline data may go before the commit", "[data_path]")
{
	const Fake fake;
	Ends ends;
	auto post = ends.client->batch();

	for (char letter = 'a'; letter < 'd'; ++letter) {
		std::string text(64, letter);

		post.send_inline(bytes(text));
	}
	REQUIRE(post.commit());
	CHECK(fake::last_inline_flags() == IBV_SEND_INLINE);
	for (char letter = 'a'; letter < 'd'; ++letter)
		CHECK(ends.server->recv(patience).value().text() == std::string(64, letter));
	CHECK(ends.client->wait(3, patience));
}

TEST_CASE("a request that cannot be right keeps its whole batch from being posted", "[data_path]")
{
	const Fake fake;
	Ends ends({.receive_bytes = 100}, peal::remote_write);
	auto large = ends.device->alloc<char>(2 << 20).value();
	const peal::region &there = ends.client->peer();
	const peal::slice eight = ends.mine->part(0, 8);
	auto post = ends.client->batch();
	const auto why = [&](auto add) {
		post.send_imm(1);
		CHECK(add() == peal::request::none);
		post.send_imm(2);
		return std::string(post.commit().why());
	};

	CHECK(contains(why([&] { return post.send(ends.mine->part(4096, 1)); }), "its memory"));
	CHECK(contains(why([&] { return post.write(eight, there.at(4097)); }), "peer's region"));
	CHECK(contains(why([&] { return post.write(eight, there.at(4089)); }), "shorter than"));
	CHECK(contains(why([&] { return post.write_inline(bytes("12345678"), there.at(4089)); }),
		       "shorter than"));
	CHECK(contains(why([&] { return post.read(eight, there.at(0)); }), "this right"));
	CHECK(contains(why([&] { return post.fetch_add(eight, there.at(0), 1); }), "this right"));
	CHECK(contains(why([&] { return post.fetch_add(eight, there.at(4), 1); }),
		       "multiple of 8"));
	CHECK(contains(why([&] { return post.fetch_add(ends.mine->part(0, 4), there.at(0), 1); }),
		       "8 bytes"));
	CHECK(contains(why([&] { return post.send(ends.mine->part(0, 101)); }), "receive_bytes"));
	CHECK(contains(why([&] { return post.send_inline(bytes(std::string(65, 'x'))); }),
		       "inline_bytes"));
	CHECK(contains(why([&] { return post.write(large.all(), there.at(0)); }), "in parts"));
	CHECK(fake::posts() == 0);
	/* The next batch is not affected. */
	post.send(ends.mine->part(0, 100));
	REQUIRE(post.commit());
	CHECK(ends.client->wait(1, patience));
	CHECK(ends.server->recv(patience).value().bytes().size() == 100);
	/* The client has shared a region without rights, so the server may not write to it. */
	auto back = ends.server->batch();
	back.write(ends.theirs->part(0, 1), ends.server->peer().at(0));
	CHECK(contains(back.commit().why(), "this right"));
}

TEST_CASE("a full queue is a sentence, and a wait makes room", "[data_path]")
{
	const Fake fake;
	Ends ends({.sends = 4});
	auto post = ends.client->batch();

	for (int i = 0; i < 4; ++i)
		post.send_imm(i);
	REQUIRE(post.commit());
	CHECK(post.send_imm(4) == peal::request::none);
	CHECK(contains(post.commit().why(), "wait for completions"));
	CHECK(ends.client->wait(1, patience));
	CHECK(post.send_imm(4) != peal::request::none);
	CHECK(post.send_imm(5) == peal::request::none);
	CHECK(!post.commit());
	CHECK(fake::posts() == 1);
	CHECK(ends.client->wait(3, patience).size() == 3);
}

TEST_CASE("there is one batch at a time", "[data_path]")
{
	const Fake fake;
	Ends ends;

	{
		auto post = ends.client->batch();
		auto second = ends.client->batch();

		post.send_imm(1);
		CHECK(second.send_imm(2) == peal::request::none);
		CHECK(contains(second.commit().why(), "another batch"));
		CHECK(second.size() == 0);
		CHECK(post.size() == 1);
		auto moved = std::move(post);
		CHECK(moved.size() == 1);
		CHECK(contains(post.commit().why(), "moved"));
	}
	CHECK(ends.client->batch().commit());
}

TEST_CASE("what a device did not take has no completion", "[data_path][verbs]")
{
	const Fake fake;
	Ends ends;
	auto post = ends.client->batch();

	post.send_imm(1);
	post.send_imm(2);
	fake::fail_next("ibv_post_send", ENOMEM);
	CHECK(contains(post.commit().why(), "took 0 of 2 requests"));
	CHECK(contains(ends.client->wait(1, patience).why(), "more completions than"));
}

TEST_CASE("a message of the right length is an object", "[data_path]")
{
	struct order {
		std::uint32_t number;
		char name[8];
	};
	const Fake fake;
	Ends ends;
	const order sent{7, "seven"};
	auto post = ends.client->batch();

	post.send_inline(std::as_bytes(std::span(&sent, 1)));
	post.send_inline(bytes("other"));
	post.send_imm(1);
	REQUIRE(post.commit(patience));
	auto first = ends.server->recv(patience).value();
	const auto got = first.as<order>();
	REQUIRE(got);
	CHECK(got->number == 7);
	CHECK(std::string(got->name) == "seven");
	CHECK(!first.as<std::uint32_t>());
	CHECK(!ends.server->recv(patience).value().as<order>());
	/* Neither has a message without bytes. */
	CHECK(!ends.server->recv(patience).value().as<order>());
}

TEST_CASE("a message keeps its buffer until it is destroyed", "[data_path]")
{
	const Fake fake;
	Ends ends({.receives = 2});
	auto post = ends.client->batch();

	for (const char *text : {"one", "two", "three"})
		post.send_inline(bytes(text));
	REQUIRE(post.commit());
	std::optional<peal::message> first(ends.server->recv(patience).value());
	std::optional<peal::message> second(ends.server->recv(patience).value());
	/* The third waits for a buffer, and none is written again. */
	CHECK(contains(ends.server->recv(0s).why(), "no message has come in time"));
	CHECK(first->text() == "one");
	CHECK(second->text() == "two");
	first.reset();
	CHECK(ends.server->recv(patience).value().text() == "three");
	CHECK(second->text() == "two");
	CHECK(ends.client->wait(3, patience));

	post.send_inline(bytes("four"));
	REQUIRE(post.commit());
	CHECK(ends.client->wait(1, patience));
	*second = ends.server->recv(patience).value();
	CHECK(second->text() == "four");
}

TEST_CASE("a message without an immediate value is left for recv", "[data_path]")
{
	const Fake fake;
	Ends ends;
	auto post = ends.client->batch();

	post.send_inline(bytes("text"));
	post.send_imm(9);
	REQUIRE(post.commit());
	CHECK(contains(ends.server->recv_imm(patience).why(), "take it with recv()"));
	CHECK(ends.server->recv(patience).value().text() == "text");
	CHECK(ends.server->recv_imm(patience).value() == 9);
	CHECK(ends.client->wait(2, patience));
}

TEST_CASE("a long stream passes small queues", "[data_path]")
{
	const Fake fake;
	Ends ends({.sends = 3, .receives = 2});
	unsigned received = 0;

	for (unsigned sent = 0; sent < 1000; sent += 2) {
		auto post = ends.client->batch();

		post.send_imm(sent);
		post.send_imm(sent + 1);
		REQUIRE(post.commit());
		REQUIRE(ends.server->recv_imm(patience).value() == received++);
		REQUIRE(ends.server->recv_imm(patience).value() == received++);
		REQUIRE(ends.client->wait(2, patience).size() == 2);
	}
}

TEST_CASE("the data path allocates nothing", "[data_path]")
{
	const Fake fake;
	Ends ends;
	const peal::slice text = ends.mine->put(0, "hello");
	bool good = true;
	unsigned count = 0;

	{
		const fake::CountAllocations allocations;

		for (int i = 0; i < 100; ++i) {
			auto post = ends.client->batch();

			post.write(text, ends.client->peer().at(0));
			post.send_inline(bytes("inline"));
			post.send(text);
			good = good && post.commit();
			good = good && ends.client->wait(2, patience);
			good = good && ends.client->take();
			good = good && ends.server->recv(patience).value().text() == "inline";
			good = good && ends.server->recv(patience).value().text() == "hello";
			/* Also what sleeps, runs out of time, and says why not. */
			good = good && ends.server->arm() == peal::next_step::sleep;
			good = good && !ends.server->recv(1ms);
			good = good && !ends.client->wait(100, 1ms);
			post.send(ends.mine->part(5000, 1));
			good = good && !post.commit(patience);
			post.send_inline(bytes("last"));
			good = good && post.commit(patience);
			good = good && ends.server->recv(patience).value().text() == "last";
		}
		count = allocations.count();
	}
	CHECK(good);
	CHECK(count == 0);
}

TEST_CASE("data path functions are noexcept", "[data_path]")
{
	peal::connection *connection = nullptr;
	peal::batch *batch = nullptr;
	const peal::slice *slice = nullptr;
	const peal::remote *remote = nullptr;
	const peal::deadline *until = nullptr;

	STATIC_REQUIRE(noexcept(connection->batch()));
	STATIC_REQUIRE(noexcept(batch->commit(*until)));
	STATIC_REQUIRE(noexcept(connection->wait(1, *until)));
	STATIC_REQUIRE(noexcept(connection->take()));
	STATIC_REQUIRE(noexcept(connection->recv(*until)));
	STATIC_REQUIRE(noexcept(connection->arm()));
	STATIC_REQUIRE(noexcept(batch->write(*slice, *remote)));
	STATIC_REQUIRE(noexcept(batch->commit()));
	STATIC_REQUIRE(std::is_nothrow_move_constructible_v<peal::connection>);
	STATIC_REQUIRE(std::is_nothrow_move_constructible_v<peal::message>);
	STATIC_REQUIRE(std::is_nothrow_destructible_v<peal::connection>);
}
