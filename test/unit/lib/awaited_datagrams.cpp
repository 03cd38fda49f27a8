// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Groups and endpoints in an event loop: coroutines get datagrams and send them, until their
 * deadline or until the group has ended. They may be destroyed wherever they wait.
 */
#include <cerrno>
#include <string>
#include <vector>

#include "pair.hpp"
#include "peal/co.hpp"

using peal::co::task;

namespace {

constexpr const char *address = "239.1.2.3";

/* Two endpoints that know each other, in one event loop. */
struct Mail {
	peal::device devices[2] = {peal::open("fake0").value(), peal::open("fake1").value()};
	peal::co::loop loop = peal::co::make_loop().value();
	peal::co::endpoint mine = loop.adopt(devices[0].endpoint(4).value()).value();
	peal::co::endpoint theirs = loop.adopt(devices[1].endpoint(4).value()).value();
	peal::address_handle to = mine.reach(theirs.blob()).value();
	peal::address_handle back = theirs.reach(mine.blob()).value();

	template <class... Bodies>
	void run(const Bodies &...bodies)
	{
		(loop.spawn(bodies()).value(), ...);
		REQUIRE(std::string(loop.run(patience).why()) == "");
	}
};

} // namespace

TEST_CASE("datagrams of an endpoint can be awaited", "[awaited_datagrams]")
{
	const Fake fake;
	Mail mail;
	std::vector<std::string> came;

	mail.run(
		[&]() -> task<> {
			for (int i = 0; i < 100; ++i) {
				auto text = std::to_string(i);
				auto sent = co_await mail.mine.send(mail.to, text, patience);
				auto answer = co_await mail.mine.recv(patience);

				if (!sent || !answer)
					co_return;
				came.emplace_back(answer->text());
			}
		},
		[&]() -> task<> {
			for (int i = 0; i < 100; ++i) {
				auto one = co_await mail.theirs.recv(patience);

				(co_await mail.theirs.send(mail.back, one->bytes(), patience))
					.value();
			}
		});
	REQUIRE(came.size() == 100);
	CHECK(came[0] == "0");
	CHECK(came[99] == "99");
	CHECK(mail.mine.blob().size() == peal::offer::blob_size);
}

TEST_CASE("a datagram that comes while the loop sleeps wakes it", "[awaited_datagrams]")
{
	const Fake fake;
	Mail mail;
	auto sender = mail.devices[0].endpoint().value();
	auto to = sender.reach(mail.theirs.blob()).value();

	for (int i = 0; i < 20; ++i) {
		std::string came, failed;
		std::thread late([&] {
			std::this_thread::sleep_for(2ms);
			failed = sender.send(to, "late", patience).why();
		});

		mail.run([&]() -> task<> {
			/* A deadline would look once more. */
			auto one = co_await mail.theirs.recv(peal::deadline::never());
			came = one ? one->text() : one.why();
		});
		late.join();
		CHECK(failed == "");
		CHECK(came == "late");
	}
}

TEST_CASE("a datagram that comes just before the queue is armed wakes its receiver",
	  "[awaited_datagrams]")
{
	const Fake fake;
	Mail mail;
	auto sender = mail.devices[0].endpoint().value();
	auto to = sender.reach(mail.theirs.blob()).value();
	std::string came, failed;

	fake::before_next_notify([&] { failed = sender.send(to, "early", patience).why(); });
	mail.run([&]() -> task<> {
		auto one = co_await mail.theirs.recv(peal::deadline::never());
		came = one ? one->text() : one.why();
	});
	CHECK(failed == "");
	CHECK(came == "early");
}

TEST_CASE("coroutines share an endpoint in the order of their calls", "[awaited_datagrams]")
{
	const Fake fake;
	Mail mail;
	std::vector<std::string> came(3);
	std::vector<int> sent;
	const auto receive = [&](int i) -> task<> {
		came[i] = (co_await mail.theirs.recv(patience)).value().text();
	};
	const auto send = [&](int i, std::string text) -> task<> {
		(co_await mail.mine.send(mail.to, text, patience)).value();
		sent.push_back(i);
	};

	fake::hold();
	for (int i = 0; i < 3; ++i) {
		mail.loop.spawn(receive(i)).value();
		mail.loop.spawn(send(i, std::string(3, static_cast<char>('a' + i)))).value();
	}
	CHECK(mail.loop.run(moment).code() == ETIMEDOUT);
	CHECK(sent.empty());
	fake::resume(1);
	CHECK(mail.loop.run(moment).code() == ETIMEDOUT);
	CHECK(sent == std::vector<int>{0});
	CHECK(came[0] == "aaa");
	fake::resume();
	CHECK(mail.loop.run(patience));
	CHECK(sent == std::vector<int>{0, 1, 2});
	CHECK(came == std::vector<std::string>{"aaa", "bbb", "ccc"});
}

TEST_CASE("a deadline ends a wait for a datagram, and a later one goes on", "[awaited_datagrams]")
{
	const Fake fake;
	Mail mail;
	std::vector<int> codes;
	std::string came;

	fake::hold();
	mail.run([&]() -> task<> {
		codes.push_back((co_await mail.theirs.recv(moment)).code());
		codes.push_back((co_await mail.mine.send(mail.to, "one", moment)).code());
		/* It waits for the first one, which the device has not sent. */
		codes.push_back((co_await mail.mine.send(mail.to, "two", moment)).code());
		fake::resume();
		codes.push_back((co_await mail.mine.send(mail.to, "three", patience)).code());
		for (int i = 0; i < 2; ++i)
			came += (co_await mail.theirs.recv(patience)).value().text();
		codes.push_back((co_await mail.theirs.recv(moment)).code());
	});
	CHECK(codes == std::vector<int>{ETIMEDOUT, ETIMEDOUT, ETIMEDOUT, 0, ETIMEDOUT});
	/* The second was never posted. */
	CHECK(came == "onethree");
}

TEST_CASE("a coroutine that waits for datagrams may be destroyed", "[awaited_datagrams]")
{
	const Fake fake;
	Mail mail;
	std::string came;
	const auto receive = [&](std::string &to) -> task<> {
		to = (co_await mail.theirs.recv(patience)).value().text();
	};
	const auto send = [&](std::string text) -> task<> {
		(void)co_await mail.mine.send(mail.to, text, patience);
	};
	std::string none;

	/* One that waits, one that is sending, and one that waits for that. */
	fake::hold();
	{
		auto first = mail.loop.start(receive(none)).value();
		auto second = mail.loop.start(send("sent nevertheless")).value();
		auto third = mail.loop.start(send("not sent")).value();

		CHECK(mail.loop.run(moment).code() == ETIMEDOUT);
	}
	fake::resume();
	mail.run([&] { return receive(came); }, [&] { return send("next"); });
	CHECK(came == "sent nevertheless");
	mail.run([&] { return receive(came); });
	CHECK(came == "next");
	CHECK(none == "");
}

/* As many as there are receives, so that a lost buffer would be noticed. */
TEST_CASE("a datagram of a destroyed coroutine goes to the next one", "[awaited_datagrams]")
{
	const Fake fake;
	Mail mail;

	for (int i = 0; i < 10; ++i) {
		std::string none, came;
		std::optional<peal::co::job> owner;
		const auto receive = [&](std::string &to) -> task<> {
			to = (co_await mail.theirs.recv(patience)).value().text();
		};

		owner.emplace(mail.loop.start(receive(none)).value());
		/* It runs before the receiver that its datagram has woken. */
		const auto send = [&]() -> task<> {
			(co_await mail.mine.send(mail.to, "text", patience)).value();
			auto probe = mail.theirs.recv(0s);
			(void)probe.await_ready();
			owner.reset();
		};
		mail.run(send, [&] { return receive(came); });
		CHECK(none == "");
		CHECK(came == "text");
	}
}

TEST_CASE("members of a group in an event loop get what one sends", "[awaited_datagrams]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto loop = peal::co::make_loop().value();
	auto adopted = loop.adopt(device.join(address, patience).value()).value();
	std::string one, two;
	const auto member = [&](std::string &to) -> task<> {
		auto group = (co_await loop.join(device, address, patience, 8)).value();
		to = (co_await group.recv(patience)).value().text();
	};
	const auto sender = [&]() -> task<> {
		/* Until both have joined. */
		while (one.empty() || two.empty()) {
			(co_await adopted.send("to all", patience)).value();
			co_await loop.sleep(1ms);
		}
	};

	CHECK(adopted.longest() == 1024);
	loop.spawn(member(one)).value();
	loop.spawn(member(two)).value();
	loop.spawn(sender()).value();
	REQUIRE(std::string(loop.run(patience).why()) == "");
	CHECK(one == "to all");
	CHECK(two == "to all");
}

TEST_CASE("the end of a group ends the coroutines that wait for it", "[awaited_datagrams]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto loop = peal::co::make_loop().value();
	auto group = loop.adopt(device.join(address, patience).value()).value();
	std::string first, later;
	const auto receive = [&](std::string &why) -> task<> {
		why = (co_await group.recv(patience)).why();
	};

	SECTION("by the network")
	{
		loop.spawn(receive(first)).value();
		CHECK(loop.run(moment).code() == ETIMEDOUT);
		fake::end_groups();
		REQUIRE(loop.run(patience));
		CHECK(contains(first, "the network has ended the group"));
		loop.spawn(receive(later)).value();
		REQUIRE(loop.run(patience));
		CHECK(contains(later, "the network has ended the group"));
	}
	SECTION("by the removal of the device")
	{
		loop.spawn(receive(first)).value();
		CHECK(loop.run(moment).code() == ETIMEDOUT);
		fake::remove_devices();
		REQUIRE(loop.run(patience));
		CHECK(first != "");
	}
	SECTION("by the program")
	{
		const auto close = [&]() -> task<> {
			group.close();
			co_return;
		};

		loop.spawn(receive(first)).value();
		loop.spawn(close()).value();
		REQUIRE(loop.run(patience));
		CHECK(contains(first, "has been closed"));
		loop.spawn(receive(later)).value();
		REQUIRE(loop.run(patience));
		CHECK(contains(later, "has been closed"));
	}
	SECTION("by an assignment, while a datagram lives")
	{
		std::optional<peal::datagram> kept;
		auto sender = device.join(address, patience).value();
		const auto take = [&]() -> task<> {
			kept.emplace((co_await group.recv(patience)).value());
		};

		CHECK(sender.send("kept", patience));
		loop.spawn(take()).value();
		REQUIRE(loop.run(patience));
		group = loop.adopt(device.join(address, patience).value()).value();
		CHECK(kept->text() == "kept");
	}
}

TEST_CASE("wrong use of datagrams in an event loop is a sentence", "[awaited_datagrams]")
{
	const Fake fake;
	Mail mail;
	std::vector<std::string> why;
	auto other = mail.devices[0].endpoint().value();
	auto of_other = other.reach(mail.theirs.blob()).value();

	mail.run([&]() -> task<> {
		why.emplace_back((co_await mail.mine.send(of_other, "x", patience)).why());
		const std::string longer(mail.to.longest() + 1, 'x');
		why.emplace_back((co_await mail.mine.send(mail.to, longer, patience)).why());
		fake::fail_next("ibv_post_send", EIO);
		why.emplace_back((co_await mail.mine.send(mail.to, "x", patience)).why());
		auto moved = std::move(mail.mine);
		why.emplace_back((co_await mail.mine.send(mail.to, "x", patience)).why());
		why.emplace_back((co_await mail.mine.recv(patience)).why());
		why.emplace_back(mail.mine.reach(mail.theirs.blob()).why());
		why.emplace_back((co_await moved.send(mail.to, "x", patience)).why());
	});
	REQUIRE(why.size() == 7);
	CHECK(contains(why[0], "of another endpoint"));
	CHECK(contains(why[1], "send them in parts"));
	CHECK(contains(why[2], "does not send"));
	for (std::size_t i : {3, 4, 5})
		CHECK(contains(why[i], "moved"));
	CHECK(why[6] == "");
	auto gone = std::move(other);
	CHECK(contains(mail.loop.adopt(std::move(other)).why(), "moved"));
	auto loop = std::move(mail.loop);
	CHECK(contains(mail.loop.adopt(std::move(gone)).why(), "moved"));
}

TEST_CASE("awaiting datagrams allocates nothing", "[awaited_datagrams]")
{
	const Fake fake;
	Mail mail;
	unsigned count = 1;
	bool good = true;

	mail.run(
		[&]() -> task<> {
			const fake::CountAllocations allocations;

			for (int i = 0; i < 100; ++i) {
				good = good && co_await mail.mine.send(mail.to, "text", patience);
				good = good && co_await mail.mine.recv(patience);
			}
			count = allocations.count();
		},
		[&]() -> task<> {
			for (int i = 0; i < 100; ++i) {
				auto one = co_await mail.theirs.recv(patience);
				good = good &&
				       co_await mail.theirs.send(mail.back, one->text(), patience);
			}
		});
	CHECK(good);
	CHECK(count == 0);
}
