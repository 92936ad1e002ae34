#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_orders: an order without a named partner is found, wherever the comment may stand it passes."""
import unittest

from _tree import TreeTest


class CheckOrders(TreeTest):
    script = "check_orders.py"

    def one(self, text):
        return {"weir/pool/ring.hpp": text}

    def test_partner_on_the_line_or_up_to_three_above_passes(self):
        self.assert_clean(self.one("a.store(1, std::memory_order_release);  // pairs: Ring::pop acquire\n"))
        self.assert_clean(self.one("// pairs: Ring::push release\nint x;\nint y;\na.load(memory_order_acquire);\n"))

    def test_relaxed_needs_no_partner(self):
        self.assert_clean(self.one("a.load(std::memory_order_relaxed);\n"))

    def test_order_in_a_comment_and_in_a_using_declaration_needs_none(self):
        self.assert_clean(self.one("// memory_order_acquire is not enough here\nusing std::memory_order_acquire;\n"))

    def test_every_order_and_both_spellings_are_found(self):
        for order in ("acquire", "release", "acq_rel", "seq_cst", "consume"):
            self.assert_one_finding(self.one(f"a.load(std::memory_order_{order});\n"), "ring.hpp:1", order)
        self.assert_one_finding(self.one("a.load(std::memory_order::acquire);\n"), "acquire")

    def test_partner_four_lines_above_is_too_far(self):
        self.assert_one_finding(self.one("// pairs: x\n\n\n\na.load(memory_order_acquire);\n"), "ring.hpp:5")

    def test_partner_without_a_name_is_found(self):
        self.assert_one_finding(self.one("a.load(memory_order_acquire);  // pairs:\n"), "acquire")

    def test_sources_count_like_headers(self):
        self.assert_one_finding({"weir/os/lock.cpp": "a.load(memory_order_acquire);\n"}, "lock.cpp:1")


if __name__ == "__main__":
    unittest.main()
