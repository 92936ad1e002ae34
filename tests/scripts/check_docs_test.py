#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_docs and write_docs: prose that names what is not there is found, and so is a page behind its list."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

from _tree import SCRIPTS, TreeTest

COUNTERS = '''// X(layer, kind, unit, name, "in a comment")
#define COUNTERS_zone(X) \\
  X(zone, event, holds, lock_waits, "times the lock, (held), was | waited for") \\
  X(zone, event, holds, lock_tries, "times it was tried")

#define COUNTERS_io(X) \\
  X(io, event, packets, received, \\
    "packets " \\
    "received; see https://example.org")
'''
OPTIONS = '''WEIR_OPTION(bytes, capacity, 256_MiB, 4_KiB, Bytes{kMax << 2}, "memory of the zone")
WEIR_OPTION(choice, source, anonymous, 0, 0, "where it comes from: anonymous, memfd")
'''


class CheckDocs(TreeTest):
    script = "check_docs.py"

    def test_true_paths_and_links_pass(self):
        self.assert_clean({
            "README.md": "`weir/zone/zone.hpp` `zone/zone.hpp` `weir/zone/zone` `weir/zone/` `docs/*.md` `./dev test`\n"
                         "[map](docs/map.md#way) [site](https://example.org) `weir/zone/zone.hpp:12`\n",
            "docs/map.md": "[up](../README.md) [here](#there)\n",
            "dev": "", "weir/zone/zone.hpp": ""})

    def test_what_is_not_a_path_of_the_repository_passes(self):
        self.assert_clean({"README.md": '`weir/1` `take/give` `alloc()` `/proc/self/maps` `build/release/bin/weir` '
                                        '`a + b` `tests/unit/<layer>/x.hpp` `#include "weir/none.hpp"` `weir demo`\n'})

    def test_code_blocks_are_not_prose(self):
        self.assert_clean({"README.md": "```\n`weir/none.hpp` [x](none.md)\n```\n~~~sh\n`docs/none.md`\n~~~\n"})

    def test_missing_paths_are_found(self):
        for word in ("weir/zone/gone.hpp", "zone/gone.cpp", "weir/gone", "docs/gone/", "tests/gone/*_test.cpp",
                     "./gone", "scripts/gone.py --all"):
            self.assert_one_finding({"README.md": f"\nsee `{word}`\n"}, "README.md:2", "gone", "does not exist")

    def test_prose_after_a_code_block_counts(self):
        self.assert_one_finding({"docs/a/b.md": "```\nx\n```\n`docs/gone.md`\n"}, "docs/a/b.md:4")

    def test_dead_link_is_found(self):
        self.assert_one_finding({"docs/map.md": "[x](gone.md)\n"}, "docs/map.md:1", "leads nowhere")

    def test_page_that_is_missing_or_differs_from_its_list_is_found(self):
        counters = {"weir/base/counters.def": COUNTERS}
        self.assert_one_finding(counters, "docs/stats.md", "missing")
        self.assert_one_finding({**counters, "docs/stats.md": "old\n"}, "docs/stats.md", "differs")
        self.assert_one_finding({"weir/os/options.def": OPTIONS, "docs/options.md": "x\n"}, "docs/options.md")

    def test_line_with_too_few_arguments_is_found(self):
        self.assert_one_finding({"weir/base/counters.def": '#define COUNTERS_zone(X) \\\n  X(zone, event, "help")\n'}, "takes 5 arguments")

    def test_a_list_without_entries_is_found(self):
        self.assert_one_finding({"weir/base/counters.def": "// nothing\n"}, "no line of the form X(layer")


class WriteDocs(unittest.TestCase):
    def test_written_pages_hold_every_entry_and_satisfy_the_checker(self):
        with tempfile.TemporaryDirectory(prefix="weir-tree-") as folder:
            root = pathlib.Path(folder)
            for name, text in (("base/counters.def", COUNTERS), ("os/options.def", OPTIONS), ("base/config.hpp", "")):
                path = root / "weir" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            (root / "dev").touch()
            for script in ("write_docs.py", "check_docs.py"):
                subprocess.run([sys.executable, "-B", str(SCRIPTS / script), folder], check=True,
                               stdout=subprocess.DEVNULL)
            stats = (root / "docs/stats.md").read_text(encoding="utf-8")
            self.assertIn("| `lock_waits` | event | holds | times the lock, (held), was \\| waited for |", stats)
            self.assertIn("| `received` | event | packets | packets received; see https://example.org |", stats)
            self.assertNotIn("in a comment", stats)
            self.assertIn("| `lock_tries` | event | holds | times it was tried |", stats)
            options = (root / "docs/options.md").read_text(encoding="utf-8")
            self.assertIn("| `capacity` | bytes | 256 MiB | 4 KiB .. `Bytes{kMax << 2}` | memory of the zone |", options)
            self.assertIn("| `source` | choice | anonymous |  | where it comes from: anonymous, memfd |", options)


if __name__ == "__main__":
    unittest.main()
