"""Mutated GGUF headers: `python -m tests.formats.gguf_mutations 100000` opens that many and reports.

A file may open or be refused with an error of ours, in one line that names it. Anything else is a finding: another
exception, over a second, a value or tensor that cannot be read after the file opened.
"""

from __future__ import annotations

import random
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from localinfer.errors import FormatError, LocalinferError, UnsupportedModel
from localinfer.formats.gguf import GGUFFile
from tests.fakes import gguf_writer as w

INTERESTING = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    31,
    32,
    33,
    255,
    256,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def seeds() -> list[bytes]:
    """Small sound files that between them have every value type, several tensor types, versions and alignments."""
    values = {
        "general.architecture": "llama",
        "u8": w.Typed(w.UINT8, 200),
        "i8": w.Typed(w.INT8, -3),
        "u16": w.Typed(w.UINT16, 60000),
        "i16": w.Typed(w.INT16, -3),
        "u32": 7,
        "i32": -7,
        "f32": 1.5,
        "flag": True,
        "u64": w.Typed(w.UINT64, 2**63),
        "i64": w.Typed(w.INT64, -(2**62)),
        "f64": w.Typed(w.FLOAT64, 0.1),
        "tokens": ["a", "bc", b"\xff\xfe", ""],
        "scores": w.Typed(w.ARRAY, [0.5, -1.0, 2.0], w.FLOAT32),
        "flags": [True, False],
        "types": w.Typed(w.ARRAY, [1, 2, 3], w.INT32),
        "wide": w.Typed(w.ARRAY, [1, 2], w.UINT64),
    }
    tensors = [
        w.f32_tensor("output_norm.weight", (4,)),
        w.Tensor("blk.0.attn_q.weight", 2, (3, 64), bytes(3 * 36)),
        w.Tensor("blk.0.ffn_down.weight", 12, (2, 256), bytes(2 * 144)),
        w.Tensor("token_embd.weight", 8, (2, 2, 32), bytes(4 * 34)),
    ]
    split = {"split.no": w.Typed(w.UINT16, 0), "split.count": w.Typed(w.UINT16, 2)}
    return [
        w.gguf_bytes(values, tensors),
        w.gguf_bytes(values, tensors, version=2, alignment=64),
        w.gguf_bytes({"general.architecture": "gpt2"}, tensors[:1]),
        w.gguf_bytes({**values, **split}, tensors[:2]),
        w.gguf_bytes({}, []),
    ]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: bits, bytes, integers, cuts, insertions, copied pieces."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if not out:
            break
        at = rng.randrange(len(out))
        match rng.randrange(8):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at] = rng.randrange(256)
            case 2:
                out[at : at + 4] = struct.pack("<I", rng.choice(INTERESTING) & 0xFFFFFFFF)
            case 3:
                out[at : at + 8] = struct.pack("<Q", rng.choice(INTERESTING))
            case 4:
                del out[at:]
            case 5:
                del out[at : at + rng.randrange(1, 16)]
            case 6:
                out[at:at] = rng.randbytes(rng.randrange(1, 16))
            case 7:
                start = rng.randrange(len(out))
                out[at:at] = out[start : start + rng.randrange(1, 64)]
    return bytes(out)


def outcome(path: Path) -> str:
    """Open and read everything; 'opened' or the name of the error. AssertionError where it breaks a promise."""
    try:
        with GGUFFile.open(path) as f:
            for key in f.metadata:
                f.metadata[key]
            for info in f.tensors.values():
                assert len(f.raw(info)) == info.n_bytes
    except LocalinferError as error:
        assert isinstance(error, FormatError | UnsupportedModel), error
        assert path.name in error.message, error
        assert len((error.message + error.hint).splitlines()) == 1, error
        assert (error.message + error.hint).isprintable(), error
        return type(error).__name__
    return "opened"


def run(n: int, seed: int, path: Path) -> tuple[Counter[str], float]:
    """Mutate and open n times; how often each outcome, and the most CPU time that one took, in seconds."""
    rng = random.Random(seed)
    files = seeds()
    counts: Counter[str] = Counter()
    longest = 0.0
    for i in range(n):
        data = mutate(rng.choice(files), rng)
        path.write_bytes(data)
        start = time.process_time()
        try:
            counts[outcome(path)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, mutation {i}: {data!r}") from error
        longest = max(longest, time.process_time() - start)
    return counts, longest


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        counts, longest = run(n, seed, Path(folder) / "mutated-00001-of-00002.gguf")
        took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 2**20)
    print(f"{n} files in {took:.1f} s, longest {longest * 1e3:.1f} ms, peak {peak:.0f} MiB: {dict(counts)}")


if __name__ == "__main__":
    main()
