#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# tests/scripts/check_capture_test.py: the capture in data/ is fit, and no damaged copy of it is.
# Runs scripts/check_capture.py and its neighbours as a user would; every damage names the finding
# that it must cause. Writes to a temporary directory alone, needs no privileges.

import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIX = ROOT / "data" / "mix.pcap"
CHECK = ROOT / "scripts" / "check_capture.py"
PAD = ROOT / "scripts" / "record" / "pad_frames.py"
RECORD = ROOT / "scripts" / "record_capture.sh"

FILE_HEADER, RECORD_HEADER, ETHERNET = 24, 16, 14
ARP, IPV4, IPV6, CTAG, STAG = 0x0806, 0x0800, 0x86DD, 0x8100, 0x88A8
ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58


def run(*command, **more):
    return subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )


def split(data):
    """Frames of a little-endian capture: offset of the record and the record's bytes."""
    at = FILE_HEADER
    while at < len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        yield at, data[at : at + RECORD_HEADER + length]
        at += RECORD_HEADER + length


def kind(frame):
    return int.from_bytes(frame[12:14], "big")


class CheckCapture(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = MIX.read_bytes()
        cls.records = list(split(cls.data))
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def check(self, data, *options):
        path = pathlib.Path(self.folder.name) / "copy.pcap"
        path.write_bytes(data)
        return run(sys.executable, CHECK, *options, path)

    def refuses(self, data, finding):
        result = self.check(data)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(finding, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        return result

    def find(self, wanted):
        """Offset in the file of the first frame that `wanted` accepts, and the frame."""
        for at, record in self.records:
            frame = record[RECORD_HEADER:]
            if wanted(frame):
                return at + RECORD_HEADER, frame
        raise AssertionError("the capture holds no such frame")

    def find_ip(self, protocol, size=200):
        """A long enough IPv4 frame without fragmentation."""
        return self.find(
            lambda frame: kind(frame) == IPV4
            and frame[23] == protocol
            and len(frame) >= size
            and not int.from_bytes(frame[20:22], "big") & 0x3FFF
        )

    def find_ip6(self, protocol, size=60):
        return self.find(
            lambda frame: kind(frame) == IPV6 and frame[20] == protocol and len(frame) >= size
        )

    def damaged(self, at, mask=0x40):
        copy = bytearray(self.data)
        copy[at] ^= mask
        return bytes(copy)

    def replaced(self, at, frame):
        """The capture with another frame, of any length, at this offset."""
        old = struct.unpack_from("<I", self.data, at - 8)[0]
        header = self.data[at - 16 : at - 8] + struct.pack("<II", len(frame), len(frame))
        return self.data[: at - 16] + header + frame + self.data[at + old :]

    # ---- what is fit ---------------------------------------------------------------------------

    def test_recorded_capture_is_fit(self):
        result = run(sys.executable, CHECK, MIX)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        self.assertIn(f"fit, {len(self.records)} packets", result.stdout)

    def test_summary_counts_every_packet_once_in_the_histogram(self):
        result = run(sys.executable, CHECK, "--summary", MIX)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = result.stdout.split("frame bytes")[1].split("\n\n")[0].splitlines()[1:]
        counts = [int(row[14:23]) for row in rows]
        self.assertEqual(sum(counts), len(self.records))
        sizes = [len(record) - RECORD_HEADER for _, record in self.records]
        self.assertEqual(counts[0], sizes.count(60))
        self.assertEqual(counts[-1], sizes.count(1514))

    def test_readme_shows_the_summary_of_this_very_file(self):
        result = run(sys.executable, CHECK, "--summary", MIX)
        table = result.stdout[: result.stdout.rindex(str(MIX))].strip()
        readme = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
        self.assertIn(f"```\n{table}\n```", readme)

    def test_other_byte_order_reads_the_same(self):
        parts = [struct.pack(">IHHiIII", *struct.unpack_from("<IHHiIII", self.data))]
        for _, record in self.records:
            parts += [struct.pack(">IIII", *struct.unpack_from("<IIII", record)), record[16:]]
        result = self.check(b"".join(parts))
        self.assertEqual(result.returncode, 0, result.stderr)

    # ---- files that cannot be followed -----------------------------------------------------------

    def test_refuses_a_missing_file_in_one_line(self):
        result = run(sys.executable, CHECK, pathlib.Path(self.folder.name) / "none.pcap")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot read: No such file", result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_answers_bad_usage_with_2(self):
        self.assertEqual(run(sys.executable, CHECK).returncode, 2)
        self.assertEqual(run(sys.executable, CHECK, "--what", MIX).returncode, 2)

    def test_refuses_an_empty_file_and_half_a_file_header(self):
        for size in (0, 1, FILE_HEADER - 1):
            self.refuses(self.data[:size], "are no capture")

    def test_refuses_a_file_with_no_packet(self):
        self.refuses(self.data[:FILE_HEADER], "0 packets, outside")

    def test_refuses_a_file_cut_inside_a_packet(self):
        self.refuses(self.data[:-1], "the file ends inside the packet")
        at, _ = self.records[100]
        self.refuses(self.data[: at + RECORD_HEADER + 20], "the file ends inside the packet")

    def test_refuses_a_file_cut_inside_a_packet_header(self):
        at, _ = self.records[100]
        for size in (1, RECORD_HEADER - 1):
            self.refuses(self.data[: at + size], "ends inside the packet's header")

    def test_refuses_a_file_cut_between_packets(self):
        at, _ = self.records[len(self.records) // 2]
        self.refuses(self.data[:at], "packets, outside")

    def test_refuses_other_formats(self):
        self.refuses(self.damaged(0), "unknown magic number")
        self.refuses(b"\x0a\x0d\x0d\x0a" + self.data[4:], "unknown magic number")
        self.refuses(self.damaged(4, 1), "known is 2.4")
        self.refuses(self.damaged(20, 2), "wanted is 1 (Ethernet)")
        short = self.data[:16] + struct.pack("<I", 96) + self.data[20:]
        self.refuses(short, "snapshot length 96 cuts frames")

    def test_refuses_impossible_lengths_and_times(self):
        at, _ = self.records[50]
        self.refuses(self.damaged(at + 11, 0x7F), "impossible length")
        self.refuses(self.damaged(at + 7, 0x7F), "impossible time")

    # ---- frames that were never on a wire -------------------------------------------------------

    def test_refuses_a_frame_that_was_cut_while_recording(self):
        at, _ = self.find_ip(TCP)
        length = struct.unpack_from("<I", self.data, at - 4)[0] + 100
        self.refuses(
            self.data[: at - 4] + struct.pack("<I", length) + self.data[at:], "bytes were kept"
        )

    def test_refuses_a_frame_without_padding(self):
        at, frame = self.find(lambda frame: kind(frame) == ARP)
        self.refuses(self.replaced(at, frame[:42]), "42 bytes, outside 60 to 1514")

    def test_refuses_padding_that_is_not_zero(self):
        at, frame = self.find(lambda frame: kind(frame) == ARP)
        self.refuses(self.damaged(at + len(frame) - 1), "padding is not zero")

    def test_refuses_bytes_behind_a_packet_that_needs_no_padding(self):
        at, frame = self.find_ip(UDP)
        self.refuses(self.replaced(at, frame + b"\0\0"), "2 bytes behind the packet")

    def test_refuses_a_segment_that_offload_left_whole(self):
        at, frame = self.find(lambda frame: kind(frame) == IPV4 and len(frame) == 1514)
        self.refuses(self.replaced(at, frame + bytes(2896)), "4410 bytes, outside 60 to 1514")

    # ---- one wrong bit ---------------------------------------------------------------------------

    def test_refuses_each_wrong_bit_of_an_ipv4_header(self):
        at, _ = self.find_ip(UDP)
        for offset in (1, 5, 8, 9, 10, 11, 15, 19):  # no length, version or fragment field
            for mask in (0x01, 0x80):
                damaged = self.damaged(at + ETHERNET + offset, mask)
                self.refuses(damaged, "IPv4 header checksum is wrong")

    def test_refuses_one_wrong_bit_in_any_payload(self):
        places = {
            "TCP": self.find_ip(TCP),
            "UDP": self.find_ip(UDP),
            "ICMP": self.find_ip(ICMP),
        }
        for name, (at, frame) in places.items():
            # The first byte behind the shortest header, one in the middle, the last.
            for offset in (ETHERNET + 20 + 20, len(frame) // 2, len(frame) - 1):
                with self.subTest(protocol=name, offset=offset):
                    self.refuses(self.damaged(at + offset, 1), f"{name} checksum is wrong")

    def test_refuses_one_wrong_bit_over_ipv6(self):
        for name, protocol in (("TCP", TCP), ("UDP", UDP), ("ICMPv6", ICMPV6)):
            at, frame = self.find_ip6(protocol)
            with self.subTest(protocol=name):
                self.refuses(self.damaged(at + len(frame) - 1, 1), f"{name} checksum is wrong")

    def test_refuses_one_wrong_bit_behind_vlan_tags(self):
        for tags in ([CTAG], [STAG, CTAG]):
            header = ETHERNET + 4 * len(tags)
            at, frame = self.find(
                lambda frame: [kind(frame[4 * n :]) for n in range(len(tags))] == tags
                and int.from_bytes(frame[header - 2 : header], "big") == IPV4
                and frame[header + 9] == ICMP
            )
            with self.subTest(tags=tags):
                self.refuses(self.damaged(at + len(frame) - 1, 1), "ICMP checksum is wrong")

    def test_refuses_one_wrong_bit_in_a_later_fragment(self):
        at, frame = self.find(
            lambda frame: kind(frame) == IPV4 and int.from_bytes(frame[20:22], "big") & 0x1FFF
        )
        self.refuses(self.damaged(at + len(frame) - 1, 1), "ICMP checksum is wrong")

    def test_refuses_a_datagram_with_a_fragment_missing(self):
        at, frame = self.find(
            lambda frame: kind(frame) == IPV4 and int.from_bytes(frame[20:22], "big") & 0x1FFF
        )
        without = self.data[: at - RECORD_HEADER] + self.data[at + len(frame) :]
        self.refuses(without, "fragments of its datagram are missing")

    def test_refuses_a_udp_checksum_that_was_not_computed(self):
        at, frame = self.find_ip(UDP)
        frame = frame[:40] + b"\0\0" + frame[42:]
        self.refuses(self.replaced(at, frame), "UDP checksum was not computed")

    def test_survives_a_wrong_bit_anywhere_in_the_headers(self):
        # Not every bit is under a checksum (MAC addresses, tags); whatever it hits, the answer is
        # a verdict and not a stack trace.
        seen = {}
        for at, record in self.records:
            frame = record[RECORD_HEADER:]
            seen.setdefault((kind(frame), frame[23] if kind(frame) == IPV4 else frame[20]), at)
        for at in seen.values():
            copy = bytearray(self.data)
            for offset in range(RECORD_HEADER + 12, RECORD_HEADER + 60):
                copy[at + offset] ^= 0xFF
            result = self.check(bytes(copy))
            self.assertEqual(result.returncode, 1)
            self.assertNotIn("Traceback", result.stderr)

    # ---- the mix ---------------------------------------------------------------------------------

    def without(self, unwanted):
        kept = [record for _, record in self.records if not unwanted(record[RECORD_HEADER:])]
        self.assertLess(len(kept), len(self.records))
        return self.data[:FILE_HEADER] + b"".join(kept)

    def test_refuses_a_capture_that_lacks_one_protocol(self):
        lacks = {
            "arp": lambda frame: b"\x08\x06\0\1\x08\0\6\4" in frame[12:30],  # also behind tags
            "ipv6": lambda frame: kind(frame) == IPV6,
            "icmp": lambda frame: kind(frame) == IPV4 and frame[23] == ICMP,
            "udp stream": lambda frame: kind(frame) == IPV4 and frame[23] == UDP,
            "bulk tcp": lambda frame: kind(frame) == IPV4 and frame[23] == TCP,
            "vlan (802.1Q)": lambda frame: kind(frame) == CTAG,
            "qinq (802.1ad)": lambda frame: kind(frame) == STAG,
        }
        for name, unwanted in lacks.items():
            with self.subTest(protocol=name):
                self.refuses(self.without(unwanted), f"packets of {name}, wanted are")

    def test_refuses_a_capture_without_small_or_without_full_frames(self):
        self.refuses(self.without(lambda frame: len(frame) < 96), "% of the packets are below 128")
        self.refuses(self.without(lambda frame: len(frame) == 1514), "% of the packets are 1400")

    def test_refuses_more_than_five_megabytes(self):
        extra = b"".join(record for _, record in self.records[-2000:])
        self.refuses(self.data + extra, "bytes, more than 5242880")

    def test_refuses_addresses_that_somebody_owns(self):
        at, frame = self.find(lambda frame: kind(frame) == ARP)
        frame = frame[:28] + bytes([10, 0, 0, 1]) + frame[32:]
        self.refuses(self.replaced(at, frame), "address 10.0.0.1 is not from the documentation")
        self.refuses(self.damaged(at + 6), "source MAC 40:00:5e")


class PadFrames(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.raw = pathlib.Path(folder.name) / "raw.pcap"
        self.padded = pathlib.Path(folder.name) / "padded.pcap"

    @staticmethod
    def capture(*frames, cut=0):
        parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
        for number, frame in enumerate(frames):
            parts += [struct.pack("<IIII", number, 7, len(frame), len(frame) + cut), frame]
        return b"".join(parts)

    def pad(self, data):
        self.raw.write_bytes(data)
        return run(sys.executable, PAD, self.raw, self.padded)

    def test_fills_short_frames_with_zeros_and_leaves_the_others(self):
        short, exact, long = b"\1" * 42, b"\2" * 60, b"\3" * 61
        self.assertEqual(self.pad(self.capture(short, exact, long)).returncode, 0)
        expected = self.capture(short + bytes(18), exact, long)
        self.assertEqual(self.padded.read_bytes(), expected)

    def test_does_not_hide_that_a_frame_was_cut(self):
        data = self.capture(b"\1" * 42, cut=100)
        self.assertEqual(self.pad(data).returncode, 0)
        self.assertEqual(self.padded.read_bytes(), data)

    def test_refuses_half_a_recording(self):
        result = self.pad(self.capture(b"\1" * 42)[:-1])
        self.assertEqual(result.returncode, 1)
        self.assertIn("the file ends inside the packet", result.stderr)
        self.assertFalse(self.padded.exists())


class RecordCapture(unittest.TestCase):
    def test_names_the_packages_of_missing_tools_in_one_line(self):
        result = run("/bin/bash", RECORD, env={"PATH": "/nonexistent"})
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.splitlines()), 1)
        for package in ("iperf3", "curl", "bind9-dnsutils", "python3"):
            self.assertIn(package, result.stderr)

    def test_answers_bad_usage_with_2_and_help_with_0(self):
        self.assertEqual(run("/bin/bash", RECORD, "--what").returncode, 2)
        self.assertEqual(run("/bin/bash", RECORD, "one", "two").returncode, 2)
        result = run("/bin/bash", RECORD, "--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("usage:", result.stdout)

    def test_does_nothing_without_root(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # the source tree may be closed to others
            script = pathlib.Path(folder) / RECORD.name
            script.write_bytes(RECORD.read_bytes())
            script.chmod(0o755)
            drop = []
            if os.geteuid() == 0:
                drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            result = run(*drop, "/bin/bash", script, "/nonexistent/mix.pcap")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "need root|tools are missing")


if __name__ == "__main__":
    unittest.main()
