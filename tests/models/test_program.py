"""A recorded program: views, lifetimes, and a layout in which no two living buffers touch."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from localinfer.formats.gguf import GGUFFile
from localinfer.models.config import ModelConfig
from localinfer.models.decoder import Decoder
from localinfer.models.program import ALIGN, Program, Recorder
from tests.models.tiny import golden_models


@dataclass
class Shape:
    shape: tuple[int, ...]


def assert_sound(program: Program, arena_bytes: int) -> None:
    for i, a in enumerate(program.buffers):
        assert a.offset % ALIGN == 0 and a.offset >= 0 and a.offset + a.n_bytes <= arena_bytes
        for b in program.buffers[:i]:
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.n_bytes <= b.offset or b.offset + b.n_bytes <= a.offset
            assert apart or not together, (a, b)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=30))
def test_layout_of_random_programs(steps: list[tuple[int, int, int]]) -> None:
    """Each step projects one earlier value to a new width and adds another of that width where there is one."""
    recorder = Recorder(3, 1)
    values = [recorder.embed(Shape((100, 16)), None)]
    for width, which, other in steps:
        x = values[which % len(values)]
        y = recorder.linear(x, Shape((width, x.shape[1])))
        same = [v for v in values if v.shape == y.shape]
        values.append(y + same[other % len(same)] if same else y)
    recorder.program.result = values[-1]
    assert_sound(recorder.program, recorder.program.layout())


def test_layout_reuses_room() -> None:
    recorder = Recorder(4, 1)
    x = recorder.embed(Shape((10, 256)), None)
    for _ in range(50):
        x = recorder.linear(x, Shape((256, 256)))
    recorder.program.result = x
    assert recorder.program.layout() == 2 * 4 * 256 * 4  # what is read and what is written


def test_views_record_no_instruction() -> None:
    recorder = Recorder(4, 2)
    x = recorder.embed(Shape((10, 24)), None)
    view = x[2:, 8:16].reshape(2, 2, 4)
    assert (view.shape, view.row, view.col) == ((2, 2, 4), 2, 8)
    assert len(recorder.program.instructions) == 1


def test_a_real_model_records_soundly() -> None:
    for tiny in golden_models().values():
        with GGUFFile.open(tiny.path) as f:
            program = Decoder(ModelConfig.from_gguf(f), f.tensors).record(5, 2)
        assert program.result is not None and program.result.shape == (2, 320)
        assert_sound(program, program.layout())
