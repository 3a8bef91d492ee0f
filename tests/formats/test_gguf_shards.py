from __future__ import annotations

from pathlib import Path

import pytest

from localinfer.errors import FormatError
from localinfer.formats.gguf import GGUFFile
from tests.fakes import gguf_writer as w

META = {"general.architecture": "llama", "general.name": "Split"}
SHARDS = [
    [w.f32_tensor("a", (2,), 1.0)],
    [w.f32_tensor("b", (3,), 2.0), w.f32_tensor("c", (1,), 3.0)],
    [w.f32_tensor("d", (4,), 4.0)],
]


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    return w.write_split(tmp_path, "model", META, SHARDS)


def refusal(path: Path) -> FormatError:
    with pytest.raises(FormatError) as caught:
        GGUFFile.open(path)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_shard_opens_the_model(shards: list[Path], given: int):
    with GGUFFile.open(shards[given]) as f:
        assert f.path == shards[given]
        assert f.paths == tuple(shards)
        assert f.metadata["general.name"] == "Split"
        assert [(t.name, t.part) for t in f.tensors.values()] == [("a", 0), ("b", 1), ("c", 1), ("d", 2)]
        assert all(bytes(f.raw(f.tensors[t.name])) == t.data for shard in SHARDS for t in shard)
        assert f.file_bytes == sum(p.stat().st_size for p in shards)
        assert f.tensor_bytes == 4 * 10


def test_a_first_shard_without_tensors(tmp_path: Path):
    paths = w.write_split(tmp_path, "model", META, [[], SHARDS[0]])
    with GGUFFile.open(paths[1]) as f:
        assert list(f.tensors) == ["a"]


def test_a_split_of_one_needs_no_name(tmp_path: Path):
    [path] = w.write_split(tmp_path, "model", META, [SHARDS[0]])
    with GGUFFile.open(path.rename(tmp_path / "whole.gguf")) as f:
        assert list(f.tensors) == ["a"]


def test_missing_shards_are_named(shards: list[Path]):
    shards[1].unlink()
    shards[2].unlink()
    message = refusal(shards[0]).message
    assert "2 of 3 shards missing: 'model-00002-of-00003.gguf', 'model-00003-of-00003.gguf'" in message


def test_many_missing_shards_are_counted(tmp_path: Path):
    paths = w.write_split(tmp_path, "model", META, [[t] for t in (w.f32_tensor(f"t{i}", (1,)) for i in range(9))])
    for path in paths[1:]:
        path.unlink()
    assert "8 of 9 shards missing" in refusal(paths[0]).message
    assert refusal(paths[0]).message.endswith("and 5 more")


@pytest.mark.parametrize("name", ["renamed.gguf", "model-00001-of-00003.gguf", "model-00002-of-00004.gguf"])
def test_a_shard_under_another_name(shards: list[Path], name: str, tmp_path: Path):
    (tmp_path / "other").mkdir()
    path = shards[1].rename(tmp_path / "other" / name)
    assert "shard 2 of 3: its name must end in -00002-of-00003.gguf" in refusal(path).message


def test_a_number_beyond_the_count(tmp_path: Path):
    paths = w.write_split(tmp_path, "model", META, SHARDS[:2], split_no=2)
    path = paths[0].rename(tmp_path / "model-00003-of-00002.gguf")
    assert "shard 3 of 2" in refusal(path).message


def test_shards_that_changed_places(shards: list[Path], tmp_path: Path):
    spare = tmp_path / "spare"
    shards[1].rename(spare)
    shards[2].rename(shards[1])
    spare.rename(shards[2])
    error = refusal(shards[0])
    assert f"{shards[1]}: expected split.no 1 and split.count 3, found 2 and 3" in error.message


def test_a_whole_model_among_the_shards(shards: list[Path]):
    w.write_gguf(shards[2], META, SHARDS[2])
    assert "expected split.no 2 and split.count 3, found -1 and -1" in refusal(shards[0]).message


def test_a_shard_of_another_model(shards: list[Path], tmp_path: Path):
    (tmp_path / "other").mkdir()
    other = w.write_split(
        tmp_path / "other", "model", META, [*SHARDS[:2], [w.f32_tensor("d", (1,)), w.f32_tensor("e", (1,))]]
    )
    other[2].rename(shards[2])
    assert f"{shards[2]}: split.tensors.count is 5, but 4 in model-00001" in refusal(shards[0]).message


def test_a_shard_of_another_model_with_as_many_tensors(shards: list[Path], tmp_path: Path):
    (tmp_path / "other").mkdir()
    other = w.write_split(tmp_path / "other", "model", META, [SHARDS[0], SHARDS[1], [w.f32_tensor("b", (1,))]])
    other[2].rename(shards[2])
    assert f"{shards[2]}: tensor 'b' is also in model-00002-of-00003.gguf" in refusal(shards[0]).message


def test_tensors_missing_from_the_shards(tmp_path: Path):
    paths = w.write_split(tmp_path, "model", META, SHARDS, split_tensors_count=7)
    assert "split.tensors.count is 7, but the shards hold 4 tensors" in refusal(paths[2]).message


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [("split.count", "3", "string"), ("split.count", -3, "-3"), ("split.count", [3], "array of 1 uint32")],
)
def test_split_values_of_another_type(tmp_path: Path, key: str, value: object, found: str):
    path = w.write_gguf(tmp_path / "model.gguf", {**META, key: value}, SHARDS[0])
    with pytest.raises(FormatError, match=rf"metadata '{key}' at offset \d+: expected a count, found {found}"):
        GGUFFile.open(path)


def test_a_broken_shard_is_named(shards: list[Path]):
    shards[2].write_bytes(shards[2].read_bytes()[:-32])
    assert f"{shards[2]}: tensor 'd' at offset" in refusal(shards[0]).message


@pytest.mark.parametrize("n_first", [0, 1])
@pytest.mark.parametrize("keep_padding", [True, False])
def test_shards_joined_with_cat_are_recognised(tmp_path: Path, n_first: int, keep_padding: bool):
    paths = w.write_split(tmp_path, "model", META, [SHARDS[0][:n_first], SHARDS[1]])
    first = paths[0].read_bytes()
    if n_first and not keep_padding:
        first = first[:-24]
    whole = tmp_path / "whole.gguf"
    whole.write_bytes(first + paths[1].read_bytes())
    error = refusal(whole)
    assert f"a second GGUF starts at offset {len(first)}; shards were joined with `cat`" in error.message
    assert "llama-gguf-split --merge" in error.hint
