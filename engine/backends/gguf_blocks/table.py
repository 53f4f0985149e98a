"""The tables of block types."""

from __future__ import annotations

from engine.backends.gguf_blocks.ik_quants import BYTES_16, BYTES_32, LOOKED_UP, Q6_0
from engine.backends.gguf_blocks.iquants import IQUANTS
from engine.backends.gguf_blocks.quants import NVFP4_PAIRS, QUANTS

GGUF_BLOCKS = (*QUANTS, *IQUANTS)
"""The types of GGUF files, without those that `engine.weights.gguf.two_bits` reads as groups."""

PACKED_BLOCKS = (
    *(block for block in GGUF_BLOCKS if block.d != "ue4m3"),
    NVFP4_PAIRS,
    Q6_0,
    *LOOKED_UP,
    BYTES_16,
    BYTES_32,
)
"""The types that both backends pack directly."""
