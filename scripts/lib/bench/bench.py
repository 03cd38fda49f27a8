#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""The rounds of scripts/bench. Each round measures every row for every subject, so that a change of this machine's load affects
all of them alike. It runs in the checkout's folder, where the modules and programs are built already.

    bench.py run --out FILE [OPTION...]    measures, and writes the result file
    bench.py show FILE                     prints the table, and writes FILE's CSV and plots beside it
    bench.py compare BEFORE AFTER          prints what has changed by more than the spread
"""
import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
# pylint: disable=wrong-import-position
import plan
import plot
import results
import subjects

# What scripts/vm says about its machine, in that machine.
VIRTUAL_MACHINE = pathlib.Path("/vm/machine")


def machine_text():
    try:
        return VIRTUAL_MACHINE.read_text(encoding="utf-8").strip()
    except OSError:
        return "a virtual machine" if "hypervisor" in cpu_line("flags").split() else "the host itself"


def cpu_line(key):
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.split(":")[0].strip() == key:
            return line.split(":", 1)[1].strip()
    return ""


def environment(options):
    perftest = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "perftest"], capture_output=True, text=True, check=False)
    about = {
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": cpu_line("model name") or platform.machine(),
        "machine": machine_text(),
        "load": round(os.getloadavg()[0], 2),
        "commit": options.commit,
        "perftest": perftest.stdout.strip() or "unknown",
        "mtu": options.mtu,
        "icount": options.icount,
        # The clock of a guest that counts instructions is wrong.
        "begin": options.begin or time.strftime("%Y-%m-%d %H:%M"),
    }
    return about | {"distortions": list(distortions(about))}


def distortions(about):
    """Yields a sentence for each thing that makes the figures of a clock say less. Instructions are counted exactly."""
    if about["icount"]:
        return
    if "emulation" in about["machine"]:
        yield "software emulation, where times mean nothing; use --icount"
    elif "machine" in about["machine"] or "KVM" in about["machine"]:
        yield "a virtual machine, whose CPUs the host may give to others, and whose wake-ups are slow"
    if about["cpus"] == 1:
        yield "one CPU, where two programs that poll take each other's time"
    if about["load"] > about["cpus"] / 4:
        yield f"other programs kept {about['load']} CPUs busy at the begin"
    governor = pathlib.Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor.exists() and governor.read_text(encoding="ascii").strip() != "performance":
        yield "the CPU changes its frequency (governor " + governor.read_text(encoding="ascii").strip() + ")"


def busy_seconds():
    """The time that all CPUs have worked: for programs, the kernel, interrupts and softirqs."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Bench:
    """One run: what there is to do, what is done, and the result that grows."""

    def __init__(self, options):
        self.options = options
        self.machine = subjects.Machine(options.icount, options.mtu)
        self.left_out = []
        parts = [part for part in options.rows.split(",") if part]
        self.rows = plan.rows(options.quick, options.icount)
        if parts:
            # The name of a row may be a part of the names of others.
            names = {row.label for row in self.rows}
            self.rows = [row for row in self.rows
                         if any(part == row.label if part in names else part in row.label for part in parts)]
        if options.seconds == 0 and any(row.kind == "cpu" for row in self.rows):
            self.rows = [row for row in self.rows if row.kind != "cpu"]
            self.leave_out("CPU time: it is the difference of a longer and a shorter run, and --seconds is 0")
        if (os.geteuid() or not VIRTUAL_MACHINE.exists()) and any(row.kind == "memory" for row in self.rows):
            self.rows = [row for row in self.rows if row.kind != "memory"]
            self.leave_out("memory of a queue pair: it empties the caches of files, so only a machine of scripts/vm measures it")
        wanted = options.subjects.split(",")
        if os.geteuid() and set(wanted) - {"shm"}:
            self.leave_out(", ".join(name for name in wanted if name != "shm") + ": only root can make devices")
            wanted = ["shm"] if "shm" in wanted else []
        self.stages = subjects.stages(wanted)
        self.result = {
            "version": results.VERSION,
            "environment": environment(options),
            "subjects": [],
            "rows": [{"label": row.label, "kind": row.kind, "bytes": row.bytes} for row in self.rows],
            "samples": {},
            "limits": {},
            "left_out": self.left_out,
        }
        if self.result["environment"]["cpus"] == 1:
            self.leave_out("cache line to another CPU: there is one CPU")
        # How many iterations take the time that a figure should take, by subject and row, once that is known.
        self.iterations = {}
        # The CPU time of the shortest measurement, and its iterations. Most of it is for the start of the programs.
        self.shortest = {}
        self.peal_failed = False
        self.begin = time.monotonic()
        self.done = 0

    def run(self):
        # A first round finds out how many iterations each figure needs. It also warms caches and is not kept.
        calibrates = self.options.seconds > 0 and not self.options.icount
        rounds = self.options.rounds + calibrates
        self.all = rounds * sum(subject.covers(row) for stage in self.stages for subject in stage.subjects for row in self.rows)
        for number in range(rounds):
            keep = number >= calibrates
            say(f"round {number + 1 - calibrates} of {self.options.rounds}" if keep else "a round that is not kept")
            self.measure_limits(keep)
            for stage in list(self.stages):
                self.run_stage(stage, keep)
        if not self.result["samples"] and not self.result["limits"]:
            say("bench: nothing could be measured")
            return 1
        return int(self.peal_failed)

    def measure_limits(self, keep):
        try:
            lines = subjects.run_program(subjects.LIMITS, "all").splitlines()
        except subjects.Missing as why:
            self.leave_out(f"limits: {why}")
            return
        for line in lines if keep else []:
            figure, name = line.split(" ", 1)
            self.result["limits"].setdefault(name, []).append(float(figure))

    def run_stage(self, stage, keep):
        try:
            found, left_out = stage.up(self.machine)
            for text in left_out:
                self.leave_out(text)
            self.done += sum(subject.covers(row) for subject in stage.subjects if subject not in found for row in self.rows)
            for row in self.rows:
                figures = {subject.name: self.measure(subject, row, keep) for subject in found if subject.covers(row)}
                self.tell(row, figures)
        finally:
            stage.down(self.machine)

    def measure(self, subject, row, keep):
        """Returns the figures of one row for one subject, or None if they are left out."""
        self.done += 1
        key = subject.name, row
        if self.iterations.get(key) == 0:
            return None
        count = self.iterations.get(key, row.iterations)
        try:
            # The first start of the programs reads them from the disk, and takes more than the later ones.
            for _ in range(1 if keep or row.kind != "cpu" else 2):
                busy = busy_seconds()
                figures = subject.measure(self.machine, row, count)
                busy = busy_seconds() - busy
        except subjects.Missing as why:
            self.iterations[key] = 0
            self.leave_out(f"{subject.name}, {row.label}: {why}")
            self.peal_failed |= subject.name.startswith("peal") and "not installed" not in str(why)
            return None
        if not keep:
            self.iterations[key] = self.enough(row, figures)
            self.shortest[key] = busy, count
            return figures
        if row.kind == "cpu":
            busy_short, count_short = self.shortest[key]
            if count < 2 * count_short or busy <= busy_short:
                self.leave_out(f"{subject.name}, {row.label}: a short run took as much CPU time as a long one")
                return None
            figures = {"cpu": (busy - busy_short) / (count - count_short)}
        if self.options.icount and row.kind not in ("memory", "share"):
            # The clock counts instructions as nanoseconds.
            figures = {"instructions": 1e9 / figures["rate"] if "rate" in figures else figures["median"] * 1000}
        if subject.name not in self.result["subjects"]:
            self.result["subjects"] = [name for name in subjects.NAMES if name in self.result["subjects"] + [subject.name]]
        place = self.result["samples"].setdefault(row.label, {}).setdefault(subject.name, {})
        for metric, figure in figures.items():
            place.setdefault(metric, []).append(figure)
        return figures

    def enough(self, row, figures):
        """How many iterations take the wanted time. Datagrams may be lost, and so each needs a receive from the begin."""
        if row.kind == "share":
            return max(row.iterations, int(10000 * self.options.seconds))
        if row.connection == "UD" or row.kind == "memory":
            return row.iterations
        # A latency is one way, and an iteration of perftest is both.
        per_second = figures["rate"] if "rate" in figures else 5e5 / figures["median"]
        # /proc/stat counts hundredths of a second.
        count = int(per_second * max(self.options.seconds, row.kind == "cpu"))
        if "-q" in row.arguments:
            count //= int(row.arguments[row.arguments.index("-q") + 1])
        return max(row.iterations, count // 1000 * 1000)

    def leave_out(self, text):
        if text not in self.left_out:
            self.left_out.append(text)
            say(f"left out: {text}")

    def tell(self, row, figures):
        """Shows the newest figures, and how long the rest takes if it goes on like this."""
        if not figures:
            return
        metrics = {metric for found in figures.values() if found for metric in found}
        metric = next((m for m in ("instructions", "median", "rate", "cpu", "memory", "link") if m in metrics), None)
        unit, factor, _ = results.METRICS[metric] if metric else ("", 1, True)
        texts = [f"{name} {results.number(f[metric] * factor) if f and metric in f else '-'}" for name, f in figures.items()]
        left = (time.monotonic() - self.begin) * (self.all - self.done) / self.done
        left = f"{self.done} of {self.all}" + ("" if self.options.icount else f", {left:.0f} s left")
        say(f"[{left}] {row.label}, {unit}: {', '.join(texts)}")


def say(text):
    print(text, flush=True)


def run(options):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    unknown = set(options.subjects.split(",")) - set(subjects.NAMES)
    if unknown:
        sys.exit(f"bench: there is no subject {', '.join(sorted(unknown))}; there are: {' '.join(subjects.NAMES)}")
    bench = Bench(options)
    if not bench.rows:
        sys.exit(f"bench: no row has a name that contains: {options.rows}")
    status = bench.run()
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(bench.result, file, indent=1)
        file.write("\n")
    return status


def show(options):
    result = results.load(options.file)
    print(results.table(result))
    path = pathlib.Path(options.file)
    path.with_suffix(".csv").write_text(results.to_csv(result), encoding="utf-8")
    written = [path.name, path.with_suffix(".csv").name]
    for name, svg in plot.plots(result):
        written.append(f"{path.stem}-{name}")
        (path.parent / written[-1]).write_text(svg, encoding="utf-8")
    print(f"\nin {path.parent}: {' '.join(written)}")
    return 0


def compare(options):
    for line in results.compare(results.load(options.before), results.load(options.after)):
        print(line)
    return 0


def main():
    parser = argparse.ArgumentParser(prog="bench")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(call=run)
    command.add_argument("--out", required=True)
    command.add_argument("--commit", default="unknown")
    command.add_argument("--begin")
    command.add_argument("--quick", action="store_true")
    command.add_argument("--icount", action="store_true")
    command.add_argument("--rounds", type=int)
    command.add_argument("--seconds", type=float)
    command.add_argument("--mtu", type=int, default=4500)
    command.add_argument("--subjects", default=",".join(subjects.NAMES))
    command.add_argument("--rows", default="")
    command = commands.add_parser("show")
    command.set_defaults(call=show)
    command.add_argument("file")
    command = commands.add_parser("compare")
    command.set_defaults(call=compare)
    command.add_argument("before")
    command.add_argument("after")
    options = parser.parse_args()
    if options.call is run:
        options.rounds = options.rounds or (1 if options.icount else 3 if options.quick else 5)
        options.seconds = (0.2 if options.quick else 1) if options.seconds is None else options.seconds
    try:
        return options.call(options)
    except results.Unusable as why:
        sys.exit(f"bench: {why}")


sys.exit(main())
