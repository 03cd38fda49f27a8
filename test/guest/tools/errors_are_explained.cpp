// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * "peal why" tells why messages failed, with the numbers of both ends.
 *
 * Holds: Typical mistakes of programs are named with their keys, protection domains, ranges, rights
 * and lengths, as the requester and as the responder know them. The errors outlive their queue
 * pairs. Other users do not see them, nor do other network namespaces, nor the caller of a program
 * that changed its user. A user of a container sees its own. A program that makes many errors does
 * not hide those of other users. Does not hold: every reason (test/unit/tools/qp_error.cpp has the
 * words of all).
 */
#include "commands.hpp"
#include "program.hpp"
#include "verbs.hpp"

#include <cstring>
#include <fstream>
#include <grp.h>
#include <regex>
#include <unistd.h>

using namespace peal_test;

namespace {

constexpr uid_t nobody_id = 65534, daemon_id = 1;
constexpr std::uint32_t no_key = 0x00fedc00;
const char *const tool = PEAL_SOURCE "/build/user/userspace/tools/peal";

/* What the command prints, and what it complains about. */
std::string why(const std::string &arguments = "")
{
	return read_command(tool + (" why " + arguments) + " 2>&1");
}

std::string why(const ibv_qp *qp)
{
	return why(device_name() + "/" + std::to_string(qp->qp_num));
}

/* Runs @work in a process of @user. Return: whether it succeeded. */
template <class Work>
bool as_user(uid_t user, Work work)
{
	return in_child([&] {
		       if (setgroups(0, nullptr) || setresgid(user, user, user) ||
			   setresuid(user, user, user))
			       throw_errno("change the user");
		       return work() ? 0 : 1;
	       }) == 0;
}

struct Scene {
	explicit Scene(Device &on, const Link &link_a = {}, const Link &link_b = {})
		: a(on), b(on), other_a(ibv_alloc_pd(on), "alloc_pd"),
		  other_b(ibv_alloc_pd(on), "alloc_pd"), from(a.pd, page_bytes),
		  foreign_a(other_a, page_bytes), to(b.pd, page_bytes),
		  readonly_b(b.pd, page_bytes, IBV_ACCESS_REMOTE_READ),
		  foreign_b(other_b, page_bytes)
	{
		connect(a, b, link_a, link_b);
	}
	/* The WRITE that is right. */
	Send write() { return write_to(to.address(), to.rkey()); }
	Send write_to(std::uint64_t address, std::uint32_t rkey)
	{
		return Send(IBV_WR_RDMA_WRITE, {from.sge(0, 64)}).remote(address, rkey);
	}
	Send write_from(const ibv_sge &sge)
	{
		return Send(IBV_WR_RDMA_WRITE, {sge}).remote(to.address(), to.rkey());
	}
	void fail(Send send)
	{
		post(a.qp, std::move(send));
		REQUIRE(wait_completion(a.send_cq).status != IBV_WC_SUCCESS);
	}

	Endpoint a, b;
	Pd other_a, other_b;
	Region from, foreign_a, to, readonly_b, foreign_b;
};

struct Mistake {
	const char *name;
	std::function<Send(Scene &)> request;
	const char *words; /* a regular expression */
};

const std::vector<Mistake> mistakes{
	{"rkey of nothing", [](Scene &s) { return s.write_to(s.to.address(), no_key); },
	 "rkey 0xfedc00 names no memory\n *-> send the rkey of a region"},
	{"rkey 0", [](Scene &s) { return s.write_to(s.to.address(), 0); },
	 "rkey 0x0 names no memory\n"},
	{"rkey of another protection domain",
	 [](Scene &s) { return s.write_to(s.foreign_b.address(), s.foreign_b.rkey()); },
	 "rkey 0x[0-9a-f]+ belongs to PD ([0-9]+), the queue pair to PD (?!\\1\\n)[0-9]+\n"},
	{"no right to write",
	 [](Scene &s) { return s.write_to(s.readonly_b.address(), s.readonly_b.rkey()); },
	 "rkey 0x[0-9a-f]+ allows remote read, and the WRITE needs remote write\n"},
	{"behind the region",
	 [](Scene &s) { return s.write_to(s.to.address(page_bytes - 63), s.to.rkey()); },
	 "64 bytes at 0x[0-9a-f]+ are not all in the memory of rkey 0x[0-9a-f]+, which is 4096 "
	 "bytes at 0x[0-9a-f]+000\n"},
	{"lkey of nothing",
	 [](Scene &s) {
		 return s.write_from({s.from.address(), 64, no_key});
	 },
	 "lkey 0xfedc00 names no memory\n"},
	{"lkey of another protection domain",
	 [](Scene &s) { return s.write_from(s.foreign_a.sge(0, 64)); },
	 "lkey 0x[0-9a-f]+ belongs to PD ([0-9]+), the queue pair to PD (?!\\1\\n)[0-9]+\n"},
	{"a receive that is too short",
	 [](Scene &s) { return Send(IBV_WR_SEND, {s.from.sge(0, 128)}); },
	 "the message has 128 bytes, and the receive has 64\n *-> post larger receives"},
};

bool matches(const std::string &text, const char *words)
{
	return std::regex_search(text, std::regex(words));
}

bool has_tool()
{
	return access(tool, X_OK) == 0;
}

} /* namespace */

TEST_CASE("a mistake is explained with its numbers, also after the queue pairs are gone")
{
	if (!has_tool())
		SKIP_CASE("the tool peal is not built");
	Device device;

	for (const auto &mistake : mistakes) {
		INFO("mistake: " << mistake.name);
		std::string name;
		{
			Scene scene(device);

			post_recv(scene.b.qp, 1, {scene.to.sge(0, 64)});
			scene.fail(mistake.request(scene));
			name = device_name() + "/" + std::to_string(scene.a.qp->qp_num);
			INFO(why(scene.a.qp));
			CHECK(matches(why(scene.a.qp), mistake.words));
		}
		INFO(why(name));
		CHECK(matches(why(name), mistake.words));
		CHECK(matches(why(), mistake.words));
		CHECK(matches(why(name + " --json"), "\"what\": \".*\""));
	}
}

TEST_CASE("a queue pair without the right, and a peer that does not answer, are explained")
{
	if (!has_tool())
		SKIP_CASE("the tool peal is not built");
	Device device;
	const Link impatient{.timeout = 10, .retry_cnt = 1, .rnr_retry = 1};
	{
		Scene scene(device, {}, {.access = IBV_ACCESS_REMOTE_READ});

		scene.fail(scene.write());
		INFO(why(scene.a.qp));
		CHECK(matches(why(scene.a.qp), "the queue pair allows remote read, and the WRITE "
					       "needs remote write\n"));
	}
	{
		Scene scene(device, impatient);

		scene.fail(Send(IBV_WR_SEND, {scene.from.sge(0, 64)}));
		INFO(why(scene.a.qp));
		CHECK(matches(
			why(scene.a.qp),
			"RNR retry counter exceeded.*\n *queue pair [0-9]+ at [0-9a-f.:]+ had "
			"no receive posted \\(rnr_retry 1\\)\n"));
	}
	Scene scene(device, impatient);

	to_state(scene.b.qp, IBV_QPS_RESET);
	scene.fail(scene.write());
	INFO(why(scene.a.qp));
	CHECK(matches(why(scene.a.qp), "transport retry counter exceeded.*\n.*queue pair [0-9]+ at "
				       "[0-9a-f.:]+, retry_cnt 1, timeout 10: 4 ms"));
	CHECK(matches(why("4711"), "no error of 4711 is known"));
	CHECK(matches(why("x"), "type its number, or DEVICE/NUMBER"));
	CHECK(matches(why("none/4711"), "there is no such peal device as none"));
}

TEST_CASE("a wrong GID index and path MTUs that differ are explained")
{
	if (!has_tool())
		SKIP_CASE("the tool peal is not built");
	Device device;
	const Link impatient{.timeout = 10, .retry_cnt = 1};
	ibv_gid_entry other{};

	for (std::uint32_t i = 0; !ibv_query_gid_ex(device, 1, i, &other, 0); i++)
		if (other.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    std::memcmp(&other.gid, &device.gid(), sizeof(other.gid)) != 0)
			break;
	REQUIRE(other.gid_type == IBV_GID_TYPE_ROCE_V2);
	{
		/* The peer expects packets from the GID of the other index. */
		Scene scene(device);
		auto rtr = rtr_attr(device, scene.b.qp->qp_num, other.gid, impatient);

		rtr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(other.gid_index);
		to_state(scene.a.qp, IBV_QPS_RESET);
		to_init(scene.a.qp, impatient);
		must(ibv_modify_qp(scene.a.qp, &rtr, rtr_mask), "modify to RTR");
		to_rts(scene.a.qp, impatient);
		scene.fail(scene.write());
		INFO(why(scene.a.qp));
		CHECK(matches(why(scene.a.qp),
			      on_wire() ? "no answer from the peer through all retries.*\n.*-> see "
					  "whether the peer's program runs and expects the GID of "
					  "this queue pair, and type \"peal doctor PEER"
					: "peer silent: its queue pair is connected to somebody "
					  "else.*\n *-> exchange queue pair numbers and GIDs"));
	}
	/* A path MTU concerns packets only. */
	if (!on_wire())
		return;
	Scene scene(device);
	auto rtr = rtr_attr(device, scene.a.qp->qp_num, device.gid());

	rtr.path_mtu = IBV_MTU_256;
	to_state(scene.b.qp, IBV_QPS_RESET);
	to_init(scene.b.qp);
	must(ibv_modify_qp(scene.b.qp, &rtr, rtr_mask), "modify to RTR");
	scene.fail(Send(IBV_WR_RDMA_WRITE, {scene.from.sge(0, 1024)})
			   .remote(scene.to.address(), scene.to.rkey()));
	INFO(why(scene.a.qp));
	CHECK(matches(why(scene.a.qp), "peer's packets do not make a valid request\n *-> set the "
				       "same path_mtu at both ends"));
}

TEST_CASE("only the user of a queue pair and the administrator see its errors")
{
	if (!has_tool())
		SKIP_CASE("the tool peal is not built");
	Device device;
	Scene scene(device);

	scene.fail(scene.write_to(scene.to.address(), no_key));
	const auto name = std::to_string(scene.a.qp->qp_num);
	CHECK(matches(why(name), "0xfedc00"));
	CHECK(as_user(nobody_id, [&] { return matches(why(name), "no error of .* is known"); }));
	CHECK(as_user(nobody_id, [&] {
		Device own;
		Scene mine(own);

		post(mine.a.qp, mine.write_to(mine.to.address(), no_key));
		wait_completion(mine.a.send_cq);
		return matches(why(), "0xfedc00") && !matches(why(), ("/" + name + ":").c_str());
	}));
	CHECK(matches(why("--json"), ("\"uid\": " + std::to_string(nobody_id)).c_str()));
}

TEST_CASE("neither users nor administrators of another network namespace see errors")
{
	if (!has_tool())
		SKIP_CASE("the tool peal is not built");
	Device device;
	Scene scene(device);

	scene.fail(scene.write_to(scene.to.address(), no_key));
	const auto nothing_elsewhere = [&] {
		return matches(why(scene.a.qp), "no error of .* is known");
	};
	CHECK(in_child([&] {
		      if (unshare(CLONE_NEWNET))
			      throw_errno("unshare");
		      return nothing_elsewhere() ? 0 : 1;
	      }) == 0);
	/* The administrator of this namespace sees what others do elsewhere. */
	CHECK(matches(why(scene.a.qp), "0xfedc00"));
}

TEST_CASE("a program that changed its user shows its errors to the administrator only")
{
	if (!has_tool())
		SKIP_CASE("the tool peal is not built");
	std::uint32_t qpn = 0;
	int report[2];

	REQUIRE(pipe(report) == 0);
	/* Such are the ids of a program with the set-user-ID bit that nobody has started. */
	CHECK(in_child([&] {
		      if (setgroups(0, nullptr) || setresuid(nobody_id, 0, 0))
			      throw_errno("change the user");
		      Device own;
		      Scene mine(own);

		      post(mine.a.qp, mine.write_to(mine.to.address(), no_key));
		      wait_completion(mine.a.send_cq);
		      qpn = mine.a.qp->qp_num;
		      return write(report[1], &qpn, sizeof(qpn)) == sizeof(qpn) ? 0 : 1;
	      }) == 0);
	REQUIRE(read(report[0], &qpn, sizeof(qpn)) == sizeof(qpn));
	close(report[0]);
	close(report[1]);
	const auto name = std::to_string(qpn);
	CHECK(as_user(nobody_id, [&] { return matches(why(name), "no error of .* is known"); }));
	CHECK(matches(why(name), "0xfedc00"));
	CHECK(matches(why(name + " --json"), "\"uid\": null"));
}

/* The maker of a user namespace pays for all in it. That does not make the errors its own. */
TEST_CASE("a user of a container sees its own errors")
{
	if (!has_tool())
		SKIP_CASE("the tool peal is not built");
	int inside[2], mapped[2];
	char byte = 0;

	REQUIRE(pipe(inside) == 0);
	REQUIRE(pipe(mapped) == 0);
	const pid_t container = spawn([&] {
		if (unshare(CLONE_NEWUSER) || write(inside[1], &byte, 1) != 1 ||
		    read(mapped[0], &byte, 1) != 1 || setresuid(0, 0, 0))
			throw_errno("become the user of a container");
		Device own;
		Scene mine(own);

		post(mine.a.qp, mine.write_to(mine.to.address(), no_key));
		wait_completion(mine.a.send_cq);
		return matches(why(mine.a.qp), "0xfedc00") && matches(why("--json"), "\"uid\": 0")
			       ? 0
			       : 1;
	});
	REQUIRE(read(inside[0], &byte, 1) == 1);
	std::ofstream("/proc/" + std::to_string(container) + "/uid_map")
		<< "0 " << nobody_id << " 1\n";
	REQUIRE(write(mapped[1], &byte, 1) == 1);
	CHECK(end_of(container) == 0);
	for (int fd : {inside[0], inside[1], mapped[0], mapped[1]})
		close(fd);
}

TEST_CASE("many errors of one user do not replace those of others")
{
	if (!has_tool())
		SKIP_CASE("the tool peal is not built");
	Device device;
	Scene scene(device);

	scene.fail(scene.write_to(scene.to.address(), no_key));
	CHECK(as_user(daemon_id, [&] {
		Device own;

		for (int i = 0; i < 300; i++) {
			Scene mine(own);

			post(mine.a.qp, mine.write_to(mine.to.address(), no_key));
			wait_completion(mine.a.send_cq);
		}
		const auto text = why("--json");
		const std::regex device_line("\"device\":");
		const auto records = std::distance(
			std::sregex_iterator(text.begin(), text.end(), device_line), {});

		std::printf("%td errors are kept of 600\n", records);
		return records == 32;
	}));
	CHECK(matches(why(scene.a.qp), "0xfedc00"));
}
