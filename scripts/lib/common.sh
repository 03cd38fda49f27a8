# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# What every script needs: the checkout's path, messages, the cache folder and Debian packages.
# It builds nothing and starts nothing.

shopt -s inherit_errexit
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$repo/build
cache=${PEAL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/peal}

# Messages go to stderr, so that stdout has only the result.
say() { printf '%s\n' "$*" >&2; }

die() {
	say "${0##*/}: $*"
	exit 1
}

# The comment at the head of a script is its help text. It goes to stdout with --help. After wrong arguments it goes to
# stderr (say "$(print_help)").
print_help() { sed -n '/^# SPDX/d; /^#!/d; /^#/!q; s/^# \{0,1\}//; p' "$0"; }

# make_cache [FOLDER]: makes a folder below the cache and prints its path.
make_cache() {
	local folder=$cache${1:+/$1}
	mkdir -p "$folder" 2>/dev/null ||
		die "cannot make the cache folder $folder; set PEAL_CACHE to a folder that can be written"
	note_use "$folder"
	printf '%s\n' "$folder"
}

# note_use FOLDER: its date says when it was used last. It may belong to another user.
note_use() { touch -c "$1" 2>/dev/null || true; }

# Removes the kernels and roots in the cache that were not used for 30 days. Each change of a configuration or of a list of
# packages leaves one of 2 GB or more.
prune_cache() {
	find "$cache"/kernel-* "$cache"/roots/* -maxdepth 0 -type d -mtime +30 -exec rm -rf {} + 2>/dev/null || true
}

# need_space FOLDER MEGABYTES WHAT
need_space() {
	local free
	free=$(df --output=avail -m "$1" | tail -n 1)
	((free >= $2)) || die "$3 needs $2 MB in $1 and $free MB are free; set PEAL_CACHE to a larger disk"
}

# Runs a command silently. Shows its output only when it fails.
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

# with_progress WHAT COMMAND...: runs a command silently, as quietly does. Shows WHAT, the seconds so far, and the last line that
# the command has printed. On a terminal this is one line that changes. Elsewhere it prints a line now and then. A command that
# takes less than two seconds shows nothing.
with_progress() {
	local what=$1 log begin=$SECONDS status=0 running progress
	shift
	log=$(mktemp)
	exec {running}> >(show_progress >&2)
	progress=$!
	"$@" >"$log" 2>&1 {running}>&- || status=$?
	exec {running}>&-
	wait "$progress" || true
	[[ ! -t 2 ]] || printf '\r\e[K' >&2
	((SECONDS - begin < progress_from)) || say "$what, $((SECONDS - begin)) s"
	((status == 0)) || cat "$log" >&2
	rm -f "$log"
	return "$status"
}

# Seconds until the first line. Where a line cannot change, the next one comes after ten
# seconds, and later ones after more.
progress_from=2

# Runs beside the command until its input ends. with_progress closes the input, or the end of the script does.
show_progress() {
	local next=$progress_from status line
	trap '' INT
	while :; do
		status=0
		read -r -t 0.5 || status=$?
		((status > 128)) || return 0
		((SECONDS - begin >= next)) || continue
		line="$what, $((SECONDS - begin)) s: $(tail -n 1 "$log" | tr -s '[:space:]' ' ' | cut -c 1-60)"
		if [[ -t 2 ]]; then
			printf '\r\e[K%s' "$line"
		else
			echo "$line"
			next=$((next + 10 + next / 5))
		fi
	done
}

# need_packages NAME...: installs the Debian packages that are missing. Two virtual machines may start at the same time, but
# only one apt-get can run.
need_packages() {
	[[ -z $(missing_packages "$@") ]] || with_cache_lock packages install_packages "$@"
}

missing_packages() {
	local name
	for name in "$@"; do
		[[ $(dpkg-query -W -f '${Status}' "$name" 2>/dev/null) == "install ok installed" ]] || echo "$name"
	done
}

install_packages() {
	local missing
	mapfile -t missing < <(missing_packages "$@")
	((${#missing[@]})) || return 0
	command -v apt-get >/dev/null ||
		die "this machine has no apt-get; install what these Debian packages hold: ${missing[*]}"
	((EUID == 0)) || die "packages are missing; as root, run: apt-get install ${missing[*]}"
	say "installing ${missing[*]}"
	update_packages
	need_space /var 1000 "installing packages"
	DEBIAN_FRONTEND=noninteractive with_progress "installing Debian packages" \
		"${apt_get[@]}" install -y --no-install-recommends "${missing[@]}" ||
		die "apt-get could not install: ${missing[*]}"
}

# Another program may hold dpkg's lock for a moment.
apt_get=(apt-get -q -o DPkg::Lock::Timeout=300)

update_packages() {
	with_progress "reading the lists of Debian packages" "${apt_get[@]}" update ||
		die "apt-get update failed; check the network and /etc/apt"
}

# with_lock NAME COMMAND...: lets only one process of this checkout run it at a time.
with_lock() {
	mkdir -p "$build"
	locked "$build/.$1.lock" "${@:2}"
}

# with_cache_lock NAME COMMAND...: the same for all checkouts that share the cache.
with_cache_lock() {
	local folder
	folder=$(make_cache "")
	locked "$folder/.$1.lock" "${@:2}"
}

# locked FILE COMMAND...
locked() {
	local lock status
	exec {lock}>"$1"
	flock "$lock"
	"${@:2}"
	status=$?
	exec {lock}>&-
	return "$status"
}
