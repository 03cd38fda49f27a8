// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The connection would end before its batch. */
/* error: deleted */
#include <peal/peal.hpp>

void use(peal::connection &&connection)
{
#ifdef MISUSE
	(void)std::move(connection).batch();
#else
	(void)connection.batch();
#endif
}
