#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_orders.py [ROOT]: every non-relaxed memory order in weir/ names its partner.

`// pairs: <where>` stands on the line of the order or in the three lines above it. An order alone says what the
compiler must do; only the partner says why. Prints one line a finding; exit code 1 if there is any.
"""
import pathlib
import re
import sys

ORDER = re.compile(r"\bmemory_order(?:_|::)(acquire|release|acq_rel|seq_cst|consume)\b")
PAIRS = re.compile(r"//.*\bpairs:\s*\S")
LINES_ABOVE = 3


def check_text(name, text):
    lines = text.splitlines()
    findings = []
    for index, line in enumerate(lines):
        code = line.split("//", 1)[0]
        order = ORDER.search(code)
        if not order or code.lstrip().startswith("using "):  # a using-declaration orders nothing
            continue
        near = lines[max(0, index - LINES_ABOVE):index + 1]
        if not any(PAIRS.search(candidate) for candidate in near):
            findings.append(f"{name}:{index + 1}: {order.group(1)} without `// pairs: <where>` on it or in the "
                            f"{LINES_ABOVE} lines above")
    return findings


def check(root):
    findings = []
    for path in sorted((root / "weir").rglob("*")):
        if path.suffix in (".hpp", ".cpp", ".h"):
            findings += check_text(path.relative_to(root), path.read_text(encoding="utf-8"))
    return findings


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    findings = check(root)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
