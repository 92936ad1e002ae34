#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# scripts/record/pad_frames.py: gives recorded frames the least length that a wire gives them.
# A veth pair delivers a 42-byte ARP as it is; an Ethernet port pads it with zeros to 60.
# Changes nothing but the length of short frames; takes its reader from check_capture.py.
"""Usage: pad_frames.py RAW PADDED"""

import pathlib
import struct
import sys

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from check_capture import MIN_FRAME, NotACapture, read_capture  # noqa: E402


def padded(data):
    """The capture with every frame of at least MIN_FRAME bytes."""
    order, header, records = read_capture(data)
    parts = [header]
    for record in records:
        frame, length = record.frame, record.original_length
        if len(frame) == length:  # a frame that was cut is left for check_capture.py to refuse
            frame = frame.ljust(MIN_FRAME, b"\0")
            length = len(frame)
        stamp = (record.seconds, record.fraction, len(frame), length)
        parts += [struct.pack(order + "IIII", *stamp), frame]
    return b"".join(parts)


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    raw, target = arguments
    try:
        result = padded(pathlib.Path(raw).read_bytes())
        pathlib.Path(target).write_bytes(result)
    except OSError as error:
        print(f"pad_frames.py: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except NotACapture as error:
        print(f"pad_frames.py: {raw}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
