# SPDX-License-Identifier: MIT
"""`weir demo`: figures, report, and the conditions it must run under."""
import os
import signal
import subprocess

from _weir import TIMEOUT, WeirTest, frame, main, pcap

# Contenders that are always there.
ALWAYS = ("weir.pool", "glibc", "mutex-list", "mutex-list+bulk")
LOADED = ("dpdk.mempool", "mimalloc", "jemalloc", "tcmalloc")


class Demo(WeirTest):
    def test_figures(self):
        result = self.run_weir("demo", "--seconds", "1", "--json")
        self.assertEqual(result.code, 0, result)
        document, rows = self.figures(result.out)
        self.assertEqual({row["experiment"] for row in rows}, {"forward"})
        self.assertEqual({row["case"] for row in rows}, {"mix"})
        for contender in ALWAYS:
            rate = self.row(rows, contender, "rate")
            self.assertEqual(rate["unit"], "packets/s")
            self.assertGreater(rate["low"], 0)
            self.assertGreaterEqual(rate["rounds"], 7)
            self.assertEqual(self.row(rows, contender, "time")["unit"], "ns")
            self.row(rows, contender, "ratio_to_best_other")
        self.row(rows, "weir.pool", "ratio_to_glibc")
        for contender in LOADED:
            if not any(row["contender"] == contender for row in rows):
                self.assertIn("package", document["machine"]["modes"]["without " + contender])
        # The rate of progress is told elsewhere.
        self.assertIn("round 7 of 7", result.err)
        self.assertEqual(os.listdir(self.folder), ["weir-report.html"])

    def test_steady_forwarding_keeps_off_the_zone_lock(self):
        result = self.run_weir("demo", "--seconds", "1", "--filter", "weir.pool", "--json", "--no-html")
        self.assertEqual(result.code, 0, result)
        _, rows = self.figures(result.out)
        holds = self.row(rows, "weir.pool", "zone_lock_acquisitions")
        bound = self.row(rows, "weir.pool", "zone_lock_bound")
        self.assertLessEqual(holds["median"], bound["median"])
        self.assertLessEqual(holds["high"], bound["high"])
        self.assertEqual(self.row(rows, "weir.pool", "zone_frames_crossing")["median"] * 2 / 64,
                         bound["median"])
        self.assertGreater(self.row(rows, "weir.pool", "pool_from_ring")["median"], 0)

    def test_text_and_report(self):
        result = self.run_weir("demo", "--seconds", "1", "--json", "x.json", "--html", "x.html")
        self.assertEqual((result.code, result.err), (0, ""), result)
        for word in ("Mpackets/s", "weir.pool", "Zone lock: taken", "kept", "x.html", "round 7 of 7"):
            self.assertIn(word, result.out)
        for contender in LOADED:
            self.assertIn("\n" + contender, result.out)
        page = (self.folder / "x.html").read_text()
        for word in ("<svg", "weir.pool", "Zone lock", "</html>"):
            self.assertIn(word, page)
        self.assertNotIn("http", page)
        self.figures((self.folder / "x.json").read_text())
        self.assertEqual(sorted(os.listdir(self.folder)), ["x.html", "x.json"])

    def test_no_report(self):
        result = self.run_weir("demo", "--seconds", "0.1", "--filter", "*list", "--no-html")
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertEqual(os.listdir(self.folder), [])
        self.assertNotIn("glibc", result.out)

    def test_contenders_missing(self):
        result = self.run_weir("demo", "--seconds", "0.5", "--no-html", env={"WEIR_LAB_NO_DLOPEN": "1"})
        self.assertEqual((result.code, result.err), (0, ""), result)
        for contender in LOADED:
            self.assertRegex(result.out, rf"(?m)^{contender} +not found: package ")
        for contender in ALWAYS:
            self.assertRegex(result.out, rf"(?m)^{contender.replace('+', '.')} +\d")

    def test_one_cpu(self):
        result = self.run_weir("demo", "--seconds", "1", "--no-html", prefix=self.one_cpu())
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertIn("both threads share it", result.out)
        self.assertRegex(result.out, r"(?m)^weir\.pool +\d")

    def test_unprivileged(self):
        result = self.run_weir("demo", "--seconds", "1", prefix=self.as_nobody(self.folder))
        self.assertEqual((result.code, result.err), (0, ""), result)
        self.assertTrue((self.folder / "weir-report.html").exists())

    def test_a_folder_that_cannot_be_written_costs_the_report_only(self):
        prefix = self.as_nobody(self.folder)
        self.folder.chmod(0o555)
        result = self.run_weir("demo", "--seconds", "0.2", "--filter", "*list", prefix=prefix)
        self.assert_one_line(result, 1, "weir-report.html")
        self.assertRegex(result.out, r"(?m)^mutex-list +\d")

    def test_own_capture(self):
        (self.folder / "mine.pcap").write_bytes(pcap([frame(60), frame(1514), frame(300)]))
        result = self.run_weir("demo", "--seconds", "0.3", "--capture", "mine.pcap", "--rounds", "2",
                               "--filter", "weir.pool", "--filter", "glibc", "--json", "--no-html")
        self.assertEqual(result.code, 0, result)
        _, rows = self.figures(result.out)
        self.assertEqual({row["case"] for row in rows}, {"mine"})
        self.assertEqual({row["rounds"] for row in rows if row["metric"] == "rate"}, {2})

    def test_a_capture_that_cannot_be_forwarded_is_a_failure(self):
        expired = bytes(12) + b"\x08\x00" + bytes([0x45, 0, 0, 46, 0, 0, 0, 0, 1, 17]) + bytes(36)
        (self.folder / "expired.pcap").write_bytes(pcap([expired]))
        result = self.run_weir("demo", "--seconds", "0.2", "--capture", "expired.pcap", "--no-html",
                               "--filter", "mutex-list")
        self.assert_one_line(result, 1, "mutex-list")

    def test_too_little_memory_is_a_failure(self):
        if "+" in self.run_weir("--version").out:
            self.skipTest("a sanitizer needs terabytes of address space itself")
        result = self.run_weir("demo", "--seconds", "0.2", "--no-html", "--filter", "weir.pool",
                               env={"WEIR_OPTIONS": "capacity=900G,thp=off"},
                               prefix=("prlimit", f"--as={2 << 30}"))
        self.assert_one_line(result, 1, "memory")

    def interrupted(self, *args):
        """Runs until the first round is told, sends SIGINT; the rest of the output."""
        process = subprocess.Popen([self.weir, "demo", "--seconds", "100", *args], cwd=self.folder,
                                   env=self.environment(), stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        out = ""
        for line in process.stdout:
            out += line
            if "round 1 of" in line:
                break
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=TIMEOUT)
        return process.returncode, out + rest, err

    def test_interrupted(self):
        code, out, err = self.interrupted("--filter", "mutex*", "--json", "x.json")
        self.assertEqual(code, 1, err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertTrue(err.startswith("weir: interrupted"), err)
        self.assertRegex(out, r"(?m)^mutex-list +\d")
        _, rows = self.figures((self.folder / "x.json").read_text())
        self.assertIn(self.row(rows, "mutex-list", "rate")["rounds"], (1, 2, 3))
        self.assertTrue((self.folder / "weir-report.html").exists())

    def test_standard_output_that_is_full_is_a_failure(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([self.weir, "demo", "--seconds", "0.1", "--filter", "*list", "--no-html"],
                                  cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("standard output", done.stderr)


if __name__ == "__main__":
    main()
