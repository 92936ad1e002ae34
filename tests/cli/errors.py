# SPDX-License-Identifier: MIT
"""Bad input: exit code 2, exactly one line on standard error, nothing on standard output, no file."""
import os
import subprocess

from _weir import WeirTest, frame, main, pcap


class BadUsage(WeirTest):
    def bad(self, *args, says=(), env=None, prefix=()):
        result = self.run_weir(*args, env=env, prefix=prefix)
        self.assert_bad_usage(result, *says)

    def test_command_line(self):
        for args, says in [
            ((), ("no command",)),
            (("frobnicate",), ("frobnicate",)),
            (("--frobnicate",), ("--frobnicate",)),
            (("--json",), ("--json",)),
            (("demo", "--frobnicate"), ("--frobnicate",)),
            (("demo", "extra"), ("extra",)),
            (("info", "extra"), ("extra",)),
            (("demo", "--no-html", "--html", "x.html"), ("--html",)),
        ]:
            with self.subTest(args=args):
                self.bad(*args, says=says)

    def test_seconds(self):
        for value in ("0", "-1", "abc", "1e99", "nan", "inf", "3601", "", "1s"):
            with self.subTest(value=value):
                self.bad("demo", "--seconds", value, says=("--seconds",))
        self.bad("demo", "--seconds", says=("--seconds",))

    def test_rounds(self):
        for command in ("demo", "lab"):
            for value in ("0", "-1", "1002", "7.5", "abc", "99999999999999999999999"):
                with self.subTest(command=command, value=value):
                    self.bad(command, "--rounds", value, says=("--rounds",))

    def test_names(self):
        self.bad("lab", "nothing", says=("'nothing'", "weir lab list"))
        self.bad("lab", "pairs", "nothing", says=("'nothing'",))
        self.bad("lab", "--filter", "zz*", says=("zz*",))
        self.bad("lab", "--filter", "weir.page", "--filter", "zz*", says=("zz*",))
        self.bad("demo", "--filter", "zz*", says=("zz*",))
        self.bad("lab", "pairs", "--filter", "floor.none", says=("floor.none",))
        self.bad("lab", "--json", "pairs", says=("pairs", "--json"))

    def test_options_of_the_environment(self):
        for command in (("demo",), ("lab",), ("info",)):
            with self.subTest(command=command):
                self.bad(*command, env={"WEIR_OPTIONS": "frobnicate=1"}, says=("frobnicate",))
        self.bad("demo", env={"WEIR_OPTIONS": "capacity=lots"}, says=("capacity",))

    def test_options_of_info(self):
        for text in ("frobnicate=1", "capacity=0", "capacity=99999999999999999999", "capacity=",
                     "source=heaven", "thp", "capacity=4K,reserve=1", "capacity=1M,,thp=on"):
            with self.subTest(text=text):
                self.bad("info", "--options", text)

    def test_captures(self):
        files = {
            "empty.pcap": b"",
            "no_frame.pcap": pcap([]),
            "text.pcap": b"This is a text and not a capture, whatever its name says.\n" * 10,
            "truncated_header.pcap": pcap([frame(60)])[:30],
            "truncated_frame.pcap": pcap([frame(60), frame(1514)])[:-100],
            "damaged.pcap": pcap([frame(60)])[:24] + b"\xff" * 64,
            "not_ethernet.pcap": pcap([frame(60)])[:20] + b"\x71\0\0\0" + pcap([frame(60)])[24:],
        }
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
            with self.subTest(name=name):
                self.bad("demo", "--capture", name, says=(name,))
        self.bad("demo", "--capture", "missing.pcap", says=("missing.pcap",))
        self.bad("demo", "--capture", str(self.folder), says=(str(self.folder),))
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(files))

    def test_capture_without_a_name(self):
        self.bad("demo", "--capture", "", says=("--capture",))

    def test_unreadable_capture(self):
        path = self.folder / "secret.pcap"
        path.write_bytes(pcap([frame(60)]))
        path.chmod(0)
        self.bad("demo", "--capture", "secret.pcap", says=("secret.pcap",),
                 prefix=self.as_nobody(self.folder))

    def test_unwritable_results(self):
        for command in (("demo",), ("lab", "--quick"), ("info",), ("lab", "list")):
            with self.subTest(command=command):
                self.bad(*command, "--json", "no/such/folder/x.json", says=("no/such/folder/x.json",))
        self.bad("demo", "--json", str(self.folder), says=(str(self.folder),))
        self.bad("demo", "--html", "no/such/folder/x.html", says=("no/such/folder/x.html",))
        self.bad("lab", "--html", "no/such/folder/x.html", says=("no/such/folder/x.html",))

    def test_one_file_for_two_results(self):
        self.bad("demo", "--json", "x", "--html", "x", says=("'x'",))
        self.assertEqual(os.listdir(self.folder), [])

    def test_help_that_cannot_be_written(self):
        for option in ("--help", "--version"):
            with self.subTest(option=option), open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([self.weir, option], stdin=subprocess.DEVNULL, stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr, "weir: cannot write to standard output\n")

    def test_results_in_a_folder_of_somebody_else(self):
        prefix = self.as_nobody(self.folder)
        self.folder.chmod(0o555)
        self.bad("demo", "--json", "x.json", says=("x.json",), prefix=prefix)

    def test_nothing_is_left_behind(self):
        self.bad("demo", "--json", "new.json", "--filter", "zz*")
        self.bad("demo", "--json", "new.json", "--html", "no/x.html")
        self.assertEqual(os.listdir(self.folder), [])

    def test_line_breaks_in_names_do_not_break_the_line(self):
        self.bad("demo", "--capture", "a\nb\nc")
        self.bad("lab", "a\nb")


if __name__ == "__main__":
    main()
