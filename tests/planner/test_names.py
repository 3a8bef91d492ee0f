"""`localinfer.planner` offers every public function, and each says what it does."""

from __future__ import annotations

import subprocess
import sys

import pytest

import localinfer.planner as planner


@pytest.mark.parametrize("name", planner.__all__)
def test_every_name_is_there_and_documented(name):
    found = getattr(planner, name)
    if callable(found):
        assert found.__doc__ and found.__module__.startswith("localinfer.planner.")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = planner.no_such_thing


def test_the_planner_loads_no_array_library_and_no_backend():
    script = (
        "import sys, localinfer.planner as p; [getattr(p, n) for n in p.__all__]; "
        "heavy = [m for m in sys.modules if m.split('.')[0] in ('numpy', 'mlx', 'textual', 'rich', 'psutil')]; "
        "assert not heavy, heavy; assert not any(m.startswith('localinfer.backends') for m in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
