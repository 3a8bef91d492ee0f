from __future__ import annotations

import time
from array import array
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localinfer.errors import FormatError
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.gguf import GGUFFile, TensorInfo, ValueType
from tests.fakes import gguf_writer as w

ALL_VALUES = {
    "u8": (w.Typed(w.UINT8, 200), 200),
    "i8": (w.Typed(w.INT8, -3), -3),
    "u16": (w.Typed(w.UINT16, 60000), 60000),
    "i16": (w.Typed(w.INT16, -30000), -30000),
    "u32": (w.Typed(w.UINT32, 2**32 - 1), 2**32 - 1),
    "i32": (w.Typed(w.INT32, -(2**31)), -(2**31)),
    "f32": (w.Typed(w.FLOAT32, 0.5), 0.5),
    "yes": (True, True),
    "no": (False, False),
    "text": ("Grüße 😀", "Grüße 😀"),
    "empty": ("", ""),
    "u64": (w.Typed(w.UINT64, 2**64 - 1), 2**64 - 1),
    "i64": (w.Typed(w.INT64, -(2**63)), -(2**63)),
    "f64": (w.Typed(w.FLOAT64, 0.1), 0.1),
}
NUMBER_ARRAYS = {
    w.UINT8: ("B", [0, 255]),
    w.INT8: ("b", [-128, 127]),
    w.UINT16: ("H", [0, 65535]),
    w.INT16: ("h", [-32768, 32767]),
    w.UINT32: ("I", [0, 2**32 - 1]),
    w.INT32: ("i", [-(2**31), 2**31 - 1]),
    w.FLOAT32: ("f", [0.5, -2.25]),
    w.UINT64: ("Q", [0, 2**64 - 1]),
    w.INT64: ("q", [-(2**63), 2**63 - 1]),
    w.FLOAT64: ("d", [0.1, -1e300]),
}


def opened(folder: Path, *args, **kwargs) -> GGUFFile:
    return GGUFFile.open(w.write_gguf(folder / "m.gguf", *args, **kwargs))


@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type(tmp_path: Path, version: int):
    with opened(tmp_path, {k: v for k, (v, _) in ALL_VALUES.items()}, version=version) as f:
        assert f.version == version
        assert dict(f.metadata) == {k: expected for k, (_, expected) in ALL_VALUES.items()}
        assert [type(f.metadata[k]) for k in ALL_VALUES] == [type(expected) for _, expected in ALL_VALUES.values()]


@pytest.mark.parametrize("element", NUMBER_ARRAYS)
def test_number_arrays(tmp_path: Path, element: int):
    code, values = NUMBER_ARRAYS[element]
    with opened(tmp_path, {"a": w.Typed(w.ARRAY, values, element), "after": 7}) as f:
        assert f.metadata["a"] == array(code, values)
        assert f.metadata["after"] == 7
        assert f.metadata.entry("a").count == 2
        assert f.metadata.entry("a").type_name == f"array of 2 {ValueType(element).name.lower()}"


def test_arrays_of_text_and_booleans_and_nothing(tmp_path: Path):
    values = {"s": ["a", "", "ß"], "b": [True, False], "none": w.Typed(w.ARRAY, [], w.STRING), "after": 7}
    with opened(tmp_path, values) as f:
        assert dict(f.metadata) == {"s": ["a", "", "ß"], "b": [True, False], "none": [], "after": 7}


def test_the_first_elements_of_an_array(tmp_path: Path):
    with opened(tmp_path, {"s": ["a", "b", "c"], "n": [1, 2]}) as f:
        assert f.metadata.first("s", 2) == ["a", "b"]
        assert list(f.metadata.first("n", 5)) == [1, 2]


def test_text_that_is_not_utf8_keeps_its_bytes(tmp_path: Path):
    raw = [b"\xff", b"ok", b"a\xe2\x82"]
    with opened(tmp_path, {"tokens": raw, "one": b"\x80x"}) as f:
        tokens = f.get_array("tokens", of=str)
        assert [t.encode("utf-8", "surrogateescape") for t in tokens] == raw
        assert f.metadata.byte_strings("tokens") == raw
        assert f.get_str("one").encode("utf-8", "surrogateescape") == b"\x80x"


metadata_values = st.one_of(
    st.integers(-(2**31), 2**63),
    st.booleans(),
    st.floats(width=32, allow_nan=False),
    st.text(st.characters(codec="utf-8")),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=8),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8),
)
keys = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda k: k != "general.alignment")


@given(st.dictionaries(keys, metadata_values, max_size=6), st.sampled_from([1, 2, 8, 24, 32, 4096]))
def test_what_was_written_is_read(tmp_path_factory, values, alignment: int):
    path = tmp_path_factory.getbasetemp() / "roundtrip.gguf"
    tensor = w.f32_tensor("t", (2, 3), 0.25)
    with GGUFFile.open(w.write_gguf(path, values, [tensor], alignment=alignment)) as f:
        read = {k: list(v) if isinstance(v, array) else v for k, v in f.metadata.items() if k != "general.alignment"}
        assert read == values
        assert f.alignment == alignment
        assert f.tensors["t"].offset % alignment == 0
        assert bytes(f.raw(f.tensors["t"])) == tensor.data


def test_tensors(tmp_path: Path):
    tensors = [
        w.Tensor("b", 12, (5, 2, 512), bytes(range(144)) * 20),
        w.f32_tensor("a", (3,), 2.0),
        w.Tensor("scalar", 0, (1,), b"\0\0\x80\x3f", dims=()),
    ]
    with opened(tmp_path, {}, tensors) as f:
        b, a, scalar = f.tensors.values()
        start = a.offset - w.padded(2880, 32)
        assert b == TensorInfo("b", GGMLType.Q4_K, (5, 2, 512), 0, start, 2880)
        assert b.n_values == 5120
        assert (a.type, a.shape, a.n_bytes) == (GGMLType.F32, (3,), 12)
        assert scalar.shape == (1,)
        assert bytes(f.raw(b)) == tensors[0].data
        assert f.raw(a).readonly
        assert np.frombuffer(f.raw(a), "<f4").tolist() == [2, 2, 2]
        assert f.tensor_bytes == 2880 + 12 + 4
        assert f.file_bytes == (tmp_path / "m.gguf").stat().st_size
        assert list(f.tensors) == ["b", "a", "scalar"]


def test_gaps_between_tensors_and_bytes_after_the_last_are_fine(tmp_path: Path):
    path = w.write_gguf(
        tmp_path / "m.gguf", {}, [w.f32_tensor("a", (1,)), w.Tensor("b", 0, (1,), b"1234", offset=4096)]
    )
    path.write_bytes(path.read_bytes() + b"tail")
    with GGUFFile.open(path) as f:
        assert bytes(f.raw(f.tensors["b"])) == b"1234"


def test_the_last_tensors_padding_may_be_missing(tmp_path: Path):
    path = w.write_gguf(tmp_path / "m.gguf", {}, [w.f32_tensor("a", (1,))])
    path.write_bytes(path.read_bytes()[:-28])
    with GGUFFile.open(path) as f:
        assert bytes(f.raw(f.tensors["a"])) == b"\0\0\x80\x3f"


def test_file_written_by_the_gguf_package(tmp_path: Path):
    """An outside writer and an outside reader agree with ours on every field."""
    path = tmp_path / "outside.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 1e6)
    writer.add_custom_alignment(64)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "ä", "▁the"])
    writer.add_array("tokenizer.ggml.scores", [0.0, -1.5, -2.0])
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    rng = np.random.default_rng(0)
    writer.add_tensor("token_embd.weight", rng.normal(size=(3, 64)).astype(np.float32))
    blocks = rng.integers(0, 256, (4, 2 * 34), dtype=np.uint8)
    writer.add_tensor("blk.0.ffn_up.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    reader = gguf.GGUFReader(path)
    with GGUFFile.open(path) as f:
        assert listing(f) == reader_listing(reader)
        assert list(f.metadata) == [k for k in reader.fields if not k.startswith("GGUF.")]
        assert f.metadata["tokenizer.ggml.tokens"] == ["<s>", "ä", "▁the"]
        assert f.metadata["tokenizer.ggml.scores"] == array("f", [0.0, -1.5, -2.0])
        assert f.alignment == 64
        assert bytes(f.raw(f.tensors["blk.0.ffn_up.weight"])) == blocks.tobytes()


def listing(f: GGUFFile) -> list[tuple]:
    return [(t.name, int(t.type), t.shape, t.offset, t.n_bytes) for t in f.tensors.values()]


def reader_listing(reader: gguf.GGUFReader) -> list[tuple]:
    return [
        (t.name, int(t.tensor_type), tuple(int(n) for n in t.shape[::-1]), int(t.data_offset), int(t.n_bytes))
        for t in reader.tensors
    ]


# -- typed getters ----------------------------------------------------------------------------------------------------

GETTER_VALUES = {
    "n": 3,
    "x": 0.5,
    "nan": float("nan"),
    "flag": True,
    "text": "t",
    "ints": [1, 2],
    "floats": [0.5],
    "texts": ["a"],
    "flags": [True],
}


def test_getters(tmp_path: Path):
    with opened(tmp_path, GETTER_VALUES) as f:
        assert f.get_int("n") == 3
        assert f.get_float("x") == 0.5
        assert f.get_float("n") == 3.0 and isinstance(f.get_float("n"), float)
        assert f.get_bool("flag") is True
        assert f.get_str("text") == "t"
        assert (
            list(f.get_array("ints"))
            == list(f.get_array("ints", of=int))
            == list(f.get_array("ints", of=float))
            == [1, 2]
        )
        assert f.get_array("texts", of=str) == ["a"]
        assert f.get_array("flags", of=bool) == [True]


@pytest.mark.parametrize("getter", ["get_int", "get_float", "get_bool", "get_str", "get_array"])
def test_missing_values_have_the_default_or_are_named(tmp_path: Path, getter: str):
    with opened(tmp_path, {}) as f:
        assert getattr(f, getter)("gone", None) is None
        with pytest.raises(FormatError, match=r"m\.gguf: metadata 'gone' is missing; expected "):
            getattr(f, getter)("gone")


@pytest.mark.parametrize(
    ("getter", "key", "found"),
    [
        ("get_int", "x", "float32"),
        ("get_int", "flag", "bool"),
        ("get_int", "ints", "array of 2 uint32"),
        ("get_float", "text", "string"),
        ("get_float", "flag", "bool"),
        ("get_float", "floats", "array of 1 float32"),
        ("get_bool", "n", "uint32"),
        ("get_str", "n", "uint32"),
        ("get_str", "texts", "array of 1 string"),
        ("get_array", "n", "uint32"),
    ],
)
def test_wrong_types_are_refused_whatever_the_default(tmp_path: Path, getter: str, key: str, found: str):
    with (
        opened(tmp_path, GETTER_VALUES) as f,
        pytest.raises(FormatError, match=rf"m\.gguf: metadata '{key}' at offset \d+: expected .*, found {found}$"),
    ):
        getattr(f, getter)(key, None)


@pytest.mark.parametrize(
    ("key", "of"), [("ints", str), ("texts", float), ("floats", int), ("ints", bool), ("flags", int)]
)
def test_arrays_of_another_kind_are_refused(tmp_path: Path, key: str, of: type):
    with opened(tmp_path, GETTER_VALUES) as f, pytest.raises(FormatError, match=f"expected an array of {of.__name__}"):
        f.get_array(key, of=of)


def test_a_number_that_is_none_is_refused(tmp_path: Path):
    with opened(tmp_path, GETTER_VALUES) as f, pytest.raises(FormatError, match="'nan': expected a finite number"):
        f.get_float("nan")


def test_byte_strings_of_something_else(tmp_path: Path):
    with opened(tmp_path, GETTER_VALUES) as f:
        for key in ("ints", "text", "gone"):
            with pytest.raises(FormatError, match=key):
                f.metadata.byte_strings(key)


# -- closing ----------------------------------------------------------------------------------------------------------


def test_values_outlive_the_file_but_arrays_and_weights_do_not(tmp_path: Path):
    f = opened(tmp_path, {"text": "t" * 5000, "n": 3, "list": ["a"]}, [w.f32_tensor("a", (1,))])
    f.close()
    f.close()
    assert (f.metadata["text"], f.metadata["n"]) == ("t" * 5000, 3)
    with pytest.raises(ValueError, match="closed"):
        f.raw(f.tensors["a"])
    with pytest.raises(ValueError, match="closed"):
        f.metadata["list"]


def test_closing_leaves_arrays_that_look_into_the_file_alone(tmp_path: Path):
    with opened(tmp_path, {}, [w.f32_tensor("a", (4,), 3.0)]) as f:
        weights = np.frombuffer(f.raw(f.tensors["a"]), "<f4")
    assert weights.tolist() == [3, 3, 3, 3]


# -- speed ------------------------------------------------------------------------------------------------------------


def best_of(n: int, action) -> float:
    """Seconds of CPU time, so that a busy machine does not count; nothing here waits for anything."""
    times = []
    for _ in range(n):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def test_a_vocabulary_of_262144_tokens_is_opened_and_read_fast(tmp_path: Path):
    tokens = [f"token{i}" for i in range(262_144)]
    path = w.write_gguf(tmp_path / "m.gguf", {"tokenizer.ggml.tokens": tokens}, [w.f32_tensor("a", (1,))])
    assert best_of(5, lambda: GGUFFile.open(path).close()) < 0.15
    with GGUFFile.open(path) as f:
        assert best_of(5, lambda: f.get_array("tokenizer.ggml.tokens", of=str)) < 0.5
        assert f.get_array("tokenizer.ggml.tokens", of=str) == tokens


def test_an_85_gb_file_opens_without_being_read(tmp_path: Path):
    """Sparse: the length of the real file, a few KiB on disk."""
    dims = (256 * 2**20, 600)
    head = w.header({"general.architecture": "qwen3moe"}, [w.Tensor("a", 10, (), b"", dims=dims)])
    path = tmp_path / "sparse.gguf"
    with path.open("wb") as out:
        out.write(head)
        try:
            out.truncate(w.padded(len(head), 32) + 256 * 2**20 // 256 * 84 * 600)
        except OSError as error:
            pytest.skip(f"no sparse files here: {error}")
    assert best_of(5, lambda: GGUFFile.open(path).close()) < 0.05
    with GGUFFile.open(path) as f:
        assert f.tensor_bytes == 52_848_230_400
        assert bytes(f.raw(f.tensors["a"])[-4:]) == bytes(4)
