// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * How requests ended. Connections own the completions and the received messages. This file does not
 * know how they arrive.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "kept.hpp"
#include "result.hpp"

namespace peal {

enum class rkey : std::uint32_t;

namespace detail {

struct link;
struct path;
PEAL_API void keep(link *) noexcept;
PEAL_API void release(link *) noexcept;

/* A message that came. */
struct arrival {
	std::uint64_t number; /* counts the messages of the connection */
	std::uint32_t buffer;
	std::uint32_t bytes;
	std::uint32_t imm; /* or the key that the peer has invalidated */
	bool has_imm;
	bool has_key;
	bool in_buffer; /* otherwise the peer has written it to this program's region */
};

inline std::string_view text_of(std::span<const std::byte> bytes) noexcept
{
	return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

template <class T>
std::optional<T> object_of(std::span<const std::byte> bytes) noexcept
{
	static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>,
		      "received bytes are copied, so T must be trivially copyable");
	std::optional<T> copy;

	if (bytes.size() == sizeof(T))
		std::memcpy(&copy.emplace(), bytes.data(), sizeof(T));
	return copy;
}

} // namespace detail

/* Names a request of a connection. No other request that was posted there has the same name. */
enum class request : std::uint64_t { none = 0 };

/* How a request ended. It is true if the request has done what it says. */
class PEAL_API completion {
public:
	explicit operator bool() const noexcept { return status_ == 0; }
	/*
	 * What went wrong and what to do, or an empty string. The text lives as long as the
	 * program. On a device of peal it has the device's reason.
	 */
	const char *why() const noexcept;
	/* Which request. None if this stands for requests that have not completed. */
	peal::request request() const noexcept { return request_; }
	/* As libibverbs has them: enum ibv_wc_status, or -1 without a request, and vendor_err. */
	int verbs_status() const noexcept { return status_; }
	std::uint32_t vendor_error() const noexcept { return vendor_error_; }

private:
	friend struct detail::link;
	friend struct detail::path;

	/* Whether it only says why requests have not completed. */
	bool is_sentence() const noexcept { return status_ < 0; }

	peal::request request_ = request::none;
	int status_ = 0;
	std::uint32_t vendor_error_ = 0;
	/* Of a failure: whether the device is peal's. The sentence if there is no request. */
	bool peal_ = false;
	const char *why_ = nullptr;
};

/* Completions in the memory of their connection. They are valid until it takes others. */
class completions {
public:
	/* Whether all are true. */
	explicit operator bool() const noexcept { return all_good_ || !failure(); }
	/* The first failure's sentence, or an empty string. */
	const char *why() const noexcept { return failure() ? failure()->why() : ""; }

	const completion *begin() const noexcept { return span_.data(); }
	const completion *end() const noexcept { return span_.data() + span_.size(); }
	std::size_t size() const noexcept { return span_.size(); }

private:
	friend struct detail::link;
	friend struct detail::path;

	explicit completions(std::span<const completion> span, bool all_good = false) noexcept
		: span_(span), all_good_(all_good)
	{
	}

	const completion *failure() const noexcept
	{
		for (const completion &one : span_)
			if (!one)
				return &one;
		return nullptr;
	}

	std::span<const completion> span_;
	/* It is known that all are true. Otherwise they have to be looked at. */
	bool all_good_;
};

/*
 * What a peer has sent. The bytes are in a receive buffer of the connection, which is posted again
 * when the message is destroyed.
 */
class PEAL_API message {
public:
	message(message &&) noexcept = default;
	message &operator=(message &&other) noexcept;
	~message();

	std::span<const std::byte> bytes() const noexcept { return bytes_; }
	std::string_view text() const noexcept { return detail::text_of(bytes_); }
	/* The object that the peer has sent, unless the message has another length. */
	template <class T>
	std::optional<T> as() const noexcept
	{
		return detail::object_of<T>(bytes_);
	}
	/* The immediate value, if the peer sent one. */
	std::optional<std::uint32_t> imm() const noexcept
	{
		return has_imm_ ? std::optional(imm_) : std::nullopt;
	}
	/* How many bytes a write_imm of the peer has written to this program's region, otherwise 0.
	 */
	std::uint32_t written() const noexcept { return written_; }
	/* The key of the window that the peer gives back with it (batch::send_invalidate). */
	std::optional<rkey> invalidated() const noexcept
	{
		return has_key_ ? std::optional(rkey(imm_)) : std::nullopt;
	}

private:
	friend struct detail::link;

	explicit message(detail::kept<detail::link> link) noexcept : link_(std::move(link)) {}

	detail::kept<detail::link> link_;
	std::span<const std::byte> bytes_;
	std::uint32_t buffer_ = 0;
	std::uint32_t imm_ = 0;
	std::uint32_t written_ = 0;
	bool has_imm_ = false;
	bool has_key_ = false;
};

} // namespace peal
