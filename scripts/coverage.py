#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""coverage.py BUILD: lines of weir/ that the tests of a coverage build ran, a row a layer (gcov's JSON, merged)."""
import collections
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    ran = collections.defaultdict(dict)  # file -> line -> was it run in any program
    for data in build.rglob("*.gcda"):
        result = subprocess.run(["gcov", "--json-format", "--stdout", str(data)], cwd=build, capture_output=True,
                                text=True, check=False)
        for document in result.stdout.splitlines():
            report = json.loads(document)
            for entry in report["files"]:
                path = pathlib.Path(report["current_working_directory"], entry["file"]).resolve()
                if not path.is_relative_to(ROOT / "weir"):
                    continue
                lines = ran[path.relative_to(ROOT)]
                for line in entry["lines"]:
                    number = line["line_number"]
                    lines[number] = lines.get(number, False) or line["count"] > 0
    if not ran:
        sys.exit(f"{build}: no coverage data; run its tests first")
    layers = collections.defaultdict(lambda: [0, 0])
    for path, lines in sorted(ran.items()):
        layers[path.parent][0] += sum(lines.values())
        layers[path.parent][1] += len(lines)
        missed = [number for number, seen in sorted(lines.items()) if not seen]
        if missed:
            shown = " ".join(map(str, missed[:12])) + (" ..." if len(missed) > 12 else "")
            print(f"{100 * sum(lines.values()) / len(lines):5.1f} %  {path}  not run: {shown}")
    print()
    for layer, (hit, total) in layers.items():
        print(f"{100 * hit / total:5.1f} %  {hit:6} of {total:6} lines  {layer}")


if __name__ == "__main__":
    main()
