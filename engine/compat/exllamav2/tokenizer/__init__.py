"""`ExLlamaV2Tokenizer`; scripts import it from here, from the module below, or from the package above."""

from __future__ import annotations

from engine.compat.absent import refusing
from engine.compat.exllamav2.absent import TOKENIZERS
from engine.compat.exllamav2.tokenizer.tokenizer import ExLlamaV2Tokenizer

__all__ = ["ExLlamaV2Tokenizer"]
__getattr__ = refusing(__name__, TOKENIZERS)
