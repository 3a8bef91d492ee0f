"""The page about the app says what the app does."""

from __future__ import annotations

import re

from tests.tui.app_page import PAGE, page
from tests.tui.gallery import PICTURES


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.tui.app_page"


def test_its_pictures_are_there_and_are_made_by_the_gallery():
    names = re.findall(r"\]\(pictures/([a-z-]+)\.svg\)", page())
    assert names and set(names) <= set(PICTURES)
    assert all((PAGE.parent / "pictures" / f"{name}.svg").is_file() for name in names)
