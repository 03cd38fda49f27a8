// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A batch that was refused has posted nothing. */
/* error: nodiscard|ignoring return */
#include <peal/peal.hpp>

void use(peal::batch &batch)
{
#ifdef MISUSE
	batch.commit();
#else
	(void)batch.commit().code();
#endif
}
