"""Llama and everything that calls itself so: Llama 1 to 3, Mistral, Mixtral, SmolLM2, TinyLlama, Yi ..."""

from __future__ import annotations

from localinfer.models.families.base import Architecture


class Llama(Architecture):
    rope_style = "interleaved"  # the converter permutes Q and K rows for it
