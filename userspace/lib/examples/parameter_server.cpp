// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A parameter server trains a linear model. In each round a worker reads the parameters from the
 * server's memory, computes the gradient over its own samples, and writes it to the server. The
 * immediate value of that write tells the server, which moves the parameters when all have come.
 *
 *	./parameter_server WORKERS ROUNDS
 *	./parameter_server ADDRESS                   as often as there are workers
 *
 * All hosts have the same byte order. The server trusts the workers, which may write to all of it.
 */
#include <peal/peal.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

using namespace std::chrono_literals;

constexpr std::uint16_t port = 7477;
constexpr unsigned most_workers = 16;
constexpr unsigned features = 32;
constexpr unsigned samples = 128; /* of each worker */
using vector = std::array<float, features>;

/* What the server shares. */
struct model {
	vector parameters;
	vector gradients[most_workers];
};

/* What the server tells a worker before each round, and after the last one. */
struct job {
	std::uint32_t number; /* of the worker */
	std::uint32_t left;   /* rounds, with this one */
};

static peal::status serve(peal::device &dev, unsigned count, std::uint32_t rounds)
{
	auto mem = dev.alloc<model>(1, peal::remote_read | peal::remote_write).value();
	/* A worker sends once in a round, so one receive for each is enough. */
	auto receives = dev.share_receives(most_workers).value();
	auto listener = dev.listen(port).value();
	std::vector<peal::connection> workers;
	while (workers.size() < std::min(count, most_workers)) {
		auto worker = listener.accept(mem.share(), 60s, {.shared = &receives});
		if (!worker)
			return worker.failure();
		workers.push_back(std::move(*worker));
	}
	for (std::uint32_t left = rounds;; --left) {
		for (std::uint32_t i = 0; i < workers.size(); ++i) {
			const job next{i, left};
			auto post = workers[i].batch();
			post.send_inline(std::as_bytes(std::span(&next, 1)));
			if (auto sent = post.commit(5s); !sent)
				return sent;
		}
		if (!left)
			break;
		for (peal::connection &worker : workers)
			if (auto pushed = worker.recv_imm(60s); !pushed)
				return pushed.failure();
		for (std::size_t i = 0; i < workers.size(); ++i)
			for (unsigned f = 0; f < features; ++f)
				mem[0].parameters[f] -= mem[0].gradients[i][f] / workers.size() / 2;
	}
	/* The memory stays until the workers have pulled the last parameters, and gone. */
	for (peal::connection &worker : workers)
		if (auto gone = worker.recv(60s); gone.code() == ETIMEDOUT)
			return gone.failure();
	return {};
}

struct sample {
	vector x;
	float y;
};

/* The training has to find that the parameters are 1, 2, 3 and so on. */
static std::vector<sample> make_samples(unsigned seed)
{
	std::mt19937 random(seed);
	std::normal_distribution<float> normal;
	std::vector<sample> all(samples);
	for (sample &one : all)
		for (unsigned f = 0; f < features; ++f)
			one.y += (one.x[f] = normal(random)) * (f + 1.0f);
	return all;
}

/* Returns the mean of the squared errors. */
static float find_gradient(const std::vector<sample> &all, const vector &parameters, vector &to)
{
	float squares = 0;
	to = {};
	for (const sample &one : all) {
		float error = -one.y;
		for (unsigned f = 0; f < features; ++f)
			error += one.x[f] * parameters[f];
		for (unsigned f = 0; f < features; ++f)
			to[f] += one.x[f] * error / samples;
		squares += error * error / samples;
	}
	return squares;
}

static peal::status work(peal::device &dev, const char *host)
{
	auto mem = dev.alloc<vector>(2).value();
	vector &parameters = mem[0], &gradient = mem[1];
	auto server = dev.connect(host, port, {}, 5s);
	if (!server)
		return server.failure();
	std::vector<sample> all;
	for (;;) {
		auto message = server->recv(60s);
		auto next = message ? message->as<job>() : std::nullopt;
		if (!next)
			return peal::error::make(0, "the server gives no job");
		if (all.empty())
			all = make_samples(next->number);
		auto post = server->batch();
		post.read(mem.part(0, 1), server->peer().at(0, sizeof(vector)));
		if (auto pulled = post.commit(5s); !pulled)
			return pulled;
		const float loss = find_gradient(all, parameters, gradient);
		if (!next->left)
			return std::printf("loss %.4f\n", loss), peal::status();
		const std::size_t place = offsetof(model, gradients[next->number]);
		post.write_imm(mem.part(1, 1), server->peer().at(place), next->left);
		if (auto pushed = post.commit(5s); !pushed)
			return pushed;
	}
}

int main(int argc, char **argv)
{
	auto dev = peal::open(std::getenv("PEAL_DEVICE"));
	if (!dev || argc < 2)
		return std::puts(dev ? "WORKERS ROUNDS, or ADDRESS" : dev.why()), 1;
	auto done = argc == 2 ? work(*dev, argv[1])
			      : serve(*dev, std::atoi(argv[1]), std::atoi(argv[2]));
	return done ? 0 : (std::puts(done.why()), 1);
}
