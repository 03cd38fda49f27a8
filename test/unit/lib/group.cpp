// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Multicast groups. All members get each datagram and learn its sender. Wrong use is refused. A
 * group that ends, or that could not be joined, leaves nothing behind.
 */
#include <cerrno>
#include <string>
#include <vector>

#include <rdma/rdma_cma.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "pair.hpp"

namespace {

constexpr const char *address = "239.1.2.3";

peal::group join(peal::device &device, const char *to = address, std::uint16_t receives = 8)
{
	auto made = device.join(to, patience, receives);

	REQUIRE(std::string(made.why()) == "");
	return std::move(made).value();
}

} // namespace

TEST_CASE("all other members of a group get what one sends", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto sender = join(device), one = join(device), two = join(device);
	auto other = join(device, "239.1.2.4");

	REQUIRE(sender.send("to all", patience));
	REQUIRE(sender.send("", patience));
	for (peal::group *member : {&one, &two}) {
		CHECK(member->recv(patience).value().text() == "to all");
		CHECK(member->recv(patience).value().bytes().empty());
		CHECK(member->recv(0s).code() == ETIMEDOUT);
	}
	CHECK(contains(other.recv(moment).why(), "no datagram has come in time"));
	REQUIRE(two.send("back", patience));
	CHECK(sender.recv(patience).value().text() == "back");
}

TEST_CASE("a datagram has the address of its sender, and can be read as an object", "[group]")
{
	struct point {
		int x, y;
	};
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto sender = join(device), member = join(device);
	const point sent{3, 4};

	REQUIRE(sender.send(std::as_bytes(std::span(&sent, 1)), patience));
	auto four = member.recv(patience).value();
	REQUIRE(four.as<point>());
	CHECK(four.as<point>()->y == 4);
	CHECK(!four.as<char>());
	CHECK(std::to_integer<int>(four.from()[10]) == 0xff);
	CHECK(std::to_integer<int>(four.from()[12]) == 10);
	CHECK(std::to_integer<int>(four.from()[15]) == 7);
	fake::send_from_six();
	REQUIRE(sender.send("six", patience));
	auto six = member.recv(patience).value();
	CHECK(std::to_integer<int>(six.from()[0]) == 0xab);
	CHECK(std::to_integer<int>(six.from()[15]) == 0xab);
	CHECK(four.as<point>()->x == 3);
}

TEST_CASE("a group of IPv6 is joined by an address that is not link-local", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto sender = join(device, "ff0e::1"), member = join(device, "ff0e::1");

	REQUIRE(sender.send("text", patience));
	CHECK(member.recv(patience).value().text() == "text");
}

TEST_CASE("a datagram keeps its buffer, and what finds none is lost", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto sender = join(device), member = join(device, address, 2);

	for (const char *text : {"one", "two", "three"})
		REQUIRE(sender.send(text, patience));
	std::optional<peal::datagram> one(member.recv(patience).value());
	std::optional<peal::datagram> two(member.recv(patience).value());
	CHECK(!member.recv(0s));
	CHECK(one->text() == "one");
	one.reset();
	REQUIRE(sender.send("four", patience));
	CHECK(two->text() == "two");
	*two = member.recv(patience).value();
	CHECK(two->text() == "four");
	/* It outlives its group. */
	{
		auto gone = std::move(member);
	}
	CHECK(two->text() == "four");
}

TEST_CASE("a datagram has at most the MTU, and many can be sent", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto sender = join(device), member = join(device, address, 1);

	CHECK(sender.longest() == 1024);
	CHECK(sender.send(std::string(1025, 'x'), patience).code() == EMSGSIZE);
	for (int i = 0; i < 100; ++i) {
		const std::string text(1024, static_cast<char>('a' + i % 26));

		REQUIRE(sender.send(text, patience));
		REQUIRE(member.recv(patience).value().text() == text);
	}
}

TEST_CASE("a datagram that was not sent in time is not overwritten", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto sender = join(device), member = join(device);

	fake::hold();
	CHECK(contains(sender.send("one", moment).why(), "has not sent it in time"));
	CHECK(sender.send("two", moment).code() == ETIMEDOUT);
	fake::resume();
	REQUIRE(sender.send("three", patience));
	CHECK(member.recv(patience).value().text() == "one");
	CHECK(member.recv(patience).value().text() == "three");
	CHECK(!member.recv(0s));
}

TEST_CASE("a receive that sleeps is woken by a datagram, and by the end of the group", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto sender = join(device), member = join(device);

	std::thread late([&] {
		std::this_thread::sleep_for(moment);
		CHECK(sender.send("late", patience));
	});
	CHECK(member.recv(patience).value().text() == "late");
	late.join();
	std::thread ends([] {
		std::this_thread::sleep_for(moment);
		fake::end_groups();
	});
	const auto ended = member.recv(patience);
	ends.join();
	CHECK(ended.code() == ENODEV);
	CHECK(contains(ended.why(), "the network has ended the group"));
	CHECK(contains(member.recv(0s).why(), "the network has ended the group"));
}

TEST_CASE("edge-triggered epoll loses no datagram of a group", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto sender = join(device), member = join(device);
	epoll_event event{};
	const int epoll = epoll_create1(EPOLL_CLOEXEC);

	event.events = EPOLLIN | EPOLLET;
	REQUIRE(!epoll_ctl(epoll, EPOLL_CTL_ADD, member.fd(), &event));
	for (int i = 0; i < 50; ++i) {
		/* One comes before the look, and one during the sleep. */
		REQUIRE(sender.send("x", patience));
		CHECK(member.arm() == peal::next_step::take);
		CHECK(member.arm() == peal::next_step::take);
		CHECK(member.recv(0s).value().text() == "x");
		CHECK(member.recv(0s).code() == ETIMEDOUT);
		while (member.arm() != peal::next_step::sleep)
			(void)member.recv(0s);
		std::thread late([&] { CHECK(sender.send("x", patience)); });
		CHECK(epoll_wait(epoll, &event, 1, 60000) == 1);
		late.join();
		CHECK(member.arm() == peal::next_step::take);
		CHECK(member.recv(0s).value().text() == "x");
	}
	CHECK(member.arm() == peal::next_step::sleep);
	fake::end_groups();
	CHECK(epoll_wait(epoll, &event, 1, 60000) == 1);
	CHECK(member.arm() == peal::next_step::close);
	auto moved = std::move(member);
	CHECK(member.arm() == peal::next_step::close);
	CHECK(member.fd() == -1);
	close(epoll);
}

TEST_CASE("a device that disappears ends a group", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto member = join(device);

	fake::remove_devices();
	CHECK(member.recv(patience).code() == ENODEV);
}

TEST_CASE("a group that cannot be joined is a sentence", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	const auto why = [&](const char *to = address, std::uint16_t receives = 8) {
		return std::string(device.join(to, patience, receives).why());
	};

	CHECK(contains(why("nowhere.example"), "is not known"));
	fake::set_ports_up(false);
	CHECK(contains(why(), "no address of IPv4 on a port that is up"));
	fake::set_ports_up(true);
	CHECK(contains(why(address, 0), "at least one"));
	CHECK(contains(why(address, 2000), "at most 1024"));
	for (const char *function :
	     {"rdma_create_event_channel", "rdma_create_id", "rdma_bind_addr",
	      "rdma_join_multicast", "ibv_reg_mr", "ibv_create_comp_channel", "ibv_create_cq",
	      "ibv_create_qp", "ibv_create_ah", "to INIT", "ibv_post_recv", "to RTR", "to RTS",
	      "ibv_attach_mcast"}) {
		INFO(function);
		fake::fail_next(function, EIO);
		CHECK(!why().empty());
	}
	fake::join_with(RDMA_CM_EVENT_MULTICAST_ERROR);
	CHECK(contains(why(), "cannot join 239.1.2.3"));
	fake::join_with(fake::never);
	CHECK(device.join(address, moment).code() == ETIMEDOUT);
	CHECK(contains(peal::open("fake1").value().join(address, patience).why(),
		       "another device"));
	auto gone = std::move(device);
	CHECK(contains(why(), "moved"));
	fake::join_with(RDMA_CM_EVENT_MULTICAST_JOIN);
	auto group = join(gone);
	auto moved = std::move(group);
	CHECK(contains(group.recv(0s).why(), "moved"));
	CHECK(contains(group.send("x", 0s).why(), "moved"));
	CHECK(group.longest() == 0);
}

TEST_CASE("sending and receiving datagrams allocate nothing", "[group]")
{
	const Fake fake;
	auto device = peal::open("fake0").value();
	auto sender = join(device), member = join(device);
	bool good = true;
	unsigned count = 0;

	{
		const fake::CountAllocations allocations;

		for (int i = 0; i < 100; ++i) {
			good = good && sender.send("text", patience);
			good = good && member.recv(patience).value().text() == "text";
			good = good && !member.recv(1ms);
		}
		count = allocations.count();
	}
	CHECK(good);
	CHECK(count == 0);
}
