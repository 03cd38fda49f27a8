# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""What scripts/bench measures: devices, TCP and shared memory. A subject takes one figure of one row, with stock programs where
they can. It knows neither rounds nor the result file.

A stage holds the subjects that can exist at the same time. A wire takes the local routing table of rdma_rxe, so each kind of
wire is a stage of its own."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import plan

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
LIMITS = CHECKOUT / "build/user/test/bench/machine-limits"
IDLE_PAIRS = CHECKOUT / "build/user/test/bench/idle-pairs"
ONE_PROCESS = CHECKOUT / "build/user/test/bench/one-process"
SHARE = CHECKOUT / "build/user/test/bench/share"
PROVIDER = CHECKOUT / "build/user/userspace/provider/libpeal"
STAGE = CHECKOUT / "scripts/lib/bench/stage.sh"
FIGURES = re.compile(r"^ *\d+ +\d+ +[0-9.]+.*$", re.M)
# perftest measures the CPU's clock before it begins. If other work of the machine disturbs that, it reports this.
UNKNOWN_CLOCK = re.compile(r"^ *\d+ +\d+ +inf", re.M)
POLL = 0.02


class Missing(Exception):
    """Why a subject or a figure is left out, as a sentence without its subject."""


class UnknownClock(Missing):
    """The figure may be there if the measurement is repeated."""


class Machine:
    """What all subjects share: whether the clock counts instructions, time limits, and free ports."""

    def __init__(self, icount, mtu):
        self.icount = icount
        self.mtu = mtu
        # A clock that counts instructions runs ahead of a guest that waits for a file of the host. scripts/vm ends a run that
        # hangs.
        self.limit = 1000000 if icount else 120
        self.port = 18800
        self.environment = os.environ | {"IBV_DRIVERS": str(PROVIDER)} | ({"WAIT_LIMIT": "1000000"} if icount else {})

    def stage(self, *arguments):
        """Runs stage.sh and returns the words of each line that it prints."""
        done = subprocess.run([STAGE, *map(str, arguments)], env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines()
            failed = [line.removeprefix("FAILED: ") for line in lines if line.startswith("FAILED: ")]
            raise Missing((failed or lines or ["stage.sh failed"])[-1])
        return [line.split() for line in done.stdout.splitlines()]

    def pair(self, server, client, ready):
        """Runs a client after its server is ready, and returns what the client prints. Both must succeed."""
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(server, env=self.environment, stdout=log, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL)
            try:
                end = time.monotonic() + self.limit
                while not ready(process.pid):
                    if process.poll() is not None or time.monotonic() > end:
                        log.seek(0)
                        raise Missing("the server does not listen: " + last_line(log.read()))
                    time.sleep(POLL)
                done = subprocess.run(client, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                      timeout=self.limit, check=False)
                if done.returncode:
                    raise Missing(f"the client ended with {done.returncode}: {last_line(done.stdout + done.stderr)}")
                if process.wait(self.limit):
                    log.seek(0)
                    raise Missing(f"the server ended with {process.returncode}: {last_line(log.read())}")
                return done.stdout
            except subprocess.TimeoutExpired as error:
                raise Missing(f"it did not end in {self.limit} s") from error
            finally:
                process.kill()
                process.wait()

    def next_port(self):
        self.port += 1
        return self.port


def last_line(text):
    return (text.strip().splitlines() or ["no output"])[-1]


def listens(port, pid):
    """Whether a TCP socket listens on the port, in the network namespace of the process."""
    for table in ("tcp", "tcp6"):
        try:
            lines = pathlib.Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        if any(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in map(str.split, lines)):
            return True
    return False


def cm_listens(port):
    found = subprocess.run(["rdma", "resource", "show", "cm_id"], capture_output=True, text=True, check=False).stdout
    return re.search(rf"LISTEN.*:{port}( |$)", found, re.M) is not None


def free_memory():
    """Bytes that nothing uses, without files that could be read again."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    return int(re.search(r"MemFree: *(\d+)", pathlib.Path("/proc/meminfo").read_text(encoding="ascii")).group(1)) * 1024


def installed(program):
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in os.environ["PATH"].split(":"))


class Device:
    """perftest on RDMA devices: one that both programs use, or two at the ends of a wire."""

    def __init__(self, name, kind):
        self.name = name
        self.kind = kind
        self.ends = None

    def covers(self, row):
        """iWARP has neither datagrams nor atomics. Messages that go direct meet no wire that could delay them."""
        if (row.delay and not self.name.endswith("-wire")) or row.kind == "share":
            return False
        # One program uses one device. Idle queue pairs cost the same on each device of a kind.
        if row.idle or row.program in (ONE_PROCESS.name, IDLE_PAIRS.name):
            return self.name == self.kind != "siw"
        return self.kind != "siw" or (row.connection == "RC" and "atomic" not in row.program)

    def measure(self, machine, row, iterations):
        if row.idle:
            return self.beside_idle(machine, row.idle, lambda: self.run(machine, row, iterations))
        if row.kind == "memory":
            # What the program needs without queue pairs, and for the first ones, does not count.
            few = iterations // 4
            used = self.memory_of(machine, iterations) - self.memory_of(machine, few)
            return {"memory": used / (iterations - few)}
        if row.program == ONE_PROCESS.name:
            device, gid = self.ends[0][:2]
            return {"rate": 1e9 / float(run_program(ONE_PROCESS, device, gid, *row.arguments, row.bytes, iterations,
                                                    environment=machine.environment))}
        if not installed(row.program):
            raise Missing(f"{row.program} is not installed")
        if not row.delay:
            return self.run(machine, row, iterations)
        machine.stage("wire-delay", row.delay)
        try:
            return self.run(machine, row, iterations)
        finally:
            machine.stage("wire-delay")

    def beside_idle(self, machine, count, measure):
        """Calls the function while a program has so many idle queue pairs on the device."""
        if not IDLE_PAIRS.exists():
            raise Missing(f"{IDLE_PAIRS.relative_to(CHECKOUT)} is not built")
        device, gid = self.ends[0][:2]
        with subprocess.Popen([IDLE_PAIRS, device, gid, str(count)], env=machine.environment, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as idle:
            if not idle.stdout.readline():
                raise Missing(last_line(idle.stderr.read()))
            # The program ends when the pipe to it is closed.
            return measure()

    def memory_of(self, machine, count):
        """The bytes that a program with so many idle queue pairs takes, itself and in the kernel."""
        before = free_memory()
        return before - self.beside_idle(machine, count, free_memory)

    def run(self, machine, row, iterations):
        for _ in range(2):
            try:
                return self.run_once(machine, row, iterations)
            except UnknownClock:
                pass
        return self.run_once(machine, row, iterations)

    def run_once(self, machine, row, iterations):
        port = machine.next_port()
        commands = []
        for device, gid, _, namespace in self.ends:
            command = [row.program, "-F", "-d", device, "-p", str(port), "-n", str(iterations), *row.arguments]
            command += ["-R"] if gid == "-" else ["-x", gid]
            if "atomic" not in row.program:
                command += ["-s", str(row.bytes)]
            commands.append((["ip", "netns", "exec", namespace] if namespace != "-" else []) + command)
        ready = (lambda pid: cm_listens(port)) if self.kind == "siw" else (lambda pid: listens(port, pid))
        client, server = commands
        output = machine.pair(server, client + [self.ends[1][2]], ready)
        found = FIGURES.findall(output)
        if not found and UNKNOWN_CLOCK.search(output):
            raise UnknownClock(f"{row.program} could not measure the CPU's clock")
        if not found:
            raise Missing(f"{row.program} printed no figures")
        words = found[-1].split()
        if row.kind in ("rate", "cpu"):
            return {"rate": float(words[4]) * 1e6}
        return {"median": float(words[4]), "p99": float(words[7]), "p99.9": float(words[8])}


class Tcp:
    """TCP over the wire of peal's devices. A write of so many bytes is its message, although TCP has none."""
    name = "tcp-wire"
    ends = None

    def covers(self, row):
        return row.kind == "cpu" or (row.program == "ib_write_bw" and not row.note and row.bytes <= 1 << 20)

    def measure(self, machine, row, iterations):
        if not installed("iperf3"):
            raise Missing("iperf3 is not installed")
        port = machine.next_port()
        # The CPU time of so many messages is wanted, or the rate of one second.
        length = ["-n", str(iterations * row.bytes)] if row.kind == "cpu" else ["-t", "1"]
        here, there = (["ip", "netns", "exec", end[3]] for end in self.ends)
        output = machine.pair(there + ["iperf3", "-s", "-1", "-p", str(port)],
                              here + ["iperf3", "-J", *length, "-l", str(row.bytes), "-c", self.ends[1][2], "-p", str(port)],
                              lambda pid: listens(port, pid))
        report = json.loads(output)
        # iperf3 may end with success and without a rate, for example if it measures no time.
        received = report.get("end", {}).get("sum_received", {}).get("bits_per_second")
        if not received:
            raise Missing("iperf3 reports no rate" + (f": {report['error']}" if "error" in report else ""))
        return {"rate": received / 8 / row.bytes}


class SharedMemory:
    """Two processes that share memory: what two programs reach without any transport between them."""
    name = "shm"

    def covers(self, row):
        return row.program in ("ib_write_bw", "ib_write_lat") and not row.note

    def measure(self, machine, row, iterations):
        what = ["shm-lat"] if row.kind == "latency" else ["shm-bw", str(row.bytes)]
        words = run_program(LIMITS, *what, iterations).split()
        if row.kind == "rate":
            return {"rate": 1e9 / float(words[0])}
        return dict(zip(("median", "p99", "p99.9"), (float(word) / 1000 for word in words)))


def run_program(program, *arguments, environment=None):
    """Runs a program of test/bench, and returns what it prints."""
    if not program.exists():
        raise Missing(f"{program.relative_to(CHECKOUT)} is not built")
    done = subprocess.run([program, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(last_line(done.stderr))
    return done.stdout


class Host:
    """The stage of all subjects whose two programs share a device or memory."""

    def __init__(self, wanted):
        self.devices = [Device(kind, kind) for kind in ("peal", "rxe", "siw") if kind in wanted]
        self.memory = [SharedMemory()] if "shm" in wanted else []

    @property
    def subjects(self):
        return self.devices + self.memory

    def up(self, machine):
        """Returns the subjects that there are, and says why the others are left out."""
        found, left_out = list(self.memory), []
        for number, device in enumerate(self.devices):
            try:
                (name, gid, address), = machine.stage("device-up", device.kind, number, machine.mtu)
                device.ends = [(name, gid, address, "-")] * 2
                found.append(device)
            except Missing as why:
                left_out.append(f"{device.name}: {why}")
        return [subject for subject in self.subjects if subject in found], left_out

    def down(self, machine):
        for number, device in enumerate(self.devices):
            machine.stage("device-down", device.kind, number)


class SharedFlows:
    """Flows of peal that share a bottleneck with each other, or one beside TCP. The bottleneck is a router in a network namespace
    (test/guest/helpers/bottleneck.sh)."""
    name = "peal-wire"

    def covers(self, row):
        return row.kind == "share"

    def measure(self, machine, row, iterations):
        queue, flows, other = row.arguments
        machine.stage("bottleneck", plan.SHARE_RATE, plan.SHARE_TRIP, queue)
        tcp = ["--tcp", TARGET] if other else []
        output = run_program(SHARE, "--flows", flows, "--size", row.bytes, "--time", iterations, *tcp,
                             environment=machine.environment)
        words = [line.split() for line in output.splitlines()]
        # A frame of peal has 1,024 bytes of a message, and one of TCP 1,448.
        return shares([int(line[2]) for line in words if line[0] == "flow"], 1082 / 1024, iterations,
                      sum(int(line[1]) for line in words if line[0] == "tcp") * 1514 / 1448)


class SharedTcp:
    """Flows of TCP (iperf3) that share the same bottleneck."""
    name = "tcp-wire"

    def covers(self, row):
        return row.kind == "share" and not row.arguments[-1]

    def measure(self, machine, row, iterations):
        if not installed("iperf3"):
            raise Missing("iperf3 is not installed")
        queue, flows, _ = row.arguments
        machine.stage("bottleneck", plan.SHARE_RATE, plan.SHARE_TRIP, queue)
        port = machine.next_port()
        here, there = (["ip", "netns", "exec", f"share_{end}"] for end in "ab")
        output = machine.pair(there + ["iperf3", "-s", "-1", "-p", str(port)],
                              here + ["iperf3", "-J", "-P", flows, "-t", str(max(1, iterations // 1000)), "-O", "2", "-C", "cubic",
                                      "-c", TARGET, "-p", str(port)],
                              lambda pid: listens(port, pid))
        end = json.loads(output).get("end", {})
        bits = [stream["receiver"]["bits_per_second"] for stream in end.get("streams", [])]
        if not bits or not sum(bits):
            raise Missing("iperf3 reports no rate")
        return shares([one / 8000 for one in bits], 1514 / 1448, 1, 0)


# The address behind the bottleneck.
TARGET = "10.90.2.1"


def shares(flows, factor, milliseconds, other):
    """What the flows got, from the bytes of each flow's messages, the bytes of frames for each of these, and the bytes of another
    flow's frames."""
    total = sum(flows) * factor
    found = {"link": (total + other) * 8 / (plan.SHARE_RATE * 1000 * milliseconds)}
    if other:
        return found | {"part": total / (total + other)}
    squares = sum(one * one for one in flows)
    return found | {"jain": sum(flows) ** 2 / (len(flows) * squares) if squares else 0, "worst": min(flows) / max(flows)}


class Bottleneck:
    """The stage of what shares a bottleneck."""

    def __init__(self, subjects):
        self.subjects = subjects

    def up(self, machine):
        try:
            machine.stage("bottleneck-up")
        except Missing as why:
            return [], [f"{subject.name}, sharing: {why}" for subject in self.subjects]
        return self.subjects, []

    def down(self, machine):
        machine.stage("bottleneck-down")


class Wire:
    """The stage of the subjects that are two devices of one kind with a veth pair between them. Messages are packets, or go
    direct between two peal devices."""

    def __init__(self, kind, subjects, direct=False):
        self.kind = kind
        self.subjects = subjects
        self.direct = direct
        self.scope = None       # where the host allowed the direct path before, once it was changed

    def up(self, machine):
        try:
            ends = [tuple(words) for words in machine.stage("wire-up", self.kind, machine.mtu)]
            if self.direct:
                machine.stage("wire-direct")
                (scope,), = machine.stage("host-direct")
                machine.stage("host-direct", "host")
                self.scope = scope
        except Missing as why:
            return [], [f"{subject.name}: {why}" for subject in self.subjects]
        for subject in self.subjects:
            subject.ends = ends
        return self.subjects, []

    def down(self, machine):
        if self.scope:
            machine.stage("host-direct", self.scope)
            self.scope = None
        machine.stage("wire-down")


NAMES = ["peal", "rxe", "siw", "shm", "peal-containers", "peal-wire", "rxe-wire", "tcp-wire"]


def stages(wanted):
    """The stages that have one of these subjects. peal's wire is the one of TCP, too."""
    wire = [subject for subject in (Device("peal-wire", "peal"), Tcp()) if subject.name in wanted]
    containers, rxe = ([Device(name, kind)] if name in wanted else []
                       for name, kind in (("peal-containers", "peal"), ("rxe-wire", "rxe")))
    shared = [subject for subject in (SharedFlows(), SharedTcp()) if subject.name in wanted]
    found = [Host(wanted), Wire("peal", containers, True), Wire("peal", wire), Wire("rxe", rxe), Bottleneck(shared)]
    return [stage for stage in found if stage.subjects]
