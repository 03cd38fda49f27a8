// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "script.hpp"

namespace peal::test {

namespace {

std::string lower(std::string name)
{
	for (char &c : name)
		c = c == '_' ? '-' : static_cast<char>(std::tolower(c));
	return name;
}

/* The names of 0, 1, 2 and so on. A number without a name is "-". */
Names numbered(const std::string &text)
{
	std::istringstream stream(text);
	Names names;
	unsigned number = 0;

	for (std::string name; stream >> name; ++number)
		names.emplace(name, number);
	return names;
}

#define NAME_REASON(name, number, text) {lower(#name), number},
#define NAME_DROP(name, text) {lower(#name), PEAL_DROP_##name},

} // namespace

const Names OPERATIONS =
	numbered("invalid send send-imm send-inv write write-imm read cmp-swap fetch-add bind-mw "
		 "local-inv reg-mr atomic-write flush count");
const Names WIRE =
	numbered("send-first send-middle send-last send-last-imm send-only send-only-imm "
		 "write-first write-middle write-last write-last-imm write-only write-only-imm "
		 "read-request read-first read-middle read-last read-only ack atomic-ack cmp-swap "
		 "fetch-add - send-last-inv send-only-inv - - - - flush atomic-write");
const Names STATUSES =
	numbered("success loc-len-err loc-qp-op-err loc-eec-op-err loc-prot-err wr-flush-err "
		 "mw-bind-err bad-resp-err loc-access-err rem-inv-req-err rem-access-err "
		 "rem-op-err retry-exc-err rnr-retry-exc-err");
const Names REASONS = {PEAL_REASONS(NAME_REASON)};
const Names DROPS = {PEAL_DROPS(NAME_DROP)};
const Names TRANSPORTS = numbered("rc uc rd ud cnp xrc");

unsigned value_of(const Names &names, const std::string &name)
{
	const auto found = names.find(name);

	if (found != names.end())
		return found->second;
	return static_cast<unsigned>(number(name));
}

std::string name_of(const Names &names, unsigned value)
{
	for (const auto &[name, known] : names) {
		if (known == value)
			return name;
	}
	return std::to_string(value);
}

void expect(const std::string &expected, const std::string &actual)
{
	if (expected != actual)
		throw Mismatch("expected: " + expected + "\nactual:   " + actual);
}

namespace {

/* "packets 3 5..7" */
std::string list(const std::vector<std::int64_t> &psns)
{
	std::string all;

	for (std::size_t i = 0, end; i < psns.size(); i = end) {
		for (end = i + 1; end < psns.size() && psns[end] == psns[end - 1] + 1;)
			++end;
		all += " " + std::to_string(psns[i]);
		if (end > i + 1)
			all += ".." + std::to_string(psns[end - 1]);
	}
	return "packets" + (all.empty() ? " none" : all);
}

} // namespace

void expect_list(const std::vector<std::int64_t> &expected, const std::vector<std::int64_t> &actual)
{
	expect(list(expected), list(actual));
}

namespace {

const std::map<std::string, std::int64_t> CONSTANTS = {
	{"timeout", TIMEOUT},	    {"try", 2 * TIMEOUT},	   {"keep", KEEP},
	{"piece", PEAL_READ_PIECE}, {"slots", PEAL_REORDER_SLOTS}, {"address", ADDRESS},
};

/* A number with a unit, or a constant. */
std::int64_t factor(const std::string &word)
{
	static const std::map<std::string, std::int64_t> UNITS = {
		{"", 1},	  {"ns", 1},  {"us", US},     {"ms", MS},
		{"s", 1000 * MS}, {"p", MTU}, {"G", 1 << 30},
	};
	std::size_t digits = 0;

	if (const auto constant = CONSTANTS.find(word); constant != CONSTANTS.end())
		return constant->second;
	if (word.empty() || !std::isdigit(word[0]))
		throw Mismatch("no number: " + word);
	const auto value = static_cast<std::int64_t>(std::stoull(word, &digits, 0));
	const auto unit = UNITS.find(word.substr(digits));

	if (unit == UNITS.end())
		throw Mismatch("no number: " + word);
	return value * unit->second;
}

} // namespace

/* Sums and differences of products: "2*keep-1", "-1". */
std::int64_t number(const std::string &expression)
{
	const bool negative = expression.starts_with('-');
	std::int64_t sum = 0, product = negative ? -1 : 1;
	std::string word;

	for (const char c : expression.substr(negative) + '+') {
		if (c != '+' && c != '-' && c != '*') {
			word += c;
			continue;
		}
		product *= factor(word);
		word.clear();
		if (c == '*')
			continue;
		sum += product;
		product = c == '-' ? -1 : 1;
	}
	return sum;
}

void expect_number(const std::string &name, const std::string &bound, std::uint64_t actual)
{
	const std::string relation = bound.substr(0, bound.find_first_not_of("<>="));
	const auto limit =
		bound == "none" ? U64_MAX
				: static_cast<std::uint64_t>(number(bound.substr(relation.size())));
	const bool holds = relation == "<="   ? actual <= limit
			   : relation == ">=" ? actual >= limit
					      : actual == limit;

	if (!holds)
		expect(name + " " + bound + " (" + std::to_string(limit) + ")",
		       name + " " + (actual == U64_MAX ? "none" : std::to_string(actual)));
}

Words::Words(const std::string &line)
{
	std::istringstream stream(line);

	for (std::string word; stream >> word;)
		words_.push_back(word);
}

std::string Words::rest() const
{
	std::string all;

	for (const std::string &word : words_)
		all += (all.empty() ? "" : " ") + word;
	return all;
}

std::string Words::take(const char *what)
{
	if (words_.empty())
		throw Mismatch(std::string("no ") + what);
	std::string word = words_.front();

	words_.erase(words_.begin());
	return word;
}

bool Words::has(const std::string &name)
{
	const auto found = std::find(words_.begin(), words_.end(), name);

	if (found == words_.end())
		return false;
	words_.erase(found);
	return true;
}

std::optional<std::string> Words::after(const std::string &name)
{
	const auto found = std::find(words_.begin(), words_.end(), name);

	if (found == words_.end())
		return {};
	if (found + 1 == words_.end())
		throw Mismatch("nothing behind " + name);
	std::string word = found[1];

	words_.erase(found, found + 2);
	return word;
}

std::uint64_t Words::value(const std::string &name, std::uint64_t otherwise)
{
	const auto word = after(name);

	return word ? static_cast<std::uint64_t>(number(*word)) : otherwise;
}

namespace {

bool begins_number(const std::string &word)
{
	return std::isdigit(word[0]) || (word[0] == '-' && word != "->") ||
	       CONSTANTS.contains(word.substr(0, word.find_first_of("+-*.")));
}

} // namespace

std::optional<unsigned> Words::next_of(const Names &names)
{
	if (words_.empty() || !names.contains(words_.front()))
		return {};
	return names.at(take());
}

std::optional<std::int64_t> Words::next_number()
{
	if (words_.empty() || !begins_number(words_.front()))
		return {};
	return number(take());
}

std::vector<std::int64_t> Words::numbers()
{
	std::vector<std::int64_t> all;

	while (!words_.empty() && begins_number(words_.front())) {
		const auto [first, last] = range();

		for (std::int64_t n = first; n <= last; ++n)
			all.push_back(n);
	}
	return all;
}

std::pair<std::int64_t, std::int64_t> Words::range()
{
	const std::string word = take("number");
	const std::size_t dots = word.find("..");

	return {number(word.substr(0, dots)),
		number(dots == word.npos ? word : word.substr(dots + 2))};
}

std::optional<std::string> Words::outcome()
{
	const auto arrow = std::find(words_.begin(), words_.end(), "->");

	if (arrow == words_.end())
		return {};
	const std::string all = Words(std::vector<std::string>(arrow + 1, words_.end())).rest();

	words_.erase(arrow, words_.end());
	return all;
}

void expect_fields(Words &words, const std::vector<Field> &fields)
{
	for (const Field &field : fields) {
		const std::string name = field.name;

		if (!field.flag) {
			if (const auto bound = words.after(name))
				expect_number(name, *bound, field.value);
			continue;
		}
		const bool no = words.has("no-" + name);

		if (no || words.has(name))
			expect((no ? "no-" : "") + name, (field.value ? "" : "no-") + name);
	}
}

u8 mtu_shift(Words &words, u8 before)
{
	const auto mtu = words.value("mtu", 1U << before);
	u8 shift = 8;

	while (1U << shift < mtu)
		++shift;
	return shift;
}

std::string Half::copy_of(const void *kept, enum peal_drop drop) const
{
	return "copy of " + std::to_string(number_of(static_cast<const peal_packet *>(kept)->psn)) +
	       (drop == PEAL_DROP_sequence ? "" : ", counted as " + name_of(DROPS, drop));
}

std::unique_ptr<peal_packet> Half::returned(void *handle)
{
	auto *packet = static_cast<peal_packet *>(handle);

	if (packet && !kept_.erase(packet))
		throw Mismatch("a kept packet is returned a second time");
	return std::unique_ptr<peal_packet>(packet);
}

std::unique_ptr<peal_packet> Half::returned(void *handle, const std::string &which)
{
	auto packet = returned(handle);

	expect(which == "none" ? which : std::to_string(number(which)),
	       packet ? std::to_string(number_of(packet->psn)) : "none");
	return packet;
}

std::uint64_t Half::timer() const
{
	return deadline() == U64_MAX ? U64_MAX : deadline() - std::min(now_, deadline());
}

void Half::expire()
{
	if (deadline() == U64_MAX)
		throw Mismatch("no timer");
	now_ = std::max(now_, deadline());
	run_timers();
	while (void *handle = take_expired())
		expired_.push_back(static_cast<std::int64_t>(number_of(returned(handle)->psn)));
}

bool Half::run_common(const std::string &verb, Words &words)
{
	if (verb == "wait") { /* No timer runs: the host is late. */
		now_ = words.has("until-mark")
			       ? mark_
			       : now_ + static_cast<u64>(number(words.take("time")));
	} else if (verb == "mark") {
		mark_ = words.has("timer") ? deadline() : now_;
	} else if (verb == "tick") {
		run_timers();
	} else if (verb == "expire") {
		expire();
	} else if (verb == "expired") {
		expect_list(words.numbers(), expired_);
		words.has("none");
		expired_.clear();
	} else if (verb == "drop") {
		auto left = number(words.take("count"));

		for (; returned(drop_reordered()); --left)
			;
		expect("0 more", std::to_string(left) + " more");
	} else {
		return false;
	}
	return true;
}

Half::~Half()
{
	for (peal_packet *packet : kept_)
		delete packet;
}

void Half::end()
{
	while (returned(drop_reordered()))
		;
	if (!kept_.empty())
		throw Mismatch("a kept packet is never returned");
}

namespace {

struct Line {
	unsigned number;
	std::string text;
	std::vector<Line> body; /* the lines below it that are indented deeper */
};

using Variables = std::map<std::string, std::string>;

/* Reads the lines from @at on that are indented by @depth tabs. */
std::vector<Line> read_block(const std::vector<std::string> &lines, std::size_t &at,
			     std::size_t depth)
{
	std::vector<Line> block;

	for (; at < lines.size(); ++at) {
		const std::string &text = lines[at];
		const std::size_t tabs = text.find_first_not_of('\t');

		if (tabs == text.npos || text[tabs] == '#')
			continue;
		if (tabs < depth)
			break;
		if (tabs == depth) {
			block.push_back({static_cast<unsigned>(at + 1), text.substr(tabs), {}});
			continue;
		}
		if (block.empty())
			throw Mismatch("line " + std::to_string(at + 1) + ": indented too deep");
		block.back().body = read_block(lines, at, depth + 1);
		--at;
	}
	return block;
}

/* Replaces each $name. A name that is unknown may be that of a `for` in the line. */
std::string substitute(const std::string &text, const Variables &variables)
{
	std::string result;

	for (std::size_t at = 0; at < text.size();) {
		std::size_t end = at + 1;

		while (text[at] == '$' && end < text.size() && std::isalpha(text[end]))
			++end;
		const auto variable = variables.find(text.substr(at + 1, end - at - 1));

		result += variable == variables.end() || text[at] != '$' ? text.substr(at, end - at)
									 : variable->second;
		at = end;
	}
	return result;
}

std::vector<std::string> split(const std::string &text, char by)
{
	std::vector<std::string> parts;
	std::istringstream stream(text);

	for (std::string part; std::getline(stream, part, by);)
		parts.push_back(part);
	return parts;
}

class Script {
	std::string file_;
	std::vector<Line> lines_;
	std::map<std::string, const Line *> macros_;

	/* One run of a case: with these values of its `each` lines, and this `or` block. */
	struct Run {
		Machine &machine;
		unsigned alternative;
		unsigned alternatives = 1;
	};

	/* Return: the lines below, or what is left of the words as a line. */
	static std::vector<Line> body_of(const Line &line, Words &words)
	{
		if (words.empty())
			return line.body;
		const std::string rest = words.rest();

		words = Words("");
		return {{line.number, rest, {}}};
	}
	void run(const std::vector<Line> &block, Run &run, const Variables &variables) const
	{
		unsigned option = 0;

		for (const Line &line : block) {
			const std::string verb = line.text.substr(0, line.text.find(' '));

			if (verb == "either" || verb == "or") {
				option = verb == "either" ? 0 : option + 1;
				run.alternatives = std::max(run.alternatives, option + 1);
				if (option == run.alternative)
					this->run(line.body, run, variables);
				continue;
			}
			this->run(line, run, variables);
		}
	}
	void run(const Line &line, Run &run, const Variables &variables) const
	{
		std::string text = line.text;

		try {
			text = substitute(text, variables);
			Words words(text);
			std::string verb = words.take();

			if (verb[0] == '+') { /* +5ms: first, time passes */
				Words time(verb.substr(1));

				run.machine.run("wait", time);
				verb = words.take();
			}
			const auto macro = macros_.find(verb);
			Variables inner = variables;

			if (verb == "repeat") {
				auto left = number(words.take());
				const auto body = body_of(line, words);

				for (; left > 0; --left)
					this->run(body, run, variables);
			} else if (verb == "for") {
				const std::string name = words.take();
				const auto numbers = words.numbers();
				const auto body = body_of(line, words);

				for (const std::int64_t n : numbers) {
					inner[name] = std::to_string(n);
					this->run(body, run, inner);
				}
			} else if (macro != macros_.end()) {
				Words names(macro->second->text);

				for (names.take(), names.take(); !names.empty();)
					inner[names.take()] = words.take("argument of the macro");
				this->run(macro->second->body, run, inner);
			} else {
				run.machine.run(verb, words);
			}
			if (!words.empty())
				throw Mismatch("unknown words: " + words.rest());
		} catch (const Mismatch &mismatch) {
			const std::string what = mismatch.what();

			throw Mismatch(file_ + ":" + std::to_string(line.number) + ": " + text +
				       "\n" + what);
		}
	}
	/* Runs @block once for each combination of values of the `each` lines that begin it. */
	void run_each(const std::vector<Line> &block, std::size_t at, MakeMachine make,
		      const Variables &variables) const
	{
		if (at < block.size() && block[at].text.starts_with("each ")) {
			std::string text = block[at].text.substr(5);

			for (const Line &more : block[at].body)
				text += " " + more.text;
			Words words(text);
			const auto names = split(words.take(), ',');

			while (!words.empty()) {
				const auto values = split(words.take(), ',');
				Variables inner = variables;

				for (std::size_t i = 0; i < names.size(); ++i)
					inner[names[i]] = values.at(i);
				for (std::size_t i = names.size(); i < values.size(); ++i)
					inner[names.back()] += " " + values[i];
				run_each(block, at + 1, make, inner);
			}
			return;
		}
		const std::vector<Line> rest(block.begin() + static_cast<long>(at), block.end());

		for (unsigned i = 0, alternatives = 1; i < alternatives; ++i) {
			const auto machine = make();
			Run one{*machine, i};

			for (const auto &[name, value] : variables)
				UNSCOPED_INFO(name << " is " << value);
			if (alternatives > 1)
				UNSCOPED_INFO("the block of number " << i + 1);
			run(rest, one, variables);
			machine->end();
			alternatives = one.alternatives;
		}
	}

public:
	explicit Script(const char *file) : file_(file)
	{
		std::ifstream stream(std::string(SCRIPTS) + file);
		std::vector<std::string> text;
		std::size_t at = 0;

		if (!stream)
			throw Mismatch("cannot read " + file_);
		for (std::string line; std::getline(stream, line);)
			text.push_back(line);
		lines_ = read_block(text, at, 0);
		for (const Line &line : lines_) {
			if (line.text.starts_with("define "))
				macros_[split(line.text, ' ').at(1)] = &line;
		}
	}
	const std::vector<Line> &lines() const { return lines_; }
	void run_case(const Line &line, MakeMachine make) const
	{
		run_each(line.body, 0, make, {});
	}
};

} // namespace

void run_script(const char *file, MakeMachine make)
{
	static std::map<std::string, std::unique_ptr<Script>> scripts;
	auto &script = scripts[file];

	if (!script)
		script = std::make_unique<Script>(file);
	for (const Line &line : script->lines()) {
		if (!line.text.starts_with("case "))
			continue;
		DYNAMIC_SECTION(line.text.substr(5))
		{
			std::string failure;

			try {
				script->run_case(line, make);
			} catch (const Mismatch &mismatch) {
				failure = mismatch.what();
			}
			if (!failure.empty())
				FAIL(failure);
			SUCCEED();
		}
	}
}

} // namespace peal::test
