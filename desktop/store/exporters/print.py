"""A conversation as a row of small pieces of HTML for Qt's rich text, which are printed one after another.

Pieces are small, so that a chat of any length is printed in bounded memory and no piece takes long. What Qt's rich text cannot
draw around a block (padding, a frame) is a table of one cell here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from desktop.store.exchange import ConversationRecord, MessageRecord
from desktop.store.exporters.html import code_style, highlighted, renderer
from desktop.store.exporters.reading import label, pieces, shown_path, when
from desktop.store.records import NOTEBOOK

__all__ = ["Piece", "print_pieces", "sheet"]

SHEET = """
body, p, li, td, th { color: #1c1c1e; }
.title { font-size: 18pt; font-weight: bold; }
.h1 { font-size: 14pt; font-weight: bold; } .h2 { font-size: 12pt; font-weight: bold; } .h3 { font-size: 10.5pt; font-weight: bold; }
p { margin: 0; }
.date { color: #5c5c66; font-size: 8.5pt; }
.who { font-size: 9pt; font-weight: bold; color: #5c5c66; }
.thoughts, .thoughts p, .thoughts li { color: #5c5c66; font-style: italic; }
ul, ol { margin: 0; }
blockquote p, blockquote li { color: #5c5c66; margin-left: 18px; }
pre, code { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 8.5pt; }
pre { white-space: pre-wrap; margin: 0; }
table.grid { border-collapse: collapse; border: 1px solid #c4c6d0; }
table.grid th, table.grid td { border: 1px solid #c4c6d0; }
a { color: #1f56b3; }
"""
CODE_LINES = 30
"""Lines of code in one piece."""
PLAIN_CHARACTERS = 4000
_HEADING = re.compile(r"<h([1-6])>(.*?)</h[1-6]>", re.DOTALL)


def sheet() -> str:
    """The style sheet of all pieces."""
    return SHEET + code_style()


class Piece(NamedTuple):
    """`before` is the gap above it and `room` what must be left of a page to begin it there, both in CSS pixels."""

    html: str
    before: float = 7.0
    room: float = 48.0


def print_pieces(conversation: ConversationRecord) -> Iterator[Piece]:
    """The pieces, in order: the head, then every message of the shown path."""
    yield Piece(f'<p class="title">{escape(" ".join(conversation.title.split()) or "Conversation")}</p>', 0.0)
    if made := when(conversation.created_at):
        yield Piece(f'<p class="date">{made}</p>', 2.0)
    if conversation.system_prompt.strip() and conversation.kind != NOTEBOOK:
        yield _who("System prompt")
        yield from _plain(conversation.system_prompt, "#ffffff")
    for message in shown_path(conversation):
        yield from _plain(message.text, "#ffffff") if conversation.kind == NOTEBOOK else _message(message)


def _who(words: str) -> Piece:
    return Piece(f'<p class="who">{escape(words)}</p>', 18.0, 110.0)


def _message(message: MessageRecord) -> Iterator[Piece]:
    made = when(message.created_at)
    yield _who(label(message) + (f" · {made}" if made else ""))
    if message.role == "user":
        yield from _plain(message.text, "#f0f1f4")
        return
    for is_thought, text in pieces(message.text):
        for piece in _rendered(text):
            yield piece._replace(html=f'<div class="thoughts">{piece.html}</div>') if is_thought else piece


def _plain(text: str, colour: str) -> Iterator[Piece]:
    """Text as it was typed, on a ground of this colour."""
    for number, part in enumerate(_cut(text.strip("\n"))):
        lines = escape(part).replace("\t", "    ").replace("  ", "\u00a0 ").replace("\n", "<br>")
        yield _boxed(f"<p>{lines}</p>", colour, number > 0)


def _cut(text: str) -> Iterator[str]:
    """Parts of some 4000 characters, cut at ends of lines where there are some."""
    while len(text) > PLAIN_CHARACTERS:
        place = text.rfind("\n", PLAIN_CHARACTERS // 2, PLAIN_CHARACTERS)
        place = place if place > 0 else text.rfind(" ", PLAIN_CHARACTERS // 2, PLAIN_CHARACTERS)
        place = place if place > 0 else PLAIN_CHARACTERS
        yield text[:place]
        text = text[place:].removeprefix("\n")
    if text.strip():
        yield text


def _rendered(text: str) -> Iterator[Piece]:
    """Markdown, a piece for each of its blocks; code in pieces of some lines."""
    found = renderer()
    tokens = found.parse(text)
    start = depth = 0
    for place, token in enumerate(tokens):
        depth += token.nesting
        if depth:
            continue
        if token.type in ("fence", "code_block"):
            yield from _code(token.content, token.info.split()[0] if token.info.split() else "")
        else:
            html = str(found.renderer.render(tokens[start : place + 1], found.options, {}))
            html = html.replace("<table>", '<table class="grid" cellspacing="0" cellpadding="5">')
            html = _HEADING.sub(lambda found: f'<p class="h{min(int(found[1]), 3)}">{found[2]}</p>', html)  # Qt's own sizes are large
            yield Piece(html, *((12.0, 90.0) if token.type == "heading_close" else ()))
        start = place + 1


def _code(code: str, language: str) -> Iterator[Piece]:
    lines = (highlighted(code, language) or escape(code)).rstrip("\n").split("\n")  # each line is closed for itself
    for first in range(0, len(lines), CODE_LINES):
        body = "\n".join(lines[first : first + CODE_LINES])
        yield _boxed(f'<pre dir="ltr">{body}</pre>', "#f6f7f9", first > 0)


def _boxed(body: str, colour: str, goes_on: bool) -> Piece:
    """On a ground of its own; one that `goes_on` stands close below the one before."""
    table = f'<table width="100%" cellspacing="0" cellpadding="6" bgcolor="{colour}"><tr><td>{body}</td></tr></table>'
    return Piece(table, 0.0 if goes_on else 7.0)
