"""Pictures in requests: from base64 texts and data: addresses to the pictures of messages, and back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.core import Message, Picture, picture_words
from engine.errors import BadPicture
from engine.server.failure import ApiError, bad_request
from engine.server.fields import Fields
from engine.vision.pictures.picture_files import picture_from

MOST = 32
"""The pictures of one request."""
_STANDARD = bytes.maketrans(b"-_", b"+/")
_BLANKS = b" \t\r\n"


def decoded(text: str, place: str) -> Picture:
    """The picture in a base64 text, whose alphabet may be that for addresses, with or without padding; a
    data: address is taken, too. Raises `ApiError`, which names the `place` in the request.
    """
    if text[:5].lower() == "data:":
        return at_address(text, place)
    try:
        return picture_from(bytes_in(text, place, "a picture file"))
    except BadPicture as error:
        raise bad_request(error.english, place) from None


def bytes_in(text: str, place: str, what: str) -> bytes:
    """The bytes of `what` in a base64 text, as `decoded` takes it. Raises `ApiError`."""
    raw = text.encode("ascii", "replace").translate(_STANDARD, _BLANKS).rstrip(b"=")
    try:
        return binascii.a2b_base64(raw + b"=" * (-len(raw) % 4), strict_mode=True)
    except binascii.Error:
        raise bad_request(
            f"{place} is not base64, but the bytes of {what} as base64 were expected.", place
        ) from None


def at_address(address: str, place: str) -> Picture:
    """The picture in a data: address. Raises `ApiError`: nothing is fetched from other addresses."""
    head, comma, text = address.partition(",")
    if head[:5].lower() == "data:":
        if not comma or not head.lower().endswith(";base64"):
            raise bad_request(
                f'{place} is a data: address without base64; send it as "data:image/png;base64,...".', place
            )
        return decoded(text, place)
    scheme = address.partition(":")[0] if ":" in address[:20] else ""
    if scheme.lower() in ("http", "https"):
        reason = f"an {scheme.lower()} address, but this server fetches nothing from other computers"
    else:
        reason = f"{address[:40]!r}, not the address of a picture"
    raise bad_request(f'{place} is {reason}; send the picture itself as "data:image/png;base64,...".', place)


def message_of(parts: Sequence[str | Picture], between: str = "") -> Message:
    """A message of the user, of texts and pictures in their order; `between` stands between two neighbours
    unless one is empty.
    """
    pictures = [part for part in parts if isinstance(part, Picture)]
    texts = [part for part in parts if isinstance(part, str)]
    name, number = "", 0
    while any(picture_words(name) in text for text in texts):  # these words must mean the picture alone
        number += 1
        name = str(number)
    named = tuple(replace(picture, name=name) for picture in pictures)
    words = (part if isinstance(part, str) else picture_words(name) for part in parts)
    return Message("user", between.join(word for word in words if word), pictures=named)


def parts_of(message: Message, between: str = "") -> Iterator[str | Picture]:
    """The inverse of `message_of`: the texts of a message that are not empty, and its pictures."""
    rest = message.content
    for picture in message.pictures:
        before, words, after = rest.partition(picture.words)
        if words:
            if text := before.removesuffix(between):
                yield text
            yield picture
            rest = after.removeprefix(between)
    if rest:
        yield rest


def checked_number(messages: Sequence[Message], name: str) -> None:
    """Raises `ApiError` for messages with too many pictures; `name` is their field in the request."""
    count = sum(len(message.pictures) for message in messages)
    if count > MOST:
        raise bad_request(
            f"{name} has {count} pictures, but a request may have at most {MOST}; send fewer.", name
        )


def unreadable(part: Fields, unit: str, type: str, *, pictures: bool | None = None) -> ApiError:
    """The error for a part of a message that is neither text nor, where the model reads `pictures`, one of
    these; None where no message can have one. Such parts are called `unit`, and those of pictures `type`.
    """
    place, kind = part.place("type"), part.text("type")[:40]
    reads = {
        None: "only text can be read here", False: "this model reads text only",
        True: "this model reads text and pictures only",
    }[pictures]  # fmt: skip
    types = f'"text" or "{type}"' if pictures else '"text"'
    return bad_request(f"{place} is {kind!r}, but {reads}; send {unit} of type {types}.", place)


def marked_message(text: str, mark: str, pictures: Sequence[Picture], place: str) -> Message:
    """A text in which each `mark` stands for the next picture. Raises `ApiError` for more or fewer marks."""
    texts = text.split(mark)
    if len(texts) != len(pictures) + 1:
        raise bad_request(
            f"{place} has {len(texts) - 1} times {mark}, but there are {len(pictures)} pictures; write it "
            "once for each picture.",
            place,
        )
    return message_of([texts[0], *(one for pair in zip(pictures, texts[1:], strict=True) for one in pair)])


def data_address(picture: Picture) -> str:
    """A picture as an address that holds it."""
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode('ascii')}"
