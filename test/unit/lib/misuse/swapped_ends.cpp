// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A slice of this program is no part of the peer's memory. */
/* error: cannot convert|no viable conversion */
#include <peal/peal.hpp>

void use(peal::batch &batch, peal::connection &connection, peal::memory<char> &memory)
{
#ifdef MISUSE
	batch.write(connection.peer().at(0), memory.all());
#else
	batch.write(memory.all(), connection.peer().at(0));
#endif
}
