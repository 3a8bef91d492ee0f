"""The compiled kernels, found beside the package and opened with ctypes (which frees the interpreter lock)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_void_p
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from localinfer.backends.cpu import structs
from localinfer.errors import BackendError, UsageError

HOW_TO_BUILD = "install a C compiler (Debian: apt install gcc libc6-dev; macOS: xcode-select --install) and reinstall"

LEVELS = ("scalar", "avx2", "avx512", "neon", "neondot")  # instruction sets, as cpu.h names them

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "li_abi": (c_int, []),
    "li_cpu_name": (c_char_p, []),
    "li_cpu_select": (c_int, [c_char_p]),
    "li_type_supported": (c_int, [c_int]),
    "li_activation_kind": (c_int, [c_int]),
    "li_dequantize_row": (None, [c_int, c_void_p, c_int64, c_void_p]),
    "li_kv_page_bytes": (c_int64, [POINTER(structs.KVLayer)]),
    "li_kv_read": (None, [POINTER(structs.KVLayer), c_int64, c_int32, c_void_p, c_void_p]),
    "li_attention_scratch_bytes": (
        c_int64,
        [POINTER(structs.Attention), POINTER(structs.KVLayer), c_int32, c_int64, c_int32],
    ),
    "li_pool_create": (c_void_p, [c_int32]),
    "li_pool_destroy": (None, [c_void_p]),
    "li_pool_threads": (c_int32, [c_void_p]),
    "li_tape_create": (c_void_p, [POINTER(structs.Instruction), c_int32, c_int64, c_int32, c_int32]),
    "li_tape_destroy": (None, [c_void_p]),
    "li_tape_bytes": (c_int64, [c_void_p]),
    "li_tape_run": (c_int, [c_void_p, c_void_p, POINTER(structs.RunArgs)]),
    "li_pager_create": (c_void_p, [POINTER(structs.Unit), c_int32, c_int32]),
    "li_pager_destroy": (None, [c_void_p]),
    "li_pager_read_state": (None, [c_void_p, POINTER(structs.PagerState)]),
    "li_pager_forgive": (None, [c_void_p]),
    "li_experts_create": (
        c_void_p,
        [POINTER(structs.ExpertMatrix), c_int32, c_int32, POINTER(structs.Shelf), c_int32, c_double],
    ),
    "li_experts_destroy": (None, [c_void_p]),
    "li_experts_read_state": (None, [c_void_p, POINTER(structs.ExpertsState)]),
    "li_experts_forgive": (None, [c_void_p]),
    "li_storage_read": (c_int32, [POINTER(structs.Extent), c_void_p, POINTER(c_int64)]),
    "li_merge_create": (c_void_p, [c_char_p, c_int64, c_void_p, c_int64, c_char_p]),
    "li_merge_destroy": (None, [c_void_p]),
    "li_merge_words": (c_int64, [c_void_p, c_char_p, c_int64, c_void_p]),
    "li_measure_read_bandwidth": (c_double, [c_void_p, c_void_p, c_int64, c_double]),
    "li_measure_fma": (c_double, [c_void_p, c_double]),
    "li_trace": (None, [c_int]),
    "li_trace_read": (None, [POINTER(c_int64), POINTER(c_int64)]),
}


class Library:
    """Each kernel function as an attribute, typed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._dll = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._dll, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        found = self.li_abi()
        if found != structs.ABI:
            raise BackendError(
                f"{path}: CPU kernels of ABI {structs.ABI} expected, {found} found", "reinstall localinfer"
            )

    def __getattr__(self, name: str) -> Callable[..., Any]:  # for type checkers: functions are set above
        raise AttributeError(name)


def library_path() -> Path | None:
    """Where the built kernels lie; None where the install had no compiler. LOCALINFER_KERNELS names another build."""
    if other := os.environ.get("LOCALINFER_KERNELS"):
        return Path(other)
    package = find_spec("localinfer.cpu_kernels")
    for folder in (package.submodule_search_locations or []) if package else []:
        for suffix in EXTENSION_SUFFIXES:
            path = Path(folder) / f"_kernels{suffix}"
            if path.is_file():
                return path
    return None


@cache
def open_library() -> Library:
    """The kernels. BackendError says how to get them where they are missing or do not load."""
    path = library_path()
    if path is None:
        raise BackendError("the CPU kernels are not built", HOW_TO_BUILD)
    try:
        return Library(path)
    except (OSError, AttributeError) as e:
        raise BackendError(f"{path}: the CPU kernels do not load: {e}", HOW_TO_BUILD) from None


def check_level(lib: Library) -> None:
    """UsageError where LOCALINFER_CPU asks for an instruction set that this machine lacks: kernels use the best one."""
    asked, used = os.environ.get("LOCALINFER_CPU"), lib.li_cpu_name()
    if not asked or asked == used.decode():
        return
    usable = [level for level in LEVELS if lib.li_cpu_select(level.encode()) == 0]
    lib.li_cpu_select(used)
    expected = f"{' or '.join(usable)} expected, this machine runs no other kernels"
    raise UsageError(f"LOCALINFER_CPU={asked}: {expected}", "unset LOCALINFER_CPU: the best ones are used")
