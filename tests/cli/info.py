# SPDX-License-Identifier: MIT
"""`weir info`, `weir --version` and the help texts."""
import json
import os
import platform

from _weir import WeirTest, main


class Info(WeirTest):
    def test_version_and_help(self):
        result = self.run_weir("--version")
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertRegex(result.out, r"^weir \d+\.\d+\.\d+ \(.*\)\n$")
        for args, words in [
            (("--help",), ("demo", "lab", "info", "Exit codes")),
            (("demo", "--help"), ("--seconds", "--capture", "--rounds", "--json", "--html", "--no-html")),
            (("lab", "--help"), ("--quick", "--filter", "--rounds", "--json", "--html", "list",
                                 "WEIR_LAB_NO_DLOPEN")),
            (("info", "--help"), ("--json", "--options")),
            (("map", "--help"), ("--movable", "--rounds", "--given", "--width", "--json")),
        ]:
            with self.subTest(args=args):
                result = self.run_weir(*args)
                self.assertEqual((result.code, result.err), (0, ""), result)
                for word in words:
                    self.assertIn(word, result.out)

    def test_text_names_what_there_is_and_why(self):
        result = self.run_weir("info")
        self.assertEqual(result.code, 0, result)
        for word in (platform.release(), "per-CPU lists", "transparent huge pages", "NUMA nodes", "AF_XDP",
                     "io_uring", "locked memory", "restartable sequences", "capacity", "watermark low"):
            self.assertIn(word, result.out)
        self.assertEqual([line for line in result.out.splitlines() if line != line.rstrip()], [])

    def test_json_is_all_there_is_on_standard_output(self):
        result = self.run_weir("info", "--json")
        self.assertEqual(result.code, 0, result)
        document, rows = self.figures(result.out)
        self.assertEqual(document["machine"]["kernel"], platform.release())
        self.assertEqual(document["machine"]["cpus"], len(os.sched_getaffinity(0)))
        self.assertIn(document["machine"]["modes"]["lists"], ("rseq", "locked", "off"))
        self.assertEqual(self.row(rows, "weir.page", "managed")["median"], 65536)
        facts = {fact["name"]: fact for fact in document["facts"]}
        self.assertEqual(facts["AF_XDP"]["value"] in ("yes", "no"), True)
        self.assertNotEqual(facts["per-CPU lists"]["why"], "")
        managed = 65536 * 4096
        parts = [row["median"] for row in rows if row["metric"].startswith("metadata_")]
        self.assertEqual(sum(parts), self.row(rows, "weir.page", "metadata")["median"])
        self.assertLessEqual(sum(parts), 0.009 * managed)

    def test_json_into_a_file_leaves_the_text(self):
        result = self.run_weir("info", "--json", "info.json")
        self.assertEqual(result.code, 0, result)
        self.assertIn("per-CPU lists", result.out)
        self.figures((self.folder / "info.json").read_text())

    def test_options_change_what_is_effective(self):
        result = self.run_weir("info", "--json", "--options", "capacity=8M,lists=off",
                               env={"WEIR_OPTIONS": "capacity=32M,free_order0=engine"})
        self.assertEqual(result.code, 0, result)
        document, rows = self.figures(result.out)
        self.assertEqual(self.row(rows, "weir.page", "managed")["median"], 2048)
        self.assertEqual(document["machine"]["modes"]["lists"], "off")
        facts = {fact["name"]: fact["value"] for fact in document["facts"]}
        self.assertEqual(facts["free_order0"], "engine")
        self.assertEqual(facts["lists"], "off")

    def test_one_cpu(self):
        result = self.run_weir("info", "--json", prefix=self.one_cpu())
        self.assertEqual(result.code, 0, result)
        self.assertEqual(json.loads(result.out)["machine"]["cpus"], 1)

    def test_unprivileged(self):
        result = self.run_weir("info", prefix=self.as_nobody(self.folder))
        self.assertEqual((result.code, result.err), (0, ""), result)

    def test_a_full_disk_is_a_failure(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        self.assert_one_line(self.run_weir("info", "--json", "/dev/full"), 1, "/dev/full")


if __name__ == "__main__":
    main()
