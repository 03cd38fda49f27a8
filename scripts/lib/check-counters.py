# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Checks that Documentation/counters.rst has a line for every counter and tracepoint, and no other lines. Checks that
each is counted or called somewhere in kernel/. It does not know whether that is the right place.
"""
import pathlib
import re
import sys

PAGE = pathlib.Path("Documentation/counters.rst")
LINE = re.compile(r"^``([a-z_]+)``\s", re.M)
ENTRY = re.compile(r"^\s*X\((\w+)", re.M)
EVENT = re.compile(r"^(?:TRACE_EVENT\(|DEFINE_EVENT\(\w+, )(\w+),", re.M)


def defined():
    """Every name, and the pattern of a line that uses it."""
    text = pathlib.Path("kernel/base/counters.h").read_text()
    always, optional = text.split("#define PEAL_OPTIONAL_COUNTERS")
    for name in ENTRY.findall(always):
        # All drops are counted with their reason.
        yield name, "peal_count_drop" if name == "drops" else rf"peal_count(?:_by)?\([^,;]*,\s*{name}\b"
    for name in ENTRY.findall(optional):
        yield name, rf"= PEAL_COUNTER_{name}\b"
    for name in ENTRY.findall(pathlib.Path("kernel/proto/packet.h").read_text()):
        yield "drop_" + name, rf"\bPEAL_DROP_{name}\b"
    for name in EVENT.findall(pathlib.Path("kernel/base/trace.h").read_text()):
        yield name, rf"\btrace_{name}\("


def main():
    names = dict(defined())
    documented = LINE.findall(PAGE.read_text())
    code = "\n".join(path.read_text() for path in sorted(pathlib.Path("kernel").rglob("*.[ch]")))
    findings = [f"{PAGE}: has no line for {name}" for name in names if name not in documented]
    findings += [f"{PAGE}: has a line for {name}, which there is not" for name in documented if name not in names]
    findings += [f"{PAGE}: has two lines for {name}" for name in set(documented) if documented.count(name) > 1]
    findings += [f"kernel: nobody uses {name}" for name, use in names.items() if not re.search(use, code)]
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings or not names else 0


sys.exit(main())
