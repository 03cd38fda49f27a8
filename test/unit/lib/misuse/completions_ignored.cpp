// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A request may have failed. */
/* error: nodiscard|ignoring return */
#include <peal/peal.hpp>

void use(peal::connection &connection)
{
#ifdef MISUSE
	connection.take();
#else
	(void)connection.take();
#endif
}
