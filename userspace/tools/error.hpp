// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The two ways in which a command fails. Each carries one sentence that says what to do.
 *
 * Owns: the exit status of each.
 * Does not know: who prints the sentence.
 */
#pragma once

#include <stdexcept>

namespace peal::tool {

enum Exit {
	EXIT_OK,
	EXIT_PROBLEM,	/* the command failed, or `doctor` found a problem */
	EXIT_WRONG_USE, /* the arguments are wrong, and nothing was done */
};

struct Failure : std::runtime_error {
	using std::runtime_error::runtime_error;
};

struct WrongUse : std::runtime_error {
	using std::runtime_error::runtime_error;
};

} /* namespace peal::tool */
