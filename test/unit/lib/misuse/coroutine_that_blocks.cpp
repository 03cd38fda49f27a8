// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A call that blocks would stop all coroutines of the loop. */
/* error: no member named .wait */
#include <peal/co.hpp>

using namespace std::chrono_literals;

peal::co::task<> use(peal::co::connection &connection)
{
#ifdef MISUSE
	(void)connection.wait(1, 1s);
	co_return;
#else
	(void)co_await connection.send_imm(1, 1s);
#endif
}
