# SPDX-License-Identifier: MIT
"""What the tests of the command share: running it, and the schema of its figures."""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

# Generous: instrumented builds on a busy machine are slow, and a hang must still end.
TIMEOUT = 240
ROW_FIELDS = ["experiment", "case", "contender", "metric", "unit", "median", "low", "high", "rounds"]
MACHINE_FIELDS = ["cpu", "cpus", "kernel", "compiler", "build", "commit", "modes"]
NOBODY = 65534


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class WeirTest(unittest.TestCase):
    weir = None  # path of the command, set by main()

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def environment(self, extra=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")}
        env.update(extra or {})
        return env

    def run_weir(self, *args, env=None, prefix=(), cwd=None):
        done = subprocess.run(
            [*prefix, self.weir, *args], cwd=cwd or self.folder, env=self.environment(env),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    def assert_one_line(self, result, code, *parts):
        """One line on standard error that begins with the command's name."""
        self.assertEqual(result.code, code, result)
        self.assertEqual(len(result.err.splitlines()), 1, result)
        self.assertTrue(result.err.startswith("weir: "), result)
        self.assertTrue(result.err.endswith("\n"), result)
        for part in parts:
            self.assertIn(part, result.err, result)

    def assert_bad_usage(self, result, *parts):
        self.assert_one_line(result, 2, *parts)
        self.assertEqual(result.out, "", result)

    def figures(self, text):
        """A document of schema weir/1 and its rows, checked field by field."""
        document = json.loads(text)
        self.assertEqual(document["schema"], "weir/1")
        self.assertEqual(list(document["machine"]), MACHINE_FIELDS)
        self.assertIsInstance(document["machine"]["cpus"], int)
        self.assertGreaterEqual(document["machine"]["cpus"], 1)
        self.assertIsInstance(document["machine"]["modes"], dict)
        for row in document["rows"]:
            self.assertEqual(list(row), ROW_FIELDS)
            for field in ROW_FIELDS[:5]:
                self.assertIsInstance(row[field], str)
            for field in ("median", "low", "high"):
                self.assertTrue(math.isfinite(row[field]), row)
            self.assertLessEqual(row["low"], row["median"], row)
            self.assertLessEqual(row["median"], row["high"], row)
            self.assertGreaterEqual(row["rounds"], 1, row)
        return document, document["rows"]

    def row(self, rows, contender, metric):
        found = [r for r in rows if r["contender"] == contender and r["metric"] == metric]
        self.assertEqual(len(found), 1, f"{contender} {metric}: {len(found)} rows")
        return found[0]

    def as_nobody(self, folder):
        """A prefix that drops to an unprivileged user; skips the test where that cannot be."""
        if os.geteuid() != 0:
            return ()
        prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        try:
            works = subprocess.run([*prefix, self.weir, "--version"], capture_output=True,
                                   timeout=TIMEOUT, check=False).returncode == 0
        except FileNotFoundError:
            works = False
        if not works:
            self.skipTest("cannot run the command as another user here")
        os.chown(folder, NOBODY, NOBODY)
        return prefix

    def one_cpu(self):
        if shutil.which("taskset") is None:
            self.skipTest("no taskset")
        return ("taskset", "-c", str(min(os.sched_getaffinity(0))))


def pcap(frames):
    """Bytes of a classic capture file of Ethernet."""
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for number, frame in enumerate(frames):
        data += struct.pack("<IIII", 0, number, len(frame), len(frame)) + frame
    return data


def frame(size):
    """An Ethernet frame of an experimental type."""
    return bytes(12) + b"\x88\xb5" + bytes(i % 251 for i in range(size - 14))


def main():
    if len(sys.argv) < 3 or sys.argv[1] != "--weir":
        sys.exit("usage: TEST.py --weir PATH [unittest arguments]")
    WeirTest.weir = os.path.abspath(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
