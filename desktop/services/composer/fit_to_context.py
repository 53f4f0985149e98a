"""Whether a message with its files fits into the context, and how much of the files does.

These functions return questions for `ChatSession.ask`, which run on the engine's thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from desktop.services.session.pictures import sent
from desktop.store.attachments.message_format import Attachment, cut, cut_inside, join, lines_of
from engine.core import ChatRequest, ChatSource, Message, PromptSize
from engine.words import _, ngettext

__all__ = ["fitted", "over_text", "shortened", "size_of"]

_CHARACTERS = 8
"""More characters than tokens have in most texts: a longer text cannot fit and need not be counted."""


def size_of(request: ChatRequest) -> Callable[[ChatSource], PromptSize]:
    """The size of the prompt. A message many times longer than the context is counted in part and
    extrapolated.
    """
    place = max(number for number, message in enumerate(request.messages) if message.role == "user")
    text = request.messages[place].content

    def answer(source: ChatSource) -> PromptSize:
        most = 4 * _CHARACTERS * source.size(ChatRequest((Message("user", "-"),))).context
        if len(text) <= most:
            return source.size(request)
        part = dataclasses.replace(request.messages[place], content=text[:most])
        size = source.size(
            dataclasses.replace(
                request, messages=(*request.messages[:place], part, *request.messages[place + 1 :])
            )
        )
        return dataclasses.replace(size, prompt=size.prompt * len(text) // most, exact=False)

    return answer


def over_text(size: PromptSize) -> str:
    """By how much a prompt is too long: "1 token", "1,234 tokens", "about 120,000 tokens"."""
    if not size.exact:
        return _("about {number:,.0f} tokens", number=float(f"{size.over:.2g}"))
    return ngettext("{n} token", "{n} tokens", size.over)


def fitted(
    request: ChatRequest, files: tuple[Attachment, ...], text: str
) -> Callable[[ChatSource], tuple[Attachment, ...]]:
    """The files, shortened so that `request`, whose last user message contains them, fits; longest first.

    Files are cut between lines, or inside a single long line. If even their beginnings are too long, those
    are returned.
    """

    def over(source: ChatSource, found: list[Attachment]) -> int:
        """The number of tokens by which the request exceeds the context with these files."""
        place = max(number for number, message in enumerate(request.messages) if message.role == "user")
        new = sent("user", join(found, text))
        messages = (*request.messages[:place], new, *request.messages[place + 1 :])
        return source.size(dataclasses.replace(request, messages=messages)).over

    def answer(source: ChatSource) -> tuple[Attachment, ...]:
        found = list(files)
        most = _CHARACTERS * source.size(ChatRequest((Message("user", "-"),))).context
        texts = [number for number, file in enumerate(found) if file.picture is None]
        for place in sorted(texts, key=lambda number: -len(found[number].text)):
            whole = found[place]
            if len(whole.text) <= most and over(source, found) <= 0:
                break
            by_lines = lines_of(whole.text) > 1
            low, high = 1, lines_of(whole.text[:most]) if by_lines else min(most, len(whole.text))
            while low < high:
                middle = (low + high + 1) // 2
                found[place] = cut(whole, middle) if by_lines else cut_inside(whole, middle)
                low, high = (middle, high) if over(source, found) <= 0 else (low, middle - 1)
            found[place] = cut(whole, low) if by_lines else cut_inside(whole, low)
        return tuple(found)

    return answer


def shortened(request: ChatRequest) -> Callable[[ChatSource], str]:
    """The beginning of the last user message of `request` that fits, cut after a word."""
    place = max(number for number, message in enumerate(request.messages) if message.role == "user")
    text = request.messages[place].content

    def answer(source: ChatSource) -> str:
        low, high = 1, min(len(text), _CHARACTERS * source.size(ChatRequest((Message("user", "-"),))).context)
        while low < high:
            middle = (low + high + 1) // 2
            part = dataclasses.replace(request.messages[place], content=text[:middle])
            messages = (*request.messages[:place], part, *request.messages[place + 1 :])
            fits = source.size(dataclasses.replace(request, messages=messages)).over <= 0
            low, high = (middle, high) if fits else (low, middle - 1)
        found = text[:low]
        space = max(found.rfind(" "), found.rfind("\n"))
        return found if low == len(text) or space < low // 2 else found[:space].rstrip()

    return answer
