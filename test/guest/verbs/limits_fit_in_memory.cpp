// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// vm: mem 1G
// run: long
// transport: any
/*
 * On a host with little memory the device reports the limits that fit.
 *
 * Holds: A program can have as many completion queues as the device says, which are fewer than on a
 * large host, and a completion queue with as many entries. Does not hold: a large host
 * (verbs/limits_can_be_reached).
 */
#include "verbs.hpp"

using namespace peal_test;

TEST_CASE("as many completion queues as fit")
{
	constexpr int of_large_host = 32768;
	Device device;
	const int most = device.attributes().max_cq;
	std::vector<Cq> cqs;

	CHECK(most < of_large_host);
	while (auto *cq = ibv_create_cq(device, 1, nullptr, nullptr, 0)) {
		cqs.emplace_back(cq, "create_cq");
		if (static_cast<int>(cqs.size()) > most)
			break;
	}
	CHECK(errno_name(errno) == "ENOSPC");
	CHECK(static_cast<int>(cqs.size()) == most);
}

TEST_CASE("a completion queue with as many entries as fit")
{
	Device device;
	const int most = device.attributes().max_cqe;

	CHECK(most < PEAL_MAX_CQE);
	CHECK(Cq(ibv_create_cq(device, most, nullptr, nullptr, 0), "create_cq")->cqe == most);
	CHECK(ibv_create_cq(device, most + 1, nullptr, nullptr, 0) == nullptr);
}
