# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs guest tests with modules that count which lines run, and prints how many lines of each file have run.
# guest-tests leaves the counts of each machine in its results folder. build/coverage/sum.info has the sum, and
# build/coverage/missed lists the lines that never ran.
# Needs common.sh, debug-kernel.sh and test-guest.sh.

coverage_packages=(lcov)
coverage_folder=$build/coverage

# run_coverage_suite NAME...
run_coverage_suite() {
	need_packages "${coverage_packages[@]}"
	guest_kernel=races
	after_machine=add_coverage
	module_arguments=(GCOV_PROFILE=y KCSAN_SANITIZE=n)
	rm -rf "$coverage_folder"
	mkdir -p "$coverage_folder"
	run_machine_suite guest_tests "$@"
	report_coverage
}

# add_coverage RESULTS: adds the counts of one machine. A machine that died has left none.
add_coverage() {
	local part=$1/coverage info
	[[ -d $part ]] || return 0
	info=$(mktemp "$coverage_folder/part-XXXX")
	find "$build/kernel-$guest_kernel/kernel" -name '*.gcno' -printf '%P\n' | while read -r note; do
		[[ ! -e $part/${note%.gcno}.gcda ]] || cp "$build/kernel-$guest_kernel/kernel/$note" "$part/$note"
	done
	quietly lcov --capture --directory "$part" --base-directory "$repo" --no-external --output-file "$info" ||
		say "test: what a machine counted cannot be read"
}

# lcov also reports code from the kernel's headers as files of this checkout. Ignore the files that do not exist in it.
report_coverage() {
	local part add=()
	for part in "$coverage_folder"/part-*; do
		[[ ! -s $part ]] || add+=(--add-tracefile "$part")
	done
	((${#add[@]})) || die "no machine has counted anything"
	quietly lcov "${add[@]}" --output-file "$coverage_folder/sum.info" || die "lcov cannot add up what ran"
	(cd "$repo" && find kernel -name '*.[ch]') | awk -F '[:,]' '
		NR == FNR { ours[$1]; next }
		$1 == "SF" { file = $2; sub(".*/kernel/", "kernel/", file) }
		$1 == "DA" && file in ours { lines[file]++; all++; if ($3 > 0) { ran[file]++; sum++ } else print file ":" $2 >missed }
		END {
			for (file in lines)
				printf "%5.1f %% of %4d lines  %s\n", 100 * ran[file] / lines[file], lines[file], file | "sort -n"
			close("sort -n")
			printf "%5.1f %% of %4d lines\n", 100 * sum / all, all
		}' missed="$coverage_folder/missed" - "$coverage_folder/sum.info"
}
