"""The generators, `ExLlamaV2Sampler.Settings` and the filters, under the names of `exllamav2.generator`."""

from __future__ import annotations

from engine.compat.exllamav2.absent import share_names
from engine.compat.exllamav2.generator.base import ExLlamaV2BaseGenerator
from engine.compat.exllamav2.generator.dynamic import ExLlamaV2DynamicGenerator
from engine.compat.exllamav2.generator.dynamic_async import (
    ExLlamaV2DynamicGeneratorAsync,
    ExLlamaV2DynamicJobAsync,
)
from engine.compat.exllamav2.generator.dynamic_job import ExLlamaV2DynamicJob
from engine.compat.exllamav2.generator.filters import (
    ExLlamaV2Filter,
    ExLlamaV2PrefixFilter,
    ExLlamaV2SelectFilter,
)
from engine.compat.exllamav2.generator.hooks import ExLlamaV2PostSamplingHook, ExLlamaV2PostSamplingResult
from engine.compat.exllamav2.generator.sampler import ExLlamaV2Sampler
from engine.compat.exllamav2.generator.streaming import ExLlamaV2StreamingGenerator
from engine.compat.exllamav2.vision import ExLlamaV2MMEmbedding

__all__ = [
    "ExLlamaV2BaseGenerator", "ExLlamaV2DynamicGenerator", "ExLlamaV2DynamicGeneratorAsync",
    "ExLlamaV2DynamicJob", "ExLlamaV2DynamicJobAsync",
    "ExLlamaV2Filter", "ExLlamaV2MMEmbedding", "ExLlamaV2PostSamplingHook", "ExLlamaV2PostSamplingResult",
    "ExLlamaV2PrefixFilter", "ExLlamaV2Sampler", "ExLlamaV2SelectFilter", "ExLlamaV2StreamingGenerator",
]  # fmt: skip
share_names(
    __name__,
    ("base", "dynamic", "dynamic_async", "sampler", "streaming", "filters.base", "filters.prefix",
     "filters.select"),
)  # fmt: skip
