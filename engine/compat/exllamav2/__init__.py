"""ExLlamaV2's names over this engine: scripts for its streaming generator run once their imports are changed.

    from engine.compat.exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
    from engine.compat.exllamav2.generator import ExLlamaV2Sampler, ExLlamaV2StreamingGenerator

Names, arguments and defaults are those of exllamav2 0.3, but none of its code is used. Its known bugs (a stop
string hidden by the beginning of another, state that leaks between sequences) are not reproduced.
"""

from __future__ import annotations

from engine.compat.exllamav2.cache import (
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
)
from engine.compat.exllamav2.lora import ExLlamaV2Lora
from engine.compat.exllamav2.model import ExLlamaV2, ExLlamaV2Config
from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer

__all__ = [
    "ExLlamaV2", "ExLlamaV2Cache", "ExLlamaV2Cache_8bit", "ExLlamaV2Cache_Q4", "ExLlamaV2Cache_Q6",
    "ExLlamaV2Cache_Q8", "ExLlamaV2Config", "ExLlamaV2Lora", "ExLlamaV2Tokenizer",
]  # fmt: skip
