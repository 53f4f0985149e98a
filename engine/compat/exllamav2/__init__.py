"""ExLlamaV2's names over this engine: its scripts run once their imports and paths are changed.

    from engine.compat.exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer
    from engine.compat.exllamav2.generator import ExLlamaV2Sampler, ExLlamaV2StreamingGenerator

Names, arguments and defaults are those of exllamav2 0.3.2, but none of its code is used. Its known bugs (a
stop string hidden by the beginning of another, state that leaks between sequences) are not reproduced. What
is not supported is refused by name. For libraries that import `exllamav2` themselves, see `stand_in`.
"""

from __future__ import annotations

from engine.compat.absent import refusing
from engine.compat.exllamav2.absent import absent_modules, share_names
from engine.compat.exllamav2.cache import (
    ExLlamaV2Cache,
    ExLlamaV2Cache_8bit,
    ExLlamaV2Cache_Q4,
    ExLlamaV2Cache_Q6,
    ExLlamaV2Cache_Q8,
    ExLlamaV2Cache_TP,
    ExLlamaV2CacheBase,
)
from engine.compat.exllamav2.config import ExLlamaV2Config
from engine.compat.exllamav2.lora import ExLlamaV2Lora
from engine.compat.exllamav2.model import ExLlamaV2
from engine.compat.exllamav2.stand_in import stand_in
from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer
from engine.compat.exllamav2.util import Timer
from engine.compat.exllamav2.version import __version__ as __version__
from engine.compat.exllamav2.vision import ExLlamaV2VisionTower

__all__ = [
    "ExLlamaV2", "ExLlamaV2Cache", "ExLlamaV2CacheBase", "ExLlamaV2Cache_8bit", "ExLlamaV2Cache_Q4",
    "ExLlamaV2Cache_Q6", "ExLlamaV2Cache_Q8", "ExLlamaV2Cache_TP", "ExLlamaV2Config", "ExLlamaV2Lora",
    "ExLlamaV2Tokenizer", "ExLlamaV2VisionTower", "Timer", "stand_in",
]  # fmt: skip

_ABSENT = {
    "ExLlamaV2MultimodalProjector": "the vision tower has it",
    "Intervention": "layers cannot be changed from outside; leave it out",
    "SeqTensor": "it is an inner part of ExLlamaV2; use torch.cat",
}
__getattr__ = refusing(__name__, _ABSENT)
absent_modules(__name__)
share_names(__name__, ("cache", "config", "lora", "model", "tokenizer.tokenizer"))
