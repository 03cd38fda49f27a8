// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * library_peer: one of two programs of libpeal that connect by blobs in files, and that see how the
 * other one ends.
 *
 *	library_peer MINE THEIRS TRANSPORT ROLE
 *
 * TRANSPORT is rc or uc. The role "closes" sends a message and ends. "dies" ends without a
 *destructor. "hears" prints why no message comes behind the first one, and what a request says
 *then. "posts" waits until the file MINE.dead exists, and prints what a request says. Exit status:
 *0, or 1 with a line that says what failed.
 */
#include "library_program.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

using namespace std::chrono_literals;

namespace {

constexpr auto patience = 60s;

void wait_for(const std::string &path)
{
	while (!std::filesystem::exists(path))
		std::this_thread::sleep_for(5ms);
}

peal::connection meet(peal::device &device, const std::string &mine, const std::string &theirs,
		      peal::transport transport)
{
	auto offer = device.offer({}, {.transport = transport});
	expect(bool(offer), "an offer", offer.why());
	const auto blob = offer->blob();
	std::ofstream(mine + ".new")
		.write(reinterpret_cast<const char *>(blob.data()),
		       static_cast<std::streamsize>(blob.size()));
	std::filesystem::rename(mine + ".new", mine);
	wait_for(theirs);
	std::ifstream file(theirs);
	const std::string bytes{std::istreambuf_iterator<char>(file), {}};
	auto made = offer->connect(std::as_bytes(std::span(bytes)), patience);
	expect(bool(made), "a connect", made.why());
	return std::move(*made);
}

peal::status send(peal::connection &to, std::uint32_t value)
{
	auto post = to.batch();

	post.send_imm(value);
	return post.commit(patience);
}

} // namespace

int main(int argc, char **argv)
{
	expect(argc == 5, "library_peer MINE THEIRS TRANSPORT ROLE");
	const std::string role = argv[4];
	const bool is_reliable = std::string_view(argv[3]) == "rc";
	auto device = peal::open(std::getenv("PEAL_DEVICE"));
	expect(bool(device), "the device", device.why());
	auto c = meet(*device, argv[1], argv[2],
		      is_reliable ? peal::transport::rc : peal::transport::uc);

	if (role == "closes" && is_reliable) {
		const auto sent = send(c, 7);
		expect(bool(sent), "a message", sent.why());
	} else if (role == "dies") {
		std::_Exit(0);
	} else if (role == "hears") {
		/* An unreliable connection may lose a message whose sender closes. */
		if (is_reliable) {
			auto first = c.recv_imm(patience);
			expect(first && *first == 7, "the message before the end", first.why());
		}
		const auto end = c.recv(patience);
		expect(end.code() == ENOTCONN, "the end", end.why());
		std::puts(end.why());
		std::puts(send(c, 8).why());
	} else if (role == "posts") {
		std::puts("connected");
		std::fflush(stdout);
		wait_for(std::string(argv[1]) + ".dead");
		expect(c.recv(0s).code() == ETIMEDOUT, "a peer that died has said something");
		const auto sent = send(c, 9);
		expect(!sent, "a message to a peer that died");
		std::puts(sent.why());
	}
}
