/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The door: the file at which a program kicks the device.
 *
 * Owns: the anonymous file, and the state that tells whether the owner still exists. The
 * door is a module of its own, peal_door.ko, because an open file pins the module whose
 * functions it calls, and peal.ko must be removable while programs hold their doors open. A
 * revoked door answers EIO. Calls that began before the door was revoked are RCU readers
 * until they end.
 * Does not know: what a kick does.
 */
#ifndef PEAL_DOOR_H
#define PEAL_DOOR_H

struct peal_door;

struct peal_door_ops {
	/* An ioctl on the file, in the caller's context, under rcu_read_lock. */
	int (*knock)(void *owner, unsigned int cmd, unsigned long arg);
};

struct peal_door *peal_door_create(const struct peal_door_ops *ops, void *owner);
int peal_door_fd(const struct peal_door *door);
void peal_door_open(struct peal_door *door);
void peal_door_discard(struct peal_door *door);
void peal_door_revoke(struct peal_door *door);

#endif
