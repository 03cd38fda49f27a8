#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A program that has only CAP_NET_RAW, and forges or relays the challenges and responses of peal devices.

    locality_forge.py answer NETDEV ADDRESS WAY            answers each challenge sent with the number that it carries
    locality_forge.py relay NETDEV ADDRESS WAY MINE PEER   passes what is sent to the socket PEER, and puts what comes
                                                        in at the socket MINE into this namespace

It sees the packets that NETDEV sends from ADDRESS. WAY is how it puts packets into the namespace. "lo" sends them to
an address of their own. "broadcast" uses that the stack gives this host a copy of what NETDEV sends. It prints a
line for each packet that it puts in.
direct/proof_cannot_be_forged runs it. It knows the form of the packets, and not what the devices do with them.
"""
import ctypes
import os
import select
import socket
import struct
import sys
import zlib

PORT, CHALLENGE, PACKET_OUTGOING, SO_BINDTODEVICE, SO_ATTACH_FILTER, ETH_P_ALL = 4791, 0xC0, 4, 25, 26, 3


def challenge_of(frame):
    """The IP packet in a frame if it carries a challenge or response, else None."""
    packet = frame[14:]
    if frame[12:14] != b"\x08\x00" or packet[9] != 17 or packet[20 + 2:20 + 4] != struct.pack(">H", PORT):
        return None
    return packet[:struct.unpack(">H", packet[2:4])[0]] if packet[28] == CHALLENGE else None


def with_icrc(packet):
    masked = packet[:1] + b"\xff" + packet[2:8] + b"\xff" + packet[9:10] + b"\xff\xff" + packet[12:26] + b"\xff\xff"
    masked += packet[28:32] + b"\xff" + packet[33:-4]
    return packet[:-4] + struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked) & 0xFFFFFFFF)


def response_to(packet):
    """A response that knows no more than the challenge, or None when this is no challenge."""
    ip, udp, bth, payload = packet[:20], packet[20:28], packet[28:40], packet[40:72]
    nonce, (_, qpn, is_response, _) = payload[:16], struct.unpack("=IIII", payload[16:])
    if is_response:
        return None
    ip = ip[:12] + ip[16:20] + ip[12:16]
    bth = bth[:5] + struct.pack(">I", qpn)[1:] + bth[8:]
    return with_icrc(ip + udp + bth + nonce + struct.pack("=IIII", 0, 0, 1, 0) + b"\0\0\0\0")


def take_only_challenges(sniffer):
    """Makes the kernel drop all other frames. Otherwise thousands of packets with data fill the receive buffer of the
    sniffer, and a challenge that does not fit is lost."""
    load_half, load_byte, jump_if_equal, accept = 0x28, 0x30, 0x15, 0x06
    packet_type = 0xFFFFF004  # linux/filter.h: SKF_AD_OFF + SKF_AD_PKTTYPE
    wanted = [(load_byte, packet_type, PACKET_OUTGOING), (load_half, 12, 0x0800), (load_byte, 14 + 9, 17),
              (load_half, 14 + 20 + 2, PORT), (load_byte, 14 + 28, CHALLENGE)]
    code = []
    for at, (load, offset, value) in enumerate(wanted):
        code += [(load, 0, 0, offset), (jump_if_equal, 0, 2 * (len(wanted) - at) - 1, value)]
    code += [(accept, 0, 0, 65536), (accept, 0, 0, 0)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in code))
    sniffer.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(code), ctypes.addressof(program)))


class Namespace:
    def __init__(self, netdev, source, way):
        self.source = socket.inet_aton(source)
        self.sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        take_only_challenges(self.sniffer)
        self.sniffer.bind((netdev, ETH_P_ALL))
        self.raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.way = way
        if way == "broadcast":
            self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            self.raw.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, netdev.encode())

    def leaving(self):
        """The next challenge or response that is sent, or None when the frame is another one, perhaps one put in here."""
        frame, address = self.sniffer.recvfrom(65536)
        packet = challenge_of(frame) if address[2] == PACKET_OUTGOING else None
        return packet if packet and packet[12:16] == self.source else None

    def put(self, packet):
        to = "255.255.255.255" if self.way == "broadcast" else socket.inet_ntoa(packet[16:20])
        self.raw.sendto(packet, (to, 0))
        print("put in", flush=True)


def answer(namespace):
    while True:
        packet = namespace.leaving()
        forged = packet and response_to(packet)
        if forged:
            namespace.put(forged)


def relay(namespace, mine, peer):
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.bind(mine)
    while True:
        ready = select.select([namespace.sniffer, channel], [], [])[0]
        if namespace.sniffer in ready:
            packet = namespace.leaving()
            if packet:
                send(channel, packet, peer)
        if channel in ready:
            namespace.put(channel.recv(65536))


def send(channel, packet, peer):
    if os.path.exists(peer):
        channel.sendto(packet, peer)


def main():
    namespace = Namespace(*sys.argv[2:5])
    print("ready", flush=True)
    if sys.argv[1] == "answer":
        answer(namespace)
    else:
        relay(namespace, *sys.argv[5:7])


main()
