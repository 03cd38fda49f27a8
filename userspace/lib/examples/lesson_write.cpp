// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Lesson: write. A client writes numbers into the memory of the server, each into its place, and
 * the last request tells the server how many there are.
 *
 *	./lesson_write
 *	./lesson_write ADDRESS NUMBER...
 */
#include <peal/peal.hpp>

#include <cstdio>
#include <cstdlib>

using namespace std::chrono_literals;

constexpr std::uint16_t port = 7478;

static int serve(peal::device &dev)
{
	/* What a peer may do to memory is said when it is allocated. */
	auto mem = dev.alloc<int>(100, peal::remote_write).value();
	auto c = dev.accept(port, mem.share(), 60s);
	if (!c)
		return std::puts(c.why()), 1;
	auto count = c->recv_imm(5s);
	if (!count || *count > mem.size())
		return std::puts(count ? "too many" : count.why()), 1;
	for (std::uint32_t i = 0; i < *count; ++i)
		std::printf("%d\n", mem[i]);
	return 0;
}

static int call(peal::device &dev, const char *host, int count, char **numbers)
{
	auto mem = dev.alloc<int>(count).value();
	auto c = dev.connect(host, port, {}, 5s);
	if (!c)
		return std::puts(c.why()), 1;
	auto post = c->batch();
	for (int i = 0; i < count; ++i) {
		mem[i] = std::atoi(numbers[i]);
		/* The server's memory counts in bytes, because its type is not known here. */
		const peal::remote to = c->peer().at(i * sizeof(int), sizeof(int));
		if (i + 1 < count)
			post.write(mem.part(i, 1), to);
		else
			post.write_imm(mem.part(i, 1), to, count);
	}
	auto done = post.commit(5s);
	return done ? 0 : (std::puts(done.why()), 1);
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev)
		return std::puts(dev.why()), 1;
	return argc > 2 ? call(*dev, argv[1], argc - 2, argv + 2) : serve(*dev);
}
