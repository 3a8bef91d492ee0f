"""docs/kernels.md, made from the kernels: `python -m tests.metal_kernels.table` writes it.

Lane reads and passed cases come from running the kernels on the host, registers and instructions from nvcc. Where the
kernels have changed nvcc compiles again, and its figures are kept in nvcc.json; where it is missing the command fails.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from localinfer.backends.mlx.gpu_linear import WIDTHS, matvec_shape
from localinfer.backends.mlx.kernels import BLOCKS
from localinfer.formats.ggml_types import GGMLType
from tests.metal_kernels import nvcc
from tests.metal_kernels.cases import Case, block_cases, other_cases
from tests.metal_kernels.matrix_cases import host_cases, lane_reads, matrix, run_linear, vectors

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"
RECORD = Path(__file__).parent / "nvcc.json"
# Lane instructions a byte of memory traffic: cores * lanes * clock / bandwidth, as the makers state them.
DEVICES = {"M2 Max": 38 * 128 * 1.398e9 / 400e9, "RTX PRO 6000": 188 * 128 * 2.6e9 / 1792e9}
ISSUED = 0.5  # share of its lanes' instructions that a kernel with such loads may be expected to issue
REACHED = 0.8  # share of the bandwidth that reading alone may be expected to reach
LOADS = {1: "2 B", 2: "2 B", 4: "4 B", 8: "4 B", 16: "16 B"}  # widest load, by alignment


@cache
def cases() -> list[Case]:
    return [*block_cases("cuda", WIDTHS), *other_cases()]


def digest() -> str:
    """Of all that nvcc is given."""
    return hashlib.sha256(nvcc.source(cases()).encode()).hexdigest()


def record() -> dict[str, Any]:
    """Compiled here where sources changed and that is possible, else as kept. AssertionError where it is not."""
    if shutil.which("nvcc") and json.loads(RECORD.read_text())["sources"] != digest():
        RECORD.write_text(json.dumps(_compiled(), indent=1) + "\n")
    kept = json.loads(RECORD.read_text())
    assert kept["sources"] == digest(), "nvcc.json belongs to other sources: run this where nvcc is installed"
    return kept


def _compiled() -> dict[str, Any]:
    release = re.search(r"V([\d.]+)", subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout)
    narrow = [c for c in cases() if c.label.startswith("linear ") and c.label.endswith(" x1")]
    uses = nvcc.compile_cases(cases())
    return {
        "sources": digest(),
        "nvcc": release[1] if release else "",
        "loop": {c.label.split()[1]: n for c, n in zip(narrow, nvcc.loop_instructions(narrow), strict=True)},
        "use": {
            c.label: {arch: [uses[arch][i].registers, uses[arch][i].spill_bytes] for arch in nvcc.ARCHES}
            for i, c in enumerate(cases())
        },
    }


def page(kept: dict[str, Any], cases_passed: Callable[[GGMLType], str]) -> str:
    spilled = [label for label, use in kept["use"].items() if any(spill for _, spill in use.values())]
    return "\n".join(
        [
            "# The GPU kernels, type by type",
            "",
            "Made by `make kernel-table` (`python -m tests.metal_kernels.table`); a test compares what needs no nvcc.",
            "**Counted, not measured: none of this has run on a GPU.** [first_mac.md](first_mac.md) says what to run.",
            "",
            "## Matrices",
            "",
            "- *host cases*: those of `tests/metal_kernels/matrix_cases.py` that passed when executed on the host:",
            "  products at 1 to 257 rows, several vectors, experts, decoded and gathered rows; every load counted.",
            "- *lane reads*: mean number of lanes that read a byte; above 1 where lanes of one SIMD group share a",
            "  block's scales, or whole words: the hardware serves them with one fetch.",
            "- *instructions*: of PTX, for each weight in the loop of `linear` for 1 vector.",
            f"- *arithmetic*: the share of an M2 Max's 400 GB/s they leave at {ISSUED:.0%} of what its lanes issue.",
            f"- *expected*: the lesser of that and {REACHED:.0%}; on an RTX PRO 6000, of 1792 GB/s.",
            "",
            "| type | bytes a weight | host cases | lane reads | widest load | weights a lane and step "
            "| rows x1, x4, x16 | instructions | arithmetic M2 Max | expected M2 Max | expected RTX PRO 6000 |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *(_matrix_row(gtype, kept["loop"][gtype.name], cases_passed(gtype)) for gtype in BLOCKS),
            "",
            f"## Registers (nvcc {kept['nvcc']})",
            "",
            f"{len(kept['use']) * len(nvcc.ARCHES)} builds for {' and '.join(nvcc.ARCHES)}; "
            + (f"spilling: {', '.join(spilled)}." if spilled else "none spills a register."),
            "",
            f"| `linear`, vectors | {' | '.join(f'x{w} {a}' for a in nvcc.ARCHES for w in WIDTHS)} "
            "| experts x1 sm_120 | experts x16 sm_120 | rows sm_120 |",
            "|---" * (len(WIDTHS) * len(nvcc.ARCHES) + 4) + "|",
            *(_register_row(gtype.name, kept["use"]) for gtype in BLOCKS),
            "",
            f"| other kernels | {' | '.join(nvcc.ARCHES)} |",
            "|---" * (len(nvcc.ARCHES) + 1) + "|",
            *(f"| {c.label} | {_registers(kept['use'][c.label])} |" for c in other_cases()),
            "",
        ]
    )


def _matrix_row(gtype: GGMLType, loop: int, ran: str) -> str:
    g, m = BLOCKS[gtype], matrix(gtype)
    shapes = [matvec_shape(gtype, n, "metal") for n in (1, 4, 16)]
    units = g.values // g.parts
    weights = matvec_shape(gtype, 1, "cuda").rows * units
    reads = lane_reads(m, 257, run_linear(m, 257, vectors(1, m.n_in)))
    room = {name: ISSUED * per_byte * g.bytes / g.values / (loop / weights) for name, per_byte in DEVICES.items()}
    shares = [f"{min(1.0, room['M2 Max']):.0%}", *(f"{min(REACHED, share):.0%}" for share in room.values())]
    rows = ", ".join(str(s.rows) for s in shapes)
    return (
        f"| {gtype.name} | {g.bytes / g.values:.7g} | {ran} | {reads:.2f} | {_widest(gtype)} | {units} | {rows} "
        f"| {loop / weights:.1f} | {' | '.join(shares)} |"
    )


def _widest(gtype: GGMLType) -> str:
    return "4 B, cut" if gtype == GGMLType.MXFP4 else LOADS[BLOCKS[gtype].alignment]


def passed(gtype: GGMLType) -> str:
    """Host-executed cases: passed of all."""
    outcomes = [_passes(check) for _, check in host_cases(gtype)]
    return f"{sum(outcomes)} of {len(outcomes)}"


def _passes(check: Any) -> bool:
    try:
        check()
    except AssertionError:
        return False
    return True


def _register_row(name: str, use: dict[str, Any]) -> str:
    linear = [str(use[f"linear {name} x{w}"][arch][0]) for arch in nvcc.ARCHES for w in WIDTHS]
    others = [str(use[op.format(name)]["sm_120"][0]) for op in ("experts {} x1", "experts {} x16", "rows {}")]
    return f"| {name} | {' | '.join([*linear, *others])} |"


def _registers(use: dict[str, list[int]]) -> str:
    return " | ".join(f"{registers}{f', {spill} B spilled' if spill else ''}" for registers, spill in use.values())


def main() -> None:
    text = page(record(), passed)
    PAGE.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
