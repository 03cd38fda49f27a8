/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kick file: the file at which a program kicks the device.
 *
 * Owns: the anonymous file, and the state that tells whether the owner still exists. The
 * kick file is a part of peal_kick_file.ko, because an open file pins the module whose functions
 * it calls, and peal.ko must be removable while programs hold their kick files open. A
 * revoked kick file answers EIO. Calls that began before the kick file was revoked are RCU readers
 * until they end.
 * Does not know: what a kick does.
 */
#ifndef PEAL_KICK_FILE_H
#define PEAL_KICK_FILE_H

struct file;
struct peal_kick_file;

struct peal_kick_file_ops {
	/* An ioctl on the file, in the caller's context, under rcu_read_lock. */
	int (*ioctl)(void *owner, unsigned int cmd, unsigned long arg);
};

struct peal_kick_file *peal_kick_file_create(const struct peal_kick_file_ops *ops, void *owner);
int peal_kick_file_fd(const struct peal_kick_file *kick_file);
void peal_kick_file_open(struct peal_kick_file *kick_file);
struct file *peal_kick_file_again(struct peal_kick_file *kick_file);
void peal_kick_file_discard(struct peal_kick_file *kick_file);
void peal_kick_file_revoke(struct peal_kick_file *kick_file);

#endif
