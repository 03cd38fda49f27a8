// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Memory that is not registered has no key. */
/* error: cannot convert|reference to type */
#include <peal/peal.hpp>

void use(peal::batch &batch, peal::connection &connection, peal::memory<char> &memory)
{
#ifdef MISUSE
	batch.write(memory.data(), connection.peer().at(0));
#else
	batch.write(memory.all(), connection.peer().at(0));
#endif
}
