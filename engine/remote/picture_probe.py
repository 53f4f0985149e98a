"""Whether a model of a server takes pictures, as the server says, else by sending one.

Sources: llama.cpp, tools/server/README.md (`modalities` of `/props`);
https://lmstudio.ai/docs/developer/rest/endpoints (`type` of `/api/v0/models`);
https://github.com/ollama/ollama/blob/main/docs/api.md (`capabilities` of `/api/show`).
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from engine.errors import EngineError
from engine.remote.client import Client, RemoteModel
from engine.remote.exchange import Answer, Call
from engine.remote.pictures import NO, YES, data_url, takes_pictures
from engine.remote.trouble import message_of
from engine.words import _

REFUSALS = (400, 404, 405, 406, 411, 415, 422, 500, 501)
"""What servers answer to a request that they do not understand; 500 of llama-cpp-python's."""
_QUESTION = "What is this?"
_SIDE = 64
"""Pixels: fewer are too small for the patches of some models."""
_LONGEST = 200


class PicturesFound(NamedTuple):
    """Whether a model takes pictures: `pictures` is `YES`, `NO` or "" for unknown, `pictures_why` what the
    server says about it.
    """

    pictures: str = ""
    pictures_why: str = ""


def find_pictures(
    client: Client, model: RemoteModel, chat: Callable[..., Answer], stop: threading.Event
) -> PicturesFound:
    """Whether a model takes pictures: as the server's lists say, else by sending one. `chat(messages=...)`
    asks for one token. Raises `RemoteError` if the server is lost, `Cancelled` by `stop`.

    A server that takes pictures reads them, so it refuses a broken one; a server that ignores what it does
    not know takes both.
    """
    questions: tuple[Callable[[], bool | None], ...] = (
        lambda: model.pictures,
        lambda: _of_list(client, model, stop),
        lambda: _of_props(client.optional(Call("/props", root=True), stop)),
        lambda: takes_pictures(client.optional(_lm_studio(model), stop) or {}),
        lambda: _of_ollama(client.optional(Call("/api/show", {"model": model.name}, root=True), stop)),
    )
    for ask in questions:
        known = ask()
        if known is not None:
            return PicturesFound(YES if known else NO)
    good, broken = (
        chat(messages=[{"role": "user", "content": _parts(data)}]) for data in (_png(), b"not a picture")
    )
    if good.status == 200:
        if broken.status in REFUSALS:
            return PicturesFound(YES)
        return PicturesFound(NO, _("it accepts requests with pictures, but does not read them"))
    if good.status in REFUSALS:
        return PicturesFound(NO, message_of(good, "")[:_LONGEST])
    return PicturesFound("", message_of(good, "")[:_LONGEST])


def _of_list(client: Client, model: RemoteModel, stop: threading.Event) -> bool | None:
    try:
        listed = client.models(stop)
    except EngineError:
        if stop.is_set():
            raise
        return None
    return next((each.pictures for each in listed if each.name == model.name), None)


def _of_props(found: object) -> bool | None:
    """llama.cpp's."""
    able = found.get("modalities") if isinstance(found, Mapping) else None
    return able["vision"] if isinstance(able, Mapping) and isinstance(able.get("vision"), bool) else None


def _of_ollama(found: object) -> bool | None:
    able = found.get("capabilities") if isinstance(found, Mapping) else None
    return "vision" in able if isinstance(able, list) else None


def _lm_studio(model: RemoteModel) -> Call:
    return Call(f"/api/v0/models/{quote(model.name, safe='/')}", root=True)


def _parts(data: bytes) -> list[dict[str, Any]]:
    return [
        {"type": "image_url", "image_url": {"url": data_url("image/png", data)}},
        {"type": "text", "text": _QUESTION},
    ]


def _png() -> bytes:
    """A black and white chessboard (https://www.w3.org/TR/png-3/)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(
        b"\0" + b"".join(b"\xff" if (x // 8 + y // 8) % 2 else b"\0" for x in range(_SIDE))
        for y in range(_SIDE)
    )
    head = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
