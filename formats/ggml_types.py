"""The one table of ggml tensor types: how many values a block holds, and how many bytes it takes.

A tensor's rows are sequences of blocks. Every byte count in localinfer comes from here.
Ids and sizes: `enum ggml_type` in ggml.h and the `block_*` structs of ggml-common.h.
"""

from __future__ import annotations

from enum import IntEnum

from localinfer.errors import FormatError, UnsupportedModel

# Ids that ggml once used and took out of the format: the file must be quantized again.
REMOVED_TYPES = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


class GGMLType(IntEnum):
    """A tensor type: its value is the id in the file, its name what people call it (`Q4_K`)."""

    block_values: int  # values in a block; a row holds a whole number of blocks
    block_bytes: int  # bytes that one block takes

    def __new__(cls, type_id: int, block_values: int, block_bytes: int) -> GGMLType:
        member = int.__new__(cls, type_id)
        member._value_ = type_id
        member.block_values = block_values
        member.block_bytes = block_bytes
        return member

    F32 = 0, 1, 4
    F16 = 1, 1, 2
    Q4_0 = 2, 32, 18
    Q4_1 = 3, 32, 20
    Q5_0 = 6, 32, 22
    Q5_1 = 7, 32, 24
    Q8_0 = 8, 32, 34
    Q8_1 = 9, 32, 36
    Q2_K = 10, 256, 84
    Q3_K = 11, 256, 110
    Q4_K = 12, 256, 144
    Q5_K = 13, 256, 176
    Q6_K = 14, 256, 210
    Q8_K = 15, 256, 292
    IQ2_XXS = 16, 256, 66
    IQ2_XS = 17, 256, 74
    IQ3_XXS = 18, 256, 98
    IQ1_S = 19, 256, 50
    IQ4_NL = 20, 32, 18
    IQ3_S = 21, 256, 110
    IQ2_S = 22, 256, 82
    IQ4_XS = 23, 256, 136
    I8 = 24, 1, 1
    I16 = 25, 1, 2
    I32 = 26, 1, 4
    I64 = 27, 1, 8
    F64 = 28, 1, 8
    IQ1_M = 29, 256, 56
    BF16 = 30, 1, 2
    TQ1_0 = 34, 256, 54
    TQ2_0 = 35, 256, 66
    MXFP4 = 39, 32, 17
    NVFP4 = 40, 64, 36
    Q1_0 = 41, 128, 18
    Q2_0 = 42, 64, 18

    @classmethod
    def from_id(cls, type_id: int, where: str = "") -> GGMLType:
        """The type with this id. UnsupportedModel naming the id, and `where` it was found, otherwise."""
        known = _BY_ID.get(type_id)
        if known is not None:
            return known
        prefix = f"{where}: " if where else ""
        if type_id in REMOVED_TYPES:
            raise UnsupportedModel(
                f"{prefix}tensor type {type_id} ({REMOVED_TYPES[type_id]}) was removed from the format",
                "download a newer file of this model, or quantize it again",
            )
        raise UnsupportedModel(
            f"{prefix}unknown tensor type {type_id}; known are 0 (F32) to {max(cls)} ({max(cls).name})",
            "a newer localinfer may know it; another quantization of the same model will do",
        )

    @property
    def is_quantized(self) -> bool:
        """True where values share a block (and so a scale); False for plain numbers."""
        return self.block_values > 1

    @property
    def bits_per_value(self) -> float:
        """Bits per value, scales included: 4.5 for Q4_K."""
        return 8 * self.block_bytes / self.block_values

    def row_bytes(self, n_values: int) -> int:
        """Bytes of a row of `n_values`. FormatError where that is no whole number of blocks."""
        n_blocks, rest = divmod(n_values, self.block_values)
        if rest or n_values < 0:
            raise FormatError(
                f"{self.name}: a row must hold a multiple of {self.block_values} values, found {n_values}"
            )
        return n_blocks * self.block_bytes


_BY_ID = {int(t): t for t in GGMLType}
