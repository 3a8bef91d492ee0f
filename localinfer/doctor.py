"""What this machine and this installation can do, as a list of findings: each PASS, WARN or FAIL, with what to do.

A check that breaks is itself a finding: doctor answers everywhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from localinfer import __version__, paths
from localinfer.errors import BackendError, LocalinferError
from localinfer.other_programs import program_name
from localinfer.units import GIB, format_bytes, format_bytes_both

if TYPE_CHECKING:
    from localinfer.store import LocalModel

Level = Literal["PASS", "WARN", "FAIL"]
LOW_DISK_BYTES = 5 * GIB


@dataclass(frozen=True)
class Finding:
    level: Level
    topic: str
    text: str
    hint: str = ""
    data: dict[str, Any] = field(default_factory=dict)  # plain values for --json


def examine(measure: bool = True) -> Iterator[Finding]:
    """All findings, in order. `measure`: also bandwidth and FLOP/s, about a second."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        _installation, _memory, _cpu, _mlx, _nvidia, _terminal, _storage, _models, _ledger,
    ]  # fmt: skip
    if measure:
        checks.insert(3, _ceilings)
    for check in checks:
        try:
            yield from check()
        except LocalinferError as error:
            yield Finding("WARN", check.__name__.strip("_"), error.message, error.hint)
        except Exception as error:  # an odd machine must not keep the other checks from answering
            yield Finding("WARN", check.__name__.strip("_"), f"could not be checked: {type(error).__name__}: {error}")


def _installation() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    text = f"localinfer {__version__}, Python {python} on {sysconfig.get_platform()}"
    yield Finding("PASS", "installation", text, data={"version": __version__, "python": python})
    wanted = ("numpy", "jinja2", "regex", "textual", "huggingface-hub")
    found = {name: _version(name) for name in wanted}
    missing = [name for name, v in found.items() if v is None]
    if missing:
        yield Finding("FAIL", "packages", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}", found)
    else:
        yield Finding("PASS", "packages", ", ".join(f"{n} {v}" for n, v in found.items()), data=found)


def _memory() -> Iterator[Finding]:
    from localinfer.device import machine_name, this_budget

    budget = this_budget()
    free = budget.free_bytes
    data = {
        "machine": machine_name(), "memory_bytes": budget.memory_bytes, "budget_bytes": budget.budget_bytes,
        "free_bytes": free, "source": budget.source,
    }  # fmt: skip
    yield Finding("PASS", "machine", machine_name(), data=data)
    text = f"{format_bytes_both(budget.budget_bytes)} may be used ({budget.source})"
    if free is not None:
        text += f", {format_bytes_both(free)} are free now"
    yield Finding("PASS", "memory", text, data=data)


def _cpu() -> Iterator[Finding]:
    from localinfer.backends.cpu.backend import open_cpu

    backend = open_cpu()
    try:
        info = backend.device_info()
    finally:
        backend.close()
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    data = {"name": info.name, "threads": info.threads, "kernels": list(info.features), "compiler": compiler}
    if "numpy" in info.features:
        yield Finding("WARN", "cpu", "; ".join(info.notices), "", data)
        return
    built_with = f"compiler {compiler}" if compiler else "no C compiler here, and none is needed"
    text = f"{info.name}: {', '.join(info.features)} kernels, {info.threads} threads; {built_with}"
    yield Finding("PASS", "cpu", text, data=data)


def _ceilings() -> Iterator[Finding]:
    from localinfer.backends.cpu.backend import CpuBackend, open_cpu
    from localinfer.backends.cpu.measure import Ceilings

    backend = open_cpu()
    try:
        if not isinstance(backend, CpuBackend):
            return
        ceilings = Ceilings(backend)
        ceilings.measure(0.5)
    finally:
        backend.close()
    data = {"bandwidth_bytes_s": ceilings.bandwidth_bytes_s, "flops": ceilings.flops}
    text = f"reads {ceilings.bandwidth_bytes_s / 1e9:.1f} GB/s, computes {ceilings.flops / 1e9:.0f} GFLOP/s in f32"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    busy = load > (os.cpu_count() or 1)
    if not busy:
        _remember_bandwidth(ceilings.bandwidth_bytes_s)
    yield Finding(
        "WARN" if busy else "PASS", "ceilings", text,
        f"other programs are running (load {load:.1f}): it can do more" if busy else "", data,
    )  # fmt: skip


def _remember_bandwidth(bytes_s: float) -> None:
    """`fit` has a speed bound from now on; what `bench` measured beside decoding stays."""
    from localinfer.device import machine_name
    from localinfer.planner.efficiency import load_speed, record_speed

    if load_speed(machine_name(), "cpu").bandwidth_bytes_s is None:
        with suppress(OSError):
            record_speed(machine_name(), "cpu", when=date.today().isoformat(), bandwidth_bytes_s=bytes_s)


def _mlx() -> Iterator[Finding]:
    found = _version("mlx")
    apple = sys.platform == "darwin"
    if find_spec("mlx") is None or found is None:
        level: Level = "WARN" if apple else "PASS"
        yield Finding(level, "mlx", "not installed", "pip install mlx" if apple else "")
        return
    from localinfer.engine.backend_choice import mlx_has_gpu

    gpu = mlx_has_gpu()
    data = {"version": found, "gpu": gpu}
    if gpu:
        yield Finding("PASS", "mlx", f"mlx {found} with a GPU: chosen by --backend auto", data=data)
    else:
        text = f"mlx {found} without a GPU: a slow path for checking; --backend auto chooses cpu"
        yield Finding("WARN" if apple else "PASS", "mlx", text, data=data)


def _nvidia() -> Iterator[Finding]:
    if shutil.which("nvidia-smi") is None:
        return
    if find_spec("pynvml") is None:
        yield Finding("WARN", "nvidia", "a card may be there, nothing to ask it with", "pip install 'localinfer[cuda]'")
        return
    import pynvml

    from localinfer.backends.mlx.cuda_device import check_cuda

    try:
        check_cuda(pynvml)
    except BackendError as error:
        yield Finding("WARN", "nvidia", str(error), error.hint)
        return
    pynvml.nvmlInit()
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        for i in range(pynvml.nvmlDeviceGetCount()):
            yield _card(pynvml, pynvml.nvmlDeviceGetHandleByIndex(i), driver)
    finally:
        pynvml.nvmlShutdown()


def _card(pynvml: Any, handle: Any, driver: str) -> Finding:
    name = _text(pynvml.nvmlDeviceGetName(handle))
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    capability = ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle)))
    data = {"name": name, "driver": driver, "capability": capability, "memory_bytes": memory.total}
    text = f"{name}, {format_bytes(memory.total)}, compute capability {capability}, driver {driver}"
    cuda = any(_version(wheel) for wheel in ("mlx-cuda-13", "mlx-cuda-12", "mlx-cuda"))
    return Finding("PASS" if cuda else "WARN", "nvidia", text, "" if cuda else "pip install 'localinfer[cuda]'", data)


def _terminal() -> Iterator[Finding]:
    term, size = os.environ.get("TERM", ""), shutil.get_terminal_size()
    data = {
        "term": term, "columns": size.columns, "rows": size.lines, "tty": sys.stdout.isatty(),
        "encoding": sys.stdout.encoding, "no_color": "NO_COLOR" in os.environ,
    }  # fmt: skip
    if not sys.stdout.isatty():
        yield Finding("PASS", "terminal", "output is no terminal: run, fit, bench work; chat needs one", data=data)
    elif term in ("", "dumb"):
        yield Finding(
            "WARN", "terminal", f"TERM={term or '(empty)'}: the app cannot draw", "set TERM=xterm-256color", data
        )
    elif (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        yield Finding("WARN", "terminal", f"encoding {sys.stdout.encoding}", "set LANG to a UTF-8 locale", data)
    else:
        colors = os.environ.get("COLORTERM") or term
        yield Finding("PASS", "terminal", f"{size.columns}x{size.lines}, {colors}", data=data)


def _storage() -> Iterator[Finding]:
    folder = paths.models_dir()
    there = next(p for p in (folder, *folder.parents) if p.is_dir())
    free = shutil.disk_usage(there).free
    low = free < LOW_DISK_BYTES
    text = f"{format_bytes(free)} free for models in {folder}"
    if not os.access(there, os.W_OK):
        yield Finding("FAIL", "disk", f"{there}: not writable", f"set {paths.HOME_VARIABLE} to another folder")
        return
    hint = "most models need more: localinfer models, localinfer rm NAME" if low else ""
    yield Finding("WARN" if low else "PASS", "disk", text, hint, {"free_bytes": free, "folder": str(folder)})


def _models() -> Iterator[Finding]:
    from localinfer.store import find_models, how_to_delete_it, unreadable_folders

    models = find_models()
    for model in models:
        if model.trouble:
            repair = f"{how_to_delete_it(model)}, then pull again"
            yield Finding("WARN", "model", f"{model.name}: {model.trouble}", repair)
    for source, folder in unreadable_folders():
        yield Finding("WARN", "models", f"{program_name(source)}'s cannot be read: {folder}", "ask for the right to")
    if not models:
        yield Finding("PASS", "models", "none yet", "localinfer pull demo")
        return
    sources = {s: sum(m.source == s for m in models) for s in dict.fromkeys(m.source for m in models)}
    listed = ", ".join(f"{n} from {program_name(s)}" for s, n in sources.items())
    text = f"{listed}; {format_bytes(sum(m.n_bytes for m in models))}"
    yield Finding("PASS", "models", text, data=sources)
    yield from _disks(models)


def _disks(models: list[LocalModel]) -> Iterator[Finding]:
    """How fast weights can be read again, from each disk that holds models: remembered for `fit`."""
    from localinfer.storage import disk_of, measure_storage

    largest = {disk_of(m.path): m for m in sorted(models, key=lambda m: m.n_bytes) if not m.trouble}
    for disk, model in largest.items():
        speed = measure_storage(model.path)
        if speed:
            text = f"{disk} reads {speed.bytes_s / 1e9:.2f} GB/s: what models larger than memory run at"
            yield Finding("PASS", "disk speed", text, data={"disk": disk, "bytes_s": speed.bytes_s, "when": speed.when})


def _ledger() -> Iterator[Finding]:
    """How well plans did on this machine: predicted against measured peaks, newest last."""
    from localinfer.device import machine_name
    from localinfer.planner.ledger import read

    entries = [e for e in read() if e.machine == machine_name() and e.error_bytes is not None][-5:]
    for e in entries:
        error = e.error_bytes or 0
        text = (
            f"{e.model} {e.quant}, context {e.ctx}, {e.kv_types} KV: predicted {format_bytes(e.predicted_peak)}, "
            f"measured {format_bytes(e.measured_peak or 0)} ({'+' if error >= 0 else '-'}{format_bytes(abs(error))})"
        )
        yield Finding("PASS" if e.within_tolerance else "WARN", "plan", text, data={"error_bytes": error})


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
