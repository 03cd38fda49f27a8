// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * libibverbs for tests: objects that clean up after themselves, connected queue
 * pairs, completions and events with a deadline.
 *
 * Holds: waits that never hang and fail with what they saw so far; names for
 * statuses, states, events and reasons, so that a failed check explains itself.
 * Does not hold: any check of the device. Those are in the tests.
 */
#pragma once

#include "check.hpp"

#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/peal-abi.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

namespace peal_test {

/* ---------------------------------------------------------------- names */

inline std::string status_name(int status)
{
	return ibv_wc_status_str(static_cast<ibv_wc_status>(status));
}

inline std::string event_name(int type)
{
	return ibv_event_type_str(static_cast<ibv_event_type>(type));
}

inline std::string state_name(int state)
{
	static const std::array names{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

	return state >= 0 && state < static_cast<int>(names.size()) ? names[state]
								    : std::to_string(state);
}

inline std::string reason_name(std::uint32_t reason)
{
	switch (reason) {
#define PEAL_TEST_CASE_(name, number, text)                                                        \
	case number:                                                                               \
		return #name;
		PEAL_REASONS(PEAL_TEST_CASE_)
#undef PEAL_TEST_CASE_
	}
	return "unknown reason " + std::to_string(reason);
}

inline std::string errno_name(int error)
{
	const char *name = error ? strerrorname_np(error) : "0";
	return name ? name : std::to_string(error);
}

[[noreturn]] inline void throw_errno(const std::string &what, int error = errno)
{
	throw std::system_error(error, std::generic_category(), what);
}

/* Throws unless error is 0. Verbs return errno. */
inline void must(int error, const std::string &what)
{
	if (error)
		throw_errno(what, error);
}

/* -------------------------------------------------------------- handles */

/* Set by programs whose device is removed, because its objects may be gone already. */
inline bool &destroy_errors_tolerated()
{
	static bool value = false;
	return value;
}

inline void tolerate_destroy_errors()
{
	destroy_errors_tolerated() = true;
}

/* An object of the library. Destroying it must work. */
template <class T, int (*destroy)(T *)>
class Handle {
public:
	Handle() = default;
	Handle(T *object, const char *what) : object_(object)
	{
		if (!object)
			throw_errno(what);
	}
	Handle(Handle &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
	Handle &operator=(Handle &&other) noexcept
	{
		std::swap(object_, other.object_);
		return *this;
	}
	~Handle() { reset(); }

	void reset() noexcept
	{
		const int error = object_ ? destroy(std::exchange(object_, nullptr)) : 0;

		if (error && !destroy_errors_tolerated())
			note(error);
	}
	T *release() noexcept { return std::exchange(object_, nullptr); }
	T *get() const noexcept { return object_; }
	T *operator->() const noexcept { return object_; }
	operator T *() const noexcept { return object_; }

private:
	static void note(int error) noexcept
	{
		session().late_failures++;
		std::fprintf(stderr, "FAILED: expected destroying an object to work, got %s\n",
			     std::strerror(error));
	}
	T *object_ = nullptr;
};

using Context = Handle<ibv_context, ibv_close_device>;
using Pd = Handle<ibv_pd, ibv_dealloc_pd>;
using Mr = Handle<ibv_mr, ibv_dereg_mr>;
using Mw = Handle<ibv_mw, ibv_dealloc_mw>;
using Channel = Handle<ibv_comp_channel, ibv_destroy_comp_channel>;
using Cq = Handle<ibv_cq, ibv_destroy_cq>;
using Qp = Handle<ibv_qp, ibv_destroy_qp>;
using Ah = Handle<ibv_ah, ibv_destroy_ah>;
using Srq = Handle<ibv_srq, ibv_destroy_srq>;

/* --------------------------------------------------------------- device */

inline ibv_context *open_device(const std::string &name)
{
	int count = 0;
	std::unique_ptr<ibv_device *, decltype(&ibv_free_device_list)> list(
		ibv_get_device_list(&count), ibv_free_device_list);

	for (int i = 0; i < count; i++)
		if (name == ibv_get_device_name(list.get()[i]))
			return ibv_open_device(list.get()[i]);
	errno = ENODEV;
	return nullptr;
}

/* Events of the device or its port have no object. */
constexpr const void *port_object = nullptr;

inline bool is_port_event(ibv_event_type type)
{
	return type >= IBV_EVENT_DEVICE_FATAL && type <= IBV_EVENT_SM_CHANGE;
}

struct Event {
	ibv_event_type type;
	void *object;
};

struct NotReady : std::runtime_error {
	using std::runtime_error::runtime_error;
};

/* An open device with port 1, its IPv4 RoCEv2 address and its asynchronous events. */
class Device {
public:
	explicit Device(const std::string &name = device_name())
		: context_(open_device(name), ("open " + name).c_str())
	{
		wait_ready();
	}
	ibv_context *context() const { return context_; }
	operator ibv_context *() const { return context_; }
	int gid_index() const { return gid_index_; }
	const ibv_gid &gid() const { return gid_; }

	ibv_device_attr attributes() const
	{
		ibv_device_attr attr{};
		must(ibv_query_device(context_, &attr), "query_device");
		return attr;
	}
	ibv_port_attr port() const
	{
		ibv_port_attr attr{};
		must(ibv_query_port(context_, 1, &attr), "query_port");
		return attr;
	}

	/* Return: true when the event came in time. Other events are kept. */
	bool wait_event(ibv_event_type type, const void *object, Duration limit = patience)
	{
		const auto deadline = Clock::now() + limit;

		while (!count_events(type, object)) {
			if (!collect_event(deadline - Clock::now()))
				return count_events(type, object) > 0;
		}
		return true;
	}
	std::size_t count_events(ibv_event_type type, const void *object)
	{
		while (collect_event(0s))
			;
		return std::count_if(events_.begin(), events_.end(), [&](const Event &event) {
			return event.type == type && event.object == object;
		});
	}
	std::size_t count_events(const void *object)
	{
		while (collect_event(0s))
			;
		return std::count_if(events_.begin(), events_.end(),
				     [&](const Event &event) { return event.object == object; });
	}
	void forget_events() { events_.clear(); }

private:
	void wait_ready();
	bool find_gid();
	bool collect_event(Duration limit);

	Context context_;
	int gid_index_ = -1;
	ibv_gid gid_{};
	std::vector<Event> events_;
};

inline bool readable(int fd, Duration limit)
{
	pollfd waiter{fd, POLLIN, 0};
	const auto ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();

	return poll(&waiter, 1, static_cast<int>(std::max<long>(ms, 0))) > 0;
}

/*
 * Repeats until the condition holds. A long wait sleeps in between, so that others get the
 * processor of an emulated machine. Return: false when it did not hold in time.
 */
template <class Condition>
bool eventually(Condition condition, Duration limit = patience)
{
	const auto begin = Clock::now();

	while (!condition()) {
		const auto waited = Clock::now() - begin;

		if (waited > limit)
			return condition();
		if (waited < 5ms)
			sched_yield();
		else
			std::this_thread::sleep_for(500us);
	}
	return true;
}

inline bool Device::find_gid()
{
	static const std::uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	for (std::uint32_t i = 0; i < 64; i++) {
		ibv_gid_entry entry{};
		if (ibv_query_gid_ex(context_, 1, i, &entry, 0))
			continue;
		if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    std::memcmp(entry.gid.raw, mapped, 12))
			continue;
		gid_index_ = static_cast<int>(i);
		gid_ = entry.gid;
		return true;
	}
	return false;
}

inline void Device::wait_ready()
{
	const bool active = eventually([&] { return port().state == IBV_PORT_ACTIVE; });

	if (!active || !eventually([&] { return find_gid(); }))
		throw NotReady("the port has no IPv4 RoCEv2 address or is not ACTIVE");
}

inline bool Device::collect_event(Duration limit)
{
	ibv_async_event event{};

	if (!readable(context_->async_fd, limit) || ibv_get_async_event(context_, &event))
		return false;
	const bool of_port = is_port_event(event.event_type) ||
			     event.event_type == IBV_EVENT_CLIENT_REREGISTER ||
			     event.event_type == IBV_EVENT_GID_CHANGE;
	events_.push_back({event.event_type, of_port ? nullptr : event.element.qp});
	ibv_ack_async_event(&event);
	return true;
}

/* --------------------------------------------------------------- memory */

constexpr int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

constexpr std::size_t page_bytes = 4096;

inline bool has_on_demand_paging(ibv_context *context)
{
	ibv_device_attr_ex attr{};

	must(ibv_query_device_ex(context, nullptr, &attr), "query_device_ex");
	return attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
}

/* Leaves the test case if the kernel lacks it. */
#define NEEDS_ON_DEMAND_PAGING(device)                                                             \
	if (!has_on_demand_paging(device))                                                         \
	SKIP_CASE("this kernel has no on-demand paging")

/* Anonymous memory that begins at a page. */
class Memory {
public:
	explicit Memory(std::size_t size, int flags = 0) : size_(size)
	{
		base_ = mmap(nullptr, size, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
		if (base_ == MAP_FAILED)
			throw_errno("mmap");
	}
	Memory(Memory &&other) noexcept
		: base_(std::exchange(other.base_, MAP_FAILED)), size_(other.size_)
	{
	}
	~Memory()
	{
		if (base_ != MAP_FAILED)
			munmap(base_, size_);
	}
	std::uint8_t *data() const { return static_cast<std::uint8_t *>(base_); }
	std::size_t size() const { return size_; }
	std::uint64_t address(std::size_t offset = 0) const
	{
		return reinterpret_cast<std::uintptr_t>(data()) + offset;
	}
	std::span<std::uint8_t> bytes(std::size_t offset, std::size_t length) const
	{
		return {data() + offset, length};
	}

private:
	void *base_;
	std::size_t size_;
};

/* No page is followed by its neighbour, so that the table of extents is as long as it can be. */
inline void scatter(const Memory &memory)
{
	madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE);
	for (std::size_t first : {0, 1})
		for (auto at = first * page_bytes; at < memory.size(); at += 2 * page_bytes)
			memory.data()[at] = 1;
}

/* Memory and its registration. */
class Region {
public:
	Region(ibv_pd *pd, std::size_t size, int access = all_access)
		: memory_(size), mr_(ibv_reg_mr(pd, memory_.data(), size, access), "reg_mr")
	{
	}
	std::uint8_t *data() const { return memory_.data(); }
	std::size_t size() const { return memory_.size(); }
	std::uint64_t address(std::size_t offset = 0) const { return memory_.address(offset); }
	std::span<std::uint8_t> bytes(std::size_t offset, std::size_t length) const
	{
		return memory_.bytes(offset, length);
	}
	std::uint32_t lkey() const { return mr_->lkey; }
	std::uint32_t rkey() const { return mr_->rkey; }
	ibv_mr *mr() const { return mr_; }
	void deregister() { mr_.reset(); }
	ibv_sge sge(std::size_t offset, std::size_t length) const
	{
		return {address(offset), static_cast<std::uint32_t>(length), lkey()};
	}

private:
	Memory memory_;
	Mr mr_;
};

/* The byte that belongs at a position. Each salt gives another one. */
inline std::uint8_t pattern(std::uint64_t position, std::uint64_t salt)
{
	const std::uint64_t x = (position / 8 + salt * 0x10001) * 0x9e3779b97f4a7c15U;

	return static_cast<std::uint8_t>(x >> (8 * (position % 8)));
}

inline void fill_pattern(std::span<std::uint8_t> bytes, std::uint64_t salt)
{
	for (std::size_t i = 0; i < bytes.size(); i++)
		bytes[i] = pattern(i, salt);
}

inline std::vector<std::uint8_t> pattern_of(std::size_t length, std::uint64_t salt)
{
	std::vector<std::uint8_t> bytes(length);

	fill_pattern(bytes, salt);
	return bytes;
}

/* Return: empty, or where the two first differ. */
inline std::string difference(std::span<const std::uint8_t> got,
			      std::span<const std::uint8_t> expected)
{
	if (got.size() == expected.size() && !std::memcmp(got.data(), expected.data(), got.size()))
		return {};
	const auto at = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
	const auto index = at.first - got.begin();
	if (at.first == got.end() || at.second == expected.end())
		return "lengths differ";
	return "byte " + std::to_string(index) + " of " + std::to_string(got.size()) + " is " +
	       std::to_string(*at.first) + ", expected " + std::to_string(*at.second);
}

inline bool all_equal(std::span<const std::uint8_t> bytes, std::uint8_t value)
{
	return std::all_of(bytes.begin(), bytes.end(), [=](auto byte) { return byte == value; });
}

/* ---------------------------------------------------------- completions */

inline std::string describe(const ibv_wc &wc)
{
	return "wr_id " + std::to_string(wc.wr_id) + " " + status_name(wc.status) + " (" +
	       reason_name(wc.vendor_err) + ")";
}

inline std::string describe(std::span<const ibv_wc> completions)
{
	std::string text = std::to_string(completions.size()) + " completions";

	for (const auto &wc : completions.first(std::min<std::size_t>(completions.size(), 16)))
		text += "; " + describe(wc);
	return text;
}

/* Polls all completions that are there, at most `limit`. */
inline std::vector<ibv_wc> drain(ibv_cq *cq, std::size_t limit = 1 << 20)
{
	std::vector<ibv_wc> all;
	ibv_wc wc{};
	int count = 0;

	while (all.size() < limit && (count = ibv_poll_cq(cq, 1, &wc)) > 0)
		all.push_back(wc);
	if (count < 0)
		throw std::runtime_error("poll_cq failed");
	return all;
}

/* Waits for exactly `count` completions. It throws if others came, and says which. */
inline std::vector<ibv_wc> wait_completions(ibv_cq *cq, std::size_t count,
					    Duration limit = patience)
{
	std::vector<ibv_wc> all;
	const bool complete = eventually(
		[&] {
			auto more = drain(cq, count - all.size());
			all.insert(all.end(), more.begin(), more.end());
			return all.size() == count;
		},
		limit);

	if (!complete)
		throw std::runtime_error("expected " + std::to_string(count) +
					 " completions, got " + describe(all));
	return all;
}

inline ibv_wc wait_completion(ibv_cq *cq, Duration limit = patience)
{
	return wait_completions(cq, 1, limit).front();
}

inline void must_succeed(const ibv_wc &wc)
{
	if (wc.status != IBV_WC_SUCCESS)
		throw std::runtime_error("expected success, got " + describe(wc));
}

/* Waits for `count` completions that all succeeded. */
inline std::vector<ibv_wc> wait_success(ibv_cq *cq, std::size_t count = 1,
					Duration limit = patience)
{
	auto all = wait_completions(cq, count, limit);

	for (const auto &wc : all)
		must_succeed(wc);
	return all;
}

/* The reason that packets can tell. A NAK has only its kind, and silence has no reason. */
inline peal_reason told_by_packets(ibv_wc_status status, peal_reason reason)
{
	switch (status) {
	case IBV_WC_REM_INV_REQ_ERR:
		return PEAL_REASON_NAK_INVALID_REQUEST;
	case IBV_WC_REM_ACCESS_ERR:
		return PEAL_REASON_NAK_ACCESS;
	case IBV_WC_REM_OP_ERR:
		return PEAL_REASON_NAK_OPERATION;
	case IBV_WC_RETRY_EXC_ERR:
		return PEAL_REASON_PEER_SILENT;
	default:
		return reason;
	}
}

inline void check_status(const ibv_wc &wc, ibv_wc_status status, peal_reason reason)
{
	INFO(describe(wc));
	CHECK(status_name(wc.status) == status_name(status));
	if (on_wire())
		reason = told_by_packets(status, reason);
	CHECK(reason_name(wc.vendor_err) == reason_name(reason));
}

/* ---------------------------------------------------------- queue pairs */

struct QpOptions {
	std::uint32_t send_wr = 64;
	std::uint32_t recv_wr = 64;
	std::uint32_t send_sge = 4;
	std::uint32_t recv_sge = 4;
	std::uint32_t inline_bytes = 0;
	bool all_signaled = false;
	std::uint64_t send_ops = 0; /* IBV_QP_EX_*, for ibv_wr_* */
	int cqe = 256;
	ibv_qp_type type = IBV_QPT_RC;
	ibv_srq *srq = nullptr;
};

inline ibv_qp_init_attr_ex init_attributes(ibv_pd *pd, ibv_cq *send_cq, ibv_cq *recv_cq,
					   const QpOptions &options)
{
	ibv_qp_init_attr_ex init{};

	init.send_cq = send_cq;
	init.recv_cq = recv_cq;
	init.srq = options.srq;
	init.cap = {options.send_wr, options.recv_wr, options.send_sge, options.recv_sge,
		    options.inline_bytes};
	init.qp_type = options.type;
	init.sq_sig_all = options.all_signaled;
	init.pd = pd;
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	init.send_ops_flags = options.send_ops;
	if (options.send_ops)
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	return init;
}

inline Qp create_qp(ibv_pd *pd, ibv_cq *send_cq, ibv_cq *recv_cq, const QpOptions &options = {})
{
	auto init = init_attributes(pd, send_cq, recv_cq, options);

	return {ibv_create_qp_ex(pd->context, &init), "create_qp"};
}

inline Cq create_cq(ibv_context *context, int cqe, ibv_comp_channel *channel = nullptr)
{
	return {ibv_create_cq(context, cqe, nullptr, channel, 0), "create_cq"};
}

/* 64 entries with every standard field. */
inline ibv_cq_ex *create_cq_ex(ibv_context *context)
{
	ibv_cq_init_attr_ex attr{};

	attr.cqe = 64;
	attr.wc_flags = IBV_WC_STANDARD_FLAGS;
	if (ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr))
		return cq;
	throw_errno("create_cq_ex");
}

/* An XRC shared receive queue of this many receives, with two pieces each. */
inline ibv_srq_init_attr_ex xrc_srq_attr(ibv_pd *pd, ibv_xrcd *xrcd, ibv_cq *cq,
					 std::uint32_t receives)
{
	ibv_srq_init_attr_ex init{};

	init.attr = {receives, 2, 0};
	init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
			 IBV_SRQ_INIT_ATTR_CQ;
	init.srq_type = IBV_SRQT_XRC;
	init.pd = pd;
	init.xrcd = xrcd;
	init.cq = cq;
	return init;
}

/* Return: null when the device refuses, with errno. `attr` is set to what was granted. */
inline ibv_srq *try_create_srq(ibv_pd *pd, ibv_srq_attr &attr)
{
	ibv_srq_init_attr init{};

	init.attr = attr;
	ibv_srq *srq = ibv_create_srq(pd, &init);
	attr = init.attr;
	return srq;
}

inline Srq create_srq(ibv_pd *pd, std::uint32_t max_wr, std::uint32_t max_sge = 2)
{
	ibv_srq_attr attr{max_wr, max_sge, 0};

	return {try_create_srq(pd, attr), "create_srq"};
}

/* Attributes of a connection, equal at both ends unless a test sets them. */
struct Link {
	/* 67 ms. It is 0.5 s where a packet takes a millisecond and queues are as long as ever. */
	std::uint8_t timeout = slowness() > 2 ? 17 : 14;
	std::uint8_t retry_cnt = 7;
	std::uint8_t rnr_retry = 7;	/* for ever */
	std::uint8_t min_rnr_timer = 1; /* 10 us */
	std::uint8_t rd_atomic = 16;
	std::uint8_t dest_rd_atomic = 16;
	std::uint32_t psn = 0x00fffff0; /* wraps soon */
	int access = all_access;
	std::uint8_t service_level = 0;
};

constexpr int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int rts_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

inline ibv_qp_attr init_attr(const Link &link = {})
{
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qp_access_flags = static_cast<unsigned>(link.access);
	return attr;
}

inline ibv_qp_attr rtr_attr(const Device &device, std::uint32_t dest_qpn, const ibv_gid &dest,
			    const Link &link = {})
{
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = device.port().active_mtu;
	attr.dest_qp_num = dest_qpn;
	attr.rq_psn = link.psn;
	attr.max_dest_rd_atomic = link.dest_rd_atomic;
	attr.min_rnr_timer = link.min_rnr_timer;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = dest;
	attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(device.gid_index());
	attr.ah_attr.grh.hop_limit = 64;
	attr.ah_attr.sl = link.service_level;
	attr.ah_attr.port_num = 1;
	return attr;
}

inline ibv_qp_attr rts_attr(const Link &link = {})
{
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = link.timeout;
	attr.retry_cnt = link.retry_cnt;
	attr.rnr_retry = link.rnr_retry;
	attr.sq_psn = link.psn;
	attr.max_rd_atomic = link.rd_atomic;
	return attr;
}

inline void to_init(ibv_qp *qp, const Link &link = {})
{
	auto attr = init_attr(link);
	must(ibv_modify_qp(qp, &attr, init_mask), "modify to INIT");
}

inline void to_rtr(ibv_qp *qp, const Device &device, std::uint32_t dest_qpn, const Link &link = {})
{
	auto attr = rtr_attr(device, dest_qpn, device.gid(), link);
	must(ibv_modify_qp(qp, &attr, rtr_mask), "modify to RTR");
}

inline void to_rts(ibv_qp *qp, const Link &link = {})
{
	auto attr = rts_attr(link);
	must(ibv_modify_qp(qp, &attr, rts_mask), "modify to RTS");
}

inline void to_state(ibv_qp *qp, ibv_qp_state state)
{
	ibv_qp_attr attr{};

	attr.qp_state = state;
	must(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "modify to " + state_name(state));
}

/* Takes it from RESET to RTS, towards a queue pair of the same device. */
inline void connect_to(ibv_qp *qp, const Device &device, std::uint32_t dest_qpn,
		       const Link &link = {})
{
	to_init(qp, link);
	to_rtr(qp, device, dest_qpn, link);
	to_rts(qp, link);
}

inline ibv_qp_state query_state(ibv_qp *qp)
{
	ibv_qp_attr attr{};
	ibv_qp_init_attr init{};

	must(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "query_qp");
	return attr.qp_state;
}

/* A queue pair with all that it needs. */
struct Endpoint {
	explicit Endpoint(Device &on, const QpOptions &options = {})
		: device(on), pd(ibv_alloc_pd(on), "alloc_pd"), send_cq(create_cq(on, options.cqe)),
		  recv_cq(create_cq(on, options.cqe)), qp(create_qp(pd, send_cq, recv_cq, options))
	{
	}
	Device &device;
	Pd pd;
	Cq send_cq;
	Cq recv_cq;
	Qp qp;
};

/* Connects two queue pairs of one device. */
inline void connect(const Device &device, ibv_qp *a, ibv_qp *b, const Link &link = {})
{
	connect_to(a, device, b->qp_num, link);
	connect_to(b, device, a->qp_num, link);
}

inline void connect(Endpoint &a, Endpoint &b, const Link &link_a, const Link &link_b)
{
	connect_to(a.qp, a.device, b.qp->qp_num, link_a);
	connect_to(b.qp, b.device, a.qp->qp_num, link_b);
}

inline void connect(Endpoint &a, Endpoint &b, const Link &link = {})
{
	connect(a, b, link, link);
}

constexpr int uc_rtr_mask =
	IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

/* Takes one end of an unreliable connection to RTS. */
inline void connect_uc(const Endpoint &from, const Endpoint &to, std::uint32_t sq_psn = 0,
		       std::uint32_t rq_psn = 0)
{
	auto rtr = rtr_attr(from.device, to.qp->qp_num, to.device.gid());
	auto rts = rts_attr();

	rtr.rq_psn = rq_psn;
	rts.sq_psn = sq_psn;
	to_init(from.qp);
	must(ibv_modify_qp(from.qp, &rtr, uc_rtr_mask), "modify to RTR");
	must(ibv_modify_qp(from.qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN), "modify to RTS");
}

/* Two connected endpoints. a sends requests, and b responds. */
struct Pair {
	explicit Pair(Device &device, const QpOptions &options = {}, const Link &link = {})
		: a(device, options), b(device, options)
	{
		connect(a, b, link);
	}
	Endpoint a;
	Endpoint b;
};

/* -------------------------------------------------------- work requests */

/* A send work request under construction. It is signaled unless a test says otherwise. */
struct Send {
	ibv_send_wr wr{};
	std::vector<ibv_sge> sges;

	explicit Send(ibv_wr_opcode opcode, std::vector<ibv_sge> list = {}) : sges(std::move(list))
	{
		wr.opcode = opcode;
		wr.send_flags = IBV_SEND_SIGNALED;
	}
	Send &id(std::uint64_t id)
	{
		wr.wr_id = id;
		return *this;
	}
	Send &flags(unsigned flags)
	{
		wr.send_flags = flags;
		return *this;
	}
	Send &imm(std::uint32_t data)
	{
		wr.imm_data = data;
		return *this;
	}
	Send &remote(std::uint64_t address, std::uint32_t rkey)
	{
		wr.wr.rdma = {address, rkey};
		return *this;
	}
	Send &atomic(std::uint64_t address, std::uint32_t rkey, std::uint64_t compare_add,
		     std::uint64_t swap = 0)
	{
		wr.wr.atomic = {address, compare_add, swap, rkey};
		return *this;
	}
};

inline int post_list(ibv_qp *qp, std::span<Send> list, ibv_send_wr **bad)
{
	for (std::size_t i = 0; i < list.size(); i++) {
		list[i].wr.sg_list = list[i].sges.data();
		list[i].wr.num_sge = static_cast<int>(list[i].sges.size());
		list[i].wr.next = i + 1 < list.size() ? &list[i + 1].wr : nullptr;
	}
	return ibv_post_send(qp, &list[0].wr, bad);
}

inline int try_post(ibv_qp *qp, Send send)
{
	ibv_send_wr *bad = nullptr;
	return post_list(qp, std::span(&send, 1), &bad);
}

inline void post(ibv_qp *qp, Send send)
{
	must(try_post(qp, std::move(send)), "post_send");
}

inline int try_post_srq_recv(ibv_srq *srq, std::uint64_t id, std::vector<ibv_sge> sges)
{
	ibv_recv_wr wr{}, *bad = nullptr;

	wr.wr_id = id;
	wr.sg_list = sges.data();
	wr.num_sge = static_cast<int>(sges.size());
	return ibv_post_srq_recv(srq, &wr, &bad);
}

inline void post_srq_recv(ibv_srq *srq, std::uint64_t id, std::vector<ibv_sge> sges)
{
	must(try_post_srq_recv(srq, id, std::move(sges)), "post_srq_recv");
}

inline int try_post_recv(ibv_qp *qp, std::uint64_t id, std::vector<ibv_sge> sges)
{
	ibv_recv_wr wr{}, *bad = nullptr;

	wr.wr_id = id;
	wr.sg_list = sges.data();
	wr.num_sge = static_cast<int>(sges.size());
	return ibv_post_recv(qp, &wr, &bad);
}

inline void post_recv(ibv_qp *qp, std::uint64_t id, std::vector<ibv_sge> sges)
{
	must(try_post_recv(qp, id, std::move(sges)), "post_recv");
}

/* Free memory of the machine. */
inline std::size_t available_bytes()
{
	return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) * page_bytes;
}

} // namespace peal_test
