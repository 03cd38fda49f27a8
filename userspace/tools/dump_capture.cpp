// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The part of "peal dump" that uses RDMA: a raw packet queue pair with a sniffer.
 *
 * Owns: the queue pair and its buffers, and the loop from packets to lines or to a file.
 * Does not know: what a packet looks like (dump_packet.cpp).
 *
 * libpcap can do the same on its own, but Debian's is built without RDMA. Where it is built with
 * it, it has 128 buffers, which is less than the packets of one message of 256 KiB, and does not
 * tell what it has lost.
 */
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/mman.h>

#include "dump_module.hpp"
#include "dump_packet.hpp"
#include "error.hpp"
#include "formatted.hpp"
#include "module.hpp"
#include "rdma.hpp"

namespace peal::tool {

namespace {

/* No RoCEv2 packet is longer. Other frames may be, and are not for this command. */
constexpr std::size_t BUFFER_BYTES = 4608;
constexpr std::uint32_t BUFFERS = 8192;
/* So long a wait at most, so that a signal which arrives just before the wait is seen. */
constexpr int WAIT_MS = 200;

std::atomic<bool> stopped;

template <typename Object, int (*destroy)(Object *)>
struct Destroy {
	void operator()(Object *object) const { destroy(object); }
};

template <typename Object, int (*destroy)(Object *)>
using Owned = std::unique_ptr<Object, Destroy<Object, destroy>>;

[[noreturn]] void fail(const DumpRequest &request, int error)
{
	if (error == EPERM || error == EACCES)
		throw Failure(formatted("the packets of {} cannot be seen ({}); run the command as "
					"root",
					request.device, std::strerror(error)));
	throw Failure(formatted("the packets of {} cannot be seen ({}); \"peal doctor\" looks for "
				"the cause",
				request.device, std::strerror(error)));
}

class Sniffer {
public:
	explicit Sniffer(const DumpRequest &request)
		: context(open(request)), pd(ibv_alloc_pd(context.get())),
		  memory(mmap(nullptr, BUFFERS * BUFFER_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
	{
		ibv_qp_init_attr init{};
		ibv_qp_attr attr{};
		ibv_flow_attr rule{};

		if (!pd || memory == MAP_FAILED)
			fail(request, errno);
		ibv_device_attr limits{};

		ibv_query_device(context.get(), &limits);
		buffers = std::min({BUFFERS, static_cast<std::uint32_t>(limits.max_qp_wr),
				    static_cast<std::uint32_t>(limits.max_cqe)});
		channel.reset(ibv_create_comp_channel(context.get()));
		if (!channel)
			fail(request, errno);
		cq.reset(ibv_create_cq(context.get(), static_cast<int>(buffers), nullptr,
				       channel.get(), 0));
		if (!cq)
			fail(request, errno);
		init.qp_type = IBV_QPT_RAW_PACKET;
		init.send_cq = init.recv_cq = cq.get();
		init.cap.max_recv_wr = buffers;
		init.cap.max_recv_sge = 1;
		/* This says whether the user may. A limit of memory may also be in the way. */
		qp.reset(ibv_create_qp(pd.get(), &init));
		if (!qp)
			fail(request, errno);
		mr.reset(ibv_reg_mr(pd.get(), memory, BUFFERS * BUFFER_BYTES,
				    IBV_ACCESS_LOCAL_WRITE));
		if (!mr)
			fail(request, errno);
		attr.qp_state = IBV_QPS_INIT;
		attr.port_num = 1;
		if (const int error = ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PORT))
			fail(request, error);
		attr.qp_state = IBV_QPS_RTR;
		if (const int error = ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE))
			fail(request, error);
		for (std::uint32_t i = 0; i < buffers; i++)
			post(i);
		rule.type = IBV_FLOW_ATTR_SNIFFER;
		rule.size = sizeof(rule);
		rule.port = 1;
		flow.reset(ibv_create_flow(qp.get(), &rule));
		if (!flow)
			fail(request, errno);
	}
	~Sniffer()
	{
		flow.reset();
		qp.reset();
		mr.reset();
		munmap(memory, BUFFERS * BUFFER_BYTES);
	}
	Sniffer(const Sniffer &) = delete;
	Sniffer &operator=(const Sniffer &) = delete;

	/* Calls `take(frame)` for each frame that is there. Return: false without one. */
	template <typename Take>
	bool poll(const DumpRequest &request, const Take &take)
	{
		std::array<ibv_wc, 64> done;
		const int count = ibv_poll_cq(cq.get(), static_cast<int>(done.size()), done.data());

		if (count < 0)
			fail(request, EIO);
		for (const auto &wc : std::span(done).first(static_cast<std::size_t>(count))) {
			if (wc.status != IBV_WC_SUCCESS)
				throw Failure(formatted("{} is gone; \"peal link show\" lists the "
							"devices",
							request.device));
			take(Frame(at(wc.wr_id), wc.byte_len));
			post(wc.wr_id);
		}
		return count;
	}
	void wait()
	{
		pollfd ready{channel->fd, POLLIN, 0};
		ibv_cq *of = nullptr;
		void *context_of = nullptr;

		if (::poll(&ready, 1, WAIT_MS) == 1 &&
		    !ibv_get_cq_event(channel.get(), &of, &context_of))
			ibv_ack_cq_events(of, 1);
	}
	void arm() { ibv_req_notify_cq(cq.get(), 0); }

private:
	static ibv_context *open(const DumpRequest &request)
	{
		int count = 0;
		ibv_device **list = ibv_get_device_list(&count);
		ibv_context *opened = nullptr;

		for (int i = 0; i < count && !opened; i++)
			if (request.device == ibv_get_device_name(list[i]))
				opened = ibv_open_device(list[i]);
		if (list)
			ibv_free_device_list(list);
		if (!opened)
			throw Failure(formatted("libibverbs cannot open {}; \"peal doctor\" looks "
						"for the cause",
						request.device));
		return opened;
	}
	std::uint8_t *at(std::uint64_t buffer) const
	{
		return static_cast<std::uint8_t *>(memory) + buffer * BUFFER_BYTES;
	}
	void post(std::uint64_t buffer)
	{
		ibv_sge sge{reinterpret_cast<std::uint64_t>(at(buffer)), BUFFER_BYTES, mr->lkey};
		ibv_recv_wr wr{}, *bad = nullptr;

		wr.wr_id = buffer;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		ibv_post_recv(qp.get(), &wr, &bad);
	}

	Owned<ibv_context, ibv_close_device> context;
	Owned<ibv_pd, ibv_dealloc_pd> pd;
	void *memory;
	std::uint32_t buffers = 0;
	Owned<ibv_mr, ibv_dereg_mr> mr;
	Owned<ibv_comp_channel, ibv_destroy_comp_channel> channel;
	Owned<ibv_cq, ibv_destroy_cq> cq;
	Owned<ibv_qp, ibv_destroy_qp> qp;
	Owned<ibv_flow, ibv_destroy_flow> flow;
};

/* The standard output, or a file. */
class Output {
public:
	explicit Output(const std::string &name)
		: name(name),
		  file(name.empty() || name == "-" ? stdout : std::fopen(name.c_str(), "wb"))
	{
		if (!file)
			complain();
	}
	~Output()
	{
		if (file != stdout)
			std::fclose(file);
	}
	Output(const Output &) = delete;
	Output &operator=(const Output &) = delete;

	void write(const std::string &bytes)
	{
		if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size())
			complain();
	}
	void flush()
	{
		if (std::fflush(file))
			complain();
	}

private:
	[[noreturn]] void complain() const
	{
		throw Failure(formatted("{} cannot be written: {}",
					name.empty() || name == "-" ? "the standard output" : name,
					std::strerror(errno)));
	}

	std::string name;
	std::FILE *file;
};

bool is_wanted(const DumpRequest &request, const DumpPacket &packet)
{
	const auto names = [&](std::uint64_t qpn) {
		return std::ranges::find(request.qpns, qpn) != request.qpns.end();
	};

	return request.qpns.empty() || names(packet.qpn) ||
	       (packet.source_qpn && *packet.source_qpn == request.qpns[0]);
}

std::uint64_t missed_by(const DumpRequest &request)
{
	for (const auto &[name, value] : Rdma().counters(Module().device(request.device).index))
		if (name == "frames_missed")
			return value;
	return 0;
}

void capture(const DumpRequest &request)
{
	const std::uint32_t snaplen = request.snaplen ? request.snaplen : 262144;
	Output output(request.file);
	Sniffer sniffer(request);
	const auto missed = missed_by(request);
	std::uint64_t packets = 0;
	const auto is_over = [&] { return stopped || (request.count && packets >= request.count); };
	const auto take = [&](Frame frame) {
		const auto packet = read_packet(frame);
		const auto now = std::chrono::duration_cast<Nanoseconds>(
			std::chrono::system_clock::now().time_since_epoch());

		if (!packet || !is_wanted(request, *packet) || is_over())
			return;
		packets++;
		if (!request.file.empty())
			output.write(capture_record(now, frame, snaplen));
		else if (request.json)
			output.write(packet_json(now, *packet));
		else
			output.write(packet_line(now, *packet));
	};

	if (!request.file.empty())
		output.write(capture_head(snaplen));
	output.flush();
	print(stderr, "peal: listening on {}; ^C ends it\n", request.device);
	while (!is_over()) {
		if (sniffer.poll(request, take))
			continue;
		output.flush();
		sniffer.arm();
		if (!sniffer.poll(request, take))
			sniffer.wait();
	}
	output.flush();
	const auto lost = missed_by(request) - missed;

	print(stderr, "peal: {} packets\n", packets);
	if (lost)
		print(stderr, "peal: {} more frames of {} came too fast to be shown\n", lost,
		      request.device);
}

} /* namespace */

} /* namespace peal::tool */

int peal_tool_dump(const peal::tool::DumpRequest &request)
{
	struct sigaction stop {};

	stop.sa_handler = [](int) { peal::tool::stopped = true; };
	sigaction(SIGINT, &stop, nullptr);
	sigaction(SIGTERM, &stop, nullptr);
	peal::tool::capture(request);
	return peal::tool::EXIT_OK;
}
