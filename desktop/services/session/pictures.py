"""Pictures on their way from messages to a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from desktop.store.attachments.picture_marks import in_words, marks
from desktop.store.attachments.pictures import StoredPicture
from desktop.store.conversations.path_cache import MOST
from desktop.store.conversations.tool_calls import NOT_ALLOWED, UNFINISHED, StoredCall
from engine.core import ChatRequest, Message, ModelInfo, Picture, ToolCall
from engine.words import ngettext

__all__ = ["SentMessages", "not_sent", "sent", "with_data"]


def sent(role: str, text: str, calls: tuple[StoredCall, ...] = ()) -> Message:
    """A stored text as a message to a model: each mark of a picture becomes its words and, in a message of
    the user, the picture itself, still without its bytes. `calls` are those that a reply made, or the one
    that a tool's message is the result of.
    """
    if role == "tool" and calls:
        call = calls[0]
        result = text or (NOT_ALLOWED if call.waiting else UNFINISHED)
        return Message(role, result, tool_call_id=call.id, name=call.name)
    if calls:
        made = tuple(ToolCall(call.id, call.name, call.arguments) for call in calls)
        return Message(role, in_words(text), tool_calls=made)
    found = marks(text)
    if not found:
        return Message(role, text)
    pictures = tuple(Picture(mark.name, mark.key, mark.width, mark.height) for mark in found)
    return Message(role, in_words(text), pictures=pictures if role == "user" else ())


_Turn = tuple[str, str, tuple[StoredCall, ...]]
"""The arguments of `sent`."""


class SentMessages:
    """What `sent` makes of the texts of chats. Those of a chat's last call are kept, for as many chats as
    `PathCache` keeps: making 10,000 again after each reply would stop the window for a tenth of a second.
    """

    def __init__(self) -> None:
        self._kept: dict[int, dict[_Turn, Message]] = {}

    def of(self, conversation: int, turns: Iterable[tuple[str, str, StoredCall | None]]) -> list[Message]:
        """The messages for these roles and texts; results with their calls follow the reply that made
        them.
        """
        before = self._kept.pop(conversation, {})
        kept, found = dict[_Turn, Message](), list[Message]()
        for each in _with_calls(list(turns)):
            message = before.get(each)
            kept[each] = message = sent(*each) if message is None else message
            found.append(message)
        self._kept[conversation] = kept
        if len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]
        return found


def _with_calls(turns: list[tuple[str, str, StoredCall | None]]) -> Iterator[_Turn]:
    for place, (role, text, call) in enumerate(turns):
        if role == "assistant":
            calls, after = list[StoredCall](), place + 1
            while after < len(turns) and (made := turns[after][2]) is not None:
                calls.append(made)
                after += 1
            yield role, text, tuple(calls)
        else:
            yield role, text, () if call is None else (call,)


def with_data(request: ChatRequest, read: Callable[[str], StoredPicture | None]) -> ChatRequest:
    """The request with the bytes of its pictures, which `read` finds by their keys. Raises what that does."""
    if not any(message.pictures for message in request.messages):
        return request

    def filled(picture: Picture) -> Picture:
        found = read(picture.key)
        if found is None:
            return picture
        return dataclasses.replace(picture, media_type=found.media_type, data=found.data)

    messages = tuple(
        dataclasses.replace(message, pictures=tuple(map(filled, message.pictures)))
        if message.pictures
        else message
        for message in request.messages
    )
    return dataclasses.replace(request, messages=messages)


def not_sent(texts: Iterable[str], model: ModelInfo | None) -> str:
    """What of these texts' pictures a model does not get, and why; "" if it gets all."""
    reason = model.why_no_pictures if model is not None else ""
    count = sum(len(marks(text)) for text in texts) if reason else 0
    if not count:
        return ""
    what = ngettext(
        "{n} picture of this chat is not sent; the model reads its name instead.",
        "{n} pictures of this chat are not sent; the model reads their names instead.",
        count,
    )
    return f"{what} {reason}"
