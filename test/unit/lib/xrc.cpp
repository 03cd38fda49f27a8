// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Extended reliable connections: each process of a host has an inbox, and a peer reaches all of
 * them by one connection. The processes are device objects here.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <utility>

#include "pair.hpp"
#include "peal/co.hpp"

namespace {

constexpr peal::options xrc{.transport = peal::transport::xrc};

struct File {
	char name[32] = "/tmp/peal-domain-XXXXXX";

	File() { close(mkstemp(name)); }
	~File() { unlink(name); }
};

struct Process {
	peal::device device = peal::open("fake1").value();
	peal::memory<char> memory =
		device.alloc<char>(64, peal::remote_write | peal::remote_read | peal::remote_atomic)
			.value();
	peal::xrc_domain domain;
	peal::inbox inbox;
	/* As a peer gets it. */
	peal::inbox_address address;

	explicit Process(const char *file, std::uint16_t receives = 4)
		: domain(device.xrc_domain(file).value()),
		  inbox(domain.inbox(memory.share(), receives, 64).value()),
		  address(peal::inbox_address::from(inbox.address().bytes()).value())
	{
	}
};

struct Host {
	File file;
	Process first{file.name}, second{file.name};
	peal::target target = first.domain.target().value();
	peal::device device = peal::open("fake0").value();
	peal::memory<char> mine = device.alloc<char>(256).value();
	peal::connection client;

	Host() : client(connect()) {}

	peal::connection connect()
	{
		auto offer = device.offer({}, xrc).value();
		std::string why;
		std::thread other([&] { why = target.connect(offer.blob(), patience).why(); });
		auto made = offer.connect(target.blob(), patience);

		other.join();
		CHECK(why == "");
		REQUIRE(std::string(made.why()) == "");
		return std::move(made).value();
	}

	template <class Add>
	std::string commit(Add add)
	{
		auto post = client.batch();

		add(post);
		return post.commit(patience).why();
	}
};

std::span<const std::byte> bytes(std::string_view text)
{
	return std::as_bytes(std::span(text));
}

} // namespace

TEST_CASE("one connection reaches the inboxes of two processes", "[xrc]")
{
	const Fake fake;
	Host host;

	CHECK(host.first.address.number() != host.second.address.number());
	CHECK(host.first.address.receive_bytes() == 64);
	CHECK(host.commit([&](peal::batch &post) {
		post.to(host.first.address);
		post.send_inline(bytes("for the first"));
		post.to(host.second.address);
		post.send_inline(bytes("for the second"));
		post.write_imm(host.mine.put(0, "written"), host.second.address.shared().at(8), 7);
		post.to(host.first.address);
		post.send_imm(8);
	}) == "");
	CHECK(host.second.inbox.recv(patience).value().text() == "for the second");
	auto written = host.second.inbox.recv(patience).value();
	CHECK(written.imm() == 7);
	CHECK(written.written() == 7);
	CHECK(written.bytes().empty());
	CHECK(std::string_view(host.second.memory.data() + 8) == "written");
	CHECK(host.first.inbox.recv(patience).value().text() == "for the first");
	auto last = host.first.inbox.recv(patience).value();
	CHECK(last.imm() == 8);
	CHECK(!last.as<char>());
	CHECK(host.first.inbox.recv(0s).code() == ETIMEDOUT);
	/* READs and atomics name the inbox, too, whose process has the memory. */
	CHECK(host.commit([&](peal::batch &post) {
		post.to(host.second.address);
		post.read(host.mine.part(100, 7), host.second.address.shared().at(8));
		post.fetch_add(host.mine.part(128, 8), host.second.address.shared().at(16), 1);
	}) == "");
	CHECK(std::string_view(host.mine.data() + 100) == "written");
}

TEST_CASE("several connections fill one inbox", "[xrc]")
{
	const Fake fake;
	Host host;
	auto target = host.second.domain.target().value();
	std::swap(target, host.target);
	auto other = host.connect();

	for (int i = 0; i < 20; ++i) {
		auto &by = i % 2 ? host.client : other;
		auto post = by.batch();

		post.to(host.first.address);
		post.send_imm(i);
		CHECK(post.commit(patience));
		CHECK(host.first.inbox.recv(patience).value().imm() == i);
	}
	/* One that ends takes nothing with it. */
	host.client.close();
	auto post = other.batch();
	post.to(host.first.address);
	post.send_imm(21);
	CHECK(post.commit(patience));
	CHECK(host.first.inbox.recv(patience).value().imm() == 21);
}

TEST_CASE("a request without an inbox is not posted", "[xrc]")
{
	const Fake fake;
	Host host;
	Ends ends;

	CHECK(contains(host.commit([&](peal::batch &post) { post.send_imm(1); }),
		       "goes to no inbox"));
	CHECK(host.commit([&](peal::batch &post) {
		post.to(host.first.address);
		post.send_imm(1);
	}) == "");
	/* Each batch says it again. */
	CHECK(contains(host.commit([&](peal::batch &post) { post.send_imm(2); }),
		       "goes to no inbox"));
	CHECK(contains(host.commit([&](peal::batch &post) {
		post.to(host.first.address);
		post.send(host.mine.part(0, 65));
	}),
		       "longer than the peer's receive buffers"));
	auto post = ends.client->batch();
	post.to(host.first.address);
	post.send_imm(3);
	CHECK(contains(post.commit().why(), "leave out to()"));
	CHECK(contains(host.client.recv(patience).why(), "receive by an inbox"));
	CHECK(contains(host.client.recv_imm(patience).why(), "receive by an inbox"));
	CHECK(contains(host.client.window().why(), "only a reliable connection has windows"));
	peal::lease lease;
	CHECK(contains(host.commit([&](peal::batch &post) {
		post.to(host.first.address);
		post.send_invalidate(lease);
	}),
		       "gives a lease back"));
	CHECK(host.first.inbox.recv(patience).value().imm() == 1);
	CHECK(host.first.inbox.recv(0s).code() == ETIMEDOUT);
}

TEST_CASE("an inbox without a free receive makes its peer wait", "[xrc]")
{
	const Fake fake;
	Host host;
	std::optional<peal::inbox_message> kept;

	for (std::uint32_t i = 1; i <= 4; ++i)
		CHECK(host.commit([&](peal::batch &post) {
			post.to(host.first.address);
			post.send_imm(i);
		}) == "");
	kept.emplace(host.first.inbox.recv(patience).value());
	auto post = host.client.batch();
	post.to(host.first.address);
	post.send_imm(5);
	CHECK(post.commit(moment).code() == ETIMEDOUT);
	kept.emplace(host.first.inbox.recv(patience).value());
	CHECK(host.client.wait(1, patience));
	for (std::uint32_t i = 3; i <= 5; ++i)
		CHECK(host.first.inbox.recv(patience).value().imm() == i);
	CHECK(kept->imm() == 2);
}

TEST_CASE("an inbox that has ended refuses, and its messages stay", "[xrc]")
{
	const Fake fake;
	Host host;
	const auto gone = host.first.address;

	CHECK(host.commit([&](peal::batch &post) {
		post.to(host.first.address);
		post.send_inline(bytes("kept"));
	}) == "");
	auto message = host.first.inbox.recv(patience).value();
	host.first.inbox = host.first.domain.inbox({}, 2, 16).value();
	CHECK(message.text() == "kept");
	/* The message keeps the queue. */
	CHECK(host.commit([&](peal::batch &post) {
		post.to(gone);
		post.send_imm(1);
	}) == "");
	auto other = host.second.domain.inbox({}, 1, 16).value();
	const auto short_lived = other.address();
	{
		auto ends = std::move(other);
	}
	CHECK(contains(host.commit([&](peal::batch &post) {
		post.to(short_lived);
		post.send_imm(1);
	}),
		       "calls the request invalid"));
}

TEST_CASE("a message that ends its connection leaves the inbox as it was", "[xrc]")
{
	const Fake fake;
	Host host;
	auto bytes = host.first.inbox.address().bytes();

	/* Its peer believes that 256 bytes fit. */
	bytes[30] = std::byte{1};
	const auto longer = peal::inbox_address::from(bytes).value();
	REQUIRE(longer.receive_bytes() == 256 + 64);
	CHECK(host.commit([&](peal::batch &post) {
		post.to(longer);
		post.send(host.mine.part(0, 65));
	}) != "");
	CHECK(host.first.inbox.recv(0s).code() == ETIMEDOUT);
	auto target = host.second.domain.target().value();
	std::swap(target, host.target);
	host.client = host.connect();
	for (std::uint32_t i = 0; i < 4; ++i)
		CHECK(host.commit([&](peal::batch &post) {
			post.to(host.first.address);
			post.send_imm(i);
		}) == "");
	for (std::uint32_t i = 0; i < 4; ++i)
		CHECK(host.first.inbox.recv(patience).value().imm() == i);
}

TEST_CASE("edge-triggered epoll loses no message of an inbox", "[xrc]")
{
	const Fake fake;
	Host host;
	const int epoll = epoll_create1(EPOLL_CLOEXEC);
	epoll_event event{EPOLLIN | EPOLLET, {}};
	unsigned came = 0;

	epoll_ctl(epoll, EPOLL_CTL_ADD, host.first.inbox.fd(), &event);
	std::thread sends([&] {
		for (std::uint32_t i = 0; i < 100; ++i)
			CHECK(host.commit([&](peal::batch &post) {
				post.to(host.first.address);
				post.send_imm(i);
			}) == "");
	});
	while (came < 100) {
		if (host.first.inbox.arm() == peal::next_step::sleep)
			REQUIRE(epoll_wait(epoll, &event, 1, 60000) == 1);
		while (auto message = host.first.inbox.recv(0s))
			CHECK(message->imm() == came++);
	}
	sends.join();
	close(epoll);
}

TEST_CASE("domains, inboxes and targets may end in any order", "[xrc]")
{
	const Fake fake;
	std::optional<Host> host(std::in_place);
	std::optional<peal::inbox_message> message;

	CHECK(host->commit([&](peal::batch &post) {
		post.to(host->second.address);
		post.send_inline(bytes("text"));
	}) == "");
	message.emplace(host->second.inbox.recv(patience).value());
	{
		auto domain = std::move(host->second.domain);
		auto device = std::move(host->second.device);
	}
	CHECK(contains(host->second.domain.target().why(), "moved"));
	CHECK(contains(host->second.domain.inbox({}, 1).why(), "moved"));
	CHECK(host->commit([&](peal::batch &post) {
		post.to(host->second.address);
		post.send_imm(2);
	}) == "");
	CHECK(host->second.inbox.recv(patience).value().imm() == 2);
	if (GENERATE(false, true)) {
		/* The connection ends with its target. */
		auto gone = std::move(host->target);
		CHECK(host->target.blob().empty());
		CHECK(contains(host->target.connect({}, 0s).why(), "moved"));
		auto inbox = std::move(host->second.inbox);
		CHECK(contains(host->second.inbox.recv(0s).why(), "moved"));
		CHECK(host->second.inbox.arm() == peal::next_step::close);
	}
	host.reset();
	CHECK(message->text() == "text");
}

TEST_CASE("a connection ends with its target", "[xrc]")
{
	const Fake fake;
	Host host;
	{
		auto gone = std::move(host.target);
	}
	CHECK(contains(host.commit([&](peal::batch &post) {
		post.to(host.first.address);
		post.send_imm(1);
	}),
		       "the peer does not answer"));
}

TEST_CASE("blobs of inboxes connect an offer and a target only", "[xrc]")
{
	const Fake fake;
	const File file;
	Process process(file.name);
	auto device = peal::open("fake0").value();
	auto mine = device.offer({}, xrc).value();
	auto same = device.offer({}, xrc).value();
	auto plain = device.offer({}).value();
	auto target = process.domain.target().value();
	auto other = process.domain.target().value();

	CHECK(contains(mine.connect(same.blob(), moment).why(), "one of them a target"));
	CHECK(contains(mine.connect(plain.blob(), moment).why(), "one of them a target"));
	CHECK(contains(plain.connect(target.blob(), moment).why(), "one of them a target"));
	CHECK(contains(target.connect(other.blob(), moment).why(), "one of them a target"));
	CHECK(contains(target.connect({}, moment).why(), "no blob of libpeal"));
	CHECK(target.connect(mine.blob(), moment).code() == ETIMEDOUT);
	CHECK(target.connect(mine.blob(), moment).code() == EALREADY);
	auto listener = device.listen(0).value();
	CHECK(contains(listener.accept({}, moment, xrc).why(), "connect by an offer to a target"));
	CHECK(contains(device.connect(fake::here, 1, {}, moment, xrc).why(),
		       "connect by an offer to a target"));
	auto pool = device.share_receives(2).value();
	CHECK(contains(device.offer({}, {.transport = peal::transport::xrc, .shared = &pool}).why(),
		       "leave out options.shared"));
}

TEST_CASE("bytes that are no address of an inbox make none", "[xrc]")
{
	const Fake fake;
	const File file;
	Process process(file.name);
	const auto right = process.inbox.address().bytes();

	CHECK(peal::inbox_address::from(right)->shared().key() == process.memory.share().key());
	CHECK(peal::inbox_address::from(right)->shared().rights() ==
	      process.memory.share().rights());
	CHECK(!peal::inbox_address::from(std::span(right).first(39)));
	/* One byte each of the magic, version, transport, number and reserved fields. */
	for (const std::size_t at : {0, 4, 6, 32, 39}) {
		auto changed = right;
		changed[at] = std::byte{0x55};
		CHECK(!peal::inbox_address::from(changed));
	}
	auto zero = right;
	for (const std::size_t at : {33, 34, 35})
		zero[at] = std::byte{0};
	CHECK(!peal::inbox_address::from(zero));
}

TEST_CASE("domains, inboxes and targets that cannot be made are a sentence", "[xrc]")
{
	const Fake fake;
	const File file;
	auto device = peal::open("fake1").value();

	CHECK(device.has_xrc());
	CHECK(contains(device.xrc_domain("/nothing/there").why(), "choose another one"));
	fake::fail_next("ibv_open_xrcd", ENOMEM);
	CHECK(contains(device.xrc_domain(file.name).why(), "opens no XRC domain"));
	{
		Process process(file.name);

		CHECK(contains(process.domain.inbox({}, 0).why(), "choose another number"));
		for (const char *function :
		     {"ibv_create_comp_channel", "ibv_create_cq", "ibv_reg_mr", "ibv_create_srq",
		      "ibv_get_srq_num", "ibv_post_srq_recv"}) {
			INFO(function);
			const std::string before = fake::alive();

			fake::fail_next(function, ENOSYS);
			CHECK(std::string(process.domain.inbox({}, 2).why()) != "");
			CHECK(fake::alive() == before);
		}
		const std::string before = fake::alive();
		fake::fail_next("ibv_create_qp", ENOMEM);
		CHECK(contains(process.domain.target().why(), "makes no target"));
		CHECK(fake::alive() == before);
	}
	fake::set_xrc(false);
	auto other = peal::open("fake1").value();
	CHECK(!other.has_xrc());
	CHECK(contains(other.xrc_domain(file.name).why(), "opens no XRC domain"));
	auto moved = std::move(other);
	CHECK(contains(other.xrc_domain(file.name).why(), "moved"));
}

TEST_CASE("sending to inboxes and receiving allocate nothing", "[xrc]")
{
	const Fake fake;
	Host host;
	const fake::CountAllocations allocations;

	for (std::uint32_t i = 0; i < 10; ++i) {
		auto post = host.client.batch();
		post.to(host.first.address);
		post.send_imm(i);
		CHECK(post.commit(patience));
		CHECK(host.first.inbox.recv(patience));
	}
	CHECK(allocations.count() == 0);
}

TEST_CASE("coroutines send to inboxes", "[xrc]")
{
	const Fake fake;
	Host host;
	auto loop = peal::co::make_loop().value();
	auto client = loop.adopt(std::move(host.client)).value();
	std::string no_message, sent;
	auto talk = [&]() -> peal::co::task<> {
		const auto came = co_await client.recv(patience);
		no_message = came.why();
		auto post = client.batch();
		post.to(host.second.address);
		post.send_imm(5);
		const auto done = co_await post.commit(patience);
		sent = done.why();
	};

	CHECK(loop.spawn(talk()));
	CHECK(loop.run(patience));
	CHECK(contains(no_message, "receive by an inbox"));
	CHECK(sent == "");
	CHECK(host.second.inbox.recv(patience).value().imm() == 5);
}
