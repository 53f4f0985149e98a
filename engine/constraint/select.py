"""A reply that is one of several given texts."""

from __future__ import annotations

from collections.abc import Sequence

from engine.constraint.text_filter import TextFilter, text_units
from engine.errors import BadSetting
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _


class SelectFilter(TextFilter):
    """The whole reply is one of `choices`, divided into tokens in any way.

    It has `ended` once a choice is complete and no longer one can follow; if one can, the reply may end or
    continue. With `case_insensitive` each character may also be its lower, upper or folded form (ß also as SS
    or ss). Raises `BadSetting` if there is no choice, or the vocabulary cannot write any of them.
    """

    def __init__(self, tokenizer: Tokenizer, choices: Sequence[str], case_insensitive: bool = False) -> None:
        if not choices or isinstance(choices, str):
            raise BadSetting(_("There are no choices for the reply; give at least one text."))
        units = [text_units(text, case_insensitive=case_insensitive) for text in dict.fromkeys(choices)]
        super().__init__(tokenizer, units, free=False)
