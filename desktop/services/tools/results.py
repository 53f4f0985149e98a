"""The result of a tool's call as text for the model; its sentences are English in every language."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

__all__ = ["MOST_CHARACTERS", "bounded", "result_text"]

MOST_CHARACTERS = 100_000
"""More would fill the context of most models."""


def result_text(result: Any) -> tuple[str, bool]:
    """The text of a `CallToolResult`, and whether it is an error.

    Texts are joined; pictures, sounds and files become a sentence; without a text, the structured content is
    written as JSON.
    """
    texts = [_block_text(block) for block in result.content]
    if result.structured_content is not None and not any(
        isinstance(block, types.TextContent) and block.text for block in result.content
    ):
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = "\n\n".join(each for each in texts if each)
    if not text:
        text = "The tool reported an error." if result.is_error else "The tool returned nothing."
    return bounded(text), bool(result.is_error)


def bounded(text: str) -> str:
    """`text`, with a sentence in place of what is over the limit."""
    left = len(text) - MOST_CHARACTERS
    if left <= 0:
        return text
    return f"{text[:MOST_CHARACTERS]}\n\n[The result was too long: {left} more characters were left out.]"


def _block_text(block: Any) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.EmbeddedResource):
        found = block.resource
        if isinstance(found, types.TextResourceContents):
            return found.text
        return _left_out("file", found.mime_type, str(found.uri))
    if isinstance(block, types.ResourceLink):
        about = f": {block.description}" if block.description else ""
        return f"[A link to {block.name} ({block.uri}){about}]"
    if isinstance(block, types.ImageContent):
        return _left_out("picture", block.mime_type)
    if isinstance(block, types.AudioContent):
        return _left_out("sound", block.mime_type)
    return _left_out("part", getattr(block, "type", None))


def _left_out(what: str, kind: str | None, name: str = "") -> str:
    facts = ", ".join(each for each in (name, kind) if each)
    return f"[The tool returned a {what}{f' ({facts})' if facts else ''}, which cannot be shown to you.]"
