"""`fit` and `inspect` of models on the hub: the header is fetched, the answer is the local file's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from localinfer.formats.gguf_header import read_header
from tests.fakes import gguf_writer as w
from tests.fakes.hub_server import serving
from tests.planner.sparse_headers import MODELS, write_header

ROOT = Path(__file__).parents[2]
RUN = """
import contextlib, io, json, sys, time
from localinfer.cli.main import main
sleep = time.sleep
time.sleep = lambda s: sleep(min(s, 0.01))  # the hub's library waits seconds between tries
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def run(hub, *commands):
    """Each command's (exit code, stdout, stderr); one process for all, with the hub at `hub`."""
    environment = {
        **os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, "-c", RUN, json.dumps(commands)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def header_bytes(path: Path) -> int:
    import mmap

    with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return read_header(data, str(path)).data_start


def test_ten_models_cost_their_headers_and_give_the_local_answer(tmp_path):
    paths = {f"{name}.gguf": write_header(tmp_path, name) for name in MODELS}
    assert len(paths) == 10
    options = ["--json", "--ctx", "32k", "--memory", "64GiB", "--layers"]
    with serving(paths) as hub:
        remote = run(hub, *(["fit", f"hf:o/r/{name}", *options] for name in paths))
        asked = Counter(path for command, path, _ in hub.asked)
        local = run(hub, *(["fit", str(path), *options] for path in paths.values()))
    for name, (code, out, err), here in zip(paths, remote, local, strict=True):
        assert (code, json.loads(out)) == (here[0], json.loads(here[1])), err
        assert hub.sent_of[name] <= 1.1 * header_bytes(paths[name]), name
        assert asked[f"/o/r/resolve/main/{name}"] < 30


@pytest.fixture
def quants(tmp_path):
    """Three quantizations of a small model with a large vocabulary."""
    words = [f"word{i}" for i in range(20_000)]
    files = {}
    for quant, kind, row in (("Q8_0", 8, 34), ("Q4_0", 2, 18), ("F16", 1, 64)):
        meta = {
            "general.architecture": "llama", "general.name": "tiny", "llama.block_count": 1,
            "llama.context_length": 512, "llama.embedding_length": 32, "llama.feed_forward_length": 32,
            "llama.attention.head_count": 1, "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "tokenizer.ggml.tokens": words, "tokenizer.ggml.scores": w.Typed(w.ARRAY, [0.0] * 20_000, w.FLOAT32),
            "tokenizer.ggml.bos_token_id": 1,
        }  # fmt: skip
        shapes = {"attn_q": 32, "attn_k": 32, "attn_v": 32, "attn_output": 32, "ffn_gate": 32, "ffn_up": 32}
        tensors = [w.Tensor("token_embd.weight", kind, (20_000, 32), bytes(20_000 * row))]
        tensors += [w.Tensor(f"blk.0.{n}.weight", kind, (rows, 32), bytes(rows * row)) for n, rows in shapes.items()]
        tensors += [w.Tensor("blk.0.ffn_down.weight", kind, (32, 32), bytes(32 * row))]
        tensors += [w.f32_tensor(f"blk.0.{n}.weight", (32,)) for n in ("attn_norm", "ffn_norm")]
        files[f"tiny-{quant}.gguf"] = w.write_gguf(
            tmp_path / f"tiny-{quant}.gguf", meta, [*tensors, w.f32_tensor("output_norm.weight", (32,))]
        )
    return files


def test_all_quantizations_of_a_repository(quants):
    one = header_bytes(quants["tiny-Q8_0.gguf"])
    with serving(quants) as hub:
        [(code, out, err)] = run(hub, ["fit", "hf:o/r", "--json", "--memory", "32MiB"])
        listed = json.loads(out)
        assert hub.sent < 1.1 * one + 3 * 140_000  # the vocabulary came once
        assert (code == 0 and listed["best"] is None) or err == ""
        [(code, text, _)] = run(hub, ["fit", "hf:o/r", "--memory", "1GiB"])
    assert [m["reference"] for m in listed["models"]] == ["hf:o/r:Q4_0", "hf:o/r:Q8_0", "hf:o/r:F16"]
    for m in listed["models"]:
        assert m["file_bytes"] == quants[m["files"][0]].stat().st_size
        assert m["left"] == 32 * 2**20 - m["total"] and m["max_ctx"]
    assert code == 0 and next(line for line in text.splitlines() if "best that fits" in line).startswith("hf:o/r:F16")


def test_nothing_fits_is_exit_3(quants):
    with serving(quants) as hub:
        [(code, out, _)] = run(hub, ["fit", "hf:o/r", "--memory", "1MiB"])
    assert code == 3 and out.count("does not fit") == 3 and "best" not in out


def test_inspect_says_what_it_says_of_the_file(quants):
    with serving(quants) as hub:
        [(code, out, err), local] = run(
            hub, ["inspect", "hf:o/r:Q4_0", "--json"], ["inspect", str(quants["tiny-Q4_0.gguf"]), "--json"]
        )
    remote, here = json.loads(out), json.loads(local[1])
    assert code == 0, err
    assert remote.pop("shards")[0]["path"] == "hf:o/r/tiny-Q4_0.gguf" and here.pop("shards")
    assert remote == here


@pytest.mark.parametrize("fault", ["cut", "no ranges", "429", "500", "drip", "redirect"])
def test_faults_do_not_change_the_answer(quants, fault):
    with serving(quants) as other, serving(quants, other.url) as hub:
        hub.faults = [fault, "", fault, fault]
        [(code, out, err), local] = run(
            hub, ["fit", "hf:o/r:Q8_0", "--json", "--memory", "1GiB"],
            ["fit", str(quants["tiny-Q8_0.gguf"]), "--json", "--memory", "1GiB"],
        )  # fmt: skip
    assert code == 0 and json.loads(out) == json.loads(local[1]), err


def test_a_server_that_never_answers_well_is_one_line(quants):
    with serving(quants) as hub:
        hub.faults = ["500"] * 50
        [(code, out, err)] = run(hub, ["fit", "hf:o/r:Q8_0"])
    assert (code, out) == (2, "") and err.startswith("error: o/r: the hub answered 500\nhint: ")


def test_a_split_model(tmp_path):
    first = {"general.architecture": "nosuch", "split.no": 0, "split.count": 2, "split.tensors.count": 2}
    names = [f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    files = {
        names[0]: w.write_gguf(tmp_path / names[0], first, [w.f32_tensor("token_embd.weight", (64, 64))]),
        names[1]: w.write_gguf(
            tmp_path / names[1], {"split.no": 1, "split.count": 2, "split.tensors.count": 2},
            [w.f32_tensor("output.weight", (64, 64))],
        ),
    }  # fmt: skip
    with serving(files) as hub:
        [(code, out, err), local] = run(
            hub, ["fit", "hf:o/r", "--json", "--memory", "1GiB"],
            ["fit", str(files[names[0]]), "--json", "--memory", "1GiB"],
        )  # fmt: skip
    assert code == local[0] == 5, err
    remote, here = json.loads(out), json.loads(local[1])
    assert [remote[k] for k in ("model", "bytes", "rows")] == [here[k] for k in ("model", "bytes", "rows")]


@pytest.mark.parametrize("content", [b"<!DOCTYPE html>" + bytes(100_000), b"GGUF", b"GGUF" + bytes(50_000)], ids="abc")
def test_what_is_no_gguf_is_one_line_that_names_the_remote_file(content):
    with serving({"m-Q8_0.gguf": content}) as hub:
        [(code, out, err)] = run(hub, ["inspect", "hf:o/r/m-Q8_0.gguf"])
    assert (code, out) == (4, "") and err.startswith("error: hf:o/r/m-Q8_0.gguf: ") and "/tmp" not in err


def test_a_header_without_end_is_not_followed(tmp_path):
    """A text that claims to be 100 MiB long: refused before it is fetched."""
    content = tmp_path / "m.gguf"
    whole = w.write_gguf(tmp_path / "x.gguf", {"general.name": "n" * 8}, [])
    data = whole.read_bytes()
    at = data.index(b"n" * 8)
    data = data[: at - 8] + (100 * 2**20).to_bytes(8, "little") + data[at:]
    content.write_bytes(data)
    os.truncate(content, 2**30)
    with serving({"m.gguf": content}) as hub:
        [(code, out, err)] = run(hub, ["inspect", "hf:o/r/m.gguf"])
        assert hub.sent < 200_000
    assert (code, out) == (4, "") and "header of over 64.00 MiB" in err
