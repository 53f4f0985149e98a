"""A tokenizer's vocabulary in llguidance's form, and 256 more tokens of one byte each.

With a token for every byte, a grammar can follow any bytes: a part of a token, or a character without a token
of its own. These tokens, and the one for the end, come after the model's own: V + byte.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from engine.constraint.vocabulary import vocabulary_of
from engine.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_MARKER = 0xFF  # llguidance writes control tokens with this byte, which no UTF-8 text has
_SLICES = [r'[^"\\\x00-\x1F\x7F]{1,10}', r'[^"\\\x00-\x1F\x7F]+']
"""Groups of tokens that llguidance allows at once, where a text in quotes may go on: its own four take
twice as long to make.
"""

_LONGEST = 1000  # bytes of a token; llguidance's tree of tokens is at most 1024 deep

_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[Tokenizer, dict[frozenset[int], LLTokenizer]] = weakref.WeakKeyDictionary()


class ByteWords:
    """Tokens with these texts, and one for each byte, as `llguidance.TokenizerWrapper` asks for them. The
    tokens `marks` follow only where a grammar names them.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, texts: Sequence[bytes] = (), marks: Iterable[int] = ()) -> None:
        self.tokens = [*texts, *(bytes([byte]) if byte != _MARKER else b"" for byte in range(256)), b""]
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids: list[int] = sorted(marks)
        self._first_byte = len(texts)

    def __call__(self, text: str) -> list[int]:
        """A way to write a text.

        Grammars here never force tokens, so it needs to be no better than byte by byte.
        """
        return byte_tokens(self._first_byte, text.encode())


def byte_tokens(size: int, data: bytes) -> list[int]:
    """The tokens of single bytes, for a vocabulary of `size`."""
    return [size + byte for byte in data]


def llguidance_tokenizer(tokenizer: Tokenizer, marks: frozenset[int] = frozenset()) -> LLTokenizer:
    """llguidance's tokenizer with these `marks`, made once while `tokenizer` lives (0.15 s for 49,000 tokens,
    1.2 s for 256,000). From any thread.
    """
    with _lock:
        known = _known.setdefault(tokenizer, {})
        found = known.get(marks)
        if found is None:
            from llguidance import LLTokenizer, TokenizerWrapper

            texts = vocabulary_of(tokenizer, marks).texts
            usable = [text if len(text) <= _LONGEST and _MARKER not in text else b"" for text in texts]
            words = cast(TokenizerWrapper, ByteWords(usable, marks))
            found = known[marks] = LLTokenizer(words, slices=_SLICES)
        return found
