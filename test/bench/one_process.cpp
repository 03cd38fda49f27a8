// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * one-process DEVICE GID KIND BYTES COUNT: sends so many messages between two queue pairs of one
 * program, and prints how many nanoseconds one takes. The program posts receives and requests and
 * polls both completion queues, so nothing is scheduled in between. perftest measures a receiver as
 * a second program, which on one CPU has to be scheduled, and knows neither every kind of receive
 * nor every kind of memory.
 *
 * KIND: write, read, send (RC); list (RC, WRITE, 16 requests a call); uc (UC, WRITE); ud (UD,
 * SEND); srq (RC, SEND to a shared receive queue); xrc (XRC, SEND); odp (RC, WRITE from and to
 * pages that are registered on demand, and present); dmabuf (RC, WRITE from and to a DMA buffer,
 * for which udmabuf or vgem must be loaded)
 */
#include "../guest/helpers/dma_buffer_file.hpp"
#include "bench_verbs.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

using namespace peal_bench;

namespace {

// Requests that are posted before their completion is polled. The last one of them is signaled.
constexpr int window = 64;
constexpr int in_list = 16;
constexpr std::uint32_t qkey = 0;
constexpr std::size_t grh_bytes = 40;

// A datagram is received behind room for its GRH.
struct Buffer {
	Buffer(std::size_t length, bool is_dma_buffer) : bytes(length + grh_bytes)
	{
		namespace dma = peal_dma_buffer;
		const std::size_t whole = (bytes + dma::page - 1) / dma::page * dma::page;

		if (is_dma_buffer && (file = dma::of_memory_file(whole)) < 0 &&
		    (file = dma::of_graphics(whole, O_RDWR)) < 0)
			fail("make a DMA buffer");
		memory = static_cast<char *>(
			mmap(nullptr, whole, PROT_READ | PROT_WRITE,
			     is_dma_buffer ? MAP_SHARED | MAP_POPULATE
					   : MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
			     file, 0));
		if (memory == MAP_FAILED)
			fail("mmap");
	}
	void register_at(ibv_pd *pd, int access)
	{
		if (file < 0)
			mr = made(ibv_reg_mr(pd, memory, bytes, access), "ibv_reg_mr");
		else
			mr = made(ibv_reg_dmabuf_mr(pd, 0, bytes,
						    reinterpret_cast<std::uintptr_t>(memory), file,
						    access),
				  "ibv_reg_dmabuf_mr");
	}
	ibv_sge sge(std::size_t length) const
	{
		return {reinterpret_cast<std::uintptr_t>(memory), std::uint32_t(length), mr->lkey};
	}
	std::size_t bytes;
	int file = -1; // of a DMA buffer
	char *memory = nullptr;
	ibv_mr *mr = nullptr;
};

// Returns when the queue has `count` more completions.
void poll(ibv_cq *cq, int count)
{
	ibv_wc wc[16];
	while (count > 0) {
		const int n = ibv_poll_cq(cq, std::min(count, 16), wc);
		if (n < 0)
			fail("ibv_poll_cq");
		for (int i = 0; i < n; ++i)
			if (wc[i].status != IBV_WC_SUCCESS) {
				std::fprintf(stderr, "a completion has the status %s\n",
					     ibv_wc_status_str(wc[i].status));
				std::exit(1);
			}
		count -= n;
	}
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 6)
		return std::fputs("usage: one-process DEVICE GID KIND BYTES COUNT\n", stderr), 2;
	const std::string_view kind = argv[3];
	const int index = std::atoi(argv[2]), count = std::atoi(argv[5]) / window * window;
	const auto length = std::size_t(std::atoll(argv[4]));
	const bool sends = kind == "send" || kind == "ud" || kind == "srq" || kind == "xrc";
	const bool xrc = kind == "xrc", shared = xrc || kind == "srq";
	const bool is_dma_buffer = kind == "dmabuf";
	if ((!sends && kind != "write" && kind != "read" && kind != "list" && kind != "uc" &&
	     kind != "odp" && !is_dma_buffer) ||
	    count <= 0)
		return std::fputs("one-process: an unknown KIND, or a COUNT below 64\n", stderr), 2;

	ibv_context *context = open_device(argv[1]);
	ibv_pd *pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
	ibv_gid gid;
	if (ibv_query_gid(context, 1, index, &gid))
		fail("ibv_query_gid");
	ibv_cq *sent = made(ibv_create_cq(context, window, nullptr, nullptr, 0), "ibv_create_cq");
	ibv_cq *received =
		made(ibv_create_cq(context, window, nullptr, nullptr, 0), "ibv_create_cq");
	Buffer from(length, is_dma_buffer), to(length, is_dma_buffer);
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | (kind == "odp" ? IBV_ACCESS_ON_DEMAND : 0);
	from.register_at(pd, access);
	to.register_at(pd, access);

	ibv_xrcd *domain = nullptr;
	ibv_srq *srq = nullptr;
	if (xrc) {
		ibv_xrcd_init_attr attr{};
		attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
		attr.fd = -1;
		attr.oflags = O_CREAT;
		domain = made(ibv_open_xrcd(context, &attr), "ibv_open_xrcd");
	}
	if (shared) {
		ibv_srq_init_attr_ex attr{};
		attr.attr = {window, 1, 0};
		attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
		attr.pd = pd;
		attr.srq_type = xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
		if (xrc) {
			attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
			attr.xrcd = domain;
			attr.cq = received;
		}
		srq = made(ibv_create_srq_ex(context, &attr), "ibv_create_srq_ex");
	}

	ibv_qp_init_attr_ex init{};
	init.send_cq = init.recv_cq = sent;
	init.cap = {window, window, 1, 1, 0};
	init.qp_type = kind == "uc"   ? IBV_QPT_UC
		       : kind == "ud" ? IBV_QPT_UD
		       : xrc	      ? IBV_QPT_XRC_SEND
				      : IBV_QPT_RC;
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	init.pd = pd;
	ibv_qp *sender = made(ibv_create_qp_ex(context, &init), "ibv_create_qp_ex");
	init.recv_cq = received;
	init.srq = xrc ? nullptr : srq;
	if (xrc) {
		init.qp_type = IBV_QPT_XRC_RECV;
		init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		init.xrcd = domain;
	}
	ibv_qp *receiver = made(ibv_create_qp_ex(context, &init), "ibv_create_qp_ex");
	connect(sender, gid, index, receiver->qp_num);
	connect(receiver, gid, index, sender->qp_num);

	ibv_sge source = from.sge(length), target = to.sge(to.bytes);
	ibv_recv_wr receive{};
	receive.sg_list = &target;
	receive.num_sge = 1;
	ibv_send_wr request{};
	request.sg_list = &source;
	request.num_sge = 1;
	request.opcode = sends		  ? IBV_WR_SEND
			 : kind == "read" ? IBV_WR_RDMA_READ
					  : IBV_WR_RDMA_WRITE;
	if (xrc) {
		std::uint32_t number = 0;
		done(ibv_get_srq_num(srq, &number), "ibv_get_srq_num");
		request.qp_type.xrc.remote_srqn = number;
	}
	if (kind == "ud") {
		ibv_ah_attr attr = way(gid, index);
		request.wr.ud = {made(ibv_create_ah(pd, &attr), "ibv_create_ah"), receiver->qp_num,
				 qkey};
	} else {
		request.wr.rdma = {reinterpret_cast<std::uintptr_t>(to.memory), to.mr->rkey};
	}

	std::vector<ibv_send_wr> requests(kind == "list" ? in_list : 1, request);
	for (std::size_t n = 1; n < requests.size(); ++n)
		requests[n - 1].next = &requests[n];
	const int calls = window / static_cast<int>(requests.size());

	// The first window is for what the first messages do once.
	std::chrono::steady_clock::time_point begin;
	for (int i = -window; i < count; i += window) {
		if (i == 0)
			begin = std::chrono::steady_clock::now();
		for (int n = 0; sends && n < window; ++n) {
			ibv_recv_wr *bad = nullptr;
			done(shared ? ibv_post_srq_recv(srq, &receive, &bad)
				    : ibv_post_recv(receiver, &receive, &bad),
			     "ibv_post_recv");
		}
		for (int n = calls; n > 0; --n) {
			ibv_send_wr *bad = nullptr;
			requests.back().send_flags = n == 1 ? IBV_SEND_SIGNALED : 0;
			done(ibv_post_send(sender, requests.data(), &bad), "ibv_post_send");
		}
		poll(sent, 1);
		if (sends)
			poll(received, window);
	}
	const std::chrono::duration<double, std::nano> time =
		std::chrono::steady_clock::now() - begin;
	std::printf("%.1f\n", time.count() / count);
	return 0;
}
