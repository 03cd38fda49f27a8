// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A region that was not lent by a window cannot be given back. */
/* error: no matching (member )?function|cannot bind|could not convert */
#include <peal/peal.hpp>

void use(peal::connection &connection, peal::batch &batch, peal::lease &lease)
{
#ifdef MISUSE
	peal::region all = connection.peer();
	(void)batch.send_invalidate(all), (void)lease;
#else
	(void)batch.send_invalidate(lease), (void)connection;
#endif
}
