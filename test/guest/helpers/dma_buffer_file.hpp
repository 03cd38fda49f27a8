/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Files that are DMA buffers, from the exporters that need no hardware: udmabuf and vgem. Each of
 * Debian's kernels has one of these. It maps and registers nothing.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace peal_dma_buffer {

constexpr std::size_t page = 4096;

/* From the kernel's drm.h and drm_mode.h, which are in no package that the tests need. */
struct DumbBuffer {
	std::uint32_t height, width, bpp, flags, handle, pitch;
	std::uint64_t size;
};
struct PrimeHandle {
	std::uint32_t handle, flags;
	std::int32_t fd;
};
constexpr unsigned long create_dumb = _IOWR('d', 0xb2, DumbBuffer);
constexpr unsigned long handle_to_fd = _IOWR('d', 0x2d, PrimeHandle);

/* @bytes: a multiple of 4096. Return: a descriptor, or -1 with errno. */
inline int of_memory_file(std::size_t bytes)
{
	const int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	const int memory = device < 0 ? -1 : memfd_create("dma-buffer", MFD_ALLOW_SEALING);
	udmabuf_create create{};
	int fd = -1;

	create.memfd = static_cast<std::uint32_t>(memory);
	create.flags = UDMABUF_FLAGS_CLOEXEC;
	create.size = bytes;
	if (memory >= 0 && !ftruncate(memory, static_cast<off_t>(bytes)) &&
	    !fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK))
		fd = ioctl(device, UDMABUF_CREATE, &create);
	if (memory >= 0)
		close(memory);
	if (device >= 0)
		close(device);
	return fd;
}

/*
 * The same with @flags: O_RDWR, or O_RDONLY for a descriptor that cannot write.
 */
inline int of_graphics(std::size_t bytes, int flags)
{
	const int device = open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
	DumbBuffer dumb{};
	PrimeHandle handle{};
	int fd = -1;

	dumb.width = page / 4;
	dumb.height = static_cast<std::uint32_t>(bytes / page);
	dumb.bpp = 32;
	if (device >= 0 && !ioctl(device, create_dumb, &dumb)) {
		handle.handle = dumb.handle;
		handle.flags = static_cast<std::uint32_t>(O_CLOEXEC | flags);
		if (!ioctl(device, handle_to_fd, &handle))
			fd = handle.fd;
	}
	if (device >= 0)
		close(device);
	return fd;
}

} // namespace peal_dma_buffer
