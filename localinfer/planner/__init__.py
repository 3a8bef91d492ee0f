"""The planner: does a model fit, what binds, what to change, how fast at best. Plain values; no backend, no arrays.

    from localinfer.formats.gguf import GGUFFile
    from localinfer.planner import Ask, ModelFacts, find_device, make_plan, repairs, speed_of

    with GGUFFile.open("model.gguf") as f:
        plan = make_plan(ModelFacts.from_gguf(f), find_device("m2-max-96gb").budget(), Ask(ctx=32768))
    print(plan.verdict, plan.left, repairs(plan), speed_of(plan))

docs/planner.md explains the formulas. The names below are fetched from their modules when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "budget": ("MemoryBudget", "left_after"),
    "devices": ("DEVICES", "Device", "find_device"),
    "facts": ("ModelFacts",),
    "plan": ("Ask", "Plan", "Row", "kv_name", "make_plan", "with_ctx", "with_kv", "with_weight_budget"),
    "ladder": ("Repair", "page_to_fit", "repairs"),
    "speed": (
        "Speed", "distinct_experts", "kv_read_bytes",
        "paged_read_bytes", "prefill_bound_s", "prefill_flops", "speed_of", "step_bound_s",
        "weight_read_bytes",
    ),
    "scenario": ("Judgement", "Outcome", "best", "compare", "judge", "outcome", "scenario_s"),
    "report": ("layers_json", "plan_json", "plan_notes", "scenario_json", "weights_and_kv_alone"),
    "kv_cost": (
        "BranchPages", "Pages", "PrefixSharing", "TableSharing", "branch_pages", "contiguous_waste", "kv_bytes",
        "kv_bytes_per_token", "kv_values_bytes", "page_bytes", "pages_for", "prefix_sharing", "reserve_tokens",
        "rounded_tokens", "table_sharing",
    ),
    "capacity": (
        "RequestShape", "kv_pool_bytes", "max_context", "max_requests", "max_sequences",
        "requests_kv_bytes",
    ),
    "roofline": (
        "amdahl", "attention_pairs", "balance_tokens", "bandwidth_utilisation", "batch_step_s",
        "compute_floor_s", "compute_step_s", "kv_equals_weights_batch", "memory_floor_s", "mixed_step_s", "paged_tok_s",
        "prefill_chunks", "read_per_output_token", "request_s", "step_bytes", "window_pairs",
    ),
    "drafting": (
        "DraftChoice", "after_rejection", "best_draft", "break_even_accept", "break_even_lookup", "expected_tokens",
        "index_pays_after", "mean_time_per_token", "point_mass_acceptance", "speedup", "time_per_token",
    ),
    "draft_forecast": ("DraftForecast", "DraftGain", "draft_forecast"),
    "offload": (
        "OffloadCost", "PrefixValue", "RestoreChoice", "decompressor_must_beat", "kv_pays_from", "kv_saving_s",
        "offload_cost", "offload_saving", "prefix_value", "restore_or_prefill", "transfer_s",
    ),
    "batching": (
        "BatchLatency", "Concurrency", "StepLine", "batch_knee", "batch_latency", "batch_throughput", "concurrency",
        "max_batch_for", "padding_waste",
    ),
    "weights": (
        "BlockSplit", "Touched", "block_split", "decoder_values", "dominant_type", "lora_bytes", "touched_weights",
        "weight_groups", "weights_bytes",
    ),
    "ledger": ("Entry", "Measured", "kv_bytes_used", "learned_runtime_bytes"),
    "efficiency": ("MeasuredSpeed", "StorageSpeed", "load_speed", "load_storage", "record_speed", "record_storage"),
    "paging": ("Paging", "make_paging"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"localinfer.planner.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
