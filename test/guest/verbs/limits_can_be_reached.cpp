// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 300
// run: long
// transport: any
/*
 * A program can have as many objects as ibv_query_device says.
 *
 * Holds: A program of an ordinary user, with the limits of resources that Debian gives it, makes as
 * many completion queues, queue pairs, shared receive queues, protection domains, address handles,
 * regions and windows as the device has, one kind at a time, and one more is refused. Regions have
 * no bytes, because pinned memory has a limit of its own. What is not a queue is left out
 * unless the run is thorough. Does not hold: all kinds at once.
 */
#include "datagram.hpp"
#include "program.hpp"

#include <sys/resource.h>

using namespace peal_test;

namespace {

constexpr uid_t a_user = 65534;

void set_limit(__rlimit_resource resource, rlim_t value)
{
	const rlimit limit{value, value};

	must(setrlimit(resource, &limit) ? errno : 0, "setrlimit");
}

/*
 * Makes objects until the kernel refuses one, in a program of a user.
 * Return: how many it got. The reason must be that the limit is reached.
 */
template <class Object, class Create>
long count(long most, const Create &create)
{
	const Program program(a_user, [&](const auto &hold) {
		set_limit(RLIMIT_MEMLOCK, 8 << 20);
		set_limit(RLIMIT_NOFILE, 1024);
		Device device;
		Pd pd(ibv_alloc_pd(device), "alloc_pd");
		std::vector<Object> objects;

		objects.reserve(static_cast<std::size_t>(most));
		while (static_cast<long>(objects.size()) <= most) {
			auto *object = create(device, pd);

			if (!object)
				break;
			objects.emplace_back(object, "create");
		}
		const int error = errno;
		hold(error == ENOSPC ? static_cast<long>(objects.size()) : -error);
	});

	return program.number();
}

} // namespace

TEST_CASE("completion queues")
{
	const long most = Device().attributes().max_cq;

	CHECK(count<Cq>(most, [](Device &device, Pd &) {
		      return ibv_create_cq(device, 1, nullptr, nullptr, 0);
	      }) == most);
}

TEST_CASE("queue pairs")
{
	const long most = Device().attributes().max_qp;
	Cq cq;

	CHECK(count<Qp>(most, [&](Device &device, Pd &pd) {
		      ibv_qp_init_attr attr{};

		      if (!cq)
			      cq = Cq(ibv_create_cq(device, 1, nullptr, nullptr, 0), "create_cq");
		      attr.send_cq = attr.recv_cq = cq;
		      attr.qp_type = IBV_QPT_RC;
		      attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
		      attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
		      return ibv_create_qp(pd, &attr);
	      }) == most);
}

TEST_CASE("shared receive queues")
{
	const long most = Device().attributes().max_srq;

	CHECK(count<Srq>(most, [](Device &, Pd &pd) {
		      ibv_srq_init_attr attr{};

		      attr.attr.max_wr = attr.attr.max_sge = 1;
		      return ibv_create_srq(pd, &attr);
	      }) == most);
}

/* The program has one already. */
TEST_CASE("protection domains")
{
	if (!thorough())
		return;
	const long most = Device().attributes().max_pd - 1;

	CHECK(count<Pd>(most, [](Device &device, Pd &) { return ibv_alloc_pd(device); }) == most);
}

TEST_CASE("address handles")
{
	if (!thorough())
		return;
	const long most = Device().attributes().max_ah;

	CHECK(count<Ah>(most, [](Device &device, Pd &pd) {
		      auto attr =
			      ah_attr(static_cast<std::uint8_t>(device.gid_index()), device.gid());

		      return ibv_create_ah(pd, &attr);
	      }) == most);
}

TEST_CASE("regions")
{
	if (!thorough())
		return;
	const long most = Device().attributes().max_mr;

	CHECK(count<Mr>(most, [](Device &, Pd &pd) {
		      static char nothing;

		      return ibv_reg_mr(pd, &nothing, 0, IBV_ACCESS_LOCAL_WRITE);
	      }) == most);
}

TEST_CASE("windows")
{
	if (!thorough())
		return;
	const long most = Device().attributes().max_mw;

	CHECK(count<Mw>(most, [](Device &, Pd &pd) { return ibv_alloc_mw(pd, IBV_MW_TYPE_1); }) ==
	      most);
}
