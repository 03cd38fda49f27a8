#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Tests what scripts/profile makes of the counted blocks of two boots: the instructions of one message by function, and how they
# differ from a saved profile. It counts nothing.
"""Unit tests of the profiles of scripts/profile."""
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "scripts/lib/profile/profile.py"

SYMBOLS = """ffffffff81000000 T do_syscall
ffffffff81000100 t copy.isra.0
ffffffff81000200 D no_code
ffffffffc0000000 t peal_run\t[peal]
ffffffffc0000100 t peal_new\t[peal]
"""
MESSAGES = 10


class Profiles(unittest.TestCase):
    """Each test has the folders of two boots."""

    def setUp(self):
        # pylint: disable=consider-using-with
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        # Address, instructions and runs. The second block of peal_run runs five times a message.
        self.boot("few", ["401000 5 2", "ffffffff81000010 7 1000", "ffffffffc0000000 3 1"])
        self.boot("many", ["401000 5 12", "ffffffff81000010 7 1000", "ffffffff81000150 4 10", "ffffffffc0000000 3 11",
                           "ffffffffc0000010 8 50"])

    def boot(self, name, blocks):
        """Writes the folder of one boot."""
        (self.path / name).mkdir(exist_ok=True)
        (self.path / name / "symbols").write_text(SYMBOLS, "ascii")
        (self.path / name / "blocks").write_text("\n".join(blocks) + "\n", "ascii")

    def printed(self, action, what):
        """What the program prints."""
        return subprocess.run(["/usr/bin/python3", PROGRAM, action, what, self.path / "few", self.path / "many", str(MESSAGES)],
                              check=True, capture_output=True, text=True).stdout.splitlines()

    def test_instructions_of_a_message_by_function(self):
        """What both boots did alike costs nothing, and a block belongs to the function before it."""
        self.assertEqual(self.printed("show", "3"),
                         ["        52  all: peal 43, programs 5, kernel 4",
                          "        43  peal_run [peal]", "         5  programs", "         4  copy"])

    def test_the_same_profile_has_no_difference(self):
        """Only the sums are printed."""
        self.printed("save", self.path / "saved")
        self.assertEqual(self.printed("compare", self.path / "saved"),
                         ["        52 -> 52  all: peal 43, programs 5, kernel 4 -> peal 43, programs 5, kernel 4"])

    def test_functions_that_differ(self):
        """Those that grew, came or went, the largest change first."""
        self.printed("save", self.path / "saved")
        self.boot("many", ["401000 5 12", "ffffffff81000010 7 1000", "ffffffffc0000000 3 11", "ffffffffc0000010 8 60",
                           "ffffffffc0000108 30 10"])
        self.assertEqual(self.printed("compare", self.path / "saved")[1:],
                         ["         0 -> 30 (+30)  peal_new [peal]", "        43 -> 51 (+8)  peal_run [peal]",
                          "         4 -> 0 (-4)  copy"])

    def shared(self, lines):
        """What the program prints of these cache lines. 100 messages were sent, and those between 200 and 400 accesses count."""
        (self.path / "few" / "lines").write_text("\n".join(lines) + "\n", "ascii")
        return subprocess.run(["/usr/bin/python3", PROGRAM, "shared", self.path / "few", "100", "200", "400"],
                              check=False, capture_output=True, text=True)

    def test_cache_lines_that_two_cpus_share(self):
        """A line counts if both CPUs use it and one stores to it, each for every tenth of the 40 messages or more often."""
        run, copy = "ffffffffc0000004", "ffffffff81000104"
        self.assertEqual(self.shared(["500 400", f"1000 40 0 {run} 0 0 20 0 {copy}", f"1040 40 3 {run} {copy} 40 3 {run} {copy}",
                                      f"1080 40 40 {run} {run} 3 0 {run} 0"]).stdout.splitlines(),
                         ["         4  accesses of modules to kernel memory, a message",
                          "       1.0 0.5  copy, peal_run [peal]",
                          "         1  cache lines that both CPUs use for each message, and one stores to"])

    def test_too_few_messages(self):
        """Nothing was counted if a CPU did not come so far."""
        self.assertIn("too few", self.shared(["500 399"]).stderr)


if __name__ == "__main__":
    unittest.main()
