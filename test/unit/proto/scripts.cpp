// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The scripts. Each case of a file is a section. */
#include "script.hpp"

using namespace peal::test;

#define SCRIPT(half, subject)                                                                      \
	TEST_CASE(#half " " #subject, "[" #half "][" #subject "]")                                 \
	{                                                                                          \
		run_script(#half "/" #subject ".txt", make_##half);                                \
	}

SCRIPT(requester, acks)
SCRIPT(requester, blocked)
SCRIPT(requester, cork)
SCRIPT(requester, credits)
SCRIPT(requester, failures)
SCRIPT(requester, naks)
SCRIPT(requester, reads)
SCRIPT(requester, segments)
SCRIPT(requester, timers)
SCRIPT(responder, order)
SCRIPT(responder, reads)
SCRIPT(responder, reorder)
SCRIPT(responder, uc)
