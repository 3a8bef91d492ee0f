"""The planner's answer for what is about to be loaded on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localinfer.engine.params import EngineOptions
    from localinfer.formats.gguf import GGUFFile
    from localinfer.models.config import ModelConfig


def check_fits(file: GGUFFile, config: ModelConfig, options: EngineOptions, n_ctx: int, backend: str) -> Any:
    return None


def plan_for(path: str, options: EngineOptions) -> Any:
    return None
