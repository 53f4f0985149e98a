"""From the path of stored messages to what the model is asked, and to the rows of the transcript."""

from __future__ import annotations

from collections.abc import Sequence

from desktop.items.chats.messages import MessageItem, MessagesModel
from desktop.services.session.pictures import SentMessages
from desktop.store.conversations.records import HIDDEN, StoredMessage
from engine.core import Message

__all__ = ["find_item", "request_messages", "show_items"]


def request_messages(
    system_prompt: str, path: Sequence[StoredMessage], last: int | None, made: SentMessages
) -> tuple[Message, ...]:
    """The system prompt (unless empty) and the messages of `path` up to `last`, included; None for none.
    `made` makes them.
    """
    found = [Message("system", system_prompt)] if system_prompt.strip() else []
    if last is not None:
        end = [message.id for message in path].index(last) + 1
        turns = ((each.role, each.text, each.call) for each in path[:end] if each.role != HIDDEN)
        found += made.of(path[0].conversation_id, turns)
    return tuple(found)


def find_item(model: MessagesModel, message_id: int) -> MessageItem | None:
    """The message as it is shown; None if it is not."""
    try:
        return model.item(message_id)
    except KeyError:
        return None


def show_items(model: MessagesModel, target: Sequence[MessageItem]) -> None:
    """Make the model show `target` with few changes, so that the transcript keeps its position and its rows.

    Up to the first different message, rows are replaced only where they changed; there, one version replaces
    another; the rows below are removed, and the rest is appended.
    """
    present = model.items()
    common = 0
    while common < min(len(present), len(target)) and present[common].id == target[common].id:
        common += 1
    for old, new in zip(present[:common], target[:common], strict=True):
        if old is not new and old != new:
            model.replace(old.id, new)
    turns_into = common < min(len(present), len(target)) and present[common].role == target[common].role
    first_gone = common + 1 if turns_into else common
    model.remove([item.id for item in present[first_gone:]])
    if turns_into:
        model.replace(present[common].id, target[common])
    model.extend(target[first_gone:])
