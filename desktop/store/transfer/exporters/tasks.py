"""Task list items in exported Markdown: `[ ]` and `[x]` become boxes (GitHub Flavored Markdown, 5.3)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore

__all__ = ["add_tasks"]

_MARK = re.compile(r"\[([ xX])\]\s+(?=\S)")


def add_tasks(markdown: MarkdownIt) -> MarkdownIt:
    """Make the parser recognise task list items, which get the class `task`."""
    markdown.core.ruler.after("block", "tasks", _tasks)
    return markdown


def _tasks(state: StateCore) -> None:
    for place in range(2, len(state.tokens)):
        item, paragraph, text = state.tokens[place - 2 : place + 1]
        if (item.type, paragraph.type, text.type) != ("list_item_open", "paragraph_open", "inline"):
            continue
        mark = _MARK.match(text.content)
        if mark is not None:
            text.content = f"{'☐' if mark[1] == ' ' else '☑'} {text.content[mark.end() :]}"
            item.attrSet("class", "task")
