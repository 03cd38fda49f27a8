# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Which measurements scripts/bench takes, in which order. It starts nothing and knows no device."""
import dataclasses

SIZES = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20]
QUICK_SIZES = [64, 4 << 10, 64 << 10, 1 << 20, 8 << 20]
ICOUNT_SIZES = [64, 4 << 10, 64 << 10, 1 << 20]
# How many queue pairs a device has beside the one that is measured, in the rows of idle queue pairs.
IDLE = 1000
# The program that runs flows through a bottleneck (test/bench/share.cpp), the bottleneck's Mb/s, and its round trip in
# milliseconds.
SHARE = "share"
SHARE_RATE, SHARE_TRIP = 30, 2


@dataclasses.dataclass(frozen=True)
class Row:
    """A measurement: a program of perftest, the bytes of a message, and what another program needs to measure the same.

    kind is "rate" for messages in one direction, "latency" for one message at a time, "cpu" for the CPU time of
    messages in one direction, "memory" for that of an idle queue pair, of which there are `iterations`, and "share" for flows
    that share a bottleneck for `iterations` milliseconds. idle is how many idle queue pairs of another program are on the
    device. iterations is otherwise the smallest number that is measured, and always the one that counts instructions. delay is
    that of each direction of the wire, which only subjects with a wire have. The arguments of "share" are the kind of queue, how
    many flows there are, and "tcp" if one more is of TCP."""
    program: str
    bytes: int
    kind: str
    iterations: int
    arguments: tuple = ()
    note: str = ""
    delay: str = ""
    idle: int = 0

    @property
    def label(self):
        if self.kind == "memory":
            return "memory of a queue pair"
        if self.kind == "share":
            return f"share {self.note}"
        return " ".join(filter(None, [self.program.removeprefix("ib_"), size_text(self.bytes), self.note]))

    @property
    def connection(self):
        """The type of queue pair that the arguments choose, RC without one."""
        return self.arguments[self.arguments.index("-c") + 1] if "-c" in self.arguments else "RC"


def size_text(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def rows(quick, icount):
    """On one CPU two programs that poll only take each other's time, so there the tests with two active ends wait for events,
    and write_lat, which cannot wait for events, is left out."""
    events = ("-e",) if icount else ()
    found = []
    for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
        for size in ICOUNT_SIZES if icount else QUICK_SIZES if quick else SIZES:
            found.append(bandwidth(program, size, events if program == "ib_send_bw" else ()))
    # rdma_rxe has no completion queue for 128 sends of 256 queue pairs.
    for pairs in (4, 16, 128):
        found.append(Row("ib_write_bw", 64, "rate", max(128, 4000 // pairs), ("-q", str(pairs)), f"{pairs} QPs"))
    found.append(Row("ib_write_bw", 64, "rate", 4000, (), f"{IDLE} idle", idle=IDLE))
    found.append(Row("idle-pairs", 0, "memory", 2000))
    found.append(Row("ib_write_bw", 64, "rate", 8000, ("-l", "16"), "lists 16"))
    if not icount:
        # Programs that poll are always busy, so these wait for events, which ib_write_bw cannot do. Instructions are counted in
        # every row.
        for size in (64, 64 << 10):
            found.append(Row("ib_send_bw", size, "cpu", 1000, ("-e",), "events"))
    # On a wire with a round trip of 0.2 ms most of the 128 messages that perftest keeps posted are in flight.
    found.append(Row("ib_write_bw", 64, "rate", 20000, (), "0.2 ms RTT", "100us"))
    # Between two queue pairs of one program (test/bench/one_process.cpp), so that nobody waits for the scheduler.
    for kind in ("write", "uc", "odp", "dmabuf", "send", "srq", "xrc", "ud"):
        found.append(Row("one-process", 64, "rate", 64000, (kind,), kind))
    # perftest waits for datagrams that are lost, so each has a receive.
    found.append(Row("ib_send_bw", 64, "rate", 4000, ("-c", "UD", "-r", "4000") + events, "UD"))
    found.append(Row("ib_atomic_bw", 8, "rate", 3000))
    if not icount:
        found.append(Row("ib_write_lat", 8, "latency", 1000))
    found.append(Row("ib_read_lat", 8, "latency", 1000))
    found.append(Row("ib_send_lat", 8, "latency", 1000, events))
    if not icount:
        found.append(Row("ib_send_lat", 8, "latency", 1000, ("-c", "UD"), "UD"))
    found.append(Row("ib_atomic_lat", 8, "latency", 1000))
    # RED marks packets in place of dropping them, because the flows ask for ECN.
    for queue in ("fifo", "red"):
        for flows, other, note in (("8", "", "8 flows"), ("1", "tcp", "with TCP")):
            found.append(Row(SHARE, 1 << 14, "share", 10000 if icount else 1000, (queue, flows, other), f"{note} {queue.upper()}"))
    return found


def bandwidth(program, size, arguments):
    # Few messages suffice if they are long, and perftest needs less memory for fewer in flight.
    iterations = 4000 if size <= 1024 else 3000 if size <= 4096 else 600 if size <= 65536 else 50 if size <= 1 << 20 else 20
    return Row(program, size, "rate", iterations, (("-t", "16") if size > 65536 else ()) + tuple(arguments))
