"""Makes the files of this folder from a folder with real vocabularies and tiny models.

    python make_golden.py SOURCE

SOURCE/vocab: `ggml-vocab-*.gguf` of the llama.cpp repository (https://github.com/ggml-org/llama.cpp/tree/master/models)
with their `.inp` (texts, separated by `__ggml_vocab_test__` lines) and `.out` (ids of the original tokenizers, a line a
text). SOURCE/tiny: small models with ids that llama.cpp gives. Each `NAME.json.xz` holds `metadata` (`tokenizer.ggml.*`
and `general.name`, without chat template) and `cases`, a list of [text, ids] with no special tokens added.
`real_models.json`: prompts with llama.cpp's ids (BOS as the model
asks) by model file. SHA256SUMS says what they came to.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from pathlib import Path
from typing import Any

from localinfer.formats.gguf import GGUFFile

HERE = Path(__file__).parent
SEPARATOR = "\n__ggml_vocab_test__\n"


def tokenizer_metadata(path: Path) -> dict[str, Any]:
    found = GGUFFile.open(path).metadata
    keys = [key for key in found if key.startswith("tokenizer.ggml.") or key == "general.name"]
    return {key: value if isinstance(value := found[key], str | int | float | bool) else list(value) for key in keys}


def write(name: str, metadata: dict[str, Any], cases: list[tuple[str, list[int]]]) -> None:
    if "tokenizer.ggml.scores" in metadata:
        metadata["tokenizer.ggml.scores"] = [round(s, 7) for s in metadata["tokenizer.ggml.scores"]]
    data = json.dumps({"metadata": metadata, "cases": cases}, ensure_ascii=False, separators=(",", ":"))
    raw = data.encode("utf-8", "surrogatepass")
    (HERE / f"{name}.json.xz").write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))


def main(source: Path) -> None:
    for path in sorted((source / "vocab").glob("ggml-vocab-*.gguf")):
        texts = path.with_name(path.name + ".inp").read_text("utf-8").split(SEPARATOR)
        ids = [[int(i) for i in line.split()] for line in path.with_name(path.name + ".out").read_text().split("\n")]
        cases = list(zip(texts, ids, strict=True))
        write(path.stem.removeprefix("ggml-vocab-"), tokenizer_metadata(path), cases)
    for name in ("llama", "gemma3", "qwen35", "gpt2", "llama4"):
        checks = json.loads((source / "tiny" / f"{name}.json").read_text())["tokenizer_checks"]
        metadata = tokenizer_metadata(source / "tiny" / f"{name}.gguf")
        write(f"tiny-{name}", metadata, [(check["text"], check["ids"]) for check in checks])
    prompts = {}
    for path in sorted((source / "oracle").glob("*.json")):
        found = json.loads(path.read_text())
        prompts[found["model"]] = [[case["prompt"], case["tokens"]] for case in found["cases"]]
    (HERE / "real_models.json").write_text(json.dumps(prompts, ensure_ascii=False) + "\n")
    files = sorted([*HERE.glob("*.xz"), HERE / "real_models.json"])
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (HERE / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
