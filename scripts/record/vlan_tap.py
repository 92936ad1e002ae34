#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# scripts/record/vlan_tap.py: an 802.1Q or 802.1ad sub-interface for kernels built without VLANs.
# Owns a TAP device: what programs send through it leaves the trunk with the tags in front, what
# the trunk receives with exactly these tags goes up the TAP without them. Lives in the network
# namespace it was started in, until SIGTERM. Never configures addresses.
"""Usage: vlan_tap.py TRUNK NAME TYPE:ID [TYPE:ID]     (outer tag first: 0x88a8:200 0x8100:300)"""

import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys

ETH_P_ALL = 3
SOL_PACKET, PACKET_AUXDATA, PACKET_OUTGOING = 263, 8, 4
AUXDATA = struct.Struct("IIIHHHH")  # status, length, kept, mac, net, tag control, tag type
STATUS_VLAN_VALID, STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
MAX_READ = 65536


def open_tap(name):
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def open_trunk(name):
    trunk = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    trunk.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    trunk.bind((name, ETH_P_ALL))
    return trunk


def receive(trunk):
    """One frame as it was on the wire, or None for one that this host sent itself.

    The kernel takes the outer tag out of the data before packet sockets see it.
    """
    frame, extras, _, source = trunk.recvmsg(MAX_READ, socket.CMSG_SPACE(AUXDATA.size))
    if source[2] == PACKET_OUTGOING:
        return None
    for level, kind, data in extras:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, _, _, _, _, control, tag_type = AUXDATA.unpack(data[: AUXDATA.size])
            if status & STATUS_VLAN_VALID:
                tag_type = tag_type if status & STATUS_VLAN_TPID_VALID else 0x8100
                return frame[:12] + struct.pack("!HH", tag_type, control) + frame[12:]
    return frame


def deliver(send, frame):
    """A link that is down, or a full queue, drops the frame, as a wire would."""
    try:
        send(frame)
    except OSError as error:
        if error.errno not in (errno.EIO, errno.ENETDOWN, errno.ENOBUFS):
            raise


def carry(trunk, tap, tags):
    """Moves frames both ways for ever; the inner type may not be another tag."""
    end = 12 + len(tags)
    poller = select.poll()
    poller.register(trunk, select.POLLIN)
    poller.register(tap, select.POLLIN)
    while True:
        for ready, _ in poller.poll():
            if ready == tap:
                frame = os.read(tap, MAX_READ)
                deliver(trunk.send, frame[:12] + tags + frame[12:])
            else:
                frame = receive(trunk)
                if frame is None or frame[12:end] != tags:
                    continue
                if frame[end : end + 2] not in (b"\x81\x00", b"\x88\xa8"):
                    deliver(lambda data: os.write(tap, data), frame[:12] + frame[end:])


def main(arguments):
    if not 3 <= len(arguments) <= 4:
        print(__doc__, file=sys.stderr)
        return 2
    tags = b"".join(
        struct.pack("!HH", *(int(part, 0) for part in tag.split(":"))) for tag in arguments[2:]
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        trunk = open_trunk(arguments[0])
        tap = open_tap(arguments[1])
    except OSError as error:
        print(f"vlan_tap.py: {' '.join(arguments)}: {error.strerror}", file=sys.stderr)
        return 1
    carry(trunk, tap, tags)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
