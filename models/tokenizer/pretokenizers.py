"""How each BPE pre-tokenizer (`tokenizer.ggml.pre`) cuts a text into words: one table of patterns, by name.

A `PreTokenizer` is a sequence of patterns. Each cuts every piece that the one before left into its matches and what
lies between them; anchors and look-around see the piece only. Most need one pattern. The patterns are those of the
models' own tokenizer.json files; where a file has several rules in a row that one pattern can express, it does
(the tests hold the rule-by-rule form against it). `regex` knows the Unicode classes that they use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import regex

from localinfer.errors import UnsupportedModel

_CONTRACTION = r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
_LOWER_CONTRACTION = r"'(?:s|t|re|ve|m|ll|d)"
_SPACES = r"\s+(?!\S)|\s+"

GPT2 = rf"{_LOWER_CONTRACTION}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"
# GPT2 on what lies between single digits: white space before a digit stays whole, as it does before the end.
GPT2_SINGLE_DIGITS = rf"{_LOWER_CONTRACTION}| ?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|\s+(?![^\s\p{{N}}])|\s+"


def _llama3(number: str, spaces: str = _SPACES) -> str:
    """The cl100k shape: words take one leading non-letter, punctuation takes the newlines after it."""
    return rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{number}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{spaces}"


LLAMA3 = _llama3(r"\p{N}{1,3}")
QWEN2 = _llama3(r"\p{N}")
QWEN35 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{_SPACES}"
)
JAIS2 = _llama3(
    r"\p{N}{1,3}",
    "|".join(rf"\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2")) + r"|\s",
)
UFAKZEKA = QWEN2.removeprefix(_CONTRACTION + "|")
SEED_CODER = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|{_SPACES}"
BAILINGMOE = (
    rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|{_SPACES}"
)
EXAONE_MOE = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|{_SPACES}"
)

_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def _o200k(number: str, suffix: str, newline: str = r"[\r\n/]*", upper: str = _UPPER, lower: str = _LOWER) -> str:
    """The o200k shape: a word is capitals, then small letters. `suffix`: a contraction that stays with its word."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{lead}[{upper}]*[{lower}]+{suffix}|{lead}[{upper}]+[{lower}]*{suffix}|{number}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+{newline}|\s*[\r\n]+|{_SPACES}"
    )


GPT4O = _o200k(r"\p{N}{1,3}", f"(?:{_CONTRACTION})?")
TEKKEN = _o200k(r"\p{N}", "")
YOUTU_REST = _o200k(r"\p{N}", f"(?:{_CONTRACTION})?")
# Kimi keeps runs of Han characters apart from words. (?V1) gives set difference: letters without Han.
KIMI_K2 = r"(?V1)\p{Han}+|" + _o200k(
    r"\p{N}{1,3}",
    f"(?:{_CONTRACTION})?",
    r"[\r\n]*",
    rf"[{_UPPER}]--\p{{Han}}",
    rf"[{_LOWER}]--\p{{Han}}",
)

_ASCII_PUNCTUATION = r"[!-/:-@\[-`{-~]"
_CJK = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
# \u4e00-\u9fa5 and, as its tokenizer.json has it, everything from \u0800 to \u4e00 and from \uac00 to \ud7ff.
_DEEPSEEK_CJK = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK3_WORDS = rf"{_ASCII_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+"
_DEEPSEEK3_TAIL = rf"[\r\n]*|\s*[\r\n]+|{_SPACES}"
# Letters with case, as DeepSeek LLM's tokenizer.json lists them.
_CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼι"
    "ῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
    "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_POEMS = r" ?[^(\s|.,!?…。，、।۔،)]+"
_AFMOE_CJK = (
    r"[\u4e00-\u9fff\u3400-\u4db6\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    r"\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
# Numbers in threes from the right: 1234567 -> 1, 234, 567.
_THREES_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"


@dataclass(frozen=True)
class PreTokenizer:
    """How a family cuts words, and what its name implies for the rest of the tokenizer."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is a token as it stands is not merged from bytes
    add_bos: bool = False  # where the file does not say
    byte_encoded: bool = True  # False: tokens are UTF-8 text with ▁ for the space, bytes are <0xNN>

    def splitter(self) -> Callable[[str], list[str]]:
        """A function: text -> its words, which joined give the text."""
        return _splitter(self.patterns)


def _family(
    *patterns: str, ignore_merges: bool = False, add_bos: bool = False, byte_encoded: bool = True
) -> PreTokenizer:
    return PreTokenizer(patterns, ignore_merges, add_bos, byte_encoded)


_TABLE: dict[tuple[str, ...], PreTokenizer] = {
    # What llama.cpp falls back on when a converter wrote nothing better.
    ("default",): _family(r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    ("gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "modern-bert",
     "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "jina-v1-en", "jina-v2-code", "roberta-bpe",
     ): _family(GPT2),
    ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2",
     ): _family(GPT2_SINGLE_DIGITS),
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
     ): _family(LLAMA3, ignore_merges=True, add_bos=True),
    ("dbrx", "smaug-bpe", "chatglm-bpe"): _family(LLAMA3),
    ("glm4", "glm5"): _family(LLAMA3, ignore_merges=True),
    ("jais-2",): _family(JAIS2),
    ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2",
     ): _family(QWEN2),
    ("qwen35",): _family(QWEN35),
    ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"): _family(GPT4O),
    ("granite-embed-multi-97m",): _family(GPT4O, ignore_merges=True),
    ("tekken",): _family(TEKKEN, ignore_merges=True, add_bos=True),
    ("tiny_aya", "cohere2moe"): _family(_THREES_FROM_RIGHT, GPT4O),
    ("kimi-k2",): _family(KIMI_K2),
    ("deepseek-llm",): _family(
        r"[\r\n]", rf"\s?[{_CASED_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+\Z", _DEEPSEEK_CJK, r"\p{N}+"),
    ("deepseek-coder",): _family(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}"),
    ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"): _family(
        r"\p{N}{1,3}", _CJK, _DEEPSEEK3_WORDS + _DEEPSEEK3_TAIL),
    ("spark2_5",): _family(r"\p{N}{1,3}", _CJK, rf"{_DEEPSEEK3_WORDS}|[\r\n]|{_SPACES}"),
    ("afmoe",): _family(_THREES_FROM_RIGHT, _AFMOE_CJK, _DEEPSEEK3_WORDS + _DEEPSEEK3_TAIL),
    ("youtu",): _family(
        rf"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|{_CJK}", YOUTU_REST, ignore_merges=True),
    ("falcon",): _family(r"[\p{P}$+<=>^~|`]+", GPT2, r"[0-9][0-9][0-9]"),
    ("poro-chat", "bloom", "gpt3-finnish"): _family(_POEMS),
    ("viking",): _family(_POEMS, r"\p{N}"),
    ("chameleon",): _family(
        r"<sentinel:[0-9]+>", r"IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2,
        add_bos=True),
    ("superbpe",): _family(r"\p{N}+", r"(?=(?:[0-9]{3})+(?![0-9]))"),
    ("bailingmoe", "bailingmoe2", "llada-moe"): _family(BAILINGMOE),
    ("seed-coder",): _family(SEED_CODER),
    ("ufakzeka",): _family(UFAKZEKA),
    ("laguna",): _family(r"[^\n]+|\n+", QWEN2),
    ("minicpm5",): _family(r"\p{N}{1,3}", _llama3(r"\p{N}+"), ignore_merges=True),
    ("exaone-moe",): _family(EXAONE_MOE),
    # SentencePiece-like: white space is part of the tokens, only newlines cut.
    ("gemma4", "granite-embed-multi-311m", "sarvam-moe"): _family(r"[^\n]+|\n+", byte_encoded=False),
}  # fmt: skip

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: family for names, family in _TABLE.items() for name in names}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The entry of `tokenizer.ggml.pre` = name. UnsupportedModel for a name we do not know: never a guess."""
    try:
        return PRE_TOKENIZERS[name]
    except KeyError:
        raise UnsupportedModel(
            f"tokenizer.ggml.pre: unknown pre-tokenizer {name[:80]!r}",
            "another one would give wrong token ids; a newer localinfer may know it",
        ) from None


@cache
def _splitter(patterns: tuple[str, ...]) -> Callable[[str], list[str]]:
    if len(patterns) == 1 and _covers_all(patterns[0]):
        return regex.compile(patterns[0]).findall
    compiled = [regex.compile(f"({pattern})") for pattern in patterns]

    def split(text: str) -> list[str]:
        pieces = [text]
        for one in compiled:
            pieces = [part for piece in pieces for part in one.split(piece) if part]
        return pieces

    return split


def _covers_all(pattern: str) -> bool:
    """Does every character fall into a match? True for all patterns that end in bare white space."""
    return pattern.endswith((r"|\s+", r"|\s"))
