"""Reads JSON files and headers that hold one object, with bounded size and without repeated names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import BadCheckpoint, ModelNotFound
from engine.words import _

_MAX_JSON_BYTES = 32 << 20
_MAX_NESTED, _MAX_ITEMS = 1 << 19, 1 << 22
"""Limits for lists and objects and for their items, enough for 130,000 tensors: they bound memory."""


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises `ModelNotFound` or `BadCheckpoint`."""
    return parse_object(_read(path), str(path))


def read_json_list(path: Path) -> list[Any]:
    """The JSON list in `path`. Raises `ModelNotFound` or `BadCheckpoint`."""
    value = _parsed(_read(path), str(path))
    if not isinstance(value, list):
        raise BadCheckpoint(
            _("{path} holds a JSON {name}; a list was expected.", path=path, name=type(value).__name__)
        )
    return value


def _read(path: Path) -> bytes:
    try:
        # Opening a named pipe would block.
        if path.exists() and not path.is_file():
            raise ModelNotFound(_("{path} is not a plain file; a small JSON file was expected.", path=path))
        with path.open("rb") as file:
            raw = file.read(_MAX_JSON_BYTES + 1)
    except OSError as error:
        raise ModelNotFound(
            _("{path} cannot be read: {strerror}.", path=path, strerror=error.strerror or error)
        ) from error
    if len(raw) > _MAX_JSON_BYTES:
        raise BadCheckpoint(
            _(
                "{path} is larger than {max_json_bytes} bytes; a small JSON file was expected.",
                path=path,
                max_json_bytes=_MAX_JSON_BYTES,
            )
        )
    return raw


def parse_object(raw: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `raw`; `what` is for error messages. Raises `BadCheckpoint`."""
    value = _parsed(raw, what)
    if not isinstance(value, dict):
        raise BadCheckpoint(
            _("{what} holds a JSON {name}; an object was expected.", what=what, name=type(value).__name__)
        )
    return value


def _parsed(raw: bytes, what: str) -> Any:
    if raw.count(b"[") + raw.count(b"{") > _MAX_NESTED or raw.count(b",") > _MAX_ITEMS:
        raise BadCheckpoint(
            _(
                "{what} holds more lists or values than that of any model; it is damaged. Download it again.",
                what=what,
            )
        )
    try:
        return json.loads(raw, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise BadCheckpoint(
            _("{what} is not valid JSON ({error}); download it again.", what=what, error=error)
        ) from error


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice")
    return value
