#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# transport: direct, thorough wire
# timeout: 300
#
# rdma-core's own test suite passes, as Debian ships it. A test may be skipped only for a reason that test/conformance/skips.txt
# has. Documentation/conformance.rst has the result, beside that of rdma_rxe. If it was written with these versions, its totals
# must be the same.
# Almost all messages of the suite are 1 KiB of one repeated byte (verbs/every_byte_arrives, verbs/failed_requests).
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/suite.sh
source "$(dirname "$0")/../helpers/suite.sh"
suite_title="rdma-core $(dpkg-query -W -f '${Version}' python3-pyverbs), kernel $(uname -r)"
run_suite /usr/share/doc/rdma-core/tests "${PEAL_DEV:-peal0}"
