"""What is chosen by device, from the strings that devices report."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import mlx.core as mx
import pytest

from localinfer import doctor
from localinfer.backends.mlx import backend
from localinfer.backends.mlx.cuda_device import check_cuda
from localinfer.backends.mlx.device import HALF, check_version, find_device, metal_device
from localinfer.backends.mlx.selftest import run
from localinfer.errors import BackendError

ON_CPU = not mx.metal.is_available() and not mx.cuda.is_available()


@pytest.mark.parametrize("architecture", ["applegpu_g13s", "applegpu_g14s", "applegpu_g17s", ""])
def test_metal_is_described_by_what_it_reports(architecture: str) -> None:
    info = {"architecture": architecture, "device_name": "Apple M2 Max", "max_recommended_working_set_size": 72 << 30}
    device = metal_device(info)
    assert (device.half, device.memory_bytes, device.name) == (mx.float16, 72 << 30, "Apple M2 Max")
    assert device.shares_memory and device.features == (architecture,)


@pytest.mark.skipif(not ON_CPU, reason="this machine has a GPU")
def test_without_gpu_the_slow_path_is_named() -> None:
    assert find_device().target == "cpu"
    info = backend.MLXBackend().device_info()
    assert info.name == "mlx-cpu" and "slow path" in info.notices[0]
    report = run()
    assert not report.passed and "kernels cannot run" in report.text() and len(report.text().splitlines()) == 3


class FakeNvml(SimpleNamespace):
    NVMLError = OSError

    def __init__(self, driver: str = "580.65.06", capability: tuple[int, int] = (12, 0), count: int = 1) -> None:
        super().__init__(
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetCount=lambda: count,
            nvmlDeviceGetHandleByIndex=lambda i: i,
            nvmlDeviceGetName=lambda card: b"NVIDIA RTX PRO 6000 Blackwell",
            nvmlSystemGetDriverVersion=lambda: driver,
            nvmlDeviceGetCudaComputeCapability=lambda card: capability,
            nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(free=95 << 30, total=96 << 30),
        )


def test_a_mac_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    info = {
        "architecture": "applegpu_g14s",
        "device_name": "Apple M2 Max",
        "max_recommended_working_set_size": 72 << 30,
    }
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: info)
    monkeypatch.setattr(mx, "set_wired_limit", lambda n: pytest.fail("the wired limit is left alone"))
    found = backend.MLXBackend()
    assert found.device.target == "metal" and found._launcher.target == "metal"
    assert found.device_info().notices == () and found.device_info().memory_bytes == 72 << 30


def test_mlx_has_what_is_asked_of_it() -> None:
    """On a build without a GPU too: names that would be missing only on a first user's machine."""
    assert callable(mx.metal.is_available) and callable(mx.cuda.is_available)
    for name in (
        "device_info",
        "set_memory_limit",
        "set_cache_limit",
        "get_active_memory",
        "clear_cache",
        "synchronize",
    ):
        assert callable(getattr(mx, name))


def test_a_card_is_found_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    found = backend.MLXBackend()
    assert found.device.target == "cuda" and found._launcher.target == "cuda"
    assert (found.device.half, found.device.memory_bytes) == (HALF, 95 << 30) and not found.device.shares_memory
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(BackendError, match="nvidia-ml-py is not installed") as caught:
        backend.MLXBackend()
    assert "localinfer[cuda]" in caught.value.hint


@pytest.mark.parametrize("old", ["0.32.3", "0.31.9", "0.9"])
def test_an_mlx_that_writes_into_adopted_pages_is_refused(old: str) -> None:
    with pytest.raises(BackendError, match=r"expected mlx 0\.32\.4 or newer") as caught:
        check_version(old)
    assert "pip install" in caught.value.hint
    check_version("0.32.4")
    check_version("0.33.0.dev20261101")
    check_version("1.0")


def test_card_is_described() -> None:
    card = check_cuda(FakeNvml())
    assert (card.capability, card.free_bytes, card.name) == ("12.0", 95 << 30, "NVIDIA RTX PRO 6000 Blackwell")


@pytest.mark.parametrize(
    ("nvml", "message"),
    [
        (FakeNvml(driver="535.1"), "expected driver 580 or newer"),
        (FakeNvml(capability=(7, 0)), "expected compute capability 7.5 or newer, found 7.0"),
        (FakeNvml(count=0), "found none"),
    ],
)
def test_what_is_too_old_or_missing_is_named(nvml: FakeNvml, message: str) -> None:
    with pytest.raises(BackendError, match=message) as caught:
        check_cuda(nvml)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("nvml", "text"),
    [
        (FakeNvml(), "NVIDIA RTX PRO 6000 Blackwell, 96.00 GiB, compute capability 12.0, driver 580.65.06"),
        (FakeNvml(driver="535.1"), "expected driver 580 or newer"),
        (FakeNvml(capability=(7, 0)), "expected compute capability 7.5 or newer, found 7.0"),
    ],
)
def test_doctor_says_what_a_card_lacks_before_anything_is_loaded(
    nvml: FakeNvml, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(doctor, "find_spec", lambda name: True)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    (found,) = doctor._nvidia()
    assert text in found.text and found.level == "WARN" and found.hint  # no mlx for CUDA is installed here


def test_driver_that_does_not_answer() -> None:
    def fail() -> None:
        raise OSError("Driver Not Loaded")

    nvml = FakeNvml()
    nvml.nvmlInit = fail
    with pytest.raises(BackendError, match="no NVIDIA driver answers: Driver Not Loaded"):
        check_cuda(nvml)


def test_device_errors_become_one_line() -> None:
    with (
        pytest.raises(BackendError, match=r"mlx: a forward pass failed: .* Out Of Memory") as caught,
        backend.device_errors("a forward pass"),
    ):
        raise RuntimeError("[METAL] Command buffer execution failed:\n Insufficient Memory Out Of Memory")
    assert "--kv q8_0" in caught.value.hint
