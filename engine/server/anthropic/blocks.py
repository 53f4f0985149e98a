"""Blocks: the content blocks of a message while it is written, and the events that report them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from engine.server.replies import Delta

Event = dict[str, Any]


class Blocks:
    """Takes the pieces of a reply; each thought, text and call becomes a block of `content`."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._open = False
        self._input = ""

    @property
    def content(self) -> list[dict[str, Any]]:
        """The blocks as they are now."""
        return [*self._blocks]

    def feed(self, delta: Delta) -> Iterator[Event]:
        """The events for a further piece."""
        if delta.reasoning:
            yield from self._text("thinking", delta.reasoning, signature="")
        if delta.text:
            yield from self._text("text", delta.text)
        if delta.call is not None:
            piece = delta.call
            if piece.name:
                yield from self._begin({"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}})
            if piece.arguments:
                self._input += piece.arguments
                yield self._more("input_json_delta", "partial_json", piece.arguments)

    def finish(self) -> Iterator[Event]:
        """Close the open block, if there is one."""
        if not self._open:
            return
        self._open = False
        block = self._blocks[-1]
        if block["type"] == "tool_use":
            block["input"] = _object(self._input)
            self._input = ""
        elif block["type"] == "thinking":
            yield self._more("signature_delta", "signature", "")
        yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    def _text(self, kind: str, text: str, **fields: Any) -> Iterator[Event]:
        """More of a text, or of a thought."""
        if not (self._open and self._blocks[-1]["type"] == kind):
            yield from self._begin({"type": kind, kind: "", **fields})
        self._blocks[-1][kind] += text
        yield self._more(f"{kind}_delta", kind, text)

    def _begin(self, block: dict[str, Any]) -> Iterator[Event]:
        yield from self.finish()
        self._blocks.append(block)
        self._open = True
        yield {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": dict(block)}

    def _more(self, kind: str, name: str, text: str) -> Event:
        delta = {"type": kind, name: text}
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}


def _object(text: str) -> Any:
    """The arguments of a call; empty where it was cut off."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {}
