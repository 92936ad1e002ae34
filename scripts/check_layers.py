#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_layers.py [ROOT]: holds every #include of weir/ against the ranks in weir/README.md.

A file includes its own layer and lower ranks, never a sibling, never upward. Headers directly in weir/ may include
all layers and are included by none. Prints one line a finding; exit code 1 if there is any.
"""
import pathlib
import re
import sys

SOURCE_ENDINGS = {".hpp", ".cpp", ".h", ".c", ".def", ".inc", ".ipp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
RANK_ROW = re.compile(r"^\|\s*(\d+)\s*\|\s*`?([a-z_]+)`?\s*\|")
# The core stands on libc and the C++ runtime; these belong to programs above it, the last row to io as well.
FOREIGN = ("fmt/", "nlohmann/", "CLI/", "gtest/", "gmock/", "benchmark/", "rte_")
FOREIGN_BUT_IO = ("pcap", "xdp/", "bpf/", "liburing")
IO_RANK = 9


def read_ranks(readme):
    ranks = {}
    for line in readme.read_text(encoding="utf-8").splitlines():
        row = RANK_ROW.match(line)
        if row:
            ranks[row.group(2)] = int(row.group(1))
    return ranks


def judge(layer, target, delimiter, ranks):
    """Why a file of `layer` (None: directly in weir/) may not include `target`; None if it may."""
    parts = target.split("/")
    if parts[0] != "weir":
        if parts[0] in ("lab", "apps", "tests", "examples", "capi", "plugins"):
            return "the library includes nothing that stands above it"
        if delimiter == '"':
            return 'a path from the repository root is wanted: #include "weir/<layer>/<file>"'
        if target.startswith(FOREIGN) or (target.startswith(FOREIGN_BUT_IO) and ranks.get(layer) != IO_RANK):
            return "the core uses libc and the C++ runtime only"
        return None
    if layer is None:
        return None
    if len(parts) < 3:
        return "a layer does not include the umbrella headers of weir/"
    other = parts[1]
    if other not in ranks:
        return f"layer {other} has no rank in weir/README.md"
    if other == layer:
        return None
    if ranks[other] == ranks[layer]:
        return f"{other} is a sibling of {layer} (rank {ranks[layer]})"
    if ranks[other] > ranks[layer]:
        return f"upward: {layer} is rank {ranks[layer]}, {other} is rank {ranks[other]}"
    return None


def check(root):
    library = root / "weir"
    ranks = read_ranks(library / "README.md")
    if not ranks:
        return ["weir/README.md: no table of ranks"]
    findings = [f"weir/{folder.name}: folder without a rank in weir/README.md"
                for folder in sorted(library.iterdir()) if folder.is_dir() and folder.name not in ranks]
    for path in sorted(library.rglob("*")):
        if path.suffix not in SOURCE_ENDINGS or not path.is_file():
            continue
        inside = path.relative_to(library).parts
        layer = inside[0] if len(inside) > 1 else None
        if layer is not None and layer not in ranks:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            include = INCLUDE.match(line)
            why = include and judge(layer, include.group(2), include.group(1), ranks)
            if why:
                findings.append(f"{path.relative_to(root)}:{number}: includes {include.group(2)}: {why}")
    return findings


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    findings = check(root)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
