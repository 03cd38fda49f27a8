// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Scripts of events and expectations, in the manner of packetdrill. Documentation/testing.rst tells
 * how to write one.
 *
 * Owns: the language: cases, blocks, variables and numbers.
 * Does not know: the protocol. A Machine carries out the lines.
 */
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "../catch.hpp"
#include "../kernel/support.hpp"

#include "proto.hpp"

namespace peal::test {

constexpr std::uint32_t MTU = 256;
constexpr std::uint64_t US = 1000;
constexpr std::uint64_t MS = 1000 * US;
constexpr std::uint64_t TIMEOUT = 67 * MS;
constexpr std::uint64_t KEEP = 400 * MS;
constexpr std::uint32_t FIRST_PSN = 0xfffffe; /* so that every case wraps */
constexpr std::uint64_t ADDRESS = 0x10000;
constexpr std::uint32_t KEY = 77;

/* A line was not fulfilled, or is no line of the language. */
struct Mismatch : std::runtime_error {
	using std::runtime_error::runtime_error;
};

/* Throws unless they are equal. */
void expect(const std::string &expected, const std::string &actual);
void expect_list(const std::vector<std::int64_t> &expected,
		 const std::vector<std::int64_t> &actual);
/* @bound: a number, "none", or a number behind <= or >=. */
void expect_number(const std::string &name, const std::string &bound, std::uint64_t actual);
std::int64_t number(const std::string &expression);

using Names = std::map<std::string, unsigned>;

/* Return: the number of this name; a word that is a number stands for itself. */
unsigned value_of(const Names &names, const std::string &name);
std::string name_of(const Names &names, unsigned value);

extern const Names OPERATIONS; /* enum peal_opcode: send, write-imm, ... */
extern const Names WIRE;       /* enum peal_wire_op: send-only, read-request, ... */
extern const Names STATUSES;   /* enum ib_wc_status: success, loc-prot-err, ... */
extern const Names REASONS;    /* enum peal_reason: none, wqe-opcode, ... */
extern const Names DROPS;      /* enum peal_drop: stale, sequence, ... */
extern const Names TRANSPORTS;

/* The words of a line. Each function removes the words that it returns. */
class Words {
	std::vector<std::string> words_;

public:
	explicit Words(const std::string &line);
	explicit Words(std::vector<std::string> words) : words_(std::move(words)) {}
	bool empty() const { return words_.empty(); }
	std::string rest() const;
	std::string take(const char *what = "word");
	/* Is the flag @name there? */
	bool has(const std::string &name);
	/* Return: the word behind @name. */
	std::optional<std::string> after(const std::string &name);
	std::uint64_t value(const std::string &name, std::uint64_t otherwise);
	/* Return: what the next word names, if it is one of these. */
	std::optional<unsigned> next_of(const Names &names);
	/* Return: the number that comes next, if one does. */
	std::optional<std::int64_t> next_number();
	/* Return: the first and the last of "3..5", or a number twice. */
	std::pair<std::int64_t, std::int64_t> range();
	/* Return: the numbers that come next, of which 3..5 is three. */
	std::vector<std::int64_t> numbers();
	/* Return: what is behind "->", the outcome that is expected. */
	std::optional<std::string> outcome();
};

/* A value of a packet or request that a script may name. A flag has no number behind it. */
struct Field {
	const char *name;
	bool flag;
	std::uint64_t value;
};

/* Compares the fields that the words name: "length 256 ack no-again". */
void expect_fields(Words &words, const std::vector<Field> &fields);

class Machine {
public:
	virtual ~Machine() = default;
	virtual void run(const std::string &verb, Words &words) = 0;
	/* The case is over. */
	virtual void end() = 0;
};

/* What both halves of a connection have: PSNs, a clock, and packets that they keep. */
class Half : public Machine {
	std::set<peal_packet *> kept_;	    /* what the half owns */
	std::vector<std::int64_t> expired_; /* what was kept for too long */
	std::uint64_t mark_ = 0;

protected:
	std::uint32_t base_ = FIRST_PSN;
	std::uint64_t now_ = 1 * MS;

	virtual std::uint64_t deadline() const = 0;
	virtual void run_timers() = 0;
	virtual void *take_expired() = 0;
	virtual void *drop_reordered() = 0;

	std::uint32_t psn(std::int64_t n) const
	{
		return (base_ + static_cast<std::uint32_t>(n)) & PEAL_PSN_MASK;
	}
	std::uint64_t number_of(std::uint32_t psn) const { return (psn - base_) & PEAL_PSN_MASK; }
	std::string copy_of(const void *kept, enum peal_drop drop) const;
	void keep(std::unique_ptr<peal_packet> packet) { kept_.insert(packet.release()); }
	/* A kept packet that was returned. It must be the one of that number, or none. */
	std::unique_ptr<peal_packet> returned(void *handle);
	std::unique_ptr<peal_packet> returned(void *handle, const std::string &which);

	/* Return: ns until the timer is due. */
	std::uint64_t timer() const;
	std::uint64_t elapsed() const { return now_ - mark_; }
	void expire();
	/* Return: whether the line was one of those that both halves have. */
	bool run_common(const std::string &verb, Words &words);

public:
	~Half() override;
	void end() override;
};

/* Return: the shift of the path MTU that the words may set. */
u8 mtu_shift(Words &words, u8 before);

using MakeMachine = std::unique_ptr<Machine> (*)();

std::unique_ptr<Machine> make_requester();
std::unique_ptr<Machine> make_responder();

/* Runs all cases of a file, each as a section of the test case that calls this. */
void run_script(const char *file, MakeMachine make);

} // namespace peal::test
