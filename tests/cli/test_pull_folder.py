"""A repository in mlx-lm's format: pulled, listed, planned from here and from afar, deleted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localinfer.remote import FIRST_BYTES
from tests.fakes.hub_server import serving
from tests.fakes.safetensors_writer import CONFIG, write_folder, write_safetensors

ROOT = Path(__file__).parents[2]
MATRICES = {
    "model.embed_tokens.weight": ("BF16", (320, 64)),
    "lm_head.weight": ("BF16", (320, 64)),
    "model.norm.weight": ("BF16", (64,)),
}


@pytest.fixture
def files(tmp_path):
    """name -> bytes of a repository with two shards and an index."""
    folder = write_folder(tmp_path / "made", MATRICES)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    layers = {f"model.layers.{i}.self_attn.q_proj.weight": ("BF16", (64, 64)) for i in range(2)}
    write_safetensors(folder / "model-00002-of-00002.safetensors", layers)
    where = dict.fromkeys(MATRICES, "model-00001-of-00002.safetensors")
    where |= dict.fromkeys(layers, "model-00002-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    (folder / "modeling.py").write_text("raise SystemExit")
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.fixture
def hub(files):
    with serving(files) as server:
        yield server


@pytest.fixture
def localinfer(hub, tmp_path):
    """Runs a command in a process of its own: (exit code, stdout, stderr)."""

    def run(*arguments, **variables):
        environment = {
            **os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1",
            "HF_HOME": str(tmp_path / "hf"), "HF_HUB_CACHE": str(tmp_path / "hf" / "hub"), **variables,
        }  # fmt: skip
        command = [sys.executable, "-m", "localinfer.cli.main", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, timeout=120)
        return done.returncode, done.stdout, done.stderr

    return run


def test_pulled_listed_planned_and_deleted(hub, localinfer, files, tmp_path):
    code, out, err = localinfer("pull", "hf:o/r")
    folder = Path(out.strip())
    assert code == 0, err
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {n: c for n, c in files.items() if n != "modeling.py"}
    hub.asked.clear()
    assert localinfer("pull", "hf:o/r", HF_HUB_OFFLINE="1")[:2] == (0, out) and hub.asked == []
    (listed,) = json.loads(localinfer("models", "--json")[1])["models"]
    weights = sum(len(content) for name, content in files.items() if name.endswith(".safetensors"))
    assert (listed["name"], listed["bytes"], listed["trouble"]) == ("r", weights, "")
    code, out, err = localinfer("fit", "r", "--json", "--memory", "8GiB")
    assert code == 0 and json.loads(out)["verdict"] == "fits", err
    code, _, err = localinfer("rm", "r", "--yes")
    assert code == 0 and "deleted r" in err
    assert not [p for p in (tmp_path / "hf").rglob("*") if p.is_file() and p.parent.name in ("blobs", folder.name)]
    assert json.loads(localinfer("models", "--json")[1])["models"] == []


def test_wrong_bytes_are_refused_and_a_second_pull_mends_it(hub, localinfer, files):
    """Weights come last: of the answers to requests for content only the last is wrong."""
    hub.faults = [""] * (len(files) - 2) + ["wrong bytes"]
    code, out, err = localinfer("pull", "hf:o/r")
    assert code == 4 and out == "" and "model-00002-of-00002.safetensors: expected SHA-256" in err
    (listed,) = json.loads(localinfer("models", "--json")[1])["models"]
    assert listed["trouble"] == "1 of 2 shards"
    code, _, err = localinfer("fit", "r")
    assert code == 2 and "1 of 2 shards" in err
    sent = dict(hub.sent_of)
    assert localinfer("pull", "hf:o/r")[0] == 0
    last = "model-00002-of-00002.safetensors"
    assert hub.sent_of[last] > sent[last] and all(hub.sent_of[n] == sent[n] for n in sent if n != last)


def test_a_cut_download_is_taken_up_again(hub, localinfer, files):
    hub.faults = [""] * (len(files) - 2) + ["cut"]
    code, out, err = localinfer("pull", "hf:o/r")
    if code:
        code, out, err = localinfer("pull", "hf:o/r")
    assert code == 0, err
    last = "model-00002-of-00002.safetensors"
    assert Path(out.strip(), last).read_bytes() == files[last]
    assert hub.sent_of[last] < 1.5 * len(files[last])


@pytest.mark.parametrize(
    ("config", "code", "says"),
    [
        ({"model_type": "klingon"}, 5, "model type 'klingon' is not supported"),
        ({"quantization_config": {"quant_method": "gptq"}}, 5, "quantized by 'gptq'"),
    ],
)
def test_what_could_not_be_opened_is_said_before_the_weights_come(hub, localinfer, config, code, says):
    hub.files["config.json"] = json.dumps(CONFIG | config).encode()
    found, _, err = localinfer("pull", "hf:o/r")
    assert found == code and says in err and "Traceback" not in err
    assert not any(name.endswith(".safetensors") for name in hub.sent_of)


def test_fit_from_afar_reads_headers_and_gives_the_local_answer(hub, localinfer, files):
    code, far, err = localinfer("fit", "hf:o/r", "--json", "--memory", "8GiB")
    assert code == 0, err
    assert all(n <= FIRST_BYTES for name, n in hub.sent_of.items() if name.endswith(".safetensors"))
    assert len(files["model-00001-of-00002.safetensors"]) > 2 * FIRST_BYTES and "tokenizer.json" not in hub.sent_of
    path = localinfer("pull", "hf:o/r")[1].strip()
    near = localinfer("fit", path, "--json", "--memory", "8GiB")[1]
    different = {key for key, value in json.loads(far).items() if json.loads(near)[key] != value}
    assert different <= {"model", "name", "path", "file"}, different


def test_a_damaged_header_afar_names_the_repository(hub, localinfer):
    hub.files["model-00001-of-00002.safetensors"] = b"\xff" * 4096
    code, _, err = localinfer("fit", "hf:o/r")
    assert code == 4 and "hf:o/r/model-00001-of-00002.safetensors: expected a safetensors header" in err
