# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Sends frames of every shape to a live device, for wire/odd_frames_are_dropped, and checks which are dropped and why.

Frames come from the peer netdev, by a packet socket, or from UDP sockets of this host. The script decides itself
which frames are right. It computes the ICRC with zlib, and for one packet also with scapy. The device's counters say
what happened to a packet. It knows only one number of an existing queue pair.
"""
import select
import socket
import struct
import subprocess
import sys
import time
import zlib

DEVICE, NETDEV, PEER, QPN = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
HOST4, FAR4, OTHER4, VLAN4 = "10.77.0.1", "10.77.0.2", "10.78.0.1", "10.77.5.1"
HOST6, FAR6, VLAN6 = "fd77::1", "fd77::2", "fd77:5::1"
PORT = 4791
SEND_ONLY, WRITE_ONLY, SEND_MIDDLE, ACK, UD_SEND_ONLY = 0x04, 0x0A, 0x01, 0x11, 0x64
COUNTERS = f"/sys/class/infiniband/{DEVICE}/ports/1/hw_counters/"
UDP_SEGMENT, SOL_PACKET, PACKET_VNET_HDR = 103, 263, 15
WATCHED = ("packets_received", "drops", "drop_short", "drop_version", "drop_opcode", "drop_options", "drop_pad", "drop_icrc",
           "drop_qpn")
failures = 0


def mac(netdev):
    with open(f"/sys/class/net/{netdev}/address", encoding="ascii") as file:
        return bytes.fromhex(file.read().strip().replace(":", ""))


def link_local(netdev):
    text = subprocess.run(["ip", "-6", "-o", "addr", "show", "dev", netdev, "scope", "link"], check=True,
                          capture_output=True, text=True).stdout
    return text.split()[3].split("/")[0]


# Packets

def bth(opcode=SEND_ONLY, qpn=None, psn=1, flags=0x40, pkey=0xFFFF, reserved=0, ack=0):
    qpn = QPN if qpn is None else qpn
    return struct.pack(">BBHII", opcode, flags, pkey, reserved << 24 | qpn, ack << 31 | psn)


def roce(body, src=FAR4, dst=HOST4, sport=0xC123, ip_id=0, frag=0x4000, tos=0, ttl=64, payload_extra=0, options=b"",
         checksum=0, flow=0, hops=64, wrong=0):
    """An IP packet with UDP, @body from the BTH on, and its ICRC. @wrong is xored into the ICRC."""
    ipv6 = ":" in dst
    udp = struct.pack(">HHHH", sport, PORT, 8 + len(body) + 4, checksum)
    if ipv6:
        def header(tclass, label, limit):
            return (struct.pack(">IHBB", 6 << 28 | tclass << 20 | label, len(udp) + len(body) + 4 + payload_extra, 17, limit)
                    + socket.inet_pton(socket.AF_INET6, src) + socket.inet_pton(socket.AF_INET6, dst))
        ip, masked = header(tos, flow, hops), header(0xFF, 0xFFFFF, 0xFF)
    else:
        def header(service, limit, check):
            return struct.pack(">BBHHHBBH4s4s", 0x45 + len(options) // 4, service,
                               20 + len(options) + len(udp) + len(body) + 4 + payload_extra, ip_id, frag, limit, 17,
                               check, socket.inet_aton(src), socket.inet_aton(dst)) + options
        ip, masked = header(tos, ttl, 0), header(0xFF, 0xFF, 0xFFFF)
        ip = ip[:10] + struct.pack(">H", ip_sum(ip)) + ip[12:]
    covered = b"\xff" * 8 + masked + udp[:6] + b"\xff\xff" + body[:4] + b"\xff" + body[5:]
    icrc = (zlib.crc32(covered) & 0xFFFFFFFF) ^ wrong
    return ip + udp + body + struct.pack("<I", icrc)


def ip_sum(header):
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(packet, vlan=None):
    kind = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
    tag = struct.pack(">HH", 0x8100, vlan) if vlan else b""
    return mac(NETDEV) + mac(PEER) + tag + kind + packet


def fragments(packet, size):
    """The IPv4 packet in fragments with @size bytes of payload."""
    head, data = packet[:20], packet[20:]
    for at in range(0, len(data), size):
        piece = data[at:at + size]
        more = 0x2000 if at + size < len(data) else 0
        ip = head[:2] + struct.pack(">HHH", 20 + len(piece), 0x77, more | at // 8) + head[8:10] + b"\0\0" + head[12:20]
        yield ip[:10] + struct.pack(">H", ip_sum(ip)) + ip[12:] + piece


# Sending, and reading the device's counters

raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind((PEER, 0))
offload = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
offload.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
offload.bind((PEER, 0))


def send(*packets, vlan=None):
    for packet in packets:
        raw.send(frame(packet, vlan))


def send_paged(packet, linear=64):
    """At most @linear bytes are in the linear part of the skb, if it is longer than a page."""
    data = frame(packet)
    offload.send(struct.pack("<BBHHHH", 0, 0, linear, 0, 0, 0) + data)


def counters():
    values = {}
    for name in WATCHED:
        with open(COUNTERS + name, encoding="ascii") as file:
            values[name] = int(file.read())
    return values


def changes(before):
    after = counters()
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def check(condition, name, text):
    global failures
    if not condition:
        print(f"FAILED {name}: {text}", flush=True)
        failures += 1


def case(name, action, received=0, **drops):
    """The packet is received, so its ICRC is right. Drops for that come before. Its later fate is not checked."""
    before = counters()
    action()
    expected = {"packets_received": received, **drops}
    # A received packet may be dropped later, because no program waits for it.
    watched = ("packets_received", "drop_short", "drop_options", "drop_icrc") if received else WATCHED[2:]
    for _ in range(100):
        seen = changes(before)
        if all(seen.get(key, 0) == expected.get(key, 0) for key in watched):
            break
        time.sleep(0.02)
    else:
        check(False, name, f"expected {expected}, saw {seen}")
    if not received and not drops:
        time.sleep(0.1)
        seen = changes(before)
        check(not seen, name, f"expected nothing, saw {seen}")


# Cases

def wire_cases(src, dst, label):
    def right(body=bth() + b"12345678", **more):
        return roce(body, src=src, dst=dst, **more)

    case(f"{label}: right", lambda: send(right()), received=1)
    case(f"{label}: wrong ICRC", lambda: send(right(wrong=1), right(wrong=0x80000000)), drop_icrc=2)
    case(f"{label}: fields that routers change", lambda: send(
        right(tos=0xFF), right(ttl=7, hops=7), right(flow=0x12345),
        right(checksum=0xBAD), right(bth(reserved=0xFF) + b"1234")), received=5)
    every_bit_wrong(right())
    for size in range(16):
        case(f"{label}: {size} bytes", lambda: send(right((bth() + b"\0" * 8)[:size - 4]) if size >= 4 else
                                                    cut(right(), size)), drop_short=1)
    case(f"{label}: header longer than the packet", lambda: send(right(bth(WRITE_ONLY) + b"\0" * 12)), drop_short=1)
    case(f"{label}: version", lambda: send(right(bth(flags=0x41) + b"1234")), drop_version=1)
    unknown = [0x15, 0x18, 0x1F, 0x2C, 0x3F, 0x40, 0x44, 0x60, 0x66, 0x80, 0x82, 0xC4, 0xFF]
    case(f"{label}: unknown opcodes", lambda: send(*(right(bth(code) + b"\0" * 64) for code in unknown)),
         drop_opcode=len(unknown))
    case(f"{label}: pad", lambda: send(right(bth(SEND_MIDDLE, flags=0x30)), right(bth(ACK, flags=0x10) + b"\0" * 8)),
         drop_pad=2)
    case(f"{label}: UDP ends before IP", lambda: send(right(payload_extra=5) + b"extra"), received=1)
    case(f"{label}: UDP ends after IP", lambda: send(longer_udp(right())), drop_short=1)
    case(f"{label}: bytes behind IP", lambda: send(right() + b"\0" * 30), received=1)


def cut(packet, size):
    """A packet with @size bytes in UDP, with lengths that agree."""
    ip_bytes = 40 if packet[0] >> 4 == 6 else 20
    udp = packet[ip_bytes:ip_bytes + 4] + struct.pack(">HH", 8 + size, 0)
    body = packet[ip_bytes + 8:ip_bytes + 8 + size]
    if ip_bytes == 40:
        ip = packet[:4] + struct.pack(">H", 8 + size) + packet[6:40]
    else:
        ip = packet[:2] + struct.pack(">H", 28 + size) + packet[4:10] + b"\0\0" + packet[12:20]
        ip = ip[:10] + struct.pack(">H", ip_sum(ip)) + ip[12:]
    return ip + udp + body


def longer_udp(packet):
    ip_bytes = 40 if packet[0] >> 4 == 6 else 20
    length = struct.unpack(">H", packet[ip_bytes + 4:ip_bytes + 6])[0]
    return packet[:ip_bytes + 4] + struct.pack(">H", length + 1) + packet[ip_bytes + 6:]


def every_bit_wrong(packet):
    """One flipped bit of the BTH drops the packet for any reason, except in the byte that routers change."""
    at = 48 if packet[0] >> 4 == 6 else 28
    bits = [bit for bit in range(96) if bit // 8 != 4]
    before = counters()
    for bit in bits:
        changed = bytearray(packet)
        changed[at + bit // 8] ^= 0x80 >> bit % 8
        send(bytes(changed))
    for _ in range(100):
        seen = changes(before)
        if seen.get("drops") == len(bits):
            break
        time.sleep(0.02)
    check(seen.get("drops") == len(bits) and "packets_received" not in seen, "flipped bits", f"saw {seen}")


def unknown_cases():
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
    listener.bind((PEER, 0x0003))
    packet = roce(bth(qpn=0xABCDEE) + b"1234")
    packet6 = roce(bth(qpn=0xABCDEE) + b"1234", src=FAR6, dst=HOST6)
    case("unknown queue pair", lambda: send(packet, packet6), drop_qpn=2)
    case("unknown queue pair over lo", lambda: plain(HOST4).sendto(body_of(packet), (HOST4, PORT)), drop_qpn=1)
    # The host answers these after whatever it had to say about the packets before.
    send(echo_request(FAR4, HOST4), echo_request(FAR6, HOST6))
    complaints, waiting = 0, {ECHO_REPLY4, ECHO_REPLY6}
    while waiting and select.select([listener], [], [], 10)[0]:
        kind = icmp_to_peer(*listener.recvfrom(2048))
        complaints += kind in (UNREACHABLE4, UNREACHABLE6)
        waiting.discard(kind)
    check(not waiting, "unknown queue pair", f"no answer to an echo request: {waiting}")
    check(complaints == 0, "unknown queue pair", f"{complaints} ICMP messages came back")
    listener.close()


def echo_request(src, dst):
    if ":" not in dst:
        body = struct.pack(">BBHHH", 8, 0, 0, 1, 1)
        body = body[:2] + struct.pack(">H", ip_sum(body)) + body[4:]
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28, 0, 0x4000, 64, 1, 0, socket.inet_aton(src), socket.inet_aton(dst))
        return ip[:10] + struct.pack(">H", ip_sum(ip)) + ip[12:] + body
    addresses = socket.inet_pton(socket.AF_INET6, src) + socket.inet_pton(socket.AF_INET6, dst)
    body = struct.pack(">BBHHH", 128, 0, 0, 1, 1)
    total = ip_sum(addresses + struct.pack(">II", len(body), 58) + body)
    return struct.pack(">IHBB", 6 << 28, len(body), 58, 64) + addresses + body[:2] + struct.pack(">H", total) + body[4:]


ECHO_REPLY4, UNREACHABLE4, ECHO_REPLY6, UNREACHABLE6 = (4, 0), (4, 3), (6, 129), (6, 1)


def icmp_to_peer(data, address):
    """The IP version and the type of an ICMP message that arrives at the peer, or None."""
    if address[2] == socket.PACKET_OUTGOING:
        return None
    if data[12:14] == b"\x08\x00" and data[23] == 1:
        return (4, data[34])
    if data[12:14] == b"\x86\xdd" and data[20] == 58:
        return (6, data[54])
    return None


def plain(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET:
        udp.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, _DO: identification 0
    udp.bind((address, 0xC456))
    return udp


def body_of(packet):
    return packet[48:] if packet[0] >> 4 == 6 else packet[28:]


def got(udp):
    count = 0
    while select.select([udp], [], [], 0.2)[0]:
        udp.recv(65536)
        count += 1
    return count


def neighbour_cases():
    """Another program has port 4791."""
    for family, any_address, src, dst in ((socket.AF_INET, "0.0.0.0", FAR4, HOST4), (socket.AF_INET6, "::", FAR6, HOST6)):
        udp = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6:
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            udp.setsockopt(socket.SOL_UDP if hasattr(socket, "SOL_UDP") else 17, 102, 1)  # UDP_NO_CHECK6_RX
        udp.bind((any_address, PORT))
        mine = roce(bth() + b"1234", src=src, dst=dst)
        theirs = roce(bth(qpn=0xABCDEE) + b"1234", src=src, dst=dst)
        case("a socket has the port, our queue pair", lambda: send(mine), received=1)
        check(got(udp) == 0, "a socket has the port", f"it got our packet, IP {dst}")
        case("a socket has the port, an unknown queue pair", lambda: send(theirs), drop_socket=1)
        check(got(udp) == 0, "a socket has the port", f"it got the packet of an unknown queue pair, IP {dst}")
        if family == socket.AF_INET:
            other = roce(bth() + b"1234", dst=OTHER4)
            case("an address of another netdev", lambda: send(other))
            check(got(udp) == 1, "an address of another netdev", "its packet is gone")
            broadcast = roce(bth() + b"1234", dst="10.77.0.255")
            case("broadcast", lambda: send(broadcast))
            check(got(udp) == 1, "broadcast", "its packet is gone")
        udp.close()


def ipv4_cases():
    case("IPv4 options", lambda: send(roce(bth() + b"1234", options=b"\x01\x01\x01\x00")), drop_options=1)
    whole = roce(bth() + b"x" * 3000, frag=0, ip_id=0x77)
    case("IPv4 fragments", lambda: send(*fragments(whole, 1024)), received=1)
    case("IPv4 fragments, the last first", lambda: send(*reversed(list(fragments(whole, 512)))), received=1)
    wrong = roce(bth() + b"x" * 3000, frag=0, ip_id=0x77, wrong=0x10)
    case("IPv4 fragments, wrong ICRC", lambda: send(*fragments(wrong, 1024)), drop_icrc=1)


def ipv6_cases():
    whole = roce(bth() + b"1234", src=FAR6, dst=HOST6)

    def with_header(kind, content):
        length = struct.unpack(">H", whole[4:6])[0] + len(content)
        return whole[:4] + struct.pack(">HB", length, kind) + whole[7:40] + content + whole[40:]

    options = b"\x11\x00\x01\x04\0\0\0\0"
    case("IPv6 destination options", lambda: send(with_header(60, options)), drop_options=1)
    case("IPv6 hop-by-hop options", lambda: send(with_header(0, options)), drop_options=1)
    case("IPv6 fragment", lambda: send(with_header(44, b"\x11\0\0\x01\0\0\0\x07")), drop_options=1)
    local = link_local(NETDEV)
    case("IPv6 link-local", lambda: send(roce(bth() + b"1234", src=link_local(PEER), dst=local)), received=1)


def vlan_cases():
    case("VLAN, IPv4", lambda: send(roce(bth() + b"1234", src="10.77.5.2", dst=VLAN4), vlan=5), received=1)
    case("VLAN, IPv6", lambda: send(roce(bth() + b"1234", src="fd77:5::2", dst=VLAN6), vlan=5), received=1)
    case("a VLAN that is not there", lambda: send(roce(bth() + b"1234", src="10.77.5.2", dst=VLAN4), vlan=6))


def shape_cases(label):
    big = roce(bth() + bytes(range(256)) * 32)
    case(f"{label}: paged", lambda: send_paged(big), received=1)
    case(f"{label}: paged, the BTH in a page", lambda: send_paged(big, 30), received=1)
    wrong = roce(bth() + bytes(range(256)) * 32, wrong=0x100)
    case(f"{label}: paged, wrong ICRC", lambda: send_paged(wrong), drop_icrc=1)
    big6 = roce(bth() + bytes(range(256)) * 32, src=FAR6, dst=HOST6)
    case(f"{label}: paged, IPv6", lambda: send_paged(big6, 54), received=1)

    # Sends over lo, from an address of this host. The stack chooses the rest of the header.
    def datagram(size, dst=HOST4):
        body = bth() + b"z" * size
        return body_of(roce(body, src=dst, dst=dst, sport=0xC456))

    for size in (0, 4, 1000, 16000, 40000, 65436):
        case(f"{label}: {size} bytes over lo", lambda: plain(HOST4).sendto(datagram(size), (HOST4, PORT)), received=1)
    case(f"{label}: 40000 bytes over lo, IPv6",
         lambda: plain(HOST6).sendto(datagram(40000, HOST6), (HOST6, PORT)), received=1)
    case(f"{label}: a train of packets, whole", lambda: train(20, 1000), received=20)
    case(f"{label}: a train of packets, the fifth wrong", lambda: train(20, 1000, wrong=4), received=19, drop_icrc=1)
    case(f"{label}: a train of packets, the last shorter", lambda: train(7, 1024, last=100), received=7)


def train(count, size, wrong=None, last=None):
    """One UDP GSO send. The identification counts up from packet to packet."""
    udp = plain(HOST4)
    udp.setsockopt(17, UDP_SEGMENT, 12 + size + 4)
    data = b""
    for n in range(count):
        length = last if last and n == count - 1 else size
        data += body_of(roce(bth(psn=n) + bytes([n]) * length, src=HOST4, sport=0xC456, ip_id=n,
                             wrong=1 if n == wrong else 0))
    udp.sendto(data, (HOST4, PORT))


def scapy_case():
    try:
        from scapy.all import IP, UDP, Raw, raw as build
        from scapy.contrib.roce import BTH
    except ImportError:
        print("python3-scapy is not installed: no second opinion about the ICRC")
        return
    packet = build(IP(src=FAR4, dst=HOST4, flags="DF", ttl=3, tos=9) / UDP(sport=0xC001, dport=PORT, chksum=0)
                   / BTH(opcode=SEND_ONLY, dqpn=QPN, psn=77, migreq=1, ackreq=1) / Raw(b"scapy says"
                                                                                     b"so"))
    case("scapy's packet", lambda: send(packet), received=1)


def rule_case():
    def rules(text):
        subprocess.run(["nft", text], check=True)

    try:
        rules("add table ip peal; add chain ip peal input { type filter hook input priority 0; };"
              "add rule ip peal input udp dport 4791 drop")
    except (OSError, subprocess.CalledProcessError):
        print("nft is not installed: rules were not tried")
        return
    case("a rule that drops", lambda: send(roce(bth() + b"1234")))
    rules("delete table ip peal")
    case("without the rule", lambda: send(roce(bth() + b"1234")), received=1)


def main():
    wire_cases(FAR4, HOST4, "IPv4")
    wire_cases(FAR6, HOST6, "IPv6")
    unknown_cases()
    ipv4_cases()
    ipv6_cases()
    vlan_cases()
    shape_cases("alone")
    # Every packet is a clone now, because the sniffer has it too.
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
    shape_cases("cloned")
    sniffer.close()
    neighbour_cases()
    rule_case()
    scapy_case()
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
