"""The filters, under the names of `exllamav2.generator.filters`."""

from __future__ import annotations

from engine.compat.exllamav2.generator.filters.base import ExLlamaV2Filter
from engine.compat.exllamav2.generator.filters.prefix import ExLlamaV2PrefixFilter
from engine.compat.exllamav2.generator.filters.select import ExLlamaV2SelectFilter

__all__ = ["ExLlamaV2Filter", "ExLlamaV2PrefixFilter", "ExLlamaV2SelectFilter"]
