// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Other programs beside the test.
 *
 * Holds: child processes, two programs that connect, and a program of one user that reports a
 * number when it has what it wants, and keeps that until it is told to end, or is killed. Does not
 * hold: what they do.
 */
#pragma once

#include "commands.hpp"
#include "verbs.hpp"

#include <csignal>
#include <sched.h>
#include <sys/wait.h>

namespace peal_test {

/* Keeps a thread on one CPU; 0 is this thread. Return: false when the CPU is offline. */
inline bool pin(int cpu, pid_t thread = 0)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return !sched_setaffinity(thread, sizeof(set), &set);
}

constexpr int child_failed = 255;

/* Starts a process. Its status is what the body returns, or child_failed when the body throws. */
inline pid_t spawn(const std::function<int()> &body)
{
	const pid_t child = fork();

	if (child)
		return child;
	int result = child_failed;
	try {
		result = body();
	} catch (const std::exception &error) {
		std::fprintf(stderr, "child: %s\n", error.what());
	}
	_exit(result);
}

/* Waits for the process. Return: its status, or 256 plus the signal that ended it. */
inline int end_of(pid_t child)
{
	int status = 0;

	if (child < 0 || waitpid(child, &status, 0) != child)
		throw_errno("waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

/* Return: whether two programs of rdma_cm connect on this host, exchange messages and end well. */
inline bool rping_connects()
{
	const std::string rping = "rping -a 10.77.0.1 -p 18990 -C 5 ";

	must(run("modprobe -a rdma_cm rdma_ucm"), "modprobe");
	/* No shell stays between, so that a signal to the child ends rping. */
	const pid_t server = spawn([&] {
		return execl("/bin/sh", "sh", "-c", ("exec " + rping + "-s").c_str(), nullptr);
	});
	/* A kernel service may listen, too. */
	const bool listens = eventually([] {
		return !read_command("rdma resource show cm_id | grep 'LISTEN.*comm rping'")
				.empty();
	});
	const bool connected = listens && run("timeout 60 " + rping + "-c") == 0;

	if (!connected)
		kill(server, SIGKILL);
	return end_of(server) == 0 && connected;
}

/* Runs the body in another process. */
inline int in_child(const std::function<int()> &body)
{
	return end_of(spawn(body));
}

/* A process of one user. It keeps what it has until this object ends. */
class Program {
public:
	using Hold = std::function<void(long)>;

	/* The body reports a number when it has all that it wants. */
	Program(uid_t uid, const std::function<void(const Hold &)> &body)
	{
		if (pipe(result_) || pipe(end_))
			throw_errno("pipe");
		child_ = spawn([&] { return live(uid, body); });
		close(result_[1]);
		if (read(result_[0], &number_, sizeof(number_)) != sizeof(number_))
			throw std::runtime_error("the other program failed");
	}
	~Program()
	{
		for (int fd : {end_[0], end_[1], result_[0]})
			close(fd);
		waitpid(child_, nullptr, 0);
	}
	Program(const Program &) = delete;
	Program &operator=(const Program &) = delete;
	long number() const { return number_; }
	/* It is gone when this object ends. */
	void kill() const { ::kill(child_, SIGKILL); }

private:
	int live(uid_t uid, const std::function<void(const Hold &)> &body) const
	{
		if (setgid(uid) || setuid(uid))
			return 1;
		close(end_[1]);
		body([&](long number) {
			char byte = 0;

			if (write(result_[1], &number, sizeof(number)) != sizeof(number) ||
			    read(end_[0], &byte, 1) != 0)
				throw std::runtime_error("the test is gone");
		});
		return 0;
	}

	int result_[2]{}, end_[2]{};
	pid_t child_ = -1;
	long number_ = 0;
};

} // namespace peal_test
