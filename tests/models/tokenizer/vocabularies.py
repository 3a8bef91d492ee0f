"""Vocabularies for tests: real ones from tests/golden/tokenizer, and small ones made here."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from localinfer.models.tokenizer import Tokenizer
from localinfer.models.tokenizer.byte_chars import BYTE_TO_CHAR

GOLDEN = Path(__file__).parents[2] / "golden" / "tokenizer"
NAMES = sorted(path.name.removesuffix(".json.xz") for path in GOLDEN.glob("*.json.xz"))


@dataclass(frozen=True)
class FakeFile:
    """All that a tokenizer or a chat template reads of a GGUF file."""

    metadata: dict[str, Any]


@cache
def golden(name: str) -> tuple[dict[str, Any], list[tuple[str, list[int]]]]:
    """(metadata, [(text, ids)]) of a golden vocabulary."""
    found = json.loads(lzma.decompress((GOLDEN / f"{name}.json.xz").read_bytes()).decode("utf-8", "surrogatepass"))
    return found["metadata"], [(text, ids) for text, ids in found["cases"]]


@cache
def tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a golden vocabulary."""
    return Tokenizer.from_gguf(FakeFile(golden(name)[0]))


@cache
def spelled_bytes(name: str) -> set[int]:
    """The bytes that a golden vocabulary can spell."""
    tok = tokenizer(name)
    return {data[0] for i in range(tok.n_vocab) if len(data := tok.token_bytes(i)) == 1}


def bpe_metadata(merges: list[str], special: dict[str, int] | None = None, **extra: Any) -> dict[str, Any]:
    """A byte-level BPE vocabulary: the 256 bytes, what `merges` make, then `special` tokens with their types."""
    tokens = list(dict.fromkeys([*BYTE_TO_CHAR, *(rule.replace(" ", "", 1) for rule in merges)]))
    types = [1] * len(tokens) + list((special or {}).values())
    found = {"model": "gpt2", "pre": "gpt-2", "tokens": [*tokens, *(special or {})], "token_type": types}
    found |= {"merges": merges, **extra}
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


def spm_metadata(words: list[str], special: dict[str, int] | None = None, **extra: Any) -> dict[str, Any]:
    """An SPM vocabulary: <unk>, <s>, </s>, 256 byte tokens, `words` with falling scores, `special` with types."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words, *(special or {})]
    types = [2, 3, 3, *[6] * 256, *[1] * len(words), *(special or {}).values()]
    scores = [0.0] * 259 + [-float(i) for i in range(len(words))] + [0.0] * len(special or {})
    found = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores, "bos_token_id": 1}
    found |= {"eos_token_id": 2, "unknown_token_id": 0, **extra}
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}
