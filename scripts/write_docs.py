#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""write_docs.py [ROOT]: writes docs/stats.md and docs/options.md from the lists the library is built from.

weir/base/counters.def   WEIR_COUNTER(layer, kind, unit, name, "help")
weir/os/options.def      WEIR_OPTION(type, name, default, min, max, "help")

scripts/check_docs.py imports this file and compares, so the pages cannot fall behind the lists.
"""
import pathlib
import re
import sys

STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


class ListError(Exception):
    pass


def without_comments(text):
    """Line comments go; a `//` inside a string (an address, say) stays."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda match: match.group(1) or "", text)


def split_arguments(text):
    """Splits at commas outside strings and brackets."""
    arguments, depth, current, in_string, escaped = [], 0, "", False, False
    for char in text:
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string = True
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            arguments.append(current.strip())
            current = ""
            continue
        current += char
    return arguments + [current.strip()]


def entries(path, macro, fields):
    """The calls of `macro` in a list, as dictionaries. A list may stand in the body of a macro that is handed the
    other one (`#define LIST(X) X(...) ...`): directives lose their first line and their backslashes, no more."""
    text = without_comments(path.read_text(encoding="utf-8"))
    text = re.sub(r"^[ \t]*#[^\n]*$", "", text, flags=re.MULTILINE).replace("\\\n", "\n")
    rows = []
    for call in re.finditer(r"\b" + macro + r'\s*\(((?:"(?:[^"\\]|\\.)*"|[^()"]|\([^()]*\))*)\)', text):
        values = split_arguments(call.group(1))
        if len(values) != len(fields):
            raise ListError(f"{path}: {macro} takes {len(fields)} arguments: {' '.join(call.group(0).split())}")
        values[-1] = "".join(STRING.findall(values[-1])).replace('\\"', '"')
        rows.append(dict(zip(fields, values)))
    if not rows:
        raise ListError(f"{path}: no line of the form {macro}({', '.join(fields)})")
    return rows


def cell(text):
    return text.replace("|", "\\|")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]


def stats_page(path):
    counters = entries(path, "X", ("layer", "kind", "unit", "name", "help"))
    lines = ["# Statistics", "",
             "Written by `./dev docs` from `weir/base/counters.def`; change that list, not this page.",
             "A counter has one writer at a time and is never derived from others."]
    for layer in dict.fromkeys(counter["layer"] for counter in counters):
        rows = [(f"`{c['name']}`", c["kind"], c["unit"], c["help"]) for c in counters if c["layer"] == layer]
        lines += ["", f"## {layer}", ""] + table(("counter", "kind", "unit", "meaning"), rows)
    return "\n".join(lines) + "\n"


def value(expression):
    """A C++ value as a reader of the page wants it: `256_MiB` is 256 MiB, other expressions stay code."""
    size = re.fullmatch(r"(\d+)_([KMGT]iB)", expression)
    if size:
        return f"{size.group(1)} {size.group(2)}"
    plain = re.fullmatch(r'[0-9.]+|[a-z_]+|"[^"]*"', expression)
    return (expression.strip('"') or "(empty)") if plain else f"`{expression}`"


def options_page(path):
    options = entries(path, "WEIR_OPTION", ("type", "name", "default", "min", "max", "help"))
    rows = []
    for option in options:
        ranged = option["min"] != option["max"]
        allowed = f"{value(option['min'])} .. {value(option['max'])}" if ranged else ""
        rows.append((f"`{option['name']}`", option["type"], value(option["default"]), allowed, option["help"]))
    lines = ["# Options", "",
             "Written by `./dev docs` from `weir/os/options.def`; change that list, not this page.",
             "Named constants are those of `weir/base/config.hpp`.", ""]
    return "\n".join(lines + table(("option", "type", "default", "range", "meaning"), rows)) + "\n"


PAGES = (("weir/base/counters.def", "docs/stats.md", stats_page),
         ("weir/os/options.def", "docs/options.md", options_page))


def pages(root):
    """(name of the page, its text) for each list that exists."""
    return [(page, write(root / source)) for source, page, write in PAGES if (root / source).exists()]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    try:
        for name, text in pages(root):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                print(f"wrote {name}")
    except ListError as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
