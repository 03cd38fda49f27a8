# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Checks every text file: it has a licence, no loose ends, and no paths of the machine it was written on."""
import re
import sys

from sources import sources

# Folders of one machine. Documentation may name /root as such.
MACHINE = re.compile(r"(?<![\w.$}-])/(?:work|root/|home/\w)")
LOOSE_END = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")
NO_LICENCE_LINE = re.compile(r"^LICENSES/|\.(?:json|svg|png|md)$|(?:^|/)\.clang-format$|peal\.driver$")
GUEST_HOME = "HOME=/root"


# Inputs of the fuzz targets may have any bytes.
NOT_TEXT = re.compile(r"^test/fuzz/corpus/")


def findings(path):
    if NOT_TEXT.search(str(path)):
        return
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    if not NO_LICENCE_LINE.search(str(path)) and "SPDX-License-Identifier:" not in text[:400]:
        yield 1, "has no SPDX-License-Identifier line"
    for number, line in enumerate(text.splitlines(), 1):
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
