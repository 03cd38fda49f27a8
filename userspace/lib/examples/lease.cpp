// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The server lends a part of its memory by a window, twice. The client gives the first lease back
 * with its message. The server takes the second one back, and what the client writes later is
 * refused. The memory is registered once, and nobody can reach the rest of it.
 *
 *	./lease
 *	./lease ADDRESS
 */
#include <peal/peal.hpp>

#include <cstdio>
#include <cstdlib>

using namespace std::chrono_literals;

static constexpr std::uint16_t port = 7481;
static constexpr auto patience = 10s;

static int say(const char *what)
{
	return std::puts(what), 1;
}

/* One doorbell: the device binds the window before it sends the lease. */
static peal::status lend(peal::connection &c, peal::window &window, const peal::slice &part)
{
	auto post = c.batch();
	post.bind(window, part, peal::remote_write);
	post.send_inline(window.share().bytes());
	return post.commit(patience);
}

static int serve(peal::device &dev)
{
	auto pages = dev.alloc<char>(2 * 4096, peal::bindable);
	if (!pages)
		return say(pages.why());
	auto c = dev.accept(port, {}, 60s); /* shares nothing */
	if (!c)
		return say(c.why());
	auto window = c->window();
	if (!window)
		return say(window.why());

	if (auto done = lend(*c, *window, pages->part(0, 64)); !done)
		return say(done.why());
	auto back = c->recv(patience);
	if (!back)
		return say(back.why());
	std::printf("%s: %s\n", window->is_bound() ? "still lent" : "given back", pages->data());

	if (auto done = lend(*c, *window, pages->part(4096, 64)); !done)
		return say(done.why());
	if (auto written = c->recv_imm(patience); !written)
		return say(written.why());
	auto post = c->batch();
	post.invalidate(*window);
	if (auto done = post.commit(patience); !done)
		return say(done.why());
	post.send_imm(0); /* tells that the lease has ended */
	if (auto done = post.commit(); !done)
		return say(done.why());
	/* The next message will not come, because the client's write ends the connection. */
	auto never = c->recv(patience);
	std::printf("taken back: %s\n", pages->data() + 4096);
	return bool(never);
}

static peal::result<peal::lease> borrow(peal::connection &c)
{
	auto came = c.recv(patience);
	if (!came)
		return came.failure();
	if (auto lease = peal::lease::from(came->bytes()))
		return *lease;
	return peal::error::make(0, "the server has sent something else; start ./lease there");
}

static int use(peal::device &dev, const char *host)
{
	auto text = dev.alloc<char>(64).value();
	auto c = dev.connect(host, port, {}, patience);
	if (!c)
		return say(c.why());

	auto first = borrow(*c);
	if (!first)
		return say(first.why());
	auto post = c->batch();
	post.write(text.put(0, "first"), first->at(0));
	post.send_invalidate(*first);
	if (auto done = post.commit(patience); !done)
		return say(done.why());

	auto second = borrow(*c);
	if (!second)
		return say(second.why());
	post.write(text.put(0, "second"), second->at(0));
	post.send_imm(0);
	if (auto done = post.commit(patience); !done)
		return say(done.why());
	if (auto taken = c->recv_imm(patience); !taken)
		return say(taken.why());
	post.write(text.put(0, "too late"), second->at(0));
	auto done = post.commit(patience);
	std::printf("refused: %s\n", done.why());
	return bool(done);
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev)
		return say(dev.why());
	return argc > 1 ? use(*dev, argv[1]) : serve(*dev);
}
