#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
# transport: direct
# timeout: 300
#
# As tools/rdma_core_suite, with the suite and the libraries of Debian 13 (rdma-core 56). They know FLUSH, which needs a kernel
# of 6.2 or later: `PEAL_KERNEL=6.12 scripts/test guest debian13_suite`.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
# shellcheck source=test/guest/helpers/debian.sh
source "$(dirname "$0")/../helpers/debian.sh"
# shellcheck source=test/guest/helpers/suite.sh
source "$(dirname "$0")/../helpers/suite.sh"
# The core of 6.1 does not register memory with the right to flush.
[[ $(uname -r) != 6.1.* ]] || may_skip=('test_qpex.QpExTestCase.test_qp_ex_rc_flush*')
use_debian trixie
run_suite "$(debian_root trixie)/usr/share/doc/rdma-core/tests" "${PEAL_DEV:-peal0}" in_debian trixie /usr/bin/python3
