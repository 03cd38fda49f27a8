// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Every wait ends, also that of a coroutine. */
/* error: no matching (member )?function */
#include <peal/co.hpp>

using namespace std::chrono_literals;

peal::co::task<> use(peal::co::connection &connection)
{
#ifdef MISUSE
	(void)co_await connection.recv();
#else
	(void)co_await connection.recv(1s);
#endif
}
