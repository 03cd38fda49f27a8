// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The limits of a device's objects for programs (quota.c), for every kind of object, and of the
 * memory for their rings (page_quota.c).
 *
 * Holds: Greedy contexts of one user and of several users are limited. Other users and the kernel's
 * users get their part. Everything that was taken can be given back.
 * Does not hold: the callers of the code (fairness/greedy_program).
 */
#include "../catch.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <vector>

#include "kernel_parts.hpp"

namespace {

/* The total of each kind, in the order of enum peal_quota_kind. */
constexpr std::uint64_t everything[] = {1 << 20,  1 << 20, 1 << 20, 7 << 9,  0x7fffff - 0x10 + 1,
					0xffffff, 1 << 20, 4096,    1 << 14, 1 << 11};
static_assert(std::size(everything) == PEAL_QUOTA_KINDS);

/* A device. At its end nothing may be missing. */
class Quota {
public:
	/* @allocations: how many outlive it */
	explicit Quota(long allocations = 0) : allocations_(allocations)
	{
		shim_warnings = 0;
		peal_faults_init(&faults_);
		peal_quota_init(&quota_, &limits_, &faults_);
	}
	~Quota()
	{
		peal_quota_end(&quota_);
		CHECK(shim_warnings == 0);
		peal_faults_end(&faults_);
		CHECK(shim_allocations == allocations_);
	}
	Quota(const Quota &) = delete;
	Quota &operator=(const Quota &) = delete;
	peal_quota *operator&() { return &quota_; }
	peal_account *kernel() { return &quota_.kernel; }
	peal_faults *faults() { return &faults_; }
	void set(peal_limit limit, std::uint32_t most) { limits_.most[limit] = most; }

private:
	/* What an administrator has not lowered. */
	static constexpr peal_limits top()
	{
		peal_limits limits{};

		for (auto &most : limits.most)
			most = UINT32_MAX;
		return limits;
	}

	peal_limits limits_ = top();
	peal_faults faults_{};
	peal_quota quota_{};
	long allocations_;
};

void become(std::uint32_t uid)
{
	shim_uid = {uid};
}

class Context {
public:
	explicit Context(Quota &quota) { REQUIRE(peal_quota_open(&quota, &account_) == 0); }
	~Context()
	{
		for (int i = 0; i < PEAL_QUOTA_KINDS; i++)
			while (account_.held[i])
				peal_quota_give(&account_, static_cast<peal_quota_kind>(i));
		peal_quota_close(&account_);
	}
	Context(const Context &) = delete;
	Context &operator=(const Context &) = delete;
	/* Return: how many it got of `most`. */
	std::uint32_t take(peal_quota_kind kind, std::uint32_t most = UINT32_MAX)
	{
		std::uint32_t taken = 0;

		while (taken < most && !peal_quota_take(&account_, kind))
			taken++;
		return taken;
	}
	peal_account *operator&() { return &account_; }

private:
	peal_account account_{};
};

/* All but XRC domains, which have an account each. */
peal_quota_kind any_kind()
{
	return GENERATE(PEAL_QUOTA_PD, PEAL_QUOTA_CQ, PEAL_QUOTA_SRQ, PEAL_QUOTA_QP, PEAL_QUOTA_KEY,
			PEAL_QUOTA_AH, PEAL_QUOTA_GROUP, PEAL_QUOTA_DM, PEAL_QUOTA_FLOW);
}

/* A user opens context after context, until a new one gets nothing. */
std::uint64_t take_all(Quota &quota, std::deque<Context> &contexts, peal_quota_kind kind)
{
	std::uint64_t sum = 0;

	for (;;) {
		const auto taken = contexts.emplace_back(quota).take(kind);

		sum += taken;
		if (!taken)
			return sum;
	}
}

} // namespace

TEST_CASE("an administrator lets programs find no memory, but not the kernel's users", "[quota]")
{
	const auto kind = any_kind();
	Quota quota;
	peal_fault fault{};
	u32 id;

	fault.kind = PEAL_NL_FAULT_KIND_NO_MEMORY;
	fault.opcodes = UINT32_MAX;
	fault.count = UINT64_MAX;
	fault.every = 2;
	become(1000);
	Context context(quota);
	peal_faults_switch(quota.faults(), true);
	REQUIRE(peal_faults_add(quota.faults(), &fault, &id) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(peal_quota_take(&context, kind) == 0);
		CHECK(peal_quota_take(quota.kernel(), kind) == 0);
		CHECK(peal_quota_take(&context, kind) == -ENOMEM);
		peal_quota_give(quota.kernel(), kind);
	}
	peal_faults_remove(quota.faults(), 0);
	CHECK(context.take(kind, 2) == 2);
}

TEST_CASE("all programs together have no more than an administrator allows", "[quota]")
{
	const auto [kind, limit] = GENERATE(std::pair(PEAL_QUOTA_QP, PEAL_LIMIT_QP),
					    std::pair(PEAL_QUOTA_CQ, PEAL_LIMIT_CQ),
					    std::pair(PEAL_QUOTA_KEY, PEAL_LIMIT_MR));
	Quota quota;

	become(1000);
	Context first(quota), second(quota);
	quota.set(limit, 10);
	CHECK(first.take(kind, 7) == 7);
	become(1001);
	Context other(quota);
	CHECK(other.take(kind) == 3);
	CHECK(second.take(kind) == 0);
	CHECK(peal_quota_take_some(&second, kind, 1) == -ENOSPC);
	/* The kernel's users are no programs, and the other kinds have limits of their own. */
	CHECK(peal_quota_take(quota.kernel(), kind) == 0);
	peal_quota_give(quota.kernel(), kind);
	CHECK(second.take(PEAL_QUOTA_PD, 20) == 20);
	/* A higher limit holds at once, and a lower one takes nothing away. */
	quota.set(limit, 12);
	CHECK(peal_quota_take_some(&second, kind, 3) == -ENOSPC);
	CHECK(second.take(kind) == 2);
	quota.set(limit, 5);
	CHECK(second.take(kind) == 0);
	peal_quota_give_some(&first, kind, 7);
	CHECK(peal_quota_take(&first, kind) == -ENOSPC);
	peal_quota_give(&second, kind);
	CHECK(first.take(kind) == 1);
}

TEST_CASE("a context alone reaches its limit, and not more", "[quota]")
{
	const auto kind = any_kind();
	Quota quota;
	become(1000);
	Context context(quota);

	CHECK(context.take(kind) == peal_quota_limit(kind));
	CHECK(peal_quota_take(&context, kind) == -ENOSPC);
	peal_quota_give(&context, kind);
	CHECK(context.take(kind) == 1);
}

TEST_CASE("the contexts of one user never have more than half", "[quota]")
{
	const auto kind = any_kind();
	const auto limit = peal_quota_limit(kind);
	Quota quota;
	std::deque<Context> greedy;
	become(1000);

	CHECK(take_all(quota, greedy, kind) <= everything[kind] / 2);
	/* The users that come later get as much as if they were alone. */
	become(1001);
	Context other(quota);
	CHECK(other.take(kind) >= limit / 2);
	/* They leave half of that to the users after them. */
	std::deque<Context> second;
	take_all(quota, second, kind);
	become(1002);
	Context third(quota);
	CHECK(third.take(kind) >= limit / 4);
}

TEST_CASE("some greedy contexts leave others of their user a part", "[quota]")
{
	const auto kind = any_kind();
	Quota quota;
	std::deque<Context> greedy;
	become(1000);

	for (int i = 0; i < 10; i++)
		greedy.emplace_back(quota).take(kind);
	Context late(quota);
	const auto part = std::min<std::uint64_t>(peal_quota_limit(kind), everything[kind] / 120);
	CHECK(late.take(kind) >= part);
}

TEST_CASE("programs do not get what is the kernel's, nor the kernel's users what is theirs",
	  "[quota]")
{
	const auto kind = any_kind();
	Quota quota;
	std::deque<Context> greedy;
	std::uint64_t programs = 0, kernel = 0;

	for (std::uint32_t uid = 0; uid < 40; uid++) {
		become(uid);
		programs += take_all(quota, greedy, kind);
	}
	CHECK(peal_quota_take(&greedy.front(), kind) == -ENOSPC);
	while (!peal_quota_take(quota.kernel(), kind))
		kernel++;
	CHECK(kernel >= everything[kind] / 9);
	CHECK(programs + kernel <= everything[kind]);
	greedy.clear();
	become(7);
	Context program(quota);
	CHECK(program.take(kind) == peal_quota_limit(kind));
	while (kernel--)
		peal_quota_give(quota.kernel(), kind);
}

TEST_CASE("XRC domains count for their user", "[quota]")
{
	Quota quota;
	std::deque<Context> greedy, others;
	become(1000);
	const auto half = take_all(quota, greedy, PEAL_QUOTA_XRCD);

	CHECK(half == everything[PEAL_QUOTA_XRCD] / 2);
	become(1001);
	CHECK(take_all(quota, others, PEAL_QUOTA_XRCD) == half / 2);
	CHECK(peal_quota_take(quota.kernel(), PEAL_QUOTA_XRCD) == -ENOSPC);
}

TEST_CASE("ids inside of a user namespace count as its maker", "[quota]")
{
	auto *const initial = shim_user_ns;
	user_namespace outer{initial, {1000}}, inner{&outer, {100001}};
	Quota quota;
	std::deque<Context> greedy;

	become(1000);
	const auto half = take_all(quota, greedy, PEAL_QUOTA_GROUP);
	for (auto *ns : {&outer, &inner}) {
		shim_user_ns = ns;
		become(100000);
		CHECK(Context(quota).take(PEAL_QUOTA_GROUP) == 0);
	}
	shim_user_ns = initial;
	CHECK(half > 0);
	CHECK(Context(quota).take(PEAL_QUOTA_GROUP) > 0);
}

TEST_CASE("an object that gets another holder is counted once", "[quota]")
{
	Quota quota;
	become(1000);
	Context from(quota), to(quota);
	const auto full = to.take(PEAL_QUOTA_GROUP);

	CHECK(from.take(PEAL_QUOTA_GROUP, 1) == 1);
	peal_quota_move(&from, &to, PEAL_QUOTA_GROUP);
	/* This goes beyond its limit, and then it cannot take more. */
	peal_quota_give(&to, PEAL_QUOTA_GROUP);
	CHECK(peal_quota_take(&to, PEAL_QUOTA_GROUP) == -ENOSPC);
	CHECK(full == peal_quota_limit(PEAL_QUOTA_GROUP));
}

TEST_CASE("no memory for a new user", "[quota]")
{
	Quota quota;
	peal_account account{};

	shim_fail_at = GENERATE(1, 2);
	CHECK(peal_quota_open(&quota, &account) == -ENOMEM);
	CHECK(shim_fail_at == 0);
}

namespace {

/* A context's rings. What it took is given back at the end. */
class Rings {
public:
	explicit Rings(Quota &quota) : context_(quota) {}
	~Rings()
	{
		while (!held_.empty())
			free(true);
	}
	Rings(const Rings &) = delete;
	Rings &operator=(const Rings &) = delete;
	bool take(std::uint64_t pages)
	{
		auto *const user = peal_page_quota_take(account(), pages, &use);

		if (user == ERR_PTR(-ENOSPC))
			return false;
		held_.push_back({user, pages});
		return true;
	}
	/* Return: how many pages it got, in the largest pieces that it could get. */
	std::uint64_t take_all()
	{
		std::uint64_t sum = 0;

		for (std::uint64_t piece = shim_pages; piece; piece /= 2)
			while (take(piece))
				sum += piece;
		return sum;
	}
	/* A ring is destroyed, and its mapping is unmapped or stays. */
	peal_page_user *free(bool unmapped)
	{
		const auto ring = held_.back();

		held_.pop_back();
		peal_page_quota_drop(account(), ring.pages);
		if (unmapped)
			peal_page_quota_give(ring.user, ring.pages);
		return ring.user;
	}
	peal_page_use use{};

private:
	struct Ring {
		peal_page_user *user;
		std::uint64_t pages;
	};
	peal_page_account *account() { return &(&context_)->pages; }

	Context context_;
	std::vector<Ring> held_;
};

std::uint64_t take_all_pages(Quota &quota, std::deque<Rings> &contexts)
{
	std::uint64_t sum = 0;

	for (;;) {
		const auto taken = contexts.emplace_back(quota).take_all();

		sum += taken;
		if (!taken)
			return sum;
	}
}

} // namespace

TEST_CASE("rings of one context, and of one user, have a limit", "[quota]")
{
	const auto half = shim_pages / 2;
	Quota quota;
	std::deque<Rings> greedy;
	become(1000);

	CHECK(peal_page_quota_limit() == (half + 9) / 10);
	CHECK(greedy.emplace_back(quota).take_all() == peal_page_quota_limit());
	CHECK(greedy.front().use.context == peal_page_quota_limit());
	CHECK(greedy.front().use.user == peal_page_quota_limit());
	CHECK(greedy.front().use.programs == peal_page_quota_limit());
	const auto sum = peal_page_quota_limit() + take_all_pages(quota, greedy);
	CHECK(sum <= half / 2);
	CHECK(sum > half / 3);
	/* Another user gets as much as if it were alone. */
	become(1001);
	CHECK(Rings(quota).take_all() >= peal_page_quota_limit() / 2);
	/* So does the first, when all is given back. */
	become(1000);
	greedy.clear();
	CHECK(Rings(quota).take_all() == peal_page_quota_limit());
}

TEST_CASE("rings of all devices are counted together", "[quota]")
{
	Quota one, two;
	std::deque<Rings> greedy;
	become(1000);
	take_all_pages(one, greedy);

	CHECK(Rings(two).take_all() == 0);
	/* Objects of the other device are another matter. */
	CHECK(Context(two).take(PEAL_QUOTA_PD) == peal_quota_limit(PEAL_QUOTA_PD));
}

TEST_CASE("a large ring is taken as a whole or not at all", "[quota]")
{
	Quota quota;
	become(1000);
	Rings rings(quota);
	const auto limit = peal_page_quota_limit();

	CHECK(!rings.take(limit + 1));
	CHECK(rings.take(limit));
	CHECK(!rings.take(1));
	rings.free(true);
	CHECK(rings.take(1));
	CHECK(!rings.take(limit));
	CHECK(rings.take(limit - 1));
}

TEST_CASE("a mapping that outlives its ring, context and device still counts", "[quota]")
{
	const auto limit = peal_page_quota_limit();
	peal_page_user *user = nullptr;
	become(1000);
	{
		Quota quota(1);
		Rings rings(quota);

		REQUIRE(rings.take(limit));
		user = rings.free(false);
		/* The context has no ring any more, but its user has the pages. */
		const auto more = rings.take_all();
		CHECK(more > 0);
		CHECK(more < limit);
	}
	Quota quota;
	const auto beside = Rings(quota).take_all();
	CHECK(beside > 0);
	CHECK(beside < limit);
	peal_page_quota_give(user, limit);
	CHECK(Rings(quota).take_all() == limit);
}

TEST_CASE("the kernel's users have pages without a limit", "[quota]")
{
	Quota quota;
	peal_page_use use{};

	CHECK(peal_page_quota_take(&quota.kernel()->pages, 1UL << 40, &use) == nullptr);
	peal_page_quota_drop(&quota.kernel()->pages, 1UL << 40);
	peal_page_quota_give(nullptr, 1UL << 40);
}

TEST_CASE("memory that the host loses leaves holders above the limit", "[quota]")
{
	Quota quota;
	become(1000);
	Rings rings(quota);
	const auto pages = shim_pages;

	REQUIRE(rings.take_all() == peal_page_quota_limit());
	shim_pages /= 4;
	rings.free(true);
	CHECK(!rings.take(1));
	shim_pages = pages;
	CHECK(rings.take(1));
}
