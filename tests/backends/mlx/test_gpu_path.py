"""The GPU path of the backend, whole models through it, with every kernel launch executed on the host.

What a GPU would run is the same Python and the same kernel bodies; only MLX's own operations run on mlx-cpu.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from localinfer.backends.mlx import load
from localinfer.backends.mlx.adopt import Adopted, adopt
from localinfer.backends.mlx.backend import MLXBackend, MLXModel
from localinfer.backends.mlx.device import MLXDevice
from localinfer.backends.mlx.gpu_attention import GpuAttention
from localinfer.backends.mlx.gpu_linear import SMALL_ROWS
from localinfer.backends.mlx.gpu_ops import GpuOps
from localinfer.backends.mlx.kv import MLXKV
from localinfer.backends.mlx.launch import MetalLauncher
from localinfer.backends.mlx.selftest import Setup, run
from localinfer.backends.mlx.weights import BlockWeight, MLXWeight
from localinfer.backends.reference.backend import ReferenceBackend
from localinfer.backends.reference.kv import ReferenceKV
from localinfer.backends.reference.ops import ReferenceOps, ReferenceWeight
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.gguf import GGUFFile
from localinfer.formats.quant import random_blocks
from localinfer.kv.spec import KVLayer, KVSpec
from localinfer.models.config import AttentionConfig, ModelConfig, MoEConfig
from localinfer.models.ops import MoEWeights
from tests.backends.mlx.conftest import GOLDEN, golden_logits, tokens
from tests.metal_kernels.launcher import HostLauncher

assert find_spec("mlx")


def device(half: mx.Dtype = mx.float32) -> MLXDevice:
    return MLXDevice("metal", "host", 1 << 30, half)


@cache
def opened(name: str) -> tuple[GGUFFile, ModelConfig]:
    file = GGUFFile.open(GOLDEN / f"{name}.gguf")
    return file, ModelConfig.from_gguf(file)


@pytest.fixture
def adopting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that takes what it is handed, as Metal does."""
    monkeypatch.setattr(load, "adopt", lambda *where: adopt(*where, importer=mx.array))
    monkeypatch.setattr("localinfer.backends.mlx.backend.set_limits", lambda device, n_bytes: None)


def loaded(name: str, half: mx.Dtype = mx.float32) -> tuple[MLXModel, HostLauncher]:
    launcher = HostLauncher()
    file, config = opened(name)
    return MLXBackend(launcher, device(half)).load(file, config, lambda fraction, what: None), launcher


def through(model, config: ModelConfig, ids: list[int], kv_type: str) -> np.ndarray:
    """A prompt of 30, a verified draft of 3, one token."""
    kv = model.new_kv(KVSpec.from_config(config, 64, kv_type, kv_type, 32))
    parts = (ids[:30], ids[30:33], ids[33:34])
    return np.concatenate([model.forward(part, kv, len(part)) for part in parts])


@pytest.mark.parametrize(
    ("name", "kv_type", "limit"),
    [("llama256-moe-Q4_K_M", "f32", 2e-4), ("falcon-h1", "f32", 1e-4), ("gemma3", "q8_0", 5e-3)],
)
def test_models_match_the_reference(adopting: None, name: str, kv_type: str, limit: float) -> None:
    file, config = opened(name)
    model, launcher = loaded(name)
    found = through(model, config, tokens(name), kv_type)
    exact = ReferenceBackend().load(file, config, lambda fraction, what: None)
    assert np.abs(found - through(exact, config, tokens(name), kv_type)).max() < limit
    names = set(launcher.launches)
    assert any(n.startswith("li_linear_") for n in names) and any(n.startswith("li_attend_") for n in names)
    if name == "falcon-h1":
        assert "li_scan" in names
    if name.startswith("llama256"):
        assert {"li_linear_experts_q4_k", "li_decode_rows_q4_k"} <= names


@pytest.mark.parametrize("name", ["gemma3", "llama256-moe-Q4_K_M"])
def test_half_precision_of_a_device_stays_close(adopting: None, name: str) -> None:
    """Prompts through float16 products and attention, a float16 cache: what a GPU computes, with the types it uses."""
    _, config = opened(name)
    model, _ = loaded(name, mx.float16)
    found = through(model, config, tokens(name), "f16").astype(np.float64)
    p, q = (x - np.log(np.exp(x).sum(axis=-1, keepdims=True)) for x in (golden_logits(name)[:34].astype(float), found))
    assert np.mean(np.sum(np.exp(p) * (p - q), axis=-1)) < 2e-5
    assert np.abs(found - golden_logits(name)[:34]).max() < 0.05


def test_adopted_and_copied_bytes_add_up(adopting: None) -> None:
    """Every matrix is adopted; what is copied are vectors, in float32."""
    file, _ = opened("llama256-moe-Q4_K_M")
    model, _ = loaded("llama256-moe-Q4_K_M")
    matrices = [i for i in file.tensors.values() if len(i.shape) > 1]
    vectors = sum(4 * int(np.prod(i.shape)) for i in file.tensors.values() if len(i.shape) < 2)
    assert model.copied_bytes == vectors
    assert sum(i.n_bytes for i in matrices) <= model.adopted_bytes
    assert not model.notices


def test_refused_adoption_is_said_with_its_reason() -> None:
    model, _ = loaded("llama256-moe-Q4_K_M")
    assert model.adopted_bytes == 0
    assert any("weights copied" in n and "without a copy" in n for n in model.notices)


def test_type_without_kernel_is_decoded_and_said(adopting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "has_kernel", lambda gtype, n_in: gtype == GGMLType.F32)
    file, _ = opened("llama256-moe-Q4_K_M")
    model, _ = loaded("llama256-moe-Q4_K_M", mx.float16)
    assert any("Q4_K with rows of 256 has no kernel here" in n for n in model.notices)
    decoded = sum(2 * int(np.prod(i.shape)) for i in file.tensors.values() if i.type in (GGMLType.Q4_K, GGMLType.Q6_K))
    assert model.copied_bytes >= decoded


def test_float16_products_stay_in_range(adopting: None) -> None:
    """Activations far beyond 65504, as Gemma's, through a matrix product in float16."""
    model, _ = loaded("llama256-moe-Q4_K_M", mx.float16)
    ops, w = model._ops, model._loaded.weights["blk.0.attn_q.weight"]
    x = np.random.default_rng(0).standard_normal((20, w.n_in)).astype(np.float32) * np.float32(1e6)
    found = np.array(ops.linear(mx.array(x), w))
    rows = np.array(ops._blocks.rows(w, range(w.n_out)))
    assert np.isfinite(found).all()
    assert np.abs(found - x @ rows.T).max() < 2e-3 * np.abs(x @ rows.T).max()


ATTENTIONS = {
    "plain": AttentionConfig(4, 2, 64, 64, 0.1),
    "window, softcap": AttentionConfig(4, 2, 64, 64, 0.1, window=20, softcap=10.0),
    "alibi": AttentionConfig(4, 4, 32, 32, 0.1, alibi_max_bias=8.0),
    "chunk, sinks": AttentionConfig(4, 1, 64, 64, 0.1, chunk=16),
    "values in keys": AttentionConfig(4, 1, 96, 64, 0.1, v_in_k=True),
}


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("tile", [32, 2048])
def test_tiled_attention_is_the_references(name: str, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt of 70 after one of 50: its scores come in tiles."""
    monkeypatch.setattr("localinfer.backends.mlx.gpu_attention.MAX_TILE", tile)
    attn = ATTENTIONS[name]
    rng = np.random.default_rng(0)
    sinks = mx.array(rng.standard_normal(4).astype(np.float32)) if "sinks" in name else None
    pages = 12 if not attn.window else 7
    layer = KVLayer(
        "full", attn.n_kv_heads, attn.d_k, attn.d_v, "f32", "f32", pages, attn.window, v_in_k=attn.v_in_k
    )  # fmt: skip
    spec = KVSpec(192, 70, (layer,))
    kv, exact, attention = MLXKV(spec), ReferenceKV(spec), GpuAttention(HostLauncher(), mx.float32)
    for n in (50, 70):
        q, k, v = (
            rng.standard_normal((n, h, d)).astype(np.float32)
            for h, d in ((4, attn.d_k), (attn.n_kv_heads, attn.d_k), (attn.n_kv_heads, attn.d_v))
        )
        slots = kv.append(0, mx.array(k), None if attn.v_in_k else mx.array(v))
        found = np.array(attention.tiled(mx.array(q), kv, 0, slots, attn, sinks))
        weight = None if sinks is None else type("Sinks", (), {"vector": np.array(sinks)})
        expected = ReferenceOps().attention(q, k, None if attn.v_in_k else v, exact, 0, attn, weight)
        kv.length = exact.length = kv.length + n
        assert np.abs(found - expected).max() < 1e-5


FUSED = {
    "few queries": (AttentionConfig(4, 2, 64, 64, 0.1), (20, 3, 1)),
    "ring that rolls over": (AttentionConfig(4, 2, 64, 64, 0.1, window=20), (20, 20, 20, 20, 1)),
    "chunk": (AttentionConfig(4, 2, 64, 64, 0.1, chunk=16), (20, 20, 1)),
    "no kernel of MLX for a prompt": (AttentionConfig(2, 1, 256, 256, 0.06), (20, 1)),
    "no kernel of MLX at all": (AttentionConfig(2, 1, 36, 36, 0.1), (20, 3)),
}


@pytest.mark.parametrize("name", FUSED)
def test_each_way_over_float16_is_the_references(name: str) -> None:
    """MLX's fused attention, tiles and the kernel, as the head size and the number of queries ask for."""
    attn, chunks = FUSED[name]
    rng = np.random.default_rng(0)
    layer = KVLayer("full", attn.n_kv_heads, attn.d_k, attn.d_v, "f16", "f16", 4 if attn.window else 6, attn.window)
    spec = KVSpec(96, 20, (layer,))
    launcher = HostLauncher()
    kv, exact, attention = MLXKV(spec), ReferenceKV(spec), GpuAttention(launcher, mx.float16)
    for n in chunks:
        q, k, v = (
            rng.standard_normal((n, h, attn.d_k)).astype(np.float32)
            for h in (attn.n_heads, attn.n_kv_heads, attn.n_kv_heads)
        )
        slots = kv.append(0, mx.array(k), mx.array(v))
        found = np.array(attention(mx.array(q), kv, 0, slots, attn, None))
        expected = ReferenceOps().attention(q, k, v, exact, 0, attn)
        kv.length = exact.length = kv.length + n
        assert np.abs(found - expected).max() < 4e-3
    assert ("li_attend_f16_f16" in launcher.launches) == (name == "no kernel of MLX at all")


def test_bfloat16_products(adopting: None) -> None:
    """The other half precision: a prompt of 20 through a matrix decoded to bfloat16."""
    model, launcher = loaded("llama256-moe-Q4_K_M", mx.bfloat16)
    ops, w = model._ops, model._loaded.weights["blk.0.attn_q.weight"]
    x = np.random.default_rng(0).standard_normal((20, w.n_in)).astype(np.float32)
    expected = x @ np.array(ops._blocks.rows(w, range(w.n_out))).T
    assert np.abs(np.array(ops.linear(mx.array(x), w)) - expected).max() < 2e-2 * np.abs(expected).max()
    assert launcher.launches["li_decode_rows_q4_k"] == 2


def test_products_do_not_depend_on_how_many_tokens_come(adopting: None) -> None:
    """The same sums in the same order for 1 and for 16 rows: what drafting needs."""
    model, _ = loaded("llama256-moe-Q4_K_M")
    ops, w = model._ops, model._loaded.weights["blk.0.attn_q.weight"]
    x = mx.array(np.random.default_rng(0).standard_normal((13, w.n_in)).astype(np.float32))
    together = np.array(ops.linear(x, w))
    assert all(np.array_equal(np.array(ops.linear(x[i : i + 1], w))[0], together[i]) for i in (0, 5, 12))


def test_selftest_runs_its_checks_and_reports_the_refused_adoption() -> None:
    """On the host everything passes but the zero copies, which mlx-cpu refuses; measurements are taken all the same."""
    one = (GGMLType.Q8_0,)
    small = Setup(device(), HostLauncher(), one, one, (64, 64), 1, (32,), 20, (0.0,))
    report = run(small)
    failed = [c for c in report.checks if c.passed is False]
    assert [c.name for c in failed] == ["zero copies"] and "without a copy" in failed[0].detail
    names = {c.name for c in report.checks}
    assert {"experts", "matrix Q8_0", "attention over q8_0", "attention over q4_0", "watchdog", "prefill Q8_0"} <= names
    assert {"bandwidth Q8_0, 16 vectors", "attention over q4_0 at 32", "attention over f16 at 32"} <= names
    assert report.text().isascii() and not report.passed


def moe_weights(n_experts: int, width: int, inner: int, biased: bool) -> tuple[MoEWeights, MoEWeights]:
    """Q8_0 experts for the device, and the same for the reference."""
    rng = np.random.default_rng(7)
    shapes = {"router": (n_experts, width), "up": (n_experts, inner, width), "gate": (n_experts, inner, width),
              "down": (n_experts, width, inner)}  # fmt: skip
    blocks, exact = {}, {}
    for name, shape in shapes.items():
        raw = random_blocks(GGMLType.Q8_0, shape, rng).reshape(-1).view(np.uint8)
        adopted = Adopted(mx.array(np.ascontiguousarray(raw).view(np.uint32)), 0, 0)
        blocks[name] = BlockWeight(memoryview(raw.data), GGMLType.Q8_0, shape, adopted)
        exact[name] = ReferenceWeight(memoryview(raw.data), GGMLType.Q8_0, shape)
    if biased:
        for name in ("up_bias", "gate_bias", "down_bias"):
            raw = rng.standard_normal((n_experts, width if name == "down_bias" else inner)).astype(np.float32)
            blocks[name] = MLXWeight(memoryview(raw.reshape(-1).view(np.uint8).data), GGMLType.F32, raw.shape)
            exact[name] = ReferenceWeight(memoryview(raw.reshape(-1).view(np.uint8).data), GGMLType.F32, raw.shape)
    return MoEWeights(**blocks), MoEWeights(**exact)


@pytest.mark.parametrize("n", [1, 2, 5, 17, 40])
@pytest.mark.parametrize("moe", [MoEConfig(8, 2, 64), MoEConfig(8, 2, 64, gating="sigmoid", weigh_input=True)])
@pytest.mark.parametrize("many", [64, 2], ids=["by tiles of blocks", "decoded where many"])
def test_experts_are_the_references(n: int, moe: MoEConfig, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localinfer.backends.mlx.gpu_linear.MANY_PAIRS", many)
    monkeypatch.setattr("localinfer.backends.mlx.gpu_linear.TILE_BYTES", 8 * 96 * 4 * 24)  # rows of down: three tiles
    launcher = HostLauncher()
    blocks, exact = moe_weights(8, 64, 96, biased=not moe.weigh_input)
    x = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32) * np.float32(0.02)  # no sigmoid is 1
    found = np.array(GpuOps(launcher, mx.float32).moe(mx.array(x), blocks, moe, "silu"))
    expected = ReferenceOps().moe(x, exact, moe, "silu")
    assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()
    decoded = n > SMALL_ROWS and many == 2
    assert launcher.launches["li_linear_experts_q8_0"] == (0 if decoded else 3)
    assert (launcher.launches["li_decode_rows_q8_0"] > 0) == (decoded or n > SMALL_ROWS)  # the router's matrix too


@pytest.mark.parametrize("n", [1, 5, 40, 600])
def test_experts_never_wait_for_the_host(n: int, tmp_path: Path) -> None:
    """Under export MLX only traces, and refuses whatever needs a value: nothing of a layer of experts does."""
    blocks, _ = moe_weights(8, 64, 96, biased=True)
    ops = GpuOps(MetalLauncher(), mx.float16)
    path = tmp_path / "moe.mlxfn"
    mx.export_function(str(path), lambda x: ops.moe(x, blocks, MoEConfig(8, 2, 64), "silu"), mx.zeros((n, 64)))
    assert path.stat().st_size > 0
    with pytest.raises((ValueError, RuntimeError)):
        mx.export_function(str(path), lambda x: mx.array(np.array(x)), mx.zeros((n, 64)))


@pytest.mark.parametrize("n", [1, 3, 20])
def test_each_head_takes_its_own_matrix(n: int) -> None:
    blocks, exact = moe_weights(8, 64, 96, biased=False)
    x = np.random.default_rng(n).standard_normal((n, 8, 64)).astype(np.float32)
    found = np.array(GpuOps(HostLauncher(), mx.float32).head_linear(mx.array(x), blocks.up))
    expected = ReferenceOps().head_linear(x, exact.up)
    assert found.shape == (n, 8, 96) and np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


def test_decoding_begins_while_the_rest_is_built(adopting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few layers of a token; never in a prompt, whose layers are long enough."""
    begun: list[int] = []
    monkeypatch.setattr("localinfer.backends.mlx.gpu_ops.LAYERS_AT_ONCE", 2)
    monkeypatch.setattr(mx, "async_eval", lambda y: begun.append(y.shape[0]))
    model, _ = loaded("gemma3")
    kv = model.new_kv(KVSpec.from_config(model.config, 64, "f32", "f32", 32))
    model.forward(tokens("gemma3")[:30], kv, 1)
    assert begun == []
    model.forward(tokens("gemma3")[30:31], kv, 1)
    assert begun == [1] * (model.config.n_layers // 2) and begun


def test_cuda_never_needs_a_grouped_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX's CUDA builds may have no gather_mm: a prompt of many pairs takes tiles of blocks there."""
    monkeypatch.setattr("localinfer.backends.mlx.gpu_linear.MANY_PAIRS", 2)
    monkeypatch.setattr(mx, "gather_mm", lambda *a, **k: pytest.fail("a grouped product"))
    launcher = HostLauncher("cuda")
    blocks, _ = moe_weights(8, 64, 96, biased=False)
    x = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    mx.eval(GpuOps(launcher, mx.float32).moe(mx.array(x), blocks, MoEConfig(8, 2, 96), "silu"))
    assert launcher.launches["li_linear_experts_q8_0"] == 3
