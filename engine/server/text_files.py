"""Files of text in requests: from base64 texts and data: addresses to what the model reads."""

from __future__ import annotations

from engine.server.failure import bad_request
from engine.server.fields import Fields
from engine.server.pictures import bytes_in

_OTHERS = ("image/", "audio/", "video/", "application/pdf")
"""How the media types of files begin that are no text for certain; that of others is seen in them."""


def may_be_text(type: str) -> bool:
    """Whether a file of this media type may be a text; "" is unknown."""
    return not type.strip().lower().startswith(_OTHERS)


def file_text(name: str, data: str, place: str) -> str:
    """What the model reads of a file of text in base64, after its name. Raises `ApiError`, which names the
    `place` in the request.
    """
    try:
        text = bytes_in(data, place, "a file").decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise bad_request(
            f"{place} is not a text in UTF-8, but only such files can be read here; send its text.", place
        )
    return f"\n{name}:\n{text}\n" if name else f"\n{text}\n"


def part_text_file(part: Fields) -> str:
    """The text of a part `file` or `input_file` of OpenAI's APIs. Raises `ApiError` for other files."""
    file = part.part("file") or part
    place, name, data = file.place("file_data"), file.text("filename"), file.text("file_data")
    if not data:
        raise bad_request(
            f"{place} is missing; this server keeps no files and fetches none: send the file itself as "
            '"data:text/plain;base64,...".',
            place,
        )
    type = ""
    if data[:5].lower() == "data:":
        head, _, data = data.partition(",")
        type = head[5:].partition(";")[0]
    if not may_be_text(type):
        raise bad_request(
            f"{place} is of the type {type[:40]!r}, but only files of text can be read here; send its text.",
            place,
        )
    return file_text(name, data, place)
