#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Prints "PABI LAYOUT" of the libibverbs that the compiler finds (or of the file
# given). pabi.hpp says what the two numbers mean. Refuses what it does not know:
# a guessed layout would crash every verbs program on the machine.
set -u
so=${1:-$(${CXX:-c++} -print-file-name=libibverbs.so)}
symbols=$(nm -D --defined-only "$so") || exit 1

has() { printf '%s\n' "$symbols" | grep -q " $1@"; }
die() { echo "detect-pabi.sh: $so: $1" >&2; exit 1; }

pabi=$(printf '%s\n' "$symbols" |
	sed -n 's/.* verbs_register_driver_\([0-9][0-9]*\).*/\1/p' | head -n 1)
[ -n "$pabi" ] || die "no verbs_register_driver_NN"
[ "$pabi" -le 65 ] || die "private ABI $pabi is newer than the newest one known, 65"

if has ibv_create_comp_cntr; then layout=65
elif has ibv_alloc_buf; then layout=64
elif has ibv_dm_export_dmabuf_fd; then layout=62
elif has ibv_reg_mr_ex; then layout=59
elif has ibv_query_qp_data_in_order; then layout=36
else die "older than rdma-core 36"; fi
echo "$pabi $layout"
