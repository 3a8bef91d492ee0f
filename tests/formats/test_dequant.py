"""Our decoders against the gguf package's, and against values worked out by hand where it has none."""

from __future__ import annotations

import contextlib
import struct
import warnings

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as outside_dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from localinfer.errors import FormatError, UnsupportedModel
from localinfer.formats.dequant import DECODERS, can_dequantize, dequantize, dequantize_rows
from localinfer.formats.ggml_types import GGMLType

NOT_OUTSIDE = {GGMLType.F64, GGMLType.I8, GGMLType.I16, GGMLType.I32, GGMLType.I64, GGMLType.Q8_1, GGMLType.Q8_K}
OUTSIDE = [kind for kind in DECODERS if kind not in NOT_OUTSIDE]


def outside(blocks: np.ndarray, kind: GGMLType) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # random bytes hold infinite scales
        return outside_dequantize(blocks, GGMLQuantizationType(int(kind)))


def assert_same_bits(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Equal to the last bit; NaN equals NaN."""
    assert ours.dtype == theirs.dtype == np.float32
    same = (ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))
    assert same.all()


def test_every_type_the_package_decodes_is_ours_too():
    theirs = set()
    for kind in GGMLQuantizationType:
        with contextlib.suppress(NotImplementedError):
            outside_dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
            theirs.add(kind.name)
    assert theirs == {kind.name for kind in OUTSIDE}


@pytest.mark.parametrize("kind", OUTSIDE)
def test_random_blocks_decode_to_the_same_bits(kind: GGMLType):
    """All bytes random, so every scale, sign and index pattern turns up, infinities and NaN among the scales."""
    blocks = np.random.default_rng(int(kind)).integers(0, 256, (300, 3 * kind.block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        ours = dequantize(blocks, kind, (300, 3 * kind.block_values))
    assert_same_bits(ours, outside(blocks, kind))


@pytest.mark.parametrize("kind", OUTSIDE)
@pytest.mark.parametrize("fill", [0x00, 0xFF, 0x80, 0x55, 0xAA])
def test_even_fills_decode_to_the_same_bits(kind: GGMLType, fill: int):
    blocks = np.full((1, kind.block_bytes), fill, np.uint8)
    with np.errstate(all="ignore"):
        assert_same_bits(dequantize(blocks, kind, (1, kind.block_values)), outside(blocks, kind))


@given(st.data(), st.sampled_from(OUTSIDE))
@settings(max_examples=200, deadline=None)
def test_any_block_decodes_to_the_same_bits(data: st.DataObject, kind: GGMLType):
    blocks = data.draw(arrays(np.uint8, (1, kind.block_bytes)))
    with np.errstate(all="ignore"):
        assert_same_bits(dequantize(blocks, kind, (1, kind.block_values)), outside(blocks, kind))


def test_types_the_package_lacks():
    q = np.arange(-16, 16, dtype=np.int8)
    q8_1 = struct.pack("<ee", 0.5, 0.0) + q.tobytes()
    assert dequantize(q8_1, GGMLType.Q8_1, (32,)).tolist() == (q * 0.5).tolist()
    q = np.arange(-128, 128).astype(np.int8)
    q8_k = struct.pack("<f", 0.1) + q.tobytes() + bytes(32)
    assert dequantize(q8_k, GGMLType.Q8_K, (256,)).tolist() == (q.astype(np.float32) * np.float32(0.1)).tolist()
    assert dequantize(struct.pack("<2d", 0.1, -3), GGMLType.F64, (2,)).tolist() == [np.float32(0.1), -3]
    for code, kind in (("b", GGMLType.I8), ("h", GGMLType.I16), ("i", GGMLType.I32), ("q", GGMLType.I64)):
        assert dequantize(struct.pack(f"<2{code}", 7, -7), kind, (2,)).tolist() == [7, -7]


def test_shapes_and_kinds_of_buffers():
    raw = np.random.default_rng(0).integers(0, 60, 2 * 3 * 34, dtype=np.uint8)
    expected = dequantize(raw, GGMLType.Q8_0, (2, 3, 32))
    assert expected.shape == (2, 3, 32)
    for buffer in (raw.tobytes(), memoryview(raw.tobytes()), raw.reshape(6, 34)):
        assert np.array_equal(dequantize(buffer, GGMLType.Q8_0, (6, 32)).reshape(2, 3, 32), expected)


def test_bytes_at_an_odd_address():
    raw = b"\0" + struct.pack("<4f", 1, 2, 3, 4)
    assert dequantize(memoryview(raw)[1:], GGMLType.F32, (4,)).tolist() == [1, 2, 3, 4]


def test_large_tensors_are_decoded_in_pieces_with_the_same_result():
    raw = np.random.default_rng(0).integers(0, 60, (9000, 144), dtype=np.uint8)
    whole = dequantize(raw, GGMLType.Q4_K, (9000, 256))
    assert np.array_equal(whole[8000:], dequantize(raw[8000:], GGMLType.Q4_K, (1000, 256)))


@pytest.mark.parametrize("rows", [[2], [0, 0, 4], [], np.array([-1]), slice(1, 3)])
def test_rows(rows):
    raw = np.random.default_rng(0).integers(0, 60, (5, 2 * 144), dtype=np.uint8)
    whole = dequantize(raw, GGMLType.Q4_K, (5, 512))
    picked = dequantize_rows(raw.tobytes(), GGMLType.Q4_K, 512, rows)
    assert picked.dtype == np.float32
    assert np.array_equal(picked, whole[rows] if isinstance(rows, slice) else whole[np.asarray(rows, np.intp)])


def test_a_row_that_is_not_there():
    with pytest.raises(IndexError):
        dequantize_rows(bytes(34), GGMLType.Q8_0, 32, [1])


@pytest.mark.parametrize("kind", [GGMLType.Q1_0, GGMLType.Q2_0])
def test_types_without_decoder_are_refused_by_name(kind: GGMLType):
    assert not can_dequantize(kind)
    with pytest.raises(UnsupportedModel, match=kind.name):
        dequantize(bytes(kind.block_bytes), kind, (kind.block_values,))


@pytest.mark.parametrize(
    ("n_bytes", "shape", "expected"),
    [
        (33, (32,), "expected a multiple of 34 bytes, found 33"),
        (34, (64,), r"shape \(64,\) takes 2 blocks, found 1"),
        (68, (32,), r"shape \(32,\) takes 1 blocks, found 2"),
        (34, (2, 16), "a row must hold a multiple of 32 values, found 16"),
    ],
)
def test_bytes_that_do_not_fit_the_shape(n_bytes: int, shape: tuple[int, ...], expected: str):
    with pytest.raises(FormatError, match=f"Q8_0: {expected}"):
        dequantize(bytes(n_bytes), GGMLType.Q8_0, shape)
