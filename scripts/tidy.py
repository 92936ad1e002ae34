#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tidy.py --build DIR [--jobs N] [--all]: clang-tidy over the tree, each file only when something in it changed.

Takes flags from DIR/compile_commands.json. A clean file is remembered under build/tidy by the hash of its text, the
texts of all headers of this repository that it reaches, its flags, .clang-tidy and the tool's version; --all forgets.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "tidy"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# Flags of GCC that clang does not know, and files clang-tidy would look for.
DROPPED = re.compile(r"^-(W|M|fno-sanitize|fsanitize)")


def reached(path, texts, seen):
    """All files of this repository that `path` includes, itself first; `texts` caches what was read."""
    if path in seen or not path.is_file():
        return seen
    seen[path] = None
    if path not in texts:
        text = path.read_text(encoding="utf-8", errors="replace")
        texts[path] = (hashlib.sha256(text.encode()).digest(), INCLUDE.findall(text))
    for name in texts[path][1]:
        for base in (ROOT, path.parent):
            if (base / name).is_file():
                reached((base / name).resolve(), texts, seen)
                break
    return seen


def flags_of(entry):
    words = entry.get("arguments") or shlex.split(entry["command"])
    kept, skip = [], False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in ("-o", "-c", "-MF", "-MT", "-MQ"):
            skip = word != "-c"
        elif not DROPPED.match(word) and not word.endswith((".cpp", "g++", "c++", "clang++")):
            kept.append(word)
    return kept


def tasks(build, version):
    texts, jobs, seen = {}, [], set()
    config = b"".join(path.read_bytes() for path in (ROOT / ".clang-tidy", ROOT / "tests" / ".clang-tidy"))
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if path in seen or not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "build"):
            continue
        seen.add(path)
        flags = flags_of(entry)
        digest = hashlib.sha256(config + version + "\0".join(flags).encode())
        for file in sorted(reached(path, texts, {})):
            digest.update(str(file).encode() + texts[file][0])
        jobs.append((path, flags, CACHE / digest.hexdigest()))
    return jobs


def examine(job):
    path, flags, mark = job
    command = ["clang-tidy", "--quiet", str(path), "--", *flags, "-Wno-everything"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        mark.touch()
        return path, None
    noise = re.compile(r"^\d+ warnings? (generated|treated)|^Suppressed |^Use -header-filter")
    lines = [line for line in (result.stdout + result.stderr).splitlines() if not noise.match(line)]
    return path, "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()

    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    CACHE.mkdir(parents=True, exist_ok=True)
    jobs = tasks(arguments.build, version)
    pending = [job for job in jobs if arguments.all or not job[2].exists()]
    start, findings = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for done, (path, complaint) in enumerate(pool.map(examine, pending), 1):
            if sys.stdout.isatty() or done % 10 == 0 or done == len(pending):
                print(f"[{done}/{len(pending)}] {path.relative_to(ROOT)}", flush=True)
            if complaint is not None:
                findings += 1
                print(complaint, flush=True)
    print(f"clang-tidy: {len(jobs)} files, {len(pending)} examined in {time.monotonic() - start:.0f} s, "
          f"{findings} with findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
