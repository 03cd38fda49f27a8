// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: direct, thorough wire
/*
 * Parent domains: the program's allocators, and the objects on a domain.
 *
 * Holds: The memory that peal keeps in the program for a queue comes from the allocators, and goes
 * back to them once. They may leave it to peal, or refuse. A domain with an object of
 * any kind cannot be deallocated, nor can its thread domain. Wrong attributes are refused.
 * Does not hold: thread domains (verbs/threads_share_objects).
 */
#include "verbs.hpp"

#include <cstdlib>

using namespace peal_test;

namespace {

enum class Answer { memory, leave_it, none };

/* The program's side. The library passes a pointer to it. */
struct Memories {
	Answer answer = Answer::memory;
	int refuse_after = -1; /* give this many, then nothing */
	int given = 0, taken_back = 0;
	bool wrong = false;
	ibv_pd *domain = nullptr;
	std::vector<void *> all;

	void check(ibv_pd *pd, std::uint64_t kind)
	{
		wrong |= pd != domain || kind >> 32 != PEAL_DRIVER_ID;
	}
};

void *give(ibv_pd *pd, void *context, std::size_t size, std::size_t alignment, std::uint64_t kind)
{
	auto &memories = *static_cast<Memories *>(context);

	memories.check(pd, kind);
	if (memories.answer == Answer::leave_it)
		return IBV_ALLOCATOR_USE_DEFAULT;
	if (memories.answer == Answer::none || memories.given == memories.refuse_after)
		return nullptr;
	void *memory =
		std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
	/* Not zeroed, as any memory may be. */
	std::memset(memory, 0xa5, size);
	memories.given++;
	memories.all.push_back(memory);
	return memory;
}

void take_back(ibv_pd *pd, void *context, void *memory, std::uint64_t kind)
{
	auto &memories = *static_cast<Memories *>(context);
	const auto found = std::find(memories.all.begin(), memories.all.end(), memory);

	memories.check(pd, kind);
	memories.wrong |= found == memories.all.end();
	if (found == memories.all.end())
		return;
	memories.all.erase(found);
	memories.taken_back++;
	std::free(memory);
}

ibv_parent_domain_init_attr attributes(ibv_pd *pd, Memories &memories)
{
	ibv_parent_domain_init_attr attr{};

	attr.pd = pd;
	attr.comp_mask =
		IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	attr.alloc = give;
	attr.free = take_back;
	attr.pd_context = &memories;
	return attr;
}

Pd make_domain(ibv_pd *pd, Memories &memories)
{
	auto attr = attributes(pd, memories);
	Pd domain(ibv_alloc_parent_domain(pd->context, &attr), "alloc_parent_domain");

	memories.domain = domain;
	return domain;
}

/* More messages than a ring has slots, so that each slot's memory is used. */
void move_data(Device &device, ibv_pd *pd)
{
	Cq cq = create_cq(device, 256);
	Qp a = create_qp(pd, cq, cq), b = create_qp(pd, cq, cq);
	Region from(pd, page_bytes), to(pd, page_bytes);

	connect(device, a, b);
	for (std::uint64_t i = 0; i < 200; i++) {
		fill_pattern(from.bytes(0, 512), i);
		post_recv(b, 1000 + i, {to.sge(0, 512)});
		post(a, Send(IBV_WR_SEND, {from.sge(0, 512)}).id(i));
		auto done = wait_success(cq, 2);
		if (done[0].wr_id > done[1].wr_id)
			std::swap(done[0], done[1]);
		REQUIRE(done[0].wr_id == i);
		REQUIRE(done[1].wr_id == 1000 + i);
		REQUIRE(difference(to.bytes(0, 512), from.bytes(0, 512)) == "");
	}
}

} // namespace

TEST_CASE("allocators give the memory of queues and get it back")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memories memories;
	Pd domain = make_domain(pd, memories);

	move_data(device, domain);
	CHECK(memories.given == 4); /* two queues of two queue pairs */
	CHECK(memories.taken_back == 4);
	CHECK_FALSE(memories.wrong);
}

TEST_CASE("allocators may leave the memory to the library")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memories memories;
	memories.answer = Answer::leave_it;
	Pd domain = make_domain(pd, memories);

	move_data(device, domain);
	CHECK(memories.taken_back == 0);
	CHECK_FALSE(memories.wrong);
}

TEST_CASE("an allocator that refuses makes the queue pair fail and loses nothing")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memories memories;
	Pd domain = make_domain(pd, memories);
	Cq cq = create_cq(device, 64);

	for (int allowed : {0, 1}) {
		auto init = init_attributes(domain, cq, cq, {});
		memories.refuse_after = memories.given + allowed;
		errno = 0;
		CHECK(ibv_create_qp_ex(device, &init) == nullptr);
		CHECK(errno_name(errno) == "ENOMEM");
		CHECK(memories.given == memories.taken_back);
	}
	memories.refuse_after = -1;
	move_data(device, domain);
	CHECK_FALSE(memories.wrong);
}

TEST_CASE("a domain whose memory is in use stays")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memories memories;
	Pd domain = make_domain(pd, memories);
	Cq cq = create_cq(device, 64);
	Qp qp = create_qp(domain, cq, cq);

	CHECK(errno_name(ibv_dealloc_pd(domain)) == "EBUSY");
	qp.reset();
	CHECK(memories.all.empty());
}

/* What is made on a domain of a thread, with the program's allocators or without. */
TEST_CASE("a domain with objects stays")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	ibv_td_init_attr td_attr{};
	ibv_td *td = ibv_alloc_td(device, &td_attr);
	REQUIRE(td);
	ibv_parent_domain_init_attr attr{};
	attr.pd = pd;
	attr.td = td;
	{
		Pd domain(ibv_alloc_parent_domain(device, &attr), "alloc_parent_domain");
		Cq cq = create_cq(device, 64);
		const auto stays = [&](const char *object) {
			INFO(object);
			const bool busy = ibv_dealloc_pd(domain) == EBUSY;
			CHECK(busy);
			CHECK(errno_name(ibv_dealloc_td(td)) == "EBUSY");
			CHECK(errno_name(ibv_dealloc_pd(pd)) == "EBUSY");
			if (!busy) { /* for what follows */
				domain.release();
				domain = Pd(ibv_alloc_parent_domain(device, &attr),
					    "alloc_parent_domain");
			}
		};

		{
			const Qp qp = create_qp(domain, cq, cq);
			stays("a queue pair");
		}
		{
			const Srq srq = create_srq(domain, 16);
			stays("a shared receive queue");
		}
		{
			ibv_cq_init_attr_ex extended{};
			extended.cqe = 16;
			extended.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
			extended.parent_domain = domain;
			ibv_cq_ex *made = ibv_create_cq_ex(device, &extended);
			REQUIRE(made);
			const Cq of_domain(ibv_cq_ex_to_cq(made), "create_cq_ex");
			stays("a completion queue");
		}
		{
			const Region region(domain, page_bytes);
			stays("a memory region");
		}
		{
			const Mw window(ibv_alloc_mw(domain, IBV_MW_TYPE_2), "alloc_mw");
			stays("a memory window");
		}
		{
			ibv_ah_attr to{};
			to.is_global = 1;
			to.port_num = 1;
			to.grh.dgid = device.gid();
			to.grh.sgid_index = static_cast<std::uint8_t>(device.gid_index());
			to.grh.hop_limit = 64;
			const Ah ah(ibv_create_ah(domain, &to), "create_ah");
			stays("an address handle");
		}
		CHECK(errno_name(ibv_dealloc_td(td)) == "EBUSY");
	}
	CHECK(ibv_dealloc_td(td) == 0);
}

TEST_CASE("a domain that did not get its queue pair goes")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	ibv_parent_domain_init_attr attr{};
	attr.pd = pd;
	Pd domain(ibv_alloc_parent_domain(device, &attr), "alloc_parent_domain");
	Cq cq = create_cq(device, 64);
	QpOptions options;
	options.send_wr = 1 << 30;
	auto init = init_attributes(domain, cq, cq, options);

	CHECK(ibv_create_qp_ex(device, &init) == nullptr);
	ibv_srq_attr shared{1U << 30, 1, 0};
	CHECK(try_create_srq(domain, shared) == nullptr);
	CHECK(ibv_reg_mr(domain, nullptr, page_bytes, 0) == nullptr);
	CHECK(ibv_dealloc_pd(domain.release()) == 0);
}

TEST_CASE("allocators come in pairs")
{
	Device device;
	Pd pd(ibv_alloc_pd(device), "alloc_pd");
	Memories memories;

	for (bool without_alloc : {true, false}) {
		auto attr = attributes(pd, memories);
		if (without_alloc)
			attr.alloc = nullptr;
		else
			attr.free = nullptr;
		errno = 0;
		CHECK(ibv_alloc_parent_domain(device, &attr) == nullptr);
		CHECK(errno_name(errno) == "EINVAL");
	}
	auto attr = attributes(pd, memories);
	attr.comp_mask |= 1 << 2;
	CHECK(ibv_alloc_parent_domain(device, &attr) == nullptr);
	CHECK(errno_name(errno) == "EINVAL");
}
