"""Streaming detokenisation: whole characters only, at a constant cost for each token."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from engine.text.tokenizer import Tokenizer

_MAX_CHARACTER_BYTES = 4


class Detokenizer:
    """Turns token ids into text as they come.

    The chunks of `add` and `finish` joined are exactly `tokenizer.decode(ids)`. `prompt_ids` are what stands before: when
    there are any, the text goes on from them, so a leading space is kept and a character begun there is completed.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, prompt_ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset[int]()
        self._at_start = tokenizer.strips_leading_space and not prompt_ids
        # An incremental decoder holds back the bytes of a character that is not complete yet.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for id in prompt_ids[-_MAX_CHARACTER_BYTES:]:
            self.add(id)

    def add(self, id: int) -> str:
        """The characters that token `id` completes; empty while a character is unfinished."""
        if id in self._skipped:
            return ""
        return self._from_start(self._decoder.decode(self._tokenizer.token_bytes(id)))

    def finish(self) -> str:
        """What is still held back: U+FFFD for the bytes of an unfinished character, or nothing."""
        return self._from_start(self._decoder.decode(b"", final=True))

    def _from_start(self, text: str) -> str:
        if self._at_start and text:
            self._at_start = False
            return text[1:] if text.startswith(" ") else text
        return text
