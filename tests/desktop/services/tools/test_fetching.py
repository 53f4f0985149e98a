"""What servers send as prompts and resources, and what becomes of it."""

from __future__ import annotations

import asyncio
import base64
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest

from desktop.services.tools.events import Part
from desktop.services.tools.fetching import fetch_prompt, fetch_resource
from desktop.services.tools.unusable import UnusableConfig


def session(**answers: Any) -> Any:
    """A session whose methods return these."""

    def answering(value: Any) -> Any:
        async def answer(*_asked: object) -> Any:
            return value

        return answer

    return SimpleNamespace(**{name: answering(value) for name, value in answers.items()})


def prompt(*blocks: Any) -> str:
    messages = [types.PromptMessage(role="user", content=block) for block in blocks]
    result = types.GetPromptResult(messages=messages)
    return asyncio.run(fetch_prompt(session(get_prompt=result), "p", {}))[0].text


def resource(*contents: Any) -> tuple[Part, ...]:
    result = types.ReadResourceResult(contents=list(contents))
    return asyncio.run(fetch_resource(session(read_resource=result), "memo://x"))


def text(uri: str, kind: str | None = None, words: str = "words") -> types.TextResourceContents:
    return types.TextResourceContents(uri=uri, mime_type=kind, text=words)


def test_the_text_of_a_file_in_a_prompt_is_part_of_it() -> None:
    file = types.EmbeddedResource(type="resource", resource=text("file:///a.txt", None, "the file"))
    picture = types.ImageContent(type="image", data="AA==", mime_type="image/png")
    assert prompt(types.TextContent(type="text", text="Read:"), picture, file) == "Read:\n\nthe file"


def test_a_prompt_with_half_a_character_is_shown_with_a_mark_in_its_place() -> None:
    assert prompt(types.TextContent(type="text", text="a\ud800b")) == "a?b"
    assert Part("p", b"a\xffb").text == "a\ufffdb"


@pytest.mark.parametrize(
    ("uri", "kind", "name"),
    [
        ("file:///notes/a%20b.md", None, "a b.md"),
        ("memo://notes/today", "text/markdown", "today.md"),
        ("memo://notes/today", "Text/Plain; charset=utf-8", "today.txt"),
        ("memo://notes/today", "application/json", "today.json"),
        ("memo://notes/today", "text/html", "today.html"),
        ("memo://notes/today", "no/such", "today.txt"),
        ("memo://notes/today", None, "today.txt"),
        ("memo://notes", None, "notes.txt"),
        ("memo:", None, "resource.txt"),
        ("http://[broken", None, "resource.txt"),
    ],
)
def test_a_resource_is_named_by_its_address_and_kind(uri: str, kind: str | None, name: str) -> None:
    assert resource(text(uri, kind)) == (Part(name, b"words"),)


def test_all_parts_of_a_resource_come_in_their_order() -> None:
    blob = types.BlobResourceContents(uri="memo://b", blob=base64.b64encode(b"\x00\xff").decode())
    assert resource(text("memo://a"), blob) == (Part("a.txt", b"words"), Part("b", b"\x00\xff"))


def test_a_file_that_cannot_be_decoded_is_said_to_be_so() -> None:
    broken = types.BlobResourceContents(uri="memo://b", blob="A")
    with pytest.raises(UnusableConfig, match=r"a file that cannot be decoded \(.+\)"):
        resource(broken)


@pytest.mark.parametrize(("size", "fits"), [(8 << 20, True), ((8 << 20) + 1, False)])
def test_as_much_as_a_file_may_have_can_be_attached(size: int, fits: bool) -> None:
    parts = text("memo://a", words="a"), text("memo://b", words="b" * (size - 1))
    if fits:
        assert len(resource(*parts)) == 2
    else:
        with pytest.raises(UnusableConfig, match="at most 8 MB"):
            resource(*parts)
