"""bench and eval over a scripted engine: rows, shares, files; the corpus; the chart."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from localinfer.bench import BenchAsk, Roof, Row, run_bench, with_mbu
from localinfer.draft_corpus import COPY_HEAVY, KINDS, corpus
from localinfer.engine.params import EngineOptions
from localinfer.errors import UsageError
from localinfer.eval import Window, evaluate, log_softmax, windows
from localinfer.svg_plot import Line, line_chart
from tests.fakes.scripted import engine, noise, says


@pytest.fixture
def scripted_engine(monkeypatch, tmp_path):
    import localinfer.cli.bench as bench
    import localinfer.cli.eval as evaluation
    import localinfer.engine.opening as real

    path = tmp_path / "paper.gguf"
    path.write_bytes(b"paper")
    for module in (bench, evaluation):
        monkeypatch.setattr(module, "resolve", lambda reference: path)
    monkeypatch.setattr(real, "open_engine", lambda path, options=None, progress=None: engine(noise(), options))
    return path


def test_lists_multiply_and_every_repetition_is_kept(cli, scripted_engine):
    code, out, _ = cli(
        "bench", "m", "--pp", "8,16", "--tg", "4", "--depth", "0,32", "--kv", "f16,q8_0", "--reps", 2, "--json"
    )
    found = json.loads(out)
    assert code == 0 and len(found["rows"]) == 2 * 2 * 3
    kinds = [(r["kind"], r["n"], r["depth"], r["kv"]) for r in found["rows"]]
    assert kinds[:3] == [("prefill", 8, 0, "f16"), ("prefill", 16, 0, "f16"), ("decode", 4, 0, "f16")]
    assert kinds[-1] == ("decode", 4, 32, "q8_0")
    for row in found["rows"]:
        assert len(row["reps"]) == 2 and row["tok_s"]["min"] == min(row["reps"]) > 0
    assert found["model"]["file"] == "paper.gguf" and len(found["model"]["sha256"]) == 64
    assert {"engine", "version", "machine", "threads", "bandwidth_bytes_s"} <= set(found)


def test_files_are_written(cli, scripted_engine, tmp_path):
    table, plot = tmp_path / "rows.csv", tmp_path / "plot.svg"
    code, out, _ = cli(
        "bench",
        "m",
        "--pp",
        0,
        "--tg",
        4,
        "--depth",
        "0,16",
        "--verify",
        "1,4",
        "--reps",
        1,
        "--csv",
        table,
        "--plot",
        plot,
    )
    rows = list(csv.DictReader(table.open()))
    assert code == 0 and [(r["kind"], r["depth"]) for r in rows] == [
        ("decode", "0"), ("verify", "0"), ("verify", "0"), ("decode", "16"), ("verify", "16"), ("verify", "16"),
    ]  # fmt: skip
    assert ET.parse(plot).getroot().tag.endswith("svg")
    assert out.startswith("kind        n   depth")


def test_thread_counts_are_a_list(cli, scripted_engine):
    code, out, _ = cli("bench", "m", "--pp", 0, "--tg", 4, "--threads", "1,2", "--reps", 1, "--json")
    assert code == 0 and len(json.loads(out)["rows"]) == 2
    for wrong in ("1,x", "0"):
        code, _, err = cli("bench", "m", "--threads", wrong)
        assert code == 2 and "--threads" in err


def test_drafting_is_compared_on_the_corpus(cli, scripted_engine, monkeypatch):
    import localinfer.bench_draft as bench_draft

    monkeypatch.setattr(bench_draft, "open_engine", lambda path, options: engine(noise(), EngineOptions(ctx=4096)))
    monkeypatch.setattr(bench_draft, "ANSWER_TOKENS", 6)
    monkeypatch.setattr(bench_draft, "corpus", lambda: corpus()[::12])
    code, out, _ = cli("bench", "m", "--pp", 0, "--tg", 4, "--reps", 1, "--draft", 3, "--json")
    found = json.loads(out)["draft"]
    assert code == 0 and found["same_text"] and found["rows"][0]["name"] == "code edit"
    assert found["worst_gain"] == min(gain for row in found["rows"] for gain in row["gains"])
    code, out, _ = cli("bench", "m", "--pp", 0, "--tg", 4, "--reps", 1, "--json")
    assert code == 0 and "draft" not in json.loads(out)
    code, _, err = cli("bench", "m", "--draft", "lots")
    assert code == 2 and "lots" in err


def test_a_row_is_only_the_work_since_the_last():
    made = []

    def opened(options):
        made.append(engine(noise(), options))
        return made[-1]

    ask = BenchAsk(pp=(24,), tg=(6,), depths=(40,), reps=2)
    list(run_bench(opened, ask, EngineOptions(), Roof()))
    rows = sum(rows for _, rows in made[0]._model.calls)
    assert made[0].n_ctx == 40 + 24 + 1
    # prefills: the depth once, then 3 times 24 tokens after 40; decodes: 2 times the last token and 6 steps
    assert sum(t for t, _ in made[0]._model.calls) <= 40 + 3 * (24 + 1) + 2 * (1 + 6)
    assert rows == 1 + 3 * 2 + 2 * 7


def test_shares_are_of_the_bandwidth_and_never_above_1():
    roof = Roof()
    roof.saw(100.0)
    row = Row("decode", 4, 0, "f16", 1, (1.0, 3.0, 2.0), read_bytes_per_token=30)
    assert with_mbu(row, roof.bandwidth_bytes_s).mbu == pytest.approx(0.6)
    roof.saw(max(row.reps) * 60)  # a rate that was reached
    assert with_mbu(Row("decode", 4, 0, "f16", 1, (3.0,), 60), roof.bandwidth_bytes_s).mbu == 1.0
    assert with_mbu(Row("prefill", 4, 0, "f16", 1, (3.0,), 60), 1.0).mbu is None


def test_the_corpus_has_ten_of_each_kind():
    prompts = corpus()
    assert len(prompts) == len({p.messages for p in prompts}) == 60
    assert all(sum(p.kind == kind for p in prompts) == 10 for kind in KINDS) and set(COPY_HEAVY) < set(KINDS)


def test_the_chart_is_sound_for_odd_input():
    for lines in ([], [Line("a<b", [(0, 0)])], [Line("x", [(0, 1e-9), (1e9, 5e12)]), Line("x, bound", [(1, 2)], True)]):
        text = line_chart("T & <i>", "x", "y", lines)
        ET.fromstring(text)
        assert "nan" not in text and "inf" not in text


# --- eval


def test_windows_are_those_of_llama_cpps_tool():
    found = windows(range(100, 127), 8, start_token=1)
    assert [w.ids for w in found] == [[1, *range(s + 1, s + 8)] for s in (100, 108, 116)]
    assert all(w.scored == 3 for w in found)  # 8 - 1 - 4: the last token of a window predicts nothing
    assert list(found[0].targets) == [105, 106, 107]
    assert windows(range(8), 8, "all")[0].scored == 7
    with pytest.raises(UsageError, match="7 tokens, expected at least a window of 8"):
        windows(range(7), 8)


def test_perplexity_and_divergence_against_a_plain_sum():
    a, b = engine(noise()), engine(lambda prefix: noise()(prefix) + noise(sharpness=0.3)([9, *prefix]))
    parts = windows(list(b"A text of some length, long enough."), 16)
    total, apart = evaluate(a, parts, {"other": b})
    nll, kl, same = [], [], []
    for w in parts:
        p, q = (log_softmax(e.logits(w.ids[:-1]).astype(np.float64)) for e in (a, b))
        for i in range(len(w.ids) - 1 - w.scored, len(w.ids) - 1):
            nll.append(-p[i, w.ids[i + 1]])
            kl.append((np.exp(p[i]) * (p[i] - q[i])).sum())
            same.append(p[i].argmax() == q[i].argmax())
    assert total.n == len(nll) == 2 * 7
    assert total.ppl == pytest.approx(np.exp(np.mean(nll)), rel=1e-5)
    found = apart["other"].as_json()
    assert found["kld_mean"] == pytest.approx(np.mean(kl), rel=1e-4) and found["top1"] == np.mean(same)
    assert found["kld_p99"] >= found["kld_mean"] > 0


def test_a_model_that_knows_the_text_has_perplexity_1():
    text = "It is all known?abcdefgh"
    total, _ = evaluate(engine(says("abcdefgh")), [Window([256, *text.encode()], 8)], {})
    assert total.ppl == pytest.approx(1.0, abs=1e-4)


def test_eval_command(cli, scripted_engine, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Some words to predict, over and over. " * 4)
    code, out, _ = cli("eval", "m", "--text", text, "--window", 32, "--compare-kv", "--json")
    found = json.loads(out)
    assert code == 0 and found["tokens"] == 4 * 15 and set(found["kv"]) == {"q8_0", "q8_0/q4_0", "q4_0"}
    assert found["kv"]["q8_0"]["kld_mean"] == pytest.approx(0, abs=1e-6)  # paper keeps tokens, whatever the type
    assert found["ppl"] == pytest.approx(np.exp(found["mean_nll"]))
    code, out, _ = cli("eval", "m", "--text", text, "--window", 32, "--against", "m", "--limit", 64)
    assert code == 0 and out.startswith("perplexity ") and "--against" in out
    assert cli("eval", "m", "--text", text, "--window", 3)[0] == 2
