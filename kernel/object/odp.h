/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * On-demand paging: a program's memory that is not pinned. There is a table of the pages that are
 * present, the MMU notifier that takes pages out of it, and a work that brings pages in. It covers
 * a range of the program's addresses, or all of them.
 *
 * The data path may not sleep. Inside the epoch it first asks peal_odp_look() for all bytes of a
 * chunk, and then copies through peal_odp_at(). An absent page is requested, and the caller tries
 * again later.
 *
 * A page may take for ever, because another program may have to deliver it (FUSE). Whoever brings
 * pages in therefore waits without any lock, and without the program's memory if the page is a
 * file's. The work has a reference of its own, and finds out afterwards that the region is gone.
 *
 * Barrier G (epoch.h) makes the copy safe. An invalidation marks the pages as stale, waits for the
 * epoch, and only then forgets where they are. A section that did not see the mark has ended by
 * then, and a section that sees it finds no page. The fast paths remember an entry, and barrier O
 * tells them that entries became stale.
 */
#ifndef PEAL_ODP_H
#define PEAL_ODP_H

#include <linux/types.h>
#include <rdma/peal-abi.h>

/*
 * The memory of the null region. One page is only read and another only written, so that no program
 * sees what another one has written.
 */
enum peal_null {
	PEAL_NULL_NONE = 0,
	PEAL_NULL_SOURCE,	/* reads as zeros */
	PEAL_NULL_SINK,		/* forgets what is written */
};

void *peal_null_at(enum peal_null which, u64 *bytes);

struct peal_odp;

enum peal_odp_state {
	PEAL_ODP_PRESENT,	/* peal_odp_at() may be used until the epoch is left */
	PEAL_ODP_ABSENT,	/* requested; try again later */
	PEAL_ODP_FAULT,		/* the program has no such memory, or may not write it */
	PEAL_ODP_LATE,		/* requested, but has not come for PEAL_ODP_LATE_SECONDS */
};

/* Longer than a disk or a file server takes to recover. PEAL_REASON_PAGE_LATE names it, too. */
#define PEAL_ODP_LATE_SECONDS	60

/* The first wait between two tries. It doubles with each try, PEAL_ODP_RETRY_SHIFT times. */
#define PEAL_ODP_RETRY_NS	(20 * NSEC_PER_USEC)
#define PEAL_ODP_RETRY_SHIFT	8

/* Why a message fails that meets FAULT or LATE. @fault: the reason for FAULT. */
static inline enum peal_reason peal_odp_reason(enum peal_odp_state state, enum peal_reason fault)
{
	return state == PEAL_ODP_LATE ? PEAL_REASON_PAGE_LATE : fault;
}

/* The page that one user found last. All zeros: none. */
struct peal_odp_page {
	unsigned long index;	/* in the table */
	unsigned long value;	/* its entry; 0: none */
	unsigned long drops;	/* the table's drops, loaded before the entry */
};

bool peal_odp_is_supported(void);
int peal_odp_init(void);
void peal_odp_exit(void);

struct peal_odp *peal_odp_create(u64 start, u64 length, bool writable);
void peal_odp_destroy(struct peal_odp *odp);
bool peal_odp_get(struct peal_odp *odp);
void peal_odp_put(struct peal_odp *odp);

enum peal_odp_state peal_odp_look(struct peal_odp *odp, u64 address, u64 bytes, bool write);
void *peal_odp_find(struct peal_odp *odp, struct peal_odp_page *last, u64 address, u64 *bytes,
		    bool write);
void *peal_odp_at(struct peal_odp *odp, u64 address, u64 *bytes);
int peal_odp_prefetch(struct peal_odp *odp, u64 address, u64 bytes, bool write, bool fault);

#endif
