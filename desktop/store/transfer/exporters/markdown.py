"""A conversation as Markdown (CommonMark): the shown path, a heading for each author, thoughts and calls of
tools as quotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from desktop.store.conversations.records import NOTEBOOK
from desktop.store.transfer.exporters.pictures import as_markdown
from desktop.store.transfer.exporters.reading import label, named_path, opened_in, pieces, when
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.words import _

__all__ = ["markdown"]


def markdown(conversations: Iterable[ConversationRecord]) -> Iterator[str]:
    """Yield the text of the file, one conversation at a time, separated by rules."""
    separator = ""
    for conversation in conversations:
        yield separator + "\n\n".join(_parts(conversation)) + "\n"
        separator = "\n---\n\n"


def _parts(conversation: ConversationRecord) -> Iterator[str]:
    yield f"# {_escaped(conversation.title) or _('Chat')}"
    if made := when(conversation.created_at):
        yield f"*{made}*"
    if conversation.system_prompt.strip() and conversation.kind != NOTEBOOK:
        yield f"## {_('System prompt')}"
        yield conversation.system_prompt.strip("\n")
    for message, is_named in named_path(conversation):
        if conversation.kind == NOTEBOOK:
            yield message.text
        else:
            yield from _message(message, conversation, is_named)


def _message(message: MessageRecord, conversation: ConversationRecord, is_named: bool) -> Iterator[str]:
    made = when(message.created_at)
    heading = _escaped(label(message))
    if message.call is not None:
        yield _quoted(as_markdown(message.text, conversation.pictures), heading)
        return
    if is_named:
        yield f"## {heading}" + (f" · {made}" if made else "")
    if message.role == "user":
        yield as_markdown(message.text.strip("\n"), conversation.pictures)
        return
    for is_thought, text in pieces(as_markdown(message.text, conversation.pictures), opened_in(message)):
        yield _quoted(text, _("Thoughts")) if is_thought else text


def _quoted(text: str, heading: str) -> str:
    return "\n".join([f"> **{heading}**", ">", *(f"> {line}".rstrip() for line in text.strip().splitlines())])


def _escaped(text: str) -> str:
    """The text on one line, escaped so that Markdown leaves it alone."""
    line = " ".join(text.split())
    return "".join("\\" + character if character in "\\`*_[]<>#&~" else character for character in line)
