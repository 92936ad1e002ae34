# SPDX-License-Identifier: MIT
"""`weir lab`: list, selection, figures."""
import json
import os
import pathlib
import re

from _weir import WeirTest, main

ON_BUFFERS = ["forward", "pairs", "bulk", "cross-cpu"]
EXPERIMENTS = ON_BUFFERS + ["engines", "merge", "low-memory", "mixed-load", "fragmentation", "compaction"]


class Lab(WeirTest):
    def test_list(self):
        result = self.run_weir("lab", "list")
        self.assertEqual((result.code, result.err), (0, ""), result)
        for name in EXPERIMENTS:
            self.assertRegex(result.out, rf"(?m)^  {name}: .*\?$")
        for name in ("weir.pool", "weir.page", "weir.frag", "weir.ref", "weir.index", "dpdk.mempool",
                     "dpdk.mbuf", "mimalloc", "jemalloc", "tcmalloc", "glibc", "mutex-list", "spin-list",
                     "floor.none", "floor.rseq", "floor.array"):
            self.assertRegex(result.out, rf"(?m)^  {re.escape(name)} +\w")

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
        self.assertEqual(missing - {"floor.rseq"},
                         {"jemalloc", "mimalloc", "tcmalloc", "dpdk.mempool", "dpdk.mempool+bulk",
                          "dpdk.mempool-stack", "dpdk.mbuf"})

    def test_quick_with_a_filter(self):
        result = self.run_weir("lab", "--quick", "--filter", "mutex-list", "--filter", "weir.page", "--json")
        self.assertEqual(result.code, 0, result)
        _, rows = self.figures(result.out)
        self.assertEqual({row["experiment"] for row in rows}, {*ON_BUFFERS, "merge"})
        self.assertEqual({row["contender"] for row in rows}, {"mutex-list", "weir.page", "floor.arithmetic"})
        cases = {name: sorted({row["case"] for row in rows if row["experiment"] == name}) for name in ON_BUFFERS}
        self.assertEqual(cases, {"forward": ["mix"], "pairs": ["4k"], "bulk": ["64", "8"], "cross-cpu": ["1", "64"]})
        for experiment, case in ((e, c) for e in ON_BUFFERS for c in cases[e]):
            mine = [row for row in rows if row["experiment"] == experiment and row["case"] == case]
            self.assertGreater(self.row(mine, "weir.page", "time")["low"], 0)
            self.assertEqual(self.row(mine, "weir.page", "time")["rounds"], 7)
            self.row(mine, "weir.page", "ratio_to_mutex-list")
            self.row(mine, "weir.page", "zone_lock_acquisitions")
            if experiment != "forward":
                for counter in ("zone_lock_acquisitions", "engine_frames", "refills", "spills"):
                    rate = self.row(mine, "weir.page", f"{counter}_per_million")
                    self.assertEqual(rate["unit"], "per million pages")
        self.assertEqual(os.listdir(self.folder), [])

    def test_engines_stand_beside_a_compare_and_swap(self):
        result = self.run_weir("lab", "engines", "--quick", "--json")
        self.assertEqual(result.code, 0, result)
        _, rows = self.figures(result.out)
        self.assertEqual({row["case"] for row in rows}, {"single", "cluster", "scattered", "order9"})
        for case in ("single", "cluster", "scattered", "order9"):
            mine = [row for row in rows if row["case"] == case]
            self.assertGreater(self.row(mine, "weir.bitmap", "ratio_to_floor.cmpxchg")["low"], 0)
            self.assertGreater(self.row(mine, "weir.bitmap", "ratio_to_weir.buddy")["low"], 0)

    def test_one_experiment_by_name_with_everybody(self):
        result = self.run_weir("lab", "pairs", "--quick", "--rounds", "1", "--html", "lab.html", "--json", "x")
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertIn("pairs 4k", result.out)
        self.assertNotIn("cross-cpu", result.out)
        self.assertIn("too few rounds", result.out)
        self.assertIn("<svg", (self.folder / "lab.html").read_text())
        _, rows = self.figures((self.folder / "x").read_text())
        self.assertEqual({row["experiment"] for row in rows}, {"pairs"})
        for contender in ("weir.page", "weir.ref", "weir.pool", "weir.frag", "glibc", "floor.array"):
            self.assertGreater(self.row(rows, contender, "time")["median"], 0)

    def test_a_case_by_name(self):
        result = self.run_weir("lab", "bulk", "cross-cpu", "--quick", "--rounds", "1", "--case", "4", "--case", "12*",
                               "--filter", "weir.*", "--filter", "mutex-list", "--json")
        self.assertEqual(result.code, 0, result)
        _, rows = self.figures(result.out)
        self.assertEqual({(row["experiment"], row["case"]) for row in rows},
                         {("bulk", "4"), ("bulk", "128"), ("cross-cpu", "4"), ("cross-cpu", "128")})
        for contender in ("weir.page", "weir.ref", "weir.index", "mutex-list"):
            mine = [row for row in rows if row["experiment"] == "bulk" and row["case"] == "128"]
            self.assertGreater(self.row(mine, contender, "time")["median"], 0)
        result = self.run_weir("lab", "bulk", "--case", "7")
        self.assert_bad_usage(result, "no case is left", "weir lab list")

    def test_the_floor_touches_as_many_pages_as_weir(self):
        result = self.run_weir("lab", "cross-cpu", "--quick", "--rounds", "1", "--case", "64", "--filter", "weir.page",
                               "--filter", "floor.none*", "--json")
        self.assertEqual(result.code, 0, result)
        _, rows = self.figures(result.out)
        pages = {self.row(rows, contender, "distinct_pages")["median"]
                 for contender in ("weir.page", "floor.none", "floor.none+coloured")}
        self.assertEqual(len(pages), 1, pages)
        self.assertGreater(pages.pop(), 0)

    def bounds(self, *at_most):
        path = self.folder / "bounds.json"
        path.write_text(json.dumps({"schema": "weir-bounds/1", "bounds": [
            {"experiment": "pairs", "case": "4k", "contender": "weir.page", "references": ["mutex-list"],
             "at_most": bound} for bound in at_most]}))
        return str(path)

    def check(self, *more, rounds=7):
        return self.run_weir("lab", "pairs", "--quick", "--rounds", str(rounds), "--filter", "weir.page",
                             "--filter", "mutex-list", *more)

    def test_bounds(self):
        bounds = self.bounds(1e9, 1e-9)
        result = self.check("--check", bounds)
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertRegex(result.out, r"(?m)^pairs 4k: weir\.page +1e\+09 .* mutex-list +met(: in a noisy run)?$")
        self.assertRegex(result.out, r"(?m)^pairs 4k: weir\.page +1e-09 .* mutex-list +not met(: in a noisy run)?$")
        result = self.check("--check", bounds, "--strict")
        self.assert_one_line(result, 1, "pairs 4k", "1e-09", "not met")
        result = self.check("--check", self.bounds(1e9), "--strict", "--json")
        self.assertEqual(result.code, 0, result)
        document, _ = self.figures(result.out)
        self.assertEqual([bound["verdict"] for bound in document["bounds"]], ["met"])

    def test_bounds_that_nothing_decides(self):
        result = self.check("--check", self.bounds(1e9), rounds=1)
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertIn("not decided by this run: too few rounds", result.out)
        result = self.run_weir("lab", "bulk", "--quick", "--rounds", "1", "--case", "8", "--filter", "weir.page",
                               "--check", self.bounds(1e9), "--strict")
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertRegex(result.out, r"(?m)not run$")

    def test_bounds_that_are_none(self):
        self.assert_bad_usage(self.check("--check", "nowhere.json"), "nowhere.json", "cannot be read")
        (self.folder / "no.json").write_text("{}")
        self.assert_bad_usage(self.check("--check", "no.json"), "no.json", "schema")
        self.assert_bad_usage(self.check("--strict"), "--check")

    def test_the_bounds_of_the_repository_can_be_read(self):
        path = pathlib.Path(__file__).resolve().parent.parent.parent / "lab" / "bounds.json"
        result = self.check("--check", str(path), rounds=1)
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertIn("cross-cpu 64: weir.ref", result.out)

    def test_one_cpu(self):
        result = self.run_weir("lab", "cross-cpu", "--quick", "--filter", "spin*", "--filter", "weir.pool",
                               prefix=self.one_cpu())
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertRegex(result.out, r"(?m)^weir\.pool +\d")

    def test_only_missing_contenders_is_a_failure(self):
        result = self.run_weir("lab", "pairs", "--quick", "--filter", "tcmalloc",
                               env={"WEIR_LAB_NO_DLOPEN": "1"})
        self.assert_one_line(result, 1)
        self.assertIn("not found: package libtcmalloc-minimal4", result.out)


if __name__ == "__main__":
    main()
