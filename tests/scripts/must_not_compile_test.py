#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""must_not_compile: a wrong reason, a file that compiles and a bad control all fail."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "must_not_compile.py"
BAD = "#ifndef WEIR_CONTROL\nstatic_assert(false, \"units differ\");\n#endif\n"


class MustNotCompile(unittest.TestCase):
    def verdict(self, text):
        with tempfile.TemporaryDirectory(prefix="weir-negative-") as folder:
            source = pathlib.Path(folder, "case.cpp")
            source.write_text(text, encoding="utf-8")
            return subprocess.run([sys.executable, str(SCRIPT), str(source), "--", "c++", "-std=c++20", "-D"],
                                  capture_output=True, text=True, check=False)

    def test_rejected_for_the_stated_reason_passes(self):
        self.assertEqual(self.verdict("// expect: units? differ\n" + BAD).returncode, 0)

    def test_rejected_for_another_reason_fails(self):
        self.assertIn("but not with", self.verdict("// expect: copied\n" + BAD).stderr)

    def test_a_file_that_compiles_fails(self):
        self.assertIn("compiles, but must not", self.verdict("// expect: x\nint x;\n").stderr)

    def test_a_file_without_a_reason_fails(self):
        self.assertIn("no line", self.verdict(BAD).stderr)

    def test_a_control_that_does_not_compile_fails(self):
        self.assertIn("WEIR_CONTROL", self.verdict("// expect: units\n" + BAD + "int x = y;\n").stderr)


if __name__ == "__main__":
    unittest.main()
