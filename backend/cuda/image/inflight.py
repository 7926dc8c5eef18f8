"""Looks in machine code of sm_90a for registers that wgmma reads and that something else writes before
the wait for it, which compilers do not prevent, and for wgmma that wait for each other, where ptxas did not see that
they need not: inflight.py CUOBJDUMP FATBIN... It follows the order of the instructions and no branches."""

import re
import subprocess
import sys

INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*([^;]*);")


def registers(operand, count):
    found = re.match(r"R(\d+)\b", operand)
    return {int(found[1]) + i for i in range(count)} if found else set()


def check(code):
    """The number of wgmma, what is written too early, and kernels whose wgmma wait for each other."""
    kernel, reading, count, early, group, alone = None, set(), 0, [], 0, []
    for line in code.splitlines():
        if named := re.search(r"Function : (\S+)", line):
            kernel, reading = named[1], set()
        if not (found := INSTRUCTION.match(line)):
            continue
        name, operands = found[1], [o.strip() for o in found[2].split(",")]
        if name.startswith("HGMMA"):
            count += 1
            group += 1
            reading |= registers(operands[1], 4)  # A
            if ".SP" in name:
                reading |= registers(operands[4], 1)  # where its elements lie
        elif name.startswith("WARPGROUP.DEPBAR"):
            if group < 2 and kernel not in alone:
                alone.append(kernel)
            reading, group = set(), 0
        elif not name.startswith(("ST", "RED")):  # whose first operand is read
            width = 4 if ".128" in name else 2 if ".64" in name or ".WIDE" in name else 1
            if reading & registers(operands[0], width):
                early.append(f"{kernel}: {name} {found[2].strip()}")
    return count, early, alone


def main():
    total, failed = 0, False
    for image in sys.argv[2:]:
        code = subprocess.run([sys.argv[1], "-sass", "-arch", "sm_90a", image], capture_output=True, text=True)
        if code.returncode != 0:
            sys.exit(f"{image}: {code.stderr.strip()}")
        count, early, alone = check(code.stdout)
        total += count
        for kernel in alone:
            failed = True
            print(f"{image}: {kernel}: its wgmma wait for each other")
        for e in early:
            failed = True
            print(f"{image}: written while wgmma reads it: {e}")
    if failed or total == 0:
        sys.exit("wgmma: registers are written too early, or products wait" if failed else "there is no wgmma in these images")
    print(f"{total} wgmma wait for no other and read registers that stay as they are")


main()
