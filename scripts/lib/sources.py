# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The list of the project's files, for the check-*.py beside it."""
import pathlib
import subprocess


def sources(*patterns):
    """The project's files that match, committed or not, except those that git ignores."""
    names = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        text=True).splitlines()
    return [path for path in map(pathlib.Path, names) if path.is_file()]
