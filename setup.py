"""The optional C kernels; everything else is in pyproject.toml.

They are plain C opened with ctypes, no Python extension module. Without a compiler the install still works, and the
cpu backend says that it computes with numpy. `python setup.py build_ext --inplace` rebuilds them in a checkout.
"""

from glob import glob

from setuptools import Extension, setup

kernels = Extension(
    "localinfer.cpu_kernels._kernels",
    sources=sorted(glob("cpu_kernels/*.c")),
    depends=sorted(glob("cpu_kernels/*.h") + glob("cpu_kernels/*.inc")),
    include_dirs=["cpu_kernels"],
    define_macros=[("_GNU_SOURCE", "1")],
    # No -march: one binary for every machine of the platform, instruction sets are chosen per function at run time.
    # No contraction to fused multiply-adds: bits must not depend on the compiler's choice.
    extra_compile_args=["-std=c11", "-O3", "-fno-math-errno", "-ffp-contract=off", "-fvisibility=default", "-pthread"],
    extra_link_args=["-pthread"],
    libraries=["m"],
    optional=True,
)

setup(ext_modules=[kernels])
