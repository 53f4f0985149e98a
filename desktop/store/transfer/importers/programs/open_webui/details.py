"""What Open WebUI writes into replies as HTML `<details>` (thoughts, tool calls, executed code), in this
program's form.

Source: `serialize_content_blocks` in backend/open_webui/utils/middleware.py of open-webui/open-webui.
"""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

from desktop.store.transfer.importers.parts import join, thought, tool_call, tool_result

__all__ = ["without_details"]

_BEGIN = re.compile(r'<details\s{1,9}type="(reasoning|tool_calls|code_interpreter)"', re.IGNORECASE)
_ATTRIBUTE = re.compile(r'([\w-]{1,40})="([^"]*)"')
_END = "</details>"


def without_details(text: str) -> str:
    """The text with these elements as other imports write them; unknown types and unclosed elements stay."""
    parts: list[str] = []
    place = 0
    while found := _BEGIN.search(text, place):
        tag_end = text.find(">", found.end())
        end = text.find(_END, tag_end) if tag_end >= 0 else -1
        if end < 0:
            break
        inner = text[tag_end + 1 : end].strip()
        if inner.startswith("<summary>"):
            inner = inner.partition("</summary>")[2].strip()
        about = {name: unescape(value) for name, value in _ATTRIBUTE.findall(text[found.end() : tag_end])}
        parts += [text[place : found.start()], _words(found[1].lower(), about, inner)]
        place = end + len(_END)
    return join([*parts, text[place:]]) if parts else text


def _words(kind: str, about: dict[str, str], inner: str) -> str:
    if kind == "reasoning":
        return thought(_unquoted(inner))
    if kind == "code_interpreter":
        output = _value(about.get("output", ""))
        return join([inner, tool_result("", _text(output)) if output else ""])
    given = _value(about.get("arguments", ""))
    result = _value(about.get("result", ""))
    return join(
        [tool_call(about.get("name", ""), given), tool_result("", _text(result)) if result else "", inner]
    )


def _value(words: str) -> Any:
    """The JSON value in a text, which may be encoded twice; otherwise the text itself."""
    value: Any = words
    for _ in range(2):
        try:
            value = json.loads(value) if isinstance(value, str) and value.strip() else value
        except (ValueError, RecursionError):
            break
    return value


def _text(value: Any) -> str:
    """The text of a result: the lines as written if the result holds little else."""
    if isinstance(value, dict) and all(isinstance(inner, str) for inner in value.values()):
        return "\n".join(
            inner if name in ("stdout", "result") else f"{name}: {inner}"
            for name, inner in value.items()
            if inner
        )
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _unquoted(text: str) -> str:
    """The text without quote marks; if these are escaped, the whole text was."""
    lines = text.splitlines()
    if all(line.startswith((">", "&gt;")) or not line.strip() for line in lines):
        if any(line.startswith("&gt;") for line in lines):
            lines = [unescape(line) for line in lines]
        lines = [re.sub(r"^> ?", "", line) for line in lines]
    return "\n".join(lines)
