"""docs/models.md, made from the code: `python -m tests.docs.models_page` writes it."""

from __future__ import annotations

import re
from pathlib import Path

from localinfer.formats.dequant import can_dequantize
from localinfer.formats.ggml_types import GGMLType
from localinfer.models.checkpoint_config import MODEL_TYPES
from localinfer.models.families import ARCHITECTURES
from localinfer.models.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.models.tiny import TOLERANCE, sparse_models
from tests.models.tiny_report import results

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
LINEAR_H = Path(__file__).parents[2] / "cpu_kernels" / "linear.h"
FLOAT_ACTIVATIONS = {"F32", "F16", "BF16", "NVFP4"}  # named in cpu_kernels/linear.h


def page() -> str:
    return "\n".join(
        [
            "# What runs",
            "",
            "Made from the code by `python -m tests.docs.models_page`; a test compares it.",
            "",
            "Every architecture below, and every block type, is checked against llama.cpp's logits on tiny models",
            "with random weights: prefilled whole, in chunks of 7 and token by token, windows crossed, and after",
            "coming back from other tokens. A file passes where each logit is within 1e-3 (float32 arithmetic), or the",
            "mean KL divergence below 1e-5 (quantized files on the cpu backend, which rounds activations to 16 bits;",
            "llama.cpp, which rounds to 8, has 1e-3 to 4e-3). A file with a tensor that the decoder would not read is",
            "refused by name: it is a variant that would answer nonsense.",
            "",
            *_headline(),
            "",
            f"## Architectures ({len(ARCHITECTURES)})",
            "",
            "| `general.architecture` | family | file |",
            "|---|---|---|",
            *(_architecture_row(name) for name in sorted(ARCHITECTURES)),
            "",
            "Adding one that is like llama is a few lines: `arcee`, the last one added, needs",
            "",
            "```diff",
            "+class Arcee(Llama):                  models/families/llama.py",
            '+    """AFM: a feed-forward without a gate."""',
            "+",
            '+    activation = "relu2"',
            '+    "arcee": Arcee(),                 models/families/__init__.py',
            "```",
            "",
            "its import, and one line in `tests/golden/tiny/make.py`, which asks llama.cpp for the logits of a model",
            "with random weights. What the decoder does follows from the config and the tensors that a file has.",
            "",
            "## Block types",
            "",
            "cpu backend: `int16` multiplies blocks by activations in 16-bit integers, `float` by float32 ones.",
            "",
            "| type | bits per weight | cpu backend | numpy reference |",
            "|---|---|---|---|",
            *(_type_row(kind) for kind in GGMLType if can_dequantize(kind) and not kind.name.startswith("Q8_K")),
            "",
            f"## Tokenizers: SPM, Unigram, and byte-level BPE with {len(PRE_TOKENIZERS)} pre-tokenizers",
            "",
            "An unknown `tokenizer.ggml.pre` is refused by name (exit 5).",
            "",
            ", ".join(f"`{name}`" for name in sorted(PRE_TOKENIZERS)),
            "",
            f"## Folders in mlx-lm's format: {len(MODEL_TYPES)} model types",
            "",
            "A folder with `config.json`, `model*.safetensors` and `tokenizer.json` runs through mlx-lm on the mlx",
            "backend (`pip install 'localinfer[mlx]'`), in plain floats or in MLX's own quantizations. For each type",
            "below a test compares the logits with mlx-lm's own, the planned weights with what is held, and the",
            "planned KV with what is allocated (where layers keep a window: at most). Other types are refused (exit",
            "5), `fit` counts their weights.",
            "",
            ", ".join(f"`{name}`" for name in MODEL_TYPES),
            "",
            "## The tiny models, one by one",
            "",
            "The largest difference of a logit from llama.cpp's, over all ways through the model (quantized files on",
            "cpu: the mean KL divergence). `window`: tokens that a layer sees, where 96 cross it. `back`: tokens",
            "still there after 64 and a refused draft of 8, and after 72 and a dropped turn of 24; what is missing was",
            "computed again.",
            "",
            "| file | cpu | mlx | window | back: cpu | back: mlx |",
            "|---|---|---|---|---|---|",
            *(_file_row(name) for name in results()["cpu"]),
            "",
        ]
    )


def _headline() -> list[str]:
    """What `tests.models.tiny_report` found."""
    passed = [
        f"**{sum(found['passed'] for found in files.values())} of {len(files)} files pass on {backend}**"
        for backend, files in results().items()
    ]
    return [
        f"{', '.join(passed)}: 58 of architectures and flavours, 30 of all block types.",
        f"{len(sparse_models())} more architectures have a model of `tests/golden/tiny/make.py`: in every test run.",
        "To do it again: `LOCALINFER_SHARED=FOLDER python -m tests.models.tiny_report cpu` (or `mlx`: here mlx-cpu).",
    ]


def _architecture_row(name: str) -> str:
    family = type(ARCHITECTURES[name])
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", " ", family.__name__)
    return f"| `{name}` | {words if words != 'Architecture' else 'plain'} | `models/families/{_module(family)}.py` |"


def _module(family: type) -> str:
    return family.__module__.rsplit(".", 1)[1]


def _file_row(name: str) -> str:
    cpu, mlx = results()["cpu"][name], results()["mlx"][name]
    cpu_value = f"KL {cpu['kl']:.0e}" if cpu["error"] >= TOLERANCE else f"{cpu['error']:.0e}"
    window = ", ".join(map(str, cpu["windows"]))
    backs = (f"{found['kept_of_draft']}, {found['kept_of_turn']}" for found in (cpu, mlx))
    return f"| {name} | {cpu_value} | {mlx['error']:.0e} | {window} | {' | '.join(backs)} |"


def _type_row(kind: GGMLType) -> str:
    bits = f"{kind.bits_per_value:.4g}"
    return f"| {kind.name} | {bits} | {'float' if kind.name in FLOAT_ACTIVATIONS else 'int16'} | yes |"


if __name__ == "__main__":
    PAGE.write_text(page())
