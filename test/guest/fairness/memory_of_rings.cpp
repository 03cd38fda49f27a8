// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 120
// run: long
// transport: any
/*
 * The memory of rings, which cannot be swapped out, has a limit for each program and user.
 *
 * Holds: A context gets the pages that the limit says, in rings of all sizes, and no more. All of
 * them come back to the last page when the rings are destroyed, the context is closed, the program
 * is killed, or the device is removed. A mapping that outlives its ring still counts. A user with
 * many contexts leaves pages to other users. Does not hold: the rule at its borders
 * (test/unit/kernel/quota.cpp).
 */
#include "commands.hpp"
#include "program.hpp"
#include "usage.hpp"

using namespace peal_test;

namespace {

constexpr uid_t a_user = 65534, another_user = 65533;
constexpr int most = 1 << 20;
constexpr long page = 4096;

long pages_of(long entries)
{
	return (PEAL_CQ_RING_OFFSET + entries * long(sizeof(peal_cqe)) + page - 1) / page;
}

/* Half of the memory is for rings, and one context gets a tenth of that. */
long limit()
{
	return (meminfo("MemTotal") * 1024 / page / 2 + 9) / 10;
}

/* Completion queues of one context, until the kernel refuses the smallest. */
class Rings {
public:
	explicit Rings(Device &device) : device_(device) {}
	long take_all()
	{
		long pages = 0;

		for (int entries = most; entries; entries /= 2) {
			while (auto *cq = ibv_create_cq(device_, entries, nullptr, nullptr, 0)) {
				cqs_.emplace_back(cq, "create_cq");
				pages += pages_of(entries);
				/* Without a limit the host would run out of memory. */
				if (pages > 2 * limit())
					return pages;
			}
			CHECK(errno_name(errno) == "ENOSPC");
		}
		return pages;
	}
	void free_all() { cqs_.clear(); }
	Cq &smallest() { return cqs_.back(); }

private:
	Device &device_;
	std::vector<Cq> cqs_;
};

/* One page is the doorbell's. */
long take_all_once()
{
	Device device;

	return Rings(device).take_all() + 1;
}

void hold_all(const Program::Hold &hold)
{
	Device device;
	Rings rings(device);

	hold(rings.take_all());
}

} // namespace

TEST_CASE("a context gets the pages that the limit says, and they come back")
{
	Device device;
	Rings rings(device);

	CHECK(rings.take_all() + 1 == limit());
	/* Both rings exist during a resize, so it needs pages, too. */
	const int entries = rings.smallest()->cqe;
	CHECK(errno_name(ibv_resize_cq(rings.smallest(), 4096)) == "ENOSPC");
	CHECK(rings.smallest()->cqe == entries);
	/* Queue pairs and shared receive queues have rings as well. */
	{
		Device other;
		Pd pd(ibv_alloc_pd(device), "alloc_pd");
		ibv_srq_init_attr attr{};

		attr.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
		CHECK(ibv_create_srq(pd, &attr) == nullptr);
		CHECK(errno_name(errno) == "ENOSPC");
		ibv_qp_init_attr qp{};
		qp.send_cq = qp.recv_cq = rings.smallest();
		qp.qp_type = IBV_QPT_RC;
		qp.cap.max_send_wr = qp.cap.max_send_sge = 1;
		CHECK(ibv_create_qp(pd, &qp) == nullptr);
		CHECK(errno_name(errno) == "ENOSPC");
		/* Another program of this user gets some. */
		CHECK(Cq(ibv_create_cq(other, 1000, nullptr, nullptr, 0), "create_cq").get());
	}
	rings.free_all();
	CHECK(rings.take_all() + 1 == limit());
	rings.free_all();
	/* The ring that a resize replaces stays mapped for its control words. The new one counts.
	 */
	{
		Cq cq(ibv_create_cq(device, 1, nullptr, nullptr, 0), "create_cq");
		CHECK(errno_name(ibv_resize_cq(cq, most / 2)) == "0");
		CHECK(rings.take_all() + 1 < limit() - pages_of(most / 4));
		rings.free_all();
	}
	CHECK(rings.take_all() + 1 == limit());
}

TEST_CASE("the pages of a closed context and of a killed program come back")
{
	CHECK(take_all_once() == limit());
	CHECK(take_all_once() == limit());
	{
		const Program killed(0, hold_all);

		CHECK(killed.number() + 1 == limit());
		/* Both are programs of one user. */
		CHECK(take_all_once() < limit());
		killed.kill();
	}
	CHECK(take_all_once() == limit());
}

TEST_CASE("a mapping that outlives its ring counts")
{
	Device device;
	Rings rings(device);
	Cq cq(ibv_create_cq(device, most / 2, nullptr, nullptr, 0), "create_cq");
	{
		/* It has a copy of the mapping. */
		const Program heir(0, [](const auto &hold) { hold(0); });

		cq.reset();
		const long beside = rings.take_all() + 1;
		/* It does not count for the context any more. */
		CHECK(beside < limit());
		CHECK(beside > limit() - pages_of(most / 2));
		rings.free_all();
	}
	CHECK(rings.take_all() + 1 == limit());
}

TEST_CASE("the pages of a removed device come back")
{
	const std::string name = device_name();
	const std::string netdev =
		read_command("rdma link show " + name +
			     "/1 | sed -n 's/.* netdev \\([^ ]*\\).*/\\1/p' | tr -d '\n'");
	long beside = 0;
	{
		const Program survivor(0, [](const auto &hold) {
			tolerate_destroy_errors();
			hold_all(hold);
		});

		REQUIRE(run("rdma link del " + name) == 0);
		REQUIRE(run("rdma link add " + name + " type peal netdev " + netdev) == 0);
		CHECK(eventually([&] { return open_device(name) != nullptr; }));
		/* The program still has the mappings. */
		beside = take_all_once();
		CHECK(beside < limit());
		CHECK(beside > 1);
	}
	CHECK(take_all_once() == limit());
}

TEST_CASE("a user with many contexts leaves pages to other users")
{
	const Program greedy(a_user, [](const auto &hold) {
		std::vector<std::unique_ptr<Device>> devices;
		std::vector<Rings> contexts;
		long sum = 0, taken = 1;

		while (taken && sum < 6 * limit()) {
			auto *context = open_device(device_name());

			/* The doorbell's page is refused, too. */
			if (!context)
				break;
			ibv_close_device(context);
			devices.push_back(std::make_unique<Device>());
			taken = contexts.emplace_back(*devices.back()).take_all();
			sum += taken;
		}
		hold(sum);
	});
	const Program late(another_user, hold_all);

	std::printf("%ld contexts' worth of pages for one user, %ld pages for the other\n",
		    greedy.number() / limit(), late.number());
	CHECK(greedy.number() > 4 * limit());
	CHECK(greedy.number() <= 5 * limit());
	CHECK(late.number() + 1 >= limit() / 2);
}
