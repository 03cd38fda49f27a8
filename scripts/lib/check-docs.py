# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Checks that the functions, files and guest tests which Documentation/ and the README name are there, and
that the README shows the example that is compiled. It does not know whether what they say about them is right."""
import pathlib
import re
import sys

from sources import sources

IDENTIFIER = re.compile(r"\bpeal_\w*[a-z0-9]\b|\bPEAL_\w*[A-Z0-9]\b")
# With a folder, so that a name in another project's tree can be told by its folder.
FILE = re.compile(r"(?<![\w./-])[\w-]+/[\w/-]*\.(?:c|h|cpp|hpp|py|sh|rst|yaml|litmus|config|txt)\b")
PLACEHOLDER = re.compile(r"\b[A-Z]{4,}\b")
NOT_OURS = ("include/rdma/", "drivers/")
# Pages name files from the root, from kernel/ (anatomy.rst) and beside a file that they have just named.
ROOTS = [pathlib.Path(name) for name in (".", "kernel", "test", "test/guest", "Documentation", "include/uapi", "userspace/lib",
	"userspace/provider")]
HELLO = pathlib.Path("userspace/lib/examples/hello.cpp")
TESTS = pathlib.Path("test/guest")
SUBJECTS = "|".join(sorted(folder.name for folder in TESTS.iterdir() if folder.is_dir() and folder.name != "helpers"))
TEST = re.compile(rf"(?:\*|``|^|\s)((?:{SUBJECTS})/[a-z]\w+)(?=\*|``|\s|$)")


def words_of_code():
    words = set()
    for path in sources("kernel", "userspace", "include", "test", "scripts", "*meson*"):
        if path.suffix != "" or path.parts[0] == "scripts":
            words.update(re.findall(r"\w+", path.read_text(errors="replace")))
    return words


def findings(line, words):
    for name in IDENTIFIER.findall(line):
        if name not in words:
            yield f"{name} is not in the code"
    for name in FILE.findall(line):
        if not name.startswith(NOT_OURS) and not PLACEHOLDER.search(name):
            if not any((root / name).is_file() for root in ROOTS):
                yield f"there is no file {name}"
    for name in TEST.findall(line):
        if not list(TESTS.glob(name + ".*")):
            yield f"there is no guest test {name}"


def main():
    words = words_of_code()
    count = 0
    # Without the lines of the licence and of what it does.
    hello = HELLO.read_text().split("\n", 2)[2].strip()
    if hello not in pathlib.Path("README.md").read_text():
        print(f"README.md: the program in it is not {HELLO}")
        count += 1
    for page in sources("Documentation/*.rst", "README.md", "test/README.md"):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for message in findings(line, words):
                print(f"{page}:{number}: {message}")
                count += 1
    return 1 if count else 0


sys.exit(main())
