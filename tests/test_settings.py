"""Settings: defaults, a file that is read, one that is wrong, one key changed in place."""

from __future__ import annotations

import tomllib
from dataclasses import asdict

import pytest

from localinfer.errors import UsageError
from localinfer.settings import DOCUMENTED, Settings, load_settings, save_setting, settings_file


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALINFER_HOME", str(tmp_path))


def write(text: str) -> None:
    settings_file().parent.mkdir(parents=True, exist_ok=True)
    settings_file().write_text(text, encoding="utf-8")


def test_the_documented_file_holds_every_key_at_its_default():
    assert tomllib.loads(DOCUMENTED) == asdict(Settings())


def test_without_a_file_everything_is_default():
    assert load_settings() == Settings()


def test_a_key_is_changed_in_place_and_comments_stay():
    write('# mine\ntext_width = 80 # narrow\ntheme = "nord"\n')
    save_setting("theme", 'a "quoted" \\ name')
    assert settings_file().read_text(encoding="utf-8").startswith("# mine\ntext_width = 80 # narrow\n")
    assert load_settings() == Settings(theme='a "quoted" \\ name', text_width=80)


def test_the_first_change_writes_the_documented_file():
    save_setting("memory_bar", False)
    assert load_settings() == Settings(memory_bar=False)
    assert "# Colours" in settings_file().read_text(encoding="utf-8")


def test_a_missing_key_is_added_before_any_table():
    write("[later]\nx = 1\n")
    save_setting("text_width", 60)
    assert tomllib.loads(settings_file().read_text(encoding="utf-8"))["text_width"] == 60


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("theme = ", "settings.toml"),
        ("colour = 1", "unknown key 'colour'"),
        ('text_width = "wide"', "expected int, found 'wide'"),
        ("memory_bar = 1", "expected bool, found 1"),
        ("text_width = 7", "expected 40 to 400"),
        ("top_p = 1.5", "top_p: expected a number from 0 to 1, found 1.5"),
        ('draft = "many"', "draft: expected auto, off or a number"),
        ('thinking = "maybe"', 'thinking: expected "auto", "on" or "off"'),
    ],
)
def test_a_wrong_file_is_named(text, said):
    write(text)
    with pytest.raises(UsageError, match=said):
        load_settings()
