"""Writes model folders of mlx-lm's format by hand: sound ones, and ones with a fault."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "U32": 4, "U8": 1}
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 2048,
}  # fmt: skip
Tensors = dict[str, tuple[str, tuple[int, ...]]]


def write_safetensors(path: Path, tensors: Tensors) -> Path:
    """Zeros under these names: dtype and shape each."""
    table: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        end = at + prod(shape) * SIZES[dtype]
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(table).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(at))
    return path


def write_folder(folder: Path, tensors: Tensors, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder
