// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A plugin of QEMU's translator. It counts how often each translated block runs, and writes one
 * line for each block when QEMU ends: its address in hexadecimal, its instructions, its runs.
 *
 *	qemu-system-x86_64 -plugin count.so,to=FILE ...
 *
 * Declares the part of QEMU's interface for plugins (version 1, QEMU 7.2) that it uses, because
 * Debian has no header of it. Does not know: functions (profile.py).
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_info_t;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*call)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, enum qemu_plugin_op op,
					      void *counter, uint64_t add);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*call)(qemu_plugin_id_t, void *),
				    void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int qemu_plugin_version = 1;

/* A block is translated again when its page was written, so the same address may come twice. */
struct block {
	uint64_t address, instructions, runs;
	struct block *next;
};

static struct block *blocks[1 << 16];
static const char *to;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb), instructions = qemu_plugin_tb_n_insns(tb);
	struct block **at = &blocks[(address * 0x9e3779b97f4a7c15U) >> 48];
	struct block *block = *at;

	(void)id;
	while (block && (block->address != address || block->instructions != instructions))
		block = block->next;
	if (!block) {
		block = malloc(sizeof(*block));
		if (!block)
			abort();
		*block = (struct block){address, instructions, 0, *at};
		*at = block;
	}
	qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &block->runs, 1);
}

static void ended(qemu_plugin_id_t id, void *data)
{
	FILE *file = fopen(to, "w");

	(void)id, (void)data;
	for (size_t i = 0; file && i < sizeof(blocks) / sizeof(*blocks); i++)
		for (const struct block *block = blocks[i]; block; block = block->next)
			if (block->runs)
				fprintf(file, "%" PRIx64 " %" PRIu64 " %" PRIu64 "\n",
					block->address, block->instructions, block->runs);
	if (file)
		fclose(file);
}

PUBLIC int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info, int argc,
			       char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "to=", 3))
		return 1;
	to = strdup(argv[0] + 3);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
