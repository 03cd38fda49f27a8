// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A connection has one owner, so it ends once. */
/* error: deleted */
#include <peal/peal.hpp>

void use(peal::connection &connection)
{
#ifdef MISUSE
	auto other = connection;
	(void)other;
#else
	auto other = std::move(connection);
	(void)other;
#endif
}
