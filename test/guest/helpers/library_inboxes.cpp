// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * library_inboxes: libpeal's XRC connections among several processes.
 *
 *	library_inboxes FOLDER receive NUMBER	a process with an inbox; number 0 keeps the target
 *	library_inboxes FOLDER send COUNT	the peer of all of them
 *
 * They exchange blobs and addresses by files in the folder, which also has the file of the domain.
 * The peer writes to the memory of each process and tells it, in turn, and reads it again. Exit
 * status: 0, or 1 with a line that says what failed.
 */
#include "library_program.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr auto patience = 30s;
constexpr std::uint32_t rounds = 200, receives = 8;

/* The file appears when it is complete. */
void put(const std::string &path, std::span<const std::byte> bytes)
{
	std::ofstream(path + ".new")
		.write(reinterpret_cast<const char *>(bytes.data()),
		       static_cast<std::streamsize>(bytes.size()));
	std::filesystem::rename(path + ".new", path);
}

std::string get(const std::string &path)
{
	const peal::deadline until = patience;

	while (!std::filesystem::exists(path)) {
		expect(!until.passed(), "a file does not come", path.c_str());
		usleep(10000);
	}
	std::ifstream file(path, std::ios::binary);
	return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> bytes(const std::string &text)
{
	return std::as_bytes(std::span(text));
}

std::uint64_t value(std::uint32_t number, std::uint32_t round)
{
	return std::uint64_t{number} << 32 | round;
}

void receive(const std::string &folder, peal::device &device, std::uint32_t number)
{
	auto memory = must(device.alloc<std::uint64_t>(rounds + 1, peal::remote_write |
									   peal::remote_read |
									   peal::remote_atomic),
			   "memory");
	auto domain = must(device.xrc_domain((folder + "/domain").c_str()), "the domain");
	auto inbox = must(domain.inbox(memory.share(), receives, 64), "an inbox");
	std::optional<peal::target> target;

	put(folder + "/inbox" + std::to_string(number), inbox.address().bytes());
	if (!number) {
		target.emplace(must(domain.target(), "a target"));
		put(folder + "/target", target->blob());
		const std::string theirs = get(folder + "/initiator");
		const auto done = target->connect(bytes(theirs), patience);
		expect(bool(done), "the target", done.why());
	}
	for (std::uint32_t i = 0; i < rounds; ++i) {
		const auto told = must(inbox.recv(patience), "a write");
		expect(told.imm() == i && told.written() == 8, "another write");
		expect(memory[i] == value(number, i), "the memory differs");
		const auto message = must(inbox.recv(patience), "a message");
		expect(message.as<std::uint64_t>() == value(number, i), "another message");
		expect(!message.imm(), "a message with a value");
	}
	expect(memory[rounds] == rounds, "the atomics are not counted");
	/* The target stays until the others have got everything, too. */
	put(folder + "/done" + std::to_string(number), {});
	for (std::uint32_t other = 0; target && other < 2; ++other)
		(void)get(folder + "/done" + std::to_string(other));
}

void send(const std::string &folder, peal::device &device, std::uint32_t count)
{
	auto mine = must(device.alloc<std::uint64_t>(2), "memory");
	auto offer = must(device.offer({}, {.transport = peal::transport::xrc}), "an offer");
	std::vector<peal::inbox_address> inboxes;

	put(folder + "/initiator", offer.blob());
	const std::string theirs = get(folder + "/target");
	auto connection = must(offer.connect(bytes(theirs), patience), "a connection");
	for (std::uint32_t i = 0; i < count; ++i) {
		const std::string text = get(folder + "/inbox" + std::to_string(i));
		const auto address = peal::inbox_address::from(bytes(text));
		expect(bool(address), "an address");
		inboxes.push_back(*address);
	}
	for (std::uint32_t i = 0; i < rounds; ++i)
		for (std::uint32_t to = 0; to < count; ++to) {
			const peal::region &shared = inboxes[to].shared();
			auto post = connection.batch();

			mine[0] = value(to, i);
			post.to(inboxes[to]);
			post.write(mine.part(0, 1), shared.at(std::uint64_t{8} * i));
			post.read(mine.part(1, 1), shared.at(std::uint64_t{8} * i));
			post.fetch_add(mine.part(1, 1), shared.at(std::uint64_t{8} * rounds), 1);
			post.write_imm(mine.part(0, 1), shared.at(std::uint64_t{8} * i), i);
			post.send(mine.part(0, 1));
			const auto done = post.commit(patience);
			expect(bool(done), "a batch", done.why());
			expect(mine[1] == i, "the atomic returns another value");
		}
}

} // namespace

int main(int argc, char **argv)
{
	expect(argc == 4, "library_inboxes FOLDER send|receive NUMBER");
	auto device = must(peal::open(std::getenv("PEAL_DEVICE")), "the device");
	const auto number = static_cast<std::uint32_t>(std::atoi(argv[3]));

	if (!std::strcmp(argv[2], "receive"))
		receive(argv[1], device, number);
	else
		send(argv[1], device, number);
}
