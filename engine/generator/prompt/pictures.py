"""Pictures of messages: characters take their places until the template has run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from engine.core import Message, Picture
from engine.text.template.pictures import PictureMarks, Placed
from engine.vision import NUMBER, VisionSpec

_FIRST_MARK = 0x100000


class PlacesPictures(Protocol):
    """Knows what pictures become in prompts (`engine.vision.encoder_cache`)."""

    @property
    def spec(self) -> VisionSpec: ...

    def placed(self, picture: Picture) -> Placed:
        """The texts and the ids of tokens that a picture becomes. Raises `BadPicture`."""
        ...


def numbered(placed: Placed, number: int) -> Placed:
    """What a picture becomes, of which this many are before it in the prompt."""
    return [piece.replace(NUMBER, str(number)) if isinstance(piece, str) else piece for piece in placed]


def marked(
    messages: Sequence[Message], pictures: PlacesPictures
) -> tuple[PictureMarks | None, Sequence[Message]]:
    """The messages with a character of its own in place of the words of each picture; None without any."""
    if not any(message.pictures for message in messages):
        return None, messages
    used = set[str]().union(*(message.content + message.reasoning for message in messages))
    free = (chr(code) for code in range(_FIRST_MARK, _FIRST_MARK + 0xFFFD) if chr(code) not in used)
    placed: dict[str, Placed] = {}
    found: list[Message] = []
    for message in messages:
        content, rest = "", message.content
        for picture in message.pictures:
            before, words, after = rest.partition(picture.words)
            if words:
                mark = next(free)
                placed[mark] = numbered(pictures.placed(picture), len(placed))
                content, rest = content + before + mark, after
        found.append(replace(message, content=content + rest))
    spec = pictures.spec
    return PictureMarks(spec.placeholder, spec.token, placed, spec.around, spec.joined), found
