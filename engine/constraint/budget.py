"""Ending a constrained reply within the remaining tokens: a shortest ending is known, and always fits."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

from engine.constraint.filter import Bounded, Filter, Finishing
from engine.constraint.vocabulary import Mask, Vocabulary, allows
from engine.lazy_dataclass import dataclass

_SOFT = 16
"""With no more tokens to spare than this a reply is brought to its end."""
_FORCED = 1
"""With no more than this only the known way to the end is left."""
_LONGEST_TOKEN = 32
"""Bytes of the tokens that a way to the end is cut into."""
_PAUSE = 16
"""Tokens after a search for an ending that found none before the next, each pause twice the one before; a
search can take half a second.
"""


@dataclass(frozen=True, slots=True)
class Ending:
    """An ending of a reply: its bytes, and the fewest tokens for them."""

    data: bytes
    tokens: tuple[int, ...]


class Budget:
    """The endings of one reply under several filters.

    Used by one thread at a time, between `accept` and the next.

    `drawable` are the tokens that may be chosen at all (None: every one). Filters that do not know their
    endings are left out. If no ending is found (the grammar is too large to search), nothing is promised;
    it is searched for again after a pause, or once half of the remaining tokens are used up.
    """

    def __init__(self, filters: Sequence[Filter], drawable: Mask | None = None) -> None:
        self._filters = tuple(one for one in filters if isinstance(one, Finishing))
        self._drawable = drawable
        self.begin()

    def begin(self) -> None:
        """Start a new reply."""
        self._endings: list[Ending | bool | None] = [False]  # after each token; False: not searched for
        self._tried: tuple[int, Ending | None] | None = None
        self._pause, self._next = _PAUSE, 0  # the next search: after this many tokens
        self._near: int | None = None  # or when this many are left

    def least(self) -> int:
        """A number of tokens that a whole reply has at least."""
        return max((one.least for one in self._filters if isinstance(one, Bounded)), default=0)

    def accept(self, token: int) -> None:
        """The filters have accepted a token."""
        tried, self._tried = self._tried, None
        self._endings.append(tried[1] if tried is not None and tried[0] == token else self._followed(token))

    def rollback(self, tokens: int) -> None:
        """The filters have taken back the last tokens."""
        del self._endings[len(self._endings) - tokens :]
        self._tried = None

    def ending(self, remaining: int | None = None) -> Ending | None:
        """How the reply can end from here with `remaining` tokens left (None: unknown, or no limit); None if
        that is not known.
        """
        known = self._endings[-1]
        if not isinstance(known, bool):
            return known
        place = len(self._endings)
        if self._near is None and remaining is not None:
            self._near = remaining // 2
        if not self._filters or (
            place < self._next and (remaining is None or self._near is None or remaining > self._near)
        ):
            return None
        found = self._endings[-1] = self._found(b"", None)
        if found is None:
            self._next, self._pause = place + self._pause, 2 * self._pause
            self._near = None if remaining is None else remaining // 2
        return found

    def narrowed(self, mask: Mask, remaining: int) -> Mask:
        """The tokens of `mask` to choose from with `remaining` tokens left: all if enough are left."""
        ending = self.ending(remaining)
        if ending is None or not ending.tokens or remaining - len(ending.tokens) > _SOFT:
            return mask
        if remaining - len(ending.tokens) <= _FORCED:
            return self.forced(mask)
        for one in self._filters:
            mask = one.hastened(mask)
        return mask

    def forced(self, mask: Mask) -> Mask:
        """Only the first token of the known ending, if `mask` allows it."""
        ending = self.ending()
        if ending is None or not ending.tokens or not allows(mask, ending.tokens[0]):
            return mask
        return self._filters[0].vocabulary.mask_of(ending.tokens[:1])

    def fits(self, token: int, remaining: int) -> bool:
        """Whether the reply can still end in time if this allowed token is the first of `remaining`."""
        before = self.ending(remaining)
        if before is None:
            return True
        vocabulary = self._filters[0].vocabulary
        data = vocabulary.texts[token]
        if not data:  # it ends the text
            return True
        after = self._rest_of(before, data) if before.data.startswith(data) else self._found(data, before)
        self._tried = token, after
        return after is not None and len(after.tokens) < remaining

    def _followed(self, token: int) -> Ending | bool:
        """The rest of the known ending if a token continues it; else False."""
        known = self._endings[-1]
        if (
            isinstance(known, Ending)
            and (data := self._filters[0].vocabulary.texts[token])
            and known.data.startswith(data)
        ):
            return self._rest_of(known, data) or False
        return False

    def _found(self, after: bytes, known: Ending | None) -> Ending | None:
        """An ending for the text and `after`: the known one if it still fits."""
        for order in (self._filters, self._filters[::-1])[: len(self._filters)]:
            data = b""
            for one in order:
                more = one.completion(after + data, known.data if known is not None and not data else None)
                if more is None:
                    break
                data += more
            if more is not None and (
                len(order) < 2 or all(one.completion(after + data) == b"" for one in order)
            ):
                if known is not None and data == known.data:
                    return known
                return self._ending_of(data)
        return None

    def _rest_of(self, ending: Ending, begun: bytes) -> Ending | None:
        """The rest of an ending that begins with the bytes `begun`; the token in which these end is divided
        again.
        """
        texts, at, count = self._filters[0].vocabulary.texts, 0, 0
        while at < len(begun):
            at += len(texts[ending.tokens[count]])
            count += 1
        first = self._ending_of(ending.data[len(begun) : at])
        return (
            None if first is None else Ending(ending.data[len(begun) :], first.tokens + ending.tokens[count:])
        )

    def _ending_of(self, data: bytes) -> Ending | None:
        """The fewest tokens for these bytes; None if the vocabulary cannot write them."""
        words = _words_of(self._filters[0].vocabulary)
        drawable = self._drawable
        # how many from here on, the first of them, its bytes
        best: list[tuple[int, int, int]] = [(0, 0, 0)] * (len(data) + 1)
        for start in range(len(data) - 1, -1, -1):
            fewest = (len(data) + 1, 0, 0)
            for size in range(1, min(_LONGEST_TOKEN, len(data) - start) + 1):
                token = words.get(data[start : start + size])
                if (
                    token is None
                    or best[start + size][0] + 1 > fewest[0]
                    or not (drawable is None or allows(drawable, token))
                ):
                    continue
                fewest = (best[start + size][0] + 1, token, size)
            best[start] = fewest
        if best[0][0] > len(data):
            return None
        tokens, at = [], 0
        while at < len(data):
            tokens.append(best[at][1])
            at += best[at][2]
        return Ending(data, tuple(tokens))


_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[Vocabulary, dict[bytes, int]] = weakref.WeakKeyDictionary()


def _words_of(vocabulary: Vocabulary) -> dict[bytes, int]:
    """The token for each text of a vocabulary, made once while it lives. From any thread."""
    with _lock:
        if vocabulary not in _known:
            _known[vocabulary] = dict(zip(vocabulary.words, vocabulary.ids.tolist(), strict=True))
        return _known[vocabulary]
