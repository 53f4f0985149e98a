"""Footnotes in exported Markdown: small numbers in the text, and the notes as a numbered list at the end.

The plugin `mdit-py-plugins` finds them. It drops notes that nothing refers to, and the first of two notes
with one label; here every note is listed: first those that are referred to, in the order of the references,
then the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

__all__ = ["NOTE_BACK", "NOTE_REF", "add_footnotes"]

NOTE_REF, NOTE_BACK = "footnote_ref", "footnote_back"
"""Token types: a number in the text, and the links from a note back to it.

`meta` has `id`, and `subId` or `count`.
"""


def add_footnotes(markdown: MarkdownIt) -> MarkdownIt:
    """Make the parser recognise footnotes. `env["page"]` distinguishes the notes of several texts on one
    page.
    """
    from mdit_py_plugins.footnote import footnote_plugin

    markdown.use(footnote_plugin, inline=False, move_to_end=False)
    markdown.core.ruler.after("inline", "footnotes", _to_end)
    markdown.add_render_rule(NOTE_REF, _reference)
    markdown.add_render_rule(NOTE_BACK, _back_links)
    return markdown


def _to_end(state: StateCore) -> None:
    known: dict[str, Any] = state.env.get("footnotes") or {}
    numbers: dict[str, int] = dict(known.get("refs", {}))  # -1 for a note that nothing refers to
    counts = {number: int(note.get("count", 0)) for number, note in known.get("list", {}).items()}
    text: list[Token] = []
    notes: list[tuple[int, list[Token]]] = []
    open_notes: list[list[Token]] = []
    free = len(counts)
    for token in state.tokens:
        if token.type == "footnote_reference_open":
            number = numbers.pop(f":{token.meta['label']}", -1)
            if number < 0:
                number, free = free, free + 1
            open_notes.append([])
            notes.append((number, open_notes[-1]))
        elif token.type == "footnote_reference_close":
            open_notes.pop()
        else:
            (open_notes[-1] if open_notes else text).append(token)
    state.tokens = [*text, *_listed(state, sorted(notes, key=lambda note: note[0]), counts)]


def _listed(
    state: StateCore, notes: Sequence[tuple[int, list[Token]]], counts: dict[int, int]
) -> list[Token]:
    from markdown_it.token import Token

    if not notes:
        return []
    found = [Token("ordered_list_open", "ol", 1, block=True, attrs={"class": "notes"})]
    for number, tokens in notes:
        back = Token(NOTE_BACK, "", 0, meta={"id": number, "count": counts.get(number, 0)})
        inside = (
            [*tokens[:-1], back, tokens[-1]]
            if tokens and tokens[-1].type == "paragraph_close"
            else [*tokens, back]
        )
        place = {"id": f"note-{_page(state.env)}-{number + 1}"}
        found += [
            Token("list_item_open", "li", 1, block=True, attrs=dict(place)),
            *inside,
            Token("list_item_close", "li", -1, block=True),
        ]
    return [*found, Token("ordered_list_close", "ol", -1, block=True)]


def _page(env: Any) -> str:
    return escape(str(env.get("page", 0)))


def _reference(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, env: Any) -> str:
    number, again, page = int(tokens[index].meta["id"]) + 1, int(tokens[index].meta["subId"]), _page(env)
    return f'<sup><a href="#note-{page}-{number}" id="to-note-{page}-{number}-{again}">{number}</a></sup>'


def _back_links(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, env: Any) -> str:
    number, count, page = int(tokens[index].meta["id"]) + 1, int(tokens[index].meta["count"]), _page(env)
    return "".join(f' <a href="#to-note-{page}-{number}-{again}">\u21a9\ufe0e</a>' for again in range(count))
