#!/bin/sh
# Builds all kernels with the address and undefined-behaviour sanitizers and runs the cpu tests on that build.
# Usage: tests/cpu_kernels/sanitize.sh [pytest arguments]      PYTHON=python3 to choose the interpreter
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-"$root/.venv/bin/python"}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
cc=${CC:-gcc}
# The longest to compile first.
ls -S "$root"/cpu_kernels/*.c | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I {} sh -c '
    "$0" -std=c11 -D_GNU_SOURCE -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
        -fno-math-errno -ffp-contract=off -fPIC -pthread -Wno-psabi -c "$2" -o "$1/$(basename "$2" .c).o"' \
    "$cc" "$built" {}
"$cc" -shared -fsanitize=address,undefined -pthread -o "$built/kernels.so" "$built"/*.o -lm
cd "$root"
# Python itself leaks by design, and its allocator hides overruns from the sanitizer. What a sanitizer says before it ends
# the process goes to a file: pytest would keep it to itself.
status=0
LOCALINFER_KERNELS="$built/kernels.so" PYTHONMALLOC=malloc \
    LD_PRELOAD="$("$cc" -print-file-name=libasan.so) $("$cc" -print-file-name=libubsan.so)" \
    ASAN_OPTIONS="detect_leaks=0:log_path=$built/report" UBSAN_OPTIONS="print_stacktrace=1:log_path=$built/report" \
    "$python" -m pytest -p no:cacheprovider "${@:-tests/backends/cpu}" || status=$?
cat "$built"/report* >&2 2>/dev/null || true
exit $status
