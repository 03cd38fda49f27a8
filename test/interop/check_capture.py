#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Reads a capture of RoCEv2 packets and reports what is wrong with them, independently of peal's code. It checks
# lengths, padding, headers and the invariant CRC (with zlib). With --tshark it also compares with Wireshark's
# InfiniBand dissector.
#
#   check_capture.py FILE.pcap [--tshark] [--require NAME,...] [--quiet]
#
# The capture must have at least one packet of each NAME. A NAME is an opcode's name, as printed, or one of ack,
# rnr-nak, nak-sequence, nak-invalid-request, nak-remote-access, nak-remote-operation, mad, ipv4, ipv6, vlan.
# Exit status: 0 nothing is wrong, 1 a packet is wrong or missing. It captures nothing.
"""Checks of RoCEv2 captures."""

import argparse
import collections
import struct
import subprocess
import sys
import zlib

ROCE_PORT = 4791

# The extended headers of each opcode, in bytes (IBTA 9.2.1, table 38).
RETH, AETH, ATOMIC, ATOMIC_ACK, IMM, IETH, DETH = "reth", "aeth", "atomic", "atomic-ack", "imm", "ieth", "deth"
FETH, XRCETH = "feth", "xrceth"
RESERVED = "reserved"  # of a congestion notification (A17.9.3)
BYTES = {RETH: 16, AETH: 4, ATOMIC: 28, ATOMIC_ACK: 8, IMM: 4, IETH: 4, DETH: 8, FETH: 4, XRCETH: 4, RESERVED: 16}
# name, extended headers, payload: "none", "mtu" (a full packet) or "any".
REQUESTS = [
    ("send-first", (), "mtu"), ("send-middle", (), "mtu"), ("send-last", (), "any"),
    ("send-last-imm", (IMM,), "any"), ("send-only", (), "any"), ("send-only-imm", (IMM,), "any"),
    ("write-first", (RETH,), "mtu"), ("write-middle", (), "mtu"), ("write-last", (), "any"),
    ("write-last-imm", (IMM,), "any"), ("write-only", (RETH,), "any"), ("write-only-imm", (RETH, IMM), "any"),
]
RELIABLE = REQUESTS + [
    ("read-request", (RETH,), "none"), ("read-response-first", (AETH,), "mtu"), ("read-response-middle", (), "mtu"),
    ("read-response-last", (AETH,), "any"), ("read-response-only", (AETH,), "any"), ("acknowledge", (AETH,), "none"),
    ("atomic-acknowledge", (AETH, ATOMIC_ACK), "none"), ("compare-swap", (ATOMIC,), "none"),
    ("fetch-add", (ATOMIC,), "none"), None, ("send-last-invalidate", (IETH,), "any"),
    ("send-only-invalidate", (IETH,), "any"), None, None, None, None, ("flush", (FETH, RETH), "none"),
    ("atomic-write", (RETH,), "any"),
]


def opcode_table():
    table = {}
    for base, prefix, entries in ((0x00, "rc", RELIABLE), (0x20, "uc", REQUESTS)):
        for number, entry in enumerate(entries):
            if entry:
                table[base + number] = (f"{prefix}-{entry[0]}", entry[1], entry[2])
    # IBTA A14.3: as RC, and each request names a shared receive queue.
    for number, entry in enumerate(RELIABLE):
        if entry:
            answers = "response" in entry[0] or "acknowledge" in entry[0]
            table[0xa0 + number] = (f"xrc-{entry[0]}", entry[1] if answers else (XRCETH, *entry[1]), entry[2])
    table[0x64] = ("ud-send-only", (DETH,), "any")
    table[0x65] = ("ud-send-only-imm", (DETH, IMM), "any")
    # Of peal's, among the opcodes that are left to manufacturers.
    table[0xc0] = ("challenge", (), "any")
    table[0x81] = ("cnp", (RESERVED,), "none")
    return table


OPCODES = opcode_table()
NAKS = {0: "nak-sequence", 1: "nak-invalid-request", 2: "nak-remote-access", 3: "nak-remote-operation"}


class Wrong(Exception):
    """An error in a packet."""


def need(condition, text):
    if not condition:
        raise Wrong(text)


class Packet:
    """One RoCEv2 packet of an Ethernet frame. Raises Wrong. Other decoders compare its fields."""

    def __init__(self, frame):
        self.labels = []
        self.find_udp(frame)
        self.check_icrc()
        self.decode()

    def find_udp(self, frame):
        kind, at = struct.unpack_from("!H", frame, 12)[0], 14
        while kind in (0x8100, 0x88a8):
            kind, at = struct.unpack_from("!H", frame, at + 2)[0], at + 4
            self.labels.append("vlan")
        if kind == 0x0800:
            self.find_udp_v4(frame[at:])
        else:
            self.find_udp_v6(frame[at:])
        length, checksum = struct.unpack_from("!HH", self.udp, 4)
        need(length == len(self.udp), f"UDP says {length} bytes, IP leaves {len(self.udp)}")
        need(checksum == 0 or self.sum_is_right(checksum), "the UDP checksum is neither 0 nor right")

    def find_udp_v4(self, data):
        self.labels.append("ipv4")
        header = (data[0] & 15) * 4
        total = struct.unpack_from("!H", data, 2)[0]
        need(total <= len(data), f"IPv4 says {total} bytes, the frame has {len(data)}")
        need(fold(data[:header]) == 0xffff, "wrong IPv4 header checksum")
        need(struct.unpack_from("!H", data, 6)[0] & 0x3fff == 0, "an IP fragment")
        masked = bytearray(data[:header])
        masked[1] = masked[8] = 0xff
        masked[10:12] = b"\xff\xff"
        self.ip, self.udp = bytes(masked), data[header:total]
        self.pseudo = data[12:20] + struct.pack("!HH", 17, len(self.udp))

    def find_udp_v6(self, data):
        self.labels.append("ipv6")
        total = 40 + struct.unpack_from("!H", data, 4)[0]
        need(total <= len(data), f"IPv6 says {total} bytes, the frame has {len(data)}")
        masked = bytearray(data[:40])
        masked[0] |= 0x0f
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xff
        self.ip, self.udp = bytes(masked), data[40:total]
        self.pseudo = data[8:40] + struct.pack("!II", len(self.udp), 17)

    def sum_is_right(self, checksum):
        # With offload the stack has put only the sum of the pseudo header there so far.
        return fold(self.pseudo + self.udp) == 0xffff or checksum == fold(self.pseudo)

    # IBTA A17.3.3: everything that routers may change counts as ones.
    def check_icrc(self):
        need(len(self.udp) >= 8 + 12 + 4, f"{len(self.udp)} bytes of UDP hold no packet")
        masked = bytearray(self.udp[:-4])
        masked[6:8] = b"\xff\xff"
        masked[8 + 4] = 0xff
        wanted = zlib.crc32(b"\xff" * 8 + self.ip + bytes(masked))
        got = struct.unpack("<I", self.udp[-4:])[0]
        need(got == wanted, f"ICRC {got:08x}, expected {wanted:08x}")

    def decode(self):
        bth = self.udp[8:20]
        self.opcode, flags = bth[0], bth[1]
        need(self.opcode in OPCODES, f"unknown opcode {self.opcode:#x}")
        self.name, extended, payload = OPCODES[self.opcode]
        self.labels.append(self.name)
        self.qpn = int.from_bytes(bth[5:8], "big")
        self.psn = int.from_bytes(bth[9:12], "big")
        need(flags & 0x0f == 0, "transport header version is not 0")
        need(bth[8] & 0x7f == 0, "reserved bits beside AckReq are set")
        at = 20
        for kind in extended:
            need(at + BYTES[kind] <= len(self.udp) - 4, f"too short for {kind}")
            self.take(kind, self.udp[at:at + BYTES[kind]])
            at += BYTES[kind]
        self.check_payload(len(self.udp) - 4 - at, flags >> 4 & 3, payload)

    def take(self, kind, data):
        if kind == AETH:
            self.take_aeth(data)
        elif kind == RETH:
            self.dma_length = struct.unpack_from("!I", data, 12)[0]
        elif kind == DETH:
            self.source_qp = int.from_bytes(data[5:8], "big")
            if self.qpn == 1:
                self.labels.append("mad")

    def take_aeth(self, data):
        self.syndrome = data[0]
        kind, value = data[0] >> 5, data[0] & 31
        need(kind in (0, 1, 3), f"reserved kind of syndrome {data[0]:#x}")
        if kind == 1:
            self.labels.append("rnr-nak")
        elif kind == 3:
            need(value in NAKS, f"reserved NAK code {value}")
            self.labels.append(NAKS[value])
        else:
            self.labels.append("ack")

    def check_payload(self, padded, pad, kind):
        size = padded - pad
        need(padded % 4 == 0, f"{padded} bytes of payload and pad are no multiple of 4")
        need(size >= 0, f"pad count {pad} with {padded} bytes")
        need(kind != "none" or padded == 0, f"{padded} bytes of payload where none belong")
        need(not self.name.endswith("atomic-write") or size == self.dma_length == 8, f"an atomic write of {size} bytes")
        need(kind != "mtu" or (pad == 0 and size in (256, 512, 1024, 2048, 4096)),
             f"{size} bytes in a packet that has to be full")
        if self.name.endswith(("write-only", "write-only-imm")):
            need(size == self.dma_length, f"RETH says {self.dma_length} bytes, the packet has {size}")
        self.size = size


def fold(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return total


def frames(path):
    """Yields the number and bytes of each frame of an Ethernet capture file."""
    with open(path, "rb") as file:
        head = file.read(24)
        order = "<" if head[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
        if len(head) < 24 or struct.unpack(order + "I", head[20:24])[0] & 0xffff != 1:
            raise SystemExit(f"{path} is no Ethernet capture")
        number = 0
        while len(record := file.read(16)) == 16:
            number += 1
            kept, length = struct.unpack(order + "II", record[8:])
            data = file.read(kept)
            yield number, data if kept == length else None


def is_roce(frame):
    """UDP to port 4791, over IPv4 or IPv6, in any number of VLANs."""
    kind, at = frame[12:14], 14
    while kind in (b"\x81\x00", b"\x88\xa8"):
        kind, at = frame[at + 2:at + 4], at + 4
    if kind == b"\x08\x00":
        return frame[at + 9] == 17 and port(frame, at + (frame[at] & 15) * 4)
    return kind == b"\x86\xdd" and frame[at + 6] == 17 and port(frame, at + 40)


def port(frame, at):
    return int.from_bytes(frame[at + 2:at + 4], "big") == ROCE_PORT


def read_packets(path):
    """Returns the good packets by frame number, and the errors of the others."""
    good, problems = {}, []
    for number, frame in frames(path):
        if frame is None:
            problems.append(f"frame {number}: not captured whole")
        elif is_roce(frame):
            try:
                good[number] = Packet(frame)
            except Wrong as wrong:
                problems.append(f"frame {number}: {wrong}")
    return good, problems


# The dissector's names of the same fields.
FIELDS = {
    "infiniband.bth.opcode": "opcode", "infiniband.bth.destqp": "qpn", "infiniband.bth.psn": "psn",
    "infiniband.reth.dmalen": "dma_length", "infiniband.aeth.syndrome": "syndrome",
    "infiniband.deth.srcqp": "source_qp",
}


def tshark_rows(path):
    command = ["tshark", "-n", "-r", path, "-Y", f"udp.dstport == {ROCE_PORT}", "-T", "fields", "-E", "occurrence=f",
               "-e", "frame.number", "-e", "_ws.malformed", "-e", "_ws.expert.severity", "-e", "_ws.expert.message"]
    for field in FIELDS:
        command += ["-e", field]
    # IBTA A17.4.5.2: the ICRC replaces the UDP checksum, also over IPv6.
    command += ["-o", "udp.ignore_ipv6_zero_checksum:TRUE"]
    # The random payload of a test is no storage protocol, even if it looks like one.
    command += ["--disable-heuristic", "eth_over_ib"]
    for protocol in payload_protocols():
        command += ["--disable-protocol", protocol]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"tshark failed: {result.stderr}")
    return [line.split("\t") for line in result.stdout.splitlines()]


def payload_protocols():
    """Dissectors that look at the payload of any queue pair and may recognise their protocol."""
    listing = subprocess.run(["tshark", "-G", "heuristic-decodes"], capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in listing.splitlines()]
    return [row[1] for row in rows if row[0] == "infiniband.payload" and row[1] != "ethertype"]


def tshark_problems(path, good):
    """Errors that the dissector reports, and fields that it reads differently."""
    problems, seen = [], set()
    for row in tshark_rows(path):
        row += [""] * (4 + len(FIELDS) - len(row))
        number = int(row[0])
        seen.add(number)
        if row[1] or (row[2] and int(row[2], 0) >= 0x600000):
            problems.append(f"frame {number}: tshark says {row[1]} {row[3]}")
        if number not in good:
            continue
        for (field, name), text in zip(FIELDS.items(), row[4:]):
            ours = getattr(good[number], name, None)
            if ours is not None and (not text or int(text, 0) != ours):
                problems.append(f"frame {number}: {field} is {text or 'missing'}, expected {ours:#x}")
    problems += [f"frame {number}: tshark did not see it" for number in good if number not in seen]
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--tshark", action="store_true")
    parser.add_argument("--require", default="")
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    good, problems = read_packets(arguments.file)
    if arguments.tshark:
        problems += tshark_problems(arguments.file, good)
    counts = collections.Counter(label for packet in good.values() for label in packet.labels)
    problems += [f"no packet is {name}" for name in arguments.require.split(",") if name and not counts[name]]
    if not good:
        problems.append("no packet is good")
    if not arguments.quiet:
        for name, count in sorted(counts.items()):
            print(f"{count:8} {name}")
    for problem in problems[:40]:
        print(problem)
    print(f"{len(good)} packets are good, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
