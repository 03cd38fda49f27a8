# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# What every script needs: the checkout's place, messages, the cache folder and Debian packages.
# It builds nothing and starts nothing.

shopt -s inherit_errexit
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$repo/build
cache=${PEAL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/peal}

# Messages go to stderr, so that stdout holds nothing but the result.
say() { printf '%s\n' "$*" >&2; }

die() {
	say "${0##*/}: $*"
	exit 1
}

# The comment at the head of a script is its help text.
print_help() { sed -n '/^# SPDX/d; /^#!/d; /^#/!q; s/^# \{0,1\}//; p' "$0"; }

# make_cache [FOLDER]: makes a folder below the cache and prints its path.
make_cache() {
	local folder=$cache${1:+/$1}
	mkdir -p "$folder" 2>/dev/null ||
		die "cannot make the cache folder $folder; set PEAL_CACHE to a folder that can be written"
	printf '%s\n' "$folder"
}

# need_space FOLDER MEGABYTES WHAT
need_space() {
	local free
	free=$(df --output=avail -m "$1" | tail -n 1)
	((free >= $2)) || die "$3 needs $2 MB in $1 and $free MB are free; set PEAL_CACHE to a larger disk"
}

package_installed() {
	[[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == "install ok installed" ]]
}

# Runs a command silently; only when it fails, its output is shown.
quietly() {
	local log
	log=$(mktemp)
	if "$@" >"$log" 2>&1; then
		rm -f "$log"
		return
	fi
	cat "$log" >&2
	rm -f "$log"
	return 1
}

# need_packages NAME...: installs the Debian packages that are missing.
need_packages() {
	local name missing=()
	for name in "$@"; do
		package_installed "$name" || missing+=("$name")
	done
	((${#missing[@]})) || return 0
	command -v apt-get >/dev/null ||
		die "this machine has no apt-get; install what these Debian packages hold: ${missing[*]}"
	((EUID == 0)) || die "packages are missing; as root, run: apt-get install ${missing[*]}"
	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	quietly apt-get -q update || die "apt-get update failed; check the network and /etc/apt"
	need_space /var 1000 "installing packages"
	quietly apt-get -q install -y --no-install-recommends "${missing[@]}" ||
		die "apt-get could not install: ${missing[*]}"
}

# with_lock NAME COMMAND...: one process at a time, among all that use this checkout.
with_lock() {
	local name=$1 lock status
	shift
	mkdir -p "$build"
	exec {lock}>"$build/.$name.lock"
	flock "$lock"
	"$@"
	status=$?
	exec {lock}>&-
	return "$status"
}
