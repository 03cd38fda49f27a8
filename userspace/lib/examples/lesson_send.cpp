// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Lesson: send and receive. A client sends a key with its value, and the server answers with a
 * number, which says whether it is the first value of the key.
 *
 *	./lesson_send
 *	./lesson_send ADDRESS KEY VALUE...
 */
#include <peal/peal.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

using namespace std::chrono_literals;

constexpr std::uint16_t port = 7479;

struct put {
	char key[24], value[24]; /* with a zero at the end */
};

static int serve(peal::device &dev)
{
	std::map<std::string, std::string> store;
	auto c = dev.accept(port, {}, 60s);
	if (!c)
		return std::puts(c.why()), 1;
	/* The message is in a buffer of the connection, which is free again after each turn. */
	while (auto message = c->recv(60s)) {
		auto what = message->as<put>();
		if (!what || what->key[23] || what->value[23])
			return std::puts("this is no put"), 1;
		const bool is_new = store.insert_or_assign(what->key, what->value).second;
		auto post = c->batch();
		post.send_imm(is_new);
		if (auto done = post.commit(5s); !done)
			return std::puts(done.why()), 1;
	}
	for (const auto &[key, value] : store)
		std::printf("%s=%s\n", key.c_str(), value.c_str());
	return 0;
}

static int call(peal::device &dev, const char *host, char **words)
{
	auto c = dev.connect(host, port, {}, 5s);
	if (!c)
		return std::puts(c.why()), 1;
	for (; words[0] && words[1]; words += 2) {
		put what{};
		std::snprintf(what.key, sizeof(what.key), "%s", words[0]);
		std::snprintf(what.value, sizeof(what.value), "%s", words[1]);
		auto post = c->batch();
		/* Up to 64 bytes may be sent from anywhere, and need no registered memory. */
		post.send_inline(std::as_bytes(std::span(&what, 1)));
		if (auto done = post.commit(5s); !done)
			return std::puts(done.why()), 1;
		auto answer = c->recv_imm(5s);
		if (!answer)
			return std::puts(answer.why()), 1;
		std::puts(*answer ? "new" : "replaced");
	}
	return 0;
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev)
		return std::puts(dev.why()), 1;
	return argc > 1 ? call(*dev, argv[1], argv + 2) : serve(*dev);
}
