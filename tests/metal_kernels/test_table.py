"""docs/kernels.md is current: figures made here anew where no nvcc is needed, and nvcc's for these very sources."""

from __future__ import annotations

import json

from tests.metal_kernels.matrix_cases import host_cases
from tests.metal_kernels.table import PAGE, RECORD, digest, page

KEPT = json.loads(RECORD.read_text())


def test_nvccs_figures_are_of_these_sources() -> None:
    assert KEPT["sources"] == digest(), "run `make kernel-table` where nvcc is installed"


def test_page_is_current() -> None:
    """Cases are run by test_matrices.py; the page must say that all of them passed."""

    def all_of_them(gtype) -> str:
        n = len(list(host_cases(gtype)))
        return f"{n} of {n}"

    assert PAGE.read_text() == page(KEPT, all_of_them), "run `make kernel-table`"


def test_no_build_spills_and_those_of_decoding_are_small() -> None:
    """Up to 80 registers six warps of a scheduler's 512 a lane are in flight."""
    for label, use in KEPT["use"].items():
        for registers, spill in use.values():
            assert spill == 0, label
            assert registers <= 80 or not label.endswith(" x1"), label
