// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Objects that a program imports: a device, a protection domain, a memory region.
 *
 * Holds: Another process that has the descriptor of an open device makes queue pairs in the same
 * protection domain, and uses the regions that are there. Its kicks and doorbells work, beside
 * those of the first process. Objects that it makes go with it; imported ones stay. Handles
 * without an object are refused.
 * Does not hold: the limits of a context, which both share (verbs/states_and_limits).
 */
#include "program.hpp"
#include "verbs.hpp"

#include <sys/wait.h>

#include <atomic>

using namespace peal_test;

namespace {

constexpr std::size_t bytes = 4 * page_bytes;
constexpr unsigned messages = 100;

/* What the two processes tell each other, in shared memory. */
struct Board {
	std::atomic<std::uint32_t> first_qpn = 0, second_qpn = 0;
	std::atomic<int> done = 0;
};

template <class T>
T *shared_memory(std::size_t size)
{
	void *memory =
		mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		throw_errno("mmap");
	return static_cast<T *>(memory);
}

/* All that a process imports. Unimporting destroys nothing. */
struct Imported {
	Imported(int fd, std::uint32_t pd_handle, std::uint32_t mr_handle)
		: context(ibv_import_device(dup(fd)), "import_device")
	{
		pd = ibv_import_pd(context, pd_handle);
		if (!pd)
			throw_errno("import_pd");
		mr = ibv_import_mr(pd, mr_handle);
		if (!mr)
			throw_errno("import_mr");
	}
	~Imported()
	{
		ibv_unimport_mr(mr);
		ibv_unimport_pd(pd);
	}
	Context context;
	ibv_pd *pd = nullptr;
	ibv_mr *mr = nullptr;
};

void wait_for(const std::atomic<std::uint32_t> &word)
{
	if (!eventually([&] { return word.load() != 0; }))
		throw std::runtime_error("the other process says nothing");
}

/* Sends all of the buffer's first half into its second half, again and again. */
void write_from(ibv_qp *qp, ibv_cq *cq, std::uint8_t *buffer, const ibv_mr &mr)
{
	const auto address = reinterpret_cast<std::uintptr_t>(buffer);

	for (unsigned i = 0; i < messages; i++) {
		fill_pattern({buffer, bytes / 2}, i);
		Send write(IBV_WR_RDMA_WRITE, {{address, bytes / 2, mr.lkey}});
		post(qp, write.id(i).remote(address + bytes / 2, mr.rkey));
		if (wait_success(cq)[0].wr_id != i)
			throw std::runtime_error("wrong wr_id");
		const auto wrong = difference({buffer + bytes / 2, bytes / 2}, {buffer, bytes / 2});
		if (!wrong.empty())
			throw std::runtime_error(wrong);
	}
}

} // namespace

TEST_CASE("another process uses the domain and the region of this one")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	auto *buffer = shared_memory<std::uint8_t>(bytes);
	auto *board = new (shared_memory<void>(page_bytes)) Board;
	Mr mr(ibv_reg_mr(pd, buffer, bytes, all_access), "reg_mr");
	Cq cq = create_cq(device, 64);
	Qp qp = create_qp(pd, cq, cq);

	const pid_t child = spawn([&] {
		Imported imported(device.context()->cmd_fd, pd->handle, mr->handle);
		if (imported.mr->lkey != mr->lkey || imported.mr->rkey != mr->rkey ||
		    imported.mr->length != bytes)
			throw std::runtime_error("the imported region differs");
		Cq own_cq = create_cq(imported.context, 64);
		Qp own = create_qp(imported.pd, own_cq, own_cq);
		board->second_qpn = own->qp_num;
		wait_for(board->first_qpn);
		connect_to(own, device, board->first_qpn);
		write_from(own, own_cq, buffer, *imported.mr);
		return 0;
	});
	wait_for(board->second_qpn);
	connect_to(qp, device, board->second_qpn);
	board->first_qpn = qp->qp_num;
	CHECK(end_of(child) == 0);

	/* The child is gone, and with it nothing of ours. */
	Pair pair(device);
	Region from(pair.a.pd, page_bytes), to(pair.b.pd, page_bytes);
	Send write(IBV_WR_RDMA_WRITE, {from.sge(0, 64)});
	post(pair.a.qp, write.remote(to.address(), to.rkey()));
	wait_success(pair.a.send_cq);
	Qp loop = create_qp(pd, cq, cq);
	connect_to(loop, device, loop->qp_num);
	write_from(loop, cq, buffer, *mr.get());
}

TEST_CASE("two imports in one process work side by side")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	auto *buffer = shared_memory<std::uint8_t>(bytes);
	Mr mr(ibv_reg_mr(pd, buffer, bytes, all_access), "reg_mr");
	Imported one(device.context()->cmd_fd, pd->handle, mr->handle);
	{
		Imported two(device.context()->cmd_fd, pd->handle, mr->handle);
		for (auto *imported : {&one, &two}) {
			Cq cq = create_cq(imported->context, 64);
			Qp qp = create_qp(imported->pd, cq, cq);
			connect_to(qp, device, qp->qp_num);
			write_from(qp, cq, buffer, *imported->mr);
		}
	}
	Cq cq = create_cq(one.context, 64);
	Qp qp = create_qp(one.pd, cq, cq);
	connect_to(qp, device, qp->qp_num);
	write_from(qp, cq, buffer, *one.mr);
}

TEST_CASE("handles that name nothing are refused")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Context context(ibv_import_device(dup(device.context()->cmd_fd)), "import_device");

	ibv_pd *domain = ibv_import_pd(context, pd->handle);
	REQUIRE(domain);
	errno = 0;
	CHECK(ibv_import_mr(domain, 0x7ffffff0) == nullptr);
	CHECK(errno_name(errno) == "ENOENT");
	ibv_unimport_pd(domain);

	/* A domain that does not exist shows with the first object in it. */
	ibv_pd *wrong = ibv_import_pd(context, 0x7ffffff0);
	if (wrong) {
		Cq cq = create_cq(context, 8);
		auto init = init_attributes(wrong, cq, cq, {});
		CHECK(ibv_create_qp_ex(context, &init) == nullptr);
		ibv_unimport_pd(wrong);
	}

	int ends[2];
	REQUIRE(pipe(ends) == 0);
	CHECK(ibv_import_device(ends[0]) == nullptr);
	close(ends[1]);
}
