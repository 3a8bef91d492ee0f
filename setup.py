"""The optional C kernels; everything else is in pyproject.toml.

They are plain C opened with ctypes, no Python extension module. Without a compiler the install still works, and the
cpu backend says that it computes with numpy. `python setup.py build_ext --inplace` rebuilds them in a checkout.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class ParallelBuild(build_ext):
    """Compiles the sources side by side: one after the other they take twice as long."""

    def build_extension(self, ext: Extension) -> None:
        compile_all = self.compiler.compile

        def compile_each(sources: list[str], *args: object, **kwargs: object) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = list(
                    pool.map(lambda source: compile_all([source], *args, **with_options(source, kwargs)), sources)
                )
            return [name for part in objects for name in part]

        self.compiler.compile = compile_each
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_all


def with_options(source: str, options: dict[str, Any]) -> dict[str, Any]:
    """Plain C, for processors without any of our instruction sets: at -O2 it takes a quarter of the time to compile."""
    if not source.endswith("_scalar.c"):
        return options
    return {**options, "extra_postargs": [*(options.get("extra_postargs") or ()), "-O2"]}


# The longest to compile first.
SOURCES = sorted(glob("cpu_kernels/*.c"), key=lambda path: (-os.path.getsize(path), path))

kernels = Extension(
    "localinfer.cpu_kernels._kernels",
    sources=SOURCES,
    depends=sorted(glob("cpu_kernels/*.h") + glob("cpu_kernels/*.inc")),
    include_dirs=["cpu_kernels"],
    define_macros=[("_GNU_SOURCE", "1")],
    # No -march: one binary for every machine of the platform, instruction sets are chosen per function at run time.
    # No contraction to fused multiply-adds: bits must not depend on the compiler's choice.
    extra_compile_args=["-std=c11", "-O3", "-g0", "-fno-math-errno", "-ffp-contract=off", "-pthread", "-Wno-psabi"],
    extra_link_args=["-pthread"],
    libraries=["m"],
    optional=True,
)

setup(ext_modules=[kernels], cmdclass={"build_ext": ParallelBuild})
