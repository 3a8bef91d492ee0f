"""How each BPE pre-tokenizer (`tokenizer.ggml.pre`) cuts a text into words: one table of patterns, by name.

A `PreTokenizer` is a sequence of patterns. Each cuts every piece that the one before left into its matches and what
lies between them; anchors and look-around see the piece only. Most need one pattern. The patterns are those of the
models' own tokenizer.json files; where a file has several rules in a row that one pattern can express, it does
(the tests hold the rule-by-rule form against it). `regex` knows the Unicode classes that they use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from typing import Any

import regex

from localinfer.errors import UnsupportedModel
from localinfer.models.tokenizer.ascii_patterns import ASCII_SPACE, ascii_pattern
from localinfer.records import dataclass

_CONTRACTION = r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
_LOWER_CONTRACTION = r"'(?:s|t|re|ve|m|ll|d)"
_SPACES = r"\s+(?!\S)|\s+"

GPT2 = rf"{_LOWER_CONTRACTION}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"


def _spaces_before(cut: str) -> str:
    """White space where an earlier rule has cut out the characters of class `cut`: before one of them it stays whole,
    as it does before the end, and gives no space to a word."""
    return rf"\s+(?![^\s{cut}])|\s+"


_SPACES_BEFORE_NUMBER = _spaces_before(r"\p{N}")
# GPT2 on what lies between single digits.
GPT2_SINGLE_DIGITS = rf"{_LOWER_CONTRACTION}| ?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES_BEFORE_NUMBER}"


def _gpt2_between(cut: str, space_before_number: str) -> str:
    """GPT2 on what lies between runs of `cut` (which holds the apostrophe), with digits cut into threes after that."""
    return (
        rf"[{cut}]+| ?\p{{L}}+|{space_before_number}|[0-9]{{3}}|(?:(?![0-9]{{3}})\p{{N}})+"
        rf"| ?[^\s\p{{L}}\p{{N}}{cut}]+|{_spaces_before(cut)}"
    )


DEFAULT = _gpt2_between(r"\p{P}$+<=>^~|", r" (?=\p{N})")
FALCON = _gpt2_between(r"\p{P}$+<=>^~|`", r" (?=\p{N})(?:(?![0-9]{3})\p{N})*")


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
MINICPM5 = _llama3(r"\p{N}{1,3}", _SPACES_BEFORE_NUMBER)
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


def _o200k(
    number: str,
    suffix: str,
    newline: str = r"[\r\n/]*",
    upper: str = _UPPER,
    lower: str = _LOWER,
    spaces: str = _SPACES,
) -> str:
    """The o200k shape: a word is capitals, then small letters. `suffix`: a contraction that stays with its word."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{lead}[{upper}]*[{lower}]+{suffix}|{lead}[{upper}]+[{lower}]*{suffix}|{number}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+{newline}|\s*[\r\n]+|{spaces}"
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
    r"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    r"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-"
    r"\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-"
    r"\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    r"\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-"
    r"\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    r"\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    r"\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-"
    r"\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    r"\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_POEMS = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_AFMOE_CJK = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    r"\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
# Numbers in threes from the right: 1234567 -> 1, 234, 567.
_THREES_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_LONG_NUMBER = regex.compile(r"\p{N}{600,}")
TINY_AYA = _o200k(_THREES_FROM_RIGHT, f"(?:{_CONTRACTION})?", spaces=_SPACES_BEFORE_NUMBER)


def _deepseek3(number: str) -> str:
    """Numbers first, then DeepSeek V3's words, with what these leave over (controls), where there is no CJK."""
    return (
        rf"{number}|{_ASCII_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}\p{{N}}]?[\p{{L}}\p{{M}}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|\s*[\r\n]+|(?:[^\s\p{{L}}\p{{M}}\p{{N}}\p{{P}}\p{{S}}](?![\p{{L}}\p{{M}}]))+"
        rf"|{_SPACES_BEFORE_NUMBER}"
    )


# DeepSeek Coder's rules but for CJK, which is cut out of what they give. (Single digits can be cut before it as well as
# after.) The bare white space at its end is never reached.
DEEPSEEK_CODER = r"[\r\n]|\s?\p{L}+|\s?\p{P}+|\p{N}|(?:[^\s\p{L}\p{P}\p{N}]|(?![\r\n])\s(?![\p{L}\p{P}]))+|\s+"


@dataclass(frozen=True)
class PreTokenizer:
    """How a family cuts words, and what its name implies for the rest of the tokenizer."""

    patterns: tuple[str, ...]
    # (pattern, class): one that cuts the same where there is no character of the class.
    usual: tuple[str, str] | None = None
    joins_words: bool = False  # a piece may go on after a letter, a space and a letter
    ignore_merges: bool = False  # a word that is a token as it stands is not merged from bytes
    add_bos: bool = False  # where the file does not say
    byte_encoded: bool = True  # False: tokens are UTF-8 text with ▁ for the space, bytes are <0xNN>

    def splitter(self) -> Callable[[str], list[str]]:
        """A function: text -> its words, which joined give the text."""
        return _splitter(self)


def _family(*patterns: str, **rest: Any) -> PreTokenizer:
    return PreTokenizer(patterns, **rest)


_TABLE: dict[tuple[str, ...], PreTokenizer] = {
    # What llama.cpp falls back on when a converter wrote nothing better.
    ("default",): _family(DEFAULT),
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
    ("tiny_aya", "cohere2moe"): _family(TINY_AYA),
    ("kimi-k2",): _family(KIMI_K2),
    ("deepseek-llm",): _family(
        r"[\r\n]", rf"\s?[{_CASED_LETTERS}]+",
        r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+\Z", _DEEPSEEK_CJK, r"\p{N}+"),
    ("deepseek-coder",): _family(DEEPSEEK_CODER, _DEEPSEEK_CJK, usual=(DEEPSEEK_CODER, _DEEPSEEK_CJK)),
    ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"): _family(
        r"\p{N}{1,3}", _CJK, _DEEPSEEK3_WORDS + _DEEPSEEK3_TAIL, usual=(_deepseek3(r"\p{N}{1,3}"), _CJK)),
    ("spark2_5",): _family(r"\p{N}{1,3}", _CJK, rf"{_DEEPSEEK3_WORDS}|[\r\n]|{_SPACES}", r"\p{N}"),
    ("afmoe",): _family(
        _THREES_FROM_RIGHT, _AFMOE_CJK, _DEEPSEEK3_WORDS + _DEEPSEEK3_TAIL,
        usual=(_deepseek3(_THREES_FROM_RIGHT), _AFMOE_CJK)),
    ("youtu",): _family(
        r"[\uac00-\ud7a3\u3131-\u318e]+"
        r"|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
        r"|[\u3105-\u312f]+|" + _CJK,
        YOUTU_REST, ignore_merges=True),
    ("falcon",): _family(FALCON),
    ("poro-chat", "bloom", "gpt3-finnish"): _family(_POEMS),
    ("viking",): _family(_POEMS, r"\p{N}"),
    ("chameleon",): _family(
        r"<sentinel:[0-9]+>", r"IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2,
        add_bos=True),
    ("superbpe",): _family(r"\p{N}+", r"(?=(?:[0-9]{3})+(?![0-9]))", joins_words=True),
    ("bailingmoe", "bailingmoe2", "llada-moe"): _family(BAILINGMOE),
    ("seed-coder",): _family(SEED_CODER),
    ("ufakzeka",): _family(UFAKZEKA),
    ("laguna",): _family(r"[^\n]+|\n+", QWEN2),
    ("minicpm5",): _family(MINICPM5, ignore_merges=True),
    ("exaone-moe",): _family(EXAONE_MOE, joins_words=True),
    # SentencePiece-like: white space is part of the tokens, only newlines cut.
    ("gemma4", "granite-embed-multi-311m", "sarvam-moe"): _family(r"[^\n]+|\n+", byte_encoded=False, joins_words=True),
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


Splitter = Callable[[str], list[str]]


@cache
def _splitter(pre: PreTokenizer) -> Splitter:
    choose = _chooser(pre)
    if pre.joins_words:
        return lambda text: choose(text)(text)
    if _THREES_FROM_RIGHT in "".join(pre.patterns):
        return lambda text: [word for part in _shorter_numbers(text) for word in _split_blocks(part, choose)]
    return lambda text: _split_blocks(text, choose)


def _chooser(pre: PreTokenizer) -> Callable[[str], Splitter]:
    """Of several splitters that cut the same, the fastest for a text."""
    any_text = _split_by(pre.patterns, regex.compile)
    patterns = pre.usual[:1] if pre.usual else pre.patterns
    usual = _split_by(patterns, regex.compile)
    is_rare = re.compile(pre.usual[1]).search if pre.usual else None
    in_ascii = [found for pattern in patterns if (found := ascii_pattern(pattern))]
    ascii_text = _split_by(tuple(in_ascii), re.compile) if len(in_ascii) == len(patterns) else usual

    def choose(text: str) -> Splitter:
        if text.isascii():
            return ascii_text
        return any_text if is_rare and is_rare(text) else usual

    return choose


# Between a letter and a space before another every family cuts, and looks neither ahead nor back from there.
_BORDER = re.compile("(?<=[A-Za-z])(?= [A-Za-z])")
_BLOCK = 256


def _split_blocks(text: str, choose: Callable[[str], Splitter]) -> list[str]:
    """A few characters that are not ASCII must not slow down all of a text."""
    if text.isascii() or len(text) < 4 * _BLOCK:
        return choose(text)(text)
    return [word for split, blocks in groupby(_blocks(text), choose) for word in split("".join(blocks))]


def _blocks(text: str) -> Iterator[str]:
    start = 0
    while border := _BORDER.search(text, start + _BLOCK):
        yield text[start : border.start()]
        start = border.start()
    yield text[start:]


def _shorter_numbers(text: str) -> list[str]:
    """`text` cut inside of very long numbers, between threes from the right: each three looks for the number's end."""
    parts, start = [], 0
    for number in _LONG_NUMBER.finditer(text):
        first = number.start() + (number.end() - number.start()) % 3
        for cut in range(first + 300, number.end(), 300):
            parts.append(text[start:cut])
            start = cut
    return [*parts, text[start:]]


def _split_by(patterns: tuple[str, ...], compiler: Callable[[str], Any]) -> Callable[[str], list[str]]:
    if len(patterns) == 1 and _covers_all(patterns[0]):
        found: Callable[[str], list[str]] = compiler(patterns[0]).findall
        return found
    compiled = [compiler(f"({pattern})") for pattern in patterns]

    def split(text: str) -> list[str]:
        pieces = [text]
        for one in compiled:
            pieces = [part for piece in pieces for part in one.split(piece) if part]
        return pieces

    return split


def _covers_all(pattern: str) -> bool:
    """Does every character fall into a match? True for all patterns that end in bare white space."""
    return pattern.endswith((r"|\s+", r"|\s", f"|[{ASCII_SPACE}]+", f"|[{ASCII_SPACE}]"))
