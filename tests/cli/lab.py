# SPDX-License-Identifier: MIT
"""`weir lab`: list, selection, figures."""
import json
import os

from _weir import WeirTest, main

EXPERIMENTS = ["forward", "pair", "bulk", "cross"]


class Lab(WeirTest):
    def test_list(self):
        result = self.run_weir("lab", "list")
        self.assertEqual((result.code, result.err), (0, ""), result)
        for name in EXPERIMENTS:
            self.assertRegex(result.out, rf"(?m)^  {name}: .*\?$")
        for name in ("weir.pool", "weir.page", "weir.frag", "dpdk.mempool", "mimalloc", "jemalloc",
                     "tcmalloc", "glibc", "mutex-list", "spin-list", "floor.none"):
            self.assertRegex(result.out, rf"(?m)^  {name} +\w")

    def test_list_as_json(self):
        result = self.run_weir("lab", "list", "--json")
        self.assertEqual((result.code, result.err), (0, ""), result)
        document, rows = self.figures(result.out)
        self.assertEqual(rows, [])
        self.assertEqual([e["name"] for e in document["experiments"]], EXPERIMENTS)
        known = {c["name"] for c in document["contenders"]}
        for experiment in document["experiments"]:
            self.assertTrue(set(experiment["contenders"]) <= known)
            self.assertTrue(experiment["question"] and experiment["expected"] and experiment["cases"])

    def test_list_without_libraries(self):
        result = self.run_weir("lab", "list", "--json", env={"WEIR_LAB_NO_DLOPEN": "1"})
        missing = {c["name"] for c in json.loads(result.out)["contenders"] if c["missing"]}
        self.assertEqual(missing, {"jemalloc", "mimalloc", "tcmalloc", "dpdk.mempool", "dpdk.mempool-stack"})

    def test_quick_with_a_filter(self):
        result = self.run_weir("lab", "--quick", "--filter", "mutex-list", "--filter", "weir.page", "--json")
        self.assertEqual(result.code, 0, result)
        _, rows = self.figures(result.out)
        self.assertEqual({row["experiment"] for row in rows}, set(EXPERIMENTS))
        self.assertEqual({row["contender"] for row in rows}, {"mutex-list", "weir.page", "floor.arithmetic"})
        for experiment in EXPERIMENTS:
            mine = [row for row in rows if row["experiment"] == experiment]
            self.assertGreater(self.row(mine, "weir.page", "time")["low"], 0)
            self.assertEqual(self.row(mine, "weir.page", "time")["rounds"], 7)
            self.row(mine, "weir.page", "ratio_to_mutex-list")
            self.row(mine, "weir.page", "zone_lock_acquisitions")
        self.assertEqual(os.listdir(self.folder), [])

    def test_one_experiment_by_name_with_everybody(self):
        result = self.run_weir("lab", "pair", "--quick", "--rounds", "1", "--html", "lab.html", "--json", "x")
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertIn("pair page", result.out)
        self.assertNotIn("cross", result.out)
        self.assertIn("too few rounds", result.out)
        self.assertIn("<svg", (self.folder / "lab.html").read_text())
        _, rows = self.figures((self.folder / "x").read_text())
        self.assertEqual({row["experiment"] for row in rows}, {"pair"})
        for contender in ("weir.page", "weir.pool", "weir.frag", "weir.pool+free_order0=engine", "glibc"):
            self.assertGreater(self.row(rows, contender, "time")["median"], 0)

    def test_one_cpu(self):
        result = self.run_weir("lab", "cross", "--quick", "--filter", "spin*", "--filter", "weir.pool",
                               prefix=self.one_cpu())
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertRegex(result.out, r"(?m)^weir\.pool +\d")

    def test_only_missing_contenders_is_a_failure(self):
        result = self.run_weir("lab", "pair", "--quick", "--filter", "tcmalloc",
                               env={"WEIR_LAB_NO_DLOPEN": "1"})
        self.assert_one_line(result, 1)
        self.assertIn("not found: package libtcmalloc-minimal4", result.out)


if __name__ == "__main__":
    main()
