// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * stream_data: moves data through a stream socket in both directions, for the shell tests of SMC.
 *
 *	stream_data serve tcp|smc ADDRESS PORT
 *	stream_data talk tcp|smc|smcr ADDRESS PORT MIB
 *
 * The server serves one connection. The client says how much it sends, the server compares it, and
 * sends as much back, which the client compares. All data depend on their position. The client
 * prints the rate of each direction, and for AF_SMC the mode of the connection (smc_diag). With
 * "smcr" the mode must be SMC-R.
 * Exit status: 0 on success, 1 with a line that says what was expected and what came, 2 when the
 * system reported an error.
 */
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/smc_diag.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "position_data.hpp"

#ifndef AF_SMC
#define AF_SMC 43
#endif

namespace {

constexpr std::size_t mebibyte = 1 << 20;
constexpr std::uint64_t to_server = 11, to_client = 12;

struct Arguments {
	bool smc;
	bool must_be_smcr;
	sockaddr_in address;
	std::uint64_t mebibytes;
};

int new_socket(const Arguments &arguments)
{
	const timeval limit{60, 0};
	const int on = 1;
	const int fd = socket(arguments.smc ? AF_SMC : AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		system_error("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

/* The pieces have many sizes, so that they wrap around a ring at many places. */
std::size_t piece_size(std::uint64_t position, std::uint64_t left)
{
	static constexpr std::size_t sizes[] = {8, 65536, 4096, 131072, 1000, 262144, 16384};
	const auto size = sizes[(position / 8) % std::size(sizes)];

	return size < left ? size : left;
}

void send_all(int fd, std::uint64_t bytes, std::uint64_t salt)
{
	std::vector<std::uint64_t> words(mebibyte / 8);

	for (std::uint64_t position = 0; position < bytes;) {
		const auto size = piece_size(position, bytes - position);
		fill_by_position(words.data(), size, position, salt);
		for (std::size_t done = 0; done < size;) {
			const auto sent = send(fd, reinterpret_cast<char *>(words.data()) + done,
					       size - done, MSG_NOSIGNAL);
			if (sent <= 0)
				system_error("send");
			done += sent;
		}
		position += size;
	}
}

void receive(int fd, void *memory, std::size_t bytes)
{
	for (std::size_t done = 0; done < bytes;) {
		const auto got = recv(fd, static_cast<char *>(memory) + done, bytes - done, 0);
		if (got < 0)
			system_error("recv");
		if (!got)
			wrong("the peer closed the connection");
		done += got;
	}
}

void receive_all(int fd, std::uint64_t bytes, std::uint64_t salt)
{
	std::vector<std::uint64_t> words(mebibyte / 8);

	for (std::uint64_t position = 0; position < bytes;) {
		const auto left = bytes - position;
		const std::size_t size = left < 100000 ? left : 100000;
		receive(fd, words.data(), size);
		const auto difference = compare_by_position(words.data(), size, position, salt);
		if (!difference.empty())
			wrong(difference);
		position += size;
	}
}

void serve(const Arguments &arguments)
{
	const int listener = new_socket(arguments);
	std::uint64_t bytes;

	if (bind(listener, reinterpret_cast<const sockaddr *>(&arguments.address),
		 sizeof(arguments.address)) ||
	    listen(listener, 4))
		system_error("listen");
	const int fd = accept(listener, nullptr, nullptr);
	if (fd < 0)
		system_error("accept");
	receive(fd, &bytes, sizeof(bytes));
	receive_all(fd, bytes, to_server);
	send_all(fd, sizeof(bytes), to_client);
	send_all(fd, bytes, to_client);
	receive(fd, &bytes, sizeof(bytes));
	close(fd);
	close(listener);
}

/* Return: the mode of the connection to @port that smc_diag reports, or -1. */
int smc_mode(std::uint16_t port)
{
	struct {
		nlmsghdr head;
		smc_diag_req request;
	} ask{};
	alignas(nlmsghdr) char answer[32768];
	const int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);

	ask.head.nlmsg_len = sizeof(ask);
	ask.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	ask.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	ask.request.diag_family = AF_SMC;
	if (fd < 0 || send(fd, &ask, sizeof(ask), 0) < 0)
		system_error("smc_diag");
	for (;;) {
		auto got = static_cast<unsigned>(recv(fd, answer, sizeof(answer), 0));
		for (auto *head = reinterpret_cast<nlmsghdr *>(answer); NLMSG_OK(head, got);
		     head = NLMSG_NEXT(head, got)) {
			if (head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR) {
				close(fd);
				return -1;
			}
			const auto *message = static_cast<smc_diag_msg *>(NLMSG_DATA(head));
			if (message->id.idiag_dport == port) {
				close(fd);
				return message->diag_mode;
			}
		}
	}
}

void show_mode(const Arguments &arguments)
{
	const int mode = smc_mode(arguments.address.sin_port);

	std::printf("mode: %s\n", mode == SMC_DIAG_MODE_SMCR	       ? "SMC-R"
				  : mode == SMC_DIAG_MODE_FALLBACK_TCP ? "TCP"
				  : mode == SMC_DIAG_MODE_SMCD	       ? "SMC-D"
								       : "unknown");
	if (arguments.must_be_smcr && mode != SMC_DIAG_MODE_SMCR)
		wrong("expected mode SMC-R, got " + std::to_string(mode));
}

void talk(const Arguments &arguments)
{
	using clock = std::chrono::steady_clock;
	const std::uint64_t bytes = arguments.mebibytes * mebibyte;
	const int fd = new_socket(arguments);

	if (connect(fd, reinterpret_cast<const sockaddr *>(&arguments.address),
		    sizeof(arguments.address)))
		system_error("connect");
	if (arguments.smc)
		show_mode(arguments);
	const auto begin = clock::now();
	if (send(fd, &bytes, sizeof(bytes), 0) != sizeof(bytes))
		system_error("send");
	send_all(fd, bytes, to_server);
	receive_all(fd, sizeof(bytes), to_client);
	const auto middle = clock::now();
	receive_all(fd, bytes, to_client);
	const auto end = clock::now();
	send_all(fd, sizeof(bytes), to_server);
	close(fd);
	std::printf("%.1f MiB/s to the server, %.1f MiB/s back\n",
		    static_cast<double>(arguments.mebibytes) /
			    std::chrono::duration<double>(middle - begin).count(),
		    static_cast<double>(arguments.mebibytes) /
			    std::chrono::duration<double>(end - middle).count());
}

} // namespace

int main(int argc, char **argv)
{
	const std::string what = argc > 1 ? argv[1] : "", kind = argc > 2 ? argv[2] : "";
	Arguments arguments{kind != "tcp", kind == "smcr", {}, 0};

	if (argc < 5 || (what == "talk" && argc < 6)) {
		std::fprintf(stderr, "usage: stream_data serve tcp|smc ADDRESS PORT\n"
				     "       stream_data talk tcp|smc|smcr ADDRESS PORT MIB\n");
		return 2;
	}
	arguments.address.sin_family = AF_INET;
	arguments.address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[4])));
	if (inet_pton(AF_INET, argv[3], &arguments.address.sin_addr) != 1)
		wrong(std::string("no IPv4 address: ") + argv[3]);
	if (what == "serve") {
		serve(arguments);
	} else {
		arguments.mebibytes = std::strtoul(argv[5], nullptr, 0);
		talk(arguments);
	}
	return 0;
}
