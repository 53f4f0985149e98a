"""The generators, `ExLlamaV2Sampler.Settings` and the filters, under the names of `exllamav2.generator`."""

from __future__ import annotations

from engine.compat.exllamav2.generator.base import ExLlamaV2BaseGenerator
from engine.compat.exllamav2.generator.filters import (
    ExLlamaV2Filter,
    ExLlamaV2PrefixFilter,
    ExLlamaV2SelectFilter,
)
from engine.compat.exllamav2.generator.hooks import ExLlamaV2PostSamplingHook, ExLlamaV2PostSamplingResult
from engine.compat.exllamav2.generator.sampler import ExLlamaV2Sampler
from engine.compat.exllamav2.generator.streaming import ExLlamaV2StreamingGenerator

__all__ = [
    "ExLlamaV2BaseGenerator", "ExLlamaV2Filter", "ExLlamaV2PostSamplingHook", "ExLlamaV2PostSamplingResult",
    "ExLlamaV2PrefixFilter", "ExLlamaV2Sampler", "ExLlamaV2SelectFilter", "ExLlamaV2StreamingGenerator",
]  # fmt: skip
