// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The limits of a device's objects for programs (quota.c), for every kind of object.
 *
 * Holds: Greedy contexts of one user and of several users are limited. Other users and the kernel's
 * users get their part. Everything that was taken can be given back.
 * Does not hold: the callers of the code (fairness/greedy_program).
 */
#include "../catch.hpp"

#include <algorithm>
#include <deque>
#include <iterator>

#include "kernel_parts.hpp"

namespace {

/* The total of each kind, in the order of enum peal_quota_kind. */
constexpr std::uint64_t everything[] = {1 << 20,  1 << 20, 1 << 20, 7 << 9,  0x7fffff - 0x10 + 1,
					0xffffff, 1 << 20, 4096,    1 << 14, 1 << 11,
					1 << 18,  1 << 14};
static_assert(std::size(everything) == PEAL_QUOTA_KINDS);

/* A device. At its end nothing may be missing. */
class Quota {
public:
	Quota()
	{
		shim_warnings = 0;
		peal_quota_init(&quota_);
	}
	~Quota()
	{
		peal_quota_end(&quota_);
		CHECK(shim_warnings == 0);
		CHECK(shim_allocations == 0);
	}
	Quota(const Quota &) = delete;
	Quota &operator=(const Quota &) = delete;
	peal_quota *operator&() { return &quota_; }
	peal_account *kernel() { return &quota_.kernel; }

private:
	peal_quota quota_{};
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
			PEAL_QUOTA_AH, PEAL_QUOTA_GROUP, PEAL_QUOTA_DM, PEAL_QUOTA_FLOW,
			PEAL_QUOTA_WQ, PEAL_QUOTA_IND_TABLE);
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

	shim_no_memory = true;
	CHECK(peal_quota_open(&quota, &account) == -ENOMEM);
	shim_no_memory = false;
}
