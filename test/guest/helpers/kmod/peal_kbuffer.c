// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * An exporter of DMA buffers that moves a buffer to other pages when a program asks
 * for it, as a graphics driver does when its memory is short.
 *
 * Owns: the buffers, and the counts of what importers have of them. A buffer is static
 * or dynamic, as dma-buf.h has it. A static one may move until a device is attached, a
 * dynamic one until it is pinned. The first pin itself moves the buffer, to show that
 * importers may be notified before it.
 * Does not know: importers. None can map a buffer for DMA.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#include "peal_kbuffer.h"

#define KBUFFER_PAGES	(PEAL_KBUFFER_BYTES / PAGE_SIZE)

struct kbuffer {
	struct dma_buf_ops ops;
	unsigned long flags;		/* PEAL_KBUFFER_*; never changes */
	struct mutex lock;		/* inside the lock of the reservation object */

	/* Guarded by lock: */
	struct page *pages[KBUFFER_PAGES];
	struct peal_kbuffer_state state;
};

/* ---- pages ---- */

static void kbuffer_free_pages(struct page **pages)
{
	int i;

	for (i = 0; i < KBUFFER_PAGES; i++)
		if (pages[i])
			put_page(pages[i]);
}

/* @pages: zeroed. */
static int kbuffer_alloc_pages(struct page **pages)
{
	int i;

	for (i = 0; i < KBUFFER_PAGES; i++) {
		pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!pages[i]) {
			kbuffer_free_pages(pages);
			return -ENOMEM;
		}
	}
	return 0;
}

/* Mappings of programs follow at their next access. Those of the kernel do not. */
static int kbuffer_replace(struct kbuffer *kb, struct dma_buf *buf)
{
	struct page *pages[KBUFFER_PAGES] = { };
	int i, ret = kbuffer_alloc_pages(pages);

	if (ret)
		return ret;
	for (i = 0; i < KBUFFER_PAGES; i++) {
		copy_highpage(pages[i], kb->pages[i]);
		swap(pages[i], kb->pages[i]);
	}
	unmap_mapping_range(buf->file->f_mapping, 0, 0, 1);
	kbuffer_free_pages(pages);
	return 0;
}

static void kbuffer_notify(struct dma_buf *buf)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
	dma_buf_invalidate_mappings(buf);
#else
	dma_buf_move_notify(buf);
#endif
}

static int kbuffer_move(struct dma_buf *buf)
{
	struct kbuffer *kb = buf->priv;
	int ret = -EBUSY;

	dma_resv_lock(buf->resv, NULL);
	mutex_lock(&kb->lock);
	if (!(dma_buf_is_dynamic(buf) ? kb->state.pinned : kb->state.attached))
		ret = kbuffer_replace(kb, buf);
	mutex_unlock(&kb->lock);
	if (!ret && dma_buf_is_dynamic(buf))
		kbuffer_notify(buf);
	dma_resv_unlock(buf->resv);
	return ret;
}

/* ---- the exporter's operations ---- */

static void kbuffer_count(struct dma_buf *buf, u32 *count, int change)
{
	struct kbuffer *kb = buf->priv;

	mutex_lock(&kb->lock);
	WARN_ON(change < 0 && !*count);
	*count += change;
	mutex_unlock(&kb->lock);
}

static int kbuffer_attach(struct dma_buf *buf, struct dma_buf_attachment *attach)
{
	struct kbuffer *kb = buf->priv;

	if (kb->flags & PEAL_KBUFFER_STUBBORN && !dma_buf_is_dynamic(buf))
		return -EBUSY;
	kbuffer_count(buf, &kb->state.attached, 1);
	return 0;
}

static void kbuffer_detach(struct dma_buf *buf, struct dma_buf_attachment *attach)
{
	struct kbuffer *kb = buf->priv;

	kbuffer_count(buf, &kb->state.attached, -1);
}

static int kbuffer_pin(struct dma_buf_attachment *attach)
{
	struct kbuffer *kb = attach->dmabuf->priv;
	int ret = 0;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (kb->flags & PEAL_KBUFFER_STUBBORN)
		return -EBUSY;
	mutex_lock(&kb->lock);
	if (!kb->state.pinned)
		ret = kbuffer_replace(kb, attach->dmabuf);
	if (!ret)
		kb->state.pinned++;
	mutex_unlock(&kb->lock);
	if (!ret)
		kbuffer_notify(attach->dmabuf);
	return ret;
}

static void kbuffer_unpin(struct dma_buf_attachment *attach)
{
	struct kbuffer *kb = attach->dmabuf->priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	kbuffer_count(attach->dmabuf, &kb->state.pinned, -1);
}

static struct sg_table *kbuffer_map_dma(struct dma_buf_attachment *attach,
					enum dma_data_direction direction)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void kbuffer_unmap_dma(struct dma_buf_attachment *attach, struct sg_table *table,
			      enum dma_data_direction direction)
{
}

static int kbuffer_begin_access(struct dma_buf *buf, enum dma_data_direction direction)
{
	struct kbuffer *kb = buf->priv;

	if (kb->flags & PEAL_KBUFFER_NO_ACCESS)
		return -EIO;
	kbuffer_count(buf, &kb->state.accessed, 1);
	return 0;
}

static int kbuffer_end_access(struct dma_buf *buf, enum dma_data_direction direction)
{
	struct kbuffer *kb = buf->priv;

	kbuffer_count(buf, &kb->state.accessed, -1);
	return 0;
}

static int kbuffer_vmap(struct dma_buf *buf, struct iosys_map *map)
{
	struct kbuffer *kb = buf->priv;
	void *address;

	mutex_lock(&kb->lock);
	address = vmap(kb->pages, KBUFFER_PAGES, VM_MAP, PAGE_KERNEL);
	if (address)
		kb->state.mapped++;
	mutex_unlock(&kb->lock);
	if (!address)
		return -ENOMEM;
	if (kb->flags & PEAL_KBUFFER_IO)
		iosys_map_set_vaddr_iomem(map, (void __iomem *)address);
	else
		iosys_map_set_vaddr(map, address);
	return 0;
}

static void kbuffer_vunmap(struct dma_buf *buf, struct iosys_map *map)
{
	struct kbuffer *kb = buf->priv;

	vunmap(map->vaddr);
	kbuffer_count(buf, &kb->state.mapped, -1);
}

static vm_fault_t kbuffer_fault(struct vm_fault *vmf)
{
	struct kbuffer *kb = vmf->vma->vm_private_data;

	if (vmf->pgoff >= KBUFFER_PAGES)
		return VM_FAULT_SIGBUS;
	mutex_lock(&kb->lock);
	vmf->page = kb->pages[vmf->pgoff];
	get_page(vmf->page);
	mutex_unlock(&kb->lock);
	return 0;
}

static const struct vm_operations_struct kbuffer_vm_ops = {
	.fault = kbuffer_fault,
};

static int kbuffer_mmap(struct dma_buf *buf, struct vm_area_struct *vma)
{
	vma->vm_ops = &kbuffer_vm_ops;
	vma->vm_private_data = buf->priv;
	return 0;
}

static void kbuffer_free(struct kbuffer *kb)
{
	kbuffer_free_pages(kb->pages);
	kfree(kb);
}

static void kbuffer_release(struct dma_buf *buf)
{
	kbuffer_free(buf->priv);
}

static const struct dma_buf_ops kbuffer_ops = {
	.attach = kbuffer_attach,
	.detach = kbuffer_detach,
	.map_dma_buf = kbuffer_map_dma,
	.unmap_dma_buf = kbuffer_unmap_dma,
	.release = kbuffer_release,
	.begin_cpu_access = kbuffer_begin_access,
	.end_cpu_access = kbuffer_end_access,
	.mmap = kbuffer_mmap,
	.vmap = kbuffer_vmap,
	.vunmap = kbuffer_vunmap,
};

/* ---- the interface ---- */

static struct kbuffer *kbuffer_new(unsigned long flags)
{
	struct kbuffer *kb = kzalloc(sizeof(*kb), GFP_KERNEL);

	if (!kb)
		return NULL;
	if (kbuffer_alloc_pages(kb->pages)) {
		kfree(kb);
		return NULL;
	}
	mutex_init(&kb->lock);
	kb->flags = flags;
	kb->ops = kbuffer_ops;
	if (flags & PEAL_KBUFFER_DYNAMIC) {
		kb->ops.pin = kbuffer_pin;
		kb->ops.unpin = kbuffer_unpin;
	}
	if (flags & PEAL_KBUFFER_NO_VMAP)
		kb->ops.vmap = NULL;
	return kb;
}

static int kbuffer_make(unsigned long flags)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct kbuffer *kb = kbuffer_new(flags);
	struct dma_buf *buf;
	int fd;

	if (!kb)
		return -ENOMEM;
	info.ops = &kb->ops;
	info.size = PEAL_KBUFFER_BYTES;
	info.flags = O_RDWR;
	info.priv = kb;
	buf = dma_buf_export(&info);
	if (IS_ERR(buf)) {
		kbuffer_free(kb);
		return PTR_ERR(buf);
	}
	fd = dma_buf_fd(buf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(buf);
	return fd;
}

/* Return: the buffer, or ERR_PTR(). */
static struct dma_buf *kbuffer_get(int fd)
{
	struct dma_buf *buf = dma_buf_get(fd);

	if (IS_ERR(buf) || buf->owner == THIS_MODULE)
		return buf;
	dma_buf_put(buf);
	return ERR_PTR(-EINVAL);
}

static int kbuffer_move_fd(int fd)
{
	struct dma_buf *buf = kbuffer_get(fd);
	int ret;

	if (IS_ERR(buf))
		return PTR_ERR(buf);
	ret = kbuffer_move(buf);
	dma_buf_put(buf);
	return ret;
}

static int kbuffer_tell(struct peal_kbuffer_state __user *to)
{
	struct peal_kbuffer_state state;
	struct dma_buf *buf;
	struct kbuffer *kb;
	int fd;

	if (get_user(fd, &to->fd))
		return -EFAULT;
	buf = kbuffer_get(fd);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	kb = buf->priv;
	mutex_lock(&kb->lock);
	state = kb->state;
	mutex_unlock(&kb->lock);
	dma_buf_put(buf);
	state.fd = fd;
	return copy_to_user(to, &state, sizeof(state)) ? -EFAULT : 0;
}

static long kbuffer_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case PEAL_KBUFFER_MAKE:
		return kbuffer_make(arg);
	case PEAL_KBUFFER_MOVE:
		return kbuffer_move_fd(arg);
	case PEAL_KBUFFER_STATE:
		return kbuffer_tell((void __user *)arg);
	}
	return -ENOTTY;
}

static const struct file_operations kbuffer_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = kbuffer_ioctl,
};

static struct miscdevice kbuffer_device = {
	.minor = MISC_DYNAMIC_MINOR, .name = "peal_kbuffer", .fops = &kbuffer_fops, .mode = 0600,
};

module_misc_device(kbuffer_device);

MODULE_DESCRIPTION("DMA buffers that move");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_INFO(import_ns, "DMA_BUF");	/* MODULE_IMPORT_NS() differs between kernels */
