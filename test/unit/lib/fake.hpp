// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A libibverbs and a librdmacm in the memory of the test: every function of them that libpeal
 * calls, getaddrinfo(), and connect(). Two devices, fake0 and fake1, move bytes by memcpy. A test
 * can make calls fail and requests wait. It can count calls and the objects that exist.
 *
 * Like the real ones it refuses keys that do not cover an address, and completes nothing in order
 * behind a failure. Datagrams go to a queue pair or to the members of a group. It does not model
 * time.
 */
#pragma once
#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fake {

/* What addresses of the fake network do. */
constexpr const char *here = "10.0.0.1";	    /* is reached by fake0 */
constexpr const char *elsewhere = "10.0.0.9";	    /* is reached by fake1 */
constexpr const char *unreachable = "10.0.0.254";   /* no device reaches it */
constexpr const char *silent = "10.0.0.253";	    /* its look-up of the link address never ends */
constexpr const char *sleepy = "10.0.0.252";	    /* the second look-up finds it */
constexpr const char *absent = "10.0.0.251";	    /* every look-up times out */
constexpr const char *slow_name = "slow.example";   /* has no answer before answer_slow_name() */
constexpr const char *known_name = "known.example"; /* is `here` */

/* Ends what the last test left. Nothing of libpeal may exist. */
void reset();

/* The next call of this function fails with the errno. */
void fail_next(const std::string &function, int error);

/* Objects that exist, by kind, for example "qp 2"; empty if there are none. */
std::string alive();
/* What a real library would not forgive: for example, memory that was freed while registered. */
std::string broken_rules();

/*
 * Whether the devices give their rings away, as peal's do. The same tests run with and without
 * (FAKE_RINGS=1).
 */
bool has_rings();
/* They do until the next reset(). */
void give_rings();
/* How often ibv_post_send was called, or the doorbell rung. */
unsigned posts();
/* The attributes by which the last queue pair got ready to receive. */
ibv_qp_attr last_route();
int last_inline_flags();

/* Requests wait for resume(). */
void hold();
void resume();
/* Only so many requests move, and the others still wait. */
void resume(unsigned count);

/* Every device goes: queue pairs break, and the connection manager says so. */
void remove_devices();
/* The next completion is this failure. */
void fail_next_request(ibv_wc_status, std::uint32_t vendor_error);
void set_vendor(std::uint32_t id);
void set_ports_up(bool);
void set_atomics(bool);
void set_windows(bool);
void set_xrc(bool);
/* A message that invalidates a key has the flag that rdma_rxe gives it. */
void say_inv_as_rxe();
/* A peer whose greeting is not libpeal's, or of another version. */
void answer_with(std::vector<std::uint8_t> private_data);
/* The next request to connect has this greeting. */
void greet_with(std::vector<std::uint8_t> private_data);
/* What the connection manager answers when a group is joined. */
constexpr int never = -1;
void join_with(int event);
/* Datagrams come from abab:... and not from 10.0.0.7. */
void send_from_six();
/* The addresses of a device, 0 or 1, and the MTU of its port. */
void set_addresses(int device, const std::vector<std::string> &);
void set_mtu(int device, ibv_mtu);
/* No route leads to an address any more. */
void cut(const std::string &address);
/* How many receives are in the shared receive queues of the queue pairs that exist. */
std::size_t shared_receives_posted();
/* No queue pair says any more that it has taken its last shared receive. */
void hide_last_receives();
/* So many of a hundred datagrams are lost. */
void lose_datagrams(unsigned percent);
/* So many datagrams are lost. */
void lose_next_datagrams(unsigned count);
/* This happens when a completion queue is to be armed the next time, and is not yet. */
void before_next_notify(std::function<void()> action);
/* One bit of this byte of each datagram changes on its way. */
void change_datagrams(std::size_t byte);
/* The network ends all groups. */
void end_groups();
/* The listener does not hear that the next peer is connected. */
void lose_established();
/* Ends the look-up, and returns when its thread has the answer. */
void answer_slow_name();
/* No device is in the list any more. */
void remove_list();

/* How many functions of the fake this thread is in. What they allocate does not count. */
extern thread_local unsigned calls;
void count_allocation();

/* While one lives, the allocations of this thread are counted, except those of the fake. */
class CountAllocations {
public:
	CountAllocations();
	~CountAllocations();
	unsigned count() const;
};

/* While one lives, this thread gets no memory from operator new, except in the fake. */
class FailAllocations {
public:
	FailAllocations();
	~FailAllocations();
};

} // namespace fake
