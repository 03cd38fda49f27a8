// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A counter and a lock in the memory of a server, which the clients use by atomics. The server's
 * program does nothing meanwhile. Start it with how many clients it serves, and then each client
 * with the address of the server and how often it counts:
 *
 *	./counter_and_lock CLIENTS
 *	./counter_and_lock ADDRESS TIMES
 *
 * The numbers are in the byte order of the hosts, which must be the same.
 */
#include <peal/peal.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace std::chrono_literals;

constexpr std::uint16_t port = 7474;

/* What the clients share. A client changes the account only while it holds the lock. */
struct shared {
	std::uint64_t clients; /* gives each client its number, from 1 on */
	std::uint64_t counter;
	std::uint64_t lock; /* the number of the client that holds it, or 0 */
	struct {
		std::uint64_t balance;
		std::uint64_t changes;
	} account;
};

static int serve(peal::device &dev, unsigned count)
{
	auto mem =
		dev.alloc<shared>(1, peal::remote_write | peal::remote_read | peal::remote_atomic);
	auto listener = dev.listen(port);
	if (!mem || !listener)
		return std::puts(mem ? listener.why() : mem.why()), 1;
	std::vector<peal::connection> clients;
	while (clients.size() < count) {
		auto client = listener->accept(mem->share(), 60s);
		if (!client)
			return std::puts(client.why()), 1;
		clients.push_back(std::move(*client));
	}
	/* A client sends no message. What ends the wait is that it has gone. */
	for (peal::connection &client : clients)
		if (auto gone = client.recv(300s); gone.code() == ETIMEDOUT)
			return std::puts(gone.why()), 1;
	const shared &all = (*mem)[0];
	std::printf("counter %llu, balance %llu after %llu changes, lock %llu\n",
		    static_cast<unsigned long long>(all.counter),
		    static_cast<unsigned long long>(all.account.balance),
		    static_cast<unsigned long long>(all.account.changes),
		    static_cast<unsigned long long>(all.lock));
	return 0;
}

/* One client. Each function returns why it failed. */
struct client {
	peal::connection server;
	peal::memory<shared> mem; /* has the values that come back */
	std::uint64_t number = 0;

	/* The parts of the server's memory and of this one. */
	peal::remote there(std::size_t offset) const { return server.peer().at(offset, 8); }
	peal::slice old() const { return mem.bytes(offsetof(shared, lock), 8); }

	peal::status take_number()
	{
		auto post = server.batch();
		post.fetch_add(old(), there(offsetof(shared, clients)), 1);
		auto done = post.commit(5s);
		number = mem[0].lock + 1;
		return done;
	}
	peal::status count()
	{
		auto post = server.batch();
		post.fetch_add(old(), there(offsetof(shared, counter)), 1);
		return post.commit(5s);
	}
	/* Tries until the lock was free. The account comes with the same doorbell. */
	peal::status lock()
	{
		const peal::slice account = mem.bytes(offsetof(shared, account), 16);
		const peal::remote from = server.peer().at(offsetof(shared, account), 16);

		for (;;) {
			auto post = server.batch();
			post.compare_swap(old(), there(offsetof(shared, lock)), 0, number);
			post.read(account, from);
			if (auto done = post.commit(5s); !done || mem[0].lock == 0)
				return done;
		}
	}
	/* Requests are done in their order, so the account is written before the lock is free. */
	peal::status unlock()
	{
		const peal::slice account = mem.bytes(offsetof(shared, account), 16);
		auto post = server.batch();

		post.write(account, server.peer().at(offsetof(shared, account)));
		post.compare_swap(old(), there(offsetof(shared, lock)), number, 0);
		return post.commit(5s);
	}
};

static int use(peal::device &dev, const char *host, unsigned times)
{
	if (!dev.has_atomics())
		return std::puts("this device has no atomics"), 1;
	auto mem = dev.alloc<shared>(1);
	auto server = dev.connect(host, port, {}, 5s);
	if (!mem || !server)
		return std::puts(mem ? server.why() : mem.why()), 1;
	client me{std::move(*server), std::move(*mem)};
	auto done = me.take_number();
	for (unsigned i = 0; done && i < times; ++i)
		done = me.count();
	for (unsigned i = 0; done && i < times; ++i) {
		done = me.lock();
		me.mem[0].account.balance += me.number;
		++me.mem[0].account.changes;
		if (done)
			done = me.unlock();
	}
	if (!done)
		return std::puts(done.why()), 1;
	std::printf("client %llu counted %u times\n", static_cast<unsigned long long>(me.number),
		    times);
	return 0;
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev)
		return std::puts(dev.why()), 1;
	if (argc == 2)
		return serve(*dev, std::atoi(argv[1]));
	if (argc == 3)
		return use(*dev, argv[1], std::atoi(argv[2]));
	return std::puts("counter_and_lock CLIENTS, or counter_and_lock ADDRESS TIMES"), 2;
}
