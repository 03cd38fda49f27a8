// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Memory has one owner, which registers it. */
/* error: deleted */
#include <peal/peal.hpp>

void use(peal::device &device, peal::connection &connection, peal::memory<char> &memory)
{
#ifdef MISUSE
	auto other = memory;
	(void)other, (void)device, (void)connection;
#else
	auto other = std::move(memory);
	(void)other, (void)device, (void)connection;
#endif
}
