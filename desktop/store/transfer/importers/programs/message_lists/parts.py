"""What a message says, as text: its content, which is a text or a list of parts, in any of the usual shapes.

Shapes: the chat, Responses and Messages APIs of OpenAI and Anthropic, Google's `parts`, the AI SDK's parts of
messages, and those of Chatbox, LibreChat, Big-AGI and Cherry Studio, which differ from these in names alone.
"""

from __future__ import annotations

from typing import Any

from desktop.store.transfer.importers.fields import compact, first_text, items, mapping, rest, text
from desktop.store.transfer.importers.parts import (
    document,
    fenced,
    join,
    part_picture,
    picture,
    placeholder,
    thought,
    tool_call,
    tool_result,
)

__all__ = ["call_words", "is_plain", "is_result", "is_thought", "part_words"]

_THOUGHTS = ("reasoning", "thinking", "think", "thought")
_RESULTS = ("tool_result", "tool-result", "tool_response", "function_response")
_FILES = ("file", "document", "doc", "image", "image_ref", "audio", "video", "input_file")
_NAMES = ("toolName", "tool_name", "name", "apiName", "toolId", "tool")
_ARGUMENTS = ("arguments", "args", "input", "parameters")
_OUTPUTS = ("output", "result", "response", "content")
_SILENT = ("step-start", "info", "citation", "unknown", "SEARCH", "READ_LINK")
"""Parts without anything for a reader."""


def is_plain(part: Any) -> bool:
    """Whether a part is a text and nothing else."""
    about = mapping(part)
    says = isinstance(about.get("text"), str) and not is_thought(part)
    return isinstance(part, str) or (says and not rest(about, "type", "text"))


def is_thought(part: Any) -> bool:
    """Whether a part is what the model thought."""
    return text(mapping(part).get("type")).lower() in _THOUGHTS


def is_result(part: Any) -> bool:
    """Whether a part is what a tool returned."""
    about = mapping(part)
    return about.get("type") in _RESULTS or "functionResponse" in about


def part_words(part: Any) -> str:
    """One part of a message as text."""
    if not isinstance(part, dict):
        return text(part)
    inner = part.get("part")  # Big-AGI's fragments
    about = inner | {"title": part.get("title")} if isinstance(inner, dict) else part
    kind = first_text(about.get("type"), about.get("pt"), about.get("ft"))
    lower = kind.lower()
    if kind in _SILENT:
        return ""
    if lower in _THOUGHTS or about.get("thought") is True or about.get("aType") == "reasoning":
        return thought(_said(about))
    if url := _picture(about):
        return picture(text(url), first_text(about.get("name"), about.get("filename")), "image")
    if kind in _RESULTS or is_result(about):
        return _result(about)
    if "tool" in lower or "function" in lower or "functionCall" in about:
        return call_words(about)
    if kind == "code":
        return fenced(first_text(about.get("content"), about.get("code")), text(about.get("language")))
    if kind in _FILES:
        return _file(about, kind)
    return _said(about) or text(about.get("error")) or placeholder(kind or "unknown")


def call_words(call: Any) -> str:
    """A call of a tool, with what it returned if that is said beside it."""
    about = mapping(call)
    inner = next(
        (
            about[name]
            for name in ("function", "functionCall", "tool_call", "toolInvocation", "invocation")
            if isinstance(about.get(name), dict)
        ),
        about,
    )
    raw = mapping(mapping(about.get("metadata")).get("rawMcpToolResponse"))
    name = first_text(*(inner.get(name) for name in _NAMES), mapping(raw.get("tool")).get("name"))
    given = next((inner[one] for one in _ARGUMENTS if inner.get(one) is not None), raw.get("arguments"))
    if inner.get("code"):
        name, given = name or "code", {"language": inner.get("language"), "code": inner["code"]}
    came = next((inner[one] for one in _OUTPUTS if inner.get(one) not in (None, "")), raw.get("response"))
    words = tool_call(name or text(about.get("type")).removeprefix("tool-"), given)
    return join([words, tool_result(name, _returned(came))]) if came not in (None, "") else words


def _result(about: dict[str, Any]) -> str:
    inner = mapping(about.get("functionResponse")) or mapping(about.get("response")) or about
    names = ("content", "output", "result", "response")
    came = next((inner[one] for one in names if inner.get(one) is not None), None)
    return tool_result(first_text(inner.get("name"), inner.get("toolName")), _returned(came))


def _returned(value: Any) -> str:
    """What a tool returned: its text, that of its parts, or JSON."""
    parts = value if isinstance(value, list) else items(mapping(value).get("content"))
    words = join([part_words(part) for part in parts])
    return text(value) or words or ("" if value in (None, [], {}) else compact(value))


def _said(about: dict[str, Any]) -> str:
    """The text of a part, under whatever name it stands."""
    for name in ("text", "aText", "thinking", "think", "reasoning", "content", "message", "markdown"):
        value = about.get(name)
        if found := text(value) or first_text(mapping(value).get("value"), mapping(value).get("content")):
            return found
    return join([text(mapping(piece).get("text")) for piece in items(about.get("summary"))])


def _picture(about: dict[str, Any]) -> str:
    """The address of a picture that the part holds; "" for any other part."""
    if url := part_picture(about):
        return url
    source = (
        mapping(about.get("source")) or mapping(about.get("inlineData")) or mapping(about.get("inline_data"))
    )
    kind = first_text(source.get("media_type"), source.get("mimeType"), source.get("mime_type"))
    if kind.startswith("image/") and isinstance(source.get("data"), str):
        return f"data:{kind};base64,{source['data']}"
    url = first_text(about.get("image"), about.get("url"), about.get("contentString"))
    return url if url.startswith("data:image/") else ""


def _file(about: dict[str, Any], kind: str) -> str:
    """A file or picture that is not in the chat itself: its text if that is known, else its name."""
    inner = mapping(about.get("file")) or about
    names = ("name", "filename", "file_name", "fileName", "origin_name", "title", "l1Title", "altText")
    name = first_text(*(inner.get(name) for name in names), about.get("title"))
    words = first_text(
        mapping(about.get("data")).get("text"), inner.get("extracted_content"), inner.get("text"),
        inner.get("content"),
    )  # fmt: skip
    return document(name, words, kind.removeprefix("input_").removesuffix("_ref"))
