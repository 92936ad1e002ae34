#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_golden: follows the fast path and nothing else, and finds what must not be on it."""
import importlib.util
import pathlib
import tempfile
import unittest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "check_golden.py"
spec = importlib.util.spec_from_file_location("check_golden", GOLDEN)
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

PLAIN = ["mov    %fs:0x8(%rdi),%rax", "lea    -0x1(%rax),%ecx", "jbe    100 <golden_f.cold>", "xchg   %ax,%ax",
         "mov    %rax,0x0(%rip)        # 17 <x>", "ret"]
SECTION = "mov    %fs:0x4(%rdi),%rax"


def disassembly(lines, name="golden_f", cold=()):
    """As objdump prints it: an instruction each 8 bytes; what begins with `R_` is the relocation of the line above."""
    text = ["", "Disassembly of section .text:", "", f"0000000000000000 <{name}>:"]
    address = 0
    for line in lines:
        if line.startswith("R_"):
            text.append(f"\t\t\t{address - 4:x}: " + line.replace(" ", "\t"))
        else:
            text.append(f"{address:4x}:\t{line}")
            address += 8
    text += ["", "Disassembly of section .text.unlikely:", "", "0000000000000100 <golden_f.cold>:"]
    text += [f"{at:4x}:\t{line}" for at, line in cold]
    return "\n".join(text) + "\n"


class CheckGolden(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-golden-")
        self.addCleanup(folder.cleanup)
        self.listing = pathlib.Path(folder.name, "fast_path.gcc.txt")

    def check(self, lines, version="12", update=False, **options):
        return golden.check(disassembly(lines, **options), "gcc", version, self.listing, update)

    def update(self, lines):
        self.assertEqual(self.check(lines, update=True), ([], []))

    def assert_found(self, lines, *parts, **options):
        findings, _ = self.check(lines, **options)
        for part in parts:
            self.assertTrue(any(part in finding for finding in findings), (part, findings))

    def listed(self, lines):
        self.update(lines)
        return [line.strip() for line in self.listing.read_text(encoding="utf-8").splitlines()[2:]]

    def test_a_path_is_written_and_then_passes(self):
        self.assertEqual(self.listed(PLAIN), ["mov fs:mem,r64", "lea mem,r32", "jbe on", "mov r64,rip:mem", "ret"])
        self.assertEqual(self.check(PLAIN), ([], []))

    def test_other_registers_and_addresses_are_no_difference(self):
        self.update(PLAIN)
        other = ["mov    %fs:0x10(%rbx,%r9,8),%r10", "lea    0x7(%r10),%r11d", "jbe    104 <golden_f.cold+0x4>",
                 "mov    %r10,0x20(%rip)", "ret"]
        self.assertEqual(self.check(other), ([], []))

    def test_another_kind_of_operand_a_width_or_a_segment_is_a_difference(self):
        self.update(PLAIN)
        for index, line in ((0, "mov    0x8(%rdi),%rax"), (0, "mov    $0x8,%rax"), (0, "mov    %gs:0x8(%rdi),%rax"),
                            (1, "lea    -0x1(%rax),%rcx"), (1, "add    (%rax),%ecx"), (2, "jae    100 <c>")):
            changed = PLAIN[:index] + [line] + PLAIN[index + 1:]
            self.assert_found(changed, "are not those of", "+  " + line.split()[0])

    def test_one_instruction_more_is_counted_also_for_another_version(self):
        self.update(PLAIN)
        more = ["mov    %rdi,%rsi"] + PLAIN
        self.assert_found(more, "6 instructions, the listing has 5", "are not those of")
        findings, notices = self.check(more, version="13")
        self.assertEqual(findings, ["gcc: golden_f: 6 instructions, the listing has 5"])
        self.assertEqual(len(notices), 1)

    def test_another_version_is_not_compared_but_says_so(self):
        self.update(PLAIN)
        findings, notices = self.check([SECTION, "ret"], version="13")
        self.assertEqual(findings, [])
        self.assertIn("the listing is for fast paths, gcc 12", notices[0])

    def test_a_function_of_the_listing_that_is_gone_is_a_difference(self):
        self.update(PLAIN)
        self.assert_found(PLAIN, "are not those of", name="golden_other")

    def test_what_only_a_conditional_jump_reaches_is_not_looked_at(self):
        self.update(["je     18 <golden_f+0x18>", SECTION, "ret", "call   0 <slow>", "lock incl (%rax)", "ret"])
        self.assertIn("golden_f: 3", self.listing.read_text(encoding="utf-8"))

    def test_a_conditional_jump_over_a_call_is_taken_and_listed_so(self):
        self.assertEqual(self.listed(["jbe    10 <golden_f+0x10>", "jmp    d <golden_f+0xd>", "R_X86_64_PLT32 slow-0x4",
                                      SECTION, "ret"]), ["jbe on taken", "mov fs:mem,r64", "ret"])
        self.assertEqual(self.listed(["jbe    18 <golden_f+0x18>", "call   0 <slow>", "ret", SECTION, "ret"]),
                         ["jbe on taken", "mov fs:mem,r64", "ret"])

    def test_a_way_past_the_section_is_not_the_fast_path(self):
        self.assert_found(["je     18 <golden_f+0x18>", SECTION, "call   0 <slow>", "ret"], "no way leads", "a call")

    def test_an_unconditional_jump_is_followed(self):
        self.assert_found(["jmp    10 <golden_f+0x10>", "ret", SECTION, "call   0 <slow>", "ret"], "a call")
        self.assert_found([SECTION, "jmp    10 <x>", "R_X86_64_PC32 .text.unlikely+0xfc", "ret"], "a division",
                          cold=[(0x100, "div    %rcx"), (0x105, "ret")])

    def test_calls_and_jumps_to_other_functions_are_found(self):
        self.assert_found([SECTION, "call   d <golden_f+0xd>", "R_X86_64_PLT32 memcpy-0x4", "ret"], "a call: memcpy")
        self.assert_found([SECTION, "call   *0x8(%rax)", "ret"], "a call")
        self.assert_found([SECTION, "jmp    d <golden_f+0xd>", "R_X86_64_PLT32 memcpy-0x4"], "function: memcpy")
        self.assert_found([SECTION, "jmp    *%rax"], "another function")

    def test_locked_instructions_and_divisions_are_found(self):
        for line, what in (("lock xadd %eax,(%rdx)", "a locked"), ("lock cmpxchg %rcx,0x8(%rdx)", "a locked"),
                           ("xchg   %eax,(%rdx)", "an exchange"), ("xchg   %rax,0x0(%rip)        # 4 <x>", "exchange"),
                           ("div    %rcx", "a division"), ("idivl  0x8(%rsp)", "a division")):
            self.assert_found([SECTION, line, "ret"], what)

    def test_an_exchange_of_registers_and_a_conversion_pass(self):
        self.update([SECTION, "xchg   %rax,%rdx", "cltd", "ret"])

    def test_a_path_without_an_end_is_found(self):
        self.assert_found([SECTION, "jmp    0 <golden_f>"], "no way leads")
        self.assert_found([SECTION], "no way leads")

    def test_nothing_is_written_while_a_rule_is_broken(self):
        self.assertNotEqual(self.check(["call   0 <slow>", "ret"], update=True)[0], [])
        self.assertFalse(self.listing.exists())

    def test_an_object_without_the_functions_and_a_missing_listing_are_errors(self):
        self.assert_found(PLAIN, "no function golden_", name="other")
        self.assert_found(PLAIN, "no listing")

    def test_the_compiler_is_known_by_what_it_left_in_the_object(self):
        self.assertEqual(golden.compiler_of("GCC: (Debian 12.2.0-14+deb12u1) 12.2.0"), ("gcc", "12"))
        self.assertEqual(golden.compiler_of("Debian clang version 14.0.6"), ("clang", "14"))
        self.assertIsNone(golden.compiler_of("rustc version 1.63.0"))


if __name__ == "__main__":
    unittest.main()
