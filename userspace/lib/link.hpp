// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What a connection owns: the queue pair, its queues, and what came and has not been taken yet.
 * Batches and messages keep it, so that a connection may end before them. It does not know how a
 * peer is found (device.cpp).
 *
 * A connection either belongs to the program, which waits by calls (connection.cpp), or to an event
 * loop, whose coroutines wait (co.cpp). Both build and post batches in the same way.
 *
 * Sends and receives have a completion queue each, so that a wait for one never has to put a
 * completion of the other aside. Both report to one channel.
 */
#pragma once
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>

#include "context.hpp"
#include "domain.hpp"
#include "loop.hpp"
#include "peal/connection.hpp"
#include "receive_pool.hpp"
#include "rings.hpp"

namespace peal {

/* What each side tells the other when it connects, in big-endian order. */
struct region_on_wire {
	std::uint32_t magic;
	std::uint8_t version;
	std::uint8_t rights;
	std::uint8_t transport;
	std::uint8_t reserved;
	std::uint64_t address;
	std::uint64_t size;
	std::uint32_t key;
	std::uint32_t receive_bytes;

	static constexpr std::uint8_t current_version = 1;

	static region_on_wire pack(const region &, const options &) noexcept;
	bool is_peal() const noexcept;
	/* With the rights that the transport has. */
	region unpack() const noexcept;
};
static_assert(sizeof(region_on_wire) == 32,
	      "56 bytes fit into a request of the connection manager");

namespace detail {

struct greeter;
void keep(greeter *) noexcept;
void release(greeter *) noexcept;

/* READs and atomics on their way in each direction, if the device allows so many. */
constexpr int most_reads = 16;
/* Why a connection with transport::xrc gets no message. */
constexpr const char *only_sends = "a connection to inboxes only sends; receive by an inbox";

/* The region of memory that a program may reach (memory.cpp). */
ibv_mr *registration_of(const block *) noexcept;

struct link final : source, path {
	/* A request on its way, in an event loop. */
	struct slot {
		co::sending *by = nullptr; /* who waits */
		kept<block> local;	   /* what the device reads or writes */
	};
	/* Its descriptors in an event loop. */
	enum descriptor : unsigned { of_queues, of_peer };

	std::atomic<unsigned> users{1};
	const kept<context> device;
	/* Instead of own receives. */
	const kept<receive_pool> pool;
	/* Of a target: its queue pair has no queues. */
	kept<domain_state> domain;
	/* The inbox that the requests of the batch go to. */
	std::uint32_t inbox_number = 0;

	/* Null if it was connected without the connection manager. */
	rdma_event_channel *events = nullptr;
	rdma_cm_id *id = nullptr;
	/* Null if it was connected by the connection manager, and after the end. */
	kept<detail::greeter> greeter;
	ibv_comp_channel *channel = nullptr;
	ibv_cq *send_cq = nullptr;
	ibv_cq *recv_cq = nullptr;
	ibv_qp *qp = nullptr;
	/* On a device of peal, while `qp` exists. Elsewhere libibverbs writes the rings. */
	std::unique_ptr<rings> direct;
	int epoll = -1;
	bool connected = false;
	/* The queue pair takes no buffer of the pool any more. Another link may find it out. */
	std::atomic<bool> has_last_receive{false};

	region peer;
	unsigned mtu = 0;
	gid local_gid{};
	gid peer_gid{};
	std::uint32_t qp_number = 0;

	/* Why nothing more will come. */
	const char *ended = nullptr;

	/* By libibverbs: wr[0, batch_size()) are built. */
	std::unique_ptr<ibv_send_wr[]> wr;
	std::unique_ptr<ibv_sge[]> sge;
	std::unique_ptr<std::byte[]> inline_area;
	/* Why the batch is not posted. */
	const char *refused = nullptr;

	/* Messages that came, from the oldest at `first` on. */
	kept<block> buffers;
	std::unique_ptr<arrival[]> arrived;
	std::uint32_t first = 0;
	std::uint32_t count = 0;
	std::uint64_t arrivals = 0;

	/* The windows of the connection, and those that the batch changes (window.cpp). */
	list_node windows;
	list_node batch_windows;

	/* ---- only in an event loop ---- */
	kept<event_loop> loop;
	bool is_watched = false;
	/* What the batch has, in its order, and then the requests on their way, as a ring. */
	std::unique_ptr<kept<block>[]> held;
	std::unique_ptr<slot[]> slots;
	std::uint32_t first_slot = 0;
	/* Requests that wait for room, and those who wait for messages. */
	list_node senders;
	list_node receivers;
	bool send_armed = false;
	bool recv_armed = false;

	link(kept<context>, const options &) noexcept;
	link(const link &) = delete;
	~link();

	/* The queues and the queue pair. */
	status make_queues(bool for_loop) noexcept;
	status learn_port(std::uint8_t port) noexcept;
	/* In INIT. Call it before the peer can send. */
	status post_receives() noexcept;
	/* By what the connection manager has found out. `depth` limits READs and atomics. */
	status to_state(ibv_qp_state, std::uint8_t depth = UINT8_MAX) noexcept;
	/* By attributes that have the path. The rest is the same for every connection. */
	status to_state(ibv_qp_attr, int mask) noexcept;
	status learn_peer(const void *private_data, std::size_t length) noexcept;
	/* Ends the connection if this event of the connection manager says that it has ended. */
	void hear(rdma_cm_event_type type) noexcept;
	/* Ends the connection if the peer says farewell, now or later. */
	status keep_greeter(kept<detail::greeter>) noexcept;
	void close() noexcept;

	/* The functions of struct path call these in rare cases. */
	request add_checked(const operation &) noexcept;
	status commit_checked() noexcept;
	status commit_and_wait(const deadline &) noexcept;
	void send_to(const inbox_address &) noexcept;
	void abort() noexcept;
	void end_batch() noexcept;
	/* The batch is not posted. The first reason counts. */
	void refuse(const char *why) noexcept;

	void post_receive(std::uint32_t buffer) noexcept;
	void end(const char *why) noexcept;
	completions wait(std::size_t count, const deadline &) noexcept;
	completions take() noexcept;
	/* What a connection without a link returns. */
	static completions after_move() noexcept;
	result<message> recv(const deadline &) noexcept;
	result<std::uint32_t> recv_imm(const deadline &) noexcept;
	next_step arm_for_program() noexcept;

	/* ---- windows (window.cpp) ---- */
	result<window> make_window() noexcept;
	request add_bind(window_state *, const slice &, rights given) noexcept;
	request add_invalidate(window_state *) noexcept;
	request add_send_invalidate(const slice *, lease &) noexcept;

	/* ---- in an event loop (co.cpp) ---- */
	status make_slots() noexcept;
	/* From here on the loop watches it. */
	status join(const kept<event_loop> &) noexcept;
	/* Whether a request can be posted now. */
	bool has_room() const noexcept;
	void keep_local(const slice *, kept<block> &) const noexcept;
	/* Posts the batch. Its completions are those of the sending. */
	void commit_for(co::sending &) noexcept;
	void forget(const co::sending &) noexcept;
	/* The message that its receiver does not want any more. */
	void put_back(const arrival &) noexcept;
	message made_message(const arrival &) noexcept;
	static completion failure(const char *why) noexcept;
	void on_readable(unsigned which) noexcept override;
	void look() noexcept override;
	void arm() noexcept override;

private:
	status make_target() noexcept;
	error no_rings(int failed) const noexcept;
	/* Gets back from the queue pair what it has taken from the pool. */
	void leave_pool() noexcept;
	void learn_gids(const ibv_ah_attr &path) noexcept;
	/* Goes the short way again after what ended the short way. */
	void choose_way() noexcept;
	/* Writes a request for libibverbs. */
	void build(const operation &) noexcept;
	/* Readable if look_at_peer() has something to see. */
	int peer_fd() const noexcept;
	/* Sees whether the connection manager or the peer says that the connection has ended. */
	void look_at_peer() noexcept;
	void look_for_farewell() noexcept;
	/* Ends it, and flushes the requests that are not complete. */
	void break_off(const char *why) noexcept;
	void drain_channel() noexcept;
	/* Sleeps until something may have come, or until the deadline. */
	void sleep(const deadline &) noexcept;
	void poll_queues() noexcept;
	status wait_arrival(const deadline &) noexcept;
	completions hand_over(std::uint32_t count, const char *why) noexcept;
	void forget_handed() noexcept;
	completions only(const char *why) noexcept;
	arrival pop() noexcept;
	void poll_sends() noexcept;
	void poll_receives() noexcept;
	void note_sent(std::uint64_t name, int wc_status, std::uint32_t vendor_error) noexcept;
	/* Its number is not set yet. */
	void note_received(int wc_status, const arrival &) noexcept;
	/* How many requests of the batch were posted. */
	std::uint32_t post(int &failed, co::sending *by) noexcept;
	void settle_windows(bool whole) noexcept;
	void restore_windows() noexcept;
	bool is_inv_of_rxe(const ibv_wc &) const noexcept;
	bool has_lent(rkey) const noexcept;
	void note_given_back(rkey) noexcept;
	void end_windows() noexcept;
	/* ---- in an event loop ---- */
	void complete(const completion &) noexcept;
	/* Nobody will know how the requests on their way end. */
	void fail_slots() noexcept;
	void leave_loop() noexcept;
	void deliver() noexcept;
};

/* Every path is a link's. */
inline link &link_of(path *of) noexcept
{
	return static_cast<link &>(*of);
}

inline kept<path> as_path(kept<link> of) noexcept
{
	return kept<path>(of.give());
}

} // namespace detail
} // namespace peal
