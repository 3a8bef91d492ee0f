"""The weights of one layer, or of the whole model, by their GGUF names, and the plain steps taken with them."""

from __future__ import annotations

from collections.abc import Mapping

from localinfer.errors import FormatError
from localinfer.models.config import ModelConfig
from localinfer.models.ops import Array, Ops, Weight


class Block:
    """`block["attn_q.weight"]` is blk.N.attn_q.weight; FormatError where the file has none."""

    def __init__(self, weights: Mapping[str, Weight], index: int, prefix: str) -> None:
        self.index = index
        self._prefix = prefix
        self._weights = {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._stored_name(name) in self._weights

    def __getitem__(self, name: str) -> Weight:
        if name not in self:
            raise FormatError(f"expected a tensor {self._prefix}{name}, found none of that name in the file")
        return self._weights[self._used_name(name)]

    def get(self, name: str) -> Weight | None:
        """The same, or None where the file has none."""
        return self._weights.get(self._used_name(name))

    def unused(self) -> list[str]:
        """Full names of weights that nothing has asked for yet."""
        return [self._prefix + name for name in self._weights if name not in self._used]

    def _used_name(self, name: str) -> str:
        stored = self._stored_name(name)
        self._used.add(stored)
        return stored

    def _stored_name(self, name: str) -> str:
        """A few converters leave out `.weight` (falcon-h1's ffn_norm)."""
        bare = name.removesuffix(".weight")
        return bare if bare in self._weights else name

    def linear(self, ops: Ops, x: Array, name: str) -> Array:
        """x through `name`.weight, plus `name`.bias where there is one."""
        return ops.linear(x, self[f"{name}.weight"], self.get(f"{name}.bias"))

    def norm(self, ops: Ops, x: Array, name: str, model: ModelConfig) -> Array:
        """The model's kind of norm with `name`.weight."""
        w = self[f"{name}.weight"]
        if model.norm == "rms":
            return ops.rms_norm(x, w, model.norm_eps)
        return ops.layer_norm(x, w, self.get(f"{name}.bias"), model.norm_eps)

    def input_norm(self, ops: Ops, x: Array, name: str, post: str, model: ModelConfig) -> Array:
        """The norm before a sub-block. Only models with one after it (`post`) may lack it."""
        return x if f"{name}.weight" not in self and f"{post}.weight" in self else self.norm(ops, x, name, model)

    def norm_if_present(self, ops: Ops, x: Array, name: str, model: ModelConfig) -> Array:
        return self.norm(ops, x, name, model) if f"{name}.weight" in self else x
