// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Faults on demand (fault.c): which messages the rules of a device hit.
 *
 * Holds: Each word of a rule selects what it says, the first rule that hits decides, and the counts
 * are right. A seed gives the same order of faults each time, and on each kernel. A device that was
 * not made for faults has no rules.
 * Does not hold: what a fault does to a message, and how an administrator makes rules
 * (tools/faults_on_demand).
 */
#include "../catch.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kernel_parts.hpp"

namespace {

constexpr std::array<u8, 16> near{1}, far{2};
constexpr u32 everything = UINT32_MAX;

/* A device. At its end nothing may be left. */
class Faults {
public:
	explicit Faults(bool on = true)
	{
		peal_faults_init(&faults_);
		peal_faults_switch(&faults_, on);
	}
	~Faults()
	{
		peal_faults_end(&faults_);
		CHECK(shim_allocations == 0);
		CHECK_FALSE(peal_faults_exist(&faults_));
	}
	Faults(const Faults &) = delete;
	Faults &operator=(const Faults &) = delete;
	peal_faults *operator&() { return &faults_; }

	int add(const peal_fault &fault) { return peal_faults_add(&faults_, &fault, &last); }
	u8 hit(u8 opcode = PEAL_OP_WRITE, u32 qpn = 17, const u8 *peer = near.data())
	{
		const peal_fault_message message{1 << PEAL_NL_FAULT_KIND_STATUS, qpn, peer, opcode};
		peal_fault fault{};

		return peal_faults_hit(&faults_, &message, &fault) ? fault.status : 0;
	}
	/* Return: "x" for each of so many messages that is hit, and "." for the others. */
	std::string order(int messages)
	{
		std::string order;

		while (messages--)
			order += hit() ? 'x' : '.';
		return order;
	}
	peal_fault_rule rule(u32 id)
	{
		peal_fault_rule rule{};

		REQUIRE(peal_faults_next(&faults_, id - 1, &rule));
		REQUIRE(rule.id == id);
		return rule;
	}

	u32 last = 0; /* number of the last rule */

private:
	peal_faults faults_{};
};

peal_fault fault(u8 status = IB_WC_REM_ACCESS_ERR)
{
	peal_fault fault{};

	fault.kind = PEAL_NL_FAULT_KIND_STATUS;
	fault.status = status;
	fault.opcodes = everything;
	fault.count = UINT64_MAX;
	fault.every = 1;
	return fault;
}

} // namespace

TEST_CASE("a device that was not made for faults has no rules", "[fault]")
{
	Faults faults(false);

	CHECK(faults.add(fault()) == -EOPNOTSUPP);
	CHECK(faults.hit() == 0);
	peal_faults_switch(&faults, true);
	CHECK_FALSE(peal_faults_exist(&faults));
	CHECK(faults.add(fault()) == 0);
	CHECK(peal_faults_exist(&faults));
	CHECK(faults.hit() == IB_WC_REM_ACCESS_ERR);
	peal_faults_switch(&faults, false);
	CHECK_FALSE(peal_faults_exist(&faults));
	CHECK(faults.hit() == 0);
}

TEST_CASE("each word of a rule selects messages", "[fault]")
{
	Faults faults;
	auto only = fault();

	only.qpn = 17;
	only.has_peer = true;
	std::copy(near.begin(), near.end(), only.peer);
	only.opcodes = 1U << PEAL_OP_WRITE | 1U << PEAL_OP_READ;
	REQUIRE(faults.add(only) == 0);
	CHECK(faults.hit() == IB_WC_REM_ACCESS_ERR);
	CHECK(faults.hit(PEAL_OP_READ) == IB_WC_REM_ACCESS_ERR);
	CHECK(faults.hit(PEAL_OP_SEND) == 0);
	CHECK(faults.hit(PEAL_OP_WRITE, 18) == 0);
	CHECK(faults.hit(PEAL_OP_WRITE, 17, far.data()) == 0);
	CHECK(faults.rule(1).seen == 2);
	CHECK(faults.rule(1).fired == 2);
}

TEST_CASE("every and count", "[fault]")
{
	Faults faults;
	auto third = fault();

	third.every = 3;
	REQUIRE(faults.add(third) == 0);
	CHECK(faults.order(9) == "..x..x..x");
	REQUIRE(peal_faults_remove(&faults, faults.last) == 0);
	third.count = 2;
	REQUIRE(faults.add(third) == 0);
	CHECK(faults.order(12) == "..x..x......");
	CHECK(faults.rule(2).seen == 12);
	CHECK(faults.rule(2).fired == 2);
	REQUIRE(peal_faults_remove(&faults, 0) == 0);
	auto first = fault();

	first.count = 1;
	REQUIRE(faults.add(first) == 0);
	CHECK(faults.order(4) == "x...");
}

TEST_CASE("a seed gives the same order a thousand times", "[fault]")
{
	Faults faults;
	auto fourth = fault();
	std::string expected;
	int others = 0;

	fourth.chance = 4;
	fourth.seed = 7;
	for (int i = 0; i < 1000; i++) {
		REQUIRE(faults.add(fourth) == 0);
		const auto order = faults.order(64);

		REQUIRE(peal_faults_remove(&faults, 0) == 0);
		if (!i)
			expected = order;
		REQUIRE(order == expected);
	}
	/* The order is the interface of a seed, so it does not change between releases. */
	CHECK(expected == ".x...x..x.x..........x....x....x....x.xx...xx.......x..x........");
	for (fourth.seed = 0; fourth.seed < 100; fourth.seed++) {
		REQUIRE(faults.add(fourth) == 0);
		others += faults.order(64) != expected;
		REQUIRE(peal_faults_remove(&faults, 0) == 0);
	}
	CHECK(others == 99);
}

TEST_CASE("a chance is what it says on average, and 1 hits each message", "[fault]")
{
	Faults faults;
	auto some = fault();

	for (const u32 chance : {1u, 2u, 10u, 1000u}) {
		const int messages = 200000;
		int hits = 0;

		some.chance = chance;
		REQUIRE(faults.add(some) == 0);
		for (int i = 0; i < messages; i++)
			hits += faults.hit() != 0;
		INFO(chance);
		CHECK(hits * chance > messages * 0.8);
		CHECK(hits * chance < messages * 1.2);
		CHECK(faults.rule(faults.last).fired == static_cast<u64>(hits));
		REQUIRE(peal_faults_remove(&faults, 0) == 0);
	}
}

TEST_CASE("the first rule that hits decides, and later rules do not see the message", "[fault]")
{
	Faults faults;
	auto second = fault(IB_WC_RETRY_EXC_ERR);

	second.every = 2;
	REQUIRE(faults.add(second) == 0);
	REQUIRE(faults.add(fault(IB_WC_LOC_LEN_ERR)) == 0);
	CHECK(faults.hit() == IB_WC_LOC_LEN_ERR);
	CHECK(faults.hit() == IB_WC_RETRY_EXC_ERR);
	CHECK(faults.hit() == IB_WC_LOC_LEN_ERR);
	CHECK(faults.rule(1).seen == 3);
	CHECK(faults.rule(2).seen == 2);
}

TEST_CASE("rules have numbers that are not used again, and a device has 64", "[fault]")
{
	Faults faults;

	for (int i = 1; i <= PEAL_FAULT_RULES; i++) {
		REQUIRE(faults.add(fault()) == 0);
		CHECK(faults.last == static_cast<u32>(i));
	}
	CHECK(faults.add(fault()) == -ENOSPC);
	CHECK(peal_faults_remove(&faults, 65) == -ENOENT);
	CHECK(peal_faults_remove(&faults, 3) == 0);
	CHECK(peal_faults_remove(&faults, 3) == -ENOENT);
	REQUIRE(faults.add(fault()) == 0);
	CHECK(faults.last == 65);

	peal_fault_rule rule{};
	int rules = 0;

	while (peal_faults_next(&faults, rule.id, &rule))
		rules++;
	CHECK(rules == PEAL_FAULT_RULES);
	CHECK(peal_faults_remove(&faults, 0) == 0);
	CHECK(peal_faults_remove(&faults, 0) == 0);
	CHECK_FALSE(peal_faults_next(&faults, 0, &rule));
}

TEST_CASE("a rule that cannot be allocated leaves nothing", "[fault]")
{
	Faults faults;

	shim_no_memory = true;
	CHECK(faults.add(fault()) == -ENOMEM);
	shim_no_memory = false;
	CHECK_FALSE(peal_faults_exist(&faults));
	CHECK(faults.hit() == 0);
}
