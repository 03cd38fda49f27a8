// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Every wait ends. */
/* error: no matching (member )?function */
#include <peal/peal.hpp>

using namespace std::chrono_literals;

void use(peal::connection &connection)
{
#ifdef MISUSE
	(void)connection.wait(1);
#else
	(void)connection.wait(1, 1s);
#endif
}
