"""Worked examples (tests/golden/planner) through the planner's public functions.

Cases are matched by their inputs' names (planner_examples.json) or by `fn` (serving_examples.json). The scenario cases
name no inputs; `SCENARIOS` says what they are taken to be.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from localinfer.formats.ggml_types import GGMLType
from localinfer.planner import batching, drafting, kv_cost, offload, roofline, weights
from localinfer.planner.budget import left_after
from localinfer.planner.capacity import (
    RequestShape,
    kv_pool_bytes,
    max_context,
    max_requests,
    max_sequences,
    requests_kv_bytes,
)
from localinfer.planner.scenario import judge, scenario_s

GOLDEN = Path(__file__).parent.parent / "golden" / "planner"
PLANNER = json.loads((GOLDEN / "planner_examples.json").read_text())["cases"]
SERVING_FILE = json.loads((GOLDEN / "serving_examples.json").read_text())
SERVING = SERVING_FILE["cases"]

QWEN3_8B = {"vocab": 151936, "hidden": 4096, "layers": 36, "heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 12288}
QWEN3_8B_VALUES = weights.decoder_values(**QWEN3_8B, tied=False, qk_norm=True)
MIB = 2**20


def test_files_are_the_ones_that_were_checked():
    for line in (GOLDEN / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((GOLDEN / name).read_bytes()).hexdigest() == digest


def assert_close(found, expected, rel, path=""):
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert_close(found[key], value, rel, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for i, value in enumerate(expected):
            assert_close(found[i], value, rel, f"{path}[{i}]")
    elif isinstance(expected, (bool, str)):
        assert found == expected, path
    else:
        # values are printed to six decimals where they are not whole
        assert found == pytest.approx(expected, rel=max(rel, 1e-12), abs=0 if isinstance(expected, int) else 5e-7), path


# -- planner_examples.json ---------------------------------------------------------------------------------------------


def token_bytes(i):
    return kv_cost.kv_bytes_per_token(i["layers"], i["kv_heads"], i["head_dim"], i["kv_type"])


def kv_case(i):
    """Bytes a token, of tokens, of a reservation, of several requests; or how many requests a budget holds."""
    k = token_bytes(i)
    if "prompt" in i:
        shape = RequestShape(i["prompt"], i["output"], i.get("shared_prefix", 0))
        if "kv_budget" in i:
            return max_requests(shape, k, i["kv_budget"], i["page"])
        return requests_kv_bytes(shape, i.get("requests", 1), k, i["page"])
    return kv_cost.kv_bytes(k, i["tokens"]) if "tokens" in i else k


def pages_case(i):
    shared = i.get("shared", {"sequences": [], "tokens": 0})
    return kv_cost.rounded_tokens(i["lengths"], i["page"], shared["tokens"], shared["sequences"])


def read_case(i):
    n_bytes = roofline.step_bytes(i["Dw"], i["k"], i["context"], i["batch"])
    if "measured_s" not in i:
        return roofline.read_per_output_token(i["Dw"], i["k"], i["context"], i["batch"])
    return {
        "bytes": n_bytes,
        "floor_s": roofline.memory_floor_s(n_bytes, i["bandwidth"]),
        "mbu": roofline.bandwidth_utilisation(n_bytes, i["bandwidth"], i["measured_s"]),
    }


def block_case(i):
    t = GGMLType[i["type"]]
    return {"block_bytes": t.block_bytes, "block_values": t.block_values, "bits_per_weight": t.bits_per_value}


def offload_case(i):
    freed = offload.offload_saving(i["sets"], i["set_bytes"], i["buffers"])
    return {"inputs": freed // i["input"], "requests": freed // i["request"]} if "input" in i else freed


def cost_case(i):
    cost = offload.offload_cost(i["bytes"], i["bandwidth"], i["steps"])
    return {"step_s": cost.step_s, "total_s": cost.total_s}


def prefix_case(i):
    value = offload.prefix_value(i["recompute_s"], i["bytes"], i["bandwidth"], i["hit"])
    return {"value_s": value.value_s, "break_even_hit": value.break_even_hit}


def draft_case(i):
    """Tokens a round, time a token, or the lookup cost at which drafting breaks even."""
    if "base_ms" in i:
        return drafting.time_per_token(i["accept"], i["draft"], i["base_ms"], per_draft=i["per_draft_ms"])
    if "lookup_ms" in i:
        return drafting.time_per_token(i["accept"], i["draft"], i["verify_ms"], i["lookup_ms"])
    if "verify_ms" in i:
        return drafting.break_even_lookup(i["accept"], i["draft"], i["verify_ms"])
    return drafting.expected_tokens(i["accept"], i["draft"])


def acceptance_case(i):
    rest = drafting.after_rejection(i["p"], i["draft"])
    assert i["draft"] not in rest and sum(rest.values()) == pytest.approx(1)
    return {"accept": drafting.point_mass_acceptance(i["p"], i["draft"])}


def step_floor_case(i):
    """Three floors: weights alone, memory-bound batch, compute-bound batch."""
    if "flops" in i:
        return roofline.compute_step_s(i["batch"], i["kv"], i["params"], i["bandwidth"], i["flops"])
    if "batch" in i:
        return roofline.batch_step_s(i["batch"], i["kv"], i["weights"], i["bandwidth"])
    return roofline.memory_floor_s(i["weights"], i["bandwidth"])


def model_case(i):
    return weights.weights_bytes(QWEN3_8B_VALUES, 16) - QWEN3_8B["vocab"] * QWEN3_8B["hidden"] * 2


def payload_case(i):
    sizes = {k: v for k, v in i.items() if k != "bytes_per_weight"}
    return weights.weights_bytes(weights.decoder_values(**sizes), 8 * i["bytes_per_weight"])


def branch_case(i):
    pages = kv_cost.branch_pages(i["shared_pages"], i["branches"], i["own_pages"])
    return {"physical": pages.physical, "references": pages.references}


def lora_case(i):
    return weights.lora_bytes(
        i["rank"], i["layers"], [(i["hidden"], i["q_out"]), (i["hidden"], i["v_out"])], i["bytes"]
    )


# What the five scenarios are taken to be. The file gives their names, the KV budget and the deadline. KV bytes follow
# from the model (16 requests of 8192 + 256 tokens, 6144 of them shared) plus the drafter's own 3188 MiB in D. Two steps
# are measured in the same file: 27.44 ms for about the bytes that the shared prefix leaves to read, 29.63 ms for the
# bytes of independent requests; q8_0 lies on the line between them. The prefills are what A and B leave of their times
# and D's drafting what it leaves, so A, B and D check the bytes, the arithmetic and the verdict; C and E follow.
LINE = batching.StepLine.through((19.968e9, 27.44e-3), (34.464e9, 29.63e-3))
DW, K, SHAPE = 15136811008, 147456, RequestShape(8192, 256, 6144)
SHARED_S, INDEPENDENT_S, Q8_S = 27.44e-3, LINE.at(DW + 16 * 8192 * K), LINE.at(DW + 16 * 8192 * K * 34 // 64)
SHARED_PREFILL_S, INDEPENDENT_PREFILL_S = 2.013, 7.344
LOOKUP = "E shared prefix + context lookup, 2 tokens a round"
SCENARIOS = {
    #    KV types, shared, bytes beside the KV, prefill s, step s, tokens a round, drafting s a round
    "A bf16 independent": ("f16", False, 0, INDEPENDENT_PREFILL_S, INDEPENDENT_S, 1, 0.0),
    "B bf16 shared prefix": ("f16", True, 0, SHARED_PREFILL_S, SHARED_S, 1, 0.0),
    "C q8_0 independent": ("q8_0", False, 0, INDEPENDENT_PREFILL_S, Q8_S, 1, 0.0),
    "D shared prefix + drafter": (
        "f16", True, 3188 * MIB, SHARED_PREFILL_S, SHARED_S, drafting.expected_tokens(0.75, 4), 2.9e-3,
    ),
    LOOKUP: ("f16", True, 0, SHARED_PREFILL_S, SHARED_S, 2, 0.1e-3),
}  # fmt: skip


def scenario_case(i):
    kv_type, shared, beside, prefill, step, per_round, round_s = SCENARIOS[i["scenario"]]
    k = kv_cost.kv_bytes_per_token(36, 8, 128, kv_type)
    shape = SHAPE if shared else RequestShape(SHAPE.prompt, SHAPE.output)
    n_bytes = requests_kv_bytes(shape, 16, k) + beside
    time = scenario_s(prefill, step, SHAPE.output, per_round, round_s)
    verdict = judge(n_bytes, time, i["kv_budget"], i["deadline_s"])
    return {"bytes": n_bytes, "time_s": time, "feasible": verdict.feasible}


# keys that tell a case's kind, most telling first
PLANNER_KINDS = [
    ({"scenario"}, scenario_case),
    ({"layers", "kv_type"}, kv_case),
    ({"lengths", "page"}, pages_case),
    ({"shared_pages"}, branch_case),
    ({"bytes_per_weight"}, payload_case),
    ({"model"}, model_case),
    ({"Dw", "batch"}, read_case),
    ({"Dw"}, lambda i: roofline.kv_equals_weights_batch(i["Dw"], i["k"], i["context"])),
    ({"chunk", "history"}, lambda i: roofline.attention_pairs(i["chunk"], i["history"])),
    ({"queue_s"}, lambda i: roofline.request_s(i["queue_s"], i["prefill_s"], i["itl_s"], i["output"])),
    ({"rank"}, lora_case),
    ({"type"}, block_case),
    ({"memory", "reserve"}, lambda i: left_after(i["memory"], i["reserve"], i.get("weights", 0))),
    ({"saved"}, lambda i: offload.kv_saving_s(i["saved"], i["bandwidth"], i["convert_s"])),
    (
        {"fixed_ms"},
        lambda i: offload.kv_pays_from(tuple(i["fixed_ms"]), tuple(i["per_token_ms"])),
    ),
    ({"sets"}, offload_case),
    ({"bytes", "steps"}, cost_case),
    ({"link", "ratio"}, lambda i: offload.decompressor_must_beat(i["link"], i["ratio"])),
    ({"recompute_s"}, prefix_case),
    ({"accept"}, draft_case),
    ({"index_s"}, lambda i: drafting.index_pays_after(i["index_s"], i["plain_ms"] / 1e3, i["spec_ms"] / 1e3)),
    ({"rounds"}, lambda i: drafting.mean_time_per_token([tuple(r) for r in i["rounds"]])),
    ({"p"}, acceptance_case),
    ({"fraction"}, lambda i: roofline.amdahl(i["fraction"], i["speedup"])),
    ({"bandwidth"}, step_floor_case),
]


@pytest.mark.parametrize("case", PLANNER, ids=lambda c: c["name"])
def test_planner_example(case, sparse_models):
    inputs = case["inputs"]
    if "header" in inputs:
        found = sparse_models.split_of(inputs["header"])
    else:
        kind = next(f for keys, f in PLANNER_KINDS if keys <= set(inputs))
        found = kind(inputs)
    assert_close(found, case["expected"], case["rel_tol"])


def test_every_planner_kind_is_used():
    used = {
        next(i for i, (keys, _) in enumerate(PLANNER_KINDS) if keys <= set(c["inputs"]))
        for c in PLANNER
        if "header" not in c["inputs"]
    }
    assert used == set(range(len(PLANNER_KINDS)))


# -- serving_examples.json ---------------------------------------------------------------------------------------------

TYPES = {"q8": "q8_0", "q4": "q4_0"}


def serving_token_bytes(i):
    k, v = (TYPES.get(i[key], i[key]) for key in ("k", "v"))
    return kv_cost.kv_bytes_per_token(i["layers"], i["kv_heads"], i["head_dim"], k, v)


def serving_context(i, total):
    return max_context(total, i["weights"], i["overhead"], serving_token_bytes(i), i["pool_fraction"])


def serving_fits(i):
    context = serving_context(i, i["budget"])
    pool = kv_pool_bytes(i["budget"], i["weights"], i["overhead"], i["pool_fraction"])
    fits = kv_cost.kv_bytes(serving_token_bytes(i), i["ctx"]) <= pool
    assert fits == (i["ctx"] <= context)
    return {"max_context": context, "fits": fits}


def serving_pages(i):
    pages = kv_cost.pages_for(i["tokens"], i["block"])
    return {"blocks": pages.n_pages, "waste_tokens": pages.waste_tokens}


def serving_tables(i):
    sharing = kv_cost.table_sharing(i.values())
    return {"unshared": sharing.unshared, "shared": sharing.shared, "refcount_0": sharing.references[0]}


def serving_prefix(i):
    s = kv_cost.prefix_sharing(i["prefix"], i["unique"], i["users"], i["kv_bytes_per_token"])
    return {
        name: getattr(s, name) for name in ("tokens_plain", "tokens_shared", "bytes_plain", "bytes_shared", "saving")
    }


def serving_spec(i):
    return {
        "tokens": drafting.expected_tokens(i["alpha"], i["K"]),
        "speedup": drafting.speedup(i["alpha"], i["K"], i["draft_cost"], i["verify_cost"]),
    }


def serving_best_draft(i):
    choice = drafting.best_draft(i["alpha"], i["draft_cost"], i["verify_cost"], i["kmax"])
    return {"K": choice.draft, "speedup": choice.speedup}


def serving_concurrency(i):
    c = batching.concurrency(i["rate"], i["latency"], i["batch"], i["batch_latency"])
    return {
        "concurrency": c.in_flight,
        "replica_rate": c.replica_rate,
        "replicas_throughput": c.replicas_for_throughput,
        "replicas_slo": c.replicas_for_latency,
        "slots": c.slots,
        "utilisation": c.utilisation,
    }


def serving_batch(i):
    b = batching.batch_latency(i["lengths"], i["step_ms"])
    return {
        "static_ms": b.static,
        "continuous_ms": list(b.continuous),
        "mean_ms": b.mean,
        "slots": b.slots,
        "useful": b.useful,
    }


def serving_restore(i):
    choice = offload.restore_or_prefill(i["bytes"], i["bw"], i["prefill_s"])
    return {"restore_s": choice.restore_s, "choice": choice.choice}


SERVING_FUNCTIONS = {
    "weights_bytes": lambda i: weights.weights_bytes(i["params"], i["bits"]),
    "kv_bytes_per_token": serving_token_bytes,
    "kv_bytes": lambda i: kv_cost.kv_bytes(serving_token_bytes(i), i["ctx"], i.get("batch", 1)),
    "max_sequences": lambda i: max_sequences(i["total"], i["weights"], i["overhead"], i["kv_seq"], i["pool_fraction"]),
    "max_context": lambda i: serving_context(i, i["total"]),
    "fits": serving_fits,
    "paged_blocks": serving_pages,
    "contiguous_waste": lambda i: kv_cost.contiguous_waste(i["reserved"], i["used"]),
    "block_bytes": lambda i: kv_cost.page_bytes(i["kv_bytes_per_token"], i["block"]),
    "block_tables": serving_tables,
    "prefix_cache": serving_prefix,
    "spec": serving_spec,
    "spec_best_k": serving_best_draft,
    "spec_break_even": lambda i: drafting.break_even_accept(i["K"], i["draft_cost"], i["verify_cost"]),
    "littles_law": serving_concurrency,
    "waste": lambda i: batching.padding_waste(i["lengths"]),
    "batch_latency": serving_batch,
    "knee": lambda i: batching.batch_knee(i["fixed_ms"], i["var_ms"]),
    "batch_throughput": lambda i: batching.batch_throughput(i["B"], i["fixed_ms"], i["var_ms"]),
    "max_batch_for_slo": lambda i: batching.max_batch_for(i["slo_ms"], i["fixed_ms"], i["var_ms"]),
    "prefill_chunks": lambda i: roofline.prefill_chunks(i["prompt"], i["chunk"]),
    "decode_ms": lambda i: 1e3 * roofline.memory_floor_s(i["bytes"], i["bw"]),
    "t_step_ms": lambda i: (
        1e3 * roofline.mixed_step_s(i["weights"], i["params"], i["bw"], i["peak"], i["decode"], i["chunk"])
    ),
    "balance_tokens": lambda i: roofline.balance_tokens(i["weights"], i["params"], i["bw"], i["peak"]),
    "transfer_ms": lambda i: 1e3 * offload.transfer_s(i["bytes"], i["bw"]),
    "kv_restore_decision": serving_restore,
    "lora_bytes": lambda i: weights.lora_bytes(i["rank"], i["layers"], i["shapes"], i["bytes"]),
}

# A multi-tenant server's policies and an allocator that we do not have: nothing a planner forecasts.
NOT_PLANNING = {"contiguous_alloc", "max_min", "adapt", "window"}
SERVING_PLANNER = [c for c in SERVING if c["fn"] not in NOT_PLANNING]


@pytest.mark.parametrize("case", SERVING_PLANNER, ids=lambda c: c["id"])
def test_serving_example(case):
    rel = 2e-3 if "abs tol 1e-3" in case["note"] else SERVING_FILE["tolerance_rel"]
    assert_close(SERVING_FUNCTIONS[case["fn"]](case["inputs"]), case["expected"], rel)


def test_serving_cases_are_all_accounted_for():
    assert {c["fn"] for c in SERVING} == set(SERVING_FUNCTIONS) | NOT_PLANNING
    assert len(SERVING_PLANNER) == 121
