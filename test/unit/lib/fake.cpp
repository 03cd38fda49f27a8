// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "fake.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "fake_provider.hpp"
#include "fake_rings.hpp"

#undef ibv_query_port
#undef ibv_reg_mr

namespace {

std::recursive_mutex lock;

/* Every function of the fake has one. */
struct Call {
	std::lock_guard<std::recursive_mutex> guard{lock};

	Call() { ++fake::calls; }
	~Call() { --fake::calls; }
};

struct Queue;

struct Channel : ibv_comp_channel {
	std::deque<Queue *> events;
};

struct Queue : ibv_cq {
	std::deque<ibv_wc> came;
	std::unique_ptr<fake::CompletionHalf> ring; /* if the program took it */
	ibv_wc_status last = IBV_WC_SUCCESS;
	bool armed = false;
	unsigned unacknowledged = 0;
};

struct Send {
	ibv_send_wr wr;
	ibv_sge sge;
	std::string bytes; /* inline */
};

struct Receive {
	std::uint64_t id;
	ibv_sge sge;
};

struct SharedQueue : ibv_srq {
	unsigned depth;
	std::deque<Receive> receives;
	/* Of XRC: its number, its domain, and where it completes. */
	std::uint32_t number = 0;
	ino_t domain = 0;
	ibv_cq *cq = nullptr;
};

/* Processes know it by a file. */
struct Domain : ibv_xrcd {
	ino_t file;
};

struct Pair : ibv_qp {
	ibv_qp_attr route{};
	std::uint32_t qkey = 0;
	unsigned depth_send, depth_recv, inline_bytes;
	std::deque<Send> sends;
	std::deque<Receive> receives;
	std::vector<ibv_gid> groups;
	ino_t domain = 0;	     /* of a target */
	unsigned unacknowledged = 0; /* events */

	/* What the next message takes. */
	std::deque<Receive> &queue()
	{
		return srq ? static_cast<SharedQueue *>(srq)->receives : receives;
	}
	/* If the program took them. */
	std::unique_ptr<fake::WorkHalf> send_ring, receive_ring;
};

struct Address : ibv_ah {
	ibv_ah_attr attr;
};

struct Region : ibv_mr {
	int access;
};

/* Of type 2. It is bound through a queue pair, and only requests on that one may use it. */
struct Window : ibv_mw {
	std::uint32_t key; /* as the device has it */
	const Region *region = nullptr;
	std::uint32_t qpn = 0;
	std::uint64_t start = 0, length = 0;
	int access = 0;
};

struct Events;

struct Id : rdma_cm_id {
	Id *peer = nullptr;
	std::uint32_t qpn = 0;
	std::uint16_t port = 0;
	in_addr_t address = 0;
	bool listens = false;
	bool asked = false;
	bool connected = false; /* the peer that asked has confirmed */
	bool is_member = false;
};

struct Event : rdma_cm_event {
	std::vector<std::uint8_t> data;
};

struct Events : rdma_event_channel {
	std::deque<Event *> queue;
};

struct State {
	ibv_device devices[2]{};
	ibv_context managers[2]{}; /* those of the connection manager */
	std::map<std::string, int> failures;
	std::map<std::string, unsigned> alive;
	std::string broken;
	std::map<std::uint32_t, Pair *> pairs;
	std::map<std::uint32_t, Region *> regions;
	std::set<Window *> windows;
	std::map<std::uint32_t, SharedQueue *> inboxes;
	std::deque<Pair *> last_receives; /* events */
	bool tells_last_receive = true;
	std::set<Id *> ids;
	std::uint32_t next_key = 0x100;
	std::uint32_t next_qpn = 0x10;
	std::uint32_t next_srqn = 0x800;
	std::uint16_t next_port = 40000;
	unsigned posts = 0;
	ibv_qp_attr route{};
	int inline_flags = 0;
	unsigned may_move = UINT32_MAX;
	ibv_wc_status failing = IBV_WC_SUCCESS;
	std::uint32_t vendor_error = 0;
	std::uint32_t vendor = 0x1234;
	bool up = true;
	bool atomics = true;
	bool has_windows = true;
	bool has_xrc = true;
	bool says_inv_as_rxe = false;
	int devices_there = 2;
	std::vector<std::uint8_t> answer;
	std::vector<std::uint8_t> greeting;
	bool loses_established = false;
	bool six = false;
	std::vector<ibv_gid> addresses[2];
	ibv_mtu mtu[2] = {IBV_MTU_1024, IBV_MTU_1024};
	std::set<std::string> cut;
	unsigned loss = 0, lost_next = 0;
	std::size_t changed_byte = SIZE_MAX; /* of each datagram */
	std::function<void()> before_notify;
	std::uint32_t dice = 1;
	int joining = RDMA_CM_EVENT_MULTICAST_JOIN;
	bool gives_rings = false;
	peal_doorbell doorbell{.engine = PEAL_ENGINE_ASLEEP, .pad0 = {}, .bits = {}};
};

State *state = new State;

/* Threads that look up the slow name. They may outlive a test's call, but not the test. */
std::mutex slow_lock;
std::condition_variable slow_changed;
unsigned slow_callers;
bool slow_answered;

int answer_slowly()
{
	std::unique_lock guard(slow_lock);

	++slow_callers;
	slow_changed.notify_all();
	slow_changed.wait(guard, [] { return slow_answered; });
	--slow_callers;
	slow_changed.notify_all();
	return EAI_NONAME;
}

int failure(const char *function)
{
	const auto found = state->failures.find(function);

	if (found == state->failures.end())
		return 0;
	const int error = found->second;
	state->failures.erase(found);
	errno = error;
	return error;
}

template <class T>
T *made(T *object, const char *kind)
{
	++state->alive[kind];
	return object;
}

void ended(const char *kind)
{
	if (!state->alive[kind])
		state->broken += std::string(kind) + " ended twice; ";
	else
		--state->alive[kind];
}

void notify(int fd)
{
	const std::uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		state->broken += "an event was lost; ";
}

bool take(int fd)
{
	std::uint64_t one;

	return read(fd, &one, sizeof(one)) == sizeof(one);
}

/* The index of a WQE is the wr_id. */
peal_cqe cqe_of(const ibv_wc &wc)
{
	const bool has_imm = wc.wc_flags & IBV_WC_WITH_IMM;
	peal_cqe cqe{};

	cqe.wqe_index = static_cast<std::uint32_t>(wc.wr_id);
	cqe.byte_len = wc.byte_len;
	cqe.imm_or_rkey = wc.imm_data; /* or the key */
	cqe.vendor_err = wc.vendor_err;
	cqe.status = wc.status;
	if (wc.wc_flags & IBV_WC_WITH_INV)
		cqe.opcode = PEAL_OP_SEND_INV;
	else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		cqe.opcode = PEAL_OP_WRITE_IMM;
	else
		cqe.opcode = has_imm ? PEAL_OP_SEND_IMM : PEAL_OP_SEND;
	return cqe;
}

void complete(ibv_cq *to, const ibv_wc &wc)
{
	auto *queue = static_cast<Queue *>(to);

	queue->last = wc.status;
	if (!queue->ring)
		queue->came.push_back(wc);
	else if (!queue->ring->push(cqe_of(wc)))
		state->broken += "a completion queue overflows; ";
	if (!queue->armed)
		return;
	queue->armed = false;
	static_cast<Channel *>(queue->channel)->events.push_back(queue);
	notify(queue->channel->fd);
}

bool covers(std::uint32_t key, std::uint64_t address, std::uint64_t length, int access)
{
	const auto found = state->regions.find(key);

	if (found == state->regions.end())
		return false;
	const Region *region = found->second;
	const auto start = reinterpret_cast<std::uint64_t>(region->addr);

	return address >= start && length <= region->length &&
	       address - start <= region->length - length && (region->access & access) == access;
}

/* A remote part of a request that comes in on this queue pair. */
bool covers_remote(const Pair *on, std::uint32_t key, std::uint64_t address, std::uint64_t length,
		   int access)
{
	for (const Window *window : state->windows)
		if (window->key == key && window->region)
			return window->qpn == on->qp_num && address >= window->start &&
			       length <= window->length &&
			       address - window->start <= window->length - length &&
			       (window->access & access) == access;
	return covers(key, address, length, access);
}

ibv_wc_status bind_window(const Pair *pair, const ibv_send_wr &wr)
{
	auto *window = static_cast<Window *>(wr.bind_mw.mw);
	const ibv_mw_bind_info &to = wr.bind_mw.bind_info;
	const auto *region = static_cast<Region *>(to.mr);

	/* rdma_rxe compares the key, and refuses the same one again. */
	if (!state->windows.contains(window) || window->region || window->rkey != window->key ||
	    wr.bind_mw.rkey == window->key || wr.bind_mw.rkey >> 8 != window->key >> 8 ||
	    !to.length || !covers(region->lkey, to.addr, to.length, IBV_ACCESS_MW_BIND))
		return IBV_WC_MW_BIND_ERR;
	window->key = wr.bind_mw.rkey;
	window->region = region;
	window->qpn = pair->qp_num;
	window->start = to.addr;
	window->length = to.length;
	window->access = static_cast<int>(to.mw_access_flags);
	return IBV_WC_SUCCESS;
}

/* peal's device refuses a window that is not bound. */
bool invalidate(const Pair *on, std::uint32_t key)
{
	for (Window *window : state->windows)
		if (window->key == key && window->region && window->qpn == on->qp_num) {
			window->region = nullptr;
			return true;
		}
	return false;
}

void finish(Pair *pair, const Send &send, ibv_wc_status status, std::uint32_t vendor = 0)
{
	ibv_wc wc{};

	wc.wr_id = send.wr.wr_id;
	wc.status = status;
	wc.vendor_err = vendor;
	wc.qp_num = pair->qp_num;
	complete(pair->send_cq, wc);
}

void break_pair(Pair *pair)
{
	if (pair->srq && pair->state != IBV_QPS_ERR && state->tells_last_receive) {
		state->last_receives.push_back(pair);
		notify(pair->context->async_fd);
	}
	pair->state = IBV_QPS_ERR;
	for (const Send &send : pair->sends)
		finish(pair, send, IBV_WC_WR_FLUSH_ERR);
	pair->sends.clear();
	for (const Receive &receive : pair->receives) {
		ibv_wc wc{};

		wc.wr_id = receive.id;
		wc.status = IBV_WC_WR_FLUSH_ERR;
		complete(pair->recv_cq, wc);
	}
	pair->receives.clear();
}

ibv_wc_status move_remote(const Pair *to, const Send &send, void *local)
{
	const std::uint64_t at = send.wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
						 send.wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP
					 ? send.wr.wr.atomic.remote_addr
					 : send.wr.wr.rdma.remote_addr;
	void *remote = reinterpret_cast<void *>(at);
	std::uint64_t value;

	switch (send.wr.opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		if (!covers_remote(to, send.wr.wr.rdma.rkey, at, send.sge.length,
				   IBV_ACCESS_REMOTE_WRITE))
			return IBV_WC_REM_ACCESS_ERR;
		std::memcpy(remote, local, send.sge.length);
		return IBV_WC_SUCCESS;
	case IBV_WR_RDMA_READ:
		if (!covers_remote(to, send.wr.wr.rdma.rkey, at, send.sge.length,
				   IBV_ACCESS_REMOTE_READ))
			return IBV_WC_REM_ACCESS_ERR;
		std::memcpy(local, remote, send.sge.length);
		return IBV_WC_SUCCESS;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		if (!covers_remote(to, send.wr.wr.atomic.rkey, at, 8, IBV_ACCESS_REMOTE_ATOMIC))
			return IBV_WC_REM_ACCESS_ERR;
		std::memcpy(&value, remote, 8);
		std::memcpy(local, &value, 8);
		if (send.wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			value += send.wr.wr.atomic.compare_add;
		else if (value == send.wr.wr.atomic.compare_add)
			value = send.wr.wr.atomic.swap;
		std::memcpy(remote, &value, 8);
		return IBV_WC_SUCCESS;
	default:
		return IBV_WC_SUCCESS;
	}
}

ibv_gid gid_of(const std::string &text)
{
	ibv_gid made{};

	made.raw[10] = made.raw[11] = 0xff;
	if (inet_pton(AF_INET, text.c_str(), made.raw + 12) != 1)
		inet_pton(AF_INET6, text.c_str(), made.raw);
	return made;
}

std::string text_of(const void *address, int family)
{
	char text[INET6_ADDRSTRLEN];

	return inet_ntop(family, address, text, sizeof(text));
}

bool is_lost()
{
	if (state->lost_next) {
		--state->lost_next;
		return true;
	}
	state->dice = state->dice * 1103515245 + 12345;
	return (state->dice >> 16) % 100 < state->loss;
}

bool takes_datagram(const Pair *to, const Pair *from, const ibv_send_wr &wr)
{
	const ibv_gid group = static_cast<Address *>(wr.wr.ud.ah)->attr.grh.dgid;
	const auto is_it = [&](const ibv_gid &one) {
		return !std::memcmp(&one, &group, sizeof(group));
	};

	if (to->qp_type != IBV_QPT_UD || to->receives.empty())
		return false;
	if (wr.wr.ud.remote_qpn == 0xffffff)
		return to != from && std::any_of(to->groups.begin(), to->groups.end(), is_it);
	return to->qp_num == wr.wr.ud.remote_qpn && to->qkey == wr.wr.ud.remote_qkey;
}

bool is_four(const ibv_gid &gid)
{
	const std::uint8_t four[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return !std::memcmp(&gid, four, sizeof(four));
}

/* To a single queue pair it is the address by which the sender reaches it. */
ibv_gid sender_of(const Pair *from, const ibv_send_wr &wr)
{
	const auto &own = state->addresses[from->context->device - state->devices];
	/* Each address has two indexes. */
	const std::size_t index = static_cast<Address *>(wr.wr.ud.ah)->attr.grh.sgid_index / 2;

	if (state->six)
		return gid_of("abab:abab:abab:abab:abab:abab:abab:abab");
	return wr.wr.ud.remote_qpn == 0xffffff || index >= own.size() ? gid_of("10.0.0.7")
								      : own[index];
}

/* One that goes to a group goes to each member but the sender. One without a receive misses it. */
void move_datagram(Pair *pair, const Send &send)
{
	if (send.sge.length && !covers(send.sge.lkey, send.sge.addr, send.sge.length, 0))
		state->broken += "a datagram is not registered; ";
	for (const auto &[number, member] : state->pairs) {
		if (!takes_datagram(member, pair, send.wr) || is_lost())
			continue;
		const Receive into = member->receives.front();
		auto *at = reinterpret_cast<std::uint8_t *>(into.sge.addr);
		ibv_wc wc{};

		member->receives.pop_front();
		std::memset(at, 0, 40);
		if (const ibv_gid from = sender_of(pair, send.wr); !is_four(from)) {
			at[0] = 0x60;
			std::memcpy(at + 8, &from, sizeof(from));
		} else {
			/* What is in front of a header of IPv4 is not defined. */
			at[0] = 0x60;
			at[20] = 0x45;
			std::memcpy(at + 32, from.raw + 12, 4);
			/* The checksum: all words together are 0xffff. */
			std::uint32_t sum = 0;
			for (int i = 20; i < 40; i += 2)
				sum += at[i] << 8 | at[i + 1];
			sum = ~((sum & 0xffff) + (sum >> 16));
			at[30] = static_cast<std::uint8_t>(sum >> 8);
			at[31] = static_cast<std::uint8_t>(sum);
		}
		if (send.sge.length)
			std::memcpy(at + 40, reinterpret_cast<void *>(send.sge.addr),
				    send.sge.length);
		if (state->changed_byte < send.sge.length)
			at[40 + state->changed_byte] ^= 1;
		wc.wr_id = into.id;
		wc.src_qp = pair->qp_num;
		wc.byte_len = 40 + send.sge.length;
		wc.opcode = IBV_WC_RECV;
		wc.wc_flags = IBV_WC_GRH;
		complete(member->recv_cq, wc);
	}
	finish(pair, send, std::exchange(state->failing, IBV_WC_SUCCESS));
}

/* Whether the request could start. Without a receive of the peer it waits. */
bool move_one(Pair *pair, Send send)
{
	if (pair->qp_type == IBV_QPT_UD) {
		move_datagram(pair, send);
		return true;
	}
	const auto opcode = send.wr.opcode;
	const bool sends = opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
			   opcode == IBV_WR_SEND_WITH_INV;
	const bool has_imm = opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	const auto found = state->pairs.find(pair->route.dest_qp_num);
	Pair *peer = found == state->pairs.end() ? nullptr : found->second;
	void *local = send.wr.send_flags & IBV_SEND_INLINE
			      ? send.bytes.data()
			      : reinterpret_cast<void *>(send.sge.addr);
	std::deque<Receive> *receives = peer ? &peer->queue() : nullptr;
	ibv_cq *receives_cq = peer ? peer->recv_cq : nullptr;
	bool has_inbox = true;
	ibv_wc_status status = IBV_WC_SUCCESS;
	std::uint32_t vendor = 0;

	if (pair->qp_type == IBV_QPT_XRC_SEND) {
		const auto inbox = state->inboxes.find(send.wr.qp_type.xrc.remote_srqn);

		has_inbox = peer && inbox != state->inboxes.end() &&
			    inbox->second->domain == peer->domain;
		if (has_inbox) {
			receives = &inbox->second->receives;
			receives_cq = inbox->second->cq;
		}
	}
	if (state->failing) {
		status = std::exchange(state->failing, IBV_WC_SUCCESS);
		vendor = state->vendor_error;
	} else if (opcode == IBV_WR_BIND_MW) {
		status = bind_window(pair, send.wr);
	} else if (opcode == IBV_WR_LOCAL_INV) {
		if (!invalidate(pair, send.wr.invalidate_rkey))
			status = IBV_WC_LOC_QP_OP_ERR;
	} else if (send.sge.length && !(send.wr.send_flags & IBV_SEND_INLINE) &&
		   !covers(send.sge.lkey, send.sge.addr, send.sge.length, 0)) {
		status = IBV_WC_LOC_PROT_ERR;
	} else if (pair->qp_type == IBV_QPT_UC &&
		   (!peer || (peer->state != IBV_QPS_RTR && peer->state != IBV_QPS_RTS) ||
		    ((sends || has_imm) && peer->queue().empty()))) {
		/* It is lost. */
	} else if (!peer || (peer->state != IBV_QPS_RTR && peer->state != IBV_QPS_RTS)) {
		status = IBV_WC_RETRY_EXC_ERR;
	} else if (!has_inbox) {
		status = IBV_WC_REM_INV_REQ_ERR;
	} else if (sends || has_imm) {
		if (receives->empty())
			return false;
		status = move_remote(peer, send, local);
		if (!status) {
			const Receive into = receives->front();
			ibv_wc wc{};

			receives->pop_front();
			wc.wr_id = into.id;
			wc.byte_len = send.sge.length;
			wc.opcode = sends ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
			wc.wc_flags = has_imm ? IBV_WC_WITH_IMM : 0;
			wc.imm_data = send.wr.imm_data;
			if (opcode == IBV_WR_SEND_WITH_INV) {
				wc.wc_flags = state->says_inv_as_rxe ? IBV_WC_IP_CSUM_OK
								     : IBV_WC_WITH_INV;
				wc.invalidated_rkey = send.wr.invalidate_rkey;
				if (!invalidate(peer, send.wr.invalidate_rkey)) {
					wc.status = IBV_WC_LOC_QP_OP_ERR;
					status = IBV_WC_REM_ACCESS_ERR;
				}
			}
			if (sends && send.sge.length > into.sge.length) {
				wc.status = IBV_WC_LOC_LEN_ERR;
				status = IBV_WC_REM_INV_REQ_ERR;
			} else if (sends && send.sge.length) {
				std::memcpy(reinterpret_cast<void *>(into.sge.addr), local,
					    send.sge.length);
			}
			complete(receives_cq, wc);
			if (wc.status)
				break_pair(peer);
		}
	} else {
		status = move_remote(peer, send, local);
	}
	finish(pair, send, status, vendor);
	return true;
}

void progress()
{
	for (bool moved = true; moved;) {
		moved = false;
		for (const auto &[number, pair] : state->pairs) {
			if (pair->sends.empty() || !state->may_move)
				continue;
			const Send send = pair->sends.front();
			const auto queue = static_cast<Queue *>(pair->send_cq);
			if (!move_one(pair, send))
				continue;
			if (state->may_move != UINT32_MAX)
				--state->may_move;
			pair->sends.pop_front();
			moved = true;
			if (queue->last)
				break_pair(pair);
		}
	}
}

int post_send(ibv_qp *qp, ibv_send_wr *wr, ibv_send_wr **bad)
{
	const Call call;
	auto *pair = static_cast<Pair *>(qp);

	++state->posts;
	for (; wr; wr = wr->next) {
		const int error = failure("ibv_post_send");

		if (error || pair->sends.size() >= pair->depth_send || wr->num_sge > 1) {
			*bad = wr;
			progress();
			return error ? error : ENOMEM;
		}
		Send send{*wr, wr->num_sge ? *wr->sg_list : ibv_sge{}, {}};
		if (wr->send_flags & IBV_SEND_INLINE) {
			if (send.sge.length > pair->inline_bytes)
				state->broken += "inline data too long; ";
			send.bytes.assign(reinterpret_cast<const char *>(send.sge.addr),
					  send.sge.length);
		}
		state->inline_flags = wr->send_flags & IBV_SEND_INLINE;
		if (pair->state == IBV_QPS_RTS)
			pair->sends.push_back(send);
		else
			finish(pair, send, IBV_WC_WR_FLUSH_ERR);
	}
	progress();
	return 0;
}

int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad)
{
	const Call call;
	auto *pair = static_cast<Pair *>(qp);
	const int error = failure("ibv_post_recv");

	*bad = wr;
	if (error || pair->receives.size() >= pair->depth_recv || pair->state == IBV_QPS_RESET)
		return error ? error : EINVAL;
	if (!covers(wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length,
		    IBV_ACCESS_LOCAL_WRITE))
		state->broken += "a receive buffer is not registered; ";
	pair->receives.push_back({wr->wr_id, *wr->sg_list});
	progress();
	return 0;
}

int post_srq_recv(ibv_srq *srq, ibv_recv_wr *wr, ibv_recv_wr **bad)
{
	const Call call;
	auto *queue = static_cast<SharedQueue *>(srq);
	const int error = failure("ibv_post_srq_recv");

	*bad = wr;
	if (error || queue->receives.size() >= queue->depth)
		return error ? error : ENOMEM;
	if (!covers(wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length,
		    IBV_ACCESS_LOCAL_WRITE))
		state->broken += "a shared receive buffer is not registered; ";
	for (const Receive &other : queue->receives)
		if (other.id == wr->wr_id)
			state->broken += "a buffer was posted twice; ";
	queue->receives.push_back({wr->wr_id, *wr->sg_list});
	progress();
	return 0;
}

ibv_mw *alloc_mw(ibv_pd *pd, ibv_mw_type type)
{
	const Call call;

	if (failure("ibv_alloc_mw"))
		return nullptr;
	auto *window = made(new Window, "mw");
	static_cast<ibv_mw &>(*window) = {};
	window->context = pd->context;
	window->pd = pd;
	window->type = type;
	window->key = window->rkey = state->next_key++ << 8;
	state->windows.insert(window);
	return window;
}

int dealloc_mw(ibv_mw *mw)
{
	const Call call;
	auto *window = static_cast<Window *>(mw);

	state->windows.erase(window);
	ended("mw");
	delete window;
	return 0;
}

ibv_xrcd *open_xrcd(ibv_context *context, ibv_xrcd_init_attr *want)
{
	const Call call;
	struct stat file {};

	if (failure("ibv_open_xrcd") || fstat(want->fd, &file))
		return nullptr;
	auto *domain = made(new Domain, "xrcd");
	static_cast<ibv_xrcd &>(*domain) = {};
	domain->context = context;
	domain->file = file.st_ino;
	return domain;
}

int close_xrcd(ibv_xrcd *xrcd)
{
	const Call call;

	ended("xrcd");
	delete static_cast<Domain *>(xrcd);
	return 0;
}

ibv_srq *create_srq_ex(ibv_context *context, ibv_srq_init_attr_ex *want)
{
	const Call call;

	if (failure("ibv_create_srq"))
		return nullptr;
	auto *queue = made(new SharedQueue, "srq");
	static_cast<ibv_srq &>(*queue) = {};
	queue->context = context;
	queue->pd = want->pd;
	queue->depth = want->attr.max_wr;
	queue->number = state->next_srqn++;
	queue->domain = static_cast<Domain *>(want->xrcd)->file;
	queue->cq = want->cq;
	state->inboxes[queue->number] = queue;
	return queue;
}

int get_srq_num(ibv_srq *srq, std::uint32_t *number)
{
	const Call call;

	*number = static_cast<SharedQueue *>(srq)->number;
	return failure("ibv_get_srq_num");
}

ibv_qp *create_qp_ex(ibv_context *context, ibv_qp_init_attr_ex *want)
{
	const Call call;

	if (failure("ibv_create_qp"))
		return nullptr;
	auto *pair = made(new Pair, "qp");
	static_cast<ibv_qp &>(*pair) = {};
	pair->context = context;
	pair->qp_type = want->qp_type;
	pair->qp_context = want->qp_context;
	pair->qp_num = state->next_qpn++;
	pair->state = IBV_QPS_RESET;
	pair->domain = static_cast<Domain *>(want->xrcd)->file;
	state->pairs[pair->qp_num] = pair;
	return pair;
}

int poll_cq(ibv_cq *cq, int most, ibv_wc *to)
{
	const Call call;
	auto *queue = static_cast<Queue *>(cq);
	int count = 0;

	if (failure("ibv_poll_cq"))
		return -1;
	for (; count < most && !queue->came.empty(); ++count) {
		to[count] = queue->came.front();
		queue->came.pop_front();
	}
	return count;
}

int req_notify_cq(ibv_cq *cq, int)
{
	std::function<void()> action;

	{
		const Call call;

		action = std::exchange(state->before_notify, nullptr);
	}
	if (action)
		action();
	const Call call;

	static_cast<Queue *>(cq)->armed = true;
	return 0;
}

/* ---- rings of peal ---- */

/* No file of this process. */
constexpr int kick_fd = 1 << 20;

ibv_wr_opcode verbs_opcode(std::uint8_t opcode)
{
	switch (opcode) {
	case PEAL_OP_SEND:
		return IBV_WR_SEND;
	case PEAL_OP_SEND_IMM:
		return IBV_WR_SEND_WITH_IMM;
	case PEAL_OP_WRITE:
		return IBV_WR_RDMA_WRITE;
	case PEAL_OP_WRITE_IMM:
		return IBV_WR_RDMA_WRITE_WITH_IMM;
	case PEAL_OP_READ:
		return IBV_WR_RDMA_READ;
	case PEAL_OP_CMP_SWAP:
		return IBV_WR_ATOMIC_CMP_AND_SWP;
	case PEAL_OP_FETCH_ADD:
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	case PEAL_OP_BIND_MW:
		return IBV_WR_BIND_MW;
	case PEAL_OP_LOCAL_INV:
		return IBV_WR_LOCAL_INV;
	case PEAL_OP_SEND_INV:
		return IBV_WR_SEND_WITH_INV;
	default:
		state->broken += "a WQE has no opcode; ";
		return IBV_WR_SEND;
	}
}

/* The low byte is the program's, and only the others count. */
Window *window_of(std::uint32_t key)
{
	for (Window *window : state->windows)
		if (window->key >> 8 == key >> 8)
			return window;
	return nullptr;
}

Send send_of(std::uint32_t index, const std::byte *slot)
{
	peal_send_wqe wqe;
	Send send{};

	std::memcpy(&wqe, slot, sizeof(wqe));
	slot += sizeof(wqe);
	send.wr.wr_id = index;
	send.wr.opcode = verbs_opcode(wqe.opcode);
	send.wr.imm_data = wqe.imm_or_rkey;
	if (!(wqe.flags & PEAL_WQE_SIGNALED) || wqe.reserved0 || wqe.reserved1)
		state->broken += "a WQE is not signaled, or not clean; ";
	if (wqe.opcode == PEAL_OP_CMP_SWAP || wqe.opcode == PEAL_OP_FETCH_ADD) {
		peal_atomic_seg segment;

		std::memcpy(&segment, slot, sizeof(segment));
		slot += sizeof(segment);
		send.wr.wr.atomic = {wqe.remote_addr, segment.compare_add, segment.swap, wqe.rkey};
	} else if (wqe.opcode == PEAL_OP_BIND_MW) {
		peal_bind_seg segment;

		std::memcpy(&segment, slot, sizeof(segment));
		send.wr.bind_mw = {window_of(wqe.rkey),
				   segment.new_rkey,
				   {state->regions.at(segment.mr_lkey), segment.addr,
				    segment.length, segment.access}};
	} else {
		send.wr.wr.rdma = {wqe.remote_addr, wqe.rkey};
	}
	if (wqe.flags & PEAL_WQE_INLINE) {
		send.wr.send_flags = IBV_SEND_INLINE;
		send.sge.length = wqe.inline_len;
		send.bytes.assign(reinterpret_cast<const char *>(slot), wqe.inline_len);
	} else if (wqe.num_sge) {
		peal_sge sge;

		std::memcpy(&sge, slot, sizeof(sge));
		send.sge = {sge.addr, sge.length, sge.lkey};
	}
	return send;
}

void take_wqes(Pair *pair)
{
	if (pair->receive_ring)
		pair->receive_ring->take([&](std::uint32_t index, const std::byte *slot) {
			peal_sge sge;

			std::memcpy(&sge, slot + sizeof(peal_recv_wqe), sizeof(sge));
			if (!covers(sge.lkey, sge.addr, sge.length, IBV_ACCESS_LOCAL_WRITE))
				state->broken += "a receive buffer is not registered; ";
			pair->receives.push_back({index, {sge.addr, sge.length, sge.lkey}});
		});
	if (pair->send_ring)
		pair->send_ring->take([&](std::uint32_t index, const std::byte *slot) {
			const Send send = send_of(index, slot);

			state->inline_flags = send.wr.send_flags;
			if (pair->state == IBV_QPS_RTS)
				pair->sends.push_back(send);
			else
				finish(pair, send, IBV_WC_WR_FLUSH_ERR);
		});
	/* What is posted behind a failure is flushed. */
	if (pair->state == IBV_QPS_ERR)
		break_pair(pair);
}

int kick(std::uint32_t number, int which)
{
	const Call call;
	const auto found = state->pairs.find(number);

	if (found == state->pairs.end())
		return ENOENT;
	state->posts += which == PEAL_KICK_SEND;
	if (const int error = failure(which == PEAL_KICK_SEND ? "kick" : "kick of a receive"))
		return error;
	take_wqes(found->second);
	progress();
	return 0;
}

int query_rings(pealdv_device *device)
{
	const Call call;

	*device = {&state->doorbell, kick_fd};
	return failure("pealdv_query_device");
}

int take_cq_ring(ibv_cq *cq, pealdv_cq *to)
{
	const Call call;
	auto *queue = static_cast<Queue *>(cq);

	if (const int error = failure("pealdv_take_cq"))
		return error;
	if (queue->ring)
		return EBUSY;
	queue->ring = std::make_unique<fake::CompletionHalf>(queue->cqe);
	*to = {queue->ring->ctl(), queue->ring->cqes(), queue->ring->entries()};
	return 0;
}

int take_work_ring(ibv_qp *qp, pealdv_queue *to, bool for_receives)
{
	const Call call;
	auto *pair = static_cast<Pair *>(qp);
	auto &ring = for_receives ? pair->receive_ring : pair->send_ring;
	const auto *queue = static_cast<Queue *>(for_receives ? pair->recv_cq : pair->send_cq);
	const unsigned data = std::max<unsigned>(pair->inline_bytes, 32);

	if (const int error = failure("pealdv_take_queue"))
		return error;
	if (ring || !queue->ring)
		return ring ? EBUSY : EINVAL;
	ring = std::make_unique<fake::WorkHalf>(for_receives ? pair->depth_recv : pair->depth_send,
						32 + (data + 15) / 16 * 16);
	*to = {ring->ctl(), ring->slots(), ring->entries(), ring->stride(), pair->qp_num};
	return 0;
}

Event *make_event(Id *id, rdma_cm_event_type type, int status = 0)
{
	auto *event = new Event;

	static_cast<rdma_cm_event &>(*event) = {};
	event->id = id;
	event->event = type;
	event->status = status;
	event->param.conn.initiator_depth = 4;
	event->param.conn.responder_resources = 4;
	return event;
}

void send_event(Events *to, Event *event)
{
	if (!event->data.empty()) {
		event->param.conn.private_data = event->data.data();
		event->param.conn.private_data_len = event->data.size();
	}
	to->queue.push_back(event);
	notify(to->fd);
}

void send_event(Id *id, rdma_cm_event_type type, int status = 0)
{
	send_event(static_cast<Events *>(id->channel), make_event(id, type, status));
}

/* The connection manager pads what a program sends. */
std::vector<std::uint8_t> padded(const rdma_conn_param *param, std::size_t length)
{
	const auto *bytes = static_cast<const std::uint8_t *>(param->private_data);
	std::vector<std::uint8_t> data(length);

	std::copy(bytes, bytes + param->private_data_len, data.begin());
	return data;
}

void part(Id *id)
{
	Id *peer = std::exchange(id->peer, nullptr);

	if (!peer)
		return;
	peer->peer = nullptr;
	if (peer->channel)
		send_event(peer,
			   peer->connected ? RDMA_CM_EVENT_DISCONNECTED : RDMA_CM_EVENT_REJECTED);
}

} // namespace

namespace fake {

void reset()
{
	const Call call;

	delete state;
	state = new State;
	fake_provider_does = {post_send, query_rings, take_cq_ring, take_work_ring};
	for (int i = 0; i < 2; ++i) {
		ibv_device &device = state->devices[i];

		std::snprintf(device.name, sizeof(device.name), "fake%d", i);
		state->managers[i].device = &device;
		state->addresses[i] = {gid_of("fe80::1"), gid_of("fd00::1"), gid_of(here)};
	}
}

void fail_next(const std::string &function, int error)
{
	const Call call;

	state->failures[function] = error;
}

std::string alive()
{
	const Call call;
	std::string all;

	for (const auto &[kind, count] : state->alive)
		if (count)
			all += kind + " " + std::to_string(count) + " ";
	return all;
}

std::string broken_rules()
{
	const Call call;

	return state->broken;
}

bool has_rings()
{
	const char *value = std::getenv("FAKE_RINGS");

	return state->gives_rings || (value && !std::strcmp(value, "1"));
}

void give_rings()
{
	const Call call;

	state->gives_rings = true;
}

unsigned posts()
{
	const Call call;

	return state->posts;
}

ibv_qp_attr last_route()
{
	const Call call;

	return state->route;
}

int last_inline_flags()
{
	const Call call;

	return state->inline_flags;
}

void hold()
{
	const Call call;

	state->may_move = 0;
}

void resume()
{
	resume(UINT32_MAX);
}

void resume(unsigned count)
{
	const Call call;

	state->may_move = count;
	progress();
}

void remove_devices()
{
	const Call call;

	peal::store_release(state->doorbell.engine, __u32{PEAL_ENGINE_GONE});
	for (const auto &[number, pair] : state->pairs) {
		take_wqes(pair);
		if (pair->state != IBV_QPS_ERR)
			break_pair(pair);
	}
	for (Id *id : state->ids)
		send_event(id, RDMA_CM_EVENT_DEVICE_REMOVAL);
}

void fail_next_request(ibv_wc_status status, std::uint32_t vendor_error)
{
	const Call call;

	state->failing = status;
	state->vendor_error = vendor_error;
}

void set_vendor(std::uint32_t id)
{
	const Call call;

	state->vendor = id;
}

void set_atomics(bool has)
{
	const Call call;

	state->atomics = has;
}

void set_windows(bool has)
{
	const Call call;

	state->has_windows = has;
}

void say_inv_as_rxe()
{
	const Call call;

	state->says_inv_as_rxe = true;
}

void set_xrc(bool has)
{
	const Call call;

	state->has_xrc = has;
}

void set_ports_up(bool up)
{
	const Call call;

	state->up = up;
}

void greet_with(std::vector<std::uint8_t> private_data)
{
	const Call call;

	state->greeting = std::move(private_data);
}

void lose_established()
{
	const Call call;

	state->loses_established = true;
}

void join_with(int event)
{
	const Call call;

	state->joining = event;
}

void send_from_six()
{
	const Call call;

	state->six = true;
}

void set_addresses(int device, const std::vector<std::string> &texts)
{
	const Call call;

	state->addresses[device].clear();
	for (const std::string &text : texts)
		state->addresses[device].push_back(gid_of(text));
}

void set_mtu(int device, ibv_mtu mtu)
{
	const Call call;

	state->mtu[device] = mtu;
}

void cut(const std::string &address)
{
	const Call call;

	state->cut.insert(address);
}

std::size_t shared_receives_posted()
{
	const Call call;
	std::size_t count = 0;
	std::set<ibv_srq *> seen;

	for (const auto &[number, pair] : state->pairs)
		if (pair->srq && seen.insert(pair->srq).second)
			count += pair->queue().size();
	return count;
}

void hide_last_receives()
{
	const Call call;

	state->tells_last_receive = false;
}

void lose_datagrams(unsigned percent)
{
	const Call call;

	state->loss = percent;
}

void lose_next_datagrams(unsigned count)
{
	const Call call;

	state->lost_next = count;
}

void before_next_notify(std::function<void()> action)
{
	const Call call;

	state->before_notify = std::move(action);
}

void change_datagrams(std::size_t byte)
{
	const Call call;

	state->changed_byte = byte;
}

void end_groups()
{
	const Call call;

	for (Id *id : state->ids)
		if (id->is_member)
			send_event(id, RDMA_CM_EVENT_MULTICAST_ERROR);
}

void answer_with(std::vector<std::uint8_t> private_data)
{
	const Call call;

	state->answer = std::move(private_data);
}

void answer_slow_name()
{
	std::unique_lock guard(slow_lock);

	slow_changed.wait(guard, [] { return slow_callers > 0; });
	slow_answered = true;
	slow_changed.notify_all();
	slow_changed.wait(guard, [] { return slow_callers == 0; });
	slow_answered = false;
}

void remove_list()
{
	const Call call;

	state->devices_there = 0;
}

} // namespace fake

extern "C" {

/* ---- the kick file of peal ---- */

off_t lseek(int fd, off_t offset, int whence) noexcept
{
	if (fd != kick_fd)
		return syscall(SYS_lseek, fd, offset, whence);
	const int error = kick(static_cast<std::uint32_t>(offset), whence);

	errno = error ? error : errno;
	return error ? -1 : 0;
}

/* ---- libibverbs ---- */

ibv_device **ibv_get_device_list(int *count)
{
	const Call call;

	if (failure("ibv_get_device_list"))
		return nullptr;
	auto **list = made(new ibv_device *[3], "device list");
	*count = state->devices_there;
	list[0] = &state->devices[0];
	list[1] = &state->devices[1];
	list[*count] = nullptr;
	return list;
}

void ibv_free_device_list(ibv_device **list)
{
	const Call call;

	ended("device list");
	delete[] list;
}

const char *ibv_get_device_name(ibv_device *device)
{
	return device->name;
}

ibv_context *ibv_open_device(ibv_device *device)
{
	const Call call;

	if (failure("ibv_open_device"))
		return nullptr;
	/* XRC is in the newer part of a context. */
	auto *whole = made(new verbs_context{}, "context");
	ibv_context *const context = &whole->context;
	whole->sz = sizeof(*whole);
	whole->open_xrcd = open_xrcd;
	whole->close_xrcd = close_xrcd;
	whole->create_srq_ex = create_srq_ex;
	whole->get_srq_num = get_srq_num;
	whole->create_qp_ex = create_qp_ex;
	context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	context->device = device;
	context->async_fd = eventfd(0, EFD_SEMAPHORE);
	context->ops.post_send = fake::has_rings() ? fake_provider_post_send : post_send;
	context->ops.post_recv = post_recv;
	context->ops.post_srq_recv = post_srq_recv;
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify_cq;
	context->ops.alloc_mw = alloc_mw;
	context->ops.dealloc_mw = dealloc_mw;
	return context;
}

int ibv_close_device(ibv_context *context)
{
	const Call call;

	for (const char *kind : {"pd", "cq", "qp", "mr", "mw"})
		if (state->alive[kind] && state->alive["context"] == 1)
			state->broken +=
				std::string("a context was closed before a ") + kind + "; ";
	close(context->async_fd);
	ended("context");
	delete verbs_get_ctx(context);
	return 0;
}

int ibv_query_device(ibv_context *, ibv_device_attr *attr)
{
	const Call call;

	*attr = {};
	attr->vendor_id = state->vendor;
	attr->max_qp_wr = 1024;
	attr->max_cqe = 1024;
	attr->max_srq_wr = 1024;
	attr->max_qp_rd_atom = 8;
	attr->max_qp_init_rd_atom = 8;
	attr->atomic_cap = state->atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
	attr->phys_port_cnt = 1;
	attr->device_cap_flags = (state->has_windows ? IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0) |
				 (state->has_xrc ? IBV_DEVICE_XRC : 0);
	return failure("ibv_query_device");
}

int ibv_query_gid(ibv_context *, std::uint8_t port, int index, ibv_gid *gid)
{
	const Call call;

	*gid = {};
	gid->raw[14] = port;
	gid->raw[15] = static_cast<std::uint8_t>(index);
	/* The table of the port: a link-local address, one of IPv6, and one of IPv4. */
	if (!index)
		gid->raw[0] = 0xfe, gid->raw[1] = 0x80;
	if (index == 1)
		gid->raw[0] = 0xfd;
	if (index == 2) {
		gid->raw[10] = gid->raw[11] = 0xff;
		inet_pton(AF_INET, fake::here, gid->raw + 12);
	}
	return failure("ibv_query_gid") ? -1 : 0;
}

ssize_t _ibv_query_gid_table(ibv_context *context, ibv_gid_entry *entries, std::size_t most,
			     std::uint32_t, std::size_t)
{
	const Call call;
	ssize_t count = 0;

	if (const int error = failure("ibv_query_gid_table"))
		return -error;
	/* Every address has an entry for RoCEv1, too. */
	for (const ibv_gid &gid : state->addresses[context->device - state->devices])
		for (const ibv_gid_type type : {IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2}) {
			if (static_cast<std::size_t>(count) == most)
				return count;
			entries[count] = {.gid = gid,
					  .gid_index = static_cast<std::uint32_t>(count),
					  .port_num = 1,
					  .gid_type = static_cast<std::uint32_t>(type),
					  .ndev_ifindex = 0};
			++count;
		}
	return count;
}

int ibv_query_port(ibv_context *context, std::uint8_t, _compat_ibv_port_attr *to)
{
	const Call call;
	auto *attr = reinterpret_cast<ibv_port_attr *>(to);

	attr->state = state->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	attr->max_msg_sz = 1 << 20;
	attr->active_mtu = state->mtu[context->device - state->devices];
	attr->gid_tbl_len = 3;
	return failure("ibv_query_port");
}

ibv_pd *ibv_alloc_pd(ibv_context *context)
{
	const Call call;

	if (failure("ibv_alloc_pd"))
		return nullptr;
	auto *pd = made(new ibv_pd{}, "pd");
	pd->context = context;
	return pd;
}

int ibv_dealloc_pd(ibv_pd *pd)
{
	const Call call;

	if ((state->alive["qp"] || state->alive["mr"]) && state->alive["pd"] == 1)
		state->broken += "a pd ended before what is in it; ";
	ended("pd");
	delete pd;
	return 0;
}

ibv_mr *ibv_reg_mr_iova2(ibv_pd *pd, void *addr, std::size_t length, std::uint64_t, unsigned access)
{
	const Call call;

	if (failure("ibv_reg_mr"))
		return nullptr;
	auto *region = made(new Region, "mr");
	static_cast<ibv_mr &>(*region) = {};
	region->context = pd->context;
	region->pd = pd;
	region->addr = addr;
	region->length = length;
	region->lkey = region->rkey = state->next_key++;
	region->access = static_cast<int>(access);
	state->regions[region->lkey] = region;
	return region;
}

ibv_mr *ibv_reg_mr(ibv_pd *pd, void *addr, std::size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, 0, static_cast<unsigned>(access));
}

int ibv_dereg_mr(ibv_mr *mr)
{
	const Call call;
	auto *region = static_cast<Region *>(mr);

	/* The sanitizer complains if the memory went before its registration. */
	*static_cast<volatile char *>(region->addr);
	for (const Window *window : state->windows)
		if (window->region == region)
			state->broken += "memory with a window ended; ";
	state->regions.erase(region->lkey);
	ended("mr");
	delete region;
	return 0;
}

ibv_comp_channel *ibv_create_comp_channel(ibv_context *context)
{
	const Call call;

	if (failure("ibv_create_comp_channel"))
		return nullptr;
	auto *channel = made(new Channel, "completion channel");
	static_cast<ibv_comp_channel &>(*channel) = {};
	channel->context = context;
	channel->fd = eventfd(0, EFD_SEMAPHORE);
	return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel *channel)
{
	const Call call;

	if (state->alive["cq"] && state->alive["completion channel"] == 1)
		state->broken += "a completion channel ended before its queues; ";
	ended("completion channel");
	close(channel->fd);
	delete static_cast<Channel *>(channel);
	return 0;
}

ibv_cq *ibv_create_cq(ibv_context *context, int cqe, void *, ibv_comp_channel *channel, int)
{
	const Call call;

	if (failure("ibv_create_cq"))
		return nullptr;
	auto *queue = made(new Queue, "cq");
	static_cast<ibv_cq &>(*queue) = {};
	queue->context = context;
	queue->channel = channel;
	queue->cqe = cqe;
	return queue;
}

int ibv_destroy_cq(ibv_cq *cq)
{
	const Call call;
	auto *queue = static_cast<Queue *>(cq);

	if (queue->unacknowledged)
		state->broken += "a queue with unacknowledged events would never end; ";
	for (const auto &[number, inbox] : state->inboxes)
		if (inbox->cq == cq)
			state->broken += "a queue ended before its receives; ";
	for (const auto &[number, pair] : state->pairs)
		if (pair->send_cq == cq || pair->recv_cq == cq)
			state->broken += "a queue ended before its queue pair; ";
	std::erase(static_cast<Channel *>(queue->channel)->events, queue);
	ended("cq");
	delete queue;
	return 0;
}

int ibv_get_cq_event(ibv_comp_channel *from, ibv_cq **cq, void **context)
{
	const Call call;
	auto *channel = static_cast<Channel *>(from);

	if (failure("ibv_get_cq_event") || !take(channel->fd))
		return -1;
	/* The event of a queue that has ended is gone. */
	if (channel->events.empty()) {
		errno = EAGAIN;
		return -1;
	}
	Queue *queue = channel->events.front();
	channel->events.pop_front();
	++queue->unacknowledged;
	*cq = queue;
	*context = nullptr;
	return 0;
}

void ibv_ack_cq_events(ibv_cq *cq, unsigned count)
{
	const Call call;

	static_cast<Queue *>(cq)->unacknowledged -= count;
}

ibv_qp *ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *want)
{
	const Call call;

	if (failure("ibv_create_qp"))
		return nullptr;
	auto *pair = made(new Pair, "qp");
	static_cast<ibv_qp &>(*pair) = {};
	pair->context = pd->context;
	pair->pd = pd;
	pair->qp_type = want->qp_type;
	pair->qp_context = want->qp_context;
	pair->srq = want->srq;
	pair->send_cq = want->send_cq;
	pair->recv_cq = want->recv_cq;
	pair->qp_num = state->next_qpn++;
	pair->state = IBV_QPS_RESET;
	pair->depth_send = want->cap.max_send_wr;
	pair->depth_recv = want->cap.max_recv_wr;
	pair->inline_bytes = want->cap.max_inline_data;
	state->pairs[pair->qp_num] = pair;
	return pair;
}

int ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask)
{
	constexpr int reliable_only = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
				      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_MAX_QP_RD_ATOMIC;
	const Call call;
	auto *pair = static_cast<Pair *>(qp);
	const char *names[] = {"", "to INIT", "to RTR", "to RTS"};

	if (attr->qp_state <= IBV_QPS_RTS)
		if (const int error = failure(names[attr->qp_state]))
			return error;
	constexpr int target_only = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	constexpr int initiator_only =
		IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	const int not_his = pair->qp_type == IBV_QPT_RC		? 0
			    : pair->qp_type == IBV_QPT_XRC_SEND ? target_only
			    : pair->qp_type == IBV_QPT_XRC_RECV ? initiator_only
								: reliable_only;
	if (mask & not_his)
		return EINVAL;
	if (attr->qp_state == IBV_QPS_ERR) {
		break_pair(pair);
		return 0;
	}
	if (attr->qp_state == IBV_QPS_INIT)
		pair->qkey = attr->qkey;
	if (attr->qp_state == IBV_QPS_RTR) {
		/* A receive that is posted later may come after the peer's message. */
		if (pair->queue().empty() && !pair->srq && pair->qp_type != IBV_QPT_XRC_SEND &&
		    pair->qp_type != IBV_QPT_XRC_RECV)
			state->broken += "the queue pair is ready before its receives; ";
		pair->route = *attr;
		if (pair->qp_type != IBV_QPT_UD)
			state->route = *attr;
	}
	pair->state = attr->qp_state;
	progress();
	return 0;
}

bool has_unacknowledged_events(const Pair *pair)
{
	const Call call;

	std::erase(state->last_receives, pair);
	return pair->unacknowledged;
}

int ibv_destroy_qp(ibv_qp *qp)
{
	auto *pair = static_cast<Pair *>(qp);

	while (has_unacknowledged_events(pair))
		std::this_thread::yield();
	const Call call;
	if (!pair->groups.empty())
		state->broken += "a member of a group was destroyed; ";
	for (const Window *window : state->windows)
		if (window->region && window->qpn == pair->qp_num)
			state->broken += "a queue pair with a window was destroyed; ";
	state->pairs.erase(pair->qp_num);
	ended("qp");
	delete pair;
	return 0;
}

ibv_srq *ibv_create_srq(ibv_pd *pd, ibv_srq_init_attr *want)
{
	const Call call;

	if (failure("ibv_create_srq"))
		return nullptr;
	auto *queue = made(new SharedQueue, "srq");
	static_cast<ibv_srq &>(*queue) = {};
	queue->context = pd->context;
	queue->pd = pd;
	queue->depth = want->attr.max_wr;
	return queue;
}

int ibv_destroy_srq(ibv_srq *srq)
{
	const Call call;

	for (const auto &[number, pair] : state->pairs)
		if (pair->srq == srq)
			state->broken += "a shared receive queue ended before its queue pair; ";
	state->inboxes.erase(static_cast<SharedQueue *>(srq)->number);
	ended("srq");
	delete static_cast<SharedQueue *>(srq);
	return 0;
}

int ibv_get_async_event(ibv_context *context, ibv_async_event *event)
{
	const Call call;

	if (!take(context->async_fd))
		return -1;
	/* The event of a queue pair that has ended is gone. */
	if (state->last_receives.empty()) {
		errno = EAGAIN;
		return -1;
	}
	Pair *pair = state->last_receives.front();
	state->last_receives.pop_front();
	++pair->unacknowledged;
	event->event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
	event->element.qp = pair;
	return 0;
}

void ibv_ack_async_event(ibv_async_event *event)
{
	const Call call;

	--static_cast<Pair *>(event->element.qp)->unacknowledged;
}

ibv_ah *ibv_create_ah(ibv_pd *pd, ibv_ah_attr *attr)
{
	const Call call;

	if (failure("ibv_create_ah"))
		return nullptr;
	auto *ah = made(new Address, "ah");
	static_cast<ibv_ah &>(*ah) = {};
	ah->pd = pd;
	ah->attr = *attr;
	return ah;
}

int ibv_destroy_ah(ibv_ah *ah)
{
	const Call call;

	ended("ah");
	delete static_cast<Address *>(ah);
	return 0;
}

int ibv_attach_mcast(ibv_qp *qp, const ibv_gid *gid, std::uint16_t)
{
	const Call call;

	if (const int error = failure("ibv_attach_mcast"))
		return error;
	static_cast<Pair *>(qp)->groups.push_back(*gid);
	return 0;
}

int ibv_detach_mcast(ibv_qp *qp, const ibv_gid *, std::uint16_t)
{
	const Call call;

	static_cast<Pair *>(qp)->groups.pop_back();
	return 0;
}

const char *ibv_wc_status_str(ibv_wc_status)
{
	return "a status without words";
}

/* ---- librdmacm ---- */

rdma_event_channel *rdma_create_event_channel(void)
{
	const Call call;

	if (failure("rdma_create_event_channel"))
		return nullptr;
	auto *channel = made(new Events, "event channel");
	channel->fd = eventfd(0, EFD_SEMAPHORE);
	return channel;
}

void rdma_destroy_event_channel(rdma_event_channel *of)
{
	const Call call;
	auto *channel = static_cast<Events *>(of);

	for (Id *id : state->ids)
		if (id->channel == of)
			state->broken += "an event channel ended before its id; ";
	for (Event *event : channel->queue)
		delete event;
	close(channel->fd);
	ended("event channel");
	delete channel;
}

int rdma_create_id(rdma_event_channel *channel, rdma_cm_id **id, void *, rdma_port_space)
{
	const Call call;

	if (failure("rdma_create_id"))
		return -1;
	auto *one = made(new Id, "id");
	static_cast<rdma_cm_id &>(*one) = {};
	one->channel = channel;
	state->ids.insert(one);
	*id = one;
	return 0;
}

int rdma_destroy_id(rdma_cm_id *of)
{
	const Call call;
	auto *id = static_cast<Id *>(of);
	auto &queue = static_cast<Events *>(id->channel)->queue;

	part(id);
	if (id->is_member)
		state->broken += "a group was not left; ";
	/* The peers whose connection requests wait are refused. */
	for (auto at = queue.begin(); at != queue.end();) {
		Event *event = *at;

		if (event->id != id && event->listen_id != id) {
			++at;
			continue;
		}
		if (event->listen_id == id) {
			auto *waiting = static_cast<Id *>(event->id);
			Id *peer = std::exchange(waiting->peer, nullptr);

			if (peer) {
				peer->peer = nullptr;
				send_event(peer, RDMA_CM_EVENT_REJECTED, 8);
			}
			state->ids.erase(waiting);
			ended("id");
			delete waiting;
		}
		delete event;
		at = queue.erase(at);
	}
	state->ids.erase(id);
	ended("id");
	delete id;
	return 0;
}

int rdma_resolve_addr(rdma_cm_id *of, sockaddr *, sockaddr *to, int)
{
	const Call call;
	auto *id = static_cast<Id *>(of);
	const auto *four = reinterpret_cast<const sockaddr_in *>(to);
	const auto is = [&](const char *text) { return four->sin_addr.s_addr == inet_addr(text); };

	if (failure("rdma_resolve_addr"))
		return -1;
	id->address = four->sin_addr.s_addr;
	id->port = ntohs(four->sin_port);
	if (is(fake::silent))
		return 0;
	if (is(fake::unreachable)) {
		send_event(id, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
		return 0;
	}
	if (is(fake::absent) || (is(fake::sleepy) && !id->asked)) {
		id->asked = true;
		send_event(id, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
		return 0;
	}
	id->verbs = &state->managers[is(fake::elsewhere)];
	id->port_num = 1;
	send_event(id, RDMA_CM_EVENT_ADDR_RESOLVED);
	return 0;
}

int rdma_resolve_route(rdma_cm_id *of, int)
{
	const Call call;

	if (failure("rdma_resolve_route"))
		send_event(static_cast<Id *>(of), RDMA_CM_EVENT_ROUTE_ERROR, -ENETUNREACH);
	else
		send_event(static_cast<Id *>(of), RDMA_CM_EVENT_ROUTE_RESOLVED);
	return 0;
}

int rdma_bind_addr(rdma_cm_id *of, sockaddr *to)
{
	const Call call;
	auto *id = static_cast<Id *>(of);

	if (failure("rdma_bind_addr"))
		return -1;
	id->port = ntohs(to->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(to)->sin6_port
						   : reinterpret_cast<sockaddr_in *>(to)->sin_port);
	if (!id->port)
		id->port = state->next_port++;
	if (to->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(to)->sin6_addr.s6_addr[0]
				      : reinterpret_cast<sockaddr_in *>(to)->sin_addr.s_addr) {
		id->verbs = &state->managers[0];
		id->port_num = 1;
	}
	for (const Id *other : state->ids)
		if (other != id && other->listens && other->port == id->port) {
			errno = EADDRINUSE;
			return -1;
		}
	return 0;
}

int rdma_join_multicast(rdma_cm_id *of, sockaddr *group, void *)
{
	const Call call;

	if (failure("rdma_join_multicast"))
		return -1;
	auto *id = static_cast<Id *>(of);
	id->is_member = true;
	if (state->joining == fake::never)
		return 0;
	Event *event = make_event(id, static_cast<rdma_cm_event_type>(state->joining));
	rdma_ud_param &to = event->param.ud;
	to = {};
	to.ah_attr.is_global = 1;
	to.ah_attr.port_num = 1;
	to.qp_num = 0xffffff;
	to.qkey = 0x1234567;
	if (group->sa_family == AF_INET6)
		std::memcpy(&to.ah_attr.grh.dgid,
			    &reinterpret_cast<sockaddr_in6 *>(group)->sin6_addr, 16);
	else
		std::memcpy(to.ah_attr.grh.dgid.raw + 12,
			    &reinterpret_cast<sockaddr_in *>(group)->sin_addr, 4);
	send_event(static_cast<Events *>(id->channel), event);
	return 0;
}

int rdma_leave_multicast(rdma_cm_id *of, sockaddr *)
{
	const Call call;

	if (!std::exchange(static_cast<Id *>(of)->is_member, false))
		state->broken += "a group was left that was not joined; ";
	return 0;
}

int rdma_listen(rdma_cm_id *of, int)
{
	const Call call;

	if (failure("rdma_listen"))
		return -1;
	static_cast<Id *>(of)->listens = true;
	return 0;
}

__be16 rdma_get_src_port(rdma_cm_id *of)
{
	const Call call;

	return htons(static_cast<Id *>(of)->port);
}

int rdma_connect(rdma_cm_id *of, rdma_conn_param *param)
{
	const Call call;
	auto *id = static_cast<Id *>(of);

	if (failure("rdma_connect"))
		return -1;
	for (Id *listener : state->ids) {
		if (!listener->listens || listener->port != id->port)
			continue;
		auto *request = made(new Id, "id");

		static_cast<rdma_cm_id &>(*request) = {};
		request->channel = listener->channel;
		request->verbs = id->verbs;
		request->port_num = id->port_num;
		request->peer = id;
		id->peer = request;
		id->qpn = param->qp_num;
		state->ids.insert(request);
		Event *event = make_event(request, RDMA_CM_EVENT_CONNECT_REQUEST);
		event->listen_id = listener;
		event->data = state->greeting.empty() ? padded(param, 56)
						      : std::exchange(state->greeting, {});
		send_event(static_cast<Events *>(listener->channel), event);
		return 0;
	}
	send_event(id, RDMA_CM_EVENT_REJECTED, 8);
	return 0;
}

int rdma_accept(rdma_cm_id *of, rdma_conn_param *param)
{
	const Call call;
	auto *id = static_cast<Id *>(of);

	if (failure("rdma_accept"))
		return -1;
	id->qpn = param->qp_num;
	if (!id->peer)
		return 0;
	Event *event = make_event(id->peer, RDMA_CM_EVENT_CONNECT_RESPONSE);
	event->data = state->answer.empty() ? padded(param, 196) : state->answer;
	send_event(static_cast<Events *>(id->peer->channel), event);
	return 0;
}

int rdma_establish(rdma_cm_id *of)
{
	const Call call;
	auto *id = static_cast<Id *>(of);

	if (failure("rdma_establish"))
		return -1;
	if (!id->peer)
		return 0;
	id->connected = id->peer->connected = true;
	if (!std::exchange(state->loses_established, false))
		send_event(id->peer, RDMA_CM_EVENT_ESTABLISHED);
	return 0;
}

int rdma_reject(rdma_cm_id *of, const void *, std::uint8_t)
{
	const Call call;
	auto *id = static_cast<Id *>(of);
	Id *peer = std::exchange(id->peer, nullptr);

	if (peer) {
		peer->peer = nullptr;
		send_event(peer, RDMA_CM_EVENT_REJECTED, 28);
	}
	return 0;
}

int rdma_disconnect(rdma_cm_id *of)
{
	const Call call;

	part(static_cast<Id *>(of));
	return 0;
}

int rdma_migrate_id(rdma_cm_id *id, rdma_event_channel *channel)
{
	const Call call;

	if (failure("rdma_migrate_id"))
		return -1;
	auto &from = static_cast<Events *>(id->channel)->queue;
	auto &to = *static_cast<Events *>(channel);

	for (auto at = from.begin(); at != from.end();)
		if ((*at)->id == id) {
			to.queue.push_back(*at);
			notify(to.fd);
			at = from.erase(at);
		} else {
			++at;
		}
	id->channel = channel;
	return 0;
}

int rdma_get_cm_event(rdma_event_channel *from, rdma_cm_event **event)
{
	const Call call;
	auto *channel = static_cast<Events *>(from);

	/* librdmacm allocates, also if there is no event. */
	fake::count_allocation();
	do {
		if (!take(channel->fd))
			return -1;
	} while (channel->queue.empty());
	*event = channel->queue.front();
	channel->queue.pop_front();
	return 0;
}

int rdma_ack_cm_event(rdma_cm_event *event)
{
	const Call call;

	delete static_cast<Event *>(event);
	return 0;
}

const char *rdma_event_str(rdma_cm_event_type)
{
	return "an event without words";
}

int rdma_init_qp_attr(rdma_cm_id *of, ibv_qp_attr *attr, int *mask)
{
	const Call call;
	auto *id = static_cast<Id *>(of);
	const ibv_qp_state wanted = attr->qp_state;

	if (failure("rdma_init_qp_attr"))
		return -1;
	*mask = IBV_QP_STATE;
	attr->port_num = id->port_num;
	if (wanted == IBV_QPS_RTR) {
		attr->path_mtu = IBV_MTU_2048;
		attr->ah_attr.is_global = 1;
		attr->ah_attr.port_num = id->port_num;
		attr->ah_attr.grh.sgid_index = 5;
		attr->ah_attr.grh.dgid.raw[15] = 9;
		attr->dest_qp_num = id->peer ? id->peer->qpn : 0;
		attr->max_dest_rd_atomic = 16;
		*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	} else if (wanted == IBV_QPS_RTS) {
		attr->max_rd_atomic = 16;
		*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	return 0;
}

/* ---- the network of the host ---- */

/* Whether a route leads there is all that libpeal asks. */
int connect(int, const sockaddr *to, socklen_t)
{
	const Call call;
	const void *address =
		to->sa_family == AF_INET6
			? static_cast<const void *>(
				  &reinterpret_cast<const sockaddr_in6 *>(to)->sin6_addr)
			: &reinterpret_cast<const sockaddr_in *>(to)->sin_addr;

	if (!state->cut.contains(text_of(address, to->sa_family)))
		return 0;
	errno = ENETUNREACH;
	return -1;
}

int getaddrinfo(const char *host, const char *port, const addrinfo *hints, addrinfo **list)
{
	in_addr address{};
	in6_addr six{};

	if (inet_pton(AF_INET6, host, &six) == 1) {
		auto *one = new addrinfo{};
		auto *to = new sockaddr_in6{};

		to->sin6_family = AF_INET6;
		to->sin6_addr = six;
		one->ai_family = AF_INET6;
		one->ai_addr = reinterpret_cast<sockaddr *>(to);
		one->ai_addrlen = sizeof(*to);
		*list = one;
		return 0;
	}
	if (inet_pton(AF_INET, host, &address) != 1) {
		if (hints->ai_flags & AI_NUMERICHOST)
			return EAI_NONAME;
		if (!std::strcmp(host, fake::slow_name))
			return answer_slowly();
		if (std::strcmp(host, fake::known_name))
			return EAI_NONAME;
		inet_pton(AF_INET, fake::here, &address);
	}
	auto *one = new addrinfo{};
	auto *to = new sockaddr_in{};

	to->sin_family = AF_INET;
	to->sin_addr = address;
	to->sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
	one->ai_addr = reinterpret_cast<sockaddr *>(to);
	one->ai_addrlen = sizeof(*to);
	*list = one;
	return 0;
}

void freeaddrinfo(addrinfo *list)
{
	if (list->ai_family == AF_INET6)
		delete reinterpret_cast<sockaddr_in6 *>(list->ai_addr);
	else
		delete reinterpret_cast<sockaddr_in *>(list->ai_addr);
	delete list;
}

} /* extern "C" */
