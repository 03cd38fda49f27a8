// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// transport: direct, wire
/*
 * What `rdma resource show` tells a user about the queue pairs of others.
 *
 * Holds: The packet sequence numbers of a connection are shown to the user whose program made the
 * queue pair, and to an administrator. Another user sees 0. A process of another user that has
 * inherited the queue pair can still ask for them.
 * Does not hold: the keys of memory regions, which the RDMA core hides itself.
 */
#include "commands.hpp"
#include "program.hpp"
#include "verbs.hpp"

#include <grp.h>
#include <optional>
#include <regex>
#include <sys/wait.h>

using namespace peal_test;

namespace {

constexpr uid_t nobody_id = 65534, daemon_id = 1;

struct Psns {
	std::uint32_t sq, rq;
	bool operator==(const Psns &) const = default;
};

std::optional<std::uint32_t> value(const std::string &text, const std::string &name)
{
	std::smatch match;

	if (!std::regex_search(text, match, std::regex("\\b" + name + " ([0-9]+)")))
		return std::nullopt;
	return static_cast<std::uint32_t>(std::stoul(match[1]));
}

/* What `rdma` shows that user. The caller is root or that user. */
Psns shown_to(uid_t uid, const ibv_qp *qp)
{
	const auto id = std::to_string(uid);
	const std::string user =
		uid == getuid() ? ""
				: "setpriv --reuid " + id + " --regid " + id + " --clear-groups ";
	const std::string text = read_command(user + "rdma resource show qp link " + device_name() +
					      "/1 lqpn " + std::to_string(qp->qp_num));
	const auto sq = value(text, "sq-psn"), rq = value(text, "rq-psn");

	if (!sq || !rq)
		throw std::runtime_error("rdma shows no PSNs: " + text);
	return {*sq, *rq};
}

void become(uid_t uid)
{
	if (setgroups(0, nullptr) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		throw_errno("change the user");
}

} // namespace

TEST_CASE("another user does not see the PSNs")
{
	const Link link;
	const Psns right{link.psn, link.psn};
	Device device;
	Pair pair(device);

	CHECK(shown_to(0, pair.a.qp) == right);
	CHECK(shown_to(nobody_id, pair.a.qp) == Psns{0, 0});
}

TEST_CASE("the user whose program made the queue pair sees them")
{
	CHECK(in_child([] {
		      become(nobody_id);
		      const Link link;
		      const Psns right{link.psn, link.psn};
		      Device device;
		      Pair pair(device);

		      return shown_to(nobody_id, pair.a.qp) == right ? 0 : 1;
	      }) == 0);
}

TEST_CASE("a process of another user that has the queue pair can ask for them")
{
	const Link link;
	Device device;
	Pair pair(device);

	CHECK(in_child([&] {
		      ibv_qp_attr attr{};
		      ibv_qp_init_attr init{};

		      become(daemon_id);
		      if (ibv_query_qp(pair.a.qp, &attr, IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init))
			      return 1;
		      return attr.sq_psn == link.psn && attr.rq_psn == link.psn ? 0 : 2;
	      }) == 0);
}
