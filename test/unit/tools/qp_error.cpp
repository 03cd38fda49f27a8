// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The words about errors of queue pairs: each reason has some, and those with numbers have the
 * numbers.
 */
#include <rdma/peal-abi.h>

#include "../../../userspace/tools/qp_error.hpp"
#include "../catch.hpp"

using namespace peal::tool;

namespace {

struct Reason {
	std::uint64_t number;
	const char *name;
};

#define REASON(name, number, text) {number, #name},
const Reason reasons[] = {PEAL_REASONS(REASON)};
#undef REASON

} /* namespace */

TEST_CASE("each reason that fails a message has words and a remedy, also without numbers")
{
	for (const auto &reason : reasons) {
		INFO(reason.name);
		QpError error;

		error.reason = reason.number;
		CHECK_FALSE(what_happened(error).empty());
		/* These three are no failure of a message of their own. */
		if (reason.number != PEAL_REASON_NONE && reason.number != PEAL_REASON_FLUSHED &&
		    reason.number != PEAL_REASON_DEVICE_REMOVED)
			CHECK_FALSE(what_to_do(error).empty());
	}
}

TEST_CASE("a reason of a newer module is named by its number")
{
	QpError error;

	error.reason = 4711;
	CHECK(what_happened(error) == "reason 4711, which this tool does not know");
	CHECK(what_to_do(error).empty());
	error.opcode = 99;
	error.status = 99;
	CHECK(operation_of(error) == "operation 99");
	CHECK(status_of(error) == "status 99");
}

TEST_CASE("the numbers are in the words")
{
	QpError error;

	error.responder = true;
	error.opcode = PEAL_OP_WRITE;
	error.key = 0x1a2b03;
	error.address = 0x7000;
	error.length = 64;
	error.pdn = 3;
	error.key_pdn = 7;
	error.reason = PEAL_REASON_RKEY_PD;
	CHECK(what_happened(error) == "rkey 0x1a2b03 belongs to PD 7, the queue pair to PD 3");
	error.reason = PEAL_REASON_RKEY_UNKNOWN;
	CHECK(what_happened(error) == "rkey 0x1a2b03 names no memory");
	error.reason = PEAL_REASON_RKEY_RANGE;
	error.key_start = 0x6000;
	error.key_length = 4096;
	CHECK(what_happened(error) == "64 bytes at 0x7000 are not all in the memory of rkey "
				      "0x1a2b03, which is 4096 bytes at 0x6000");
	error.reason = PEAL_REASON_RKEY_ACCESS;
	error.key_access = 1 | 4;
	error.wanted = 2;
	CHECK(what_happened(error) == "rkey 0x1a2b03 allows local write, remote read, and the "
				      "WRITE needs remote write");
	error.reason = PEAL_REASON_QP_ACCESS;
	error.allowed = 0;
	CHECK(what_happened(error) ==
	      "the queue pair allows nothing, and the WRITE needs remote write");
	error.reason = PEAL_REASON_RECV_TOO_SHORT;
	error.room = 16;
	CHECK(what_happened(error) == "the message has 64 bytes, and the receive has 16");
	error.responder = false;
	CHECK(what_happened(error) == "the peer refused a WRITE of 64 bytes at 0x7000 with rkey "
				      "0x1a2b03: message longer than the receive buffer");
	error.reason = PEAL_REASON_NAK_ACCESS;
	CHECK(what_happened(error) == "the peer refused a WRITE of 64 bytes at 0x7000 with rkey "
				      "0x1a2b03: peer's NAK: remote access error");
	error.reason = PEAL_REASON_PEER_SILENT;
	error.peer_qpn = 17;
	error.retries = 7;
	error.timeout = 14;
	CHECK(what_happened(error) == "no answer from the peer through all retries (queue pair 17 "
				      "there, retry_cnt 7, timeout 14: 67 ms)");
	error.timeout = 0;
	CHECK(what_happened(error).ends_with("timeout 0: none)"));
	error.peer_address = "10.0.0.2";
	CHECK(what_happened(error) == "no answer from the peer through all retries (queue pair 17 "
				      "at 10.0.0.2, retry_cnt 7, timeout 0: none)");
	error.reason = PEAL_REASON_RNR_EXHAUSTED;
	error.rnr_retries = 3;
	CHECK(what_happened(error) ==
	      "queue pair 17 at 10.0.0.2 had no receive posted (rnr_retry 3)");
}
