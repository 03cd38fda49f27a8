#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# What "scripts/test kernels" takes for a warning: what a command prints, but not a line of progress, which quotes the last line
# of a log. It compiles nothing.
set -euo pipefail
source "$(dirname "$0")/../../scripts/lib/common.sh"
source "$repo/scripts/lib/results.sh"
source "$repo/scripts/lib/test-kernels.sh"
build=$(mktemp -d)
trap 'rm -rf "$build" "$recorded"' EXIT

# judges RESULT TEXT: what try_compile says of a command that prints TEXT.
judges() {
	local said
	said=$(try_compile "${1,,}" printf '%s\n' "$2")
	grep -q "^$1 kernels/" <<<"$said" || {
		echo "FAILED: expected $1 for: $2"
		exit 1
	}
}

judges PASS "release: 6.1"
judges PASS "making packages, 131 s: dpkg-shlibdeps: warning: package could avoid a useless dependency"
judges PASS "compiling the provider for Debian 13, 12 s: warning"
judges PASS "Skipping BTF generation for peal.ko: warning"
judges FAIL "mr.c:12:3: warning: unused variable"
judges FAIL "a.c: warning: 3, 4 s: x"
