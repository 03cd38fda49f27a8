// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A peal device without libibverbs. The test writes the rings itself, so that they can hold
 * anything.
 *
 * Holds: a context, regions, completion queues, shared receive queues and a queue pair, made
 * through the kernel's uverbs ioctls, and the asynchronous events of a context, with direct access
 * to the mappings that peal-abi.h describes. Does not hold: any check of what a test writes.
 */
#pragma once

#include "uverbs.hpp"
#include "verbs.hpp"

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>

namespace peal_test {

namespace uv = peal::uverbs;

/* A mapping of the device's memory. */
class Map {
public:
	Map() = default;
	Map(int fd, std::uint64_t offset, std::size_t bytes) : bytes_(bytes)
	{
		base_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			     static_cast<off_t>(offset));
		if (base_ == MAP_FAILED)
			throw_errno("mmap of the device");
	}
	Map(Map &&other) noexcept
		: base_(std::exchange(other.base_, MAP_FAILED)), bytes_(other.bytes_)
	{
	}
	Map &operator=(Map &&other) noexcept
	{
		std::swap(base_, other.base_);
		std::swap(bytes_, other.bytes_);
		return *this;
	}
	~Map()
	{
		if (base_ != MAP_FAILED)
			munmap(base_, bytes_);
	}
	template <class T = std::uint8_t>
	T *at(std::size_t offset = 0) const
	{
		return reinterpret_cast<T *>(static_cast<std::uint8_t *>(base_) + offset);
	}
	std::size_t bytes() const { return bytes_; }

private:
	void *base_ = MAP_FAILED;
	std::size_t bytes_ = 0;
};

inline std::string uverbs_node(const std::string &device)
{
	for (const auto &entry :
	     std::filesystem::directory_iterator("/sys/class/infiniband_verbs")) {
		std::ifstream file(entry.path() / "ibdev");
		std::string name;
		if (std::getline(file, name) && name == device)
			return "/dev/infiniband/" + entry.path().filename().string();
	}
	throw std::runtime_error("no uverbs node of " + device);
}

struct Keys {
	std::uint32_t lkey;
	std::uint32_t rkey;
	std::uint32_t handle;
};

/* A user context with its doorbell page. */
class RawContext {
public:
	RawContext()
		: fd_(open(uverbs_node(device_name()).c_str(), O_RDWR | O_CLOEXEC)),
		  device_(fd_, PEAL_DRIVER_ID)
	{
		if (fd_ < 0)
			throw_errno("open the uverbs node");
		must(get_context(resp_), "GET_CONTEXT");
		doorbell_ = Map(fd_, resp_.doorbell_offset, resp_.doorbell_bytes);
	}
	~RawContext()
	{
		if (events_fd_ >= 0)
			close(events_fd_);
		close(resp_.kick_fd);
		close(fd_);
	}
	RawContext(const RawContext &) = delete;
	RawContext &operator=(const RawContext &) = delete;

	int fd() const { return fd_; }
	int kick_fd() const { return resp_.kick_fd; }
	const uv::Device &device() const { return device_; }
	const peal_alloc_ucontext_resp &response() const { return resp_; }
	const Map &doorbell_map() const { return doorbell_; }
	peal_doorbell &doorbell() const { return *doorbell_.at<peal_doorbell>(); }

	std::uint32_t alloc_pd() const
	{
		ib_uverbs_alloc_pd request{};
		ib_uverbs_alloc_pd_resp response{};

		must(device_.command(IB_USER_VERBS_CMD_ALLOC_PD, request, response), "ALLOC_PD");
		return response.pd_handle;
	}
	/* An object may be gone already after a program has scribbled. */
	void dealloc_pd(std::uint32_t pd) const
	{
		device_.command(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd});
	}
	Keys register_memory(std::uint32_t pd, const Memory &memory,
			     int access = all_access | IBV_ACCESS_MW_BIND) const
	{
		ib_uverbs_reg_mr request{};
		ib_uverbs_reg_mr_resp response{};

		request.start = request.hca_va = memory.address();
		request.length = memory.size();
		request.pd_handle = pd;
		request.access_flags = static_cast<std::uint32_t>(access);
		must(device_.command(IB_USER_VERBS_CMD_REG_MR, request, response), "REG_MR");
		return {response.lkey, response.rkey, response.mr_handle};
	}
	void deregister(const Keys &keys) const
	{
		device_.command(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{keys.handle});
	}
	struct RawMw {
		std::uint32_t handle, rkey;
	};
	RawMw alloc_mw(std::uint32_t pd) const
	{
		ib_uverbs_alloc_mw request{};
		ib_uverbs_alloc_mw_resp response{};

		request.pd_handle = pd;
		request.mw_type = IBV_MW_TYPE_2;
		must(device_.command(IB_USER_VERBS_CMD_ALLOC_MW, request, response), "ALLOC_MW");
		return {response.mw_handle, response.rkey};
	}
	void dealloc_mw(const RawMw &mw) const
	{
		device_.command(IB_USER_VERBS_CMD_DEALLOC_MW, ib_uverbs_dealloc_mw{mw.handle});
	}
	struct RawAh {
		std::uint32_t handle, index;
	};
	RawAh create_ah(std::uint32_t pd, const Device &to) const
	{
		ib_uverbs_create_ah request{};
		ib_uverbs_create_ah_resp response{};
		const peal_create_ah_req driver{};
		peal_create_ah_resp driver_response{};

		request.pd_handle = pd;
		request.attr.is_global = 1;
		request.attr.port_num = 1;
		request.attr.grh.hop_limit = 64;
		request.attr.grh.sgid_index = static_cast<std::uint8_t>(to.gid_index());
		std::memcpy(request.attr.grh.dgid, to.gid().raw, 16);
		must(device_.command(IB_USER_VERBS_CMD_CREATE_AH, request, response, uv::in(driver),
				     uv::out(driver_response)),
		     "CREATE_AH");
		return {response.ah_handle, driver_response.ah_index};
	}
	void destroy_ah(const RawAh &ah) const
	{
		must(device_.command(IB_USER_VERBS_CMD_DESTROY_AH, ib_uverbs_destroy_ah{ah.handle}),
		     "DESTROY_AH");
	}
	/* Opens the file of asynchronous events. Call before objects are made. */
	void open_events()
	{
		ib_uverbs_ioctl_hdr header{};
		ib_uverbs_attr file{};
		/* The header ends in a flexible array. */
		alignas(8) std::array<std::byte, sizeof(header) + sizeof(file)> message;

		header.length = sizeof(message);
		header.object_id = UVERBS_OBJECT_ASYNC_EVENT;
		header.method_id = UVERBS_METHOD_ASYNC_EVENT_ALLOC;
		header.num_attrs = 1;
		header.driver_id = PEAL_DRIVER_ID;
		file.attr_id = UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE;
		file.flags = UVERBS_ATTR_F_MANDATORY;
		std::memcpy(message.data(), &header, sizeof(header));
		std::memcpy(message.data() + sizeof(header), &file, sizeof(file));
		if (ioctl(fd_, RDMA_VERBS_IOCTL, message.data()))
			throw_errno("ASYNC_EVENT_ALLOC");
		std::memcpy(&file, message.data() + sizeof(header), sizeof(file));
		events_fd_ = static_cast<int>(file.data_s64);
	}
	/* Return: how many events of this type came for the object with this user handle. */
	std::size_t count_events(ibv_event_type type, std::uint64_t object)
	{
		ib_uverbs_async_event_desc event{};

		while (readable(events_fd_, 0s) &&
		       read(events_fd_, &event, sizeof(event)) == sizeof(event))
			events_.push_back({event.element, event.event_type});
		return std::count_if(events_.begin(), events_.end(), [&](const auto &each) {
			return each.first == object && each.second == type;
		});
	}
	int kick(unsigned kick, std::uint32_t index) const
	{
		return lseek(resp_.kick_fd, index, kick) ? errno : 0;
	}
	/* As programs did that are older than the kick by lseek. */
	int kick_by_ioctl(unsigned long command, std::uint32_t index) const
	{
		return ioctl(resp_.kick_fd, command, static_cast<unsigned long>(index)) ? errno : 0;
	}

private:
	int get_context(peal_alloc_ucontext_resp &response) const
	{
		const peal_alloc_ucontext_req request{};
		std::uint32_t vectors = 0;
		std::uint64_t support = 0;

		return device_.method(
			UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT,
			uv::attr_out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, uv::out(vectors)),
			uv::attr_out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, uv::out(support)),
			uv::attr_in(UVERBS_ATTR_UHW_IN, uv::in(request)),
			uv::attr_out(UVERBS_ATTR_UHW_OUT, uv::out(response)));
	}

	int fd_;
	uv::Device device_;
	peal_alloc_ucontext_resp resp_{};
	Map doorbell_;
	int events_fd_ = -1;
	std::vector<std::pair<std::uint64_t, std::uint32_t>> events_; /* object and type */
};

/* A completion queue, read by its phase bit. */
class RawCq {
public:
	RawCq(const RawContext &context, std::uint32_t cqe) : context_(context)
	{
		ib_uverbs_create_cq request{};
		ib_uverbs_create_cq_resp response{};
		const peal_create_cq_req driver{};

		request.cqe = cqe;
		request.comp_channel = -1;
		must(context.device().command(IB_USER_VERBS_CMD_CREATE_CQ, request, response,
					      uv::in(driver), uv::out(resp_)),
		     "CREATE_CQ");
		handle_ = response.cq_handle;
		map_ = Map(context.fd(), resp_.map_offset, resp_.map_bytes);
	}
	~RawCq()
	{
		ib_uverbs_destroy_cq request{};
		ib_uverbs_destroy_cq_resp response{};

		request.cq_handle = handle_;
		context_.device().command(IB_USER_VERBS_CMD_DESTROY_CQ, request, response);
	}
	RawCq(const RawCq &) = delete;
	RawCq &operator=(const RawCq &) = delete;

	std::uint32_t handle() const { return handle_; }
	const Map &map() const { return map_; }
	const peal_create_cq_resp &response() const { return resp_; }
	peal_cq_ctl &control() const { return *map_.at<peal_cq_ctl>(); }

	bool poll(peal_cqe &cqe)
	{
		auto *slot = map_.at<peal_cqe>(PEAL_CQ_RING_OFFSET) + (next_ & (resp_.entries - 1));
		std::atomic_ref<std::uint8_t> flags(slot->flags);
		const bool phase = flags.load(std::memory_order_acquire) & PEAL_CQE_PHASE;

		if (phase == static_cast<bool>(next_ & resp_.entries))
			return false;
		cqe = *slot;
		std::atomic_ref(control().consumer).store(++next_, std::memory_order_release);
		return true;
	}

private:
	const RawContext &context_;
	std::uint32_t handle_ = 0;
	std::uint32_t next_ = 0;
	peal_create_cq_resp resp_{};
	Map map_;
};

/* A shared receive queue, with memory for its receives in a domain of its own. */
class RawSrq {
public:
	RawSrq(const RawContext &context, std::uint32_t depth = 16, std::uint32_t sges = 4,
	       std::size_t bytes = 16 * page_bytes)
		: context_(context), memory_(bytes), pd_(context.alloc_pd())
	{
		ib_uverbs_create_srq request{};
		ib_uverbs_create_srq_resp response{};
		const peal_create_srq_req driver{};

		keys_ = context.register_memory(pd_, memory_);
		request.user_handle = name_;
		request.pd_handle = pd_;
		request.max_wr = depth;
		request.max_sge = sges;
		must(context.device().command(IB_USER_VERBS_CMD_CREATE_SRQ, request, response,
					      uv::in(driver), uv::out(resp_)),
		     "CREATE_SRQ");
		handle_ = response.srq_handle;
		max_sge_ = response.max_sge;
		map_ = Map(context.fd(), resp_.map_offset, resp_.map_bytes);
	}
	~RawSrq()
	{
		destroy();
		context_.deregister(keys_);
		context_.dealloc_pd(pd_);
	}
	RawSrq(const RawSrq &) = delete;
	RawSrq &operator=(const RawSrq &) = delete;

	int destroy()
	{
		ib_uverbs_destroy_srq_resp response{};

		return context_.device().command(IB_USER_VERBS_CMD_DESTROY_SRQ,
						 ib_uverbs_destroy_srq{0, handle_, 0}, response);
	}
	/* The name of the queue in events. */
	std::uint64_t name() const { return name_; }
	std::uint32_t handle() const { return handle_; }
	std::uint32_t max_sge() const { return max_sge_; }
	const Map &map() const { return map_; }
	const Memory &memory() const { return memory_; }
	const peal_create_srq_resp &response() const { return resp_; }
	peal_ring_ctl &control() const { return *map_.at<peal_ring_ctl>(); }
	std::uint32_t *numbers() const { return map_.at<std::uint32_t>(resp_.ring_offset); }
	std::uint8_t *slot(std::uint32_t number) const
	{
		return map_.at(resp_.slots_offset + number * resp_.stride);
	}
	peal_sge sge(std::size_t offset, std::uint32_t length) const
	{
		return {memory_.address(offset), length, keys_.lkey};
	}
	std::uint32_t next() const { return next_; }

	void write(std::uint32_t number, const peal_recv_wqe &header,
		   std::span<const peal_sge> sges)
	{
		std::memcpy(slot(number), &header, sizeof(header));
		if (!sges.empty())
			std::memcpy(slot(number) + sizeof(header), sges.data(), sges.size_bytes());
	}
	/* Stores the number, which need not be a slot's. */
	void enqueue(std::uint32_t number) { numbers()[next_++ & (resp_.entries - 1)] = number; }
	void publish() { publish(next_); }
	void publish(std::uint32_t producer)
	{
		std::atomic_ref(control().producer).store(producer, std::memory_order_seq_cst);
		kick();
	}
	int kick() { return context_.kick(PEAL_KICK_SRQ, resp_.srq_index); }
	void post(std::uint32_t number, std::size_t offset, std::uint32_t length)
	{
		const peal_sge entry = sge(offset, length);

		write(number, {1, {}}, std::span(&entry, 1));
		enqueue(number);
		publish();
	}

private:
	static inline std::uint64_t names_ = 0x1000;

	const RawContext &context_;
	const std::uint64_t name_ = names_++;
	Memory memory_;
	std::uint32_t pd_;
	Keys keys_{};
	std::uint32_t handle_ = 0, max_sge_ = 0, next_ = 0;
	peal_create_srq_resp resp_{};
	Map map_;
};

struct RawSend {
	peal_send_wqe header{};
	std::array<std::uint8_t, PEAL_WQE_MAX_BYTES> body{};

	/* Writes entries at an offset of the body, which is 0, or 16 behind an atomic segment. */
	RawSend &sge(const peal_sge &entry, std::size_t offset = 0)
	{
		std::memcpy(&body[offset + 16 * header.num_sge++], &entry, sizeof(entry));
		return *this;
	}
};

struct RawShape {
	std::uint32_t depth = 16, sges = 4;
	std::size_t bytes = 16 * page_bytes;
	ibv_qp_type type = IBV_QPT_RC;
	bool scattered = false; /* the memory has one extent for each page */
	std::uint32_t peer = 0; /* the number of the queue pair it sends to, or 0 for itself */
	const RawSrq *srq = nullptr;
	std::uint8_t rnr_timer = 1;
	int access = all_access; /* what the peer may do */
};

/*
 * A queue pair connected to itself or another one, and all that it needs. A UD
 * queue pair is connected to none. An XRC initiator needs a target as its peer.
 */
class RawQp {
public:
	RawQp(const RawContext &context, const Device &device, const RawShape &shape = {})
		: context_(context), type_(shape.type), peer_(shape.peer),
		  rnr_timer_(shape.rnr_timer), access_(shape.access), memory_(shape.bytes),
		  pd_(context.alloc_pd()), cq_(context, 4 * shape.depth)
	{
		if (shape.scattered)
			scatter(memory_);
		keys_ = context.register_memory(pd_, memory_);
		create(shape);
		map_ = Map(context.fd(), resp_.map_offset, resp_.map_bytes);
		connect(device);
	}
	~RawQp()
	{
		destroy();
		context_.deregister(keys_);
		context_.dealloc_pd(pd_);
	}
	RawQp(const RawQp &) = delete;
	RawQp &operator=(const RawQp &) = delete;

	void destroy()
	{
		ib_uverbs_destroy_qp request{};
		ib_uverbs_destroy_qp_resp response{};

		if (!std::exchange(alive_, false))
			return;
		request.qp_handle = handle_;
		context_.device().command(IB_USER_VERBS_CMD_DESTROY_QP, request, response);
	}
	const Map &map() const { return map_; }
	RawCq &cq() { return cq_; }
	const Memory &memory() const { return memory_; }
	std::uint32_t lkey() const { return keys_.lkey; }
	std::uint32_t rkey() const { return keys_.rkey; }
	std::uint32_t index() const { return resp_.qp_index; }
	std::uint32_t handle() const { return handle_; }
	std::uint32_t number() const { return number_; }
	const peal_create_qp_resp &response() const { return resp_; }
	peal_qp_ctl &control() const { return *map_.at<peal_qp_ctl>(); }
	peal_sge sge(std::size_t offset, std::uint32_t length) const
	{
		return {memory_.address(offset), length, lkey()};
	}

	/* Copies it into the slot unchanged. */
	void write_send(const RawSend &send)
	{
		auto *slot = send_slot(sq_next_++);
		const auto room = resp_.sq_stride - sizeof(send.header);

		std::memcpy(slot, &send.header, sizeof(send.header));
		std::memcpy(slot + sizeof(send.header), send.body.data(),
			    std::min<std::size_t>(room, send.body.size()));
	}
	void publish() { publish(sq_next_); }
	std::uint32_t pd() const { return pd_; }
	void publish(std::uint32_t producer)
	{
		std::atomic_ref(control().sq.producer).store(producer, std::memory_order_release);
		kick();
	}
	int kick() { return context_.kick(PEAL_KICK_SEND, index()); }
	void post(const RawSend &send)
	{
		write_send(send);
		publish();
	}
	void write_recv(const peal_recv_wqe &header, std::span<const peal_sge> sges)
	{
		auto *slot = recv_slot(rq_next_++);

		std::memcpy(slot, &header, sizeof(header));
		if (!sges.empty())
			std::memcpy(slot + sizeof(header), sges.data(), sges.size_bytes());
	}
	void publish_recv() { publish_recv(rq_next_); }
	void publish_recv(std::uint32_t producer)
	{
		std::atomic_ref(control().rq.producer).store(producer, std::memory_order_seq_cst);
		context_.kick(PEAL_KICK_RECV, index());
	}
	void post_recv(std::size_t offset, std::uint32_t length)
	{
		const peal_sge entry = sge(offset, length);

		write_recv({1, {}}, std::span(&entry, 1));
		publish_recv();
	}
	std::uint8_t *send_slot(std::uint32_t i) const
	{
		return map_.at(resp_.sq_offset + (i & (resp_.sq_entries - 1)) * resp_.sq_stride);
	}
	std::uint8_t *recv_slot(std::uint32_t i) const
	{
		return map_.at(resp_.rq_offset + (i & (resp_.rq_entries - 1)) * resp_.rq_stride);
	}
	std::uint32_t max_sge() const { return max_sge_; }
	std::uint32_t max_inline() const { return max_inline_; }
	std::uint32_t sq_next() const { return sq_next_; }
	std::uint32_t rq_next() const { return rq_next_; }

	/* Return: false when no completion came in time. */
	bool wait(peal_cqe &cqe, Duration limit = patience)
	{
		return eventually([&] { return cq_.poll(cqe); }, limit);
	}
	ibv_qp_state state() const
	{
		ib_uverbs_query_qp request{};
		ib_uverbs_query_qp_resp response{};

		request.qp_handle = handle_;
		request.attr_mask = IBV_QP_STATE;
		must(context_.device().command(IB_USER_VERBS_CMD_QUERY_QP, request, response),
		     "QUERY_QP");
		return static_cast<ibv_qp_state>(response.qp_state);
	}
	/* Brings the queue pair out of SQE. */
	void recover() const
	{
		auto request = step(IBV_QPS_RTS, type_ == IBV_QPT_RAW_PACKET
							 ? IBV_QP_STATE
							 : IBV_QP_STATE | IBV_QP_CUR_STATE);

		request.cur_qp_state = IBV_QPS_SQE;
		modify(request);
	}
	void modify(const ib_uverbs_modify_qp &request) const
	{
		must(context_.device().command(IB_USER_VERBS_CMD_MODIFY_QP, request), "MODIFY_QP");
	}

private:
	void create(const RawShape &shape)
	{
		ib_uverbs_create_qp request{};
		ib_uverbs_create_qp_resp response{};
		const peal_create_qp_req driver{};

		request.pd_handle = pd_;
		request.send_cq_handle = request.recv_cq_handle = cq_.handle();
		request.max_send_wr = request.max_recv_wr = shape.depth;
		request.max_send_sge = request.max_recv_sge = shape.sges;
		request.max_inline_data = 64;
		request.qp_type = static_cast<std::uint8_t>(type_);
		if (shape.srq) {
			request.is_srq = 1;
			request.srq_handle = shape.srq->handle();
		}
		must(context_.device().command(IB_USER_VERBS_CMD_CREATE_QP, request, response,
					       uv::in(driver), uv::out(resp_)),
		     "CREATE_QP");
		handle_ = response.qp_handle;
		number_ = response.qpn;
		max_sge_ = response.max_send_sge;
		max_inline_ = response.max_inline_data;
	}
	ib_uverbs_modify_qp step(ibv_qp_state state, int mask) const
	{
		ib_uverbs_modify_qp request{};

		request.qp_handle = handle_;
		request.attr_mask = static_cast<std::uint32_t>(mask);
		request.qp_state = static_cast<std::uint8_t>(state);
		request.port_num = 1;
		request.qp_access_flags = static_cast<std::uint32_t>(access_);
		request.path_mtu = IBV_MTU_1024;
		request.dest_qp_num = peer_ ? peer_ : number_;
		request.max_rd_atomic = request.max_dest_rd_atomic = 4;
		request.min_rnr_timer = rnr_timer_;
		request.timeout = 10;
		request.retry_cnt = request.rnr_retry = 3;
		return request;
	}
	void connect(const Device &device)
	{
		if (type_ == IBV_QPT_UD) {
			modify(step(IBV_QPS_INIT,
				    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
			modify(step(IBV_QPS_RTR, IBV_QP_STATE));
			modify(step(IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN));
			return;
		}
		if (type_ == IBV_QPT_RAW_PACKET) {
			modify(step(IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PORT));
			modify(step(IBV_QPS_RTR, IBV_QP_STATE));
			modify(step(IBV_QPS_RTS, IBV_QP_STATE));
			return;
		}
		modify(step(IBV_QPS_INIT, init_mask));
		const bool reliable = type_ != IBV_QPT_UC;
		auto rtr = step(IBV_QPS_RTR,
				type_ == IBV_QPT_XRC_SEND || !reliable ? uc_rtr_mask : rtr_mask);
		std::memcpy(rtr.dest.dgid, device.gid().raw, sizeof(rtr.dest.dgid));
		rtr.dest.is_global = 1;
		rtr.dest.port_num = 1;
		rtr.dest.hop_limit = 64;
		rtr.dest.sgid_index = static_cast<std::uint8_t>(device.gid_index());
		modify(rtr);
		modify(step(IBV_QPS_RTS, reliable ? rts_mask : IBV_QP_STATE | IBV_QP_SQ_PSN));
	}

	const RawContext &context_;
	ibv_qp_type type_;
	std::uint32_t peer_;
	std::uint8_t rnr_timer_;
	int access_;
	Memory memory_;
	std::uint32_t pd_;
	Keys keys_{};
	RawCq cq_;
	peal_create_qp_resp resp_{};
	Map map_;
	bool alive_ = true;
	std::uint32_t handle_ = 0, number_ = 0;
	std::uint32_t sq_next_ = 0, rq_next_ = 0;
	std::uint32_t max_sge_ = 0, max_inline_ = 0;
};

} // namespace peal_test
