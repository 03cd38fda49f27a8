#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Runs rdma-core's own test suite on one device, and writes what each test did to a JSON file.

    run_suite.py TESTS DEVICE GID RESULT [NAME...]

TESTS is a copy of the suite, as Debian's python3-pyverbs ships it below /usr/share/doc. With NAMEs it runs only tests
whose names contain one of these. It judges nothing; conformance.py does.
"""
import errno
import importlib
import json
import signal
import sys
import time
import unittest

# A test that hangs fails after this many seconds.
LIMIT = 90
# Modules for the hardware of one vendor. Their tests open the device and give up, which takes half of the time of all.
VENDORS = ("test_mlx5_", "test_efa")


class Hangs(Exception):
    pass


def on_alarm(_signal, _frame):
    raise Hangs(f"it ran for {LIMIT} s")


def first_line(text):
    lines = [line for line in str(text).splitlines() if line.strip()]
    return lines[0].strip() if lines else ""


def name_of(test):
    """tests.test_cq.CQTest.test_create_cq becomes test_cq.CQTest.test_create_cq."""
    return test.id().removeprefix("tests.")


class Recorder(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.found = {}
        self.begin = 0

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()
        signal.alarm(LIMIT)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)
        entry = self.found.setdefault(name_of(test), {"result": "passed", "reason": ""})
        entry["seconds"] = round(time.monotonic() - self.begin, 1)
        print(f"{entry['result']:8}{entry['seconds']:6} s {name_of(test)}"
              f"{': ' if entry['reason'] else ''}{entry['reason']}", flush=True)

    def note(self, test, result, reason):
        self.found[name_of(test)] = {"result": result, "reason": reason, "seconds": 0}

    def addSkip(self, test, reason):
        self.note(test, "skipped", first_line(reason))

    def note_failure(self, test, error):
        self.note(test, "failed", f"{error[0].__name__}: {first_line(error[1])}")
        print("".join(unittest.TestResult._exc_info_to_string(self, error, test)), flush=True)

    def addError(self, test, err):
        # Most tests skip themselves when the device does not support what they ask for. Some do not look.
        if getattr(err[1], "error_code", None) == errno.EOPNOTSUPP:
            self.note(test, "skipped", first_line(err[1]))
        else:
            self.note_failure(test, err)

    def addFailure(self, test, err):
        self.note_failure(test, err)

    def addSubTest(self, test, subtest, err):
        if err:
            self.note_failure(test, err)


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def main():
    folder, device, gid, result, *names = sys.argv[1:]
    # The suite imports its helpers by their plain names.
    sys.path[:0] = [folder, folder + "/.."]
    sys.argv[1:] = ["--dev", device, "--port", "1", "--gid", gid]
    importlib.import_module("args_parser").parser.parse_args()
    suite = importlib.import_module("tests")
    loader = unittest.TestLoader()
    tests = [test for module in suite.__test_modules__ for test in flatten(loader.loadTestsFromModule(module))]
    if names:
        tests = [test for test in tests if any(name in name_of(test) for name in names)]
    signal.signal(signal.SIGALRM, on_alarm)
    recorder = Recorder()
    for test in tests:
        if name_of(test).startswith(VENDORS):
            recorder.note(test, "skipped", "hardware of one vendor")
    unittest.TestSuite(test for test in tests if not name_of(test).startswith(VENDORS)).run(recorder)
    with open(result, "w", encoding="utf-8") as file:
        json.dump(recorder.found, file, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
