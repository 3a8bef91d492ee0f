from __future__ import annotations

import pickle

import pytest
from gguf import GGML_QUANT_SIZES

from localinfer.errors import FormatError, UnsupportedModel
from localinfer.formats.ggml_types import REMOVED_TYPES, GGMLType


def test_sizes_equal_those_of_the_gguf_package():
    ours = {t.name: (int(t), t.block_values, t.block_bytes) for t in GGMLType}
    theirs = {t.name: (int(t), *sizes) for t, sizes in GGML_QUANT_SIZES.items()}
    # Q8_1 is an intermediate that no file holds; ggml's struct has two half floats where the package counts two floats.
    theirs["Q8_1"] = (9, 32, 36)
    assert {name: ours[name] for name in theirs} == theirs


def test_ids_beyond_the_package_are_known_by_size():
    assert (int(GGMLType.Q1_0), GGMLType.Q1_0.row_bytes(256)) == (41, 36)
    assert (int(GGMLType.Q2_0), GGMLType.Q2_0.row_bytes(256)) == (42, 72)


@pytest.mark.parametrize("kind", GGMLType)
def test_from_id_finds_every_type(kind: GGMLType):
    assert GGMLType.from_id(int(kind)) is kind


@pytest.mark.parametrize("type_id", [43, 99, 2**32 - 1, -1])
def test_unknown_id_is_refused_by_number_and_place(type_id: int):
    with pytest.raises(UnsupportedModel, match=rf"x\.gguf: tensor 'a': unknown tensor type {type_id}"):
        GGMLType.from_id(type_id, "x.gguf: tensor 'a'")


@pytest.mark.parametrize(("type_id", "name"), REMOVED_TYPES.items())
def test_removed_types_are_refused_by_name(type_id: int, name: str):
    with pytest.raises(UnsupportedModel, match=name):
        GGMLType.from_id(type_id)


@pytest.mark.parametrize(
    ("kind", "n", "expected"),
    [(GGMLType.F32, 3, 12), (GGMLType.Q4_K, 512, 288), (GGMLType.Q8_0, 32, 34), (GGMLType.Q4_0, 0, 0)],
)
def test_row_bytes(kind: GGMLType, n: int, expected: int):
    assert kind.row_bytes(n) == expected


@pytest.mark.parametrize("n", [1, 255, 257, -256])
def test_row_bytes_refuses_a_broken_block(n: int):
    with pytest.raises(FormatError, match=f"Q4_K: a row must hold a multiple of 256 values, found {n}"):
        GGMLType.Q4_K.row_bytes(n)


def test_bits_per_value_and_kind():
    assert GGMLType.Q4_K.bits_per_value == 4.5
    assert GGMLType.Q4_K.is_quantized and not GGMLType.BF16.is_quantized


def test_pickles_by_identity():
    assert pickle.loads(pickle.dumps(GGMLType.IQ3_S)) is GGMLType.IQ3_S
