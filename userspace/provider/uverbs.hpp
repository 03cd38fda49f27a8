// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A thin client of the kernel's uverbs ioctl interface, which needs linux-libc-dev only.
 * No function here throws. Each returns 0 or a positive errno.
 */
#pragma once
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace peal::uverbs {

using Bytes = std::span<const std::byte>;
using WritableBytes = std::span<std::byte>;

template <class T>
Bytes in(const T &value) noexcept
{
	return std::as_bytes(std::span<const T, 1>(&value, 1));
}

template <class T>
WritableBytes out(T &value) noexcept
{
	return std::as_writable_bytes(std::span<T, 1>(&value, 1));
}

/* Numbers that are newer than the headers of Debian 12. */
constexpr std::uint16_t METHOD_QUERY_PORT_SPEED = UVERBS_METHOD_QUERY_GID_ENTRY + 1;
constexpr std::uint16_t ATTR_QUERY_PORT_SPEED_PORT_NUM = 0;
constexpr std::uint16_t ATTR_QUERY_PORT_SPEED_RESP = 1;

/* ib_uverbs_query_port_resp_ex with a member that is newer than these headers. */
struct QueryPortResponse {
	ib_uverbs_query_port_resp legacy;
	std::uint16_t port_cap_flags2;
	std::uint8_t reserved[2];
	std::uint32_t active_speed_ex;
};
static_assert(sizeof(QueryPortResponse) == sizeof(ib_uverbs_query_port_resp_ex));

/* The type for a command without a core response. */
struct None {};

inline ib_uverbs_attr attr_in(std::uint16_t id, Bytes bytes) noexcept
{
	ib_uverbs_attr attr{};

	attr.attr_id = id;
	attr.len = static_cast<std::uint16_t>(bytes.size());
	attr.flags = UVERBS_ATTR_F_MANDATORY;
	if (bytes.size() <= sizeof(attr.data))
		std::memcpy(&attr.data, bytes.data(), bytes.size());
	else
		attr.data = reinterpret_cast<std::uintptr_t>(bytes.data());
	return attr;
}

/* An object whose own bytes are meant, unlike a span, which names the bytes. */
template <class T>
concept Plain = !std::convertible_to<T &, Bytes>;

template <Plain T>
ib_uverbs_attr attr_in(std::uint16_t id, const T &value) noexcept
{
	return attr_in(id, in(value));
}

inline ib_uverbs_attr attr_value(std::uint16_t id, std::uint64_t value) noexcept
{
	return attr_in(id, in(value));
}

/* The handle of an object. */
inline ib_uverbs_attr attr_handle(std::uint16_t id, std::uint32_t handle) noexcept
{
	ib_uverbs_attr attr{};

	attr.attr_id = id;
	attr.flags = UVERBS_ATTR_F_MANDATORY;
	attr.data_s64 = handle;
	return attr;
}

inline ib_uverbs_attr attr_out(std::uint16_t id, WritableBytes bytes) noexcept
{
	ib_uverbs_attr attr{};

	attr.attr_id = id;
	attr.len = static_cast<std::uint16_t>(bytes.size());
	attr.flags = UVERBS_ATTR_F_MANDATORY;
	attr.data = reinterpret_cast<std::uintptr_t>(bytes.data());
	return attr;
}

template <Plain T>
ib_uverbs_attr attr_out(std::uint16_t id, T &value) noexcept
{
	return attr_out(id, out(value));
}

/* An open uverbs file. It does not own the descriptor. */
class Device {
	int fd_;
	std::uint32_t driver_id_;

public:
	Device(int fd, std::uint32_t driver_id) noexcept : fd_(fd), driver_id_(driver_id) {}

	int fd() const noexcept { return fd_; }

	template <std::same_as<ib_uverbs_attr>... Attrs>
	int method(std::uint16_t object, std::uint16_t method_id,
		   const Attrs &...attrs) const noexcept
	{
		std::array list{attrs...};
		return run(object, method_id, list, sizeof...(Attrs));
	}

	/*
	 * A method that makes an object. The kernel writes the object's number into the
	 * attribute `handle_id`, and `handle` gets it.
	 */
	template <std::same_as<ib_uverbs_attr>... Attrs>
	int create(std::uint16_t object, std::uint16_t method_id, std::uint16_t handle_id,
		   std::uint32_t &handle, const Attrs &...attrs) const noexcept
	{
		std::array list{attr_handle(handle_id, 0), attrs...};
		const int error = run(object, method_id, list, list.size());

		handle = static_cast<std::uint32_t>(list[0].data);
		return error;
	}

	/*
	 * Calls one command of the older write() interface through INVOKE_WRITE. Every
	 * kernel that peal supports has it, and it takes the driver's own request and
	 * response (UHW) in separate buffers.
	 */
	template <class Request, class Response = None>
	int command(std::uint32_t number, const Request &request, Response &&response = {},
		    Bytes driver_in = {}, WritableBytes driver_out = {}) const noexcept
	{
		WritableBytes core_out;

		if constexpr (!std::is_same_v<std::remove_cvref_t<Response>, None>)
			core_out = out(response);
		return command_bytes(number, in(request), core_out, driver_in, driver_out);
	}

	/* As command(), for a request whose length varies. */
	int command_bytes(std::uint32_t number, Bytes core_in, WritableBytes core_out,
			  Bytes driver_in = {}, WritableBytes driver_out = {}) const noexcept
	{
		std::array<ib_uverbs_attr, 5> attrs{};
		std::size_t n = 0;

		attrs[n++] = attr_value(UVERBS_ATTR_WRITE_CMD, number);
		attrs[n++] = attr_in(UVERBS_ATTR_CORE_IN, core_in);
		if (!core_out.empty())
			attrs[n++] = attr_out(UVERBS_ATTR_CORE_OUT, core_out);
		if (!driver_in.empty())
			attrs[n++] = attr_in(UVERBS_ATTR_UHW_IN, driver_in);
		if (!driver_out.empty())
			attrs[n++] = attr_out(UVERBS_ATTR_UHW_OUT, driver_out);
		return run(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, attrs, n);
	}

private:
	/* The kernel may write into attributes, so they are copied back. */
	template <std::size_t N>
	int run(std::uint16_t object, std::uint16_t method_id, std::array<ib_uverbs_attr, N> &attrs,
		std::size_t n) const noexcept
	{
		/* Bytes, because ib_uverbs_ioctl_hdr ends in a flexible array. */
		alignas(8) std::array<std::byte,
				      sizeof(ib_uverbs_ioctl_hdr) + N * sizeof(ib_uverbs_attr)>
			message;
		ib_uverbs_ioctl_hdr header{};

		header.length =
			static_cast<std::uint16_t>(sizeof(header) + n * sizeof(ib_uverbs_attr));
		header.object_id = object;
		header.method_id = method_id;
		header.num_attrs = static_cast<std::uint16_t>(n);
		header.driver_id = driver_id_;
		std::memcpy(message.data(), &header, sizeof(header));
		std::memcpy(message.data() + sizeof(header), attrs.data(),
			    n * sizeof(ib_uverbs_attr));
		const int error = ::ioctl(fd_, RDMA_VERBS_IOCTL, message.data()) ? errno : 0;

		std::memcpy(attrs.data(), message.data() + sizeof(header),
			    n * sizeof(ib_uverbs_attr));
		return error;
	}
};

} // namespace peal::uverbs
