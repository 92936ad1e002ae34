#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_layers: each way to break the include rule is found, and what the rule allows passes."""
import pathlib
import re
import unittest

from _tree import SCRIPTS, TreeTest

RANKS = """# ranks
| rank | layer | owns |
|-----:|-------|------|
| 0 | base | units |
| 4 | zone | frames |
| 7 | frag | fragments |
| 7 | pool | pools |
| 9 | io | ports |
"""


class CheckLayers(TreeTest):
    script = "check_layers.py"

    def tree(self, **files):
        return {"weir/README.md": RANKS, **{name.replace("__", "/") + ".hpp": text for name, text in files.items()}}

    def test_downward_own_layer_and_standard_headers_pass(self):
        self.assert_clean(self.tree(
            weir__zone__zone='#include <vector>\n#include "weir/base/types.hpp"\n#include "weir/zone/engine.hpp"\n',
            weir__base__types="#include <cstdint>\n",
            weir__io__pcap_port="#include <pcap/pcap.h>\n"))

    def test_umbrella_header_may_include_all(self):
        self.assert_clean(self.tree(weir__weir='#include "weir/io/port.hpp"\n#include "weir/base/types.hpp"\n'))

    def test_upward_include_is_found_with_its_line(self):
        self.assert_one_finding(self.tree(weir__base__types='#include <vector>\n#include "weir/zone/zone.hpp"\n'),
                                "weir/base/types.hpp:2", "upward")

    def test_angle_brackets_are_no_way_around(self):
        self.assert_one_finding(self.tree(weir__base__types="#  include <weir/zone/zone.hpp>\n"), "upward")

    def test_sibling_include_is_found(self):
        self.assert_one_finding(self.tree(weir__pool__pool='#include "weir/frag/frag_cache.hpp"\n'), "sibling")

    def test_unknown_layer_in_an_include_is_found(self):
        self.assert_one_finding(self.tree(weir__pool__pool='#include "weir/extra/x.hpp"\n'), "extra has no rank")

    def test_folder_without_a_rank_is_found(self):
        self.assert_one_finding(self.tree(weir__extra__x="\n"), "weir/extra", "without a rank")

    def test_layer_that_includes_an_umbrella_header_is_found(self):
        self.assert_one_finding(self.tree(weir__io__port='#include "weir/weir.hpp"\n'), "umbrella")

    def test_path_relative_to_the_file_is_found(self):
        self.assert_one_finding(self.tree(weir__zone__zone='#include "../io/port.hpp"\n'), "repository root")

    def test_program_headers_and_foreign_libraries_are_found(self):
        self.assert_one_finding(self.tree(weir__zone__zone='#include "lab/harness/rows.hpp"\n'), "stands above")
        self.assert_one_finding(self.tree(weir__zone__zone="#include <fmt/format.h>\n"), "libc")
        self.assert_one_finding(self.tree(weir__zone__zone="#include <pcap/pcap.h>\n"), "libc")

    def test_readme_without_ranks_is_found(self):
        self.assert_one_finding({"weir/README.md": "nothing\n"}, "no table of ranks")

    def test_the_build_declares_the_same_ranks(self):
        root = SCRIPTS.parent
        build = re.findall(r"^weir_layer\((\w+)\s+(\d+)", pathlib.Path(root, "CMakeLists.txt").read_text(), re.M)
        table = re.findall(r"^\|\s*(\d+)\s*\|\s*(\w+)\s*\|", pathlib.Path(root, "weir/README.md").read_text(), re.M)
        self.assertTrue(table)
        self.assertEqual(sorted((layer, int(rank)) for rank, layer in table),
                         sorted((layer, int(rank)) for layer, rank in build))


if __name__ == "__main__":
    unittest.main()
