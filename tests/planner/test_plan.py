"""Bytes worked out by hand for real models' headers, and what must hold for any plan."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localinfer.errors import FormatError
from localinfer.kv.spec import PAGE_TOKENS
from localinfer.planner.budget import MemoryBudget
from localinfer.planner.devices import DEVICES, find_device
from localinfer.planner.plan import KV_CHOICES, PARTS, Ask, kv_name, make_plan, with_ctx, with_kv
from localinfer.planner.weights import weight_groups
from localinfer.units import GIB, MIB
from tests.planner.sparse_headers import MODELS


def budget(memory: int, platform: str = "cpu", **figures) -> MemoryBudget:
    return MemoryBudget("test", platform, memory, memory, 0, "test", **figures)


# f16 KV at 32k in MiB: layers * KV heads * 2 * head size * 2 bytes * 32768. Of gemma's layers five of six hold a ring:
# window 1024 - 1 + chunk 512 = 1535 tokens, 96 pages, and one more since a chunk may start anywhere: 97 * 16 = 1552.
KV_32K_MIB = {
    "llama-3.1-8b-q4_k": 32 * 8 * 2 * 128 * 2 * 32768 / MIB,
    "qwen3-8b-q4_k": 4608,
    "qwen3-0.6b-q8_0": 3584,
    "qwen3-30b-a3b-q4_k": 3072,
    "llama-3.3-70b-q4_k": 10240,
    "phi-3-mini-q4_k": 12288,
    "gemma-3-12b-q4_k": 8 * 2 * 256 * 2 * (8 * 32768 + 40 * 1552) / MIB,
    "gemma-3-27b-q4_k": 16 * 2 * 128 * 2 * (10 * 32768 + 52 * 1552) / MIB,
}


@pytest.mark.parametrize("name", KV_32K_MIB)
def test_f16_kv_at_32k(sparse_models, name):
    plan = make_plan(sparse_models.facts(name), budget(200 * GIB), Ask(ctx=32768))
    assert plan.parts["kv"] == KV_32K_MIB[name] * MIB
    assert plan.kv.n_bytes == plan.parts["kv"]  # what a backend allocates


def test_llama_8b_is_the_printed_4096_mib(sparse_models):
    assert KV_32K_MIB["llama-3.1-8b-q4_k"] == 4096


@pytest.mark.parametrize(("kv", "mib"), [("q8_0", 2448), ("q8_0/q4_0", 1872), ("q4_0", 1296)])
def test_quantized_kv_counts_its_scales(sparse_models, kv, mib):
    k, _, v = kv.partition("/")
    plan = make_plan(sparse_models.facts("qwen3-8b-q4_k"), budget(GIB), Ask(ctx=32768, kv_k=k, kv_v=v or k))
    assert plan.parts["kv"] == mib * MIB


def test_sliding_windows_are_told_apart(sparse_models):
    plan = make_plan(sparse_models.facts("gemma-3-12b-q4_k"), budget(100 * GIB), Ask(ctx=32768))
    rows = {r.name: (r.n_bytes, r.note) for r in plan.rows if r.part == "kv"}
    assert rows == {
        "8 full layers": (2048 * MIB, "32768 tokens"),
        "40 layers, window 1024": (40 * 1552 * 8192, "1552 tokens"),
    }
    assert plan.parts["kv"] < 12288 * MIB / 4  # what all layers would take at full length


def test_a_window_that_is_not_full_costs_like_a_full_layer(sparse_models):
    facts = sparse_models.facts("gemma-3-12b-q4_k")
    short = make_plan(facts, budget(100 * GIB), Ask(ctx=1024))
    assert short.parts["kv"] == 48 * 1024 * 8192


def test_235b_on_a_96_gb_mac(sparse_models):
    """85,691,002,112 bytes of file: 1.60 GiB are left before the KV cache and 0.13 GiB after it."""
    facts = sparse_models.facts("qwen3-235b-a22b-q2_k")
    assert facts.file_bytes == 85_691_002_112
    assert facts.tensor_bytes == 85_684_996_096
    plan = make_plan(facts, find_device("m2-max-96gb").budget(8 * GIB), Ask(ctx=8192))
    before = plan.budget.budget_bytes - facts.file_bytes
    assert round(before / GIB, 2) == 1.60
    assert round((before - plan.parts["kv"]) / GIB, 2) == 0.13
    assert plan.budget.budget_bytes == 96 * 10**9 - 8 * GIB
    assert with_ctx(plan, 32768).verdict == "does_not_fit"


def test_weights_are_counted_by_group_and_tied_ones_once(sparse_models):
    untied = weight_groups(sparse_models.facts("qwen3-8b-bf16").tensors)
    table = 151936 * 4096 * 2
    assert (untied["embedding"], untied["output"]) == (table, table)
    assert untied["attention"] == 36 * 4096 * 128 * (2 * 32 + 2 * 8) * 2
    assert untied["other"] == (36 * (2 * 4096 + 2 * 128) + 4096) * 4  # norms are float32
    assert untied["feed-forward"] == 36 * 3 * 4096 * 12288 * 2
    tied = weight_groups(sparse_models.facts("gemma-3-12b-q4_k").tensors)
    assert "output" not in tied and tied["embedding"] == 262144 * 3840 * 210 // 256


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("platform", ["cpu", "metal", "cuda", "mlx-cpu"])
def test_rows_sum_to_the_total(sparse_models, name, platform):
    plan = make_plan(sparse_models.facts(name), budget(64 * GIB, platform), Ask(ctx=4096))
    assert sum(plan.parts.values()) == plan.total == sum(r.n_bytes for r in plan.rows)
    assert plan.left == 64 * GIB - plan.total
    assert {r.part for r in plan.rows} <= set(PARTS)
    assert plan.parts["weights"] == plan.model.tensor_bytes


CHEAP = ("qwen3-0.6b-q8_0", "gemma-3-12b-q4_k")
contexts = st.integers(1, 1 << 21)
kv_pairs = st.sampled_from(KV_CHOICES)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(CHEAP), a=contexts, b=contexts, kv=kv_pairs, platform=st.sampled_from(["cpu", "metal"]))
def test_more_context_never_costs_less(sparse_models, name, a, b, kv, platform):
    plan = _plan(sparse_models, name, platform)
    small, large = (with_ctx(with_kv(plan, *kv), n) for n in sorted((a, b)))
    assert small.total <= large.total


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(CHEAP), ctx=contexts)
def test_a_smaller_kv_type_never_costs_more(sparse_models, name, ctx):
    plan = with_ctx(_plan(sparse_models, name, "cpu"), ctx)
    totals = [with_kv(plan, k, v).total for k, v in (("f32", "f32"), *KV_CHOICES)]
    assert totals == sorted(totals, reverse=True)


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(CHEAP),
    memory=st.integers(9 * GIB, 400 * GIB),
    kv=kv_pairs,
    platform=st.sampled_from(["cpu", "metal"]),
)
def test_max_ctx_fits_and_a_page_more_does_not(sparse_models, name, memory, kv, platform):
    plan = make_plan(sparse_models.facts(name), budget(memory, platform), Ask(ctx=4096))
    most = plan.max_ctx[kv_name(*kv)]
    assert most > 0 and most % PAGE_TOKENS == 0
    assert with_ctx(with_kv(plan, *kv), most).left >= 0
    assert with_ctx(with_kv(plan, *kv), most + PAGE_TOKENS).left < 0


_PLANS: dict = {}


def _plan(sparse_models, name, platform):
    if (name, platform) not in _PLANS:
        _PLANS[name, platform] = make_plan(sparse_models.facts(name), budget(64 * GIB, platform), Ask(ctx=4096))
    return _PLANS[name, platform]


def test_changed_plans_equal_plans_made_anew(sparse_models):
    facts = sparse_models.facts("gemma-3-12b-q4_k")
    changed = with_ctx(with_kv(_plan(sparse_models, "gemma-3-12b-q4_k", "cpu"), "q8_0", "q4_0"), 9000)
    fresh = make_plan(facts, budget(64 * GIB), Ask(ctx=9000, kv_k="q8_0", kv_v="q4_0"))
    assert changed.rows == fresh.rows


def test_nothing_fits_where_weights_do_not(sparse_models):
    plan = make_plan(sparse_models.facts("qwen3-8b-q4_k"), budget(2 * GIB), Ask(ctx=4096))
    assert (plan.verdict, plan.binding) == ("does_not_fit", "weights")
    assert set(plan.max_ctx.values()) == {0}


def test_what_binds(sparse_models):
    facts = sparse_models.facts("qwen3-8b-q4_k")

    def plan(memory, ctx=32768, **figures):
        return make_plan(facts, budget(memory, **figures), Ask(ctx=ctx))

    assert plan(facts.tensor_bytes + GIB).binding == "kv"
    assert plan(facts.tensor_bytes + 4608 * MIB + 64 * MIB).binding == "scratch"
    assert plan(20 * GIB).binding == "trained_context"
    assert plan(20 * GIB, free_bytes=5 * GIB).binding == "free_memory"


def test_two_ceilings(sparse_models):
    """It may fit the machine and still need other programs closed."""
    facts = sparse_models.facts("qwen3-8b-q4_k")
    plan = make_plan(facts, budget(20 * GIB, free_bytes=4 * GIB), Ask(ctx=4096))
    assert plan.verdict == "tight"
    assert plan.short_now == plan.total - 4 * GIB
    assert make_plan(facts, budget(20 * GIB, free_bytes=19 * GIB), Ask(ctx=4096)).verdict == "fits"


def test_reserve_and_limit_are_both_kept():
    b = MemoryBudget("x", "metal", 32 * GIB, 24 * GIB, 4 * GIB, "test")
    assert b.budget_bytes == 24 * GIB
    assert MemoryBudget("x", "metal", 32 * GIB, 31 * GIB, 4 * GIB, "test").budget_bytes == 28 * GIB


def test_requests_share_whole_pages_of_a_prefix(sparse_models):
    """16 requests of 8192 + 256 tokens on Qwen3-8B: 18.56 GiB apart, 864 + 16 * 324 MiB with 6144 tokens shared."""
    facts = sparse_models.facts("qwen3-8b-bf16")
    ask = Ask(ctx=8448, requests=16, prompt=8192, output=256)
    apart = make_plan(facts, budget(100 * GIB), ask)
    shared = make_plan(facts, budget(100 * GIB), Ask(**{**ask.__dict__, "shared_prefix": 6144}))
    assert apart.parts["kv"] == 16 * 1188 * MIB
    assert shared.parts["kv"] == (864 + 16 * 324) * MIB


def test_unknown_architecture_still_counts_weights(tmp_path):
    facts = unknown_model(tmp_path)
    plan = make_plan(facts, budget(GIB), Ask(ctx=4096))
    assert plan.verdict == "unknown" and not plan.fits
    assert "nosuch" in plan.unknown
    assert plan.parts["weights"] == facts.tensor_bytes == 64 * 1024 * 4
    assert plan.parts["kv"] == 0 and plan.max_ctx == {}
    assert make_plan(facts, budget(64 * 1024), Ask(ctx=4096)).verdict == "does_not_fit"


def unknown_model(folder):
    from localinfer.formats.gguf import GGUFFile
    from localinfer.planner.facts import ModelFacts
    from tests.fakes.gguf_writer import f32_tensor, write_gguf

    tensors = [f32_tensor("token_embd.weight", (64, 1024))]
    keys = {"general.architecture": "nosuch", "nosuch.context_length": 2048}
    with GGUFFile.open(write_gguf(folder / "unknown.gguf", keys, tensors)) as f:
        return ModelFacts.from_gguf(f)


def test_broken_metadata_is_an_error_and_not_unknown(tmp_path):
    from localinfer.formats.gguf import GGUFFile
    from localinfer.planner.facts import ModelFacts
    from tests.fakes.gguf_writer import f32_tensor, write_gguf

    path = write_gguf(tmp_path / "x.gguf", {"general.architecture": "llama"}, [f32_tensor("token_embd.weight", (4, 4))])
    with GGUFFile.open(path) as f, pytest.raises(FormatError, match="block_count"):
        ModelFacts.from_gguf(f)


def test_device_table_is_sound():
    mac = DEVICES["m2-max-96gb"]
    assert (mac.memory_bytes, mac.bandwidth) == (96 * 10**9, 400e9)
    card = DEVICES["rtx-pro-6000"]
    assert (card.bandwidth, card.flops, card.link) == (1792e9, pytest.approx(503.8e12), 64e9)
    for device in DEVICES.values():
        assert device.source.startswith("https://")
        assert 0 < device.default_reserve_bytes < device.memory_bytes
        assert 10e9 < device.bandwidth < 1e13
