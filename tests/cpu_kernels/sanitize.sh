#!/bin/sh
# Builds all kernels with the address and undefined-behaviour sanitizers and runs the cpu tests on that build.
# Usage: tests/cpu_kernels/sanitize.sh [pytest arguments]      PYTHON=python3 to choose the interpreter
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-"$root/.venv/bin/python"}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
cc=${CC:-gcc}
for source in "$root"/cpu_kernels/*.c; do
    "$cc" -std=c11 -D_GNU_SOURCE -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
        -fno-math-errno -ffp-contract=off -fPIC -pthread -Wno-psabi -c "$source" -o "$built/$(basename "$source" .c).o"
done
"$cc" -shared -fsanitize=address,undefined -pthread -o "$built/kernels.so" "$built"/*.o -lm
cd "$root"
# Python itself leaks by design, and its allocator hides overruns from the sanitizer.
LOCALINFER_KERNELS="$built/kernels.so" LD_PRELOAD="$("$cc" -print-file-name=libasan.so) $("$cc" -print-file-name=libubsan.so)" \
    ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
    "$python" -m pytest -p no:cacheprovider "${@:-tests/backends/cpu}"
