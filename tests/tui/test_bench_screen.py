"""The bench screen: rows as the command prints them, live, saved and compared."""

from __future__ import annotations

import sys

import pytest

from localinfer import paths
from localinfer.bench import Row
from localinfer.cli.bench import print_row
from localinfer.tui.bench_runs import BenchRow, command, parse_row, save_run, saved_runs
from localinfer.tui.screens.bench import BenchScreen, BenchTable
from localinfer.tui.screens.choose_run import ChooseRunScreen
from localinfer.tui.widgets.bench_plot import BenchPlot
from tests.tui.conftest import ask, shown, until


def printed(capsys, **fields) -> str:
    names = Row.__dataclass_fields__
    given = {"kind": "decode", "n": 32, "depth": 512, "kv": "q8_0", "threads": 2, "reps": (40.0, 41.5, 43.0), **fields}
    defaults = {"read_bytes_per_token": 1, "mbu": None}
    print_row(
        Row(**{name: given.get(name, defaults.get(name)) for name in names if name in {**defaults, **given}}), True
    )
    return capsys.readouterr().out


def test_the_rows_of_the_bench_command_are_understood(capsys):
    rows = [parse_row(line) for line in printed(capsys).splitlines()]
    assert rows == [None, BenchRow("decode", 32, 512, "q8_0", 41.5, 40.0, 43.0)]


def test_depths_stay_within_the_context():
    line = command("/m.gguf", "f16", 2048)
    assert line[line.index("--depth") + 1] == "0,512,1024"


def test_a_saved_run_is_found_again_and_a_torn_one_passed_over(tmp_path):
    row = BenchRow("decode", 32, 0, "f16", 40.0, 39.0, 41.0)
    save_run(tmp_path, "a model", [row])
    (tmp_path / "99999999-999999-a_model.json").write_text("{", encoding="utf-8")
    assert [run.rates for run in saved_runs(tmp_path, "a model")] == [{row.key: 40.0}]
    assert saved_runs(tmp_path, "other") == []


@pytest.fixture
def fake_bench(monkeypatch):
    def use(code: str) -> None:
        monkeypatch.setattr("localinfer.tui.screens.bench.command", lambda *_: [sys.executable, "-c", code])

    return use


TABLE = """print('''kind        n   depth  kv         threads     tok/s   (min .. max)
decode     32       0  f16              2      40.0   (39.0 .. 41.0)
decode     32     512  f16              2      30.0   (29.0 .. 31.0)''')"""


async def test_rows_appear_are_saved_and_compared(make_app, fake_bench):
    fake_bench(TABLE)
    save_run(paths.state_dir() / "bench", "tiny", [BenchRow("decode", 32, 512, "f16", 20.0, 19.0, 21.0)])
    app = make_app()
    async with app.run_test(size=(90, 30)) as pilot:
        await until(lambda: app.engine_alive)
        await pilot.press("f3", "r")
        await until(lambda: isinstance(app.screen, BenchScreen) and len(app.screen.rows) == 2)
        await until(lambda: app.screen._process is None)
        text = str(app.screen.query_one(BenchTable).render())
        assert "40.0" in text and "+50%" in text
        await pilot.press("s")
        await pilot.pause()
        assert saved_runs(paths.state_dir() / "bench", "tiny")[0].rates[("decode", 32, 0, "f16")] == 40.0
        await pilot.press("escape")
        await ask(pilot, "still there?")
        assert "Paris" in shown(app) and len(app.bridge.service.opened) == 2


def plotted(app) -> str:
    return app.screen.query_one(BenchPlot).render().plain


async def test_the_plot_compares_with_the_run_that_is_chosen(make_app, fake_bench, monkeypatch):
    fake_bench(TABLE)
    for hour, rate in (("08", 10.0), ("09", 60.0)):
        rows = [BenchRow("decode", 32, depth, "f16", rate, rate, rate) for depth in (0, 512)]
        with monkeypatch.context() as patch:
            patch.setattr("time.strftime", lambda form, hour=hour: form.replace("%H", hour))
            save_run(paths.state_dir() / "bench", "tiny", rows)
    app = make_app()
    async with app.run_test(size=(90, 30)) as pilot:
        await until(lambda: app.engine_alive)
        app.push_screen(BenchScreen("/models/tiny.gguf"))
        await until(lambda: isinstance(app.screen, BenchScreen) and app.screen.query(BenchPlot))
        await pilot.pause()
        assert "•" in plotted(app) and "63" in plotted(app)  # the latest, with some room above
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, ChooseRunScreen))
        await pilot.press("down", "enter")
        await until(lambda: isinstance(app.screen, BenchScreen))
        assert "10.5" in plotted(app)
        await pilot.press("r")
        await until(lambda: len(app.screen.rows) == 2 and app.screen._process is None)
        await pilot.pause()
        assert "42" in plotted(app) and "•" in plotted(app) and "512" in plotted(app)
        assert "+300%" in str(app.screen.query_one(BenchTable).render())
        await pilot.resize_terminal(40, 12)
        await pilot.pause()
        assert not app.screen.query_one(BenchPlot).display


async def test_a_failing_measurement_says_why(make_app, fake_bench):
    fake_bench("import sys; sys.exit('error: no such model')")
    app = make_app()
    async with app.run_test(size=(40, 12)) as pilot:
        await until(lambda: app.engine_alive)
        await pilot.press("f3", "r")
        await until(lambda: "no such model" in str(app.screen.query_one("#bench-said").content))
