// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A request may have failed, and its end is not known before co_await. */
/* error: nodiscard|ignoring return */
#include <peal/co.hpp>

using namespace std::chrono_literals;

peal::co::task<> use(peal::co::connection &connection)
{
#ifdef MISUSE
	connection.send_imm(1, 1s);
	co_return;
#else
	(void)co_await connection.send_imm(1, 1s);
#endif
}
