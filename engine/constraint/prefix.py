"""A reply that begins with a given text."""

from __future__ import annotations

from collections.abc import Sequence

from engine.constraint.text_filter import TextFilter, text_units
from engine.errors import BadSetting
from engine.text.tokenizer.tokenizer import Tokenizer
from engine.words import _


class PrefixFilter(TextFilter):
    """The reply begins with one of `prefixes` (one text or several), divided into tokens in any way; then
    anything may follow.

    The last token of the beginning may go beyond it. It may end as soon as the beginning is complete, and is
    never `ended`. Raises `BadSetting` if there is no text, or the vocabulary cannot write any of them.
    """

    def __init__(self, tokenizer: Tokenizer, prefixes: str | Sequence[str]) -> None:
        texts = [prefixes] if isinstance(prefixes, str) else list(dict.fromkeys(prefixes))
        if not texts:
            raise BadSetting(_("There is no text for the start of the reply; give at least one."))
        super().__init__(tokenizer, [text_units(text) for text in texts], free=True)
