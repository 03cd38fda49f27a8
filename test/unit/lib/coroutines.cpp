// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Connections in an event loop: each coroutine goes on with what it waited for, at its deadline, or
 * when the connection has ended. Coroutines may be destroyed wherever they wait.
 */
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "pair.hpp"
#include "peal/co.hpp"

using peal::co::task;

namespace {

std::span<const std::byte> bytes(std::string_view text)
{
	return std::as_bytes(std::span(text));
}

/* Runs coroutines to their ends. The lambdas live as long. */
template <class... Bodies>
void run(peal::co::loop &loop, const Bodies &...bodies)
{
	(loop.spawn(bodies()).value(), ...);
	REQUIRE(std::string(loop.run(patience).why()) == "");
}

/* Both ends of a connection, in one event loop. */
struct LoopEnds {
	std::optional<peal::device> device;
	std::optional<peal::memory<char>> mine, theirs;
	std::optional<peal::co::loop> loop;
	std::optional<peal::co::connection> client, server;

	explicit LoopEnds(const peal::options &options = {}) : device(peal::open("fake0").value())
	{
		mine.emplace(device->alloc<char>(4096).value());
		theirs.emplace(device->alloc<char>(4096, peal::remote_write | peal::remote_read |
								 peal::remote_atomic)
				       .value());
		loop.emplace(peal::co::make_loop().value());
		connect(options);
	}

	void connect(const peal::options &options)
	{
		auto listener = loop->listen(*device, 0).value();

		run(
			*loop,
			[&]() -> task<> {
				auto made = co_await listener.accept(theirs->share(), patience,
								     options);
				server.emplace(std::move(made).value());
			},
			[&]() -> task<> {
				auto made =
					co_await loop->connect(*device, fake::here, listener.port(),
							       mine->share(), patience, options);
				client.emplace(std::move(made).value());
			});
		REQUIRE(client);
		REQUIRE(server);
	}
};

} // namespace

/* ---- requests and messages ---- */

TEST_CASE("every operation can be awaited", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	auto numbers = ends.device->alloc<std::uint64_t>(2).value();
	std::vector<std::string> failures;

	CHECK(ends.client->peer().key() == ends.theirs->share().key());
	CHECK(ends.client->mtu() == 2048);
	std::memcpy(ends.theirs->data() + 1000, "from there", 10);
	run(
		*ends.loop,
		[&]() -> task<> {
			peal::co::connection &c = *ends.client;
			const peal::region &there = c.peer();
			const auto note = [&](peal::completion done) {
				failures.emplace_back(done.why());
			};

			note(co_await c.write(ends.mine->put(0, "written"), there.at(0), patience));
			note(co_await c.read(ends.mine->part(100, 10), there.at(1000), patience));
			note(co_await c.write_inline(bytes("inline"), there.at(2000), patience));
			note(co_await c.fetch_add(numbers.part(0, 1), there.at(8), 5, patience));
			note(co_await c.compare_swap(numbers.part(1, 1), there.at(8), 5, 77,
						     patience));
			note(co_await c.send(ends.mine->put(500, "a message"), patience));
			note(co_await c.send_imm(ends.mine->put(600, "with a value"), 42,
						 patience));
			note(co_await c.write_imm(ends.mine->put(700, "late"), there.at(3000), 43,
						  patience));
			note(co_await c.send_inline(bytes("small"), patience));
			note(co_await c.send_imm(44, patience));
		},
		[&]() -> task<> {
			auto message = co_await ends.server->recv(patience);
			CHECK(message.value().text() == "a message");
			auto second = co_await ends.server->recv(patience);
			CHECK(second.value().text() == "with a value");
			CHECK(second->imm() == 42u);
			auto third = co_await ends.server->recv(patience);
			CHECK(third.value().written() == 4);
			auto fourth = co_await ends.server->recv_imm(patience);
			CHECK(contains(fourth.why(), "take it with recv()"));
			auto fifth = co_await ends.server->recv(patience);
			CHECK(fifth.value().text() == "small");
			auto sixth = co_await ends.server->recv_imm(patience);
			CHECK(sixth.value() == 44);
		});
	CHECK(failures == std::vector<std::string>(10));
	CHECK(std::string_view(ends.theirs->data(), 7) == "written");
	CHECK(std::string_view(ends.mine->data() + 100, 10) == "from there");
	CHECK(std::string_view(ends.theirs->data() + 2000, 6) == "inline");
	CHECK(numbers[1] == 5);
}

TEST_CASE("requests that wait side by side complete in order", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	std::vector<int> order;

	fake::hold();
	run(
		*ends.loop,
		[&]() -> task<> {
			auto first = ends.client->send_imm(1, patience);
			auto second = ends.client->send_imm(2, patience);
			const peal::completion b = co_await second;
			order.push_back(2);
			const peal::completion a = co_await first;
			CHECK(a);
			CHECK(b);
			CHECK(static_cast<std::uint64_t>(a.request()) + 1 ==
			      static_cast<std::uint64_t>(b.request()));
		},
		[&]() -> task<> {
			const bool good = bool(co_await ends.client->send_imm(3, patience));
			CHECK(good);
			order.push_back(3);
		},
		[&]() -> task<> {
			fake::resume();
			for (std::uint32_t i = 1; i <= 3; ++i) {
				auto imm = co_await ends.server->recv_imm(patience);
				CHECK(imm.value() == i);
			}
		});
	CHECK(order == std::vector{2, 3});
}

TEST_CASE("a batch is posted by one call and awaited as one", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;

	run(*ends.loop, [&]() -> task<> {
		auto post = ends.client->batch();
		post.write(ends.mine->put(0, "hello"), ends.client->peer().at(10));
		const peal::request last = post.send_imm(5);
		auto sent = post.commit(patience);
		CHECK(fake::posts() == 1);
		CHECK(post.send_imm(6) == peal::request::none);
		CHECK(post.size() == 0);
		const peal::completion done = co_await sent;
		CHECK(done);
		CHECK(done.request() == last);
		const peal::completion again = co_await post.commit(patience);
		CHECK(contains(again.why(), "was committed"));
		const peal::completion nothing = co_await ends.client->batch().commit(patience);
		CHECK(nothing);
		auto imm = co_await ends.server->recv_imm(patience);
		CHECK(imm.value() == 5);
	});
	CHECK(std::string_view(ends.theirs->data() + 10, 5) == "hello");
}

TEST_CASE("requests of others wait while a batch has no commit", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	std::vector<std::uint32_t> came;

	run(
		*ends.loop,
		[&]() -> task<> {
			auto post = ends.client->batch();
			post.send_imm(1);
			auto second = ends.client->batch();
			const peal::completion refused = co_await second.commit(patience);
			CHECK(contains(refused.why(), "another batch"));
			const peal::completion none = co_await ends.client->send_imm(9, moment);
			CHECK(contains(none.why(), "not posted in time"));
			const peal::completion done = co_await post.commit(patience);
			CHECK(done);
		},
		[&]() -> task<> {
			const peal::completion done = co_await ends.client->send_imm(2, patience);
			CHECK(done);
		},
		[&]() -> task<> {
			while (came.size() < 2) {
				auto imm = co_await ends.server->recv_imm(patience);
				came.push_back(imm.value());
			}
		});
	CHECK(came == std::vector<std::uint32_t>{1, 2});
	/* A batch that goes without a commit lets them pass, too. */
	run(
		*ends.loop,
		[&]() -> task<> {
			auto post = ends.client->batch();
			post.send_imm(3);
			co_await ends.loop->sleep(1ms);
		},
		[&]() -> task<> {
			const peal::completion done = co_await ends.client->send_imm(4, patience);
			CHECK(done);
			auto imm = co_await ends.server->recv_imm(patience);
			CHECK(imm.value() == 4);
		});
}

TEST_CASE("coroutines share a connection whose queue is short", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends({.sends = 2, .receives = 3});
	constexpr unsigned each = 50, coroutines = 5;
	unsigned sent = 0;
	std::vector<std::uint32_t> last(coroutines);
	bool in_order = true;
	const auto send = [&](unsigned who) -> task<> {
		for (unsigned i = 1; i <= each; ++i)
			if (co_await ends.client->send_imm(who << 16 | i, patience))
				++sent;
	};

	for (unsigned who = 0; who < coroutines; ++who)
		REQUIRE(ends.loop->spawn(send(who)));
	run(*ends.loop, [&]() -> task<> {
		for (unsigned i = 0; i < each * coroutines; ++i) {
			auto imm = co_await ends.server->recv_imm(patience);
			std::uint32_t &before = last[imm.value() >> 16];

			in_order = in_order && (*imm & 0xffff) == before + 1;
			before = *imm & 0xffff;
		}
	});
	CHECK(sent == each * coroutines);
	CHECK(in_order);
}

TEST_CASE("requests that wait for room keep their order and their memory", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends({.sends = 1});
	std::optional memory(ends.device->alloc<char>(64).value());

	run(
		*ends.loop,
		[&]() -> task<> {
			fake::hold();
			auto first = ends.client->send_imm(1, patience);
			auto second = ends.client->send_imm(memory->put(0, "text"), 2, patience);
			auto third = ends.client->send_imm(3, patience);
			memory.reset();
			fake::resume();
			const peal::completion a = co_await first, b = co_await second,
					       c = co_await third;
			CHECK(a);
			CHECK(b);
			CHECK(c);
		},
		[&]() -> task<> {
			for (std::uint32_t i = 1; i <= 3; ++i) {
				auto message = co_await ends.server->recv(patience);
				CHECK(message.value().imm() == i);
				CHECK(message->text() == (i == 2 ? "text" : ""));
			}
		});
}

TEST_CASE("coroutines get messages in the order in which they began to wait", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	std::string order;
	const auto take = [&](char who) -> task<> {
		auto message = co_await ends.server->recv(patience);
		order += who;
		order += message.value().text();
	};

	run(
		*ends.loop, [&] { return take('a'); }, [&] { return take('b'); },
		[&] { return take('c'); },
		[&]() -> task<> {
			for (const char *text : {"1", "2", "3"}) {
				const peal::completion done =
					co_await ends.client->send_inline(bytes(text), patience);
				CHECK(done);
			}
		});
	CHECK(order == "a1b2c3");
}

TEST_CASE("a receive may be awaited again", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;

	run(*ends.loop, [&]() -> task<> {
		auto next = ends.server->recv_imm(moment);
		for (std::uint32_t i = 0; i < 2; ++i) {
			const peal::completion done = co_await ends.client->send_imm(i, patience);
			CHECK(done);
			auto imm = co_await next;
			CHECK(imm.value() == i);
		}
		auto late = co_await next;
		CHECK(late.code() == ETIMEDOUT);
	});
}

TEST_CASE("a loop sleeps while several connections have nothing", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	unsigned late = 0, received = 0;
	const auto take = [&](peal::co::connection &from, peal::deadline until) -> task<> {
		auto message = co_await from.recv(until);
		message ? ++received : ++late;
	};

	run(
		*ends.loop, [&] { return take(*ends.client, moment); },
		[&] { return take(*ends.server, moment); },
		[&] { return take(*ends.server, patience); },
		[&]() -> task<> {
			co_await ends.loop->sleep(2 * moment);
			const peal::completion done = co_await ends.client->send_imm(1, patience);
			CHECK(done);
		});
	CHECK(late == 2);
	CHECK(received == 1);
}

TEST_CASE("a message of a coroutine that ends goes to the next one", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	std::string order;
	const auto take = [&](char who) -> task<> {
		auto message = co_await ends.server->recv(patience);
		order += who;
		order += message.value().text();
	};
	std::optional a(ends.loop->start(take('a')).value());
	std::optional b(ends.loop->start(take('b')).value());

	run(
		*ends.loop,
		[&]() -> task<> {
			auto post = ends.client->batch();
			post.send_inline(bytes("1"));
			post.send_inline(bytes("2"));
			post.send_inline(bytes("3"));
			const peal::completion done = co_await post.commit(patience);
			CHECK(done);
			/* It gives the first two away, and does not wait itself. */
			auto message = co_await ends.server->recv(patience);
			CHECK(message.value().text() == "3");
			CHECK(!a->has_ended());
			CHECK(!b->has_ended());
			a.reset();
			b.reset();
		},
		[&] { return take('d'); }, [&] { return take('e'); });
	CHECK(order == "d1e2");
}

TEST_CASE("a request that fails says why, and so do later ones", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;

	fake::fail_next_request(IBV_WC_REM_ACCESS_ERR, 23);
	run(
		*ends.loop,
		[&]() -> task<> {
			auto post = ends.client->batch();
			post.write(ends.mine->part(0, 8), ends.client->peer().at(0));
			post.send_imm(1);
			const peal::completion done = co_await post.commit(patience);
			CHECK(done.verbs_status() == IBV_WC_REM_ACCESS_ERR);
			CHECK(done.vendor_error() == 23);
			CHECK(contains(done.why(), "does not allow the request"));
			const peal::completion next = co_await ends.client->send_imm(2, patience);
			CHECK(contains(next.why(), "an earlier request has failed"));
			auto message = co_await ends.client->recv(patience);
			CHECK(contains(message.why(), "an earlier request has failed"));
		},
		[&]() -> task<> {
			/* This one waits when the connection ends. */
			auto message = co_await ends.client->recv(patience);
			CHECK(message.code() == ENOTCONN);
		});
}

TEST_CASE("a request that cannot be right is not posted", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends({.receive_bytes = 100});

	run(*ends.loop, [&]() -> task<> {
		peal::co::connection &c = *ends.client;
		const peal::slice outside = ends.mine->part(4096, 1);
		const peal::completion a = co_await c.send(outside, patience);
		CHECK(contains(a.why(), "its memory"));
		const peal::completion b =
			co_await c.write(ends.mine->all(), c.peer().at(1), patience);
		CHECK(contains(b.why(), "shorter"));
		const peal::completion d = co_await c.send(ends.mine->part(0, 101), patience);
		CHECK(contains(d.why(), "receive_bytes"));
		const peal::completion e =
			co_await c.send_inline(bytes(std::string(65, 'x')), patience);
		CHECK(contains(e.why(), "inline_bytes"));
		CHECK(fake::posts() == 0);
		fake::fail_next(fake::has_rings() ? "kick" : "ibv_post_send", ENOMEM);
		const peal::completion f = co_await c.send_imm(1, patience);
		CHECK(contains(f.why(), "has not taken"));
		const peal::completion g = co_await c.send_imm(1, patience);
		CHECK(g);
	});
}

/* ---- deadlines ---- */

TEST_CASE("a request that is late stays apart from later ones", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends({.sends = 2});

	run(*ends.loop, [&]() -> task<> {
		fake::hold();
		const peal::completion late = co_await ends.client->send_imm(1, moment);
		CHECK(contains(late.why(), "has not completed in time"));
		CHECK(late.request() == peal::request::none);
		auto second = ends.client->send_imm(2, patience);
		/* The first one still uses its place in the queue. */
		const peal::completion full = co_await ends.client->send_imm(3, moment);
		CHECK(contains(full.why(), "not posted in time"));
		fake::resume();
		const peal::completion done = co_await second;
		CHECK(done);
		CHECK(done.request() == peal::request(2));
		for (std::uint32_t i = 1; i <= 2; ++i) {
			auto imm = co_await ends.server->recv_imm(patience);
			CHECK(imm.value() == i);
		}
		auto none = co_await ends.server->recv_imm(moment);
		CHECK(contains(none.why(), "no message has come in time"));
		CHECK(none.code() == ETIMEDOUT);
	});
}

TEST_CASE("a message that is there when the deadline passes is returned", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;

	run(
		*ends.loop,
		[&]() -> task<> {
			auto imm = co_await ends.server->recv_imm(moment);
			CHECK(imm.value() == 1);
		},
		[&]() -> task<> {
			/* It keeps the thread from looking until after the deadline. */
			const peal::completion done = co_await ends.client->send_imm(1, patience);
			CHECK(done);
			std::this_thread::sleep_for(2 * moment);
		});
}

TEST_CASE("coroutines that sleep go on in the order of their deadlines", "[coroutines]")
{
	const Fake fake;
	auto loop = peal::co::make_loop().value();
	const auto begin = peal::deadline::clock::now();
	std::vector<unsigned> order;
	std::vector<peal::co::job> jobs;
	unsigned random = 1;
	const auto sleep = [&](unsigned when) -> task<> {
		co_await loop.sleep(begin + when * 100us);
		order.push_back(when);
	};

	for (unsigned i = 0; i < 500; ++i) {
		random = random * 1103515245 + 12345;
		jobs.push_back(loop.start(sleep(random >> 16 & 511)).value());
	}
	CHECK(contains(loop.run(0s).why(), "have not ended in time"));
	/* Removes deadlines from all places of the heap. */
	for (unsigned i = 0; i < 500; i += 3)
		jobs[i] = loop.start(sleep(512)).value();
	REQUIRE(loop.run(patience));
	/* On a slow machine some ended before they were replaced. */
	CHECK(order.size() >= 500);
	CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("a coroutine that need not wait lets others run", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends({.receives = 100});
	bool stop = false;
	unsigned sent = 0;

	run(
		*ends.loop,
		[&]() -> task<> {
			while (!stop && sent < 100'000) {
				auto done = co_await ends.client->write_inline(
					bytes("x"), ends.client->peer().at(0), patience);
				sent += bool(done);
			}
		},
		[&]() -> task<> {
			co_await ends.loop->sleep(1ms);
			stop = true;
		});
	CHECK(sent > 0);
	CHECK(sent < 100'000);
}

/* ---- ends ---- */

TEST_CASE("the memory of a coroutine that was destroyed stays until its request is done",
	  "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	const auto write = [&](const char *text, std::uint64_t at) -> task<> {
		auto memory = ends.device->alloc<char>(64).value();
		const peal::slice from = memory.put(0, text);

		(void)co_await ends.client->write(from, ends.client->peer().at(at), patience);
		FAIL("it was destroyed");
	};
	const std::string before = fake::alive();

	fake::hold();
	{
		auto first = ends.loop->start(write("first", 0)).value();
		auto second = ends.loop->start(write("second", 100)).value();
		CHECK(!ends.loop->run(0s));
	}
	CHECK(fake::alive() != before);
	/* The loop polls though no coroutine waits for the requests. */
	fake::resume();
	run(*ends.loop, [&]() -> task<> { co_await ends.loop->sleep(1ms); });
	CHECK(fake::alive() == before);
	CHECK(std::string_view(ends.theirs->data()) == "first");
	CHECK(std::string_view(ends.theirs->data() + 100) == "second");
	/* A request that waited for room is not posted any more. */
	auto post = ends.client->batch();
	{
		auto third = ends.loop->start(write("third", 200)).value();
		CHECK(!ends.loop->run(0s));
	}
	CHECK(fake::alive() == before);
	post.abort();
	CHECK(fake::posts() == 2);
}

TEST_CASE("the memory of a request on its way goes with the connection", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	std::string why;
	const std::string before = fake::alive();
	const auto write = [&]() -> task<> {
		auto memory = ends.device->alloc<char>(64).value();
		const peal::completion done = co_await ends.client->write(
			memory.all(), ends.client->peer().at(0), patience);
		why = done.why();
	};

	fake::hold();
	run(*ends.loop, write, [&]() -> task<> {
		ends.client->close();
		co_return;
	});
	CHECK(contains(why, "closed"));
	ends.client.reset();
	fake::resume();
	CHECK(fake::alive() != before);
}

TEST_CASE("coroutines learn that the peer has closed", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;

	run(
		*ends.loop,
		[&]() -> task<> {
			auto first = co_await ends.server->recv_imm(patience);
			CHECK(first.value() == 1);
			auto second = co_await ends.server->recv_imm(patience);
			CHECK(second.value() == 2);
			auto third = co_await ends.server->recv_imm(patience);
			CHECK(contains(third.why(), "the peer has closed"));
			CHECK(third.code() == ENOTCONN);
			const peal::completion sent = co_await ends.server->send_imm(1, patience);
			CHECK(contains(sent.why(), "the peer has closed"));
		},
		[&]() -> task<> {
			auto post = ends.client->batch();
			post.send_imm(1);
			post.send_imm(2);
			const peal::completion done = co_await post.commit(patience);
			CHECK(done);
			ends.client.reset();
		});
}

TEST_CASE("requests on their way when the peer goes complete for coroutines", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends({.sends = 1});

	fake::hold();
	run(
		*ends.loop,
		[&]() -> task<> {
			const peal::completion done = co_await ends.server->send_imm(1, patience);
			CHECK(contains(done.why(), "had ended before the request was done"));
		},
		[&]() -> task<> {
			/* It waits for room. */
			const peal::completion done = co_await ends.server->send_imm(2, patience);
			CHECK(contains(done.why(), "the peer has closed"));
		},
		[&]() -> task<> {
			ends.client.reset();
			co_return;
		});
	fake::resume();
}

TEST_CASE("coroutines learn that the device has gone", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;

	run(
		*ends.loop,
		[&]() -> task<> {
			auto message = co_await ends.server->recv(patience);
			CHECK(message.code() == ENOTCONN);
		},
		[&]() -> task<> {
			fake::remove_devices();
			co_return;
		});
}

TEST_CASE("coroutines learn that a device gives no events any more", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends({.receives = 1});

	run(
		*ends.loop,
		[&]() -> task<> {
			auto message = co_await ends.client->recv(patience);
			CHECK(message.value().imm() == 3u);
			auto none = co_await ends.client->recv(patience);
			CHECK(contains(none.why(), "the device was removed"));
		},
		[&]() -> task<> {
			const peal::completion first = co_await ends.client->send_imm(1, patience);
			CHECK(first);
			/* The server has no buffer for this one, so it stays on its way. */
			const peal::completion second = co_await ends.client->send_imm(2, patience);
			CHECK(contains(second.why(), "the device was removed"));
		},
		[&]() -> task<> {
			co_await ends.loop->sleep(1ms);
			/* The event of this message. */
			fake::fail_next("ibv_get_cq_event", EIO);
			const peal::completion done = co_await ends.server->send_imm(3, patience);
			CHECK(done);
		});
}

TEST_CASE("an event loop destroys the coroutines that wait", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	struct Guard {
		unsigned &destroyed;
		~Guard() { ++destroyed; }
	};
	unsigned destroyed = 0;
	const auto inner = [&]() -> task<peal::status> {
		const Guard guard{destroyed};
		auto message = co_await ends.server->recv(patience);
		co_return peal::status();
	};
	const auto outer = [&]() -> task<> {
		const Guard guard{destroyed};
		(void)co_await inner();
	};
	const auto accepts = [&](peal::co::listener listener) -> task<> {
		const Guard guard{destroyed};
		(void)co_await listener.accept({}, patience);
	};
	const auto connects = [&]() -> task<> {
		const Guard guard{destroyed};
		(void)co_await ends.loop->connect(*ends.device, fake::silent, 1, {}, patience);
	};
	const auto never_ran = [&]() -> task<> {
		const Guard guard{destroyed};
		co_return;
	};

	REQUIRE(ends.loop->spawn(outer()));
	REQUIRE(ends.loop->spawn(accepts(ends.loop->listen(*ends.device, 0).value())));
	REQUIRE(ends.loop->spawn(connects()));
	auto job = ends.loop->start(outer()).value();
	CHECK(!ends.loop->run(0s));
	REQUIRE(ends.loop->spawn(never_ran()));
	CHECK(!job.has_ended());
	*ends.loop = peal::co::make_loop().value();
	CHECK(job.has_ended());
	CHECK(destroyed == 6);
	/* The connections are still there, but nothing can wait for them. */
	run(*ends.loop, [&]() -> task<> {
		const peal::completion sent = co_await ends.client->send_imm(1, patience);
		CHECK(contains(sent.why(), "event loop has ended"));
		auto message = co_await ends.server->recv(patience);
		CHECK(contains(message.why(), "event loop has ended"));
		auto post = ends.client->batch();
		post.send_imm(1);
		const peal::completion done = co_await post.commit(patience);
		CHECK(contains(done.why(), "event loop has ended"));
	});
}

TEST_CASE("an object that was moved from tells coroutines so", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	auto listener = ends.loop->listen(*ends.device, 0).value();
	auto other_listener = std::move(listener);
	auto other = std::move(*ends.client);
	auto other_device = std::move(*ends.device);

	CHECK(ends.client->peer().size() == 0);
	CHECK(ends.client->mtu() == 0);
	CHECK(listener.port() == 0);
	ends.client->close();
	run(*ends.loop, [&]() -> task<> {
		const peal::completion sent = co_await ends.client->send_imm(1, patience);
		CHECK(contains(sent.why(), "moved"));
		auto message = co_await ends.client->recv(patience);
		CHECK(contains(message.why(), "moved"));
		const peal::completion done = co_await ends.client->batch().commit(patience);
		CHECK(contains(done.why(), "moved"));
		auto accepted = co_await listener.accept({}, patience);
		CHECK(contains(accepted.why(), "moved"));
		auto connected = co_await ends.loop->connect(*ends.device, "x", 1, {}, patience);
		CHECK(contains(connected.why(), "moved"));
	});
	auto loop = std::move(*ends.loop);
	const auto nothing = []() -> task<> { co_return; };
	CHECK(contains(ends.loop->run(patience).why(), "moved"));
	CHECK(contains(ends.loop->spawn(nothing()).why(), "moved"));
	CHECK(contains(ends.loop->listen(other_device, 0).why(), "moved"));
}

/* ---- connecting ---- */

TEST_CASE("failures to connect are sentences for coroutines", "[coroutines]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto loop = peal::co::make_loop().value();
	const struct {
		const char *host;
		peal::deadline until;
		const char *sentence;
	} rows[] = {
		{fake::here, patience, "accepts on port 4711; start it first"},
		{fake::known_name, patience, "accepts on port 4711; start it first"},
		{fake::sleepy, patience, "accepts on port 4711; start it first"},
		{fake::absent, moment, "the network of this host knows no"},
		{fake::unreachable, patience, "no RDMA device of this host reaches"},
		{fake::silent, moment, "the network of this host knows no"},
		{"nowhere.example", patience, "is not known"},
		{fake::slow_name, moment, "was not found in time"},
	};

	for (const auto &row : rows)
		run(loop, [&]() -> task<> {
			auto made = co_await loop.connect(device, row.host, 4711, {}, row.until);
			CHECK(contains(made.why(), row.sentence));
		});
	fake::answer_slow_name();
	run(loop, [&]() -> task<> {
		auto listener = loop.listen(device, 0).value();
		auto made = co_await listener.accept({}, moment);
		CHECK(contains(made.why(), "no peer has connected to port"));
	});
	CHECK(fake::alive() == "context 1 pd 1 ");
}

TEST_CASE("coroutines accept side by side, also beside a silent peer", "[coroutines]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto loop = peal::co::make_loop().value();
	auto listener = loop.listen(device, 0).value();
	std::vector<peal::co::connection> accepted, connected;
	unsigned refused = 0;
	const auto accept = [&](peal::deadline until) -> task<> {
		auto made = co_await listener.accept({}, until);
		if (made)
			accepted.push_back(std::move(*made));
		else
			refused += contains(made.why(), "it has not answered");
	};
	const auto connect = [&]() -> task<> {
		auto made =
			co_await loop.connect(device, fake::here, listener.port(), {}, patience);
		if (made)
			connected.push_back(std::move(*made));
	};

	/* The first one meets the silent peer. */
	fake::lose_established();
	run(
		loop, [&] { return accept(300ms); }, [&] { return accept(patience); },
		[&] { return accept(patience); }, connect, connect, connect);
	CHECK(accepted.size() == 2);
	CHECK(connected.size() == 3);
	CHECK(refused == 1);
	run(loop, [&]() -> task<> {
		const peal::completion done = co_await connected[2].send_imm(7, patience);
		CHECK(done);
		auto imm = co_await accepted[1].recv_imm(patience);
		CHECK(imm.value() == 7);
	});
}

TEST_CASE("an event loop adopts a connection", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	auto listener = ends.device->listen(0).value();
	std::optional<peal::connection> first, second;
	std::thread accepts([&] {
		auto made = listener.accept({}, patience);

		if (made)
			first.emplace(std::move(*made));
	});
	second.emplace(ends.device->connect(fake::here, listener.port(), {}, patience).value());
	accepts.join();
	REQUIRE(first);
	{
		auto post = first->batch();

		post.send_imm(1);
		CHECK(contains(ends.loop->adopt(std::move(*first)).why(), "on their way"));
		REQUIRE(post.commit());
		CHECK(contains(ends.loop->adopt(std::move(*first)).why(), "on their way"));
	}
	REQUIRE(first->wait(1, patience));
	auto a = ends.loop->adopt(std::move(*first)).value();
	auto b = ends.loop->adopt(std::move(*second)).value();
	CHECK(contains(ends.loop->adopt(std::move(*second)).why(), "moved"));
	CHECK(contains(first->take().why(), "moved"));
	run(*ends.loop, [&]() -> task<> {
		auto before = co_await b.recv_imm(patience);
		CHECK(before.value() == 1);
		const peal::completion done = co_await b.send_imm(2, patience);
		CHECK(done);
		auto imm = co_await a.recv_imm(patience);
		CHECK(imm.value() == 2);
	});
}

/* ---- loops and tasks ---- */

TEST_CASE("tasks return values, and many of them need no more stack", "[coroutines]")
{
	const Fake fake;
	auto loop = peal::co::make_loop().value();
	const auto one = []() -> task<unsigned> { co_return 1; };
	const auto slow = [&]() -> task<unsigned> {
		co_await loop.sleep(0s);
		co_return 1;
	};
	unsigned sum = 0;

	run(loop, [&]() -> task<> {
		for (unsigned i = 0; i < 200'000; ++i)
			sum += co_await one();
		for (unsigned i = 0; i < 10'000; ++i)
			sum += co_await slow();
	});
	CHECK(sum == 210'000);
}

TEST_CASE("a coroutine without memory is an error", "[coroutines]")
{
	const Fake fake;
	auto loop = peal::co::make_loop().value();
	const auto nothing = []() -> task<> { co_return; };
	/* A compiler that knew it could put its frame into the caller's. */
	task<peal::status> (*volatile child)() = []() -> task<peal::status> {
		co_return peal::status();
	};
	std::string why, spawned;

	run(loop, [&]() -> task<> {
		std::optional<fake::FailAllocations> failing(std::in_place);
		const peal::status done = co_await child();
		const peal::status started = loop.spawn(nothing());

		failing.reset();
		why = done.why();
		spawned = started.why();
	});
	CHECK(contains(why, "no memory for a coroutine"));
	CHECK(contains(spawned, "no memory for a coroutine"));
}

TEST_CASE("an event loop stops and goes on", "[coroutines]")
{
	const Fake fake;
	auto loop = peal::co::make_loop().value();
	unsigned steps = 0;
	const auto step = [&]() -> task<> {
		loop.stop();
		++steps;
		CHECK(contains(loop.run(patience).why(), "cannot run an event loop"));
		co_await loop.sleep(0s);
		++steps;
	};

	CHECK(loop.run(patience));
	REQUIRE(loop.spawn(step()));
	REQUIRE(loop.spawn(step()));
	CHECK(loop.run(patience));
	CHECK(steps == 1);
	CHECK(loop.run(patience));
	CHECK(steps == 2);
	CHECK(loop.run(patience));
	CHECK(steps == 4);
}

TEST_CASE("a job ends its coroutine", "[coroutines]")
{
	const Fake fake;
	auto loop = peal::co::make_loop().value();
	unsigned ended = 0;
	const auto sleep = [&](std::chrono::milliseconds time) -> task<> {
		co_await loop.sleep(time);
		++ended;
	};

	auto first = loop.start(sleep(1ms)).value();
	auto second = loop.start(sleep(1h)).value();
	auto moved = std::move(second);
	CHECK(second.has_ended());
	CHECK(!moved.has_ended());
	CHECK(!loop.run(moment));
	CHECK(first.has_ended());
	CHECK(ended == 1);
	moved = loop.start(sleep(1ms)).value();
	CHECK(loop.run(patience));
	CHECK(ended == 2);
}

TEST_CASE("a coroutine does not wait in another loop", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	auto other = peal::co::make_loop().value();

	run(other, [&]() -> task<> {
		const peal::completion sent = co_await ends.client->send_imm(1, patience);
		CHECK(contains(sent.why(), "another event loop"));
		auto message = co_await ends.client->recv(patience);
		CHECK(contains(message.why(), "another event loop"));
		auto made = co_await ends.loop->connect(*ends.device, fake::here, 1, {}, patience);
		CHECK(contains(made.why(), "another event loop"));
	});
}

TEST_CASE("coroutines wait for descriptors", "[coroutines]")
{
	const Fake fake;
	auto loop = peal::co::make_loop().value();
	int ends[2];
	const int file = open("/proc/self/exe", O_RDONLY);
	unsigned woken = 0;
	const auto wait = [&]() -> task<> {
		const peal::status done = co_await loop.wait_readable(ends[0], patience);
		woken += bool(done);
	};

	REQUIRE(pipe(ends) == 0);
	run(loop, [&]() -> task<> {
		const peal::status late = co_await loop.wait_readable(ends[0], moment);
		CHECK(late.code() == ETIMEDOUT);
		/* poll(2) says that it is closed, and epoll that it does not know it. */
		const peal::status bad = co_await loop.wait_readable(-1, moment);
		CHECK(bad.code() == EBADF);
		const peal::status always = co_await loop.wait_readable(file, moment);
		CHECK(always);
	});
	{
		const auto destroyed = loop.start(wait()).value();
		CHECK(!loop.run(0s));
	}
	run(loop, wait, wait, [&]() -> task<> {
		co_await loop.sleep(1ms);
		CHECK(write(ends[1], "x", 1) == 1);
	});
	CHECK(woken == 2);
	close(file);
	close(ends[0]);
	close(ends[1]);
}

/* ---- costs ---- */

TEST_CASE("awaiting allocates nothing", "[coroutines]")
{
	const Fake fake;
	LoopEnds ends;
	const peal::slice text = ends.mine->put(0, "hello");
	bool good = true;
	unsigned count = 0;

	run(
		*ends.loop,
		[&]() -> task<> {
			for (;;) {
				auto message = co_await ends.server->recv(patience);
				if (!message)
					break;
				good = good && message->text() == "hello";
			}
		},
		[&]() -> task<> {
			const fake::CountAllocations allocations;

			for (int i = 0; i < 100; ++i) {
				auto post = ends.client->batch();
				post.write(text, ends.client->peer().at(0));
				post.send(text);
				const peal::completion both = co_await post.commit(patience);
				const peal::completion sent =
					co_await ends.client->send(text, patience);
				/* Also requests that are late, are refused, or wait for room. */
				auto none = co_await ends.client->recv(0s);
				const peal::slice outside = ends.mine->part(5000, 1);
				const peal::completion bad =
					co_await ends.client->send(outside, patience);
				co_await ends.loop->sleep(0s);
				good = good && both && sent && !none && !bad;
			}
			count = allocations.count();
			ends.client->close();
		});
	CHECK(good);
	CHECK(count == 0);
}

TEST_CASE("functions of connections in a loop are noexcept", "[coroutines]")
{
	peal::co::connection *connection = nullptr;
	const peal::slice *slice = nullptr;
	const peal::remote *remote = nullptr;
	const peal::deadline *until = nullptr;

	STATIC_REQUIRE(noexcept(connection->write(*slice, *remote, *until)));
	STATIC_REQUIRE(noexcept(connection->recv(*until)));
	STATIC_REQUIRE(noexcept(connection->write(*slice, *remote, *until).await_ready()));
	STATIC_REQUIRE(noexcept(connection->recv(*until).await_resume()));
	STATIC_REQUIRE(std::is_nothrow_move_constructible_v<peal::co::connection>);
	STATIC_REQUIRE(std::is_nothrow_move_constructible_v<peal::co::loop>);
	STATIC_REQUIRE(std::is_nothrow_move_constructible_v<task<>>);
	STATIC_REQUIRE(!std::is_move_constructible_v<peal::co::sending>);
	STATIC_REQUIRE(!std::is_move_constructible_v<peal::co::receiving>);
}
