"""Makes this folder's files from the full oracle: `python make.py ORACLE_FOLDER`.

The full oracle is llama.cpp (llama-cpp-python 0.3.36) on weights dequantized to F32 with an F32 KV cache. Kept here
per case: the prompt, its token ids, the greedy continuation with the margin of each choice, and of the last prompt
position's logits the 1024 largest (ids, values) and the log of the sum of the others' exponentials.
"""

import hashlib
import shutil
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
KEEP = 1024

for source in sorted(Path(sys.argv[1]).glob("*.json")):
    shutil.copy(source, HERE)
    arrays = np.load(source.with_name(source.stem + "-logits.npz"))
    logits = np.stack([arrays[k] for k in arrays.files]) if len(arrays.files) > 1 else arrays[arrays.files[0]]
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :KEEP].astype(np.int32)
    rest = logits.astype(np.float64).copy()
    np.put_along_axis(rest, ids, -np.inf, axis=1)
    top = rest.max(axis=1, keepdims=True)
    np.savez_compressed(
        HERE / f"{source.stem}-top.npz",
        ids=ids,
        logits=np.take_along_axis(logits, ids, axis=1).astype(np.float32),
        rest=(top[:, 0] + np.log(np.exp(rest - top).sum(axis=1))).astype(np.float32),
    )
shutil.copy(Path(sys.argv[1]) / "apache-2.0.txt", HERE)
files = sorted(p for p in HERE.iterdir() if p.suffix in (".json", ".npz", ".txt"))
(HERE / "SHA256SUMS").write_text("".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files))
