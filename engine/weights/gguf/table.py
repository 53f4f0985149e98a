"""The tensor types of GGUF files: which can be read, and their numbers.

Source: the ggml project's `docs/gguf.md`.
"""

from __future__ import annotations

from engine.weights.format import Format
from engine.weights.gguf.blocks import BLOCK_FORMATS
from engine.weights.gguf.fp4 import FP4_FORMATS
from engine.weights.gguf.iquants import IQ_FORMATS
from engine.weights.gguf.k_quants import K_FORMATS
from engine.weights.gguf.ternary import TERNARY_FORMATS
from engine.weights.plain import FLOAT_FORMATS, FOLDER_FORMATS, NUMBER_FORMATS

GGUF_FORMATS: tuple[Format, ...] = (
    *FLOAT_FORMATS, *BLOCK_FORMATS, *K_FORMATS, *IQ_FORMATS, *TERNARY_FORMATS, *FP4_FORMATS,
)  # fmt: skip
"""Every type that weights in a GGUF file come in."""

ALL_FORMATS: tuple[Format, ...] = (*GGUF_FORMATS, *NUMBER_FORMATS, *FOLDER_FORMATS)
"""Every type this program can read, of either container."""

GGUF_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K",
    11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32",
    27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
    41: "Q1_0",
}  # fmt: skip
"""The type numbers of a GGUF file, also those that are refused, so that a message can name them."""
