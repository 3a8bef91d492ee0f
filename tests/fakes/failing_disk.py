"""A disk that fails when told to: reads of model files by the C kernels give EIO for as long as a flag file exists.

A small library in front of the C library's `pread` (LD_PRELOAD), so that what is tested is the whole way from the
failed read to the user. Linux with a C compiler; `unavailable()` says why not elsewhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ssize_t (*reader)(int, void *, size_t, off_t);

static int fails(int fd) {
    char link[64], path[4096];
    const char *flag = getenv("FAILING_DISK_FLAG");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 5 || !flag || access(flag, F_OK)) return 0;
    path[n] = 0;
    return !strcmp(path + n - 5, ".gguf");
}

static ssize_t read_or_fail(const char *name, int fd, void *to, size_t n, off_t at) {
    if (fails(fd)) { errno = EIO; return -1; }
    return ((reader)dlsym(RTLD_NEXT, name))(fd, to, n, at);
}

ssize_t pread(int fd, void *to, size_t n, off_t at) { return read_or_fail("pread", fd, to, n, at); }
ssize_t pread64(int fd, void *to, size_t n, off_t at) { return read_or_fail("pread64", fd, to, n, at); }
"""


def unavailable() -> str:
    """Why it cannot be used here; empty where it can."""
    if sys.platform != "linux":
        return "LD_PRELOAD is Linux's"
    return "" if shutil.which("cc") else "no C compiler"


def build(folder: Path) -> dict[str, str]:
    """Environment variables for a process with that disk; it fails while folder/fails exists."""
    source, library = folder / "failing_disk.c", folder / "failing_disk.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "FAILING_DISK_FLAG": str(folder / "fails")}
