# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Checks every text file: it has a licence, no loose ends, no paths of the machine it was written on, and nothing that a
merge left behind."""
import re
import sys

from sources import sources

# Folders of one machine. Documentation may name /root as such.
MACHINE = re.compile(r"(?<![\w.$}-])/(?:work|root/|home/\w)")
LOOSE_END = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")
NO_LICENCE_LINE = re.compile(
    r"^LICENSES/|\.(?:json|svg|png|md)$|(?:^|/)\.clang-format$|peal\.driver$|^debian/(?:changelog$|source/format$|[\w-]+\.(?:install|manpages)$)"
)
GUEST_HOME = "HOME=/root"

# What git writes around the two sides of a conflict, and around their common ancestor.
CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |$)")
DIVIDER = 7 * "="
# The border of a simple table of reStructuredText, and a row of one as this project writes them.
BORDER = re.compile(r"=+(?: +=+)+$")
ROW = re.compile(r"``[^`]+``(?:,? ``[^`]+``)*  +\S")

# Inputs of the fuzz targets may have any bytes.
NOT_TEXT = re.compile(r"^test/fuzz/corpus/")


def conflicts(lines):
    """What a merge left. A line of seven equal signs may also be the frame of a title of that length."""
    for i, line in enumerate(lines):
        title = max((lines[j] for j in (i - 1, i + 1) if 0 <= j < len(lines)), key=len, default="")
        if CONFLICT.match(line) or (line == DIVIDER and not 0 < len(title) <= len(DIVIDER)):
            yield i + 1, "is what a merge left: " + line


def rows_outside_of_tables(lines):
    """docutils takes a row without a border above it for a paragraph, and says nothing."""
    inside = False
    for i, line in enumerate(lines):
        last = i + 1 == len(lines) or not lines[i + 1].strip()
        if BORDER.match(line):
            inside = not (inside and last)
        elif not inside and ROW.match(line):
            yield i + 1, "is a row outside of a table: " + line


def findings(path):
    if NOT_TEXT.search(str(path)):
        return
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    if not NO_LICENCE_LINE.search(str(path)) and "SPDX-License-Identifier:" not in text[:400]:
        yield 1, "has no SPDX-License-Identifier line"
    lines = text.splitlines()
    yield from conflicts(lines)
    if path.suffix == ".rst":
        yield from rows_outside_of_tables(lines)
    for number, line in enumerate(lines, 1):
        if LOOSE_END.search(line):
            yield number, "has a loose end: " + line.strip()
        if MACHINE.search(line) and GUEST_HOME not in line:
            yield number, "names a folder of one machine: " + line.strip()


def main():
    count = 0
    for path in sources():
        for number, message in findings(path):
            print(f"{path}:{number}: {message}")
            count += 1
    return 1 if count else 0


sys.exit(main())
