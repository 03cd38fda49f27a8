#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Tells SMC which network a netdev and an RDMA device belong to, as smc-tools does, for services/smc.sh.

    smc_netlink.py ib PNETID DEVICE PORT     the RDMA device belongs to the network (initial namespace only)
    smc_netlink.py eth PNETID NETDEV         the netdev of this network namespace belongs to the network
    smc_netlink.py ueid EID                  hosts with this name speak SMC version 2 with one another
    smc_netlink.py flush                     forget all of this
"""

import os
import socket
import struct
import sys

NETLINK_GENERIC = 16
NLM_F_REQUEST, NLM_F_ACK = 1, 4
NLMSG_ERROR = 2
GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 16, 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2

# include/uapi/linux/smc.h
SMC_PNETID_NAME, SMC_PNETID_ETHNAME, SMC_PNETID_IBNAME, SMC_PNETID_IBPORT = 1, 2, 3, 4
SMC_PNETID_ADD, SMC_PNETID_FLUSH = 2, 4
SMC_NETLINK_ADD_UEID, SMC_NETLINK_FLUSH_UEID = 10, 12
SMC_NLA_EID_TABLE_ENTRY = 1
SMC_MAX_EID_LEN = 32


def attribute(number, data):
    return struct.pack("=HH", 4 + len(data), number) + data + bytes(-len(data) % 4)


def text(number, value):
    return attribute(number, value.encode() + b"\0")


class Generic:
    """A generic netlink socket."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        self.socket.bind((0, 0))

    def send(self, family, command, attributes, flags):
        body = struct.pack("=BBH", command, 1, 0) + attributes
        head = struct.pack("=IHHII", 16 + len(body), family, NLM_F_REQUEST | flags, 1, 0)
        self.socket.send(head + body)
        answer = self.socket.recv(65536)
        if struct.unpack_from("=H", answer, 4)[0] == NLMSG_ERROR:
            error = -struct.unpack_from("=i", answer, 16)[0]
            if error:
                raise OSError(error, os.strerror(error))
        return answer[20:]

    def family(self, name):
        answer = self.send(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, text(CTRL_ATTR_FAMILY_NAME, name), 0)
        while answer:
            length, number = struct.unpack_from("=HH", answer)
            if number == CTRL_ATTR_FAMILY_ID:
                return struct.unpack_from("=H", answer, 4)[0]
            answer = answer[(length + 3) & ~3:]
        raise OSError("no id of the family " + name)

    def call(self, name, command, attributes):
        self.send(self.family(name), command, attributes, NLM_F_ACK)


def main(arguments):
    generic = Generic()
    if arguments[0] == "ib":
        attributes = (text(SMC_PNETID_NAME, arguments[1]) + text(SMC_PNETID_IBNAME, arguments[2]) +
                      attribute(SMC_PNETID_IBPORT, bytes([int(arguments[3])])))
        generic.call("SMC_PNETID", SMC_PNETID_ADD, attributes)
    elif arguments[0] == "eth":
        attributes = text(SMC_PNETID_NAME, arguments[1]) + text(SMC_PNETID_ETHNAME, arguments[2])
        generic.call("SMC_PNETID", SMC_PNETID_ADD, attributes)
    elif arguments[0] == "ueid":
        entry = text(SMC_NLA_EID_TABLE_ENTRY, arguments[1].ljust(SMC_MAX_EID_LEN))
        generic.call("SMC_GEN_NETLINK", SMC_NETLINK_ADD_UEID, entry)
    elif arguments[0] == "flush":
        generic.call("SMC_PNETID", SMC_PNETID_FLUSH, b"")
        generic.call("SMC_GEN_NETLINK", SMC_NETLINK_FLUSH_UEID, b"")
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
