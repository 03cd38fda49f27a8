// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * "rdma link add", "rdma link delete" and "rdma resource show qp" without another process, so that
 * the calling thread makes and removes the device.
 *
 * Holds: one request and its answers over the RDMA netlink.
 * Does not hold: the other functions of the rdma tool.
 */
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <unistd.h>

namespace peal_test {

class RdmaNetlink {
public:
	RdmaNetlink() : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA)) {}
	~RdmaNetlink() { close(fd_); }
	RdmaNetlink(const RdmaNetlink &) = delete;
	RdmaNetlink &operator=(const RdmaNetlink &) = delete;

	/* Both return 0 or errno. ENOBUFS means that the kernel had no memory for the answer. */
	int add_link(const std::string &device, const std::string &type, const std::string &netdev)
	{
		begin(RDMA_NLDEV_CMD_NEWLINK);
		attribute(RDMA_NLDEV_ATTR_DEV_NAME, device.c_str(), device.size() + 1);
		attribute(RDMA_NLDEV_ATTR_LINK_TYPE, type.c_str(), type.size() + 1);
		attribute(RDMA_NLDEV_ATTR_NDEV_NAME, netdev.c_str(), netdev.size() + 1);
		return request();
	}
	int delete_link(std::uint32_t index)
	{
		begin(RDMA_NLDEV_CMD_DELLINK);
		attribute(RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
		return request();
	}
	/*
	 * Makes the kernel look at every queue pair of the device. Return: the number of answers.
	 */
	unsigned dump_qps(std::uint32_t index)
	{
		begin(RDMA_NLDEV_CMD_RES_QP_GET);
		message_.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
		attribute(RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
		if (send(fd_, &message_, message_.header.nlmsg_len, 0) < 0)
			throw std::runtime_error("send of a dump's request");
		unsigned messages = 0;
		while (!ends_dump())
			messages++;
		return messages;
	}

private:
	bool ends_dump()
	{
		alignas(nlmsghdr) std::uint8_t reply[32768];

		if (recv(fd_, reply, sizeof(reply), 0) < static_cast<ssize_t>(sizeof(nlmsghdr)))
			throw std::runtime_error("recv of a dump's answer");
		const auto *header = reinterpret_cast<const nlmsghdr *>(reply);
		if (header->nlmsg_type == NLMSG_ERROR)
			throw std::runtime_error("the dump was refused");
		return header->nlmsg_type == NLMSG_DONE;
	}
	void begin(int command)
	{
		const auto type =
			static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));

		message_ = {};
		message_.header = {sizeof(nlmsghdr), type, NLM_F_REQUEST | NLM_F_ACK, 0, 0};
	}
	void attribute(int type, const void *value, std::size_t bytes)
	{
		const nlattr header{static_cast<std::uint16_t>(sizeof(header) + bytes),
				    static_cast<std::uint16_t>(type)};
		auto *at = message_.body + (message_.header.nlmsg_len - sizeof(nlmsghdr));

		if (at + NLMSG_ALIGN(sizeof(header) + bytes) > std::end(message_.body))
			throw std::length_error("netlink message");
		std::memcpy(at, &header, sizeof(header));
		std::memcpy(at + sizeof(header), value, bytes);
		message_.header.nlmsg_len += NLMSG_ALIGN(sizeof(header) + bytes);
	}
	int request()
	{
		if (send(fd_, &message_, message_.header.nlmsg_len, 0) < 0)
			return errno;
		return answer();
	}
	int answer()
	{
		struct {
			nlmsghdr header;
			nlmsgerr error;
			std::uint8_t rest[1024];
		} reply{};

		if (recv(fd_, &reply, sizeof(reply), 0) < 0)
			return errno;
		return reply.header.nlmsg_type == NLMSG_ERROR ? -reply.error.error : EPROTO;
	}

	int fd_;
	struct {
		nlmsghdr header;
		std::uint8_t body[256];
	} message_{};
};

} // namespace peal_test
