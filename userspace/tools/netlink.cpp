// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "netlink.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <linux/netlink.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <sys/socket.h>

#include "error.hpp"

namespace peal::tool {

KernelError::KernelError(int number, std::string words)
	: std::runtime_error(words.empty() ? std::strerror(number) : words), number(number),
	  words(std::move(words))
{
}

/* ---- attributes ---- */

void Attributes::each(const std::function<void(int type, std::span<const std::byte>)> &visit) const
{
	auto rest = bytes;

	while (rest.size() >= NLA_HDRLEN) {
		nlattr header;

		std::memcpy(&header, rest.data(), sizeof(header));
		if (header.nla_len < NLA_HDRLEN || header.nla_len > rest.size())
			return;
		visit(header.nla_type & NLA_TYPE_MASK,
		      rest.subspan(NLA_HDRLEN, header.nla_len - NLA_HDRLEN));
		rest = rest.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), rest.size()));
	}
}

std::optional<std::span<const std::byte>> Attributes::data(int type) const
{
	std::optional<std::span<const std::byte>> found;

	each([&](int other, std::span<const std::byte> value) {
		if (other == type)
			found = value;
	});
	return found;
}

std::optional<std::uint64_t> Attributes::number(int type) const
{
	const auto found = data(type);

	return found ? read_number(*found) : std::nullopt;
}

std::optional<std::string> Attributes::string(int type) const
{
	const auto found = data(type);

	return found ? std::optional(read_string(*found)) : std::nullopt;
}

Attributes Attributes::nest(int type) const
{
	return Attributes(data(type).value_or(std::span<const std::byte>()));
}

template <typename Number>
static Number read_as(std::span<const std::byte> bytes)
{
	Number value;

	std::memcpy(&value, bytes.data(), sizeof(value));
	return value;
}

std::optional<std::uint64_t> read_number(std::span<const std::byte> bytes)
{
	switch (bytes.size()) {
	case 1:
		return read_as<std::uint8_t>(bytes);
	case 2:
		return read_as<std::uint16_t>(bytes);
	case 4:
		return read_as<std::uint32_t>(bytes);
	case 8:
		return read_as<std::uint64_t>(bytes);
	default:
		return std::nullopt;
	}
}

std::string read_string(std::span<const std::byte> bytes)
{
	const auto *text = reinterpret_cast<const char *>(bytes.data());

	return {text, strnlen(text, bytes.size())};
}

/* ---- messages ---- */

Message::Message(const nlmsghdr *header)
	: bytes(reinterpret_cast<const std::byte *>(header),
		reinterpret_cast<const std::byte *>(header) + header->nlmsg_len)
{
}

std::uint16_t Message::type() const
{
	return reinterpret_cast<const nlmsghdr *>(bytes.data())->nlmsg_type;
}

std::span<const std::byte> Message::payload() const
{
	return std::span(bytes).subspan(std::min<std::size_t>(NLMSG_HDRLEN, bytes.size()));
}

Attributes Message::attributes(std::size_t family) const
{
	const auto all = payload();

	return Attributes(all.subspan(std::min<std::size_t>(NLMSG_ALIGN(family), all.size())));
}

void Request::Free::operator()(nl_msg *message) const
{
	nlmsg_free(message);
}

Request::Request(int type, int flags) : message(nlmsg_alloc_simple(type, flags))
{
	if (!message)
		throw std::bad_alloc();
}

Request &Request::append(const void *header, std::size_t bytes)
{
	/* libnl changes nothing behind the pointer. */
	if (nlmsg_append(message.get(), const_cast<void *>(header), bytes, NLMSG_ALIGNTO) < 0)
		throw std::bad_alloc();
	return *this;
}

Request &Request::add(int attribute, const void *value, std::size_t bytes)
{
	if (nla_put(message.get(), attribute, static_cast<int>(bytes), value) < 0)
		throw std::bad_alloc();
	return *this;
}

Request &Request::add_u8(int attribute, std::uint8_t value)
{
	return add(attribute, &value, sizeof(value));
}

Request &Request::add_u32(int attribute, std::uint32_t value)
{
	return add(attribute, &value, sizeof(value));
}

Request &Request::add_u64(int attribute, std::uint64_t value)
{
	return add(attribute, &value, sizeof(value));
}

Request &Request::add_string(int attribute, const std::string &value)
{
	return add(attribute, value.c_str(), value.size() + 1);
}

/* ---- sockets ---- */

void Socket::Free::operator()(nl_sock *socket) const
{
	nl_socket_free(socket);
}

Socket::Socket(int protocol) : socket(nl_socket_alloc())
{
	const int on = 1;

	if (!socket)
		throw std::bad_alloc();
	const int ret = nl_connect(socket.get(), protocol);
	if (ret == -NLE_PROTO_MISMATCH)
		throw KernelError(EPROTONOSUPPORT, "");
	if (ret < 0)
		throw Failure(std::string("netlink cannot be used (") + nl_geterror(ret) +
			      "); run the command where netlink sockets are allowed");
	/* Ask for the kernel's words on errors. An old kernel gives only numbers. */
	const int file = nl_socket_get_fd(socket.get());
	setsockopt(file, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof(on));
	setsockopt(file, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
}

namespace {

/*
 * What the callbacks of one request fill. They throw nothing, because libnl, which calls them, is
 * written in C.
 */
struct Answer {
	std::vector<Message> messages;
	std::string words;
	int error = 0;
	bool complete = false;
};

Answer &answer(void *argument)
{
	return *static_cast<Answer *>(argument);
}

int keep(nl_msg *message, void *argument) noexcept
{
	answer(argument).messages.emplace_back(nlmsg_hdr(message));
	return NL_OK;
}

int acknowledged(nl_msg *, void *argument) noexcept
{
	answer(argument).complete = true;
	return NL_STOP;
}

/* The message that ends a dump has the error of the dump, which is 0 or negative. */
int dumped(nl_msg *message, void *argument) noexcept
{
	nlmsghdr *header = nlmsg_hdr(message);

	if (nlmsg_datalen(header) >= static_cast<int>(sizeof(int)))
		std::memcpy(&answer(argument).error, nlmsg_data(header), sizeof(int));
	answer(argument).complete = true;
	return NL_STOP;
}

/* The attributes of `error` follow it directly, because NETLINK_CAP_ACK leaves out the request. */
int refused(sockaddr_nl *, nlmsgerr *error, void *argument) noexcept
{
	const auto *header = reinterpret_cast<const nlmsghdr *>(error) - 1;
	const std::size_t skipped = NLMSG_LENGTH(sizeof(*error));

	answer(argument).error = error->error;
	answer(argument).complete = true;
	if (header->nlmsg_flags & NLM_F_ACK_TLVS && header->nlmsg_flags & NLM_F_CAPPED &&
	    header->nlmsg_len > skipped) {
		const auto *first = reinterpret_cast<const std::byte *>(error + 1);

		answer(argument).words = Attributes({first, header->nlmsg_len - skipped})
						 .string(NLMSGERR_ATTR_MSG)
						 .value_or("");
	}
	return NL_STOP;
}

} /* namespace */

std::vector<Message> Socket::ask(Request &request)
{
	nl_sock *sock = socket.get();
	Answer got;

	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, keep, &got);
	nl_socket_modify_cb(sock, NL_CB_ACK, NL_CB_CUSTOM, acknowledged, &got);
	nl_socket_modify_cb(sock, NL_CB_FINISH, NL_CB_CUSTOM, dumped, &got);
	nl_socket_modify_err_cb(sock, NL_CB_CUSTOM, refused, &got);
	if (const int ret = nl_send_auto(sock, request.message.get()); ret < 0)
		throw Failure(std::string("a netlink request cannot be sent: ") + nl_geterror(ret));
	while (!got.complete) {
		const int ret = nl_recvmsgs_default(sock);

		/* The list changed while the kernel dumped it, as it may right after a dump. */
		if (ret < 0 && ret != -NLE_DUMP_INTR && !got.complete)
			throw Failure(std::string("a netlink answer cannot be read: ") +
				      nl_geterror(ret));
	}
	if (got.error)
		throw KernelError(-got.error, got.words);
	return std::move(got.messages);
}

std::optional<int> Socket::family(const char *name)
{
	const int number = genl_ctrl_resolve(socket.get(), name);

	return number < 0 ? std::nullopt : std::optional(number);
}

} /* namespace peal::tool */
