"""A model file -> an Engine.

Opening goes: file -> config -> plan -> backend -> weights -> tokenizer -> KV cache.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import Any

from localinfer.backends.base import Progress
from localinfer.backends.cpu.merge import open_merge_table
from localinfer.engine.backend_choice import open_backend_for
from localinfer.engine.engine import Engine
from localinfer.engine.params import EngineOptions
from localinfer.engine.planning import check_fits, check_speed, plan_file
from localinfer.errors import UnsupportedModel
from localinfer.formats.model_file import open_model_file
from localinfer.last_used import note_use
from localinfer.models.decoder import check_tensors
from localinfer.models.tokenizer import open_tokenizer


def open_engine(
    path: str | os.PathLike[str], options: EngineOptions | None = None, progress: Progress = lambda fraction, text: None
) -> Engine:
    """Load a model. Raises the error tree; nothing stays open when it does."""
    start = time.perf_counter()
    options = options or EngineOptions()
    with ExitStack() as stack:
        progress(0.0, "reading the header")
        file: Any = stack.enter_context(open_model_file(path))
        plan = plan_file(file, options)
        config = plan.model.config
        if config is None:
            raise UnsupportedModel(plan.unknown)
        if plan.model.mapped:
            check_tensors(config, file.tensors)
        if not options.force:
            check_fits(plan)
            check_speed(plan, options.least_tok_s)
        backend = open_backend_for(file, options.backend, options.threads)
        stack.callback(backend.close)
        progress(0.1, "loading weights")
        model = backend.load(file, config, lambda fraction, text: progress(0.1 + 0.8 * fraction, text), plan.paging)
        stack.callback(model.close)
        progress(0.9, "reading the tokenizer")
        tokenizer = open_tokenizer(file, open_merge_table)
        engine = Engine(file, config, model, backend, options, plan.ask.ctx, plan, tokenizer)
        _ = engine.conversation  # what the kernels cannot do shows now, not in a chat
        stack.pop_all()
    note_use(path)
    engine.load_s = time.perf_counter() - start
    progress(1.0, "ready")
    return engine
