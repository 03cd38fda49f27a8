// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Writes "hello" into the memory of a peer. Start it alone, and then with the address. */
#include <peal/peal.hpp>
#include <cstdio>
#include <cstdlib>
using namespace std::chrono_literals;

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE")); // the first one if it is not set
	if (!dev)
		return std::puts(dev.why()), 1;
	auto mem = dev->alloc<char>(4096, peal::remote_write).value();
	auto c = argc > 1 ? dev->connect(argv[1], 7174, mem.share(), 5s)
			  : dev->accept(7174, mem.share(), 60s);
	if (!c)
		return std::puts(c.why()), 1;
	if (argc == 1) {
		auto size = c->recv_imm(5s);
		return std::puts(size ? mem.data() : size.why()), !size;
	}
	auto text = mem.put(0, "hello");
	auto post = c->batch();
	post.write(text, c->peer().at(0));
	post.send_imm(text.size());
	auto done = post.commit(5s); // one doorbell
	return done ? 0 : (std::puts(done.why()), 1);
}
