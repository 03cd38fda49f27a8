#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# run: long
# transport: any
# timeout: 240
# vm: bare, cpus 1, mem 2G
#
# The steps of the action setup-peal, in their order and with their inputs, give a machine a device that a program uses: the packages
# are installed, the modules are compiled and kept in the cache, or come from it, and "peal doctor" finds nothing. A second run
# changes nothing. What is missing is said in one sentence. The recipes for GitHub and GitLab in Documentation/ci.rst work as they
# are written there.
# Does not hold: dkms compiles no module here, because the machine has no network for its packages (kernels/packages does it). Modules
# of scripts/vm appear where dkms would leave them. The action's own program, which downloads and caches, does not run here.
set -u
# shellcheck source=test/guest/helpers/lib.sh
source "$(dirname "$0")/../helpers/lib.sh"
packages=$PWD/build/packages
require dpkg-deb apt-get ibv_rc_pingpong
/usr/bin/python3 -c 'import yaml' 2>/dev/null || skip "python3-yaml is not installed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME=$work GITHUB_ACTION_PATH=$PWD/action USER=root

# The runner's user becomes root by sudo.
sudo() { "$@"; }
export -f sudo

# step ID: runs the step as the service does, in a folder of its own.
step() {
	/usr/bin/python3 -c 'import sys, yaml
for step in yaml.safe_load(open("action/action.yml"))["runs"]["steps"]:
    if step.get("id") == sys.argv[1]:
        print(step["run"])' "$1" >"$work/step-$1"
	[[ -s $work/step-$1 ]] || fail "action.yml has no step $1"
	(cd "$work" && bash -e "$work/step-$1") >"$work/output" 2>&1
}

# output_of FILE NAME: the value that a step has set.
output_of() { sed -n "s/^$2=//p" "$1"; }

# refuses WORDS COMMAND...
refuses() {
	local output
	output=$("${@:2}" 2>&1) && fail "expected a failure of ${*:2}: $output"
	[[ $output == *"$1"* ]] || fail "${*:2} says: $output"
	echo "ok: $1"
}

# depmod reads every module, which takes 25 s under emulation, and runs five times here. apt-get reads every list.
for folder in /lib/modules/"$(uname -r)"/kernel/{sound,drivers/*}; do
	case $folder in
	*/infiniband | */net) ;;
	*) mount -t tmpfs none "$folder" || fail "cannot hide $folder" ;;
	esac
done
mount -t tmpfs none /var/lib/apt/lists || fail "cannot hide the lists of packages"
rm -f /var/cache/apt/*.bin

rm -f /etc/libibverbs.d/peal.driver
mkdir "$work/drivers"
mount --bind "$work/drivers" /etc/libibverbs.d || fail "cannot replace the list of providers"
interface_up
refuses "--packages FOLDER" action/setup.sh --help
refuses "name a folder with peal's packages by --packages" action/setup.sh
refuses "should have one package ibverbs-provider-peal" action/setup.sh --packages "$work"

export GITHUB_OUTPUT=$work/kernel
step kernel || fail "the step kernel: $(<"$work/output")"
[[ $(output_of "$work/kernel" release) == "$(uname -r)" ]] || fail "the step kernel sets $(<"$work/kernel")"
export GITHUB_OUTPUT=$work/packages
FOLDER='' VERSION='' URL='' step packages && fail "the step packages accepts neither a version nor a folder"
grep -q "name a release by version, or a folder by packages" "$work/output" || fail "the step packages says: $(<"$work/output")"
FOLDER=$packages VERSION='' URL='' step packages || fail "the step packages: $(<"$work/output")"
[[ $(output_of "$work/packages" folder) == "$packages" ]] || fail "the step packages sets $(<"$work/packages")"
[[ $(output_of "$work/packages" hash) =~ ^[0-9a-f]{16}$ ]] || fail "the step packages sets $(<"$work/packages")"

# apt-get ARGUMENT...: the package peal-dkms would make dkms compile the modules.
dkms_folder=/lib/modules/$(uname -r)/updates/dkms
compiled=$work/compiled
mkdir "$compiled"
cp "$(modinfo -n peal)" "$(modinfo -n peal_kick_file)" "$compiled" || fail "there is no module"
export dkms_folder compiled
apt-get() {
	if [[ $* != *peal-dkms* ]]; then
		command apt-get "$@"
		return
	fi
	mkdir -p "$dkms_folder" && cp "$compiled"/* "$dkms_folder" && depmod
}
export -f apt-get

cached=$work/.cache/peal-modules/$(dpkg-deb -f "$packages"/peal-dkms_*.deb Version)/$(uname -r)
refuses "there is no netdev nosuch0; there are: " \
	action/setup.sh --packages "$packages" --netdev nosuch0 --cache "$work/.cache/peal-modules"
for name in peal.ko peal_kick_file.ko complete; do
	[[ -e $cached/$name ]] || fail "the cache has no $name: $(ls "$cached")"
done
echo "ok: the compiled modules are in the cache"
# The machine of the next job has no modules yet.
modprobe -r peal
rm -r "$dkms_folder"
depmod
for run in first second; do
	export GITHUB_OUTPUT=$work/$run
	FOLDER=$packages NETDEV=veth0 NAME=peal7 step setup || fail "the $run run of the step setup: $(<"$work/output")"
	grep -q "using the modules in" "$work/output" || fail "the cache was not used: $(<"$work/output")"
	[[ $(output_of "$work/$run" device) == peal7 ]] || fail "the step setup sets $(<"$work/$run")"
	[[ $(output_of "$work/$run" gid-index) == "$(gid_index peal7)" ]] || fail "the step setup sets $(<"$work/$run")"
done
echo "ok: peal7 was made once"

# recipe HEADING EXPRESSION: prints the value of an expression of Python about the YAML that the page has below this heading.
recipe() {
	/usr/bin/python3 -c 'import re, sys, textwrap, yaml
page = open("Documentation/ci.rst").read()
text = re.search("\n" + sys.argv[1] + "\n=+\n.*?::\n\n((?:    [^\n]*\n|\n)+)", page, re.S).group(1)
recipe = yaml.safe_load(textwrap.dedent(text))
print(eval(sys.argv[2]))' "$1" "$2"
}

# The last step of the recipe for GitHub, with the outputs of the step "peal".
recipe GitHub 'recipe["jobs"]["test"]["steps"][-1]["run"]' >"$work/github" || fail "ci.rst has no recipe for GitHub"
for name in device gid-index; do
	sed -i "s/\${{ steps.peal.outputs.$name }}/$(output_of "$work/second" $name)/" "$work/github"
done
bash -e "$work/github" >"$work/output" 2>&1 || fail "the recipe for GitHub: $(<"$work/output")"
grep -q "bytes in" "$work/output" || fail "the recipe for GitHub moves no data: $(<"$work/output")"
echo "ok: the recipe for GitHub"

mkdir "$work/gitlab" "$work/gitlab/ci"
ln -s "$PWD/action" "$work/gitlab/action"
ln -s "$packages" "$work/gitlab/ci/peal-packages"
recipe "GitLab and others" '"\n".join(recipe["test"]["script"])' >"$work/script" || fail "ci.rst has no recipe for GitLab"
(cd "$work/gitlab" && bash -e -o pipefail "$work/script") >"$work/output" 2>&1 ||
	fail "the recipe for GitLab: $(<"$work/output")"
grep -q "hca_id:.*peal0" "$work/output" || fail "the recipe for GitLab shows no device: $(<"$work/output")"
echo "ok: the recipe for GitLab"
