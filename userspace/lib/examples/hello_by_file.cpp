// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Two programs that connect without the connection manager. Each writes the blob of its offer to a
 * file, and reads that of the other one. Files of a directory that both hosts see stand for any
 * way to carry 256 bytes. The program with a TEXT writes it into the memory of the other one.
 *
 *	./hello_by_file MINE THEIRS
 *	./hello_by_file MINE THEIRS TEXT
 */
#include <peal/peal.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

using namespace std::chrono_literals;

/* Renames the file when it is complete, because the other program may look for it at any time. */
static void put(const std::string &path, std::span<const std::byte> bytes)
{
	std::ofstream(path + ".new")
		.write(reinterpret_cast<const char *>(bytes.data()),
		       static_cast<std::streamsize>(bytes.size()));
	std::filesystem::rename(path + ".new", path);
}

static std::string get(const std::string &path, peal::deadline until)
{
	while (!std::filesystem::exists(path) && !until.passed())
		std::this_thread::sleep_for(10ms);
	std::ifstream file(path);
	return {std::istreambuf_iterator<char>(file), {}};
}

int main(int argc, char **argv)
{
	const peal::deadline until = 30s;
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev || argc < 3)
		return std::puts(dev ? "hello_by_file MINE THEIRS [TEXT]" : dev.why()), 1;
	auto mem = dev->alloc<char>(4096, peal::remote_write).value();
	auto mine = dev->offer(mem.share());
	if (!mine)
		return std::puts(mine.why()), 1;
	put(argv[1], mine->blob());
	const std::string theirs = get(argv[2], until);
	auto c = mine->connect(std::as_bytes(std::span(theirs)), until);
	if (!c)
		return std::puts(c.why()), 1;
	if (argc == 3) {
		auto size = c->recv_imm(until);
		return std::puts(size ? mem.data() : size.why()), !size;
	}
	auto text = mem.put(0, argv[3]);
	auto post = c->batch();
	post.write(text, c->peer().at(0));
	post.send_imm(static_cast<std::uint32_t>(text.size()));
	auto done = post.commit(5s);
	return done ? 0 : (std::puts(done.why()), 1);
}
