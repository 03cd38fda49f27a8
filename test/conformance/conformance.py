#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Judges a run of rdma-core's test suite, and writes Documentation/conformance.rst from runs.

    conformance.py judge RESULT [--title TITLE] [PATTERN...]
                                         fails unless every test passed, or is skipped for a reason of skips.txt; tests of
                                         a PATTERN may be skipped as well. If the page has this TITLE, its totals must be
                                         those of RESULT
    conformance.py page PEAL RXE TITLE   prints the page: both results side by side

RESULT, PEAL and RXE are files of run_suite.py. It runs no test.
"""
import collections
import fnmatch
import json
import pathlib
import re
import sys

SKIPS = pathlib.Path(__file__).parent / "skips.txt"
PAGE = pathlib.Path(__file__).parents[2] / "Documentation" / "conformance.rst"


def read_skips():
    """[(pattern, reason)] in the order of the file."""
    skips = []
    reason = None
    for line in SKIPS.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            skips.append((line.strip(), reason))
        else:
            reason = line.rstrip(":")
    return skips


def reason_for(name, skips):
    return next((reason for pattern, reason in skips if fnmatch.fnmatchcase(name, pattern)), None)


def load(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def findings(found, skips, others):
    for name, entry in sorted(found.items()):
        reason = reason_for(name, skips)
        if entry["result"] == "failed":
            yield f"{name} failed: {entry['reason']}"
        elif entry["result"] == "skipped" and not reason and not any(fnmatch.fnmatchcase(name, other) for other in others):
            yield f"{name} was skipped, and skips.txt has no reason: {entry['reason']}"
        elif entry["result"] == "passed" and reason:
            yield f"{name} passed. Take it out of skips.txt, so that it has to pass from now on"
    for pattern, _ in skips:
        if not fnmatch.filter(found, pattern):
            yield f"no test has a name that skips.txt names: {pattern}"


def totals_of_page(text):
    """peal's cells in the row of all classes. An empty cell is found by its column."""
    lines = text.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("all "))
    columns = [match.span() for match in re.finditer("=+", lines[row + 1])]
    return [lines[row][begin:end].strip() for begin, end in columns[1:4]]


def stale_page(count, words):
    text = PAGE.read_text(encoding="utf-8")
    if f"with {words}." in " ".join(text.split()) and totals_of_page(text) != [str(cell) for cell in cells(count)]:
        yield f"{PAGE.name} has other totals. Run scripts/conformance"


def judge(path, *others):
    words = None
    if others[:1] == ("--title",):
        words, others = others[1], others[2:]
    found = load(path)
    count = collections.Counter(entry["result"] for entry in found.values())
    bad = list(findings(found, read_skips(), others))
    if words:
        bad += stale_page(count, words)
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped of {len(found)}")
    for line in bad:
        print("FAILED:", line)
    return 1 if bad or not found else 0


HEAD = """.. SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
.. scripts/conformance wrote this page. Do not edit it.

===========
Conformance
===========

rdma-core has a test suite of its own. Debian ships it with the package python3-pyverbs. This page is the result of one run
on peal and one on rdma_rxe, on a veth pair, with {title}. The guest test
``tools/rdma_core_suite`` runs the suite on peal. It fails when a test fails, and when a test is skipped for a reason that
``test/conformance/skips.txt`` does not have.

"""


def table(head, rows):
    widths = [max(len(str(row[column])) for row in [head] + rows) for column in range(len(head))]
    line = "  ".join("=" * width for width in widths)

    def text(row):
        return "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip()

    return "\n".join([line, text(head), line] + [text(row) for row in rows] + [line, ""])


def class_of(name):
    """test_cq.CQTest.test_create_cq is of test_cq.CQTest."""
    return name.rpartition(".")[0]


def counted(found, names):
    return collections.Counter(found[name]["result"] if name in found else "absent" for name in names)


def cells(count):
    return [count[result] or "" for result in ("passed", "failed", "skipped")]


def title(text, mark="="):
    return f"{text}\n{mark * len(text)}\n"


def by_class(peal, rxe):
    """Classes that neither device can run are left to the list of reasons."""
    classes = collections.defaultdict(list)
    for name in sorted(set(peal) | set(rxe)):
        classes[class_of(name)].append(name)
    rows = []
    for group, names in classes.items():
        both = counted(peal, names), counted(rxe, names)
        if any(count["passed"] or count["failed"] for count in both):
            rows.append([group.removeprefix("test_")] + cells(both[0]) + cells(both[1]))
    total = cells(counted(peal, peal)) + cells(counted(rxe, rxe))
    head = ["class", "peal passed", "failed", "skipped", "rxe passed", "failed", "skipped"]
    return title("Tests by class") + "\n" + table(head, rows + [["all"] + total])


def skipped(peal):
    skips = read_skips()
    groups = collections.defaultdict(list)
    for name, entry in sorted(peal.items()):
        if entry["result"] == "skipped":
            groups[reason_for(name, skips) or entry["reason"]].append(name)
    text = title("What peal skips, and why") + "\n"
    for reason in dict.fromkeys([reason for _, reason in skips] + list(groups)):
        if reason not in groups:
            continue
        classes = collections.Counter(class_of(name).removeprefix("test_") for name in groups[reason])
        text += f"{len(groups[reason])}: {reason}\n"
        line = "   "
        for word in [f"{group} ({number})," for group, number in classes.items()]:
            if len(line) + len(word) > 118:
                text += line + "\n"
                line = "   "
            line += " " + word
        text += line.rstrip(",") + "\n\n"
    return text


def failed(device, found):
    rows = [f"``{name}``\n    {entry['reason']}\n" for name, entry in sorted(found.items()) if entry["result"] == "failed"]
    if not rows:
        return f"No test failed on {device}.\n"
    return title(f"What failed on {device}") + "\n" + "\n".join(rows)


def differences(peal, rxe):
    rows = [[name.removeprefix("test_"), peal[name]["result"], rxe[name]["result"]]
            for name in sorted(set(peal) & set(rxe)) if peal[name]["result"] != rxe[name]["result"]]
    return title("Tests with different results") + "\n" + table(["test", "peal", "rxe"], rows)


def page(peal_path, rxe_path, words):
    peal, rxe = load(peal_path), load(rxe_path)
    parts = [HEAD.format(title=words), by_class(peal, rxe), skipped(peal), failed("peal", peal), failed("rxe", rxe),
             differences(peal, rxe)]
    print(parts[0] + "\n".join(parts[1:]), end="")
    return 0


if __name__ == "__main__":
    sys.exit({"judge": judge, "page": page}[sys.argv[1]](*sys.argv[2:]))
