"""What a prompt needs of a vision encoder: how many tokens a picture takes, and the rows in their place."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from engine.core import Waiting
from engine.lazy_dataclass import dataclass
from engine.tensors import Floats


@dataclass(frozen=True, slots=True)
class Positions:
    """Multi-section rotary positions of a model (M-RoPE, arXiv 2409.12191, section 2.1): each pair of
    dimensions turns by the time, the row or the column of its token.

    `sections` are the pairs of time, rows and columns, in this order. Of text, all three are the same. If
    `interleaved` (Qwen3-VL's technical report), pairs take turns as time, row, column, time and so on, as
    long as the sections of rows and columns last.

    If `counted` (HunyuanOCR, arXiv 2511.19575), the sections are those of the place in the text, which may
    lack, the column, the row, and the number of the picture among those of the text; what follows a picture
    keeps its place in the text. Spans of one token are as texts.
    """

    sections: tuple[int, ...]
    interleaved: bool = False
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of a picture, `rows` * `columns` of them, from left to right and from top to
    bottom.

    Where rotary positions have sections, `places` may be those of each token, the time, the row and the
    column, after the position of a text in their place; what follows goes on `advance` after this one.
    """

    rows: int
    columns: int
    places: tuple[tuple[int, int, int], ...] = ()
    advance: int = 0

    @property
    def tokens(self) -> int:
        """How many tokens it has."""
        return self.rows * self.columns

    @property
    def extent(self) -> int:
        """By how much the position of a text that follows is after that of one in its place."""
        return self.advance if self.places else max(self.rows, self.columns)


Piece = str | Span
"""Of a picture's layout: a text, whose control tokens count, or tokens of the picture itself."""
NUMBER = "\N{OBJECT REPLACEMENT CHARACTER}"
"""In the texts of a layout: how many pictures are before this one in the prompt."""


def tokens_in(layout: Sequence[Piece]) -> int:
    """The tokens of the spans of a layout, without its texts."""
    return sum(piece.tokens for piece in layout if isinstance(piece, Span))


@dataclass(frozen=True, slots=True)
class PictureRows:
    """What stands in place of the embeddings of one span's tokens: `states` (tokens, E) float32.

    `deep` are added to the hidden states after the first layer, the second and so on, each (tokens, E)
    float32 (DeepStack, arXiv 2406.04334).
    """

    states: Floats
    deep: tuple[Floats, ...] = ()


@dataclass(frozen=True, slots=True)
class VisionSpec:
    """What is known of a vision encoder from headers alone.

    Attributes:
        family: its name, such as "gemma3".
        placeholder: what the model's chat template writes for a picture, such as "<image>"; a layout takes
            its place.
        token: the text of the token that stands for one token of a picture, such as "<image_soft_token>".
        bidirectional: the tokens of a span attend to each other in both directions.
        positions: the sections of the language model's rotary positions; None if a picture's tokens have
            positions as those of texts.
        deep: how many layers get further rows (`PictureRows.deep`).
        around: what stands before and after a layout where the chat template has no place for pictures; the
            templates of such models write it themselves.
        nbytes: of its weights in memory.
        sign: a token that models of the family alone have, where `token` is one that others have, too.
        unsectioned: a picture's tokens have positions as those of texts, whatever the language model's rope
            has.
        windows_alone: of a `bidirectional` model, whether only layers with a window are so (Gemma 4).
        prefix: of a `bidirectional` model, whether all tokens of a prompt with pictures attend to each other,
            as a picture's do (prefix language models, arXiv 1910.10683, section 3.2.1).
        looked_at: of a model with layers that look at pictures, the id of the token that stands for a whole
            one: its span is one token, and `PictureRows.states` are any number of rows.
        seen_rows: how many rows these are at most.
        joined: the id of a token of the text that belongs to a picture if it follows: the last span of each
            layout, of one token, takes its place, and is left out if it does not follow.
    """

    family: str
    placeholder: str
    token: str
    bidirectional: bool = False
    positions: Positions | None = None
    deep: int = 0
    around: tuple[str, str] = ("", "")
    nbytes: int = 0
    windows_alone: bool = False
    sign: str = ""
    unsectioned: bool = False
    looked_at: int | None = None
    seen_rows: int = 0
    prefix: bool = False
    joined: int | None = None


class VisionEncoder(Protocol):
    """A vision encoder with the projector of one language model. Used by one thread."""

    spec: VisionSpec

    def layout(self, width: int, height: int) -> tuple[Piece, ...]:
        """What a picture of this many pixels becomes in a prompt; nothing is run."""
        ...

    def encode(self, data: bytes) -> Generator[Waiting, None, tuple[PictureRows, ...]]:
        """The rows of each span of the layout, from the bytes of a picture file; yields between short steps.
        One at a time.

        Raises `BadPicture` for a file that is no readable picture.
        """
        ...

    def close(self) -> None:
        """Release its memory; it cannot be used afterwards."""
        ...
