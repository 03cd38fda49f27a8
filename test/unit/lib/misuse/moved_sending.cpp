// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The connection knows where it is. */
/* error: use of deleted */
#include <peal/co.hpp>

using namespace std::chrono_literals;

peal::co::task<> use(peal::co::connection &connection)
{
	auto sent = connection.send_imm(1, 1s);
#ifdef MISUSE
	auto moved = std::move(sent);
	(void)co_await moved;
#else
	(void)co_await sent;
#endif
}
