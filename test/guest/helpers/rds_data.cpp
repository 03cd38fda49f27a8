// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * rds_data: messages and RDMA through AF_RDS sockets, for the shell tests of RDS.
 *
 *	rds_data serve ADDRESS
 *	rds_data talk LOCAL REMOTE messages|rdma|atomic|stream [MIB]
 *	rds_data quit LOCAL REMOTE
 *
 * The server sends each message back, after it has compared it. For RDMA it maps its buffer
 * by a message (RDS_CMSG_RDMA_MAP), and compares it when the client asks. All data depend on
 * their position. Only the RDMA transport is used. "atomic" expects that an atomic has no effect
 * and no end. "stream" prints how long MIB one way take.
 * Exit status: 0 on success, 1 with a line that says what was expected and what came, 2 when the
 * system reported an error.
 */
#include <arpa/inet.h>
#include <linux/rds.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "position_data.hpp"

namespace {

constexpr std::uint16_t server_port = 4001;
constexpr std::uint16_t client_port = 4000;
constexpr std::size_t largest = 1 << 20;
constexpr std::uint64_t greeting = ~0ULL; /* the position in a greeting and in its answer */
/* The buffer begins inside a page, and so does the client's. */
constexpr std::size_t offset = 264;
constexpr std::size_t buffer_bytes = 256 << 10;
constexpr std::uint64_t untouched = 0x5555555555555555U;

enum Kind : std::uint64_t { echo, sink, sunk, map, mapped, check, checked, quit };

struct Header {
	std::uint64_t kind;
	std::uint64_t salt;
	std::uint64_t position;
	std::uint64_t bytes;
};

void expect(std::uint64_t got, std::uint64_t expected, const std::string &what)
{
	if (got != expected)
		wrong(what + ": expected " + std::to_string(expected) + ", got " +
		      std::to_string(got));
}

sockaddr_in address_of(const char *text, std::uint16_t port)
{
	sockaddr_in address{};

	address.sin_family = AF_INET;
	address.sin_port = htons(port);
	if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
		wrong(std::string("no IPv4 address: ") + text);
	return address;
}

struct Message {
	std::vector<std::uint64_t> words;
	sockaddr_in from{};
	rds_rdma_cookie_t cookie = 0;
	bool is_status = false;
	rds_rdma_notify status{};

	const Header &header() const { return *reinterpret_cast<const Header *>(words.data()); }
	const std::uint64_t *data() const { return words.data() + sizeof(Header) / 8; }
};

/* A control message for one sendmsg(). */
struct Control {
	int type = 0;
	std::vector<char> data;

	template <typename T>
	Control(int type, const T &value)
		: type(type), data(reinterpret_cast<const char *>(&value),
				   reinterpret_cast<const char *>(&value + 1))
	{
	}
};

class Socket {
	int fd;
	std::vector<std::uint64_t> room = std::vector<std::uint64_t>(largest / 8 + 64);

public:
	Socket(const char *local, std::uint16_t port)
	{
		auto address = address_of(local, port);
		const int transport = RDS_TRANS_IB;
		const int size = 4 << 20;
		const timeval limit{60, 0};

		fd = socket(AF_RDS, SOCK_SEQPACKET, 0);
		if (fd < 0)
			system_error("socket(AF_RDS)");
		if (setsockopt(fd, SOL_RDS, SO_RDS_TRANSPORT, &transport, sizeof(transport)))
			system_error("SO_RDS_TRANSPORT");
		setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
		setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
		if (port == client_port)
			setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		if (bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof(address)))
			system_error(std::string("bind to ") + local);
	}

	/* @data: may be null, then the data are those of the header's salt and position. */
	void send(sockaddr_in to, const Header &header, const std::uint64_t *data = nullptr,
		  const Control *control = nullptr)
	{
		std::vector<std::uint64_t> words(sizeof(header) / 8 + (header.bytes + 7) / 8);
		alignas(cmsghdr) char space[CMSG_SPACE(128)] = {};
		iovec piece{words.data(), sizeof(header) + header.bytes};
		msghdr message{};

		std::memcpy(words.data(), &header, sizeof(header));
		if (data)
			std::memcpy(words.data() + sizeof(header) / 8, data, header.bytes);
		else
			fill_by_position(words.data() + sizeof(header) / 8, header.bytes,
					 header.position, header.salt);
		message.msg_name = &to;
		message.msg_namelen = sizeof(to);
		message.msg_iov = &piece;
		message.msg_iovlen = 1;
		if (control) {
			message.msg_control = space;
			message.msg_controllen = CMSG_SPACE(control->data.size());
			cmsghdr *head = CMSG_FIRSTHDR(&message);
			head->cmsg_level = SOL_RDS;
			head->cmsg_type = control->type;
			head->cmsg_len = CMSG_LEN(control->data.size());
			std::memcpy(CMSG_DATA(head), control->data.data(), control->data.size());
		}
		/* A mapping needs the connection, which the first attempt begins to make. */
		for (int tries = 0; sendmsg(fd, &message, 0) < 0; tries++)
			if (errno != EAGAIN || tries == 200)
				system_error("sendmsg");
			else
				sleep(50);
	}

	Message receive()
	{
		alignas(cmsghdr) char space[256] = {};
		iovec piece{room.data(), room.size() * 8};
		msghdr raw{};
		Message message;

		raw.msg_name = &message.from;
		raw.msg_namelen = sizeof(message.from);
		raw.msg_iov = &piece;
		raw.msg_iovlen = 1;
		raw.msg_control = space;
		raw.msg_controllen = CMSG_SPACE(sizeof(rds_rdma_notify));
		const auto got = recvmsg(fd, &raw, 0);
		if (got < 0)
			system_error("recvmsg");
		for (cmsghdr *head = CMSG_FIRSTHDR(&raw); head; head = CMSG_NXTHDR(&raw, head)) {
			if (head->cmsg_type == RDS_CMSG_RDMA_DEST)
				std::memcpy(&message.cookie, CMSG_DATA(head),
					    sizeof(message.cookie));
			if (head->cmsg_type == RDS_CMSG_RDMA_STATUS) {
				message.is_status = true;
				std::memcpy(&message.status, CMSG_DATA(head),
					    sizeof(message.status));
			}
		}
		if (message.is_status)
			return message;
		if (static_cast<std::size_t>(got) < sizeof(Header))
			wrong("a message of " + std::to_string(got) + " bytes");
		message.words.assign(room.begin(), room.begin() + (got + 7) / 8);
		expect(got - sizeof(Header), message.header().bytes, "bytes of a message");
		return message;
	}

	/* Skips only further answers to greetings. Whatever else comes must be of this kind. */
	Message receive(Kind kind)
	{
		Message message = receive();

		while (!message.is_status && message.header().position == greeting)
			message = receive();

		if (message.is_status)
			wrong("a status instead of a message");
		expect(message.header().kind, kind, "kind of message");
		return message;
	}

	/* poll() is no help, because it also returns when a congestion map came. */
	bool readable(int seconds) const
	{
		char byte = 0;

		wait_at_most(seconds);
		const bool there = recv(fd, &byte, 1, MSG_PEEK) >= 0;
		wait_at_most(0);
		return there;
	}

	/* RDS lists the messages of all sockets that it has not sent yet. */
	void wait_until_sent() const
	{
		char nothing = 0;
		socklen_t bytes = 0;

		for (int tries = 0; tries < 1200; tries++, bytes = 0) {
			if (getsockopt(fd, SOL_RDS, RDS_INFO_SEND_MESSAGES, &nothing, &bytes) > 0)
				return;
			if (errno != ENOSPC)
				system_error("RDS_INFO_SEND_MESSAGES");
			sleep(50);
		}
		wrong("a message does not leave");
	}

	/* 0 stands for no limit. */
	void wait_at_most(int seconds) const
	{
		const timeval limit{seconds, 0};

		if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)))
			system_error("SO_RCVTIMEO");
	}

	static void sleep(long milliseconds)
	{
		const timespec time{0, milliseconds * 1000000};

		nanosleep(&time, nullptr);
	}
};

void compare(const std::uint64_t *words, std::size_t bytes, std::uint64_t position,
	     std::uint64_t salt, const std::string &what)
{
	const auto difference = compare_by_position(words, bytes, position, salt);

	if (!difference.empty())
		wrong(what + ": " + difference);
}

/* Page-aligned memory, so that the offset in its page is known. */
char *page_memory(std::size_t bytes)
{
	auto *memory = static_cast<char *>(std::aligned_alloc(4096, (bytes + 8191) & ~4095UL));

	if (!memory)
		wrong("no memory");
	std::memset(memory, 0xee, (bytes + 8191) & ~4095UL);
	return memory;
}

std::uint64_t number(const void *pointer)
{
	return reinterpret_cast<std::uintptr_t>(pointer);
}

class Server {
	Socket socket;
	char *memory = page_memory(buffer_bytes + offset);
	std::uint64_t *buffer = reinterpret_cast<std::uint64_t *>(memory + offset);
	std::uint64_t received = 0;

	void map_buffer(const Message &message)
	{
		rds_get_mr_args args{};

		args.vec = {number(buffer), buffer_bytes};
		args.flags = RDS_RDMA_READWRITE;
		fill_by_position(buffer, buffer_bytes, 0, message.header().salt);
		const Control control(RDS_CMSG_RDMA_MAP, args);
		socket.send(message.from, Header{mapped, 0, 0, 0}, nullptr, &control);
	}

	/* Sends the bytes that the client asks for, as they are now. */
	void show_buffer(const Message &message)
	{
		const auto &header = message.header();
		Header answer{checked, header.salt, header.position, message.data()[0]};

		if (answer.position + answer.bytes > buffer_bytes)
			wrong("a check outside the buffer");
		socket.send(message.from, answer, buffer + answer.position / 8);
	}

	/* Return: whether to go on. */
	bool answer(const Message &message)
	{
		const auto &header = message.header();

		switch (header.kind) {
		case echo:
			compare(message.data(), header.bytes & ~7UL, header.position, header.salt,
				"server");
			socket.send(message.from, header, message.data());
			break;
		case sink:
			compare(message.data(), header.bytes, header.position, header.salt,
				"server");
			expect(header.position, received, "order of messages");
			received += header.bytes;
			if (header.position + header.bytes == header.salt >> 8) {
				received = 0;
				socket.send(message.from, Header{sunk, 0, 0, 0});
			}
			break;
		case map:
			map_buffer(message);
			break;
		case check:
			show_buffer(message);
			break;
		default:
			return false;
		}
		return true;
	}

public:
	explicit Server(const char *local) : socket(local, server_port) {}

	void run()
	{
		std::printf("ready\n");
		std::fflush(stdout);
		while (answer(socket.receive()))
			;
	}
};

class Client {
	Socket socket;
	sockaddr_in server;
	std::uint64_t token = 1000;

	Message buffer_at_server(std::uint64_t position, std::uint64_t bytes)
	{
		socket.send(server, Header{check, 0, position, 8}, &bytes);
		Message message = socket.receive(checked);
		expect(message.header().bytes, bytes, "bytes of the server's buffer");
		return message;
	}

	rds_rdma_cookie_t map_at_server(std::uint64_t salt)
	{
		socket.send(server, Header{map, salt, 0, 0});
		const Message message = socket.receive(mapped);
		if (!message.cookie)
			wrong("no cookie came with the message");
		return message.cookie;
	}

	void transfer(rds_rdma_cookie_t cookie, bool write, void *memory, std::uint64_t position,
		      std::uint64_t bytes)
	{
		/* Two pieces, which need not be multiples of anything. */
		const std::uint64_t first = bytes / 3;
		rds_iovec pieces[2] = {{number(memory), first},
				       {number(memory) + first, bytes - first}};
		rds_rdma_args args{};

		args.cookie = cookie;
		args.remote_vec = {position, bytes};
		args.local_vec_addr = number(pieces);
		args.nr_local = 2;
		args.flags = RDS_RDMA_NOTIFY_ME | (write ? RDS_RDMA_READWRITE : 0);
		args.user_token = ++token;
		const Control control(RDS_CMSG_RDMA_ARGS, args);
		/* The message that carries a transfer arrives as well, so let it be an echo. */
		socket.send(server, Header{echo, 3, 0, 64}, nullptr, &control);
		bool status = false, echoed = false;
		while (!status || !echoed) {
			const Message message = socket.receive();
			if (message.is_status) {
				expect(message.status.user_token, token, "token of a status");
				expect(message.status.status, RDS_RDMA_SUCCESS, "status");
				status = true;
			} else {
				expect(message.header().kind, echo, "kind of message");
				echoed = true;
			}
		}
	}

public:
	Client(const char *local, const char *remote)
		: socket(local, client_port), server(address_of(remote, server_port))
	{
	}

	/*
	 * RDS drops a message for which it finds no socket (its counter recv_drop_no_sock). On a
	 * busy machine it dropped the first one of a connection, although the server had its
	 * socket.
	 */
	void greet()
	{
		for (int tries = 0; tries < 20; tries++) {
			socket.send(server, Header{echo, 7, greeting, 0});
			if (!socket.readable(3))
				continue;
			expect(socket.receive().header().position, greeting, "greeting");
			return;
		}
		wrong("no answer to a greeting");
	}

	void messages()
	{
		static constexpr std::size_t sizes[] = {0,    8,     64,     1000,   4096,
							4104, 65536, 131072, 524288, largest - 32};
		std::uint64_t position = 0;

		for (int round = 0; round < 3; round++)
			for (const auto bytes : sizes) {
				socket.send(server, Header{echo, 7, position, bytes});
				const Message message = socket.receive(echo);
				expect(message.header().position, position, "position");
				expect(message.header().bytes, bytes, "bytes");
				compare(message.data(), bytes, position, 7, "client");
				position += bytes;
			}
	}

	void rdma()
	{
		static constexpr std::uint64_t cases[][2] = {
			{0, 8}, {8, 4096}, {16, 100000}, {0, buffer_bytes}, {65536, 65536}};
		char *memory = page_memory(buffer_bytes + 4096);
		std::uint64_t salt = 20;

		for (const auto &[position, bytes] : cases) {
			auto *words = reinterpret_cast<std::uint64_t *>(memory + 1000);
			const auto cookie = map_at_server(salt);
			const auto size = bytes & ~7UL;

			transfer(cookie, false, words, position, bytes);
			compare(words, size, position, salt, "RDMA READ");
			fill_by_position(words, size, position, salt + 1);
			transfer(cookie, true, words, position, bytes);
			compare(buffer_at_server(position, size).data(), size, position, salt + 1,
				"RDMA WRITE");
			if (position)
				compare(buffer_at_server(0, position).data(), position, 0, salt,
					"in front of RDMA WRITE");
			salt += 2;
		}
		std::free(memory);
	}

	/* The salt tells the server how much is to come. */
	void stream(std::uint64_t mebibytes)
	{
		const std::uint64_t total = mebibytes << 20, piece = 64 << 10;
		const auto begin = std::chrono::steady_clock::now();

		for (std::uint64_t position = 0; position < total; position += piece)
			socket.send(server, Header{sink, total << 8, position, piece});
		socket.receive(sunk);
		const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
		std::printf("%.1f MiB/s\n", static_cast<double>(mebibytes) / time.count());
	}

	/* A socket that closes takes back what it has not sent yet. */
	void end_server()
	{
		socket.send(server, Header{quit, 0, 0, 0});
		socket.wait_until_sent();
	}

	/*
	 * RDS posts it as a masked atomic, which the device refuses. RDS then tries again for ever,
	 * and the program learns nothing.
	 */
	void atomic()
	{
		alignas(8) std::uint64_t result = untouched;
		rds_atomic_args args{};

		args.cookie = map_at_server(30);
		args.local_addr = number(&result);
		args.fadd.add = 1;
		args.flags = RDS_RDMA_NOTIFY_ME;
		args.user_token = ++token;
		const Control control(RDS_CMSG_ATOMIC_FADD, args);
		socket.send(server, Header{echo, 3, 0, 64}, nullptr, &control);
		if (socket.readable(3))
			wrong("the message of an atomic was answered");
		expect(result, untouched, "result of an atomic");
	}
};

int talk(int argc, char **argv)
{
	Client client(argv[2], argv[3]);
	const std::string what = argc > 4 ? argv[4] : "quit";

	if (what != "quit")
		client.greet();
	if (what == "messages")
		client.messages();
	else if (what == "rdma")
		client.rdma();
	else if (what == "atomic")
		client.atomic();
	else if (what == "stream")
		client.stream(argc > 5 ? std::strtoul(argv[5], nullptr, 0) : 16);
	else
		client.end_server();
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc == 3 && std::string(argv[1]) == "serve") {
		Server(argv[2]).run();
		return 0;
	}
	if (argc >= 4 && (std::string(argv[1]) == "talk" || std::string(argv[1]) == "quit"))
		return talk(argc, argv);
	std::fprintf(stderr, "usage: rds_data serve ADDRESS\n"
			     "       rds_data talk LOCAL REMOTE messages|rdma|atomic|stream [MIB]\n"
			     "       rds_data quit LOCAL REMOTE\n");
	return 2;
}
