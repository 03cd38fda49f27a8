#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Sends performance management MADs to a port and prints the answers, one line for each query.

    pma_query.py UMAD GID INDEX QUERY...

UMAD is a device such as /dev/infiniband/umad0, GID the port's, INDEX that of the sender's own GID. A QUERY is
METHOD:ATTRIBUTE:PORT in hexadecimal numbers. It prints the status, and for PortCountersExtended the four counters:
bytes sent / 4, bytes received / 4, packets sent, packets received.
It addresses the port by its GID, because RoCE has no LIDs. For that reason perfquery cannot ask a RoCE port.
tools/port_counters runs it.
"""
import fcntl
import ipaddress
import os
import select
import struct
import sys

# include/uapi/rdma/ib_user_mad.h
REGISTER_AGENT = 3 << 30 | 28 << 16 | 0x1B << 8 | 1
ENABLE_PKEY = 0x1B << 8 | 3
HEADER = struct.Struct("=5I4s4sHBBBBBB16sIH6x")
TIMEOUT_MS = 10000

PERFORMANCE, PORT_COUNTERS_EXTENDED, MAD_BYTES = 4, 0x1D, 256
GSI_QKEY = 0x80010000


def register(umad):
    request = bytearray(struct.pack("=I16sBBB3sB", 0, b"", 1, PERFORMANCE, 1, b"", 0).ljust(28, b"\0"))
    fcntl.ioctl(umad, ENABLE_PKEY)
    fcntl.ioctl(umad, REGISTER_AGENT, request)
    return struct.unpack_from("=I", request)[0]


def ask(umad, agent, gid, index, transaction, query):
    method, attribute, port = query
    mad = struct.pack(">BBBBHHQHHI", 1, PERFORMANCE, 1, method, 0, 0, transaction, attribute, 0, 0).ljust(64, b"\0")
    mad = (mad + struct.pack("BB", 0, port)).ljust(MAD_BYTES, b"\0")
    header = HEADER.pack(agent, 0, TIMEOUT_MS, 0, MAD_BYTES, struct.pack(">I", 1), struct.pack(">I", GSI_QKEY), 0, 0, 0,
                         1, index, 64, 0, gid, 0, 0)
    os.write(umad, header + mad)
    if not select.select([umad], [], [], 2 * TIMEOUT_MS / 1000)[0]:
        sys.exit("no answer")
    answer = os.read(umad, HEADER.size + MAD_BYTES)
    if HEADER.unpack_from(answer)[1]:
        sys.exit(f"the kernel gave up: {os.strerror(HEADER.unpack_from(answer)[1])}")
    return answer[HEADER.size:]


def main():
    umad = os.open(sys.argv[1], os.O_RDWR)
    gid = ipaddress.IPv6Address(sys.argv[2]).packed
    agent = register(umad)
    for number, query in enumerate(sys.argv[4:], 1):
        query = [int(part, 16) for part in query.split(":")]
        mad = ask(umad, agent, gid, int(sys.argv[3]), number, query)
        status = struct.unpack_from(">H", mad, 4)[0]
        words = [f"{status:#x}"]
        if not status and query[1] == PORT_COUNTERS_EXTENDED:
            words += [str(counter) for counter in struct.unpack_from(">4Q", mad, 64 + 8)]
        print(*words)


main()
