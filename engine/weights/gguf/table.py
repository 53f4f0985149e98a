"""The tensor types of GGUF files: which can be read, and their numbers.

Source: the ggml project's `docs/gguf.md`.
"""

from __future__ import annotations

from engine.backends.gguf_blocks.ik_quants import IK_BLOCKS
from engine.backends.gguf_blocks.interleaved import INTERLEAVED
from engine.backends.gguf_blocks.quants import TWO_BIT_BLOCKS
from engine.backends.gguf_blocks.table import GGUF_BLOCKS
from engine.weights.format import Bytes, Floats, Format
from engine.weights.plain import FLOAT_FORMATS, FOLDER_FORMATS, NUMBER_FORMATS

GGUF_FORMATS: tuple[Format, ...] = (
    *FLOAT_FORMATS,
    *(Format(block.name, block.values, block.nbytes, block.decode) for block in GGUF_BLOCKS),
)
"""The types of weights in GGUF files."""

TWO_BIT_FORMATS = tuple(
    Format(block.name, block.values, block.nbytes, block.decode) for block in TWO_BIT_BLOCKS
)

IK_FORMATS = tuple(
    Format(block.name, block.values, block.nbytes - block.row_bytes, block.decode, row_bytes=block.row_bytes)
    for block in IK_BLOCKS
)
"""The types that ik_llama.cpp adds."""


def _together(blocks: Bytes) -> Floats:
    raise AssertionError("decoded with the rest of the tensor, by `ik_types` or `i2_s`")


INTERLEAVED_FORMATS = tuple(
    Format(each.name, each.block.values, each.nbytes, _together, row_bytes=each.row_bytes)
    for each in INTERLEAVED
)
"""Those whose rows lie in turn."""

I2_S = Format("I2_S", 128, 32, _together, tail_bytes=32)
"""The type of bitnet.cpp."""

ALL_FORMATS: tuple[Format, ...] = (
    *GGUF_FORMATS,
    *TWO_BIT_FORMATS,
    *IK_FORMATS,
    *INTERLEAVED_FORMATS,
    I2_S,
    *NUMBER_FORMATS,
    *FOLDER_FORMATS,
)
"""Every type that can be read, in GGUF and safetensors files."""

GGUF_TYPE_NAMES = {
    **{block.number: block.name for block in (*GGUF_BLOCKS, *TWO_BIT_BLOCKS, *IK_BLOCKS)},
    **{each.number: each.name for each in INTERLEAVED},
    0: "F32", 1: "F16", 9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    30: "BF16", 36: "I2_S",
}  # fmt: skip
"""The type numbers of GGUF files, including types that cannot be read, so that messages can name them."""
