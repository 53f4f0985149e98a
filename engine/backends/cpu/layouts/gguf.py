"""The weight layouts of GGUF's block types."""

from __future__ import annotations

from engine.backends.cpu.layouts.blocks import BlockLayout
from engine.backends.gguf_blocks.table import PACKED_BLOCKS

GGUF_WEIGHT_LAYOUTS = tuple(BlockLayout(block) for block in PACKED_BLOCKS if block.name != "Q8_0")
"""`q8` holds Q8_0, `plain` the plain numbers."""
