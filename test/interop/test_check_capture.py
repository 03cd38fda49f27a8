#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# Tests check_capture.py. Packets that rdma_rxe has sent are good. Every changed bit of them is noticed, except
# those that routers may change.
"""Unit tests of the capture checker."""

import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import check_capture  # pylint: disable=wrong-import-position

# Captured from rdma_rxe of Linux 6.1.
GOLDEN = {
    "rc-send-only, ipv4":
        "025c6b030c9ebe870eab89e1080045000030495840004011dcc60a4e00010a4e0002c12112b7001c00000430ffff00000011"
        "807216ace9000000721b5b32",
    "rc-acknowledge, ipv4":
        "be870eab89e1025c6b030c9e080045000030f9d3400040112c4b0a4e00020a4e0001c12112b7001c00001100ffff00000011"
        "007216aa1f000001b5bc367a",
    "rc-write-only-imm, ipv4":
        "025c6b030c9ebe870eab89e10800450000444a1340004011dbf70a4e00010a4e0002c1b912b7003000000b30ffff00000015"
        "804544cf00007ff812fca07b0000065300000001ec07e770c1000000b7279c7c",
    "ud-send-only, ipv4":
        "025c6b030c9ebe870eab89e10800450000384c5f40004011d9b70a4e00010a4e0002c4ed12b7002400006430ffff0000001d"
        "007a3f98111111110000001d1f000000e668deb5",
    "rc-read-response-only, ipv6":
        "be870eab89e1025c6b030c9e86dd6000000000201140fd780000000000000000000000000002fd7800000000000000000000"
        "00000001c5f112b7002000001030ffff0000002700358d5b1f000001c6000000238ff8c4",
    "rc-fetch-add, ipv4":
        "025c6b030c9ebe870eab89e10800450000484a8340004011db830a4e00010a4e0002c21112b7003400001400ffff00000017"
        "800877f400007ff812fca040000008f787927b212c6fbb350000000000000000e455e0ca",
    "uc-send-only, ipv6":
        "025c6b030c9ebe870eab89e186dd60000000001c1140fd780000000000000000000000000001fd7800000000000000000000"
        "00000002c6e412b7001c00002430ffff0000002a00c5d6c66f000000cf99dd93",
}


def in_vlan(frame):
    """The frame with a VLAN tag, which the ICRC does not cover."""
    return frame[:12] + b"\x81\x00\x00\x07" + frame[12:]


def write_capture(frames):
    file = tempfile.NamedTemporaryFile(suffix=".pcap")
    file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
    for frame in frames:
        file.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
    file.flush()
    return file


def may_change(frame):
    """Offsets of bits that may change in a good packet."""
    free = set(range(12 * 8))  # addresses of the Ethernet
    if frame[12:14] == b"\x86\xdd":
        free |= set(range(14 * 8 + 4, 18 * 8)) | set(range(21 * 8, 22 * 8))  # class, label, hop limit
        bth = 14 + 40 + 8
    else:
        bth = 14 + 20 + 8
    return free | set(range((bth + 4) * 8, (bth + 5) * 8))


class CheckCapture(unittest.TestCase):
    def test_golden_packets_are_good(self):
        for name, text in GOLDEN.items():
            frame = bytes.fromhex(text)
            with self.subTest(name):
                self.assertTrue(check_capture.is_roce(frame))
                self.assertIn(name.split(",", maxsplit=1)[0], check_capture.Packet(frame).labels)
                self.assertIn("vlan", check_capture.Packet(in_vlan(frame)).labels)

    def test_every_changed_bit_is_noticed(self):
        for name, text in GOLDEN.items():
            frame = bytes.fromhex(text)
            for bit in set(range(14 * 8, len(frame) * 8)) - may_change(frame):
                broken = bytearray(frame)
                broken[bit // 8] ^= 0x80 >> bit % 8
                with self.subTest(name, bit=bit), self.assertRaises((check_capture.Wrong, struct.error, IndexError)):
                    check_capture.Packet(bytes(broken))

    def test_program_counts_and_refuses(self):
        frame = bytes.fromhex(GOLDEN["rc-send-only, ipv4"])
        broken = frame[:-1] + bytes([frame[-1] ^ 1])
        for frames, required, status, words in (
                ([frame], "rc-send-only,ipv4", 0, "1 packets are good, 0 problems"),
                ([frame], "rc-send-first", 1, "no packet is rc-send-first"),
                ([frame, broken], "", 1, "frame 2: ICRC"),
                ([], "", 1, "no packet is good")):
            with write_capture(frames) as capture, self.subTest(words):
                result = subprocess.run(
                    [sys.executable, check_capture.__file__, "--require", required, capture.name],
                    capture_output=True, text=True, check=False)
                self.assertEqual(result.returncode, status, result.stdout)
                self.assertIn(words, result.stdout)


if __name__ == "__main__":
    unittest.main()
