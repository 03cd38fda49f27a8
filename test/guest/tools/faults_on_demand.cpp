// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// timeout: 240
/*
 * An administrator makes messages fail ("peal fault"), so that people see how their programs
 * behave.
 *
 * Holds: Only a device that was added with faults takes rules, and only from an administrator. Each
 * completion status can be had. The queue pair is in error then, what follows is flushed, and the
 * peer gets nothing. A responder refuses with each NAK, asks for another try, or completes a
 * receive with a status. Packets are lost, damaged, marked, late, overtaken and doubled, also those
 * that a device holds when it goes. Completions are late. Objects and packets find no memory.
 * Events are raised. Each word of a rule selects what it says. A seed gives the same order each
 * time, also after a program has repaired its queue pair. "peal fault show" and "peal why" tell
 * what happened. Rules end with the device. Does not hold: every wrong word
 * (test/unit/tools/fault_rule.cpp).
 */
#include "commands.hpp"
#include "datagram.hpp"
#include "xrc.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include <arpa/inet.h>

using namespace peal_test;

namespace {

constexpr const char *name = "peal-faulty", *own_address = "10.79.0.1";

/* What the tool prints. It must succeed. */
std::string peal(const std::string &words)
{
	return read_command(peal_tool() + " " + words + " || echo failed");
}

/* What the tool complains about. It must fail. */
std::string refusal(const std::string &words, const std::string &user = "")
{
	return read_command(user + peal_tool() + " " + words + " 2>&1 && echo not refused");
}

bool has(const std::string &text, const std::string &words)
{
	const bool found = text.find(words) != std::string::npos;

	if (!found)
		std::printf("\"%s\" is not in: %s\n", words.c_str(), text.c_str());
	return found;
}

/* A veth pair with a device that was added with faults. It goes with this object. */
class Faulty {
public:
	explicit Faulty(const std::string &options = "faults on")
	{
		REQUIRE(run("ip link add faulty0 type veth peer name faulty1 && "
			    "ip link set faulty1 up && ip address add 10.79.0.1/24 dev faulty0 && "
			    "ip link set faulty0 up") == 0);
		REQUIRE(run(peal_tool() + " link add " + name + " netdev faulty0 direct " +
			    (on_wire() ? "off " : "on ") + options) == 0);
	}
	~Faulty() { run(peal_tool() + " link del " + name + "; ip link delete faulty0"); }
	Faulty(const Faulty &) = delete;
	Faulty &operator=(const Faulty &) = delete;
};

/* Return: the number of the rule. */
std::string add(const std::string &rule)
{
	const auto id = peal("fault add " + std::string(name) + " " + rule);

	REQUIRE(id.find_first_not_of("0123456789\n") == std::string::npos);
	return id.substr(0, id.find('\n'));
}

void remove_all()
{
	REQUIRE(peal("fault del " + std::string(name)).empty());
}

/* Two connected queue pairs, and memory to send from and to. */
struct Scene {
	explicit Scene(Device &on, ibv_qp_type type = IBV_QPT_RC)
		: a(on, {.type = type}), b(on, {.type = type}), from(a.pd, page_bytes),
		  to(b.pd, page_bytes)
	{
		if (type == IBV_QPT_UC) {
			connect_uc(a, b);
			connect_uc(b, a);
		} else {
			connect(a, b);
		}
		fill_pattern(from.bytes(0, 64), 1);
	}
	Send write() { return remote(IBV_WR_RDMA_WRITE); }
	Send remote(ibv_wr_opcode opcode)
	{
		return Send(opcode, {from.sge(0, 64)}).remote(to.address(), to.rkey());
	}
	ibv_wc complete(Send send)
	{
		post(a.qp, std::move(send));
		return wait_completion(a.send_cq);
	}

	Endpoint a, b;
	Region from, to;
};

void check_fault(const ibv_wc &wc, ibv_wc_status status)
{
	INFO(describe(wc));
	CHECK(wc.status == status);
	CHECK(wc.vendor_err == PEAL_REASON_FAULT);
}

/* Return: "x" for each of so many messages that fails, and "." for the others. */
std::string order(Scene &scene, int messages)
{
	std::string order;

	while (messages--) {
		const auto wc = scene.complete(scene.write());

		order += wc.status == IBV_WC_SUCCESS ? '.' : 'x';
		if (wc.status != IBV_WC_SUCCESS)
			to_state(scene.a.qp, IBV_QPS_RTS);
	}
	return order;
}

} // namespace

TEST_CASE("only a device that was added with faults takes rules")
{
	const auto rule = " status general-err";

	CHECK(has(refusal("fault add " + device_name() + rule),
		  device_name() + " was added without faults; type \"peal link del"));
	CHECK(has(refusal("link set " + device_name() + " faults on"),
		  "faults are chosen when a device is added"));
	CHECK(has(peal("fault show"), "there are no faults"));
	CHECK(peal("fault show --json") == "[]\n");
	CHECK(has(peal("link show --json"), "\"faults\": \"off\""));
	{
		const Faulty faulty("faults off");

		CHECK(has(refusal("fault add " + std::string(name) + rule), "without faults"));
	}
	const Faulty faulty;

	CHECK(has(peal("link show " + std::string(name) + " --json"), "\"faults\": \"on\""));
	CHECK(add("status general-err") == "1");
	CHECK(add("status general-err") == "2");
}

TEST_CASE("only an administrator makes and removes rules, and everybody sees them")
{
	const Faulty faulty;
	const std::string nobody = "setpriv --reuid 65534 --clear-groups --bounding-set=-all "
				   "--inh-caps=-all ";

	add("status general-err");
	for (const auto *words : {"fault add peal-faulty status general-err",
				  "fault del peal-faulty", "fault del peal-faulty 1"})
		CHECK(has(refusal(words, nobody), "(Operation not permitted); run the command as "
						  "root"));
	CHECK(has(read_command(nobody + peal_tool() + " fault show"), "status general-err"));
	CHECK(has(refusal("fault del peal-faulty 7"), "has no rule 7; \"peal fault show"));
	CHECK(has(refusal("fault del peal-faulty x"), "\"x\" is no rule"));
	CHECK(has(refusal("fault del no-such-device"), "there is no such peal device"));
	CHECK(has(refusal("fault add no-such-device status general-err"),
		  "there is no such peal device"));
	CHECK(has(refusal("fault show no-such-device"), "there is no such peal device"));
}

TEST_CASE("each status fails a message, the rest is flushed, and the peer gets nothing")
{
	const std::map<const char *, ibv_wc_status> statuses{
		{"loc-len-err", IBV_WC_LOC_LEN_ERR},
		{"loc-qp-op-err", IBV_WC_LOC_QP_OP_ERR},
		{"loc-eec-op-err", IBV_WC_LOC_EEC_OP_ERR},
		{"loc-prot-err", IBV_WC_LOC_PROT_ERR},
		{"wr-flush-err", IBV_WC_WR_FLUSH_ERR},
		{"mw-bind-err", IBV_WC_MW_BIND_ERR},
		{"bad-resp-err", IBV_WC_BAD_RESP_ERR},
		{"loc-access-err", IBV_WC_LOC_ACCESS_ERR},
		{"rem-inv-req-err", IBV_WC_REM_INV_REQ_ERR},
		{"rem-access-err", IBV_WC_REM_ACCESS_ERR},
		{"rem-op-err", IBV_WC_REM_OP_ERR},
		{"retry-exc-err", IBV_WC_RETRY_EXC_ERR},
		{"rnr-retry-exc-err", IBV_WC_RNR_RETRY_EXC_ERR},
		{"loc-rdd-viol-err", IBV_WC_LOC_RDD_VIOL_ERR},
		{"rem-inv-rd-req-err", IBV_WC_REM_INV_RD_REQ_ERR},
		{"rem-abort-err", IBV_WC_REM_ABORT_ERR},
		{"inv-eecn-err", IBV_WC_INV_EECN_ERR},
		{"inv-eec-state-err", IBV_WC_INV_EEC_STATE_ERR},
		{"fatal-err", IBV_WC_FATAL_ERR},
		{"resp-timeout-err", IBV_WC_RESP_TIMEOUT_ERR},
		{"general-err", IBV_WC_GENERAL_ERR},
	};
	const Faulty faulty;
	Device device(name);

	for (const auto &[word, status] : statuses) {
		Scene scene(device);
		std::vector<Send> list;

		INFO(word);
		/* The first message is before the fault, and unsignaled ones get a CQE, too. */
		for (std::uint64_t id = 0; id < 4; id++)
			list.push_back(scene.write().id(id).flags(id == 1 ? 0 : IBV_SEND_SIGNALED));
		list[0].wr.wr.rdma.remote_addr += 64;
		const auto id = add(std::string("status ") + word + " every 2");
		ibv_send_wr *bad = nullptr;

		must(post_list(scene.a.qp, list, &bad), "post_send");
		const auto done = wait_completions(scene.a.send_cq, 4);

		must_succeed(done[0]);
		CHECK(done[1].wr_id == 1);
		check_fault(done[1], status);
		for (const auto &wc : {done[2], done[3]}) {
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
			CHECK(wc.vendor_err == PEAL_REASON_FLUSHED);
		}
		CHECK(query_state(scene.a.qp) == IBV_QPS_ERR);
		CHECK(query_state(scene.b.qp) == IBV_QPS_RTS);
		CHECK(all_equal(scene.to.bytes(0, 64), 0));
		CHECK(difference(scene.to.bytes(64, 64), pattern_of(64, 1)).empty());
		REQUIRE(peal("fault del " + std::string(name) + " " + id).empty());
	}
}

TEST_CASE("each word selects what it says")
{
	const Faulty faulty;
	Device device(name);
	const auto fails = [&](const std::string &rule, ibv_wr_opcode opcode) {
		Scene scene(device);
		auto send = scene.remote(opcode);

		if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			send = Send(opcode, {scene.from.sge(0, 8)})
				       .atomic(scene.to.address(), scene.to.rkey(), 1);
		post_recv(scene.b.qp, 1, {scene.to.sge(0, 64)});
		const auto numbered = rule.find("QP") == std::string::npos
					      ? rule
					      : "qp " + std::to_string(scene.a.qp->qp_num);

		add("status rem-op-err " + numbered);
		const auto wc = scene.complete(send);

		remove_all();
		return wc.status == IBV_WC_REM_OP_ERR;
	};
	const struct {
		const char *word;
		std::vector<ibv_wr_opcode> opcodes;
	} operations[] = {
		{"send", {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}},
		{"write", {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM}},
		{"read", {IBV_WR_RDMA_READ}},
		{"atomic", {IBV_WR_ATOMIC_FETCH_AND_ADD}},
	};

	for (const auto &rule : operations)
		for (const auto &operation : operations)
			for (const auto opcode : operation.opcodes) {
				INFO(rule.word << " " << int{opcode});
				CHECK(fails(std::string("opcode ") + rule.word, opcode) ==
				      (&rule == &operation));
			}
	CHECK(fails("opcode send,read", IBV_WR_RDMA_READ));
	CHECK(fails("QP", IBV_WR_RDMA_WRITE));
	CHECK(!fails("qp 1", IBV_WR_RDMA_WRITE));
	CHECK(fails(std::string("peer ") + own_address, IBV_WR_RDMA_WRITE));
	CHECK(!fails("peer 10.79.0.2", IBV_WR_RDMA_WRITE));
	CHECK(!fails("peer fe80::1", IBV_WR_RDMA_WRITE));
	CHECK(!fails("every 2", IBV_WR_RDMA_WRITE));
	CHECK(fails("chance 1/1", IBV_WR_RDMA_WRITE));
}

TEST_CASE("every, count and a seed decide which messages fail, and the seed decides it again")
{
	const Faulty faulty;
	Device device(name);
	Scene scene(device, IBV_QPT_UC);

	add("status loc-qp-op-err every 3 count 2");
	CHECK(order(scene, 12) == "..x..x......");
	CHECK(has(peal("fault show"), "every 3 count 2"));
	remove_all();
	/* test/unit/kernel/fault.cpp has this order, too. */
	for (int i = 0; i < 3; i++) {
		add("status loc-qp-op-err chance 1/4 seed 7");
		CHECK(order(scene, 64) ==
		      ".x...x..x.x..........x....x....x....x.xx...xx.......x..x........");
		CHECK(has(peal("fault show"), "chance 1/4 seed 7"));
		remove_all();
	}
	CHECK(order(scene, 8) == "........");
}

TEST_CASE("the responder refuses a message with each NAK, and both ends know why")
{
	const struct {
		const char *word;
		ibv_wc_status status;
		ibv_event_type event;
	} naks[] = {
		{"rem-inv-req-err", IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
		{"rem-access-err", IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
		{"rem-op-err", IBV_WC_REM_OP_ERR, IBV_EVENT_QP_FATAL},
	};
	const Faulty faulty;
	Device device(name);

	for (const auto &[word, status, event] : naks) {
		Scene scene(device);
		const auto number = std::to_string(scene.b.qp->qp_num);

		INFO(word);
		add(std::string("nak ") + word + " qp " + number + " every 2");
		must_succeed(scene.complete(scene.write()));
		std::ranges::fill(scene.to.bytes(0, 64), std::uint8_t{0});
		check_status(scene.complete(scene.write()), status, PEAL_REASON_FAULT);
		CHECK(all_equal(scene.to.bytes(0, 64), 0));
		CHECK(device.wait_event(event, scene.b.qp));
		CHECK(query_state(scene.a.qp) == IBV_QPS_ERR);
		CHECK(query_state(scene.b.qp) == IBV_QPS_ERR);
		CHECK(has(peal("why " + std::string(name) + "/" + number),
			  "an administrator asked for this error by \"peal fault\""));
		remove_all();
	}
}

TEST_CASE("the responder asks for another try")
{
	const Faulty faulty;
	Device device(name);
	{
		Scene scene(device);

		add("rnr count 3");
		must_succeed(scene.complete(scene.write()));
		CHECK(difference(scene.to.bytes(0, 64), pattern_of(64, 1)).empty());
		CHECK(has(peal("fault show --json"), "\"fired\": 3"));
		remove_all();
	}
	Endpoint a(device), b(device);

	connect(a, b, {.rnr_retry = 2}, {});
	Region from(a.pd, page_bytes), to(b.pd, page_bytes);

	post_recv(b.qp, 1, {to.sge(0, 64)});
	add("rnr opcode send");
	post(a.qp, Send(IBV_WR_SEND, {from.sge(0, 64)}));
	const auto wc = wait_completion(a.send_cq);

	CHECK(wc.status == IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK(wc.vendor_err == (on_wire() ? PEAL_REASON_RNR_EXHAUSTED : PEAL_REASON_FAULT));
	CHECK(has(peal("fault show --json"), "\"fired\": 3"));
}

TEST_CASE("packets are lost or damaged, and sent again")
{
	if (!on_wire())
		SKIP_CASE("the direct path has no packets");
	const Faulty faulty;
	Device device(name);

	for (const auto *fault : {"drop", "corrupt"}) {
		Scene scene(device);
		constexpr std::size_t bytes = 1 << 16;
		Region from(scene.a.pd, bytes), to(scene.b.pd, bytes);
		const auto damaged = counter("drop_icrc", name);

		INFO(fault);
		fill_pattern(from.bytes(0, bytes), 2);
		add(std::string(fault) + " qp " + std::to_string(scene.b.qp->qp_num) +
		    " chance 1/8 seed 3");
		for (int i = 0; i < 8; i++) {
			std::ranges::fill(to.bytes(0, bytes), std::uint8_t{0});
			must_succeed(scene.complete(Send(IBV_WR_RDMA_WRITE, {from.sge(0, bytes)})
							    .remote(to.address(), to.rkey())));
			CHECK(difference(to.bytes(0, bytes), pattern_of(bytes, 2)).empty());
		}
		const auto shown = peal("fault show --json");

		CHECK(shown.find("\"fired\": 0") == std::string::npos);
		CHECK((counter("drop_icrc", name) > damaged) == (std::string(fault) == "corrupt"));
		remove_all();
	}
	/* A peer that gets nothing does not answer. */
	Endpoint a(device), b(device);

	connect(a, b, {.timeout = 12, .retry_cnt = 1}, {});
	Region from(a.pd, page_bytes), to(b.pd, page_bytes);

	add("drop qp " + std::to_string(b.qp->qp_num));
	post(a.qp, Send(IBV_WR_RDMA_WRITE, {from.sge(0, 64)}).remote(to.address(), to.rkey()));
	CHECK(wait_completion(a.send_cq).status == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("packets that leave find no memory, and are sent again")
{
	if (!on_wire())
		SKIP_CASE("the direct path has no packets");
	const Faulty faulty;
	Device device(name);
	Scene scene(device);
	constexpr std::size_t bytes = 1 << 16;
	Region from(scene.a.pd, bytes), to(scene.b.pd, bytes);
	const auto unsent = [] { return counter("packets_unsent", name); };
	const auto before = unsent(), again = counter("retransmits", name);

	fill_pattern(from.bytes(0, bytes), 2);
	/* A run of packets leaves at once. Rules see each of them. */
	add("unsent every 5 count 10 peer " + std::string(own_address) + " qp " +
	    std::to_string(scene.a.qp->qp_num));
	must_succeed(scene.complete(
		Send(IBV_WR_RDMA_WRITE, {from.sge(0, bytes)}).remote(to.address(), to.rkey())));
	CHECK(difference(to.bytes(0, bytes), pattern_of(bytes, 2)).empty());
	CHECK(unsent() == before + 10);
	CHECK(counter("retransmits", name) >= again + 10);
	remove_all();

	/* Responses of the other queue pair, with the data of READs. */
	add("unsent every 5 count 10 qp " + std::to_string(scene.b.qp->qp_num));
	fill_pattern(to.bytes(0, bytes), 3);
	must_succeed(scene.complete(
		Send(IBV_WR_RDMA_READ, {from.sge(0, bytes)}).remote(to.address(), to.rkey())));
	CHECK(difference(from.bytes(0, bytes), pattern_of(bytes, 3)).empty());
	CHECK(unsent() == before + 20);
	remove_all();

	/* Of three datagrams the second does not leave. */
	UdEnd sender(device), receiver(device);

	for (std::uint64_t id = 1; id <= 3; id++)
		post_recv(receiver.qp, id, {receiver.memory.sge(256 * id, grh_bytes + 64)});
	add("unsent every 2 qp " + std::to_string(sender.qp->qp_num));
	for (std::uint32_t length : {1U, 2U, 3U}) {
		post(sender.qp,
		     Datagram(sender.to_self, receiver.qp->qp_num, {sender.memory.sge(0, length)}));
		must_succeed(wait_completion(sender.send_cq));
	}
	const auto arrived = wait_completions(receiver.recv_cq, 2);

	CHECK(arrived[0].byte_len == grh_bytes + 1);
	CHECK(arrived[1].byte_len == grh_bytes + 3);
	CHECK(unsent() == before + 21);
	remove_all();

	/* Nothing leaves any more. */
	Endpoint a(device), b(device);

	connect(a, b, {.timeout = 12, .retry_cnt = 1}, {});
	Region page(a.pd, page_bytes);

	add("unsent qp " + std::to_string(a.qp->qp_num));
	post(a.qp, Send(IBV_WR_RDMA_WRITE, {page.sge(0, 64)}).remote(to.address(), to.rkey()));
	CHECK(wait_completion(a.send_cq).status == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("packets are late")
{
	if (!on_wire())
		SKIP_CASE("the direct path has no packets");
	const Faulty faulty;
	Device device(name);
	Endpoint a(device), b(device);
	constexpr std::size_t bytes = 1 << 16;

	connect(a, b, {.timeout = 18}, {});
	Region from(a.pd, bytes), to(b.pd, bytes);
	const auto write =
		Send(IBV_WR_RDMA_WRITE, {from.sge(0, bytes)}).remote(to.address(), to.rkey());

	fill_pattern(from.bytes(0, bytes), 2);
	add("delay 50ms qp " + std::to_string(b.qp->qp_num));
	CHECK(has(peal("fault show"), "delay 50ms"));
	CHECK(has(peal("fault show --json"), "\"delay_us\": 50000"));
	const auto begin = std::chrono::steady_clock::now();

	post(a.qp, write);
	must_succeed(wait_completion(a.send_cq));
	CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(50));
	CHECK(difference(to.bytes(0, bytes), pattern_of(bytes, 2)).empty());
	CHECK(counter("drop_icrc", name) == 0);
}

TEST_CASE("packets overtake others and come twice, and each message takes effect once")
{
	if (!on_wire())
		SKIP_CASE("the direct path has no packets");
	const Faulty faulty;
	Device device(name);
	Scene scene(device);
	constexpr std::size_t bytes = 1 << 16;
	Region from(scene.a.pd, bytes), to(scene.b.pd, bytes);
	const auto write =
		Send(IBV_WR_RDMA_WRITE, {from.sge(0, bytes)}).remote(to.address(), to.rkey());
	const auto number = std::to_string(scene.b.qp->qp_num);
	const auto kept = counter("reorder_kept", name);

	fill_pattern(from.bytes(0, bytes), 3);
	/* A later packet overtakes every third one, so none is missing when the message ends. */
	add("reorder every 3 qp " + number);
	must_succeed(scene.complete(write));
	CHECK(difference(to.bytes(0, bytes), pattern_of(bytes, 3)).empty());
	CHECK(counter("reorder_kept", name) > kept);
	CHECK(counter("drop_icrc", name) == 0);
	remove_all();

	/* No packet follows this one. It comes nevertheless. */
	add("reorder count 1 qp " + number);
	must_succeed(scene.complete(scene.write()));
	CHECK(has(peal("fault show --json"), "\"fired\": 1"));
	remove_all();

	const auto twice = counter("duplicates", name);
	const auto value = [&] {
		std::uint64_t number;

		std::memcpy(&number, to.data(), sizeof(number));
		return number;
	};
	const auto before = value();

	add("duplicate qp " + number);
	for (int i = 0; i < 8; i++)
		must_succeed(scene.complete(Send(IBV_WR_ATOMIC_FETCH_AND_ADD, {from.sge(0, 8)})
						    .atomic(to.address(), to.rkey(), 1)));
	CHECK(value() == before + 8);
	CHECK(counter("duplicates", name) >= twice + 8);
	CHECK(has(peal("fault show --json"), "\"fired\": 8"));
	CHECK(counter("drop_icrc", name) == 0);
}

TEST_CASE("packets that are held go with their queue pair and with the device")
{
	if (!on_wire())
		SKIP_CASE("the direct path has no packets");
	const Faulty faulty;
	Device device(name);
	const auto unknown = counter("drop_qpn", name);
	{
		Scene scene(device);

		add("delay 3s count 1 qp " + std::to_string(scene.b.qp->qp_num));
		post(scene.a.qp, scene.write());
		CHECK(eventually([&] { return has(peal("fault show --json"), "\"fired\": 1"); }));
	}
	CHECK(eventually([&] { return counter("drop_qpn", name) > unknown; }));
	remove_all();

	Scene scene(device);
	const auto begin = std::chrono::steady_clock::now();

	add("delay 10s qp " + std::to_string(scene.b.qp->qp_num));
	add("reorder qp " + std::to_string(scene.a.qp->qp_num));
	post(scene.a.qp, scene.write());
	CHECK(eventually([&] { return has(peal("fault show --json"), "\"fired\": 1"); }));
	CHECK(run(peal_tool() + " link del " + name) == 0);
	CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
	CHECK(device.wait_event(IBV_EVENT_DEVICE_FATAL, port_object));
}

TEST_CASE("a receive fails with each status, and both ends go into error")
{
	const std::map<const char *, ibv_wc_status> statuses{
		{"loc-len-err", IBV_WC_LOC_LEN_ERR},	   {"loc-prot-err", IBV_WC_LOC_PROT_ERR},
		{"loc-access-err", IBV_WC_LOC_ACCESS_ERR}, {"wr-flush-err", IBV_WC_WR_FLUSH_ERR},
		{"general-err", IBV_WC_GENERAL_ERR},
	};
	const Faulty faulty;
	Device device(name);

	for (const auto &[word, status] : statuses) {
		Scene scene(device);
		const auto send = Send(IBV_WR_SEND, {scene.from.sge(0, 64)});

		INFO(word);
		for (std::uint64_t id = 1; id <= 3; id++)
			post_recv(scene.b.qp, id, {scene.to.sge(64 * id, 64)});
		add(std::string("receive ") + word + " opcode send,write every 2 qp " +
		    std::to_string(scene.b.qp->qp_num));
		/* A message that takes no receive is no matter of this rule. */
		must_succeed(scene.complete(scene.write()));
		must_succeed(scene.complete(send));
		must_succeed(wait_completion(scene.b.recv_cq));
		check_status(scene.complete(send), IBV_WC_REM_OP_ERR,
			     on_wire() ? PEAL_REASON_NAK_OPERATION : PEAL_REASON_FAULT);
		const auto done = wait_completions(scene.b.recv_cq, 2);

		CHECK(done[0].wr_id == 2);
		check_fault(done[0], status);
		CHECK(done[1].wr_id == 3);
		CHECK(done[1].status == IBV_WC_WR_FLUSH_ERR);
		CHECK(all_equal(scene.to.bytes(128, 64), 0));
		CHECK(query_state(scene.a.qp) == IBV_QPS_ERR);
		CHECK(query_state(scene.b.qp) == IBV_QPS_ERR);
		remove_all();
	}
}

TEST_CASE("receives of datagrams and of XRC fail, too")
{
	const Faulty faulty;
	Device device(name);
	{
		UdEnd from(device), to(device);
		const Datagram send(from.to_self, to.qp->qp_num, {from.memory.sge(0, 64)});

		settle(from, to, from.to_self);
		fill_pattern(from.memory.bytes(0, 64), 1);
		for (std::uint64_t id = 1; id <= 3; id++)
			post_recv(to.qp, id, {to.memory.sge(256 * id, grh_bytes + 64)});
		add("receive general-err every 2 opcode send peer " + std::string(own_address) +
		    " qp " + std::to_string(to.qp->qp_num));
		for (int i = 0; i < 2; i++) {
			post(from.qp, send);
			/* The sender does not notice. */
			must_succeed(wait_completion(from.send_cq));
		}
		const auto done = wait_completions(to.recv_cq, 3);

		must_succeed(done[0]);
		CHECK(done[1].wr_id == 2);
		check_fault(done[1], IBV_WC_GENERAL_ERR);
		CHECK(done[2].status == IBV_WC_WR_FLUSH_ERR);
		CHECK(all_equal(to.memory.bytes(512, grh_bytes + 64), 0));
		CHECK(query_state(to.qp) == IBV_QPS_ERR);
		CHECK(query_state(from.qp) == IBV_QPS_RTS);
		remove_all();
	}
	const auto domain = xrc::open_domain(device);
	const xrc::Shared shared(device, domain);
	xrc::Lane lane(device, domain), other(device, domain);

	for (std::uint64_t id = 1; id <= 3; id++)
		shared.post(id);
	add("receive loc-len-err every 2 opcode send qp " + std::to_string(lane.target->qp_num));
	lane.send(shared, 1, 100);
	must_succeed(wait_completion(lane.a.send_cq));
	must_succeed(wait_completion(shared.cq));
	lane.send(shared, 2, 100);
	check_status(wait_completion(lane.a.send_cq), IBV_WC_REM_OP_ERR,
		     on_wire() ? PEAL_REASON_NAK_OPERATION : PEAL_REASON_FAULT);
	const auto failed = wait_completion(shared.cq);

	CHECK(failed.wr_id == 2);
	check_fault(failed, IBV_WC_LOC_LEN_ERR);
	CHECK(all_equal(shared.buffer(2, 100), 0));
	CHECK(eventually([&] { return query_state(lane.target) == IBV_QPS_ERR; }));
	/* The shared receive queue goes on to serve another connection. */
	other.send(shared, 3, 100);
	must_succeed(wait_completion(other.a.send_cq));
	const auto next = wait_completion(shared.cq);

	must_succeed(next);
	CHECK(next.wr_id == 3);
}

TEST_CASE("completions become visible late, in their order, and not after their queue pair")
{
	const Faulty faulty;
	Device device(name);
	const auto since = [](auto begin) { return std::chrono::steady_clock::now() - begin; };
	{
		Scene scene(device);

		add("slow 100ms every 2 qp " + std::to_string(scene.a.qp->qp_num));
		auto begin = std::chrono::steady_clock::now();

		/* The second one is late. The third one waits behind it. */
		for (std::uint64_t id = 1; id <= 3; id++)
			post(scene.a.qp, scene.write().id(id));
		const auto done = wait_completions(scene.a.send_cq, 3);

		CHECK(since(begin) >= std::chrono::milliseconds(100));
		for (std::uint64_t id = 1; id <= 3; id++) {
			must_succeed(done[id - 1]);
			CHECK(done[id - 1].wr_id == id);
		}
		/* The bytes have been there before. */
		std::ranges::fill(scene.to.bytes(0, 64), std::uint8_t{0});
		begin = std::chrono::steady_clock::now();
		post(scene.a.qp, scene.write());
		CHECK(eventually([&] {
			return difference(scene.to.bytes(0, 64), pattern_of(64, 1)).empty();
		}));
		must_succeed(wait_completion(scene.a.send_cq));
		CHECK(since(begin) >= std::chrono::milliseconds(100));
		remove_all();
	}
	/* What a queue pair completed before it was reset does not come. */
	Scene scene(device);

	add("slow 100ms count 1 qp " + std::to_string(scene.a.qp->qp_num));
	post(scene.a.qp, scene.write());
	CHECK(eventually([&] { return has(peal("fault show --json"), "\"fired\": 1"); }));
	to_state(scene.a.qp, IBV_QPS_RESET);
	to_state(scene.b.qp, IBV_QPS_RESET);
	connect(scene.a, scene.b);
	must_succeed(scene.complete(scene.write().id(9)));
	CHECK(drain(scene.a.send_cq).empty());

	/* An end of the device does not take it. */
	remove_all();
	add("slow 10s qp " + std::to_string(scene.a.qp->qp_num));
	post(scene.a.qp, scene.write().id(10));
	CHECK(eventually([&] { return has(peal("fault show --json"), "\"fired\": 1"); }));
	CHECK(run(peal_tool() + " link del " + name) == 0);
	const auto last = wait_completion(scene.a.send_cq);

	CHECK(last.wr_id == 10);
	must_succeed(last);
}

TEST_CASE("a program makes an object, and there is no memory")
{
	const Faulty faulty;
	Device device(name);
	Scene scene(device);
	const auto fails = [](auto *object) {
		const auto error = errno;

		CHECK_FALSE(object);
		CHECK(error == ENOMEM);
	};

	add("no-memory count 4");
	fails(ibv_alloc_pd(device));
	fails(ibv_create_cq(device, 1, nullptr, nullptr, 0));
	fails(ibv_reg_mr(scene.a.pd, scene.from.bytes(0, 64).data(), 64, 0));
	ibv_qp_init_attr init{};

	init.send_cq = init.recv_cq = scene.a.send_cq;
	init.qp_type = IBV_QPT_RC;
	init.cap = {1, 1, 1, 1, 0};
	fails(ibv_create_qp(scene.a.pd, &init));
	/* What exists goes on, and the next object is made. */
	must_succeed(scene.complete(scene.write()));
	const Region more(scene.a.pd, page_bytes);

	CHECK(has(peal("fault show --json"), "\"fired\": 4"));
}

TEST_CASE("packets are marked, and the receiver notifies the sender")
{
	if (!on_wire())
		SKIP_CASE("the direct path has no packets");
	const Faulty faulty;
	Device device(name);
	Scene scene(device);
	const auto sent = counter("np_cnp_sent", name), handled = counter("rp_cnp_handled", name);

	add("mark count 1");
	must_succeed(scene.complete(scene.write()));
	CHECK(eventually([&] { return counter("rp_cnp_handled", name) == handled + 1; }));
	CHECK(counter("np_cnp_sent", name) == sent + 1);
}

TEST_CASE("a datagram fails, too")
{
	const Faulty faulty;
	Device device(name);
	Endpoint a(device, {.type = IBV_QPT_UD});
	ibv_qp_attr attr{};

	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qkey = 17;
	must(ibv_modify_qp(a.qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
	     "modify to INIT");
	to_state(a.qp, IBV_QPS_RTR);
	attr.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "modify to RTS");
	ibv_ah_attr to{};

	to.is_global = 1;
	to.port_num = 1;
	to.grh.dgid = device.gid();
	to.grh.sgid_index = static_cast<std::uint8_t>(device.gid_index());
	to.grh.hop_limit = 64;
	const Ah ah(ibv_create_ah(a.pd, &to), "create_ah");
	Region from(a.pd, page_bytes);
	auto send = Send(IBV_WR_SEND, {from.sge(0, 64)});

	send.wr.wr.ud = {ah, a.qp->qp_num, 17};
	add("status loc-prot-err count 1");
	post(a.qp, send);
	check_fault(wait_completion(a.send_cq), IBV_WC_LOC_PROT_ERR);
	CHECK(query_state(a.qp) == IBV_QPS_SQE);
	to_state(a.qp, IBV_QPS_RTS);
	post(a.qp, send);
	must_succeed(wait_completion(a.send_cq));
	if (!on_wire())
		return;

	/* Of three datagrams the second is lost, and the third comes twice. */
	Region to_here(a.pd, page_bytes);
	remove_all();
	for (std::uint64_t id = 1; id <= 3; id++)
		post_recv(a.qp, id, {to_here.sge(256 * id, 104)});
	add("drop every 2 count 1");
	add("duplicate every 2");
	for (std::uint32_t i = 1; i <= 3; i++) {
		send.wr.imm_data = htonl(i);
		send.wr.opcode = IBV_WR_SEND_WITH_IMM;
		post(a.qp, send);
		must_succeed(wait_completion(a.send_cq));
	}
	const auto arrive = [&](std::size_t count) {
		std::vector<std::uint32_t> order;

		for (const auto &wc : wait_completions(a.recv_cq, count)) {
			must_succeed(wc);
			order.push_back(ntohl(wc.imm_data));
		}
		return order;
	};

	CHECK(arrive(3) == std::vector<std::uint32_t>{1, 3, 3});
	/* One list leaves from one CPU, so the datagrams arrive in its order. */
	const auto post_six = [&] {
		std::vector<Send> list;

		for (std::uint32_t i = 1; i <= 6; i++) {
			post_recv(a.qp, i, {to_here.sge(256 * i, 104)});
			list.push_back(send);
			list.back().wr.imm_data = htonl(i);
		}
		ibv_send_wr *bad = nullptr;

		must(post_list(a.qp, list, &bad), "post_send");
		wait_completions(a.send_cq, 6);
		return arrive(6);
	};
	const std::pair<const char *, std::vector<std::uint32_t>> rules[] = {
		{"delay 20ms", {1, 2, 3, 4, 5, 6}},
		{"delay 20ms every 3", {1, 2, 4, 5, 3, 6}},
		{"reorder every 2", {1, 3, 2, 5, 4, 6}},
		{"reorder chance 1/2 seed 3", {}},
	};

	for (const auto &[rule, order] : rules) {
		remove_all();
		INFO(rule);
		add(rule);
		const auto first = post_six();

		if (!order.empty())
			CHECK(first == order);
		remove_all();
		add(rule);
		CHECK(post_six() == first);
	}
}

TEST_CASE("events happen at once")
{
	const Faulty faulty;
	Device device(name);
	const auto now = [](const std::string &words) {
		REQUIRE(peal("fault now " + std::string(name) + " " + words).empty());
	};
	{
		Scene scene(device);
		const auto number = std::to_string(scene.b.qp->qp_num);

		now("device-fatal");
		CHECK(device.wait_event(IBV_EVENT_DEVICE_FATAL, port_object));
		now("port-err");
		CHECK(device.wait_event(IBV_EVENT_PORT_ERR, port_object));
		now("port-active");
		CHECK(device.wait_event(IBV_EVENT_PORT_ACTIVE, port_object));
		must_succeed(scene.complete(scene.write()));

		post_recv(scene.b.qp, 7, {scene.to.sge(0, 64)});
		now("qp-fatal qp " + number);
		CHECK(device.wait_event(IBV_EVENT_QP_FATAL, scene.b.qp));
		const auto flushed = wait_completion(scene.b.recv_cq);

		CHECK(flushed.wr_id == 7);
		CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
		CHECK(query_state(scene.b.qp) == IBV_QPS_ERR);
		CHECK(query_state(scene.a.qp) == IBV_QPS_RTS);
	}
	Scene scene(device);

	now("cq-err qp " + std::to_string(scene.a.qp->qp_num));
	CHECK(device.wait_event(IBV_EVENT_CQ_ERR, scene.a.send_cq));
	CHECK(device.wait_event(IBV_EVENT_CQ_ERR, scene.a.recv_cq));
	/* A queue pair that cannot complete goes into error. */
	post(scene.a.qp, scene.write());
	CHECK(device.wait_event(IBV_EVENT_QP_FATAL, scene.a.qp));
	CHECK(eventually([&] { return query_state(scene.a.qp) == IBV_QPS_ERR; }));
	CHECK(drain(scene.a.send_cq).empty());

	CHECK(has(refusal("fault now " + std::string(name) + " qp-fatal qp 1234567"),
		  "the device has no such queue pair; \"peal show qp\""));
	for (const auto *event : {"qp-fatal", "cq-err"})
		CHECK(has(
			refusal("fault now " + std::string(name) + " " + event + " qp 1"),
			"this queue pair is the connection manager's, which faults spare; name the "
			"queue pair of a program, which \"peal show qp peal-faulty\" lists"));
	CHECK(has(refusal("fault now " + device_name() + " device-fatal"), "without faults"));
	CHECK(has(refusal("fault now " + std::string(name) + " device-fatal",
			  "setpriv --reuid 65534 --clear-groups --bounding-set=-all "
			  "--inh-caps=-all "),
		  "run the command as root"));
}

TEST_CASE("peal fault show and peal why tell what happened, and rules end with the device")
{
	const auto show = "fault show " + std::string(name);
	{
		const Faulty faulty;
		Device device(name);
		Scene scene(device);

		add("status rem-access-err qp " + std::to_string(scene.a.qp->qp_num) +
		    " peer 10.79.0.1 opcode write count 1");
		check_fault(scene.complete(scene.write()), IBV_WC_REM_ACCESS_ERR);
		const auto json = peal(show + " --json");

		for (const auto *words :
		     {"\"device\": \"peal-faulty\"", "\"id\": 1,", "\"fault\": \"status\"",
		      "\"status\": \"rem-access-err\"", "\"peer\": \"10.79.0.1\"", "\"write\"",
		      "\"count\": 1,", "\"chance\": null", "\"seen\": 1,", "\"fired\": 1"})
			CHECK(has(json, words));
		CHECK(has(peal(show), "status rem-access-err"));
		const auto why =
			peal("why " + std::string(name) + "/" + std::to_string(scene.a.qp->qp_num));

		CHECK(has(why, "WRITE failed: remote access error"));
		CHECK(has(why, "an administrator asked for this error by \"peal fault\""));
		CHECK(has(why, "-> type \"peal fault show\""));
	}
	const Faulty again;

	CHECK(has(peal(show), "there are no faults"));
}
