#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""must_not_compile.py FILE -- COMPILER [FLAG...]: passes only if FILE is rejected for the reason it states.

FILE names the reason with `// expect: <regex>`, searched in the compiler's messages. A file that mentions
WEIR_CONTROL must also compile when that macro is defined: so it fails by its one bad line and by nothing else.
"""
import re
import subprocess
import sys


def compile_only(compiler, source, *flags):
    return subprocess.run([*compiler, *flags, "-fsyntax-only", "-x", "c++", source], capture_output=True, text=True,
                          check=False)


def main():
    if "--" not in sys.argv or sys.argv.index("--") != 2:
        sys.exit(__doc__.splitlines()[0])
    source, compiler = sys.argv[1], [word for word in sys.argv[3:] if word != "-D"]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    expected = re.search(r"^//\s*expect:\s*(.+?)\s*$", text, re.MULTILINE)
    if not expected:
        sys.exit(f"{source}: no line `// expect: <regex>`")
    result = compile_only(compiler, source)
    if result.returncode == 0:
        sys.exit(f"{source}: compiles, but must not")
    if not re.search(expected.group(1), result.stderr):
        sys.exit(f"{source}: rejected, but not with /{expected.group(1)}/:\n{result.stderr}")
    if "WEIR_CONTROL" in text:
        control = compile_only(compiler, source, "-DWEIR_CONTROL=1")
        if control.returncode != 0:
            sys.exit(f"{source}: does not compile with WEIR_CONTROL defined:\n{control.stderr}")


if __name__ == "__main__":
    main()
