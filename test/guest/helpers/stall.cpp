// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * stall: a program whose system call does not return, for the shell tests.
 *
 * 	stall NODE FILE
 *
 * Opens NODE, a device's file below /dev/infiniband, and writes a command there. The body of the
 * command lies in a page that does not exist yet. userfaultfd leaves the page to this program,
 * which never delivers it, so the kernel waits inside of the call. FILE appears when the kernel
 * waits. The program ends when it is killed, with 77 where there is no userfaultfd, or with 1 when
 * the call returns.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <rdma/ib_user_verbs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

[[noreturn]] void die(const char *what)
{
	std::perror(what);
	std::exit(1);
}

/* A file descriptor on which the kernel asks for the page. */
int leave_page_to_us(void *page, std::size_t bytes)
{
	const auto fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
	uffdio_api api{};
	uffdio_register range{};

	if (fd < 0)
		std::exit(77);
	api.api = UFFD_API;
	range.range.start = reinterpret_cast<std::uintptr_t>(page);
	range.range.len = bytes;
	range.mode = UFFDIO_REGISTER_MODE_MISSING;
	if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range))
		die("userfaultfd");
	return fd;
}

} // namespace

int main(int argc, char **argv)
{
	const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
	const int node = argc == 3 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
	auto *memory = static_cast<char *>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	ib_uverbs_cmd_hdr header{};
	uffd_msg message{};

	if (node < 0 || memory == MAP_FAILED)
		die("cannot open the device");
	/*
	 * The header is at the end of the first page. The core reads it
	 * before it enters the device.
	 */
	char *command = memory + page - sizeof(header);

	header.command = IB_USER_VERBS_CMD_GET_CONTEXT;
	header.in_words = (sizeof(header) + sizeof(ib_uverbs_get_context)) / 4;
	header.out_words = sizeof(ib_uverbs_get_context_resp) / 4;
	std::memcpy(command, &header, sizeof(header));
	const int fd = leave_page_to_us(memory + page, page);
	std::thread([=] {
		if (write(node, command, header.in_words * 4) < 0)
			std::perror("the call returned");
		std::_Exit(1);
	}).detach();
	if (read(fd, &message, sizeof(message)) != sizeof(message) ||
	    message.event != UFFD_EVENT_PAGEFAULT)
		die("no page fault");
	std::ofstream(argv[2]) << "stalled\n";
	for (;;)
		pause();
}
