"""Whether a message with its files fits into the context, and how much of the files does.

These functions return questions for `ChatSession.ask`, which run on the engine's thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from desktop.services.session.pictures import sent
from desktop.store.attachments.message_format import Attachment, cut, cut_inside, join, lines_of
from desktop.store.attachments.passages import LENGTH, kept, matching, passages
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
    request: ChatRequest,
    files: tuple[Attachment, ...],
    text: str,
    *,
    by_match: bool = False,
    meaning: tuple[tuple[int, ...], ...] = (),
) -> Callable[[ChatSource], tuple[Attachment, ...]]:
    """The files, shortened so that `request`, whose last user message contains them, fits; longest first.

    Of each the beginning is kept, up to the end of a line, or a part of a single long line; `by_match` keeps
    the passages that match the user's own `text` best, if any does, in half of the room, so that those for
    later questions fit, too; `meaning` has for each file the numbers of its passages, those nearest in
    meaning first. If even the shortest form is too long, it is returned.
    """

    def over(source: ChatSource, found: list[Attachment]) -> int:
        """The number of tokens by which the request exceeds the context with these files."""
        place = max(number for number, message in enumerate(request.messages) if message.role == "user")
        new = sent("user", join(found, text))
        messages = (*request.messages[:place], new, *request.messages[place + 1 :])
        return source.size(dataclasses.replace(request, messages=messages)).over

    def answer(source: ChatSource) -> tuple[Attachment, ...]:
        found, spare = list(files), 0
        if by_match:
            spare = max(0, -over(source, [file for file in files if file.picture is not None])) // 2
        most = _CHARACTERS * source.size(ChatRequest((Message("user", "-"),))).context
        texts = [number for number, file in enumerate(found) if file.picture is None]
        for place in sorted(texts, key=lambda number: -len(found[number].text)):
            whole = found[place]
            if len(whole.text) <= most and over(source, found) <= 0:
                break
            most_parts, part = _parts(
                whole, most, text if by_match else "", meaning[place] if meaning else ()
            )
            low, high = 1, most_parts
            while low < high:
                middle = (low + high + 1) // 2
                found[place] = part(middle)
                fits = over(source, found) + spare <= 0
                low, high = (middle, high) if fits else (low, middle - 1)
            found[place] = part(low)
        return tuple(found)

    return answer


def _parts(
    file: Attachment, most: int, question: str, meaning: tuple[int, ...]
) -> tuple[int, Callable[[int], Attachment]]:
    """In how many steps a file can be lengthened up to `most` characters, and what it is after this many."""
    pieces = passages(file.text) if question else []
    if numbers := matching(pieces, question, meaning):
        return min(len(numbers), most // LENGTH + 1), lambda count: kept(file, pieces, numbers[:count])
    if lines_of(file.text) > 1:
        return lines_of(file.text[:most]), lambda count: cut(file, count)
    return min(most, len(file.text)), lambda count: cut_inside(file, count)


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
