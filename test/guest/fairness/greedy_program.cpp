// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
// run: long
// transport: any
/*
 * A program that takes all that it can get leaves something to other programs.
 *
 * Holds: A context has no more address handles and multicast groups than the device says, and only
 * some of the places in one group. A greedy program leaves groups to other programs of its user. A
 * user with many contexts leaves groups to other users, and the connection manager still connects.
 * Address handles are charged to the memory control group.
 * Does not hold: the rule for every kind of object (test/unit/kernel/quota.cpp), limits of
 * the rdma control group (hostile/only_own_memory).
 */
#include "commands.hpp"
#include "datagram.hpp"
#include "innocent.hpp"
#include "program.hpp"
#include "usage.hpp"

using namespace peal_test;

namespace {

constexpr uid_t a_user = 65534, another_user = 65533;

/* The program stops here and the test fails, because it has met no limit yet. */
constexpr long enough = 40000;

/* ------------------------------------------------------------------ address handles */

struct Handles {
	explicit Handles(Device &on) : device(on), pd(ibv_alloc_pd(on), "alloc_pd") {}
	/* Return: how many it got of `most`. errno has the reason for less. */
	long take(long most)
	{
		auto attr = ah_attr(static_cast<std::uint8_t>(device.gid_index()), device.gid());

		for (long taken = 0; taken < most; taken++) {
			auto *ah = ibv_create_ah(pd, &attr);

			if (!ah)
				return taken;
			handles.emplace_back(ah, "create_ah");
		}
		return most;
	}
	Device &device;
	Pd pd;
	std::vector<Ah> handles;
};

/* --------------------------------------------------------------------------- groups */

/* 239.66.0.0/16. Each program has a range of its own unless it asks for another one's. */
ibv_gid group(long number)
{
	ibv_gid gid{};

	gid.raw[10] = gid.raw[11] = 0xff;
	gid.raw[12] = 239;
	gid.raw[13] = static_cast<std::uint8_t>(66 + (number >> 16));
	gid.raw[14] = static_cast<std::uint8_t>(number >> 8);
	gid.raw[15] = static_cast<std::uint8_t>(number);
	return gid;
}

/* A context with a queue pair that stays in its groups until this object ends. */
class Member {
public:
	Member() : endpoint_(device_, ud_options()) {}
	~Member()
	{
		while (!groups_.empty())
			leave(groups_.back());
	}
	Member(const Member &) = delete;
	Member &operator=(const Member &) = delete;
	std::string join(long number)
	{
		const auto gid = group(number);
		const int error = ibv_attach_mcast(endpoint_.qp, &gid, 0);

		if (!error)
			groups_.push_back(number);
		return errno_name(error);
	}
	void leave(long number)
	{
		const auto gid = group(number);

		groups_.erase(std::find(groups_.begin(), groups_.end(), number));
		must(ibv_detach_mcast(endpoint_.qp, &gid, 0), "detach_mcast");
	}
	/* Return: how many groups it joined, counted from that number. */
	long take_all(long first)
	{
		for (long taken = 0;; taken++) {
			const auto answer = join(first + taken);

			if (answer == "ENOSPC" || taken == enough)
				return taken;
			if (answer != "0")
				throw std::runtime_error("attach_mcast says " + answer);
		}
	}
	Device &device() { return device_; }

private:
	Device device_;
	Endpoint endpoint_;
	std::vector<long> groups_;
};

constexpr long far_away = 1 << 16;

/* ------------------------------------------------------------- memory control group */

/* The kernel removes it when it has no member left. */
class MemoryGroup {
public:
	MemoryGroup()
	{
		if (run("mkdir -p /run/groups && mount -t cgroup2 none /run/groups && "
			"echo +memory >/run/groups/cgroup.subtree_control && mkdir " +
			folder_))
			throw std::runtime_error("cannot make a control group");
	}
	~MemoryGroup() { run("rmdir " + folder_ + "; umount /run/groups"); }
	MemoryGroup(const MemoryGroup &) = delete;
	MemoryGroup &operator=(const MemoryGroup &) = delete;
	void enter() const { std::ofstream(folder_ + "/cgroup.procs") << getpid() << std::flush; }
	/* Bytes of small kernel objects. */
	long objects() const { return number_in(folder_ + "/memory.stat", "slab_unreclaimable"); }

private:
	const std::string folder_ = "/run/groups/peal";
};

} // namespace

TEST_CASE("a context has no more address handles than the device says")
{
	Device device;
	const long limit = device.attributes().max_ah;
	Handles handles(device);

	const long taken = handles.take(enough);
	CHECK(errno_name(errno) == "ENOSPC");
	CHECK(taken == limit);
	handles.handles.pop_back();
	CHECK(handles.take(2) == 1);
	/* Other programs get theirs, even if they belong to this user. */
	Device other;
	CHECK(Handles(other).take(100) == 100);
}

TEST_CASE("a greedy context leaves groups to another program of its user")
{
	const Program greedy(a_user, [](const auto &hold) {
		Member member;
		hold(member.take_all(0));
	});
	const Program late(a_user, [](const auto &hold) {
		Member member;
		hold(member.take_all(far_away));
	});
	Device device;
	const long limit = device.attributes().max_mcast_grp;

	std::printf("the first context got %ld groups, the other %ld\n", greedy.number(),
		    late.number());
	CHECK(greedy.number() == limit);
	CHECK(late.number() == limit);
}

TEST_CASE("a user with many contexts leaves groups to other users, and connections alone")
{
	const Program greedy(a_user, [](const auto &hold) {
		std::vector<std::unique_ptr<Member>> contexts;
		long sum = 0, taken = 1;

		while (taken) {
			contexts.push_back(std::make_unique<Member>());
			taken = contexts.back()->take_all(sum);
			sum += taken;
		}
		/* The limit is one context's. */
		Handles handles(contexts.front()->device());
		handles.take(10000);
		std::printf("%zu contexts got %ld groups\n", contexts.size(), sum);
		hold(sum);
	});
	const Program late(another_user, [](const auto &hold) {
		Member member;
		Handles handles(member.device());
		if (handles.take(100) != 100)
			throw_errno("create_ah");
		hold(member.take_all(far_away));
	});

	CHECK(greedy.number() > 0);
	std::printf("the other user's context got %ld groups\n", late.number());
	CHECK(late.number() >= 100);
	CHECK(rping_connects());
}

TEST_CASE("a context has only some of the places in a group")
{
	Device device, other;
	const long limit = device.attributes().max_mcast_qp_attach;
	const auto gid = group(3 * far_away);
	std::vector<std::unique_ptr<Endpoint>> members;
	int error = 0;

	for (long taken = 0; !error && taken < enough; taken++) {
		members.push_back(std::make_unique<Endpoint>(device, ud_options()));
		error = ibv_attach_mcast(members.back()->qp, &gid, 0);
	}
	CHECK(errno_name(error) == "ENOSPC");
	members.pop_back();
	CHECK(static_cast<long>(members.size()) == limit);
	Endpoint outsider(other, ud_options());
	error = ibv_attach_mcast(outsider.qp, &gid, 0);
	CHECK(errno_name(error) == "0");
	if (!error)
		must(ibv_detach_mcast(outsider.qp, &gid, 0), "detach_mcast");
	for (const auto &member : members)
		must(ibv_detach_mcast(member->qp, &gid, 0), "detach_mcast");
}

TEST_CASE("a group counts for its oldest member")
{
	Member oldest, next;
	const long limit = oldest.device().attributes().max_mcast_grp;

	REQUIRE(oldest.take_all(0) == limit);
	/* Joining a group that exists takes nothing from the limit. */
	REQUIRE(next.take_all(far_away) == limit);
	CHECK(next.join(0) == "0");
	CHECK(oldest.join(2 * far_away) == "ENOSPC");
	oldest.leave(0);
	CHECK(oldest.join(2 * far_away) == "0");
	/* The second program now has one more group than it could have made. */
	next.leave(far_away);
	CHECK(next.join(far_away) == "ENOSPC");
	next.leave(0);
	CHECK(next.join(far_away) == "0");
}

TEST_CASE("address handles count against the memory control group")
{
	constexpr long count = 4000, smallest = 128;
	const MemoryGroup memory;
	const Program program(0, [&](const auto &hold) {
		memory.enter();
		Device device;
		Handles handles(device);

		handles.take(100);
		const long before = memory.objects();
		if (handles.take(count) != count)
			throw_errno("create_ah");
		hold(memory.objects() - before);
	});

	std::printf("%ld address handles: %ld bytes\n", count, program.number());
	CHECK(program.number() >= count * smallest);
}
