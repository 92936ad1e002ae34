#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_golden.py [--update] [--listings FOLDER] OBJECT...: the instructions of the hot paths, read and compared.

Each OBJECT is fast_path.cpp, compiled for x86-64. Its functions golden_* are disassembled, and of each the fast path is
followed from the entry to `ret`: along what falls through, over unconditional jumps. A conditional jump counts as not
taken; where it leads is cold, or one more turn of a loop. Only where what falls through cannot reach `ret` past the
restartable section (it calls another function, or jumps to one) the nearest jump before is taken, and listed so.

Of an instruction remain its mnemonic, prefixes, and the kinds of its operands (register by width, memory, immediate,
segment; `rip:` for globals), so that another choice of registers or addresses is no difference. No-ops for alignment
are left out.

Always an error: no such path (every one calls); on it a lock prefix, xchg with memory or a division; more
instructions than the listing has.
Against the listing of the same compiler and major version (fast_path.gcc.txt, fast_path.clang.txt) any difference is an
error; with another version that comparison is left out, with a notice. --update writes the listings.
"""
import argparse
import difflib
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FUNCTION = re.compile(r"golden_\w+$")
SECTION = re.compile(r"Disassembly of section (\S+):")
LABEL = re.compile(r"([0-9a-f]+) <(.+)>:")
LINE = re.compile(r"\s*([0-9a-f]+):\t(.*)")
RELOCATION = re.compile(r"\s*[0-9a-f]+: (R_X86_64_\w+)\t(\S+)")
PREFIXES = ("lock", "rep", "repz", "repnz", "data16", "cs", "notrack", "bnd")
JUMP = re.compile(r"j[a-z]+$")
DIVISION = re.compile(r"i?div[bwlq]?$")


class Instruction:
    def __init__(self, section, address, text):
        self.section, self.address = section, address
        self.text = text.split("#")[0].strip()
        words = self.text.split(None, 1)
        self.prefixes = []
        while words and words[0] in PREFIXES and len(words) > 1:
            self.prefixes.append(words[0])
            words = words[1].split(None, 1)
        self.mnemonic = words[0] if words else ""
        self.operands = words[1] if len(words) > 1 else ""
        self.relocation = None

    def is_nop(self):
        return self.mnemonic.startswith("nop") or (self.mnemonic == "xchg" and self.operands == "%ax,%ax")

    def is_jump(self):
        return bool(JUMP.match(self.mnemonic))

    def target(self):
        """(section, address) of a direct jump inside the object, or None: another function, or a register."""
        if self.relocation:
            name, addend = re.match(r"([^+-]+)([+-]0x[0-9a-f]+)?$", self.relocation).groups()
            return (name, int(addend or "0", 16) + 4) if name.startswith(".") else None
        found = re.match(r"([0-9a-f]+)\b", self.operands)
        return (self.section, int(found.group(1), 16)) if found else None


def parse(text):
    """Of objdump -dr: ({(section, address): instruction}, {function: (section, address)})."""
    instructions, functions, section, last = {}, {}, "", None
    for line in text.splitlines():
        if found := SECTION.match(line):
            section = found.group(1)
        elif found := LABEL.match(line):
            if FUNCTION.match(found.group(2)):
                functions[found.group(2)] = (section, int(found.group(1), 16))
        elif found := RELOCATION.match(line):
            if last and last.relocation is None:
                last.relocation = found.group(2)
        elif found := LINE.match(line):
            last = Instruction(section, int(found.group(1), 16), found.group(2))
            instructions[(section, last.address)] = last
    return instructions, functions


def split_operands(text):
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return parts + [part] if part else parts


def kind_of(operand):
    if found := re.match(r"%([c-g]s):", operand):
        return found.group(1) + ":" + kind_of(operand[len(found.group(0)):])
    if operand.startswith("$"):
        return "imm"
    if "(" in operand or not operand.startswith("%"):
        return "rip:mem" if "(%rip)" in operand else "mem"
    name = operand[1:]
    if name.startswith(("xmm", "ymm", "zmm")):
        return name[:3]
    if re.match(r"r\d+$", name) or re.match(r"r[a-z]+$", name):
        return "r64"
    if re.match(r"r\d+d$", name) or re.match(r"e[a-z]+$", name):
        return "r32"
    if re.match(r"r\d+w$", name) or re.match(r"[a-d]x$|[sd]i$|[sb]p$", name):
        return "r16"
    return "r8"


def normal(instruction):
    words = instruction.prefixes + [instruction.mnemonic]
    if instruction.is_jump():
        target = instruction.target()
        if target is None:
            words.append("away")
        elif target[0] != instruction.section:
            words.append("cold")
        else:
            words.append("on" if target[1] > instruction.address else "back")
    elif instruction.operands:
        words.append(",".join(kind_of(operand) for operand in split_operands(instruction.operands)))
    return " ".join(words)


def leaves(instruction):
    """Whether control goes to another function here."""
    return instruction.mnemonic.startswith("call") or (instruction.mnemonic == "jmp" and instruction.target() is None)


def walk(instructions, start, may_leave):
    """The first path in the order of the rule above, as [(instruction, taken)]; or None. With may_leave conditional
    jumps are never taken, calls are passed and the section is not asked for: then the path shows what is wrong."""
    following = dict(zip(sorted(instructions), sorted(instructions)[1:]))
    dead = set()
    todo = [(start, [], False, False)]  # where to, what led there, taken, whether a section is behind
    while todo:
        at, path, taken, section = todo.pop()
        if path and taken:
            path = path[:-1] + [(path[-1][0], True)]
        while at in instructions and (at, section) not in dead:
            dead.add((at, section))
            instruction = instructions[at]
            path = path + [(instruction, False)]
            section = section or "fs:" in normal(instruction)
            if instruction.mnemonic in ("ret", "retq"):
                if section or may_leave:
                    return path
                break
            if leaves(instruction) and (not may_leave or instruction.mnemonic == "jmp"):
                if may_leave:
                    return path
                break
            if instruction.mnemonic == "jmp":
                at = instruction.target()
                continue
            if instruction.is_jump() and not may_leave and instruction.target():
                todo.append((instruction.target(), path, True, section))
            at = following.get(at)
    return None


def fast_path(instructions, start):
    """(path without no-ops, complaint or None)."""
    path = walk(instructions, start, False)
    complaint = None
    if path is None:
        complaint = "no way leads through a section to a return"
        path = walk(instructions, start, True) or []
    return [(instruction, taken) for instruction, taken in path if not instruction.is_nop()], complaint


def faults(path):
    for instruction, _ in path:
        memory = any(kind_of(operand).endswith("mem") for operand in split_operands(instruction.operands))
        if instruction.mnemonic.startswith("call"):
            yield "a call: " + (instruction.relocation or instruction.text)
        elif leaves(instruction):
            yield "it goes on in another function: " + (instruction.relocation or instruction.text)
        elif "lock" in instruction.prefixes:
            yield "a locked instruction: " + instruction.text
        elif instruction.mnemonic.startswith("xchg") and memory:
            yield "an exchange with memory, which locks: " + instruction.text
        elif DIVISION.match(instruction.mnemonic):
            yield "a division: " + instruction.text


def listing_of(paths):
    lines = []
    for name in sorted(paths):
        lines.append(f"{name}: {len(paths[name])}")
        lines += ["  " + normal(instruction) + (" taken" if taken else "") for instruction, taken in paths[name]]
    return lines


def counts_in(lines):
    return {name: int(count) for name, count in re.findall(r"^(golden_\w+): (\d+)$", "\n".join(lines), re.M)}


def compiler_of(comment):
    """(gcc or clang, major version) by the object's .comment section."""
    if found := re.search(r"clang version (\d+)", comment):
        return "clang", found.group(1)
    if found := re.search(r"GCC: \([^)]*\) (\d+)", comment):
        return "gcc", found.group(1)
    return None


def check(disassembly, compiler, version, listing, update):
    """Findings and notices about one object; `listing` is the path of its listing."""
    instructions, functions = parse(disassembly)
    findings, notices, paths = [], [], {}
    if not functions:
        return ["the object has no function golden_*"], notices
    for name, start in sorted(functions.items()):
        paths[name], complaint = fast_path(instructions, start)
        findings += [f"{compiler}: {name}: {text}" for text in faults(paths[name])]
        if complaint:
            findings.append(f"{compiler}: {name}: {complaint}")
    head = f"# fast paths, {compiler} {version}"
    now = listing_of(paths)
    if update:
        if not findings:
            listing.write_text("\n".join([head] + now) + "\n", encoding="utf-8")
        return findings, notices
    if not listing.exists():
        return findings + [f"{compiler}: no listing {listing.name}; --update writes it"], notices
    before_head, *before = listing.read_text(encoding="utf-8").splitlines()
    allowed = counts_in(before)
    for name in sorted(paths):
        if name in allowed and len(paths[name]) > allowed[name]:
            findings.append(f"{compiler}: {name}: {len(paths[name])} instructions, the listing has {allowed[name]}")
    if before_head != head:
        notices.append(f"{compiler} {version}: instructions are not compared, the listing is for {before_head[2:]}")
    elif before != now:
        diff = difflib.unified_diff(before, now, listing.name, "now", lineterm="", n=2)
        findings.append(f"{compiler}: the fast paths are not those of {listing.name}:\n" + "\n".join(diff))
    return findings, notices


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--listings", type=pathlib.Path, default=HERE)
    parser.add_argument("objects", nargs="+")
    arguments = parser.parse_args()
    failed = differs = False
    for name in arguments.objects:
        compiler = compiler_of(output_of("readelf", "-p", ".comment", name))
        if compiler is None:
            print(f"{name}: neither GCC nor Clang made this")
            failed = True
            continue
        findings, notices = check(output_of("objdump", "-dr", "--no-show-raw-insn", name), *compiler,
                                  arguments.listings / f"fast_path.{compiler[0]}.txt", arguments.update)
        print("".join(line + "\n" for line in notices + findings), end="")
        failed = failed or bool(findings)
        differs = differs or any("listing" in line or "not those of" in line for line in findings)
    if differs:
        print("If this is meant, write the listings anew and say why in the commit:\n  tests/golden/check_golden.py "
              "--update " + " ".join(arguments.objects))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
