// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What two ends that connect by blobs tell each other by datagrams: each greets the other until
 * both know that both are ready, and an end that closes says farewell. The connection keeps its
 * greeter for that. The greeter does not know the connection.
 *
 * Anybody may send datagrams here. A farewell is the peer's only if it has the nonces of both
 * blobs, and comes from the address and the queue pair that the peer's blob names. The kernel or
 * the device of the sender sets these two, so no other program can set those of the peer.
 */
#pragma once
#include "blob.hpp"
#include "datagrams.hpp"

namespace peal::detail {

struct greeter final : datagrams {
	greeter() = default;
	~greeter() override;

	status make_queues() noexcept;
	/* From here on datagrams come and can be sent. */
	status start(const end_point &mine, const end_point &theirs, const route &) noexcept;
	/* Returns when both ends are ready. The peer may have said farewell since. */
	status greet(const deadline &) noexcept;
	/*
	 * Whether the peer has said farewell. The channel of completions is readable when something
	 * has come since.
	 */
	bool hears_farewell() noexcept;
	/* Waits for a limited time until the device has sent it. */
	void say_farewell() noexcept;

private:
	destination to_{};
	gid peer_{};
	/* Those of this end's blob and of the peer's. */
	std::uint64_t nonce_ = 0, peer_nonce_ = 0;
	bool has_heard_farewell_ = false;

	bool is_farewell(const datagram &, std::uint32_t from_qp) const noexcept;
};

} // namespace peal::detail
