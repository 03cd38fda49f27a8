// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Waits: nothing is lost or taken for another, none is without an end, and a sleep that arm()
 * allows ends when something comes, also with edge-triggered epoll. Failures say why.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "pair.hpp"

using peal::next_step;

namespace {

std::span<const std::byte> bytes(std::string_view text)
{
	return std::as_bytes(std::span(text));
}

/* Posts so many requests and returns the name of the first. */
peal::request post(peal::connection &connection, unsigned count)
{
	auto batch = connection.batch();
	const peal::request first = batch.send_imm(0);

	for (unsigned i = 1; i < count; ++i)
		batch.send_imm(i);
	REQUIRE(batch.commit());
	return first;
}

/* A program's own epoll, edge-triggered. */
class Epoll {
public:
	explicit Epoll(const peal::connection &connection) : fd_(epoll_create1(0))
	{
		epoll_event event{};

		event.events = EPOLLIN | EPOLLET;
		REQUIRE(epoll_ctl(fd_, EPOLL_CTL_ADD, connection.fd(), &event) == 0);
	}
	~Epoll() { close(fd_); }
	bool wakes(int milliseconds)
	{
		epoll_event event;

		return epoll_wait(fd_, &event, 1, milliseconds) == 1;
	}

private:
	int fd_;
};

constexpr int long_enough = 60'000;

} // namespace

TEST_CASE("completions after a wait that timed out are neither lost nor confused", "[waits]")
{
	const Fake fake;
	Ends ends;

	fake::hold();
	const peal::request first = post(*ends.client, 3);
	fake::resume(1);
	{
		const auto done = ends.client->wait(3, moment);

		CHECK(!done);
		REQUIRE(done.size() == 2);
		CHECK(done.begin()[0]);
		CHECK(done.begin()[0].request() == first);
		CHECK(!done.begin()[1]);
		CHECK(done.begin()[1].request() == peal::request::none);
		CHECK(contains(done.why(), "have not completed in time"));
	}
	const peal::request fourth = post(*ends.client, 1);
	fake::resume();
	const auto rest = ends.client->wait(3, patience);
	CHECK(rest);
	REQUIRE(rest.size() == 3);
	const auto number = static_cast<std::uint64_t>(first);
	CHECK(rest.begin()[0].request() == peal::request(number + 1));
	CHECK(rest.begin()[1].request() == peal::request(number + 2));
	CHECK(rest.begin()[2].request() == fourth);
}

TEST_CASE("completions stay as they are while others come", "[waits]")
{
	const Fake fake;
	Ends ends({.receives = 200});
	const peal::request first = post(*ends.client, 5);
	const auto done = ends.client->wait(2, patience);
	const peal::request sixth = post(*ends.client, 100);

	/* Both take completions out of the queue. */
	CHECK(ends.client->arm() == next_step::take);
	CHECK(!ends.client->recv(0s));
	REQUIRE(done.size() == 2);
	CHECK(done.begin()[0].request() == first);
	const auto late = ends.client->wait(4, patience);
	REQUIRE(late.size() == 4);
	CHECK(late.begin()[3].request() == sixth);
	CHECK(ends.client->take().size() == 99);
	CHECK(ends.client->take().size() == 0);
}

TEST_CASE("the sentence of a wait stays while others come", "[waits]")
{
	const Fake fake;
	Ends ends({.sends = 4, .receives = 8});

	fake::hold();
	(void)post(*ends.client, 4);
	fake::resume(1);
	const auto done = ends.client->wait(4, moment);
	fake::resume();
	CHECK(ends.client->arm() == next_step::take);
	REQUIRE(done.size() == 2);
	CHECK(contains(done.begin()[1].why(), "have not completed in time"));
	CHECK(ends.client->wait(3, patience).size() == 3);
}

TEST_CASE("a wait for more than was posted does not wait", "[waits]")
{
	const Fake fake;
	Ends ends;

	(void)post(*ends.client, 2);
	const auto done = ends.client->wait(3, patience);
	REQUIRE(done.size() == 1);
	CHECK(contains(done.why(), "more completions than"));
	CHECK(ends.client->wait(2, patience).size() == 2);
	CHECK(ends.client->wait(0, patience).size() == 0);
}

TEST_CASE("a wait that sleeps is woken", "[waits]")
{
	const Fake fake;
	Ends ends;

	for (int i = 0; i < 20; ++i) {
		fake::hold();
		(void)post(*ends.client, 1);
		std::thread later([] { fake::resume(); });
		const bool good = bool(ends.client->wait(1, patience));
		later.join();
		REQUIRE(good);
		REQUIRE(ends.server->recv_imm(patience));
	}
}

TEST_CASE("a receive that sleeps is woken by a message, and by the end of the peer", "[waits]")
{
	const Fake fake;
	Ends ends;

	{
		std::thread later([&] {
			auto batch = ends.client->batch();

			batch.send_inline(bytes("x"));
			(void)batch.commit().code();
		});
		const bool good = bool(ends.server->recv(patience));
		later.join();
		REQUIRE(good);
	}
	std::thread later([&] { ends.client.reset(); });
	const std::string why = ends.server->recv(patience).why();
	later.join();
	CHECK(contains(why, "the peer has closed the connection"));
	CHECK(contains(ends.server->recv(patience).why(), "the peer has closed"));
	CHECK(contains(ends.server->batch().commit().why(), "the peer has closed"));
}

TEST_CASE("messages that came before the end are received", "[waits]")
{
	const Fake fake;
	Ends ends;

	(void)post(*ends.client, 2);
	ends.client.reset();
	CHECK(ends.server->recv_imm(patience).value() == 0);
	CHECK(ends.server->arm() == next_step::take);
	CHECK(ends.server->recv_imm(0s).value() == 1);
	CHECK(contains(ends.server->recv(0s).why(), "the peer has closed"));
	CHECK(ends.server->arm() == next_step::close);
}

TEST_CASE("edge-triggered epoll loses no event", "[waits]")
{
	const Fake fake;
	Ends ends;
	Epoll epoll(*ends.server);
	unsigned received = 0;
	std::thread sender([&] {
		for (unsigned i = 0; i < 200; ++i) {
			auto batch = ends.client->batch();

			batch.send_imm(i);
			if (!batch.commit() || !ends.client->wait(1, patience))
				return;
		}
	});
	bool woken = true;

	while (received < 200 && woken) {
		switch (ends.server->arm()) {
		case next_step::sleep:
			woken = epoll.wakes(long_enough);
			break;
		case next_step::take:
			while (ends.server->recv_imm(0s))
				++received;
			break;
		case next_step::close:
			woken = false;
			break;
		}
	}
	sender.join();
	CHECK(received == 200);
}

TEST_CASE("what comes between a look and a sleep is not slept over", "[waits]")
{
	const Fake fake;
	Ends ends;
	Epoll epoll(*ends.server);

	REQUIRE(ends.server->arm() == next_step::sleep);
	/* Now it comes, is seen by its edge, and is not taken. */
	(void)post(*ends.client, 1);
	REQUIRE(epoll.wakes(long_enough));
	/* The edge is used up, so arm() must not allow a sleep. */
	CHECK(ends.server->arm() == next_step::take);
	CHECK(ends.server->arm() == next_step::take);
	CHECK(ends.server->recv_imm(0s));
	CHECK(ends.server->arm() == next_step::sleep);
	CHECK(!epoll.wakes(0));
	(void)post(*ends.client, 1);
	CHECK(epoll.wakes(long_enough));
}

TEST_CASE("a wait for requests does not swallow the event of a message", "[waits]")
{
	const Fake fake;
	Ends ends;
	Epoll epoll(*ends.server);

	REQUIRE(ends.server->arm() == next_step::sleep);
	fake::hold();
	(void)post(*ends.server, 1);
	/* The wait sleeps, the message comes, and the wait takes the event of both queues. */
	std::thread later([&] {
		(void)post(*ends.client, 1);
		fake::resume();
	});
	const bool good = bool(ends.server->wait(1, patience));
	later.join();
	REQUIRE(good);
	CHECK(ends.server->arm() == next_step::take);
	CHECK(ends.server->recv_imm(0s));
}

TEST_CASE("arm never allows a sleep without end once the peer has gone", "[waits]")
{
	const Fake fake;
	Ends ends;
	Epoll epoll(*ends.server);

	REQUIRE(ends.server->arm() == next_step::sleep);
	ends.client.reset();
	REQUIRE(epoll.wakes(long_enough));
	CHECK(ends.server->arm() == next_step::close);
	CHECK(ends.server->arm() == next_step::close);
	ends.server->close();
	CHECK(ends.server->arm() == next_step::close);
}

TEST_CASE("the end of the peer that a receive has seen is not forgotten by arm", "[waits]")
{
	const Fake fake;
	Ends ends;

	ends.client.reset();
	CHECK(!ends.server->recv(0s));
	CHECK(ends.server->arm() == next_step::close);
}

TEST_CASE("requests on their way when the peer goes complete", "[waits]")
{
	const Fake fake;
	Ends ends;

	fake::hold();
	(void)post(*ends.server, 2);
	ends.client.reset();
	const auto done = ends.server->wait(2, patience);
	CHECK(!done);
	REQUIRE(done.size() == 2);
	CHECK(contains(done.why(), "had ended before the request was done"));
	fake::resume();
}

TEST_CASE("requests on their way when the connection is closed say so", "[waits]")
{
	const Fake fake;
	Ends ends;

	fake::hold();
	(void)post(*ends.client, 2);
	ends.client->close();
	const auto done = ends.client->wait(2, patience);
	REQUIRE(done.size() == 1);
	CHECK(contains(done.why(), "closed"));
	fake::resume();
}

TEST_CASE("a device that disappears ends the connection", "[waits]")
{
	const Fake fake;
	Ends ends;

	fake::hold();
	(void)post(*ends.client, 1);
	fake::remove_devices();
	CHECK(contains(ends.client->wait(1, patience).why(), "had ended"));
	CHECK(contains(ends.server->recv(patience).why(), "connection has broken"));
	CHECK(ends.server->arm() == next_step::close);
	CHECK(ends.client->arm() == next_step::close);
	fake::resume();
}

TEST_CASE("a device without completions ends the connection", "[waits][verbs]")
{
	const Fake fake;
	Ends ends;

	fake::fail_next("ibv_poll_cq", EIO);
	CHECK(contains(ends.server->recv(patience).why(), "gives no completions"));
	CHECK(ends.server->arm() == next_step::close);
}

TEST_CASE("a request that fails says why, and the rest of the connection ends", "[waits]")
{
	const Fake fake;
	Ends ends;
	auto batch = ends.client->batch();

	fake::fail_next_request(IBV_WC_REM_ACCESS_ERR, 23);
	batch.write(ends.mine->part(0, 8), ends.client->peer().at(0));
	batch.send_imm(1);
	REQUIRE(batch.commit());
	const auto done = ends.client->wait(2, patience);
	REQUIRE(done.size() == 2);
	CHECK(done.begin()[0].verbs_status() == IBV_WC_REM_ACCESS_ERR);
	CHECK(done.begin()[0].vendor_error() == 23);
	/* The device is not one of peal, so the number means something else. */
	CHECK(std::string(done.why()) ==
	      "the peer's memory does not allow the request; let the peer "
	      "share memory with this right, and keep it, or bind its window again");
	CHECK(contains(done.begin()[1].why(), "had ended before the request was done"));
	CHECK(contains(batch.commit().why(), "an earlier request has failed"));
	CHECK(contains(ends.client->recv(patience).why(), "an earlier request has failed"));
	CHECK(ends.client->arm() == next_step::close);
}

TEST_CASE("a device of peal says its reason", "[waits]")
{
	const Fake fake;
	fake::set_vendor(0x706561);
	Ends ends;

	fake::fail_next_request(IBV_WC_REM_ACCESS_ERR, 23);
	(void)post(*ends.client, 1);
	const auto done = ends.client->wait(1, patience);
	const char *why = done.why();
	CHECK(std::string(why) ==
	      "the peer's memory does not allow the request (memory region or "
	      "window does not allow this remote operation); let the peer share "
	      "memory with this right, and keep it, or bind its window again");
	CHECK(why == done.why());
}

TEST_CASE("every status has a sentence with a remedy", "[waits]")
{
	for (int status = 1; status <= IBV_WC_GENERAL_ERR; ++status) {
		const Fake fake;
		Ends ends;

		fake::fail_next_request(static_cast<ibv_wc_status>(status), 0);
		(void)post(*ends.client, 1);
		INFO(status);
		CHECK(contains(ends.client->wait(1, patience).why(), "; "));
	}
}

TEST_CASE("memory that ended before its request makes it fail", "[waits]")
{
	const Fake fake;
	Ends ends;
	auto batch = ends.client->batch();

	batch.send(ends.mine->put(0, "text"));
	ends.mine.reset();
	REQUIRE(batch.commit());
	CHECK(contains(ends.client->wait(1, patience).why(), "keep its memory"));
}
