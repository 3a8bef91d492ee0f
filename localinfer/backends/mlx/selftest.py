"""What a first person with a Mac or an NVIDIA card runs: kernels against numpy, zero copies, bandwidth, watchdog.

`run()` gives a Report of plain lines to paste; a check that fails does not stop the next. Nothing here is needed to
compute: it is the part of the tests that this project's machines cannot run.
"""

from __future__ import annotations

import mmap
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any

import mlx.core as mx
import numpy as np

from localinfer.backends.mlx.adopt import Adopted, adopt
from localinfer.backends.mlx.device import MLXDevice, find_device
from localinfer.backends.mlx.gpu_linear import BlockLinear
from localinfer.backends.mlx.gpu_ops import GpuOps
from localinfer.backends.mlx.kernels import BLOCKS
from localinfer.backends.mlx.kv import MLXKV
from localinfer.backends.mlx.launch import CudaLauncher, Launcher, MetalLauncher, whole
from localinfer.backends.mlx.weights import BlockWeight
from localinfer.backends.reference.kv import ReferenceKV
from localinfer.backends.reference.ops import ReferenceOps, ReferenceWeight
from localinfer.errors import LocalinferError
from localinfer.formats.dequant import dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.quant import random_blocks
from localinfer.kv.spec import PAGE_TOKENS, KVLayer, KVSpec
from localinfer.models.config import AttentionConfig, MoEConfig
from localinfer.models.ops import MoEWeights
from localinfer.units import GIB, MIB

TIMED_TYPES = (GGMLType.Q4_K, GGMLType.Q6_K, GGMLType.Q8_0, GGMLType.Q4_0, GGMLType.MXFP4)
# Bytes a second as the makers state them, for the share; other devices get the figure alone.
KNOWN_BANDWIDTH = {"M2 Max": 400e9, "M2 Ultra": 800e9, "RTX PRO 6000": 1792e9}


@dataclass(frozen=True)
class Check:
    name: str
    passed: bool | None  # None: a measurement, not a verdict
    detail: str

    def line(self) -> str:
        word = {True: "ok  ", False: "FAIL", None: "    "}[self.passed]
        return f"{word} {self.name}: {self.detail}"


@dataclass
class Report:
    device: str
    checks: list[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(c.passed is not False for c in self.checks)

    def text(self) -> str:
        """To be pasted into a report."""
        return "\n".join([f"localinfer gpu-selftest on {self.device}", *(c.line() for c in self.checks)])


@dataclass
class Setup:
    """What to check and how large. The sizes are an 8B model's; tests on the host use small ones."""

    device: MLXDevice
    launcher: Launcher
    types: Sequence[GGMLType] = tuple(BLOCKS)
    timed_types: Sequence[GGMLType] = TIMED_TYPES
    matrix: tuple[int, int] = (4096, 14336)
    total_bytes: int = GIB  # of the matrices that one bandwidth run reads: more than any cache holds
    depths: Sequence[int] = (2048, 8192, 32768)
    prompt: int = 512  # tokens
    busy_s: Sequence[float] = (0.25, 0.5, 1.0)


def run(setup: Setup | None = None, progress: Callable[[str], None] = lambda text: None) -> Report:
    """All checks on the device found (or the one given). Without a GPU the report says so in one line."""
    device = setup.device if setup else find_device()
    report = Report(f"{device.name} ({', '.join((device.target, *device.features))})")
    report.checks.append(Check("versions", None, _versions()))
    if setup is None and device.target == "cpu":
        detail = "MLX finds none here: kernels cannot run (on the host they are executed by the test suite)"
        report.checks.append(Check("gpu", False, detail))
        return report
    setup = setup or Setup(device, MetalLauncher() if device.target == "metal" else CudaLauncher())
    for name, check in _checks(setup):
        progress(name)
        report.checks.extend(_guarded(name, check))
    return report


def _checks(setup: Setup) -> Iterator[tuple[str, Callable[[], Iterable[Check]]]]:
    yield "kernels", lambda: _matrices(setup)
    yield "experts", lambda: _experts(setup)
    yield "attention", lambda: _attention(setup)
    yield "zero copies", lambda: _zero_copies(setup)
    yield "bandwidth", lambda: _bandwidth(setup)
    yield "prefill", lambda: _prefill(setup)
    yield "depths", lambda: _depths(setup)
    yield "watchdog", lambda: _watchdog(setup)


def _guarded(name: str, check: Callable[[], Iterable[Check]]) -> list[Check]:
    """A device that fails says how; the other checks still run."""
    done: list[Check] = []
    try:
        done.extend(check())
    except (RuntimeError, ValueError, LocalinferError) as error:
        done.append(Check(name, False, " ".join(str(error).split())[:300]))
    return done


def _versions() -> str:
    return f"mlx {version('mlx')}, Python {platform.python_version()}, {platform.platform()}"


# -- correctness ------------------------------------------------------------------------------------------------------


def _weight(gtype: GGMLType, n_out: int, n_in: int, seed: int) -> tuple[BlockWeight, np.ndarray]:
    """Random blocks and their values."""
    raw = random_blocks(gtype, (n_out, n_in), np.random.default_rng(seed))
    flat = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
    words = np.concatenate([flat, np.zeros(-flat.size % 4, np.uint8)]).view(np.uint32)
    found = Adopted(mx.array(words), 0, flat.size)
    return BlockWeight(memoryview(flat.data), gtype, (n_out, n_in), found), dequantize(flat, gtype, (n_out, n_in))


def _matrices(setup: Setup) -> Iterator[Check]:
    """Every type: 1, 3 and 16 vectors, a product by decoded tiles, and decoded rows to the bit."""
    blocks = BlockLinear(setup.launcher, setup.device.half)
    rng = np.random.default_rng(0)
    for gtype in setup.types:
        w, values = _weight(gtype, 257, 1280, int(gtype))
        errors = []
        for n in (1, 3, 16, 33):
            x = rng.standard_normal((n, 1280)).astype(np.float32)
            found = np.array(blocks.linear(mx.array(x), w, None))
            room = np.abs(x) @ np.abs(values).T + 1e-30
            errors.append(float((np.abs(found - x @ values.T) / room).max()))
        rows = np.array(blocks.rows(w, [256, 0, 31]))
        same = np.array_equal(rows, values[[256, 0, 31]])
        tile = 2.0**-6 if setup.device.half == mx.bfloat16 else 2.0**-9
        good = max(errors[:3]) < 4e-6 and errors[3] < tile and same
        parts = ", ".join(f"{e:.1e}" for e in errors)
        detail = f"error of 1, 3, 16, 33 vectors {parts}; rows {'equal' if same else 'differ'}"
        yield Check(f"matrix {gtype.name}", good, detail)


def _experts(setup: Setup) -> Iterator[Check]:
    """A layer of 8 experts, 2 a token: one token, a draft, a prompt by tiles of blocks, one by decoded tiles."""
    ops, reference, rng = GpuOps(setup.launcher, setup.device.half), ReferenceOps(), np.random.default_rng(3)
    shapes = {"router": (8, 64), "up": (8, 96, 64), "gate": (8, 96, 64), "down": (8, 64, 96)}
    on_device, exact = {}, {}
    for name, shape in shapes.items():
        raw = np.ascontiguousarray(random_blocks(GGMLType.Q8_0, shape, rng)).reshape(-1).view(np.uint8)
        found = Adopted(mx.array(raw.view(np.uint32)), 0, raw.size)
        on_device[name] = BlockWeight(memoryview(raw.data), GGMLType.Q8_0, shape, found)
        exact[name] = ReferenceWeight(memoryview(raw.data), GGMLType.Q8_0, shape)
    moe, errors = MoEConfig(8, 2, 96), []
    for n in (1, 5, 40, 300):
        x = rng.standard_normal((n, 64)).astype(np.float32) * np.float32(0.02)
        y = np.array(ops.moe(mx.array(x), MoEWeights(**on_device), moe, "silu"))
        expected = reference.moe(x, MoEWeights(**exact), moe, "silu")
        errors.append(float(np.abs(y - expected).max() / np.abs(expected).max()))
    good = max(errors[:2]) < 2e-5 and max(errors) < 2e-2
    yield Check("experts", good, f"error of 1, 5, 40, 300 tokens {', '.join(f'{e:.1e}' for e in errors)}")


def _attention(setup: Setup) -> Iterator[Check]:
    """A prompt of 20 and 3 tokens over each KV type, with a window that rolls over, against numpy."""
    ops, reference = GpuOps(setup.launcher, setup.device.half), ReferenceOps()
    attn = AttentionConfig(n_heads=4, n_kv_heads=2, d_k=128, d_v=128, scale=0.09, window=24)
    for kv_type in ("f16", "q8_0", "q4_0"):
        layer = KVLayer("window", 2, 128, 128, kv_type, kv_type, 4, 24)
        spec = KVSpec(256, 20, (layer,))
        kv, exact = MLXKV(spec, ops.encode_kv), ReferenceKV(spec)
        rng, worst = np.random.default_rng(1), 0.0
        for n in (20, 3, 20, 20, 1):
            q, k, v = (rng.standard_normal((n, h, 128)).astype(np.float32) for h in (4, 2, 2))
            found = ops.attention(mx.array(q), mx.array(k), mx.array(v), kv, 0, attn)
            mx.eval(found, kv.arrays())
            expected = reference.attention(q, k, v, exact, 0, attn)
            kv.length = exact.length = kv.length + n
            worst = max(worst, float(np.abs(np.array(found) - expected).max()))
        limit = 0.03 if setup.device.half == mx.bfloat16 else 4e-3
        yield Check(f"attention over {kv_type}", worst < limit, f"largest error {worst:.1e}")


def _zero_copies(setup: Setup) -> Iterator[Check]:
    """MLX's active memory grows by exactly the window, and the numbers are the file's."""
    n_bytes, offset = 8 * MIB + 96, 12 * mmap.PAGESIZE + 4096 + 32
    data = np.random.default_rng(2).integers(0, 2**32, (offset + n_bytes) // 4, np.uint32)
    with tempfile.TemporaryFile() as file:
        file.write(data.tobytes())
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        before = mx.get_active_memory()
        found = adopt(mapped, offset, n_bytes, 16)
        grown = mx.get_active_memory() - before
        same = np.array_equal(np.array(found.words[: n_bytes // 4]), data[offset // 4 :])
    yield Check("values through the adopted window", same, "equal" if same else "differ")
    if setup.device.shares_memory:
        good = found.copied_bytes == 0 and grown == found.window_bytes
        reason = f" ({found.reason})" if found.reason else ""
        detail = f"active memory +{grown}, window {found.window_bytes}, copied {found.copied_bytes}{reason}"
        yield Check("zero copies", good, detail)
    else:
        yield Check("one copy", found.copied_bytes == n_bytes, f"{found.copied_bytes} bytes for {n_bytes} in the file")


# -- measurements -----------------------------------------------------------------------------------------------------


def _seconds(work: Callable[[], Any], reps: int = 5) -> float:
    """The median of a few runs, the first of which only warms up."""
    mx.eval(work())
    times = []
    for _ in range(reps):
        start = time.perf_counter()
        mx.eval(work())
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _share(device: MLXDevice, bytes_per_s: float) -> str:
    known = next((b for name, b in KNOWN_BANDWIDTH.items() if name in device.name), None)
    return f"{bytes_per_s / 1e9:.0f} GB/s" + (f", {bytes_per_s / known:.0%} of {known / 1e9:.0f}" if known else "")


def _bandwidth(setup: Setup) -> Iterator[Check]:
    """1, 4 and 16 vectors through matrices that together no cache holds."""
    blocks = BlockLinear(setup.launcher, setup.device.half)
    for gtype in setup.timed_types:
        w, _ = _weight(gtype, *setup.matrix, 1)
        n_copies = max(2, setup.total_bytes // w.words.nbytes)
        copies = [BlockWeight(memoryview(b""), gtype, w.shape, Adopted(w.words + 0, 0, 0)) for _ in range(n_copies)]
        mx.eval([c.words for c in copies])
        n_bytes = sum(c.words.nbytes for c in copies)
        for n in (1, 4, 16):
            spent = _seconds(partial(_all_products, blocks, mx.zeros((n, w.n_in)), copies))
            yield Check(f"bandwidth {gtype.name}, {n} vectors", None, _share(setup.device, n_bytes / spent))


def _all_products(blocks: BlockLinear, x: mx.array, matrices: list[BlockWeight]) -> list[mx.array]:
    return [blocks.linear(x, w, None) for w in matrices]


def _prefill(setup: Setup) -> Iterator[Check]:
    """A prompt through one matrix of each type."""
    blocks = BlockLinear(setup.launcher, setup.device.half)
    n_out, n_in = setup.matrix
    x = mx.random.normal((setup.prompt, n_in))
    for gtype in setup.timed_types:
        w, _ = _weight(gtype, n_out, n_in, 1)
        spent = _seconds(partial(blocks.linear, x, w, None))
        flops = 2 * setup.prompt * n_out * n_in / spent
        yield Check(f"prefill {gtype.name}", None, f"{flops / 1e12:.2f} TFLOP/s, {spent * 1e3:.2f} ms")


def _depths(setup: Setup) -> Iterator[Check]:
    """One layer's attention (32 heads over 8, of 128) at context depths: one token, and a prompt."""
    ops = GpuOps(setup.launcher, setup.device.half)
    attn = AttentionConfig(n_heads=32, n_kv_heads=8, d_k=128, d_v=128, scale=0.09)
    for kv_type in ("f16", "q8_0", "q4_0"):
        for depth in setup.depths:
            n_ctx = whole(depth + setup.prompt, PAGE_TOKENS)
            layer = KVLayer("full", 8, 128, 128, kv_type, kv_type, n_ctx // PAGE_TOKENS)
            kv = MLXKV(KVSpec(n_ctx, setup.prompt, (layer,)), ops.encode_kv)
            kv.length = depth
            one, prompt = (_seconds(partial(_attend, ops, kv, attn, n)) for n in (1, setup.prompt))
            share = _share(setup.device, depth * layer.token_bytes / one)
            detail = f"{one * 1e6:.0f} us, {share}; a prompt of {setup.prompt}: {prompt * 1e3:.2f} ms"
            yield Check(f"attention over {kv_type} at {depth}", None, detail)


def _attend(ops: GpuOps, kv: MLXKV, attn: AttentionConfig, n: int) -> list[mx.array]:
    q, k = mx.zeros((n, attn.n_heads, attn.d_k)), mx.zeros((n, attn.n_kv_heads, attn.d_k))
    return [ops.attention(q, k, k, kv, 0, attn), *kv.arrays()]


def _watchdog(setup: Setup) -> Iterator[Check]:
    """Command buffers as long as the longest prefill chunk; MLX raises where the system ends one."""
    a = mx.random.normal((setup.matrix[0], setup.matrix[0]))
    one = _seconds(lambda: a @ a)
    for seconds in setup.busy_s:
        y = a
        for _ in range(max(1, int(seconds / one))):
            y = (y @ a) * 1e-3
        start = time.perf_counter()
        mx.eval(y)
        yield Check("watchdog", True, f"{time.perf_counter() - start:.2f} s of work in one evaluation")
