// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The words of a fault: each is read as the module has it and shown as it was typed, and each wrong
 * one is refused with a sentence that names the right ones. An older module's errors are explained.
 */
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/peal-abi.h>
#include <rdma/peal-netlink.h>

#include "../../../userspace/tools/error.hpp"
#include "../../../userspace/tools/fault_rule.hpp"
#include "../../../userspace/tools/module.hpp"
#include "../catch.hpp"

using namespace peal::tool;

namespace {

using Words = std::vector<std::string>;

std::string refusal(const Words &words)
{
	try {
		parse_fault(words);
	} catch (const WrongUse &error) {
		return error.what();
	}
	return "";
}

bool says(const Words &words, const std::string &sentence)
{
	const auto refused = refusal(words);

	INFO(refused);
	return refused.find(sentence) != std::string::npos;
}

} /* namespace */

TEST_CASE("a fault without further words concerns each message")
{
	const auto rule = parse_fault(Words{"status", "rem-access-err"});

	CHECK(rule.kind == PEAL_NL_FAULT_KIND_STATUS);
	CHECK(rule.status == IBV_WC_REM_ACCESS_ERR);
	for (const auto &number :
	     {rule.qpn, rule.opcodes, rule.count, rule.every, rule.chance, rule.seed})
		CHECK_FALSE(number);
	CHECK_FALSE(rule.peer);
	CHECK(fault_words(rule) == "status rem-access-err");
	CHECK(fault_filter_words(rule) == "-");
	CHECK(fault_choice_words(rule) == "-");
}

TEST_CASE("each status of libibverbs has its name, in two ways of writing")
{
	const struct {
		const char *name, *code;
		ibv_wc_status status;
	} statuses[] = {
		{"loc-len-err", "IBV_WC_LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},
		{"loc-qp-op-err", "IBV_WC_LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
		{"loc-eec-op-err", "IBV_WC_LOC_EEC_OP_ERR", IBV_WC_LOC_EEC_OP_ERR},
		{"loc-prot-err", "IBV_WC_LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
		{"wr-flush-err", "IBV_WC_WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR},
		{"mw-bind-err", "IBV_WC_MW_BIND_ERR", IBV_WC_MW_BIND_ERR},
		{"bad-resp-err", "IBV_WC_BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR},
		{"loc-access-err", "IBV_WC_LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},
		{"rem-inv-req-err", "IBV_WC_REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
		{"rem-access-err", "IBV_WC_REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},
		{"rem-op-err", "IBV_WC_REM_OP_ERR", IBV_WC_REM_OP_ERR},
		{"retry-exc-err", "IBV_WC_RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},
		{"rnr-retry-exc-err", "IBV_WC_RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
		{"loc-rdd-viol-err", "IBV_WC_LOC_RDD_VIOL_ERR", IBV_WC_LOC_RDD_VIOL_ERR},
		{"rem-inv-rd-req-err", "IBV_WC_REM_INV_RD_REQ_ERR", IBV_WC_REM_INV_RD_REQ_ERR},
		{"rem-abort-err", "IBV_WC_REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},
		{"inv-eecn-err", "IBV_WC_INV_EECN_ERR", IBV_WC_INV_EECN_ERR},
		{"inv-eec-state-err", "IBV_WC_INV_EEC_STATE_ERR", IBV_WC_INV_EEC_STATE_ERR},
		{"fatal-err", "IBV_WC_FATAL_ERR", IBV_WC_FATAL_ERR},
		{"resp-timeout-err", "IBV_WC_RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR},
		{"general-err", "IBV_WC_GENERAL_ERR", IBV_WC_GENERAL_ERR},
	};

	for (const auto &[name, code, status] : statuses) {
		INFO(name);
		CHECK(parse_fault(Words{"status", name}).status == status);
		CHECK(parse_fault(Words{"status", code}).status == status);
		CHECK(fault_status_word(status) == name);
	}
}

TEST_CASE("each further word is read, and shown as it was typed")
{
	const auto all = parse_fault(Words{"status", "loc-prot-err", "qp", "17", "peer", "10.0.0.2",
					   "opcode", "write,read", "count", "5", "every", "3"});

	CHECK(all.qpn == 17u);
	CHECK(all.opcodes == (1u << PEAL_OP_WRITE | 1u << PEAL_OP_WRITE_IMM | 1u << PEAL_OP_READ));
	CHECK(all.count == 5u);
	CHECK(all.every == 3u);
	CHECK(fault_filter_words(all) == "qp 17 peer 10.0.0.2 opcode write,read");
	CHECK(fault_choice_words(all) == "every 3 count 5");

	const auto some = parse_fault(Words{"status", "general-err", "peer", "fd77::2", "chance",
					    "1/1000", "seed", "18446744073709551615"});

	CHECK(some.chance == 1000u);
	CHECK(some.seed == 18446744073709551615u);
	CHECK(fault_filter_words(some) == "peer fd77::2");
	CHECK(fault_choice_words(some) == "chance 1/1000 seed 18446744073709551615");
	for (const auto *words : {"send", "write", "read", "atomic", "flush", "send,atomic,flush"})
		CHECK(fault_filter_words(
			      parse_fault(Words{"status", "general-err", "opcode", words})) ==
		      std::string("opcode ") + words);
}

TEST_CASE("each fault has its name, and some have a status")
{
	const struct {
		const char *name;
		peal_nl_fault_kind kind;
	} faults[] = {
		{"rnr", PEAL_NL_FAULT_KIND_RNR},
		{"drop", PEAL_NL_FAULT_KIND_DROP},
		{"corrupt", PEAL_NL_FAULT_KIND_CORRUPT},
		{"mark", PEAL_NL_FAULT_KIND_MARK},
		{"reorder", PEAL_NL_FAULT_KIND_REORDER},
		{"duplicate", PEAL_NL_FAULT_KIND_DUPLICATE},
	};

	for (const auto &[name, kind] : faults) {
		const auto rule = parse_fault(Words{name, "qp", "17"});

		INFO(name);
		CHECK(rule.kind == kind);
		CHECK_FALSE(rule.status);
		CHECK(rule.qpn == 17u);
		CHECK(fault_words(rule) == name);
	}
	CHECK(fault_words(parse_fault(Words{"receive", "loc-len-err"})) == "receive loc-len-err");
	CHECK(parse_fault(Words{"delay", "250us"}).delay == 250u);
	CHECK(parse_fault(Words{"delay", "5ms"}).delay == 5000u);
	CHECK(parse_fault(Words{"delay", "10s"}).delay == 10000000u);
	for (const auto *time : {"1us", "1500us", "5ms", "1500ms", "10s"})
		CHECK(fault_words(parse_fault(Words{"delay", time})) ==
		      std::string("delay ") + time);
	CHECK(fault_words(parse_fault(Words{"slow", "20ms"})) == "slow 20ms");
	CHECK(fault_words(parse_fault(Words{"unsent", "peer", "10.0.0.2"})) == "unsent");
	CHECK(fault_choice_words(parse_fault(Words{"no-memory", "every", "2"})) == "every 2");
	for (const auto *status : {"rem-inv-req-err", "rem-access-err", "rem-op-err"}) {
		const auto rule = parse_fault(Words{"nak", status});

		CHECK(rule.kind == PEAL_NL_FAULT_KIND_NAK);
		CHECK(fault_words(rule) == std::string("nak ") + status);
	}
}

TEST_CASE("a wrong word of a fault is refused with the right ones")
{
	const auto with = [](const Words &more) {
		Words words{"status", "general-err"};

		words.insert(words.end(), more.begin(), more.end());
		return words;
	};

	CHECK(says({}, "a fault is status STATUS, nak STATUS, receive STATUS, rnr, drop"));
	CHECK(says({"slow", "5ms", "peer", "10.0.0.2"}, "concerns completions"));
	CHECK(says({"slow"}, "name the time behind \"slow\""));
	CHECK(says({"lose"}, "slow TIME or no-memory, not \"lose\""));
	CHECK(says({"receive"}, "name the status behind \"receive\""));
	CHECK(says({"receive", "general-err", "opcode", "send,read"},
		   "receive concerns send and write"));
	CHECK(says({"delay"}, "name the time behind \"delay\""));
	for (const auto *time :
	     {"", "5", "ms", "0ms", "-1ms", "5min", "11s", "10000001us", "1.5ms"})
		CHECK(says({"delay", time}, "a delay is a number with us, ms or s behind it"));
	for (const auto *narrow : {"qp", "peer", "opcode"})
		CHECK(says({"no-memory", narrow,
			    narrow == std::string("peer")     ? "10.0.0.2"
			    : narrow == std::string("opcode") ? "send"
							      : "1"},
			   "concerns objects that a program makes"));
	CHECK(says({"status"}, "name the status behind \"status\""));
	CHECK(says({"nak"}, "name the status behind \"nak\""));
	for (const auto *status : {"loc-len-err", "loc-access-err", "retry-exc-err"})
		CHECK(says({"nak", status},
			   "a NAK is rem-inv-req-err, rem-access-err or rem-op-err"));
	for (const auto *packet : {"drop", "corrupt", "mark", "reorder", "duplicate"})
		CHECK(says({packet, "opcode", "write"}, "concerns packets"));
	for (const auto *status : {"", "success", "rem-access", "-1"})
		CHECK(says({"status", status}, "a status is loc-len-err, loc-qp-op-err"));
	for (const auto *value : {"", "0", "-1", "x", "4294967296"}) {
		CHECK(says(with({"qp", value}), "qp is a number from 1"));
		CHECK(says(with({"every", value}), "every is a number from 1"));
	}
	CHECK(says(with({"count", "0"}), "count is a number from 1"));
	CHECK(says(with({"seed", "-1", "chance", "1/2"}), "seed is a number from 0"));
	for (const auto *value : {"", "0", "2", "1/", "1/0", "1/x", "2/3", "0.1"})
		CHECK(says(with({"chance", value}), "chance is 1/N"));
	for (const auto *value : {"", "10.0.0", "host", "10.0.0.2:4791"})
		CHECK(says(with({"peer", value}), "peer is an IPv4 or IPv6 address"));
	for (const auto *value : {"", "write,", "bind", "WRITE"})
		CHECK(says(with({"opcode", value}), "send,write,read,atomic,flush"));
	CHECK(says(with({"qpn", "1"}), "narrowed by qp, peer, opcode, count, every, chance"));
	CHECK(says(with({"qp"}), "\"qp\" has no value behind it"));
	CHECK(says(with({"every", "2", "chance", "1/2"}), "not both"));
	CHECK(says(with({"seed", "1"}), "seed needs chance"));
}

TEST_CASE("an event is named, and that of a queue pair has its number")
{
	const auto refused = [](const Words &words) {
		try {
			parse_fault_event(words);
		} catch (const WrongUse &error) {
			return std::string(error.what());
		}
		return std::string();
	};

	CHECK(parse_fault_event(Words{"device-fatal"}).event == PEAL_NL_FAULT_EVENT_DEVICE_FATAL);
	CHECK(parse_fault_event(Words{"port-err"}).event == PEAL_NL_FAULT_EVENT_PORT_ERR);
	CHECK(parse_fault_event(Words{"port-active"}).event == PEAL_NL_FAULT_EVENT_PORT_ACTIVE);
	CHECK(parse_fault_event(Words{"qp-fatal", "qp", "17"}).event ==
	      PEAL_NL_FAULT_EVENT_QP_FATAL);
	CHECK(parse_fault_event(Words{"cq-err", "qp", "17"}).qpn == 17u);
	CHECK(refused({}).find("what happens is device-fatal") == 0);
	CHECK(refused({"fire"}).find("not \"fire\"") != std::string::npos);
	CHECK(refused({"port-err", "qp", "1"}) == "nothing stands behind \"port-err\"");
	for (const Words &words : {Words{"qp-fatal"}, Words{"qp-fatal", "qp"},
				   Words{"qp-fatal", "17"}, Words{"qp-fatal", "peer", "1"}})
		CHECK(refused(words).find("type \"qp-fatal qp N\"") == 0);
	CHECK(refused({"cq-err", "qp", "0"}).find("qp is a number from 1") == 0);
}

TEST_CASE("what a newer module tells is shown as its number")
{
	FaultRule rule;

	rule.kind = 77;
	rule.status = 99;
	rule.opcodes = 1ull << PEAL_OP_SEND | 1ull << 40;
	CHECK(fault_words(rule) == "fault 77 99");
	CHECK(fault_filter_words(rule) == "opcode 1,40");
}

TEST_CASE("an older module that does not know a fault is told from other errors")
{
	const auto says = [](int number, const std::string &words, const char *sentence) {
		const std::string text = fault_failure("peal0", 7, {number, words}).what();

		INFO(text);
		return text.find(sentence) != std::string::npos;
	};

	/* What the kernel answers to a new attribute, a new kind, and a new command. */
	for (const auto &[number, words] :
	     {std::pair(EINVAL, "Unknown attribute type"),
	      std::pair(ERANGE, "integer out of range"), std::pair(EOPNOTSUPP, "")})
		CHECK(says(number, words,
			   "the module that is loaded does not know this fault; load the one of "
			   "this release"));
	CHECK(says(EOPNOTSUPP, "the device was added without faults", "peal0 was added without"));
	CHECK(says(EINVAL, "the longest delay is 10 s", "the longest delay is 10 s"));
	CHECK(says(ENOENT, "the device has no such rule", "peal0 has no rule 7"));
}
