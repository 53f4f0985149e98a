"""Jupyter notebooks (.ipynb). nbformat 3 and 4."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["read"]


def read(path: str) -> str:
    """The cells as Markdown, and the text of their results, without pictures. Raises ValueError for another
    file.
    """
    with open(path, encoding="utf-8-sig") as file:
        book = json.load(file)
    if not isinstance(book, dict):
        raise ValueError("a notebook is an object")
    sheets = book.get("worksheets", [book])
    language = book.get("metadata", {}).get("kernelspec", {}).get("language", "") or "python"
    blocks: list[str] = []
    for cell in (cell for sheet in sheets for cell in sheet["cells"]):
        text = _joined(cell.get("source", cell.get("input", ""))).strip("\n")
        if cell["cell_type"] != "code":
            blocks.append(text)
        elif text:
            blocks.append(_fenced(text, language))
        blocks += [_fenced(text, "") for text in _results(cell.get("outputs", ())) if text.strip()]
    return "\n\n".join(filter(str.strip, blocks))


def _results(outputs: Any) -> Iterator[str]:
    for output in outputs:
        kind = output.get("output_type")
        if kind in ("error", "pyerr"):
            yield f"{output.get('ename', '')}: {output.get('evalue', '')}"
        else:
            data: Mapping[str, Any] = output.get("data", {})
            yield _joined(output.get("text", data.get("text/plain", ""))).strip("\n")


def _joined(text: Any) -> str:
    """A text, which may be a list of its lines."""
    return text if isinstance(text, str) else "".join(map(str, text))


def _fenced(text: str, language: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
