// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What is here and what is there are not the same. */
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
