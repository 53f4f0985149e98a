"""`ExLlamaV2PrefixFilter`: a reply that begins with a given text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.compat.exllamav2.generator.filters.base import WrappedFilter
from engine.constraint.prefix import PrefixFilter

if TYPE_CHECKING:
    from engine.compat.exllamav2.model import ExLlamaV2
    from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2PrefixFilter(WrappedFilter):
    """The reply begins with one of `prefix_strings`. Raises what `PrefixFilter` raises."""

    def __init__(
        self, model: ExLlamaV2, tokenizer: ExLlamaV2Tokenizer, prefix_strings: str | Sequence[str]
    ) -> None:
        super().__init__(model, tokenizer)
        self.prefix_strings = [prefix_strings] if isinstance(prefix_strings, str) else list(prefix_strings)
        self.wrapped = self._made()

    def clone(self, c: Any = None) -> ExLlamaV2PrefixFilter:
        """A copy that has not begun."""
        copy: ExLlamaV2PrefixFilter = type(self).__new__(type(self)) if c is None else c
        copy.prefix_strings = list(self.prefix_strings)
        super().clone(copy)
        return copy

    def _made(self) -> PrefixFilter:
        return PrefixFilter(self.tokenizer.engine_tokenizer, self.prefix_strings)
