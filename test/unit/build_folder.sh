#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# scripts/demo compiles only what it needs: the modules, from their sources and from nothing that an earlier make left
# there, and the provider, but no test. A later test run in the same build folder gets the tests.
# The test configures and compiles nothing. Instead of compiling, ninja lists what it would build.
set -euo pipefail
source "$(dirname "$0")/../../scripts/lib/common.sh"
source "$repo/scripts/lib/build.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$work/user
progress_from=600

fail() {
	echo "FAILED: $*"
	exit 1
}

ninja() { echo "$*" >>"$work/asked"; }

# asked_for WORDS
asked_for() {
	[[ $(tail -n 1 "$work/asked") == "$1" ]] || fail "ninja was asked for: $(tail -n 1 "$work/asked")"
}

(
	repo=$work/repo
	mkdir -p "$repo/kernel/net"
	touch "$repo"/kernel/{Kbuild,a.c,a.h,net/b.c,a.o,peal.ko,peal.mod.c,.a.o.cmd}
	farm_sources "$work/farm"
	found=$(cd "$work/farm/kernel" && find . -type l | sort | tr '\n' ' ')
	[[ $found == "./Kbuild ./a.c ./a.h ./net/b.c " ]] || fail "the modules are made from: $found"
)

make_provider "$folder"
asked_for "-C $folder installed"
! grep '^build test/' "$folder/build.ninja" | grep -v '^build test/bench/' || fail "a folder for the demo has tests"
grep -q '^build installed:' "$folder/build.ninja" || fail "there is no target for what is installed"

make_user "$folder"
asked_for "-C $folder installed bench guest-library"
has_tests "$folder" || fail "a test run in the demo's folder has no tests"
inputs=$(command ninja -C "$folder" -t inputs guest)
grep -q '^test/guest/traffic.p/' <<<"$inputs" || fail "the target guest has no guest tests"
! grep '^test/unit/' <<<"$inputs" || fail "guest tests need unit tests"

make_provider "$folder"
asked_for "-C $folder installed"
has_tests "$folder" || fail "a demo took the tests out of their folder"
inputs=$(command ninja -C "$folder" -t inputs installed)
! grep 'test/' <<<"$inputs" || fail "the provider needs tests"
