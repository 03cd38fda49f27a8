// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * library_ends: libpeal's unreliable connections and endpoints between two devices. The server
 * answers what the client does.
 *
 *	library_ends FOLDER CLIENT		the server; the client sends datagrams from this GID
 *	library_ends FOLDER CLIENT SERVER	the client; the server has this address
 *
 * The ends exchange their blobs by files in the folder. Each waits for the other one's answer
 * before it goes on, so no end runs out of receives, and a wire without loss loses nothing. Exit
 * status: 0, or 1 with a line that says what failed.
 */
#include "library_program.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

using namespace std::chrono_literals;

namespace {

constexpr auto patience = 30s;
constexpr std::uint16_t port = 7482;
/* The longest takes several packets. */
constexpr std::uint32_t rounds = 40, words = 4000;

struct End {
	std::string folder;
	peal::gid client{};
	const char *server = nullptr; /* of the client */
	peal::device device = must(peal::open(std::getenv("PEAL_DEVICE")), "the device");
	peal::memory<std::uint32_t> memory =
		must(device.alloc<std::uint32_t>(words, peal::remote_write), "memory");

	/* The blob of the other end for the own one. The file appears when it is complete. */
	std::string exchange(const std::string &name, std::span<const std::byte> blob)
	{
		const std::string mine = folder + "/" + name + (server ? ".client" : ".server");
		const std::string theirs = folder + "/" + name + (server ? ".server" : ".client");
		const peal::deadline until = patience;

		std::ofstream(mine + ".new")
			.write(reinterpret_cast<const char *>(blob.data()),
			       static_cast<std::streamsize>(blob.size()));
		std::filesystem::rename(mine + ".new", mine);
		while (!std::filesystem::exists(theirs)) {
			expect(!until.passed(), "the other end's blob does not come");
			usleep(10000);
		}
		std::ifstream file(theirs, std::ios::binary);
		return {std::istreambuf_iterator<char>(file), {}};
	}
};

/* Writes with the value, and small messages back. */
void talk(End &end, peal::connection connection)
{
	for (std::uint32_t i = 0; i < rounds; ++i) {
		const std::uint32_t count = 1 + i * (words - 1) / (rounds - 1);
		auto post = connection.batch();

		if (end.server) {
			for (std::uint32_t n = 0; n < count; ++n)
				end.memory[n] = i * words + n;
			post.write_imm(end.memory.part(0, count), connection.peer().at(0), i);
			const auto done = post.commit(patience);
			expect(bool(done), "a write", done.why());
			const auto answer = must(connection.recv(patience), "an answer");
			expect(answer.as<std::uint32_t>() == ~i, "another answer");
			continue;
		}
		const auto told = must(connection.recv(patience), "a write");
		expect(told.imm() == i && told.written() == count * 4, "another write");
		for (std::uint32_t n = 0; n < count; ++n)
			expect(end.memory[n] == i * words + n, "the memory differs");
		const std::uint32_t answer = ~i;
		post.send_inline(std::as_bytes(std::span(&answer, 1)));
		const auto done = post.commit(patience);
		expect(bool(done), "an answer", done.why());
	}
}

/* The listener is the server's. */
void by_manager(End &end, std::optional<peal::listener> &listener, const peal::options &options)
{
	talk(end,
	     listener ? must(listener->accept(end.memory.share(), patience, options), "an accept")
		      : must(end.device.connect(end.server, port, {}, patience, options),
			     "a connect"));
}

void by_blobs(End &end, const std::string &name, const peal::options &options)
{
	auto offer = must(end.device.offer(end.memory.share(), options), "an offer");
	const std::string theirs = end.exchange(name, offer.blob());

	talk(end, must(offer.connect(std::as_bytes(std::span(theirs)), patience), "a blob"));
}

void exchange_datagrams(End &end)
{
	auto endpoint = must(end.device.endpoint(), "an endpoint");
	const std::string theirs = end.exchange("datagrams", endpoint.blob());
	auto to = must(endpoint.reach(std::as_bytes(std::span(theirs))), "the other endpoint");

	for (std::uint32_t i = 0; i < rounds; ++i) {
		const std::string text(i * to.longest() / (rounds - 1),
				       static_cast<char>('a' + i % 26));

		if (!end.server) {
			auto came = must(endpoint.recv(patience), "a datagram");
			expect(came.text() == text, "another datagram");
			expect(came.from() == end.client, "another sender");
		}
		const auto sent = endpoint.send(to, text, patience);
		expect(bool(sent), "a send", sent.why());
		if (end.server)
			expect(must(endpoint.recv(patience), "an answer").text() == text,
			       "another answer");
	}
}

} // namespace

int main(int argc, char **argv)
{
	expect(argc == 3 || argc == 4, "library_ends FOLDER CLIENT [SERVER]");
	End end{.folder = argv[1], .server = argv[3]};
	auto pool = must(end.device.share_receives(4, 64), "shared receives");
	const peal::options own{.transport = peal::transport::uc};
	const peal::options shared{.transport = peal::transport::uc, .shared = &pool};

	expect(inet_pton(AF_INET6, argv[2], end.client.data()) == 1, "the GID of the client");
	std::optional<peal::listener> listener;
	if (!end.server)
		listener.emplace(must(end.device.listen(port), "a listener"));
	by_manager(end, listener, own);
	by_manager(end, listener, end.server ? own : shared);
	by_blobs(end, "own", own);
	by_blobs(end, "shared", end.server ? own : shared);
	exchange_datagrams(end);
}
