// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The example "hello" of libpeal with libibverbs and librdmacm alone, for the page that compares
 * the two. It does the same and no more: a failure is one line. Start it alone, and then with the
 * address. It waits for ever where the other has a deadline.
 */
#include <rdma/rdma_verbs.h>

#include <endian.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

/* What each end tells the other: where it may write. */
struct region {
	std::uint64_t address;
	std::uint64_t size;
	std::uint32_t key;
};

static void check(bool good, const char *what)
{
	if (good)
		return;
	std::perror(what);
	std::exit(1);
}

static ibv_wc next(int (*get)(rdma_cm_id *, ibv_wc *), rdma_cm_id *id)
{
	ibv_wc wc;

	check(get(id, &wc) == 1, "no completion");
	if (wc.status) {
		std::puts(ibv_wc_status_str(wc.status));
		std::exit(1);
	}
	return wc;
}

int main(int argc, char **argv)
{
	rdma_addrinfo hints{}, *to;
	ibv_qp_init_attr attr{};
	rdma_cm_id *id, *listener;

	hints.ai_flags = argc > 1 ? 0 : RAI_PASSIVE;
	hints.ai_port_space = RDMA_PS_TCP;
	check(!rdma_getaddrinfo(argc > 1 ? argv[1] : nullptr, "7174", &hints, &to), "the address");
	attr.cap = {.max_send_wr = 2,
		    .max_recv_wr = 1,
		    .max_send_sge = 1,
		    .max_recv_sge = 1,
		    .max_inline_data = 0};
	attr.qp_type = IBV_QPT_RC;
	attr.sq_sig_all = 1;
	check(!rdma_create_ep(&id, to, nullptr, &attr), "the device");
	rdma_freeaddrinfo(to);
	listener = id;
	if (argc == 1)
		check(!rdma_listen(listener, 1) && !rdma_get_request(listener, &id), "listening");

	constexpr std::size_t size = 4096;
	char *mem = static_cast<char *>(std::calloc(1, size));
	check(mem, "memory");
	ibv_mr *mr = rdma_reg_write(id, mem, size);
	check(mr, "registering memory");
	/* Before the peer knows the queue pair. The immediate value needs no buffer. */
	check(!rdma_post_recvv(id, nullptr, nullptr, 0), "a receive");

	region mine{htobe64(reinterpret_cast<std::uintptr_t>(mem)), htobe64(size),
		    htobe32(mr->rkey)};
	region theirs{};
	rdma_conn_param param{};
	param.private_data = &mine;
	param.private_data_len = sizeof(mine);
	param.retry_count = 7;
	param.rnr_retry_count = 7;
	check(!(argc > 1 ? rdma_connect(id, &param) : rdma_accept(id, &param)), "connecting");

	if (argc > 1) {
		constexpr std::string_view text = "hello";
		const rdma_conn_param &answer = id->event->param.conn;

		check(answer.private_data_len >= sizeof(theirs), "the peer's region");
		std::memcpy(&theirs, answer.private_data, sizeof(theirs));
		check(be64toh(theirs.size) >= text.size(), "the peer's region is too short");
		text.copy(mem, text.size());
		ibv_sge sge{reinterpret_cast<std::uintptr_t>(mem), text.size(), mr->lkey};
		ibv_send_wr tell{}, write{}, *bad;
		tell.opcode = IBV_WR_SEND_WITH_IMM;
		tell.imm_data = htobe32(text.size());
		write.opcode = IBV_WR_RDMA_WRITE;
		write.sg_list = &sge;
		write.num_sge = 1;
		write.wr.rdma.remote_addr = be64toh(theirs.address);
		write.wr.rdma.rkey = be32toh(theirs.key);
		write.next = &tell;
		errno = ibv_post_send(id->qp, &write, &bad);
		check(!errno, "posting");
		next(rdma_get_send_comp, id);
		next(rdma_get_send_comp, id);
	} else {
		next(rdma_get_recv_comp, id);
		std::puts(mem);
	}
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	std::free(mem);
	rdma_destroy_ep(id);
	if (argc == 1)
		rdma_destroy_ep(listener);
	return 0;
}
