# SPDX-License-Identifier: MIT
"""`weir map`: every stage is drawn and counted, and compaction wins what can be won."""
from _weir import WeirTest, main

STAGES = ("scattered", "churned", "drained", "compacted", "empty", "trimmed")


class Map(WeirTest):
    def rows_of(self, *args):
        result = self.run_weir("map", "--json", *(args or ("--options", "capacity=32M")))
        self.assertEqual(result.code, 0, result)
        _, rows = self.figures(result.out)
        return {(row["case"], row["metric"]): row["median"] for row in rows}

    def test_every_pageblock_is_one_sign(self):
        result = self.run_weir("map", "--options", "capacity=32M", "--movable", "--width", "10")
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertEqual([line for line in result.out.splitlines() if line != line.rstrip()], [])
        for stage in STAGES:
            self.assertIn(f"\n{stage}: ", result.out)
            drawn = result.out.split(f"\n{stage}: ")[1].split("\n\n")[0].splitlines()[1:]
            self.assertEqual([len(line.split()[1]) for line in drawn], [10, 6], stage)
        self.assertIn("..........", result.out.split("\nempty: ")[1])

    def test_compaction_wins_all_that_can_be_won(self):
        for engine in ("bitmap", "buddy"):
            with self.subTest(engine=engine):
                rows = self.rows_of("--movable", "--options", f"capacity=32M,engine={engine}")
                self.assertEqual(rows["compacted", "whole_pageblocks"],
                                 rows["compacted", "free"] // 512)
                self.assertLess(rows["scattered", "whole_pageblocks"], 2)
                self.assertEqual(rows["empty", "free_blocks_order10"], 8)
                self.assertEqual(rows["scattered", "unusable_index_order9"], 1000)
                self.assertEqual(rows["empty", "unusable_index_order9"], 0)

    def test_without_movables_nothing_is_compacted(self):
        rows = self.rows_of()
        self.assertNotIn(("compacted", "free"), rows)
        self.assertIn(("drained", "free"), rows)

    def test_bad_usage_is_one_line(self):
        for args in (("--given", "2"), ("--rounds", "-1"), ("--width", "0"), ("--options", "capacity=x")):
            with self.subTest(args=args):
                self.assert_bad_usage(self.run_weir("map", *args))


if __name__ == "__main__":
    main()
