"""Markdown for a model to read: tables, and what HTML becomes."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["from_html", "table"]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table, the first of them as its head; empty without any text."""
    if not any(cell.strip() for row in rows for cell in row):
        return ""
    width = max(map(len, rows))
    lines = ["| " + " | ".join(map(_cell, [*row, *[""] * (width - len(row))])) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def from_html(html: str, *, links: bool = True) -> str:
    """What stands in the body of HTML, or XHTML, without pictures; without `links` their texts stay."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    page = BeautifulSoup(html, "html.parser")
    for unsaid in page.find_all(["script", "style", "img", "svg"]):
        unsaid.decompose()
    for string in page.find_all(string=re.compile(r"\|")):
        if string.find_parent(["td", "th"]):
            string.replace_with(string.replace("|", r"\|"))
    converter = MarkdownConverter(
        heading_style="ATX", bullets="-", strip=[] if links else ["a"], table_infer_header=True,
        escape_asterisks=False, escape_underscores=False,
    )  # fmt: skip
    text: str = converter.convert_soup(page.body or page)
    return re.sub(r"\n[ \t]*(?:\n[ \t]*)+", "\n\n", text).strip()
