"""A model in mlx-lm's format: a folder with config.json, *.safetensors and tokenizer.json. Reads headers only.

Quantized matrices are stored in parts (packed words, scales, biases); here they are one tensor with one type. Tensor
names become those of GGUF as far as the planner groups by them (`blk.3.attn_q_proj.weight`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from localinfer.errors import FormatError, UnsupportedModel, UsageError
from localinfer.formats.ggml_types import GGMLType
from localinfer.formats.gguf_header import TensorInfo
from localinfer.formats.safetensors import StoredTensor, read_safetensors

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
MAX_JSON_BYTES = 64 * 2**20
MODES = ("affine", "mxfp4", "mxfp8", "nvfp4")
OTHER_PARTS = ("vision_tower.", "multi_modal_projector.", "audio_tower.", "visual.")  # not loaded by mlx-lm
Stored = tuple[int, StoredTensor]  # which file, and what

_FLOATS = {"F32": GGMLType.F32, "F16": GGMLType.F16, "BF16": GGMLType.BF16, "F64": GGMLType.F64}
_NAMES = {"embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight", "norm.weight": "output_norm"}


@dataclass(frozen=True)
class PackedType:
    """MLX's quantization: `bits` a value, a scale (and a bias) for each group. Looks like a GGMLType."""

    name: str
    block_values: int
    block_bytes: int

    @property
    def is_quantized(self) -> bool:
        return self.block_values > 1


def is_checkpoint(path: Path) -> bool:
    """A folder with a config.json."""
    return path.is_dir() and (path / CONFIG).is_file()


class Checkpoint:
    """`Checkpoint.open(folder)`. What it shares with GGUFFile has the same names; `config` is the language model's."""

    def __init__(self, path: Path, config: dict[str, Any], paths: tuple[Path, ...], stored: list[Stored]) -> None:
        self.path = path
        self.paths = paths
        self.top_config = config
        text = config.get("text_config")
        self.config: dict[str, Any] = text if isinstance(text, dict) else config
        self.file_bytes = sum(p.stat().st_size for p in paths)
        used = [x for x in stored if not x[1].name.removeprefix("model.").startswith(OTHER_PARTS)]
        self.text_only = len(used) < len(stored)  # the folder holds vision or audio parts too
        self.tensors: Mapping[str, TensorInfo] = {t.name: t for t in _joined(path, self.quantization, used)}
        self.tensor_bytes = sum(t.n_bytes for t in self.tensors.values())
        self.metadata = FolderMetadata(self)

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """UsageError for a folder without a model, FormatError for a broken one, UnsupportedModel for a quantization
        that is not MLX's."""
        config = read_json(folder / CONFIG)
        paths = _weight_files(folder)
        return cls(folder, config, paths, [(part, t) for part, p in enumerate(paths) for t in read_safetensors(p)])

    @property
    def model_type(self) -> str:
        return str(self.top_config.get("model_type", ""))

    @property
    def quantization(self) -> dict[str, Any] | None:
        """group_size, bits and mode; None for plain floats."""
        return mlx_quantization(str(self.path), self.top_config)

    @property
    def float_type(self) -> GGMLType:
        """Of the norms, which is what activations, keys and values are kept in."""
        floats = [t.type for t in self.tensors.values() if isinstance(t.type, GGMLType)]
        return max(floats, key=floats.count, default=GGMLType.BF16)

    def check_unchanged(self) -> None:
        """Nothing to check: the weights were read when the model was loaded."""

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FolderMetadata(dict[str, Any]):
    """What the engine asks a GGUF's metadata for, under the same keys; all of config.json under `config.`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        arch = checkpoint.model_type
        found: dict[str, Any] = {"general.architecture": arch, "general.name": checkpoint.path.name}
        trained = checkpoint.config.get("max_position_embeddings")
        if isinstance(trained, int):
            found[f"{arch}.context_length"] = trained
        if template := _chat_template(checkpoint.path):
            found["tokenizer.chat_template"] = template
        super().__init__(found | {f"config.{key}": value for key, value in checkpoint.top_config.items()})

    def get_str(self, key: str, default: str = "") -> str:
        return str(self.get(key, default))

    def get_int(self, key: str, default: int = 0) -> int:
        return int(self.get(key, default))


def mlx_quantization(place: str, config: dict[str, Any]) -> dict[str, Any] | None:
    """What config.json says of the weights: group_size, bits and mode, None for plain floats. UnsupportedModel for
    what is not MLX's own."""
    found, text = config.get("quantization"), config.get("text_config")
    both = {**(text if isinstance(text, dict) else {}), **config}
    if found is None and "quantization_config" in both:
        other = both["quantization_config"]
        method = other.get("quant_method", "?") if isinstance(other, dict) else other
        raise UnsupportedModel(
            f"{place}: quantized by {method!r}, which is not MLX's own format",
            "use a conversion in mlx-lm's format (mlx_lm.convert -q)",
        )
    if found is None:
        return None
    if not isinstance(found, dict) or found.get("mode", "affine") not in MODES:
        shown = found.get("mode") if isinstance(found, dict) else found
        raise UnsupportedModel(f"{place}: quantization {shown!r} is not known (known: {', '.join(MODES)})")
    return found


def gguf_name(name: str) -> str:
    """The name under which the planner sums a tensor up: model.layers.0.self_attn.q_proj.weight -> blk.0.attn_..."""
    name = re.sub(r"^(language_model\.|model\.|transformer\.)+", "", name)
    layer = re.match(r"(?:layers|h)\.(\d+)\.(.+)", name)
    if not layer:
        return _NAMES.get(name, name)
    rest = layer[2]
    if rest.startswith(("self_attn.", "attn.", "attention.")):
        rest = "attn_" + rest.partition(".")[2]
    elif "experts." in rest or "switch_mlp." in rest:
        part, _, kind = rest.rpartition(".")
        rest = "ffn_" + part.replace(".", "_") + f"_exps.{kind}"
    elif rest.startswith(("mlp.", "feed_forward.", "block_sparse_moe.")) and "norm" not in rest:
        rest = "ffn_" + rest.partition(".")[2]
    return f"blk.{layer[1]}.{rest}"


def read_json(path: Path) -> dict[str, Any]:
    """UsageError where it is not there, FormatError where it is no JSON table."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise FormatError(f"{path}: larger than {MAX_JSON_BYTES} bytes")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", "a model folder has it") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: expected JSON: {str(error)[:100]}", "download it again") from None
    if not isinstance(content, dict):
        raise FormatError(f"{path}: expected a JSON table, found {type(content).__name__}")
    return content


def _weight_files(folder: Path) -> tuple[Path, ...]:
    """What mlx-lm loads, model*.safetensors; all that the index names must be there."""
    paths = tuple(sorted(folder.glob("model*.safetensors")))
    if (folder / INDEX).is_file():
        named = read_json(folder / INDEX).get("weight_map")
        missing = sorted(set(map(str, named.values())) - {p.name for p in paths}) if isinstance(named, dict) else []
        if missing:
            raise FormatError(
                f"{folder}: {missing[0]} is missing, which {INDEX} names ({len(missing)} missing in all)",
                "download the model again",
            )
    if not paths:
        raise UsageError(f"{folder}: expected model*.safetensors, found none", "give a .gguf or a folder with weights")
    return paths


def _joined(folder: Path, quantization: dict[str, Any] | None, stored: Iterable[Stored]) -> Iterable[TensorInfo]:
    """Packed words with their scales and biases as one tensor."""
    by_name = {t.name: t for _, t in stored}
    for part, t in stored:
        module, _, kind = t.name.rpartition(".")
        scales = by_name.get(f"{module}.scales")
        if scales is None:
            yield TensorInfo(t.name, _FLOATS.get(t.dtype, _plain(t)), t.shape, part, t.offset, t.n_bytes)
        elif kind == "weight":
            biases = by_name.get(f"{module}.biases")
            type_, n_in = _packed(folder, quantization, module, t, scales)
            n_bytes = t.n_bytes + scales.n_bytes + (biases.n_bytes if biases else 0)
            yield TensorInfo(t.name, type_, (*t.shape[:-1], n_in), part, t.offset, n_bytes)
        elif kind not in ("scales", "biases"):
            yield TensorInfo(t.name, _FLOATS.get(t.dtype, _plain(t)), t.shape, part, t.offset, t.n_bytes)


def _plain(t: StoredTensor) -> Any:
    return PackedType(t.dtype, 1, t.n_bytes // max(1, _count(t)))


def _count(t: StoredTensor) -> int:
    n = 1
    for size in t.shape:
        n *= size
    return n


def _packed(
    folder: Path, quantization: dict[str, Any] | None, module: str, words: StoredTensor, scales: StoredTensor
) -> tuple[Any, int]:
    """Type and row length of a matrix. Per-module settings stand beside the general ones under the module's name."""
    if quantization is None:
        raise FormatError(f"{folder}: {module} has scales, but {CONFIG} names no quantization", "download it again")
    own = quantization.get(module)
    settings = {**quantization, **own} if isinstance(own, dict) else quantization
    group, bits, mode = settings.get("group_size"), settings.get("bits"), settings.get("mode", "affine")
    if type(group) is not int or type(bits) is not int or not 1 <= bits <= 8 or group not in (16, 32, 64, 128):
        raise UnsupportedModel(f"{folder}: quantization of {module}: {bits} bits in groups of {group} is not known")
    n_in = scales.shape[-1] * group if scales.shape else 0
    if words.dtype != "U32" or n_in * bits != words.shape[-1] * 32 or words.shape[:-1] != scales.shape[:-1]:
        raise FormatError(
            f"{folder}: {module}: {bits}-bit words {list(words.shape)} and scales {list(scales.shape)} do not fit "
            f"together in groups of {group}",
            "the folder is damaged, or from a converter that does something else",
        )
    scale_bytes = 1 if mode != "affine" else 2 * scales.n_bytes // max(1, _count(scales))
    name = f"{bits}-bit" if mode == "affine" else mode
    return PackedType(name, group, group * bits // 8 + scale_bytes), n_in


def _chat_template(folder: Path) -> str:
    """Of chat_template.jinja, or of tokenizer_config.json, where several may be named."""
    try:
        return (folder / "chat_template.jinja").read_text("utf-8")
    except OSError:
        pass
    config = folder / "tokenizer_config.json"
    found = read_json(config).get("chat_template") if config.is_file() else None
    if isinstance(found, list):
        named = {x.get("name"): x.get("template") for x in found if isinstance(x, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else ""
