"""HTML elements that format text (`<b>`, `<sub>`, `<kbd>`) in exports, as the chat shows them.

All other HTML is shown as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from desktop.blocks.parser import with_html

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

__all__ = ["add_inline_html"]

_NAMES = {"summary": "strong"}
"""Elements that need others around them."""


def add_inline_html(markdown: MarkdownIt) -> MarkdownIt:
    """Make the parser recognise these elements; they are written without attributes."""
    markdown.disable("html_block").core.ruler.after("inline", "inline_html", _find)
    markdown.add_render_rule("html_open", _open)
    markdown.add_render_rule("html_close", _close)
    return markdown


def _find(state: StateCore) -> None:
    for token in state.tokens:
        if token.children and any(child.type == "html_inline" for child in token.children):
            token.children = with_html(token.children)


def _open(_renderer: Any, tokens: Sequence[Token], index: int, *_unused: Any) -> str:
    return f"<{_NAMES.get(tokens[index].tag, tokens[index].tag)}>"


def _close(_renderer: Any, tokens: Sequence[Token], index: int, *_unused: Any) -> str:
    return f"</{_NAMES.get(tokens[index].tag, tokens[index].tag)}>"
