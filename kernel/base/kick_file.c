// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * See kick_file.h.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/slab.h>

#include "base/kick_file.h"

struct peal_kick_file {
	refcount_t refs;			/* the file's, and the owner's until revoked */
	const struct peal_kick_file_ops __rcu *ops;	/* NULL: revoked */
	void *owner;				/* valid under RCU, if ops was not NULL */
	struct file *file;			/* valid until opened */
	int fd;
};

static void peal_kick_file_put(struct peal_kick_file *kick_file)
{
	if (refcount_dec_and_test(&kick_file->refs))
		kfree(kick_file);
}

static long peal_kick_file_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct peal_kick_file *kick_file = file->private_data;
	const struct peal_kick_file_ops *ops;
	int ret = -EIO;

	rcu_read_lock();
	ops = rcu_dereference(kick_file->ops);
	if (likely(ops))
		ret = ops->ioctl(kick_file->owner, cmd, arg);
	rcu_read_unlock();
	return ret;
}

static int peal_kick_file_release(struct inode *inode, struct file *file)
{
	peal_kick_file_put(file->private_data);
	return 0;
}

static const struct file_operations peal_kick_file_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = peal_kick_file_ioctl,
	.compat_ioctl = peal_kick_file_ioctl,
	.release = peal_kick_file_release,
};

static struct file *peal_kick_file_new_file(struct peal_kick_file *kick_file)
{
	return anon_inode_getfile("[peal]", &peal_kick_file_fops, kick_file, O_RDWR);
}

static int peal_kick_file_make_file(struct peal_kick_file *kick_file)
{
	kick_file->fd = get_unused_fd_flags(O_CLOEXEC);
	if (kick_file->fd < 0)
		return kick_file->fd;
	kick_file->file = peal_kick_file_new_file(kick_file);
	if (!IS_ERR(kick_file->file))
		return 0;
	put_unused_fd(kick_file->fd);
	return PTR_ERR(kick_file->file);
}

/**
 * peal_kick_file_create() - make a kick file and reserve its fd, but do not open it yet
 *
 * Call peal_kick_file_open() when nothing can fail any more, otherwise peal_kick_file_discard().
 *
 * Return: the kick file, or an ERR_PTR: -ENOMEM, -EMFILE, -ENFILE.
 */
struct peal_kick_file *peal_kick_file_create(const struct peal_kick_file_ops *ops, void *owner)
{
	struct peal_kick_file *kick_file = kzalloc(sizeof(*kick_file), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!kick_file)
		return ERR_PTR(-ENOMEM);
	kick_file->owner = owner;
	RCU_INIT_POINTER(kick_file->ops, ops);
	refcount_set(&kick_file->refs, 2);
	ret = peal_kick_file_make_file(kick_file);
	if (!ret)
		return kick_file;
	kfree(kick_file);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_GPL(peal_kick_file_create);

int peal_kick_file_fd(const struct peal_kick_file *kick_file)
{
	return kick_file->fd;
}
EXPORT_SYMBOL_GPL(peal_kick_file_fd);

/* From now on the program has the file and may close it at any time. */
void peal_kick_file_open(struct peal_kick_file *kick_file)
{
	fd_install(kick_file->fd, kick_file->file);
}
EXPORT_SYMBOL_GPL(peal_kick_file_open);

/**
 * peal_kick_file_again() - make one more file for the same owner
 *
 * The caller makes sure that the kick file is not revoked meanwhile.
 *
 * Return: a file, for fd_install() or fput(), or ERR_PTR(-ENOMEM).
 */
struct file *peal_kick_file_again(struct peal_kick_file *kick_file)
{
	struct file *file;

	refcount_inc(&kick_file->refs);
	file = peal_kick_file_new_file(kick_file);
	if (IS_ERR(file))
		peal_kick_file_put(kick_file);
	return file;
}
EXPORT_SYMBOL_GPL(peal_kick_file_again);

/* Frees a kick file that was not opened. Drops the references of the file and of the owner. */
void peal_kick_file_discard(struct peal_kick_file *kick_file)
{
	put_unused_fd(kick_file->fd);
	fput(kick_file->file);
	peal_kick_file_put(kick_file);
}
EXPORT_SYMBOL_GPL(peal_kick_file_discard);

/*
 * When this returns, no new call begins. Calls that began before end within a grace period.
 * @owner, all that it uses, and the functions in ops must live until then.
 */
void peal_kick_file_revoke(struct peal_kick_file *kick_file)
{
	RCU_INIT_POINTER(kick_file->ops, NULL);
	peal_kick_file_put(kick_file);
}
EXPORT_SYMBOL_GPL(peal_kick_file_revoke);

MODULE_DESCRIPTION("Files of a peal device that programs may keep: for kicks, and behind mapped rings");
MODULE_AUTHOR("The peal developers");
MODULE_LICENSE("Dual BSD/GPL");
