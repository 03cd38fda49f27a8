// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The offer would end before its blob reaches the peer. */
/* error: deleted */
#include <peal/peal.hpp>

void use(peal::device &device)
{
#ifdef MISUSE
	(void)device.offer({}).value().blob();
#else
	auto offer = device.offer({}).value();
	(void)offer.blob();
#endif
}
