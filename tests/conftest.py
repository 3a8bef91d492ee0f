"""What every test gets: a place of its own for saved files, so that no test writes into the user's folders."""

from __future__ import annotations

import pytest

from localinfer.paths import HOME_VARIABLE


@pytest.fixture(autouse=True)
def own_files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger, sessions, settings and models below a fresh folder; also for child processes."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path_factory.mktemp("home")))
