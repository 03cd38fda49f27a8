#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 300
#
# rdma-core's own test suite passes, as Debian ships it. A test may be skipped only for a reason that test/conformance/skips.txt
# has. Documentation/conformance.rst has the result, beside that of rdma_rxe.
# Almost all messages of the suite are 1 KiB of one repeated byte (verbs/every_byte_arrives, verbs/failed_requests).
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
device=${PEAL_DEV:-peal0}
conformance=$(dirname "$0")/../../conformance
suite=/usr/share/doc/rdma-core/tests
[[ -e $suite/run_tests.py ]] || skip "the package python3-pyverbs, or its documentation, is not installed"
modprobe -a rdma_cm rdma_ucm
# Some tests want huge pages.
echo 16 >/proc/sys/vm/nr_hugepages
gid=$(gid_index "$device") || fail "$device has no IPv4 GID"
work=$(mktemp -d)
cp -r "$suite" "$work/tests"
gunzip "$work"/tests/*.gz
"$conformance/run_suite.py" "$work/tests" "$device" "$gid" "$work/result" >"$work/output" 2>&1 || {
	tail -n 40 "$work/output"
	fail "the suite did not end"
}
[[ -z ${PEAL_SUITE_RESULT:-} ]] || cp "$work/result" "$PEAL_SUITE_RESULT"
grep -v -E '^(passed|skipped)' "$work/output"
grep -E '^(passed|skipped)' "$work/output" | sort -k 2nr | head -n 5
"$conformance/conformance.py" judge "$work/result" || fail "the list above"
