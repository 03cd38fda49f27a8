/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Doubly linked lists. */
#ifndef PEAL_SHIM_LINUX_LIST_H
#define PEAL_SHIM_LINUX_LIST_H

#include <linux/kernel.h>

struct list_head {
	struct list_head *next, *prev;
};

#define LIST_HEAD_INIT(name)	{ &(name), &(name) }

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list->prev = list;
}

static inline bool list_empty(const struct list_head *list)
{
	return list->next == list;
}

static inline void list_add(struct list_head *entry, struct list_head *list)
{
	entry->next = list->next;
	entry->prev = list;
	list->next->prev = entry;
	list->next = entry;
}

static inline void list_add_tail(struct list_head *entry, struct list_head *list)
{
	list_add(entry, list->prev);
}

static inline void list_del(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
}

static inline void list_del_init(struct list_head *entry)
{
	list_del(entry);
	INIT_LIST_HEAD(entry);
}

#define list_for_each_entry(pos, list, member)					\
	for (pos = container_of((list)->next, __typeof__(*pos), member);	\
	     &pos->member != (list);						\
	     pos = container_of(pos->member.next, __typeof__(*pos), member))

#define list_for_each_entry_safe(pos, after, list, member)			\
	for (pos = container_of((list)->next, __typeof__(*pos), member),	\
	     after = container_of(pos->member.next, __typeof__(*pos), member);	\
	     &pos->member != (list);						\
	     pos = after, after = container_of(pos->member.next, __typeof__(*pos), member))

#endif
