"""What quantizing the KV cache of a model file cost where `eval --compare-kv` measured it, for the plan to show.

One small JSON file {fingerprint: {"file_bytes", "model", "kv": {type: {"kl", "top1", "tokens", "when"}}}}, replaced as
a whole. An entry belongs to one file, however it is named or moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from localinfer.formats.fingerprint import model_fingerprint
from localinfer.formats.gguf import GGUFFile
from localinfer.paths import kv_cost_file
from localinfer.planner.facts import KVCost, ModelFacts
from localinfer.records import replace
from localinfer.state_file import positive, read_state, replace_state


def record_kv_cost(file: GGUFFile, costs: Mapping[str, KVCost]) -> None:
    """Keep what was measured now. This only informs: where nothing can be written, nothing is."""
    from datetime import date  # `fit` reads this file and writes nothing

    everything = read_state(kv_cost_file())
    name = file.metadata.get_str("general.name", "") or file.path.stem
    found = everything.get(model_fingerprint(file))
    entry: dict[str, Any] = found if isinstance(found, dict) and isinstance(found.get("kv"), dict) else {"kv": {}}
    entry |= {"file_bytes": file.file_bytes, "model": name}
    for kv, c in costs.items():
        entry["kv"][kv] = {"kl": c.kl, "top1": c.top1, "tokens": c.tokens, "when": date.today().isoformat()}
    everything[model_fingerprint(file)] = entry
    with suppress(OSError):
        replace_state(kv_cost_file(), everything)


def known_kv_cost(file: Any) -> dict[str, KVCost]:
    """By KV type; empty where nothing was measured. Only a file as large as one that was measured is looked into."""
    everything = read_state(kv_cost_file())
    entries = {key: e for key, e in everything.items() if isinstance(e, dict) and isinstance(e.get("kv"), dict)}
    if not isinstance(file, GGUFFile) or not Path(file.path).exists():
        return {}
    if not any(e.get("file_bytes") == file.file_bytes for e in entries.values()):
        return {}
    rows = entries.get(model_fingerprint(file), {}).get("kv", {})
    return {kv: cost for kv, row in rows.items() if (cost := _cost(row))}


def with_known_kv_cost(model: ModelFacts, file: Any) -> ModelFacts:
    """The facts, and what is known of this file's KV types."""
    costs = known_kv_cost(file)
    return replace(model, kv_cost=costs) if costs else model


def _cost(row: Any) -> KVCost | None:
    kl = positive(row.get("kl")) if isinstance(row, dict) else None
    if kl is None:
        return None
    tokens, top1 = positive(row.get("tokens")), positive(row.get("top1"))
    return KVCost(kl, top1 or 0.0, int(tokens or 0), str(row.get("when", "")))
