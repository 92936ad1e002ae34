#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_docs.py [ROOT]: prose that names a path of this repository tells the truth.

Looks at README.md, weir/README.md and docs/**/*.md: each path in backticks exists, each relative link resolves, and
docs/stats.md and docs/options.md say what their lists say. Code blocks are not prose. Prints one line a finding;
exit code 1 if there is any.
"""
import pathlib
import re
import sys

import write_docs

FOLDERS = {"weir", "lab", "apps", "capi", "plugins", "examples", "tests", "docs", "cmake", "scripts", "data", ".ci"}
ENDINGS = {".hpp", ".cpp", ".h", ".c", ".def", ".py", ".sh", ".md", ".txt", ".cmake", ".json", ".pcap", ".in"}
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
PATH = re.compile(r"^[A-Za-z0-9_.+*-]+(?:/[A-Za-z0-9_.+*-]+)*/?$")


def prose(text):
    """(line number, line) outside fenced blocks."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"^\s*(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark.group(1)
        elif mark and mark.group(1).startswith(fence):
            fence = None
        elif fence is None:
            yield number, line


def named_path(code):
    """The path that a code span names, or None: its first word, without ./ and without :line."""
    word = code.split()[0] if code.split() else ""
    dotted = word.startswith("./")
    word = re.sub(r"(?::\d+(?:-\d+)?)$", "", word.removeprefix("./"))
    if not PATH.match(word) or word.startswith(("build/", "-")):
        return None
    parts = word.rstrip("/").split("/")
    ending = pathlib.PurePosixPath(word).suffix
    if dotted:
        return word
    if len(parts) == 1:
        return word if word.endswith("/") and parts[0] in FOLDERS else None
    if ending in ENDINGS:
        return word
    # Without an ending it is a path only if it is spelled like one: `weir/zone`, but not `weir/1`.
    spelled = all(re.fullmatch(r"[a-z_.*-]+", part) for part in parts)
    return word if parts[0] in FOLDERS and spelled else None


def exists(root, document, word):
    # `zone/zone.hpp` is short for weir/zone/zone.hpp; `weir/zone/buddy_engine` names a .hpp + .cpp pair.
    for base in (root, root / "weir", document.parent):
        for candidate in (word, word + ".hpp"):
            if "*" in candidate:
                if any(base.glob(candidate.rstrip("/"))):
                    return True
            elif (base / candidate).exists():
                return True
    return False


def check_page(root, document):
    name = document.relative_to(root)
    findings = []
    for number, line in prose(document.read_text(encoding="utf-8")):
        for code in CODE.findall(line):
            word = named_path(code)
            if word and not exists(root, document, word):
                findings.append(f"{name}:{number}: `{word}` does not exist")
        for link in LINK.findall(CODE.sub("", line)):
            target = link.split("#", 1)[0]
            if target and not re.match(r"^[a-z][a-z0-9+.-]*:", target):
                base = root if target.startswith("/") else document.parent
                if not (base / target.lstrip("/")).exists():
                    findings.append(f"{name}:{number}: link to {target} leads nowhere")
    return findings


def check_generated(root):
    findings = []
    try:
        for name, text in write_docs.pages(root):
            path = root / name
            if not path.exists():
                findings.append(f"{name}: missing; write it with ./dev docs")
            elif path.read_text(encoding="utf-8") != text:
                findings.append(f"{name}: differs from its list; write it again with ./dev docs")
    except write_docs.ListError as error:
        findings.append(str(error))
    return findings


def check(root):
    documents = [root / "README.md", root / "weir" / "README.md", *sorted((root / "docs").rglob("*.md"))]
    findings = []
    for document in documents:
        if document.exists():
            findings += check_page(root, document)
    return findings + check_generated(root)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    findings = check(root)
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
