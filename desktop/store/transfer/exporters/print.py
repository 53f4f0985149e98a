"""A conversation as a sequence of small pieces of HTML for Qt's rich text, printed one after another.

Pieces are small, so that a chat of any length is printed in bounded memory and no piece takes long. What Qt's
rich text cannot draw around a block (a background, a bar, a formula) is stated beside its HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any
from unicodedata import bidirectional

from desktop.blocks.spans import Span
from desktop.store.attachments.picture_marks import in_words
from desktop.store.attachments.pictures import StoredPicture
from desktop.store.conversations.records import NOTEBOOK
from desktop.store.transfer.exporters.footnotes import NOTE_BACK, NOTE_REF
from desktop.store.transfer.exporters.formulas import INLINE, ROW
from desktop.store.transfer.exporters.html import code_style, highlighted, make_renderer
from desktop.store.transfer.exporters.pictures import as_markdown, text_and_pictures
from desktop.store.transfer.exporters.reading import label, named_path, opened_in, pieces, when
from desktop.store.transfer.records import ConversationRecord, MessageRecord
from engine.lazy_dataclass import dataclass
from engine.words import _

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["FORMULA", "GRID", "Piece", "first_words", "print_pieces", "sheet"]

SHEET = """
body, p, li, td, th { color: #1c1c1e; line-height: 132%; }
p { margin: 0; }
li p { margin: 0; }
.title { font-size: 19pt; font-weight: bold; line-height: 112%; }
.h1 { font-size: 14.5pt; font-weight: bold; line-height: 115%; }
.h2 { font-size: 12.5pt; font-weight: bold; line-height: 115%; }
.h3 { font-size: 10.5pt; font-weight: bold; line-height: 115%; }
.date { color: #5c5c66; font-size: 8.5pt; }
.who { font-size: 9pt; font-weight: bold; color: #5c5c66; }
.notes p, .notes li { font-size: 8.5pt; }
.thoughts p, .thoughts li, .thoughts td { color: #5c5c66; }
ul, ol { margin: 0; }
blockquote { margin: 0; }
blockquote p, blockquote li { color: #5c5c66; }
pre, code { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 8.5pt; }
pre { white-space: pre-wrap; margin: 0; line-height: 125%; color: #1c1c1e; }
code { background-color: #f1f2f5; }
table.grid { border-collapse: collapse; border: 1px solid #c4c6d0; }
table.grid th, table.grid td { border: 1px solid #c4c6d0; font-size: 9pt; }
table.grid th { background-color: #f1f2f5; }
a { color: #1f56b3; }
"""
TYPED, CODE, LINE = "#f0f1f4", "#f6f7f9", "#c4c6d0"
"""Backgrounds of what the user typed and of code, and the colour of bars."""
GRID = 'class="grid"'
"""Marks the tables of the text, as opposed to those used for layout."""
_BOX = '<table width="100%" cellspacing="0" border="0" style="margin-top: 5px; margin-bottom: 6px" '
FORMULA = "formula:"
"""The address of a picture that stands for the formula with this number."""
CODE_LINES = 30
"""Lines of code in one piece."""
PLAIN_CHARACTERS = 4000
TABLE_ROWS = 60
"""Rows in one piece of a table; a longer table is split, and each piece repeats the head."""
LIST_ITEMS = 60
"""Items in one piece of a list."""
_HEADING = re.compile(r"<h([1-6])>(.*?)</h[1-6]>", re.DOTALL)
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def sheet(coloured: bool = True) -> str:
    """The style sheet of the pieces, with or without the colours of code, which take as long to parse as a
    short piece.
    """
    return SHEET + (code_style() if coloured else "")


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of HTML.

    `before` is the space above it in CSS pixels. A piece that `keeps` stays on the page of the next one.
    `ground` is a colour behind it and `bar` a line beside it; `begins` and `ends` say whether these start and
    end here, for a block cut into several pieces. `mark` is its entry in the outline.
    """

    html: str
    before: float = 8.0
    keeps: bool = False
    ground: str = ""
    bar: bool = False
    begins: bool = True
    ends: bool = True
    mark: str = ""
    formulas: tuple[Span, ...] = ()


def print_pieces(conversation: ConversationRecord) -> Iterator[Piece]:
    """The pieces in order: the head, then every message of the shown path."""
    made = when(conversation.created_at)
    yield Piece(
        f'<p class="title">{escape(" ".join(conversation.title.split()) or _("Chat"))}</p>', 0.0, True
    )
    if made:
        yield Piece(f'<p class="date">{made}</p>', 3.0, True)
    if conversation.system_prompt.strip() and conversation.kind != NOTEBOOK:
        yield _who(_("System prompt"))
        yield from (replace(piece, bar=True) for piece in _plain(conversation.system_prompt, ""))
    for message, is_named in named_path(conversation):
        if conversation.kind == NOTEBOOK:
            yield from _plain(message.text, "")
        else:
            yield from _message(message, is_named, conversation.pictures)


def first_words(text: str, most: int = 64) -> str:
    """At most this many characters of the text on one line, cut between words if possible, without control
    characters.
    """
    line = " ".join(_HIDDEN.sub(" ", text[: 8 * most]).split())
    if len(line) <= most:
        return line
    cut = line.rfind(" ", most // 2, most)
    return line[: cut if cut > 0 else most - 1].rstrip(" ,;:.") + "…"


def _who(words: str, mark: str = "") -> Piece:
    return Piece(f'<p class="who">{escape(words)}</p>', 20.0, True, mark=mark)


def _message(
    message: MessageRecord, is_named: bool, pictures: Mapping[str, StoredPicture]
) -> Iterator[Piece]:
    made = when(message.created_at)
    is_user = message.role == "user"
    mark = (first_words(in_words(message.text)) or "…") if is_user else ""
    if is_named:
        yield _who(label(message) + (f" · {made}" if made else ""), mark)
    if is_user:
        for is_html, part in text_and_pictures(message.text.strip("\n"), pictures):
            if is_html:
                yield Piece(f"<p>{part}</p>", 5.0)
                continue
            for piece in _plain(part, TYPED):
                yield replace(piece, before=5.0 if piece.begins else 0.0)
        return
    for is_thought, text in pieces(as_markdown(message.text, pictures), opened_in(message)):
        for piece in _rendered(text):
            if is_thought:
                piece = replace(piece, html=f'<div class="thoughts">{piece.html}</div>')
            yield replace(piece, bar=piece.bar or is_thought or message.call is not None)


def _plain(text: str, colour: str) -> Iterator[Piece]:
    """Text as typed, on a background of this colour."""
    parts = list(_cut(text.strip("\n")))
    for number, part in enumerate(parts):
        lines = (escape(line).replace("\t", "    ").replace("  ", "\u00a0 ") for line in part.split("\n"))
        html = "".join(f"<p>{line or '&nbsp;'}</p>" for line in lines)  # each line has its own direction
        yield Piece(
            html, 8.0 if not number else 0.0, ground=colour, begins=not number, ends=number == len(parts) - 1
        )


def _cut(text: str) -> Iterator[str]:
    """Parts of about 4000 characters, cut at line ends where possible."""
    while len(text) > PLAIN_CHARACTERS:
        place = text.rfind("\n", PLAIN_CHARACTERS // 2, PLAIN_CHARACTERS)
        place = place if place > 0 else text.rfind(" ", PLAIN_CHARACTERS // 2, PLAIN_CHARACTERS)
        place = place if place > 0 else PLAIN_CHARACTERS
        yield text[:place]
        text = text[place:].removeprefix("\n")
    if text.strip():
        yield text


def _rendered(text: str) -> Iterator[Piece]:
    """Markdown, as one piece for each block; code in pieces of some lines."""
    tokens = _printer().parse(text)
    start = depth = 0
    for place, token in enumerate(tokens):
        depth += token.nesting
        if depth:
            continue
        block = tokens[start : place + 1]
        start = place + 1
        if token.type in ("fence", "code_block"):
            yield from _code(token.content, token.info.split()[0] if token.info.split() else "")
        elif token.type == "table_close":
            yield from _table(block)
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            yield from _list(block)
        elif token.type == "heading_close":
            yield replace(_piece(block), before=15.0, keeps=True)
        elif token.type == "hr":
            yield Piece("<hr>", 10.0)
        else:
            # a paragraph that introduces the list or code after it
            leads = token.type == "paragraph_close" and block[-2].content.rstrip().endswith((":", "："))
            bar = token.type == "blockquote_close"
            yield replace(_piece(block), keeps=leads, bar=bar, before=11.0 if token.type == ROW else 8.0)


def _piece(tokens: Sequence[Token]) -> Piece:
    found, formulas = _printer(), dict[str, list[Span]](formulas=[])
    html = str(found.renderer.render(tokens, found.options, formulas))
    html = html.replace("<table>", f'<table {GRID} cellspacing="0" cellpadding="5">')
    html = html.replace("\n</code></pre>", "</code></pre>")
    # Qt's own heading sizes are too large
    html = _HEADING.sub(lambda head: f'<p class="h{min(int(head[1]), 3)}">{head[2]}</p>', html)
    return Piece(html, formulas=tuple(formulas["formulas"]))


def _table(tokens: Sequence[Token]) -> Iterator[Piece]:
    """The table; a long one as several with the same head. One in a right-to-left script is aligned right."""
    head = next((token.content for token in tokens if token.type == "inline" and token.content.strip()), "")
    if (
        next((bidirectional(letter) for letter in head if bidirectional(letter) in ("L", "R", "AL")), "L")
        != "L"
    ):
        for piece in _upright_table(_mirrored(tokens)):
            yield replace(piece, html=piece.html.replace("<table ", '<table align="right" '))
        return
    yield from _upright_table(tokens)


def _mirrored(tokens: Sequence[Token]) -> list[Token]:
    found: list[Token] = []
    row: list[list[Token]] = []
    for token in tokens:
        if token.type in ("th_open", "td_open"):
            row.append([])
        if row and token.type != "tr_close":
            row[-1].append(token)
            continue
        found += [part for cell in reversed(row) for part in cell]
        row = []
        found.append(token)
    return found


def _upright_table(tokens: Sequence[Token]) -> Iterator[Piece]:
    bodies = [place for place, token in enumerate(tokens) if token.type == "tbody_open"]
    ends = [
        place + 1
        for place, token in enumerate(tokens)
        if token.type == "tr_close" and bodies and place > bodies[0]
    ]
    if len(ends) <= TABLE_ROWS:
        yield _piece(tokens)
        return
    head, tail, begin = tokens[: bodies[0] + 1], tokens[ends[-1] :], bodies[0] + 1
    for end in [*ends[TABLE_ROWS - 1 : -1 : TABLE_ROWS], ends[-1]]:
        yield _piece([*head, *tokens[begin:end], *tail])
        begin = end


def _list(tokens: Sequence[Token]) -> Iterator[Piece]:
    """The list; a long one as several, each of which continues the numbering."""
    depth, ends = 0, []
    for place, token in enumerate(tokens):
        depth += token.nesting
        if depth == 1 and token.type == "list_item_close":
            ends.append(place + 1)
    first, begin = int(tokens[0].attrs.get("start", 1)), 1
    for number in range(0, len(ends), LIST_ITEMS):
        end = ends[min(number + LIST_ITEMS, len(ends)) - 1]
        head = (
            tokens[0]
            if not number or tokens[0].tag == "ul"
            else tokens[0].copy(attrs=tokens[0].attrs | {"start": first + number})
        )
        yield replace(_piece([head, *tokens[begin:end], tokens[-1]]), before=0.0 if number else 8.0)
        begin = end


def _code(code: str, language: str) -> Iterator[Piece]:
    # every element ends on its own line
    lines = (highlighted(code, language) or escape(code)).rstrip("\n").split("\n")
    for first in range(0, len(lines), CODE_LINES):
        body = "\n".join(lines[first : first + CODE_LINES])
        rest = first + CODE_LINES >= len(lines)
        yield Piece(
            f'<pre dir="ltr">{body}</pre>', 0.0 if first else 9.0, ground=CODE, begins=not first, ends=rest
        )


@lru_cache(maxsize=1)
def _printer() -> MarkdownIt:
    """Like the renderer of web pages, with numbers of formulas instead of MathML."""
    found = make_renderer()
    found.add_render_rule(INLINE, _formula)
    found.add_render_rule(ROW, _formula_row)
    found.add_render_rule("fence", _inner_code)
    found.add_render_rule("code_block", _inner_code)
    found.add_render_rule("blockquote_open", _quote_open)
    found.add_render_rule("blockquote_close", _quote_close)
    found.add_render_rule(
        NOTE_REF, lambda _renderer, tokens, index, *_unused: f"<sup>{int(tokens[index].meta['id']) + 1}</sup>"
    )
    found.add_render_rule(NOTE_BACK, lambda *_unused: "")
    return found


def _inner_code(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    """Code in a list, a quote or a note: a table of one cell, since only whole pieces have a background."""
    code, language = tokens[index].content, tokens[index].info.split()
    body = (highlighted(code, language[0] if language else "") or escape(code)).rstrip("\n")
    return f'{_BOX}bgcolor="{CODE}" cellpadding="7"><tr><td><pre dir="ltr">{body}</pre></td></tr></table>'


def _quote_open(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    """A nested quote has its bar as a narrow cell; a quote that is a piece of its own has it drawn."""
    if not tokens[index].level:
        return "<blockquote>"
    return (
        f'{_BOX}cellpadding="0"><tr><td width="3" bgcolor="{LINE}"></td><td width="13"></td><td><blockquote>'
    )


def _quote_close(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    return "</blockquote></td></tr></table>" if tokens[index].level else "</blockquote>"


def _formula(
    _renderer: Any, tokens: Sequence[Token], index: int, _options: Any, env: dict[str, list[Span]]
) -> str:
    env["formulas"].append(tokens[index].meta["span"])
    return f'<img src="{FORMULA}{len(env["formulas"]) - 1}">'


def _formula_row(
    renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: dict[str, list[Span]]
) -> str:
    return f'<p align="center">{_formula(renderer, tokens, index, options, env)}</p>'
