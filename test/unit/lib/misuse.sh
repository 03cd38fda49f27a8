#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Each file of misuse/ has a use of libpeal that must not compile, with what the compiler says ("error:"), and beside it the
# right use, which must.
#
#   misuse.sh INCLUDE-FOLDER UAPI-FOLDER COMPILER [OPTION...]
set -u
includes=$1
uapi=$2
shift 2
folder=$(dirname "$0")/misuse
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

compiles() { LC_ALL=C "$@" -std=c++20 -Wall -Wextra -Werror -I"$includes" -isystem "$uapi" 2>&1; }

# The headers take most of the time, so they are compiled once. Each file still includes its own.
echo '#include <peal/co.hpp>' >"$work/headers.hpp"
compiles "$@" -x c++-header -o "$work/headers.hpp.gch" "$work/headers.hpp" || exit 1
set -- "$@" -Winvalid-pch -fsyntax-only -include "$work/headers.hpp"

for file in "$folder"/*.cpp; do
	name=$(basename "$file" .cpp)
	if ! output=$(compiles "$@" "$file"); then
		echo "$name: the right use does not compile: $output"
		failed=1
	elif output=$(compiles "$@" -DMISUSE "$file"); then
		echo "$name: the misuse compiles"
		failed=1
	elif ! grep -E "error: .*($(sed -n 's,^/\* error: \(.*\) \*/$,\1,p' "$file"))" <<<"$output" >/dev/null; then
		echo "$name: the misuse fails for another reason: $output"
		failed=1
	else
		echo "ok: $name: $(grep -m 1 -o 'error: .*' <<<"$output")"
	fi
done
exit "$failed"
