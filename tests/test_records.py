"""localinfer.records against the standard library's dataclasses: the same classes, made both ways, behave alike."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from typing import Any

import pytest

from localinfer import records


def classes(module: Any) -> dict[str, Any]:
    """The same three classes from `dataclasses` or from `records`."""

    @module.dataclass(frozen=True)
    class Point:
        """A place."""

        x: int
        y: float = 0.5
        tags: dict[str, int] = module.field(default_factory=dict)

        @property
        def double(self) -> int:
            return 2 * self.x

    @module.dataclass(frozen=True)
    class Named(Point):
        name: str = "no name"

        def __post_init__(self):
            object.__setattr__(self, "name", self.name.upper())

    @module.dataclass(eq=False)
    class Node:
        value: int
        next: Any = None

    return {"Point": Point, "Named": Named, "Node": Node}


OURS, THEIRS = classes(records), classes(dataclasses)
CALLS = [
    ("Point", (1,), {}), ("Point", (1, 2.0), {"tags": {"a": 1}}), ("Point", (), {"y": 1.0, "x": 3}), ("Point", (), {}),
    ("Point", (1, 2, {}, 4), {}), ("Point", (1,), {"x": 1}), ("Point", (1,), {"z": 1}), ("Named", (1,), {"name": "n"}),
    ("Named", (1, 2, {}), {}), ("Node", (5,), {}), ("Node", (5,), {"next": 6}), ("Node", (), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_made_printed_and_taken_apart_alike(name, args, kwargs):
    try:
        theirs = THEIRS[name](*args, **kwargs)
    except TypeError as error:
        with pytest.raises(TypeError) as found:
            OURS[name](*args, **kwargs)
        assert str(found.value).split("__init__")[-1] == str(error).split("__init__")[-1]
        return
    ours = OURS[name](*args, **kwargs)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    assert type(ours).__match_args__ == type(theirs).__match_args__


def test_equality_and_hash():
    point, node = OURS["Point"], OURS["Node"]
    assert point(1) == point(1) != point(2) and point(1) != THEIRS["Point"](1)
    assert point(1) != OURS["Named"](1)
    assert hash(point(1, tags=())) == hash(point(1, tags=()))
    with pytest.raises(TypeError, match="unhashable"):
        hash(point(1))
    a, b = node(1), node(1)
    assert a != b and a == a and len({a, b}) == 2
    a.value = 7
    assert a.value == 7


def test_frozen():
    point = OURS["Point"](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert point == OURS["Point"](1)


def test_every_instance_has_its_own_default():
    first, second = OURS["Point"](1), OURS["Point"](1)
    first.tags["a"] = 1
    assert second.tags == {} and OURS["Point"].y == 0.5 and not hasattr(OURS["Point"], "tags")


@pytest.mark.parametrize("replace", [records.replace, dataclasses.replace])
def test_replace(replace):
    named = OURS["Named"](1, name="a")
    other = replace(named, x=5, name="b")
    assert (other.x, other.name, named.x, named.name) == (5, "B", 1, "A")
    with pytest.raises(TypeError):
        replace(named, nonsense=1)


def test_a_subclass_made_first_and_the_base_later():
    fresh = classes(records)
    assert repr(fresh["Named"](1)).endswith("Named(x=1, y=0.5, tags={}, name='NO NAME')")
    assert fresh["Point"](2).double == 4


def test_copied_and_sent_through_a_pipe():
    from localinfer.kv.spec import KVLayer

    layer = KVLayer("full", 2, 64, 64, "f16", "f16", 0, 4)
    assert pickle.loads(pickle.dumps(layer)) == layer == copy.deepcopy(layer)
    assert pickle.loads(pickle.dumps(layer)) is not layer


def test_the_standard_librarys_module_is_not_loaded():
    script = "import sys, localinfer.planner.plan; assert 'dataclasses' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
