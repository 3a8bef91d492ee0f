"""Instructions and spills of the matrix kernels' inner loops, AVX2 beside AVX-512, from their machine code.

    python benchmarks/count_instructions.py

Compiles cpu_kernels/linear_*.c and reads what objdump says: in each kernel the loop (a jump backwards that holds no
other) with the most products of int16. Nothing runs: for instruction sets that the machine at hand lacks.
A spill is an instruction with a vector register and the stack. Needs gcc and objdump.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1] / "cpu_kernels"
FLAGS = ["-D_GNU_SOURCE", "-std=c11", "-O3", "-fno-math-errno", "-ffp-contract=off", "-fPIC", "-Wno-psabi"]
# Source file, function, what it is, (rows x blocks of 32 values x tokens) that one turn of its loop does.
KERNELS = [
    ("blocks", "rows_q4_0_1", "Q4_0, 1 token", 8),
    ("blocks", "rows_q4_1_1", "Q4_1, 1 token", 8),
    ("blocks", "rows_q4_1_4", "Q4_1, 4 tokens", 32),
    ("blocks", "rows_q5_0_1", "Q5_0, 1 token", 8),
    ("bytes", "rows_q8_0_1", "Q8_0, 1 token", 8),
    ("k16", "rows_q2_k_1", "Q2_K, 1 token", 32),
    ("k16", "rows_q3_k_1", "Q3_K, 1 token", 32),
    ("k", "rows_q4_k_1", "Q4_K, 1 token", 32),
    ("k", "rows_q5_k_1", "Q5_K, 1 token", 32),
    ("k16", "rows_q6_k_1", "Q6_K, 1 token", 32),
    ("bytes", "rows_iq4_nl_1", "IQ4_NL, 1 token", 8),
    ("tile", "li_tile_tokens_{level}", "a tile, many tokens", 0),
]
PRODUCT = re.compile(r"vpmaddwd|vpdpwssd")
SPILL = re.compile(r"\(%r[sb]p.*%[xyz]mm|%[xyz]mm.*\(%r[sb]p")


def functions(source: Path, folder: Path) -> dict[str, list[tuple[int, str]]]:
    """Name -> (address, instruction) of each function of a C file."""
    built = folder / "kernels.o"
    subprocess.run(["gcc", *FLAGS, f"-I{ROOT}", "-c", str(source), "-o", str(built)], check=True)
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(built)], capture_output=True, text=True, check=True
    )
    found: dict[str, list[tuple[int, str]]] = {}
    for line in text.stdout.splitlines():
        if header := re.fullmatch(r"[0-9a-f]+ <(\w+)>:", line):
            found[header[1]] = []
        elif found and (parts := re.match(r" *([0-9a-f]+):\t(.*)", line)):
            found[list(found)[-1]].append((int(parts[1], 16), parts[2]))
    return found


def hot_loop(code: list[tuple[int, str]]) -> list[str]:
    """The instructions of the loop with the most products that holds no other loop with products."""
    loops = []
    for at, text in code:
        if (jump := re.match(r"j\w+ +([0-9a-f]+) ", text)) and int(jump[1], 16) < at:
            loops.append((int(jump[1], 16), at))
    inside = [[text for at, text in code if start <= at <= end] for start, end in loops]
    with_products = [body for body in inside if any(PRODUCT.match(text) for text in body)]
    if not with_products:
        return [text for _, text in code]
    return max(with_products, key=lambda body: sum(bool(PRODUCT.match(text)) for text in body) / len(body))


def main() -> None:
    print(f"{'':22} {'instructions a block':>22} {'spills a block':>20}")
    print(f"{'':22} {'AVX2':>10} {'AVX-512':>11} {'AVX2':>10} {'AVX-512':>9}")
    with tempfile.TemporaryDirectory() as folder:
        built = {
            (file, level): functions(ROOT / f"linear_{level}_{file}.c", Path(folder))
            for file in sorted({kernel[0] for kernel in KERNELS})
            for level in ("avx2", "avx512")
        }
        for file, function, what, blocks in KERNELS:
            counts = []
            for level in ("avx2", "avx512"):
                body = hot_loop(built[file, level][function.format(level=level)])
                n = blocks or (6 if level == "avx2" else 8) * 16 / 4  # tokens, rows, a quarter of a block
                counts.append((len(body) / n, sum(bool(SPILL.search(text)) for text in body) / n, len(body)))
            (a, spills_a, na), (b, spills_b, nb) = counts
            print(f"{what:22} {a:10.2f} {b:11.2f} {spills_a:10.2f} {spills_b:9.2f}   ({na} and {nb} in the loop)")


if __name__ == "__main__":
    main()
