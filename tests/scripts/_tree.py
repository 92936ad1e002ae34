# SPDX-License-Identifier: MIT
"""Helpers of the checkers' tests: a small tree in a temporary folder, and the checker run on it as lint runs it."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class TreeTest(unittest.TestCase):
    script = ""

    def run_on(self, files):
        """Writes {path: text} and runs the script; (exit code, lines of output)."""
        with tempfile.TemporaryDirectory(prefix="weir-tree-") as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            result = subprocess.run([sys.executable, "-B", str(SCRIPTS / self.script), folder], capture_output=True,
                                    text=True, check=False)
            self.assertEqual(result.stderr, "")
            return result.returncode, result.stdout.splitlines()

    def assert_clean(self, files):
        self.assertEqual(self.run_on(files), (0, []))

    def assert_one_finding(self, files, *parts):
        code, lines = self.run_on(files)
        self.assertEqual(code, 1)
        self.assertEqual(len(lines), 1, lines)
        for part in parts:
            self.assertIn(part, lines[0])
