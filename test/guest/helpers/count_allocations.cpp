// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * count_allocations: a library to preload (LD_PRELOAD), which counts a program's calls of malloc()
 * and its kin. The count is in the file that PEAL_ALLOCATIONS names, as eight bytes, also if the
 * program is killed.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

/* These are glibc's own. dlsym() would allocate. */
extern "C" {
void *__libc_malloc(std::size_t);
void *__libc_calloc(std::size_t, std::size_t);
void *__libc_realloc(void *, std::size_t);
void *__libc_memalign(std::size_t, std::size_t);
}

namespace {

using counter = std::atomic<std::uint64_t>;
static_assert(sizeof(counter) == 8 && counter::is_always_lock_free);

counter before_main;
counter *count = &before_main;

[[gnu::constructor]] void open_count()
{
	const char *path = std::getenv("PEAL_ALLOCATIONS");
	const int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;

	if (fd < 0 || ftruncate(fd, sizeof(counter)))
		return;
	void *shared = mmap(nullptr, sizeof(counter), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (shared != MAP_FAILED)
		count = static_cast<counter *>(shared);
}

void note()
{
	count->fetch_add(1, std::memory_order_relaxed);
}

} // namespace

#define EXPORTED extern "C" [[gnu::visibility("default")]]

EXPORTED void *malloc(std::size_t size)
{
	note();
	return __libc_malloc(size);
}

EXPORTED void *calloc(std::size_t number, std::size_t size)
{
	note();
	return __libc_calloc(number, size);
}

EXPORTED void *realloc(void *old, std::size_t size)
{
	note();
	return __libc_realloc(old, size);
}

EXPORTED void *memalign(std::size_t alignment, std::size_t size)
{
	note();
	return __libc_memalign(alignment, size);
}

EXPORTED void *aligned_alloc(std::size_t alignment, std::size_t size)
{
	note();
	return __libc_memalign(alignment, size);
}

EXPORTED int posix_memalign(void **to, std::size_t alignment, std::size_t size)
{
	note();
	*to = __libc_memalign(alignment, size);
	return *to ? 0 : ENOMEM;
}
