// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Netlink requests and their answers, of any protocol.
 *
 * Owns: sockets, messages, and how an attribute is read. A kernel may be older or newer than the
 * tool, so that attributes which the tool does not know are passed over, and the reader of an
 * attribute learns whether it is there.
 * Does not know: what a command or an attribute means.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <netlink/netlink.h>

namespace peal::tool {

/* The kernel refused a request. `words` may be empty. */
struct KernelError : std::runtime_error {
	KernelError(int number, std::string words);

	int number; /* errno */
	std::string words;
};

/* The attributes of a message, or of a nest. They lie in the message, which must outlive them. */
class Attributes {
public:
	explicit Attributes(std::span<const std::byte> bytes) : bytes(bytes) {}

	/* An integer of any width. */
	std::optional<std::uint64_t> number(int type) const;
	std::optional<std::string> string(int type) const;
	std::optional<std::span<const std::byte>> data(int type) const;
	/* What is missing reads as a nest that is empty. */
	Attributes nest(int type) const;
	/* Calls `visit` for each attribute, in the order of the message. */
	void each(const std::function<void(int type, std::span<const std::byte>)> &visit) const;

private:
	std::span<const std::byte> bytes;
};

/* Return: the integer in `bytes`, which may be 1, 2, 4 or 8. */
std::optional<std::uint64_t> read_number(std::span<const std::byte> bytes);
/* Return: the bytes up to the first zero. */
std::string read_string(std::span<const std::byte> bytes);

/* A message that the kernel sent. */
class Message {
public:
	explicit Message(const nlmsghdr *header);

	std::uint16_t type() const;
	/* Return: what lies behind the headers, of which `family` is the size of the second one. */
	std::span<const std::byte> payload() const;
	Attributes attributes(std::size_t family = 0) const;

private:
	std::vector<std::byte> bytes;
};

/* A message to the kernel. */
class Request {
public:
	Request(int type, int flags);

	template <typename Header>
	Request &header(const Header &value)
	{
		return append(&value, sizeof(value));
	}
	Request &append(const void *header, std::size_t bytes);
	Request &add(int attribute, const void *value, std::size_t bytes);
	Request &add_u8(int attribute, std::uint8_t value);
	Request &add_u32(int attribute, std::uint32_t value);
	Request &add_u64(int attribute, std::uint64_t value);
	Request &add_string(int attribute, const std::string &value);

private:
	friend class Socket;
	struct Free {
		void operator()(nl_msg *message) const;
	};
	std::unique_ptr<nl_msg, Free> message;
};

class Socket {
public:
	/* `protocol` is NETLINK_*. Throws KernelError if the kernel does not have it. */
	explicit Socket(int protocol);

	/* Return: the answers. Throws KernelError. */
	std::vector<Message> ask(Request &request);
	/* Return: the number of the generic netlink family, if the kernel has it. */
	std::optional<int> family(const char *name);

private:
	struct Free {
		void operator()(nl_sock *socket) const;
	};
	std::unique_ptr<nl_sock, Free> socket;
};

} /* namespace peal::tool */
