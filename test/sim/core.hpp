// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The transport core's headers for C++.
 *
 * Owns: nothing. The code behind these declarations is compiled as C.
 */
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
#include <linux/types.h>
#include <rdma/peal-abi.h>

#include "proto/reorder.h"
#include "proto/packet.h"
#include "proto/responder.h"
#include "proto/requester.h"
}
#undef min
#undef max

namespace peal::sim {

/*
 * Completion statuses by number, as programs know them (ibv_wc_status). They are
 * not taken from the header that the core is compiled with.
 */
enum Status : u8 {
	SUCCESS = 0,
	LOC_LEN_ERR = 1,
	LOC_QP_OP_ERR = 2,
	LOC_PROT_ERR = 4,
	WR_FLUSH_ERR = 5,
	MW_BIND_ERR = 6,
	BAD_RESP_ERR = 7,
	REM_INV_REQ_ERR = 9,
	REM_ACCESS_ERR = 10,
	REM_OP_ERR = 11,
	RETRY_EXC_ERR = 12,
	RNR_RETRY_EXC_ERR = 13,
};

/* What a responder's host says of a request, as the AETH of the answer has it (IBTA 9.7.5.1). */
enum Verdict : u8 {
	DONE = 0x00,
	NOT_READY = 0x20, /* the lower five bits are the RNR timer */
	REFUSED_INVALID = 0x61,
	REFUSED_ACCESS = 0x62,
	REFUSED_OPERATION = 0x63,
};

/* The lower part of the BTH opcode, which RC and XRC have in common. */
inline u8 wire_op(u8 opcode)
{
	return opcode & 0x1f;
}

} // namespace peal::sim
