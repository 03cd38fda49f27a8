// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Copies a file to another host, with a checksum and a progress bar. The host that receives the
 * file says where it goes:
 *
 *	./cp NEW-FILE               receives one file
 *	./cp FILE ADDRESS           sends it
 *
 * The receiver shares some chunks of memory, and says which are free. The sender writes the file's
 * bytes into a free chunk, and the same request tells the receiver which chunk that is.
 *
 * Both hosts have the same byte order.
 */
#include <peal/peal.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

using namespace std::chrono_literals;
using peal::error;

constexpr std::uint16_t port = 7476;
constexpr std::uint64_t chunk = 256 << 10;
constexpr std::uint32_t chunks = 8;
/* The receiver says the number of a chunk that is free, and at the end one of these. */
constexpr std::uint32_t equal = chunks, different = chunks + 1;

/* FNV-1a by words. It notices lost and mixed bytes, and no forger. */
static std::uint64_t add(std::uint64_t sum, const char *from, std::size_t size)
{
	for (std::size_t at = 0; at < size; at += sizeof(sum)) {
		std::uint64_t word = 0;
		std::memcpy(&word, from + at, std::min(size - at, sizeof(word)));
		sum = (sum ^ word) * 0x100000001b3;
	}
	return sum;
}

static void show_progress(std::uint64_t done, std::uint64_t all)
{
	const int percent = done * 100 / all;
	const std::string bar(percent / 2, '#');

	std::fprintf(stderr, "\r[%-50s] %3d %% of %.1f MiB", bar.c_str(), percent, all / 1048576.0);
}

static peal::status send_number(peal::connection &c, const std::uint64_t &number)
{
	auto post = c.batch();
	post.send_inline(std::as_bytes(std::span(&number, 1)));
	return post.commit(5s);
}

static peal::status send(peal::device &dev, const char *name, const char *host)
{
	std::ifstream from(name, std::ios::binary | std::ios::ate);
	const std::uint64_t size = from.tellg();
	if (!from.seekg(0))
		return error::make(0, "%s cannot be read", name);
	auto mem = dev.alloc<char>(chunk * chunks).value();
	auto c = dev.connect(host, port, {}, 5s);
	if (!c)
		return c.failure();
	if (auto sent = send_number(*c, size); !sent)
		return sent;
	std::uint64_t sum = 0;
	for (std::uint64_t at = 0; at < size;) {
		/* The receiver has the bytes of this chunk, so they are free here, too. */
		auto free = c->recv_imm(30s);
		if (!free || *free >= chunks)
			return free ? error::make(0, "there is no such chunk") : free.failure();
		const peal::slice bytes = mem.part(*free * chunk, std::min(chunk, size - at));
		char *data = mem.data() + *free * chunk;
		if (!from.read(data, bytes.size()))
			return error::make(0, "%s has become shorter", name);
		sum = add(sum, data, bytes.size());
		auto post = c->batch();
		post.write_imm(bytes, c->peer().at(*free * chunk), *free);
		if (auto posted = post.commit(); !posted)
			return posted;
		/* Makes room in the queue. */
		if (auto done = c->take(); !done)
			return error::make(0, "%s", done.why());
		show_progress(at += bytes.size(), size);
	}
	if (auto sent = send_number(*c, sum); !sent)
		return sent;
	for (;;) {
		auto said = c->recv_imm(30s);
		if (!said)
			return said.failure();
		if (*said >= chunks)
			return *said == equal ? peal::status()
					      : error::make(0, "the receiver has other bytes");
	}
}

static peal::status receive(peal::device &dev, const char *name)
{
	std::ofstream to(name, std::ios::binary);
	auto mem = dev.alloc<char>(chunk * chunks, peal::remote_write).value();
	auto c = dev.accept(port, mem.share(), 60s);
	if (!to || !c)
		return to ? c.failure() : error::make(0, "%s cannot be written", name);
	auto post = c->batch();
	auto first = c->recv(30s);
	const auto size = first ? first->as<std::uint64_t>() : std::nullopt;
	if (!size)
		return error::make(0, "the sender does not say how long the file is");
	for (std::uint32_t i = 0; i < chunks; ++i)
		post.send_imm(i);
	peal::status said = post.commit(5s);
	std::uint64_t sum = 0;
	for (std::uint64_t at = 0; said && at < *size;) {
		auto message = c->recv(30s);
		if (!message)
			return message.failure();
		const std::uint32_t i = message->imm().value_or(chunks);
		const std::uint32_t bytes = message->written();
		if (i >= chunks || !bytes || bytes > std::min(chunk, *size - at))
			return error::make(0, "the sender has not written a chunk");
		sum = add(sum, mem.data() + i * chunk, bytes);
		if (!to.write(mem.data() + i * chunk, bytes))
			return error::make(0, "%s cannot be written", name);
		post.send_imm(i);
		said = post.commit(5s);
		show_progress(at += bytes, *size);
	}
	auto last = c->recv(30s);
	const bool good = last && last->as<std::uint64_t>() == sum && to.flush();
	post.send_imm(good ? equal : different);
	said = post.commit(5s);
	return good ? said : error::make(0, "the file is not as the sender has it");
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev || argc < 2)
		return std::puts(dev ? "cp NEW-FILE, or cp FILE ADDRESS" : dev.why()), 1;
	auto done = argc == 2 ? receive(*dev, argv[1]) : send(*dev, argv[1], argv[2]);
	return done ? (std::fputs(", checksum equal\n", stderr), 0) : (std::puts(done.why()), 1);
}
