"""Pictures of prompts: the ids of their tokens, and the rows in place of the embeddings of these."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Protocol

from engine.core import FIRST_PICTURE_ID, Loading, Message, Picture, Waiting
from engine.drain import drain
from engine.errors import BadPicture
from engine.lazy_dataclass import dataclass
from engine.vision.base import PictureRows, Piece, Span, VisionEncoder, VisionSpec, tokens_in
from engine.words import N_, _, translate

_GONE = N_("A picture of this prompt is no longer in memory; send the message with it again.")
_LAST_ID = (1 << 31) - 1
_MOST_BYTES = 256 << 20


class Layouts(Protocol):
    """Knows what pictures become in prompts, without an encoder's weights."""

    @property
    def spec(self) -> VisionSpec: ...

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """As `VisionEncoder.layout`."""
        ...


Load = Callable[[], Generator[Loading, None, VisionEncoder]]


@dataclass(slots=True)
class _Known:
    """A picture that has been in a prompt: `first` is the id of its first token."""

    key: str
    layout: tuple[Piece, ...]
    first: int
    data: bytes = b""
    rows: tuple[PictureRows, ...] = ()
    holders: int = 0

    @property
    def nbytes(self) -> int:
        arrays = (array for rows in self.rows for array in (rows.states, *rows.deep))
        return sum(array.nbytes for array in arrays)

    def spans(self) -> Iterator[tuple[int, Span]]:
        """The id of the first token of each span, and the span."""
        at = self.first
        for piece in self.layout:
            if isinstance(piece, Span):
                yield at, piece
                at += piece.tokens


class EncoderCache:
    """The pictures of one model's prompts, and what its vision encoder made of them. Used by one thread.

    A picture's ids are derived from its content, so that equal beginnings of prompts are equal ids. The rows
    of the least recently used pictures are dropped where all take more than `most_bytes`, except of those
    that are held; they are computed again when they are needed. `load` gives the encoder, which is asked for
    when the first rows are.
    """

    def __init__(self, layouts: Layouts, load: Load, most_bytes: int = _MOST_BYTES) -> None:
        self._layouts, self._load, self._most_bytes = layouts, load, most_bytes
        self._encoder: VisionEncoder | None = None
        self._busy = False
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._firsts: list[tuple[int, str]] = []  # ascending

    @property
    def spec(self) -> VisionSpec:
        """What is known of the encoder."""
        return self._layouts.spec

    def placed(self, picture: Picture) -> tuple[str | range, ...]:
        """The layout of a picture, with the ids of its tokens in the place of each span, but without the one
        for a token that follows (`VisionSpec.joined`).
        """
        known = self._of(picture)
        spans = iter([range(first, first + span.tokens) for first, span in known.spans()])
        layout = known.layout if self.spec.joined is None else known.layout[:-1]
        return tuple(piece if isinstance(piece, str) else next(spans) for piece in layout)

    def know(self, messages: Sequence[Message]) -> None:
        """Take in the bytes of the pictures of messages, which are kept until the next reply has ended."""
        for message in messages:
            for picture in message.pictures:
                self._of(picture)

    def _of(self, picture: Picture) -> _Known:
        key = picture.key or (sha256(picture.data).hexdigest() if picture.data else "")
        key = key or f"{picture.name} {picture.width} {picture.height}"  # only a length is asked for
        known = self._known.get(key)
        if known is None:
            layout = self._layouts.layout(picture.width, picture.height)
            known = self._known[key] = _Known(key, layout, self._free_range(key, tokens_in(layout)))
            insort(self._firsts, (known.first, key))
        known.data = picture.data or known.data
        self._known.move_to_end(key)
        return known

    def _free_range(self, key: str, tokens: int) -> int:
        """The first of this many ids, which no other picture has."""
        attempt = 0
        while True:
            digest = sha256(f"{attempt} {key}".encode()).digest()
            first = FIRST_PICTURE_ID + int.from_bytes(digest[:8]) % (_LAST_ID - FIRST_PICTURE_ID - tokens)
            at = bisect_right(self._firsts, (first + tokens, ""))
            before = self._known[self._firsts[at - 1][1]] if at else None
            if before is None or before.first + tokens_in(before.layout) <= first:
                return first
            attempt += 1

    def span(self, id: int) -> tuple[int, Span]:
        """The span that the token `id` belongs to, and the id of its first token. Raises `BadPicture`."""
        known = self._known_at(id)
        return [found for found in known.spans() if found[0] <= id][-1]

    def rows(self, first: int) -> PictureRows:
        """The rows of the span whose first token has the id `first`. Raises `BadPicture`."""
        known = self._known_at(first)
        if not known.rows:
            if self._busy:  # with a prompt that goes on only when this pass has run
                raise BadPicture(_("A picture of this prompt is not read yet; send the message again."))
            drain(self._encoded(known))
        return known.rows[[start for start, _span in known.spans()].index(first)]

    def _known_at(self, id: int) -> _Known:
        at = bisect_right(self._firsts, (id, "~"))
        known = self._known[self._firsts[at - 1][1]] if at else None
        if known is None or id >= known.first + tokens_in(known.layout):
            raise BadPicture(translate(_GONE))
        return known

    def encoded(self, ids: Sequence[int]) -> Generator[Loading | Waiting, None, None]:
        """Compute the rows of the pictures whose tokens are among `ids`, as far as there are none; yields
        progress, and between short steps. Raises `BadPicture`, and what loading the encoder raises.
        """
        missing = [known for known in self._among(ids) if not known.rows]
        for number, known in enumerate(missing):
            words = _("Looking at picture {number} of {count}", number=number + 1, count=len(missing))
            yield Loading(words, number, len(missing))
            yield from self._encoded(known)

    def _among(self, ids: Sequence[int]) -> list[_Known]:
        """The pictures of a text, in its order."""
        found: dict[str, _Known] = {}
        for id in dict.fromkeys(ids):
            if id >= FIRST_PICTURE_ID:
                known = self._known_at(id)
                found.setdefault(known.key, known)
        return list(found.values())

    def _encoded(self, known: _Known) -> Generator[Loading | Waiting, None, None]:
        while self._busy:  # with another prompt's picture
            yield Waiting()
        if known.rows:
            return
        if not known.data:
            raise BadPicture(translate(_GONE))
        self._busy = True
        try:
            if self._encoder is None:
                self._encoder = yield from self._load()
            known.rows = yield from self._encoder.encode(known.data)
        finally:
            self._busy = False
        total = sum(each.nbytes for each in self._known.values())
        for each in self._known.values():
            if total <= self._most_bytes:
                return
            if each is not known and not each.holders:
                total -= each.nbytes
                each.rows = ()

    @contextmanager
    def held(self, ids: Sequence[int]) -> Iterator[None]:
        """Keep what the pictures of a text are made of, and their rows once they are made. Raises
        `BadPicture`.
        """
        found = self._among(ids)
        for known in found:
            known.holders += 1
        try:
            yield
        finally:
            for known in found:
                known.holders -= 1
            for known in self._known.values():
                if not known.holders:
                    known.data = b""

    def close(self) -> None:
        """Release the encoder's memory, and all rows."""
        self._known.clear()
        self._firsts.clear()
        if self._encoder is not None:
            self._encoder.close()
