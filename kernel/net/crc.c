// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See crc.h. Before Linux 6.14 only an algorithm of the crypto layer uses vector instructions, in a
 * module of its own. peal_crc_init() asks for that module. Without it, the library's tables are
 * used.
 */
#ifndef PEAL_HAS_FAST_CRC32

#include <crypto/hash.h>
#include <linux/cache.h>
#include <linux/init.h>

#include "net/crc.h"

/*
 * In bytes. Below this, saving and restoring the vector registers may cost more than it
 * gains. This is an estimate, to be measured with the other CRC and copy routines.
 */
#define PEAL_CRC_WORTH	512

static struct crypto_shash *peal_crc_hash __ro_after_init;	/* NULL: use the library */

void __init peal_crc_init(void)
{
	struct crypto_shash *hash = crypto_alloc_shash("crc32", 0, 0);

	if (IS_ERR(hash))
		return;
	if (crypto_shash_descsize(hash) == sizeof(u32))
		peal_crc_hash = hash;
	else
		crypto_free_shash(hash);
}

void peal_crc_exit(void)
{
	if (peal_crc_hash)
		crypto_free_shash(peal_crc_hash);
}

/* The whole state of this algorithm is the CRC so far. peal_crc_init() has checked its size. */
static noinline u32 peal_crc_add_fast(u32 crc, const void *bytes, size_t n)
{
	struct {
		struct shash_desc hash;
		u32 crc;
	} state;

	BUILD_BUG_ON(offsetof(typeof(state), crc) != offsetof(struct shash_desc, __ctx));
	state.hash.tfm = peal_crc_hash;
	state.crc = crc;
	if (unlikely(crypto_shash_update(&state.hash, bytes, n)))
		return peal_icrc_add(crc, bytes, n);
	return state.crc;
}

u32 peal_crc_add(u32 crc, const void *bytes, size_t n)
{
	if (n < PEAL_CRC_WORTH || !peal_crc_hash)
		return peal_icrc_add(crc, bytes, n);
	return peal_crc_add_fast(crc, bytes, n);
}

#endif
