"""Output: the output items of a response while it is written, and the events that report them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from engine.core import CallPiece, Message, ToolCall
from engine.server.openai.chat import scores_json
from engine.server.openai.custom import INPUT, input_json
from engine.server.replies import Delta, Score
from engine.server.responses.items import sealed

Event = dict[str, Any]
"""An event of a stream, without its number."""


class Output:
    """Takes the pieces of a reply; each thought, text and call becomes an item of `items`.

    Texts have the log-probabilities of their tokens if `scored`, thoughts `encrypted_content` if `seals`.
    """

    def __init__(self, *, scored: bool = False, seals: bool = False) -> None:
        self.items: list[dict[str, Any]] = []
        self._scored, self._seals = scored, seals
        self._open = False
        self._waiting: tuple[Score, ...] = ()
        """Of tokens without text of their own, such as parts of characters: the next text gets them."""

    def feed(self, delta: Delta) -> Iterator[Event]:
        """The events for a further piece."""
        if delta.reasoning or delta.call is not None:
            self._waiting = ()
        if self._scored and not (delta.reasoning and not delta.text):
            self._waiting += delta.scores
        if delta.reasoning:
            yield from self._part("reasoning", delta.reasoning, ())
        if delta.text:
            yield from self._part("message", delta.text, self._waiting)
            self._waiting = ()
        if delta.call is not None:
            yield from self._call(delta.call, "custom_tool_call" if delta.custom else "function_call")

    def finish(self, *, whole: bool) -> Iterator[Event]:
        """The events at the end of a reply, which was cut if it is not `whole`."""
        if not self.items:
            yield from self._begin("message")
        if self._waiting and self._open and self.items[-1]["type"] == "message":
            yield from self._part("message", "", self._waiting)
        yield from self._end("completed" if whole else "incomplete")

    def message(self) -> Message:
        """The reply as a message of the conversation."""
        texts = {"reasoning": "", "message": ""}
        for item in self.items:
            if item["type"] in texts:
                texts[item["type"]] += item["content"][0]["text"]
        calls = tuple(
            ToolCall(
                item["call_id"],
                item["name"],
                item["arguments"] if item["type"] == "function_call" else input_json(item[INPUT]),
            )
            for item in self.items
            if item["type"] in _CALLS
        )
        return Message("assistant", texts["message"], calls, reasoning=texts["reasoning"])

    def _part(self, kind: str, text: str, scores: Sequence[Score]) -> Iterator[Event]:
        """More of a text, or of a thought."""
        if not (self._open and self.items[-1]["type"] == kind):
            yield from self._end("completed")
            yield from self._begin(kind)
        part = self.items[-1]["content"][0]
        part["text"] += text
        more = {}
        if kind == "message":
            more["logprobs"] = scores_json(scores)
            part["logprobs"] += more["logprobs"]
        name = "output_text" if kind == "message" else "reasoning_text"
        yield self._in_item(f"response.{name}.delta", content_index=0, delta=text, **more)

    def _call(self, piece: CallPiece, kind: str) -> Iterator[Event]:
        """More of a call."""
        field, name = _CALLS[kind]
        if piece.name:
            yield from self._end("completed")
            yield from self._begin(kind, call_id=piece.id, name=piece.name, **{field: ""})
        if piece.arguments:
            self.items[-1][field] += piece.arguments
            yield self._in_item(f"response.{name}.delta", delta=piece.arguments)

    def _begin(self, kind: str, **fields: Any) -> Iterator[Event]:
        id = f"{_PREFIXES[kind]}_{secrets.token_hex(24)}"
        item = {"id": id, "type": kind, "status": "in_progress", **fields}
        if kind == "message":
            item |= {"role": "assistant", "content": []}
        elif kind == "reasoning":
            item |= {"summary": [], "content": [], "encrypted_content": None}
        self.items.append(item)
        self._open = True
        yield self._of_item("response.output_item.added")
        if kind not in _CALLS:
            part = _text_part() if kind == "message" else {"type": "reasoning_text", "text": ""}
            item["content"].append(part)
            yield self._in_item("response.content_part.added", content_index=0, part=dict(part))

    def _end(self, status: str) -> Iterator[Event]:
        """Close the open item, if there is one."""
        if not self._open:
            return
        self._open = False
        item = self.items[-1]
        item["status"] = status
        if item["type"] in _CALLS:
            field, name = _CALLS[item["type"]]
            done = {"name": item["name"]} if field == "arguments" else {}
            yield self._in_item(f"response.{name}.done", **done, **{field: item[field]})
        else:
            part = item["content"][0]
            more = {"logprobs": part["logprobs"]} if item["type"] == "message" else {}
            name = part["type"]
            if self._seals and item["type"] == "reasoning":
                item["encrypted_content"] = sealed(part["text"])
            yield self._in_item(f"response.{name}.done", content_index=0, text=part["text"], **more)
            yield self._in_item("response.content_part.done", content_index=0, part=dict(part))
        yield self._of_item("response.output_item.done")

    def _of_item(self, kind: str) -> Event:
        """An event with the whole item."""
        item = self.items[-1]
        shown = {name: list(value) if isinstance(value, list) else value for name, value in item.items()}
        return {"type": kind, "output_index": len(self.items) - 1, "item": shown}

    def _in_item(self, kind: str, **fields: Any) -> Event:
        """An event of a part of the item."""
        return {
            "type": kind, "item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **fields,
        }  # fmt: skip


_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_CALLS = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": (INPUT, "custom_tool_call_input"),
}
"""Items that are calls: the field that holds what is given to the tool, and its name in events."""


def _text_part() -> dict[str, Any]:
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
