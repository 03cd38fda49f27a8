#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Tests what scripts/bench makes of its figures: medians and spread, the table, CSV and plots of a fixed result, and the
# comparison of two, and that it repeats a measurement without a clock. It measures nothing.
"""Unit tests of the results of scripts/bench."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts/lib/bench"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))
# pylint: disable=wrong-import-position
import plan
import plot
import results
import subjects

RESULT = {
    "version": results.VERSION,
    "environment": {"kernel": "6.1", "cpus": 2, "cpu": "a CPU", "machine": "the host itself", "load": 0.1, "commit": "abc",
                    "perftest": "4.5", "mtu": 4500, "icount": False, "begin": "2026-01-01 00:00", "distortions": ["a reason"]},
    "subjects": ["peal", "rxe"],
    "rows": [{"label": "write_bw 64 B", "kind": "rate", "bytes": 64},
             {"label": "write_bw 64 KiB", "kind": "rate", "bytes": 65536},
             {"label": "write_bw 64 B 4 QPs", "kind": "rate", "bytes": 64},
             {"label": "read_lat 8 B", "kind": "latency", "bytes": 8}],
    "samples": {"write_bw 64 B": {"peal": {"rate": [1e6, 1.1e6, 1.2e6]}, "rxe": {"rate": [50e3, 50e3, 50e3]}},
                "write_bw 64 KiB": {"peal": {"rate": [40e3, 41e3, 42e3]}, "rxe": {"rate": [2e3, 2e3, 3e3]}},
                "write_bw 64 B 4 QPs": {"peal": {"rate": [2e6, 2e6, 2e6]}},
                "read_lat 8 B": {"peal": {"median": [2.0, 2.2, 2.1], "p99": [3, 4, 5], "p99.9": [9, 9, 9]}}},
    "limits": {"system call": [100.0, 120.0, 110.0]},
    "left_out": ["siw: this kernel has no siw"],
}


def counted(instructions):
    """The result of one round that counts instructions."""
    result = copy.deepcopy(RESULT)
    result["environment"]["icount"] = True
    result["samples"] = {"write_bw 64 B": {"peal": {"instructions": [instructions]}}}
    return result


def changed(factor, label="write_bw 64 B", metric="rate"):
    result = copy.deepcopy(RESULT)
    place = result["samples"][label]["peal"]
    place[metric] = [figure * factor for figure in place[metric]]
    return result


class Arithmetic(unittest.TestCase):
    def test_spread_is_half_of_the_range(self):
        self.assertAlmostEqual(results.spread([90, 100, 110]), 0.1)
        self.assertEqual(results.spread([5, 5]), 0)

    def test_one_figure_has_no_spread(self):
        self.assertIsNone(results.spread([5]))

    def test_gigabits_come_from_the_rate_and_not_for_short_messages(self):
        short, long = RESULT["rows"][:2]
        self.assertEqual(results.figures(RESULT, short, "peal", "gbits"), [])
        self.assertAlmostEqual(results.median(results.figures(RESULT, long, "peal", "gbits")) * 1e-9, 41e3 * 65536 * 8e-9)

    def test_cpu_time_of_a_gibibyte_comes_from_that_of_a_message(self):
        row = {"label": "a", "kind": "cpu", "bytes": 65536}
        result = {"samples": {"a": {"peal": {"cpu": [1e-5]}}}}
        self.assertAlmostEqual(results.figures(result, row, "peal", "cpu_gib")[0], 0.16384)

    def test_numbers_have_three_digits(self):
        self.assertEqual([results.number(x) for x in (1234.5, 123.45, 12.345, 1.2345, 0.12345)],
                         ["1234", "123", "12.3", "1.23", "0.123"])


class Comparison(unittest.TestCase):
    def verdicts(self, before, after):
        return [line for line in results.compare(before, after) if line.endswith(("better", "worse", "unsure"))]

    def test_a_result_equals_itself(self):
        self.assertEqual(list(results.compare(RESULT, RESULT))[-1], "8 same")

    def test_a_change_within_the_spread_is_none(self):
        self.assertEqual(list(results.compare(RESULT, changed(1.15)))[-1], "8 same")

    def test_more_messages_are_better_and_longer_latencies_worse(self):
        self.assertIn("better", self.verdicts(RESULT, changed(1.5))[0])
        self.assertIn("worse", self.verdicts(RESULT, changed(1.5, "read_lat 8 B", "median"))[0])

    def test_instructions_need_no_second_round(self):
        self.assertIn("worse", self.verdicts(counted(2000), counted(2100))[0])
        self.assertEqual(list(results.compare(counted(2000), counted(2020)))[-1], "1 same")

    def test_a_half_is_the_best_part_of_a_bottleneck(self):
        for after, word in (([0.45] * 3, "better"), ([0.7] * 3, "worse")):
            results_of = [copy.deepcopy(RESULT), copy.deepcopy(RESULT)]
            for result, part in zip(results_of, ([0.4] * 3, after)):
                result["rows"] = [{"label": "share with TCP FIFO", "kind": "share", "bytes": 16384}]
                result["samples"] = {"share with TCP FIFO": {"peal": {"part": part}}}
            self.assertIn(word, self.verdicts(*results_of)[0])

    def test_one_round_of_a_clock_says_nothing(self):
        once = copy.deepcopy(RESULT)
        once["samples"] = {"write_bw 64 B": {"peal": {"rate": [1e6]}}}
        self.assertEqual(list(results.compare(once, changed(3)))[-1], "1 unsure")

    def test_time_does_not_compare_with_instructions(self):
        with self.assertRaises(results.Unusable):
            list(results.compare(RESULT, counted(1)))

    def test_another_kernel_is_named(self):
        other = copy.deepcopy(RESULT)
        other["environment"]["kernel"] = "6.12"
        self.assertIn("the kernel differs: 6.1; 6.12", results.compare(RESULT, other))


class Output(unittest.TestCase):
    def test_table(self):
        lines = results.table(RESULT).splitlines()
        self.assertEqual(lines[0].split(), ["peal", "rxe"])
        self.assertEqual(lines[1].split(), ["write_bw", "64", "B", "k", "msg/s", "1100", "±9%", "50.0", "±0%"])
        self.assertEqual(lines[3].split(), ["Gb/s", "21.5", "±2%", "1.05", "±25%"])
        self.assertIn("system call", "\n".join(lines))
        self.assertEqual(lines[-2:], ["distorted: a reason", "left out: siw: this kernel has no siw"])

    def test_csv_has_a_line_for_each_figure(self):
        lines = results.to_csv(RESULT).splitlines()
        self.assertEqual(lines[0], "row,bytes,metric,unit,subject,median,least,most,rounds")
        self.assertIn("write_bw 64 B,64,rate,k msg/s,peal,1100,1000,1200,3", lines)
        self.assertEqual(len(lines), 1 + 10 + 1)

    def test_plots_are_xml_and_name_subjects_and_machine(self):
        drawn = dict(plot.plots(RESULT))
        self.assertEqual(set(drawn), {"write.svg", "latency.svg"})
        for svg in drawn.values():
            texts = [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
            self.assertIn("peal", texts)
            self.assertTrue(any("kernel 6.1, 2 CPUs, the host itself" in text for text in texts))
        self.assertEqual(drawn["write.svg"].count("<circle"), 4, "rows with several queue pairs are no points of the curve")

    def test_commands(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "r.json"
            path.write_text(json.dumps(RESULT), encoding="utf-8")
            shown = self.bench("show", path)
            self.assertIn(results.table(RESULT), shown.stdout)
            self.assertEqual({file.name for file in path.parent.iterdir()},
                             {"r.json", "r.csv", "r-write.svg", "r-latency.svg"})
            self.assertIn("8 same", self.bench("compare", path, path).stdout)
            path.write_text("{}", encoding="utf-8")
            wrong = self.bench("show", path)
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("no result file", wrong.stderr)

    def bench(self, *arguments):
        return subprocess.run([SCRIPTS / "bench.py", *arguments], capture_output=True, text=True, check=False)


class Clock(unittest.TestCase):
    """perftest reports "inf" where it could not measure the CPU's clock."""
    ROW = plan.Row("ib_read_lat", 8, "latency", 1000)
    UNKNOWN = " 8  1000  inf  inf  inf  inf  -nan  inf  inf\n"
    KNOWN = " 8  1000  1.50  9.00  1.60  1.70  0.10  2.50  3.50\n"

    class Machine:
        """Gives these outputs in turn."""

        def __init__(self, *outputs):
            self.outputs = list(outputs)

        def next_port(self):
            return 18515

        def pair(self, _server, _client, _ready):
            return self.outputs.pop(0)

    def figures(self, *outputs):
        device = subjects.Device("peal", "peal")
        device.ends = [("peal0", "1", "10.0.0.1", "-")] * 2
        return device.run(self.Machine(*outputs), self.ROW, 1000)

    def test_the_measurement_is_repeated(self):
        self.assertEqual(self.figures(self.UNKNOWN, self.UNKNOWN, self.KNOWN), {"median": 1.6, "p99": 2.5, "p99.9": 3.5})

    def test_not_for_ever(self):
        with self.assertRaisesRegex(subjects.Missing, "clock"):
            self.figures(*[self.UNKNOWN] * 3)


class Plan(unittest.TestCase):
    def test_labels_are_unique(self):
        for quick in (False, True):
            for icount in (False, True):
                labels = [row.label for row in plan.rows(quick, icount)]
                self.assertEqual(len(labels), len(set(labels)))

    def test_programs_poll_where_time_is_measured_and_wait_where_instructions_are(self):
        counted_rows, timed = plan.rows(False, True), plan.rows(False, False)
        self.assertTrue(all(("-e" in row.arguments) == (row.kind == "cpu") for row in timed))
        self.assertTrue(all("-e" in row.arguments for row in counted_rows if row.program.startswith("ib_send")))
        self.assertNotIn("ib_write_lat", [row.program for row in counted_rows])


if __name__ == "__main__":
    unittest.main()
