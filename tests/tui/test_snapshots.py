"""Pictures of the main screens, compared with those that were looked at. `pytest tests/tui --snapshot-update` renews.

A picture holds what Textual draws, which differs between its versions: with another one than the pictures were made
with, these tests are skipped.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from localinfer.tui.themes import DARK, LIGHT
from tests.tui import gallery

MADE_WITH = "8.2.8"
SIZES = [(40, 12), (80, 24), (120, 36)]

pytestmark = pytest.mark.skipif(
    version("textual") != MADE_WITH,
    reason=f"the pictures were made with textual {MADE_WITH}, here is {version('textual')}",
)


def same(snap_compare, tmp_path: Path, size: tuple[int, int], theme: str, act: gallery.Act) -> bool:
    async def run_before(pilot) -> None:
        await gallery.ready(pilot)
        await act(pilot)

    app = gallery.make_app(tmp_path / "sessions", theme)
    return snap_compare(app, terminal_size=size, run_before=run_before)


SCREENS = (gallery.chat, gallery.models, gallery.plan, gallery.bench, gallery.conversations)


@pytest.mark.parametrize("theme", [DARK.name, LIGHT.name])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("act", SCREENS, ids=lambda act: act.__name__)
def test_screen(snap_compare, tmp_path, act, size, theme):
    assert same(snap_compare, tmp_path, size, theme, act)


def test_branches(snap_compare, tmp_path):
    assert same(snap_compare, tmp_path, (100, 30), LIGHT.name, gallery.branches)


def test_commands(snap_compare, tmp_path):
    assert same(snap_compare, tmp_path, (40, 12), DARK.name, gallery.palette_of_commands)


def test_help(snap_compare, tmp_path):
    assert same(snap_compare, tmp_path, (80, 24), LIGHT.name, gallery.help_screen)


def test_welcome(snap_compare, tmp_path):
    assert same(snap_compare, tmp_path, (40, 12), LIGHT.name, gallery.welcome)
