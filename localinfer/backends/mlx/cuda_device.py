"""The NVIDIA card, looked at before anything is loaded: name, free memory, compute capability, driver."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from localinfer.errors import BackendError

OLDEST_CAPABILITY = (7, 5)  # of CUDA 13's compiler
OLDEST_DRIVER = 580  # of CUDA 13


@dataclass(frozen=True)
class CudaCard:
    name: str
    free_bytes: int
    capability: str  # "12.0": RTX PRO 6000 Blackwell


def check_cuda(nvml: ModuleType | None = None) -> CudaCard:
    """The first card. BackendError names what is too old, or missing, and what to install."""
    nvml = nvml or _nvml()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise BackendError(f"no NVIDIA driver answers: {error}", "install the driver, or use --backend cpu") from None
    try:
        return _check(nvml)
    finally:
        nvml.nvmlShutdown()


def _check(nvml: ModuleType) -> CudaCard:
    if nvml.nvmlDeviceGetCount() == 0:
        raise BackendError("expected an NVIDIA GPU, found none", "use --backend cpu")
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    name = _text(nvml.nvmlDeviceGetName(card))
    driver = _text(nvml.nvmlSystemGetDriverVersion())
    if int(driver.split(".")[0]) < OLDEST_DRIVER:
        raise BackendError(
            f"{name}: expected driver {OLDEST_DRIVER} or newer (CUDA 13), found {driver}", "update the NVIDIA driver"
        )
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(card)
    if (major, minor) < OLDEST_CAPABILITY:
        needed = ".".join(map(str, OLDEST_CAPABILITY))
        raise BackendError(
            f"{name}: expected compute capability {needed} or newer, found {major}.{minor}", "use --backend cpu"
        )
    return CudaCard(name, int(nvml.nvmlDeviceGetMemoryInfo(card).free), f"{major}.{minor}")


def _nvml() -> ModuleType:
    try:
        import pynvml
    except ImportError:
        raise BackendError(
            "the package nvidia-ml-py is not installed", "pip install 'localinfer[cuda]', or use --backend cpu"
        ) from None
    return pynvml


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
