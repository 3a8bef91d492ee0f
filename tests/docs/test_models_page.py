"""docs/models.md says what the code says."""

from __future__ import annotations

import ctypes

import pytest

from localinfer.backends.cpu.lib import library_path
from localinfer.formats.ggml_types import GGMLType
from tests.docs.models_page import FLOAT_ACTIVATIONS, PAGE, page


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.docs.models_page`"


def test_kernels_agree_on_what_is_float() -> None:
    path = library_path()
    if path is None:
        pytest.skip("the C kernels are not built")
    kind = ctypes.CDLL(str(path)).li_activation_kind
    assert {t.name for t in GGMLType if kind(int(t)) == 0} == FLOAT_ACTIVATIONS
