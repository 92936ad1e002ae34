#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# scripts/check_capture.py: says whether a capture is fit for `weir demo`.
# Owns the reader of classic pcap files and the rules below: whole frames, right checksums,
# enough of every protocol, a balanced mix of sizes, no address of a real machine.
# Reads one file, needs the standard library alone, never writes.
"""Check a packet capture: format, frame sizes, checksums, protocols, mix of sizes.

Exit code 0: fit; 1: not fit or unreadable, with one line for each finding; 2: bad usage.
"""

import argparse
import collections
import ipaddress
import struct
import sys

MIN_FRAME = 60  # a wire pads to 64 bytes, the last 4 are the frame check sequence
MAX_FRAME = 1514  # 14 bytes of Ethernet header and 1500 of packet; tags count into it
MAX_FILE = 5 * 1024 * 1024  # the file lives in the repository
PACKETS = (5000, 12000)
FINDINGS_SHOWN = 20

# Share of all packets in percent, least and most. Data segments alone would say nothing about
# small packets, and those are where the cost of an allocator shows.
SIZE_CLASSES = (
    ("below 128 bytes", 0, 128, 38, 55),
    ("128 to 1399 bytes", 128, 1400, 14, 30),
    ("1400 bytes and more", 1400, 1 << 16, 25, 42),
)
HISTOGRAM = (60, 61, 96, 128, 256, 512, 1024, 1400, 1514, 1515)

# One packet counts under every name that fits it.
LEAST = {
    "arp": 40,
    "ipv4": 3000,
    "ipv6": 600,
    "tcp": 2000,
    "udp": 1500,
    "icmp": 200,
    "icmpv6": 100,
    "neighbour discovery": 20,
    "dns": 150,
    "http over ipv4": 300,
    "http over ipv6": 100,
    "bulk tcp": 800,
    "udp stream": 800,
    "vlan (802.1Q)": 400,
    "qinq (802.1ad)": 50,
    "ip fragment": 10,
}

ARP, IPV4, IPV6, CTAG, STAG = 0x0806, 0x0800, 0x86DD, 0x8100, 0x88A8
ICMP, IGMP, TCP, UDP, ICMPV6 = 1, 2, 6, 17, 58
HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS = 0, 43, 44, 60
IPERF_PORTS = range(5201, 5300)

# Addresses set aside for documentation (RFC 5737, 3849, 7042) and those without an owner.
DOCUMENTATION_MAC = bytes.fromhex("00005e0053")
NETWORKS_4 = [
    ipaddress.ip_network(n)
    for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "0.0.0.0/32")
]
NETWORKS_6 = [
    ipaddress.ip_network(n) for n in ("2001:db8::/32", "fe80::/10", "ff00::/8", "::/128")
]

Record = collections.namedtuple("Record", "seconds fraction frame original_length")


class NotACapture(Exception):
    """The file's structure cannot be followed any further."""


def read_capture(data):
    """The records of a classic pcap file with Ethernet frames; (byte order, header, records)."""
    if len(data) < 24:
        raise NotACapture(f"{len(data)} bytes are no capture: the file header alone has 24")
    orders = {0xA1B2C3D4: (1_000_000,), 0xA1B23C4D: (1_000_000_000,)}
    for order in "<>":
        magic, major, minor, _, _, snaplen, link = struct.unpack(order + "IHHiIII", data[:24])
        if magic in orders:
            break
    else:
        raise NotACapture("no classic pcap file: unknown magic number (pcapng is not read)")
    if (major, minor) != (2, 4):
        raise NotACapture(f"pcap version {major}.{minor}, known is 2.4")
    if link != 1:
        raise NotACapture(f"link type {link}, wanted is 1 (Ethernet)")
    if snaplen < 65535:
        raise NotACapture(f"snapshot length {snaplen} cuts frames, wanted is 65535 or more")
    parts_of_second = orders[magic][0]
    records, at = [], 24
    while at < len(data):
        place = f"packet {len(records) + 1} at byte {at}"
        if len(data) - at < 16:
            raise NotACapture(f"{place}: the file ends inside the packet's header")
        seconds, fraction, kept, length = struct.unpack_from(order + "IIII", data, at)
        at += 16
        if kept > snaplen or kept > length:
            raise NotACapture(f"{place}: impossible length {kept} of {length}")
        if fraction >= parts_of_second:
            raise NotACapture(f"{place}: impossible time {seconds}.{fraction}")
        if len(data) - at < kept:
            raise NotACapture(f"{place}: the file ends inside the packet")
        records.append(Record(seconds, fraction, data[at : at + kept], length))
        at += kept
    return order, data[:24], records


def sums_to_zero(*parts):
    """The Internet checksum (RFC 1071) over data that contains it: right or not.

    Only the last part may have an odd length. A one's complement sum of 16-bit words is the
    value of the bytes as one number, modulo 65535.
    """
    data = b"".join(parts)
    if len(data) % 2:
        data += b"\0"
    return int.from_bytes(data, "big") % 0xFFFF == 0


class Checker:
    """Walks the packets once; collects findings and counts."""

    def __init__(self):
        self.findings = []
        self.counts = collections.Counter()
        self.sizes = collections.Counter()
        self.flows = set()
        self.checksums = collections.Counter()
        self.fragments = {}  # datagram -> {"first": number, "parts": {offset: bytes}, "end": size}
        self.known_addresses = {}
        self.number = 0

    def finding(self, text):
        self.findings.append(f"packet {self.number}: {text}" if self.number else text)

    # ---- one frame, from the outside in -----------------------------------------------------

    def frame(self, record):
        self.number += 1
        frame = record.frame
        self.sizes[len(frame)] += 1
        if len(frame) != record.original_length:
            self.finding(f"cut: {len(frame)} of {record.original_length} bytes were kept")
            return
        if not MIN_FRAME <= len(frame) <= MAX_FRAME:
            self.finding(f"{len(frame)} bytes, outside {MIN_FRAME} to {MAX_FRAME}")
            if len(frame) < 14:
                return
        if frame[6:11] != DOCUMENTATION_MAC:
            self.finding(f"source MAC {frame[6:12].hex(':')} is not from the documentation range")
        if frame[0:5] != DOCUMENTATION_MAC and not frame[0] & 1:
            self.finding(f"target MAC {frame[0:6].hex(':')} is not from the documentation range")
        at, tags = 12, []
        kind = int.from_bytes(frame[at : at + 2], "big")
        while kind in (CTAG, STAG) and at + 6 <= len(frame):
            identifier = int.from_bytes(frame[at + 2 : at + 4], "big") & 0xFFF
            if identifier in (0, 0xFFF):
                self.finding(f"VLAN identifier {identifier} is reserved")
            tags.append((kind, identifier))
            at += 4
            kind = int.from_bytes(frame[at : at + 2], "big")
        kinds = [tag for tag, _ in tags]
        if kinds == [CTAG]:
            self.counts["vlan (802.1Q)"] += 1
        elif kinds == [STAG, CTAG]:
            self.counts["qinq (802.1ad)"] += 1
        elif kinds:
            self.finding("tags are neither one 802.1Q nor 802.1ad around 802.1Q")
        body = frame[at + 2 :]
        if kind == ARP:
            used = self.arp(body)
        elif kind == IPV4:
            used = self.ipv4(body, tuple(tags))
        elif kind == IPV6:
            used = self.ipv6(body, tuple(tags))
        else:
            self.finding(f"unknown type 0x{kind:04x}")
            return
        if used is None:
            return
        trailer = body[used:]
        if trailer and len(frame) > MIN_FRAME:
            self.finding(f"{len(trailer)} bytes behind the packet, but the frame needs no padding")
        elif any(trailer):
            self.finding("padding is not zero")

    def arp(self, body):
        self.counts["arp"] += 1
        if len(body) < 28 or struct.unpack_from("!HHBB", body) != (1, IPV4, 6, 4):
            self.finding("ARP is cut or not for Ethernet and IPv4")
            return None
        if body[6:8] not in (b"\0\1", b"\0\2"):
            self.finding("ARP is neither request nor reply")
        self.address(body[14:18], body[24:28])
        return 28

    def ipv4(self, body, tags):
        self.counts["ipv4"] += 1
        header = (body[0] & 15) * 4 if body else 0
        if len(body) < 20 or body[0] >> 4 != 4 or header < 20 or header > len(body):
            self.finding("IPv4 header is cut or malformed")
            return None
        total = int.from_bytes(body[2:4], "big")
        if total < header or total > len(body):
            self.finding(f"IPv4 length {total} does not fit into the frame")
            return None
        self.checksums["ipv4 header"] += 1
        if not sums_to_zero(body[:header]):
            self.finding("IPv4 header checksum is wrong")
        if body[8] == 0:
            self.finding("IPv4 time to live is 0")
        source, target, protocol = body[12:16], body[16:20], body[9]
        self.address(source, target)
        word = int.from_bytes(body[6:8], "big")
        offset, more = (word & 0x1FFF) * 8, bool(word & 0x2000)
        payload = body[header:total]
        if offset or more:
            datagram = (tags, source, target, protocol, body[4:6])
            payload = self.fragment(datagram, offset, more, payload)
        if payload is not None:
            self.transport(protocol, source, target, payload)
        return total

    def ipv6(self, body, tags):
        self.counts["ipv6"] += 1
        if len(body) < 40 or body[0] >> 4 != 6:
            self.finding("IPv6 header is cut or malformed")
            return None
        total = 40 + int.from_bytes(body[4:6], "big")
        if total > len(body):
            self.finding(f"IPv6 length {total} does not fit into the frame")
            return None
        source, target, protocol = body[8:24], body[24:40], body[6]
        self.address(source, target)
        payload = body[40:total]
        while protocol in (HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS, FRAGMENT):
            if len(payload) < 8:
                self.finding("IPv6 extension header is cut")
                return total
            following = payload[0]
            if protocol == FRAGMENT:
                word = int.from_bytes(payload[2:4], "big")
                datagram = (tags, source, target, following, payload[4:8])
                payload = self.fragment(datagram, word & 0xFFF8, bool(word & 1), payload[8:])
                if payload is None:
                    return total
            else:
                payload = payload[(payload[1] + 1) * 8 :]
            protocol = following
        self.transport(protocol, source, target, payload)
        return total

    def fragment(self, datagram, offset, more, payload):
        """The whole datagram when this was its last missing part, else None."""
        self.counts["ip fragment"] += 1
        entry = self.fragments.setdefault(
            datagram, {"first": self.number, "parts": {}, "end": None}
        )
        if offset in entry["parts"]:
            self.finding("fragment comes twice")
        entry["parts"][offset] = payload
        if not more:
            entry["end"] = offset + len(payload)
        joined = b""
        for start in sorted(entry["parts"]):
            if start != len(joined):
                return None
            joined += entry["parts"][start]
        if entry["end"] != len(joined):
            return None
        del self.fragments[datagram]
        return joined

    # ---- transport: all that carries a checksum over its payload ------------------------------

    def transport(self, protocol, source, target, payload):
        pseudo = source + target + struct.pack("!II", len(payload), protocol)
        family = "ipv4" if len(source) == 4 else "ipv6"
        if protocol == TCP:
            self.counts["tcp"] += 1
            header = (payload[12] >> 4) * 4 if len(payload) >= 20 else 0
            if header < 20 or header > len(payload):
                self.finding("TCP header is cut or malformed")
                return
            self.checksum("TCP", pseudo, payload)
            ports = self.ports(protocol, source, target, payload)
            if 80 in ports:
                self.counts[f"http over {family}"] += 1
            elif 53 in ports:
                self.counts["dns"] += 1
            elif any(port in IPERF_PORTS for port in ports):
                self.counts["bulk tcp"] += 1
        elif protocol == UDP:
            self.counts["udp"] += 1
            if len(payload) < 8 or int.from_bytes(payload[4:6], "big") != len(payload):
                self.finding("UDP header is cut or its length is wrong")
                return
            if payload[6:8] == b"\0\0":
                self.finding("UDP checksum was not computed")
            else:
                self.checksum("UDP", pseudo, payload)
            ports = self.ports(protocol, source, target, payload)
            if 53 in ports:
                self.counts["dns"] += 1
            elif any(port in IPERF_PORTS for port in ports):
                self.counts["udp stream"] += 1
        elif protocol in (ICMP, IGMP) and family == "ipv4" and len(payload) >= 8:
            self.counts["icmp" if protocol == ICMP else "igmp"] += 1
            self.checksum("ICMP" if protocol == ICMP else "IGMP", b"", payload)
        elif protocol == ICMPV6 and family == "ipv6" and len(payload) >= 4:
            self.counts["icmpv6"] += 1
            self.counts["neighbour discovery"] += 133 <= payload[0] <= 137
            self.checksum("ICMPv6", pseudo, payload)
        else:
            self.finding(f"unknown or cut IP protocol {protocol}")

    def checksum(self, name, pseudo, payload):
        self.checksums[name.lower()] += 1
        if not sums_to_zero(pseudo, payload):
            self.finding(f"{name} checksum is wrong")

    def ports(self, protocol, source, target, payload):
        ports = struct.unpack_from("!HH", payload)
        ends = sorted(((source, ports[0]), (target, ports[1])))
        self.flows.add((protocol, *ends[0], *ends[1]))
        return ports

    def address(self, *addresses):
        for raw in addresses:
            if raw not in self.known_addresses:
                networks = NETWORKS_4 if len(raw) == 4 else NETWORKS_6
                address = ipaddress.ip_address(raw)
                self.known_addresses[raw] = any(address in network for network in networks)
            if not self.known_addresses[raw]:
                name = ipaddress.ip_address(raw)
                self.finding(f"address {name} is not from the documentation ranges")

    # ---- the file as a whole -------------------------------------------------------------------

    def whole(self, data):
        packets = self.number
        self.number = 0
        for entry in self.fragments.values():
            self.finding(f"packet {entry['first']}: fragments of its datagram are missing")
        if len(data) > MAX_FILE:
            self.finding(f"{len(data)} bytes, more than {MAX_FILE}")
        if not PACKETS[0] <= packets <= PACKETS[1]:
            self.finding(f"{packets} packets, outside {PACKETS[0]} to {PACKETS[1]}")
        for name, least in LEAST.items():
            if self.counts[name] < least:
                self.finding(f"{self.counts[name]} packets of {name}, wanted are {least} or more")
        for name, low, high, least, most in SIZE_CLASSES:
            share = 100 * self.between(low, high) / max(packets, 1)
            if not least <= share <= most:
                self.finding(f"{share:.1f} % of the packets are {name}, outside {least} to {most}")

    def between(self, low, high):
        return sum(count for size, count in self.sizes.items() if low <= size < high)


def summary(checker, data, records):
    """What the file holds, as lines of text."""
    packets = len(records)
    if not packets:
        return ["0 packets"]
    carried = sum(size * count for size, count in checker.sizes.items())
    span = records[-1].seconds - records[0].seconds
    lines = [
        f"{packets} packets, {carried} bytes in frames of {min(checker.sizes)} to "
        f"{max(checker.sizes)} (mean {carried / packets:.0f}), file of {len(data)} bytes",
        f"recorded over {span} s, {len(checker.flows)} TCP and UDP flows",
        "",
        "frame bytes     packets   share",
    ]
    for low, high in zip(HISTOGRAM, HISTOGRAM[1:]):
        count = checker.between(low, high)
        name = str(low) if high == low + 1 else f"{low} to {high - 1}"
        bar = "#" * round(60 * count / packets)
        lines.append(f"{name:<14} {count:>8} {100 * count / packets:>6.1f}%  {bar}".rstrip())
    lines += ["", "class                  packets   share"]
    for name, low, high, _, _ in SIZE_CLASSES:
        count = checker.between(low, high)
        lines.append(f"{name:<21} {count:>8} {100 * count / packets:>6.1f}%")
    lines += ["", "protocol               packets   wanted at least"]
    for name in list(LEAST) + sorted(set(checker.counts) - set(LEAST)):
        lines.append(f"{name:<21} {checker.counts[name]:>8} {LEAST.get(name, 0):>9}")
    lines += ["", "checksum computed again    times"]
    for name, count in checker.checksums.most_common():
        lines.append(f"{name:<21} {count:>10}")
    return lines


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--summary", action="store_true", help="print what the file holds as well")
    parser.add_argument("file", help="classic pcap file")
    options = parser.parse_args(arguments)
    try:
        with open(options.file, "rb") as stream:
            data = stream.read()
        _, _, records = read_capture(data)
    except OSError as error:
        print(f"{options.file}: cannot read: {error.strerror}", file=sys.stderr)
        return 1
    except NotACapture as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 1
    checker = Checker()
    for record in records:
        checker.frame(record)
    checker.whole(data)
    if options.summary:
        print("\n".join(summary(checker, data, records)))
    for text in checker.findings[:FINDINGS_SHOWN]:
        print(f"{options.file}: {text}", file=sys.stderr)
    if len(checker.findings) > FINDINGS_SHOWN:
        more = len(checker.findings) - FINDINGS_SHOWN
        print(f"{options.file}: and {more} more findings", file=sys.stderr)
    if checker.findings:
        return 1
    checksums = sum(checker.checksums.values())
    print(f"{options.file}: fit, {len(records)} packets, {checksums} checksums right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
