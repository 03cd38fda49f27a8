// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The window would end before the batch that binds it. */
/* error: cannot bind|no matching (member )?function */
#include <peal/peal.hpp>

void use(peal::connection &connection, peal::batch &batch, peal::memory<char> &memory)
{
#ifdef MISUSE
	(void)batch.bind(connection.window().value(), memory.all(), peal::remote_write);
#else
	auto window = connection.window().value();
	(void)batch.bind(window, memory.all(), peal::remote_write);
#endif
}
