// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory windows. A peer reaches only the memory of its lease, and only until the lease ends. An
 * aborted batch changes no window. A window keeps its memory, and ends before its queue pair.
 */
#include <cerrno>
#include <string>
#include <utility>

#include "pair.hpp"
#include "peal/co.hpp"

namespace {

/* The server lends parts of a memory that the client cannot reach otherwise. */
struct Lending : Ends {
	peal::memory<char> lent = device->alloc<char>(4096, peal::bindable).value();
	peal::window window = server->window().value();

	explicit Lending(const peal::options &options = {}) : Ends(options) {}

	/* Binds, and sends the lease by the same batch. */
	peal::lease lend(std::size_t first, std::size_t count,
			 peal::rights given = peal::remote_write)
	{
		auto post = server->batch();

		post.bind(window, lent.part(first, count), given);
		post.send_inline(window.share().bytes());
		const auto done = post.commit(patience);
		REQUIRE(std::string(done.why()) == "");
		return peal::lease::from(client->recv(patience).value().bytes()).value();
	}
};

template <class Add>
peal::status committed(peal::connection &on, Add add)
{
	auto post = on.batch();

	add(post);
	return post.commit(patience);
}

std::string write(peal::connection &by, const peal::slice &text, const peal::remote &to)
{
	return committed(by, [&](peal::batch &post) { post.write(text, to); }).why();
}

} // namespace

TEST_CASE("a peer reaches what a window lends it, and nothing else", "[windows]")
{
	const Fake fake;
	Lending ends;
	const peal::lease lease = ends.lend(100, 10);

	CHECK(ends.window.is_bound());
	CHECK(lease.size() == 10);
	CHECK(lease.rights() == peal::rights::write);
	CHECK(lease.key() == ends.window.share().key());
	CHECK(write(*ends.client, ends.mine->put(0, "text"), lease.at(0)) == "");
	CHECK(std::string_view(ends.lent.data() + 100) == "text");
	/* It is refused here, because the connection would end there. */
	CHECK(contains(write(*ends.client, ends.mine->part(0, 11), lease.at(0)),
		       "shorter than the slice"));
	CHECK(!lease.at(11));
	CHECK(contains(
		committed(*ends.client,
			  [&](peal::batch &post) { post.read(ends.mine->part(0, 4), lease.at(0)); })
			.why(),
		"does not give this right"));
	/* The peer cannot use this region, because only a window gives rights to the memory. */
	CHECK(ends.lent.share().rights() == peal::rights::none);
}

TEST_CASE("a lease has the rights that were given", "[windows]")
{
	const Fake fake;
	Lending ends;
	const peal::lease lease = ends.lend(0, 8, peal::remote_read | peal::remote_atomic);
	const std::uint64_t before = 7;

	std::memcpy(ends.lent.data(), &before, sizeof(before));
	CHECK(contains(write(*ends.client, ends.mine->part(0, 8), lease.at(0)),
		       "does not give this right"));
	CHECK(committed(*ends.client, [&](peal::batch &post) {
		post.fetch_add(ends.mine->part(0, 8), lease.at(0), 1);
		post.read(ends.mine->part(8, 8), lease.at(0));
	}));
	CHECK(ends.mine->data()[0] == 7);
	CHECK(ends.mine->data()[8] == 8);
}

TEST_CASE("a lease that was taken back is of no use any more", "[windows]")
{
	const Fake fake;
	Lending ends;
	const peal::lease lease = ends.lend(0, 10);

	CHECK(committed(*ends.server, [&](peal::batch &post) { post.invalidate(ends.window); }));
	CHECK(!ends.window.is_bound());
	CHECK(ends.window.share().size() == 0);
	CHECK(contains(write(*ends.client, ends.mine->put(0, "text"), lease.at(0)),
		       "bind its window again"));
	CHECK(ends.lent[0] == 0);
	CHECK(contains(write(*ends.client, ends.mine->put(0, "text"), lease.at(0)),
		       "connect again"));
}

TEST_CASE("a lease is of one connection", "[windows]")
{
	const Fake fake;
	Lending ends;
	Ends others;
	const peal::lease lease = ends.lend(0, 10);

	CHECK(write(*others.client, others.mine->put(0, "text"), lease.at(0)) != "");
	CHECK(ends.lent[0] == 0);
	CHECK(write(*ends.client, ends.mine->put(0, "text"), lease.at(0)) == "");
	CHECK(contains(
		committed(*ends.client, [&](peal::batch &post) { post.invalidate(ends.window); })
			.why(),
		"of another connection"));
	CHECK(ends.window.is_bound());
}

TEST_CASE("the peer gives a lease back by a message", "[windows]")
{
	const Fake fake;
	Lending ends;

	/* The completions of shared receives come in the same way. */
	if (GENERATE(false, true)) {
		auto pool = ends.device->share_receives(4).value();

		ends.client.reset();
		ends.server.reset();
		ends.connect({.shared = &pool});
		ends.window = ends.server->window().value();
	}
	peal::lease lease = ends.lend(0, 10);
	const peal::rkey key = lease.key();
	const auto text = ends.mine->put(0, "done");
	CHECK(committed(*ends.client, [&](peal::batch &post) {
		post.write(text, lease.at(0));
		CHECK(post.send_invalidate(text, lease) != peal::request::none);
		/* From here on it is of no use to this end either. */
		CHECK(lease.size() == 0);
	}));
	CHECK(contains(write(*ends.client, text, lease.at(0)), "does not give this right"));
	auto message = ends.server->recv(patience).value();
	CHECK(message.text() == "done");
	CHECK(message.invalidated() == key);
	CHECK(!message.imm());
	CHECK(!ends.window.is_bound());
	/* It may be bound to other memory at once. */
	auto other = ends.device->alloc<char>(16, peal::bindable).value();
	CHECK(committed(*ends.server, [&](peal::batch &post) {
		post.bind(ends.window, other.all(), peal::remote_read);
		post.send_inline(ends.window.share().bytes());
	}));
	lease = peal::lease::from(ends.client->recv(patience).value().bytes()).value();
	CHECK(committed(*ends.client, [&](peal::batch &post) { post.send_invalidate(lease); }));
	CHECK(ends.server->recv_imm(patience).code() == EPROTO);
	auto empty = ends.server->recv(patience).value();
	CHECK(empty.bytes().empty());
	CHECK(empty.invalidated());
	CHECK(!ends.window.is_bound());
}

TEST_CASE("a lease is given back to rdma_rxe, which says it in its own way", "[windows][verbs]")
{
	const Fake fake;
	Lending ends;
	peal::lease lease = ends.lend(0, 10);
	const peal::rkey key = lease.key();

	fake::say_inv_as_rxe();
	CHECK(committed(*ends.client, [&](peal::batch &post) { post.send_invalidate(lease); }));
	CHECK(ends.server->recv(patience)->invalidated() == key);
	CHECK(!ends.window.is_bound());
}

TEST_CASE("a window is bound again and again, with another key each time", "[windows]")
{
	const Fake fake;
	Lending ends;
	peal::lease lease = ends.lend(0, 4);

	for (unsigned i = 0; i < 600; ++i) {
		auto post = ends.server->batch();
		const peal::rkey old = lease.key();

		post.invalidate(ends.window);
		post.bind(ends.window, ends.lent.part(i, 4), peal::remote_write);
		lease = ends.window.share();
		REQUIRE(post.commit(patience));
		REQUIRE(lease.key() != old);
		REQUIRE(write(*ends.client, ends.mine->put(0, "text"), lease.at(0)) == "");
		REQUIRE(std::string_view(ends.lent.data() + i) == "text");
	}
}

TEST_CASE("a bind that the device would refuse is not posted", "[windows]")
{
	const Fake fake;
	Lending ends;
	const auto why = [&](const peal::slice &part, peal::rights given) {
		return std::string(committed(*ends.server, [&](peal::batch &post) {
					   CHECK(post.bind(ends.window, part, given) ==
						 peal::request::none);
				   }).why());
	};

	CHECK(contains(why(ends.theirs->part(0, 8), peal::remote_write),
		       "alloc() it with bindable"));
	CHECK(contains(why(ends.lent.part(4000, 97), peal::remote_write), "not inside its memory"));
	CHECK(contains(why(ends.lent.part(0, 0), peal::remote_write), "of no bytes"));
	CHECK(contains(why(ends.lent.part(0, 8), peal::rights::none), "say which"));
	CHECK(contains(why(ends.lent.part(0, 8), peal::bindable), "say which"));
	CHECK(contains(
		committed(*ends.server, [&](peal::batch &post) { post.invalidate(ends.window); })
			.why(),
		"nothing to invalidate"));
	peal::lease nothing;
	CHECK(contains(
		committed(*ends.client, [&](peal::batch &post) { post.send_invalidate(nothing); })
			.why(),
		"the lease is empty"));
	(void)ends.lend(0, 8);
	CHECK(contains(why(ends.lent.part(0, 8), peal::remote_write), "the window is bound"));
	CHECK(ends.window.is_bound());
	/* A batch binds a window once, because its key is read when the batch is posted. */
	CHECK(contains(
		committed(*ends.server,
			  [&](peal::batch &post) {
				  post.invalidate(ends.window);
				  post.bind(ends.window, ends.lent.part(0, 8), peal::remote_write);
				  post.invalidate(ends.window);
				  post.bind(ends.window, ends.lent.part(0, 8), peal::remote_write);
			  })
			.why(),
		"has bound the window before"));
	CHECK(ends.window.is_bound());
	/* The connection lives. */
	CHECK(committed(*ends.server, [&](peal::batch &post) { post.invalidate(ends.window); }));
	auto moved = std::move(ends.window);
	CHECK(contains(why(ends.lent.part(0, 8), peal::remote_write), "moved"));
	ends.window = std::move(moved);
	/* A full queue refuses windows, too. */
	auto post = ends.server->batch();
	for (unsigned i = 0; i < 128; ++i)
		post.send_imm(i);
	CHECK(post.bind(ends.window, ends.lent.all(), peal::remote_write) == peal::request::none);
	CHECK(contains(post.commit().why(), "queue is full"));
	CHECK(!ends.window.is_bound());
}

TEST_CASE("a window is as before when its batch is not posted", "[windows]")
{
	const Fake fake;
	Lending ends;
	{
		auto post = ends.server->batch();
		post.bind(ends.window, ends.lent.all(), peal::remote_write);
		CHECK(ends.window.is_bound());
		post.abort();
		CHECK(!ends.window.is_bound());
		post.bind(ends.window, ends.lent.all(), peal::remote_write);
	}
	CHECK(!ends.window.is_bound());
	const peal::lease lease = ends.lend(0, 8);
	{
		auto post = ends.server->batch();
		post.invalidate(ends.window);
		post.bind(ends.window, ends.lent.all(), peal::remote_read);
		CHECK(ends.window.share().key() != lease.key());
		/* It cannot be right, so nothing of the batch is posted. */
		post.write(ends.mine->part(0, 1), ends.server->peer().at(0));
		CHECK(!post.commit());
	}
	CHECK(ends.window.is_bound());
	CHECK(ends.window.share().key() == lease.key());
	CHECK(write(*ends.client, ends.mine->put(0, "text"), lease.at(0)) == "");
}

TEST_CASE("a window that the peer gives back in the meantime is not invalidated", "[windows]")
{
	const Fake fake;
	Lending ends;
	peal::lease lease = ends.lend(0, 8);
	auto post = ends.server->batch();

	post.invalidate(ends.window);
	CHECK(committed(*ends.client, [&](peal::batch &post) { post.send_invalidate(lease); }));
	CHECK(ends.server->recv(patience));
	CHECK(contains(post.commit().why(), "has given a window back"));
	CHECK(!ends.window.is_bound());
	post.bind(ends.window, ends.lent.part(0, 8), peal::remote_write);
	CHECK(post.commit(patience));
	CHECK(ends.window.is_bound());
}

TEST_CASE("other memory is bound when the old lease has ended", "[windows]")
{
	const Fake fake;
	Lending ends;
	std::optional<peal::memory<char>> other(
		ends.device->alloc<char>(64, peal::bindable).value());

	(void)ends.lend(0, 8);
	fake::hold();
	auto post = ends.server->batch();
	post.invalidate(ends.window);
	REQUIRE(post.commit());
	post.bind(ends.window, other->all(), peal::remote_write);
	CHECK(contains(post.commit().why(), "wait for it before you bind other memory"));
	fake::resume();
	CHECK(ends.server->wait(1, patience));
	post.bind(ends.window, other->all(), peal::remote_write);
	CHECK(post.commit(patience));
	/* The window keeps the memory. */
	const peal::lease lease = ends.window.share();
	other.reset();
	CHECK(write(*ends.client, ends.mine->put(0, "text"), lease.at(0)) == "");
}

TEST_CASE("a window that ends takes its lease back", "[windows]")
{
	const Fake fake;
	Lending ends;
	const peal::lease lease = ends.lend(0, 8);

	ends.window = ends.server->window().value();
	CHECK(write(*ends.client, ends.mine->put(0, "text"), lease.at(0)) != "");
	CHECK(ends.lent[0] == 0);
}

TEST_CASE("a window that ends in its batch keeps the batch from being posted", "[windows]")
{
	const Fake fake;
	Lending ends;
	auto post = ends.server->batch();

	post.bind(ends.window, ends.lent.all(), peal::remote_write);
	ends.window = ends.server->window().value();
	CHECK(contains(post.commit().why(), "keep it until its request has completed"));
	post.bind(ends.window, ends.lent.all(), peal::remote_write);
	CHECK(post.commit(patience));
}

TEST_CASE("windows, memory and connections may end in any order", "[windows]")
{
	const Fake fake;
	const int order = GENERATE(0, 1, 2, 3, 4);
	std::optional<Ends> ends(std::in_place);
	std::optional<peal::memory<char>> memory(
		ends->device->alloc<char>(64, peal::bindable).value());
	std::optional<peal::window> window(ends->server->window().value());
	CHECK(committed(*ends->server, [&](peal::batch &post) {
		post.bind(*window, memory->all(), peal::remote_write);
	}));

	switch (order) {
	case 0:
		memory.reset();
		window.reset();
		break;
	case 1:
		memory.reset();
		ends.reset();
		CHECK(!window->is_bound());
		break;
	case 2:
		ends->server->close();
		CHECK(!window->is_bound());
		CHECK(window->share().size() == 0);
		memory.reset();
		ends.reset();
		break;
	case 3: {
		/* A batch outlives its connection, and then its window. */
		auto post = ends->server->batch();
		post.invalidate(*window);
		ends->server.reset();
		CHECK(!window->is_bound());
		post.bind(*window, memory->all(), peal::remote_write);
		CHECK(post.commit().code() == ENOTCONN);
		window.reset();
		break;
	}
	default:
		CHECK(contains((ends->server->close(), ends->server->window()).why(), "closed"));
		ends->device.reset();
		ends->theirs.reset();
	}
}

TEST_CASE("a batch that is posted in part loses its windows", "[windows][verbs]")
{
	const Fake fake;
	Lending ends;
	auto post = ends.server->batch();

	post.bind(ends.window, ends.lent.all(), peal::remote_write);
	fake::fail_next("ibv_post_send", ENOMEM);
	CHECK(!post.commit());
	CHECK(!ends.window.is_bound());
	post.bind(ends.window, ends.lent.all(), peal::remote_write);
	CHECK(contains(post.commit().why(), "make another window"));
	ends.window = ends.server->window().value();
	post.bind(ends.window, ends.lent.all(), peal::remote_write);
	CHECK(post.commit(patience));
}

TEST_CASE("requests of windows allocate nothing", "[windows]")
{
	const Fake fake;
	Lending ends;
	peal::lease lease = ends.lend(0, 8);
	const fake::CountAllocations allocations;

	CHECK(committed(*ends.client, [&](peal::batch &post) { post.send_invalidate(lease); }));
	CHECK(ends.server->recv(patience));
	CHECK(committed(*ends.server, [&](peal::batch &post) {
		post.bind(ends.window, ends.lent.part(0, 8), peal::remote_write);
		post.invalidate(ends.window);
	}));
	CHECK(allocations.count() == 0);
}

TEST_CASE("windows that cannot be made are a sentence", "[windows]")
{
	const Fake fake;
	{
		Lending ends;
		const std::string before = fake::alive();

		CHECK(ends.device->has_windows());
		fake::fail_next("ibv_alloc_mw", ENOMEM);
		CHECK(contains(ends.server->window().why(), "max_mw"));
		CHECK(fake::alive() == before);
		auto moved = std::move(*ends.server);
		CHECK(contains(ends.server->window().why(), "moved"));
	}
	{
		Ends ends({.transport = peal::transport::uc}, peal::remote_write);
		peal::lease lease;

		CHECK(contains(ends.server->window().why(), "options.transport rc"));
		CHECK(contains(committed(*ends.client,
					 [&](peal::batch &post) { post.send_invalidate(lease); })
				       .why(),
			       "options.transport rc"));
	}
	fake::set_windows(false);
	Ends ends;
	CHECK(!ends.device->has_windows());
	CHECK(ends.device->alloc<char>(8, peal::bindable).code() == ENOTSUP);
	CHECK(contains(ends.server->window().why(), "MEM_WINDOW_TYPE_2B"));
}

TEST_CASE("bytes that are no lease make none", "[windows]")
{
	const Fake fake;
	Lending ends;
	auto bytes = ends.lend(0, 8).bytes();

	CHECK(peal::lease::from(bytes)->key() == ends.window.share().key());
	CHECK(!peal::lease::from(std::span(bytes).first(23)));
	CHECK(!peal::lease::from({}));
	for (const std::size_t at : {20, 21, 23}) {
		auto changed = bytes;
		changed[at] = std::byte{0x80};
		CHECK(!peal::lease::from(changed));
	}
	CHECK(peal::lease::from(peal::lease().bytes())->size() == 0);
}

TEST_CASE("coroutines lend, and get their windows back", "[windows]")
{
	const Fake fake;
	Ends ends;
	auto lent = ends.device->alloc<char>(64, peal::bindable).value();
	auto loop = peal::co::make_loop().value();
	auto server = loop.adopt(std::move(*ends.server)).value();
	auto client = loop.adopt(std::move(*ends.client)).value();
	auto window = server.window().value();
	int rounds = 0;
	auto lends = [&]() -> peal::co::task<> {
		for (int i = 0; i < 10; ++i) {
			auto post = server.batch();
			post.bind(window, lent.part(i, 4), peal::remote_write);
			post.send_inline(window.share().bytes());
			const auto done = co_await post.commit(patience);
			CHECK(std::string(done.why()) == "");
			auto message = co_await server.recv(patience);
			CHECK(message->invalidated());
			CHECK(!window.is_bound());
		}
		auto post = server.batch();
		post.bind(window, lent.all(), peal::remote_write);
		post.invalidate(window);
		const auto done = co_await post.commit(patience);
		CHECK(std::string(done.why()) == "");
	};
	auto uses = [&]() -> peal::co::task<> {
		for (int i = 0; i < 10; ++i) {
			auto came = (co_await client.recv(patience)).value();
			auto lease = peal::lease::from(came.bytes()).value();
			auto post = client.batch();
			post.write(ends.mine->put(0, "text"), lease.at(0));
			post.send_invalidate(lease);
			const auto done = co_await post.commit(patience);
			rounds += bool(done);
		}
	};

	CHECK(loop.spawn(lends()));
	CHECK(loop.spawn(uses()));
	CHECK(loop.run(patience));
	CHECK(rounds == 10);
	CHECK(std::string_view(lent.data() + 9, 4) == "text");
}
