"""`ExLlamaV2SelectFilter`: a reply that is one of several texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.compat.exllamav2.generator.filters.base import WrappedFilter
from engine.constraint.select import SelectFilter

if TYPE_CHECKING:
    from engine.compat.exllamav2.model import ExLlamaV2
    from engine.compat.exllamav2.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2SelectFilter(WrappedFilter):
    """The reply is one of `options`. Raises what `SelectFilter` raises."""

    def __init__(
        self,
        model: ExLlamaV2,
        tokenizer: ExLlamaV2Tokenizer,
        options: Sequence[str],
        case_insensitive: bool = False,
    ) -> None:
        super().__init__(model, tokenizer)
        self.options, self.case_insensitive = list(options), case_insensitive
        self.wrapped = SelectFilter(tokenizer.engine_tokenizer, options, case_insensitive)

    def clone(self, c: Any = None) -> ExLlamaV2SelectFilter:
        """A copy that has not begun."""
        copy: ExLlamaV2SelectFilter = type(self).__new__(type(self)) if c is None else c
        copy.options, copy.case_insensitive = list(self.options), self.case_insensitive
        super().clone(copy)
        return copy

    def _made(self) -> SelectFilter:
        return SelectFilter(self.tokenizer.engine_tokenizer, self.options, self.case_insensitive)
