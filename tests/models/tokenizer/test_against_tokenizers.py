"""The `tokenizers` library, given the same vocabulary and rules, gives the same ids on mixed text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.models.tokenizer.vocabularies import golden, tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the optional package `tokenizers` is not installed")

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{%s}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def library_tokenizer(name: str):
    metadata, _ = golden(name)
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(rule.split(" ", 1)) for rule in metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    known = [(a, b) for a, b in merges if a in vocabulary and b in vocabulary and a + b in vocabulary]
    model = tokenizers.models.BPE(vocabulary, known, ignore_merges=name == "llama-bpe")
    found = tokenizers.Tokenizer(model)
    parts = tokenizers.pre_tokenizers
    if name in ("llama-bpe", "qwen2"):
        pattern = tokenizers.Regex(CL100K % ("1,3" if name == "llama-bpe" else "1"))
        rules = [parts.Split(pattern, "isolated"), parts.ByteLevel(add_prefix_space=False, use_regex=False)]
    elif name == "starcoder":
        rules = [parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)]
    else:
        rules = [parts.ByteLevel(add_prefix_space=False)]
    found.pre_tokenizer = parts.Sequence(rules)
    return found


def mixed_text(n_chars: int) -> str:
    """Python sources, this project's pages, the golden test strings, and random characters of many scripts."""
    rng = random.Random(11)
    root = Path(__file__).parents[3]
    files = sorted(
        [
            *root.glob("*.md"),
            *root.glob("models/**/*.py"),
            *root.glob("localinfer/**/*.py"),
            *root.glob("tests/**/*.py"),
        ]
    )
    scripts = [
        "абвгд ЖЗ",
        "我想在中文，。",
        "हिन्दी कि",
        "한국어 ",
        "αβγ ά",
        "👩‍👩‍👧🚀 ",
        "\n\n\t  ",
        "0123456789",
        "éèüñ'S'll",
        "“”‘’—…",
    ]
    parts: list[str] = [path.read_text("utf-8") for path in files]
    parts += [text for text, _ in golden("gpt-2")[1]]
    size = sum(map(len, parts))
    while size < n_chars:
        part = "".join(rng.choices(rng.choice(scripts), k=rng.randrange(1, 40)))
        parts.append(part)
        size += len(part)
    rng.shuffle(parts)
    return "".join(parts)[:n_chars]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt-2", "starcoder", "qwen2", "llama-bpe"])
def test_ids_equal_those_of_the_library(name):
    text = mixed_text(1_000_000)
    ids = tokenizer(name).encode(text, add_special=False, parse_special=False)
    assert ids == library_tokenizer(name).encode(text, add_special_tokens=False).ids
