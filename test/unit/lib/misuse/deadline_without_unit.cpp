// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A number has no unit. */
/* error: could not convert|cannot convert|no matching (member )?function */
#include <peal/peal.hpp>

using namespace std::chrono_literals;

void use(peal::connection &connection)
{
#ifdef MISUSE
	(void)connection.wait(1, 5);
#else
	(void)connection.wait(1, 5s);
#endif
}
