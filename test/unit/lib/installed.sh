#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Installs the build folder into another place, and builds each installed example with CMake and what find_package finds there,
# and one by pkg-config. A program that is built so runs.
#
#   installed.sh BUILD-FOLDER COMPILER [OPTION...]
set -u
build=$1
# Meson puts ccache before the compiler if it is installed.
[[ $(basename "$2") != ccache ]] || shift
compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "FAILED: $*"
	exit 1
}

# says PROGRAM: it finds no device of this name, and says so.
says() {
	LD_LIBRARY_PATH=$libraries PEAL_DEVICE=nothing "$1" >"$work/output" 2>&1 && fail "$1 finds a device"
	grep -q "there is no RDMA device" "$work/output" || fail "$1: $(<"$work/output")"
	echo "ok: $(basename "$1"): $(<"$work/output")"
}

DESTDIR=$work/root meson install -C "$build" --no-rebuild >"$work/output" 2>&1 || fail "install: $(<"$work/output")"
package=$(find "$work/root" -name peal-config.cmake)
libraries=${package%/cmake/peal/*}
examples=$(dirname "$(find "$work/root" -name hello.cpp)")

# configure [VERSION]: what CMake finds in the installed tree, as the version that the program asks for.
configure() {
	printf '%s\n' "cmake_minimum_required(VERSION 3.16)" "project(asks CXX)" "find_package(peal $1 REQUIRED)" >"$work/CMakeLists.txt"
	cmake -S "$work" -B "$work/asks" -DCMAKE_CXX_COMPILER="$compiler" -Dpeal_DIR="${package%/*}" >"$work/output" 2>&1
}

configure 0.1 || fail "find_package(peal 0.1): $(<"$work/output")"
configure 0.2 && fail "find_package(peal 0.2) finds 0.1"
configure 1.0 && fail "find_package(peal 1.0) finds 0.1"

cmake -S "$examples" -B "$work/examples" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" \
	-Dpeal_DIR="${package%/*}" >"$work/output" 2>&1 || fail "cmake: $(<"$work/output")"
cmake --build "$work/examples" --parallel >"$work/output" 2>&1 || fail "cmake --build: $(<"$work/output")"
for source in "$examples"/*.cpp; do
	name=$(basename "$source" .cpp)
	[[ -x $work/examples/$name ]] || fail "CMake does not build $name"
done
says "$work/examples/hello"

export PKG_CONFIG_PATH=$libraries/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root
# shellcheck disable=SC2046 # words
"$compiler" -std=c++20 "$examples/hello.cpp" $(pkg-config --cflags --libs libpeal) -o "$work/hello" || fail "pkg-config"
says "$work/hello"
