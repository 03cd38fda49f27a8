# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Checks sizes: lines of a file, of a function, and of the median function. Counts C and C++ of the kernel and
userspace parts and of the tests. It finds functions by their braces in column 1 or, in C++, by indentation."""
import re
import statistics
import sys

from sources import sources

MAX_FILE = 800
MAX_FUNCTION = 100
MAX_MEDIAN = 12
PARTS = {"kernel": ["kernel/*.c", "kernel/*.h"], "userspace": ["userspace/*.cpp", "userspace/*.hpp"]}
# Only files, not functions: a test's cases are tables and loops.
FILES_ONLY = ["test/*.c", "test/*.cpp", "test/*.hpp", "include/*.h", "scripts/*"]
NAME = re.compile(r"([~\w:]+)\s*\(")


def functions(lines):
    """Name, first line and length of every function whose opening brace stands alone on its line."""
    head = begin = None
    for number, line in enumerate(lines, 1):
        if begin is None and re.match(r"^\t*\{$", line):
            indent, begin = line[:-1], number
            head = head_above(lines, number - 1, indent)
            if head is None:
                begin = None
        elif begin is not None and re.match(r"^%s\}" % indent, line):
            yield head, begin, number - begin - 1
            begin = None


def head_above(lines, index, indent):
    """The name in the declaration that ends above the brace, or None if that is no function's."""
    text = ""
    for line in reversed(lines[max(0, index - 12):index]):
        if not line.strip() or line.startswith("#") or line.rstrip().endswith((";", "}", "*/", ":")):
            break
        text = line.strip() + " " + text
    found = NAME.search(text)
    return found.group(1) if found and not re.match(r"(struct|enum|union|class|namespace)\b[^()]*$", text) else None


def check_part(part, patterns):
    lengths = []
    for path in sources(*patterns):
        lines = path.read_text().splitlines()
        for name, number, length in functions(lines):
            lengths.append(length)
            if length > MAX_FUNCTION:
                yield f"{path}:{number}: {name}() has {length} lines, {MAX_FUNCTION} are allowed"
    if lengths and statistics.median(lengths) > MAX_MEDIAN:
        yield f"{part}: the median function has {statistics.median(lengths)} lines, {MAX_MEDIAN} are allowed"


def check_files():
    for path in sources(*FILES_ONLY, *[pattern for patterns in PARTS.values() for pattern in patterns]):
        count = len(path.read_text().splitlines())
        if count > MAX_FILE:
            yield f"{path}: has {count} lines, {MAX_FILE} are allowed"


def main():
    findings = list(check_files())
    for part, patterns in PARTS.items():
        findings += check_part(part, patterns)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


sys.exit(main())
