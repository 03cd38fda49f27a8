// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See door.h.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/slab.h>

#include "base/door.h"

struct peal_door {
	refcount_t refs;			/* the file's, and the owner's until revoked */
	const struct peal_door_ops __rcu *ops;	/* NULL: revoked */
	void *owner;				/* valid under RCU, if ops was not NULL */
	struct file *file;			/* valid until opened */
	int fd;
};

static void peal_door_put(struct peal_door *door)
{
	if (refcount_dec_and_test(&door->refs))
		kfree(door);
}

static long peal_door_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct peal_door *door = file->private_data;
	const struct peal_door_ops *ops;
	int ret = -EIO;

	rcu_read_lock();
	ops = rcu_dereference(door->ops);
	if (likely(ops))
		ret = ops->knock(door->owner, cmd, arg);
	rcu_read_unlock();
	return ret;
}

static int peal_door_release(struct inode *inode, struct file *file)
{
	peal_door_put(file->private_data);
	return 0;
}

static const struct file_operations peal_door_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = peal_door_ioctl,
	.compat_ioctl = peal_door_ioctl,
	.release = peal_door_release,
};

static int peal_door_make_file(struct peal_door *door)
{
	door->fd = get_unused_fd_flags(O_CLOEXEC);
	if (door->fd < 0)
		return door->fd;
	door->file = anon_inode_getfile("[peal]", &peal_door_fops, door, O_RDWR);
	if (!IS_ERR(door->file))
		return 0;
	put_unused_fd(door->fd);
	return PTR_ERR(door->file);
}

/**
 * peal_door_create() - make a door and reserve its fd, but do not open it yet
 *
 * Call peal_door_open() when nothing can fail any more, otherwise peal_door_discard().
 *
 * Return: the door or an ERR_PTR: -ENOMEM, -EMFILE.
 */
struct peal_door *peal_door_create(const struct peal_door_ops *ops, void *owner)
{
	struct peal_door *door = kzalloc(sizeof(*door), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!door)
		return ERR_PTR(-ENOMEM);
	door->owner = owner;
	RCU_INIT_POINTER(door->ops, ops);
	refcount_set(&door->refs, 2);
	ret = peal_door_make_file(door);
	if (!ret)
		return door;
	kfree(door);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_GPL(peal_door_create);

int peal_door_fd(const struct peal_door *door)
{
	return door->fd;
}
EXPORT_SYMBOL_GPL(peal_door_fd);

/* From now on the program has the file and may close it at any time. */
void peal_door_open(struct peal_door *door)
{
	fd_install(door->fd, door->file);
}
EXPORT_SYMBOL_GPL(peal_door_open);

/* Frees a door that was not opened. Drops the references of the file and of the owner. */
void peal_door_discard(struct peal_door *door)
{
	put_unused_fd(door->fd);
	fput(door->file);
	peal_door_put(door);
}
EXPORT_SYMBOL_GPL(peal_door_discard);

/*
 * When this returns, no new call begins. Calls that began before end within a grace period.
 * @owner, all that it uses, and the functions in ops must live until then.
 */
void peal_door_revoke(struct peal_door *door)
{
	RCU_INIT_POINTER(door->ops, NULL);
	peal_door_put(door);
}
EXPORT_SYMBOL_GPL(peal_door_revoke);

MODULE_DESCRIPTION("The file at which programs kick a peal device");
MODULE_AUTHOR("The peal developers");
MODULE_LICENSE("Dual BSD/GPL");
