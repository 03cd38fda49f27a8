// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A plugin of QEMU's translator. It finds the cache lines of kernel memory that two CPUs use and at
 * least one of them writes, while both run code of kernel modules. It counts between two moments:
 * when code of modules has accessed memory FROM times on each CPU, and when it has done so UNTIL
 * times on one of them. When QEMU ends, it writes the accesses of such code on each CPU, and then
 * a line for each cache line: its physical address, and for each CPU its loads, its stores, and
 * the addresses of the last load and the last store, in hexadecimal.
 *
 *	qemu-system-x86_64 -smp 2 -plugin lines.so,to=FILE,from=FROM,until=UNTIL ...
 *
 * Declares the part of QEMU's interface for plugins (version 1, QEMU 7.2) that it uses, because
 * Debian has no header of it. Does not know: functions and messages (profile.py).
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
struct qemu_info_t;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*call)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction,
				      void (*call)(unsigned int, qemu_plugin_meminfo_t, uint64_t,
						   void *),
				      enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw which,
				      void *data);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*call)(qemu_plugin_id_t, void *),
				    void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *at);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *at);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int qemu_plugin_version = 1;

#define CPUS	    2
#define ENTRIES	    (1U << 20)
#define LINE_BYTES  64
#define KERNEL	    (1ULL << 63)
/* Where x86-64 loads modules. */
#define MODULES	    0xffffffffc0000000ULL

/* One cache line as one CPU has used it. Each CPU has a table, which only its thread writes. */
struct line {
	uint64_t number; /* 0: the entry is free */
	uint64_t loads, stores, loader, storer;
};

static struct line *tables[CPUS];
static volatile uint64_t by_modules[CPUS];
static uint64_t from, until;
static const char *to;

/* Return: the entry, which is a free one if the CPU has not used the line. */
static struct line *find(unsigned int cpu, uint64_t number)
{
	size_t at = (number * 0x9e3779b97f4a7c15U) >> 44;

	while (tables[cpu][at].number && tables[cpu][at].number != number)
		at = (at + 1) % ENTRIES;
	return &tables[cpu][at];
}

static void accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *by)
{
	struct qemu_plugin_hwaddr *at;
	struct line *line;

	if (cpu >= CPUS || address < KERNEL)
		return;
	by_modules[cpu] += (uint64_t)by >= MODULES;
	for (int i = 0; i < CPUS; i++)
		if (by_modules[i] < from || by_modules[i] >= until)
			return;
	at = qemu_plugin_get_hwaddr(info, address);
	if (!at || qemu_plugin_hwaddr_is_io(at))
		return;
	line = find(cpu, qemu_plugin_hwaddr_phys_addr(at) / LINE_BYTES);
	line->number = qemu_plugin_hwaddr_phys_addr(at) / LINE_BYTES;
	if (qemu_plugin_mem_is_store(info)) {
		line->stores++;
		line->storer = (uint64_t)by;
	} else {
		line->loads++;
		line->loader = (uint64_t)by;
	}
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(tb, i);

		qemu_plugin_register_vcpu_mem_cb(instruction, accessed, QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW,
						 (void *)qemu_plugin_insn_vaddr(instruction));
	}
}

static void ended(qemu_plugin_id_t id, void *data)
{
	FILE *file = fopen(to, "w");

	(void)id, (void)data;
	if (!file)
		return;
	fprintf(file, "%" PRIu64 " %" PRIu64 "\n", by_modules[0], by_modules[1]);
	for (size_t i = 0; i < ENTRIES; i++) {
		const struct line *one = &tables[0][i], *other;

		other = one->number ? find(1, one->number) : NULL;
		if (!other || !other->number || !(one->stores + other->stores))
			continue;
		fprintf(file,
			"%" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIx64 " %" PRIx64 " %" PRIu64
			" %" PRIu64 " %" PRIx64 " %" PRIx64 "\n",
			one->number * LINE_BYTES, one->loads, one->stores, one->loader, one->storer,
			other->loads, other->stores, other->loader, other->storer);
	}
	fclose(file);
}

PUBLIC int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info_t *info, int argc,
			       char **argv)
{
	(void)info;
	if (argc != 3 || strncmp(argv[0], "to=", 3) || strncmp(argv[1], "from=", 5) ||
	    strncmp(argv[2], "until=", 6))
		return 1;
	to = strdup(argv[0] + 3);
	from = strtoull(argv[1] + 5, NULL, 10);
	until = strtoull(argv[2] + 6, NULL, 10);
	for (int i = 0; i < CPUS; i++) {
		tables[i] = calloc(ENTRIES, sizeof(*tables[i]));
		if (!tables[i])
			return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
