"""What a model reads of a tool's result, block by block."""

from __future__ import annotations

import mcp_types as types
import pytest

from desktop.services.tools.results import MOST_CHARACTERS, bounded, result_text


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


def link(description: str | None) -> types.ResourceLink:
    return types.ResourceLink(
        type="resource_link", name="page", uri="http://here/page", description=description
    )


def embedded(words: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(
        type="resource", resource=types.TextResourceContents(uri="file:///a.txt", text=words)
    )


@pytest.mark.parametrize(
    ("blocks", "structured", "error", "words"),
    [
        ([], None, False, "The tool returned nothing."),
        ([], None, True, "The tool reported an error."),
        ([text("")], None, False, "The tool returned nothing."),
        ([text("")], {"a": 1}, False, '{"a": 1}'),
        ([text("one"), text(""), embedded("two")], None, False, "one\n\ntwo"),
        ([text("wrong")], None, True, "wrong"),
        ([], {"a": "ä"}, False, '{"a": "ä"}'),
        ([text("one")], {"a": 1}, False, "one"),
        ([link(None)], {"a": 1}, False, '[A link to page (http://here/page)]\n\n{"a": 1}'),
        ([link("The page.")], None, False, "[A link to page (http://here/page): The page.]"),
    ],
)
def test_the_words_of_a_result(
    blocks: list[types.ContentBlock], structured: dict[str, object] | None, error: bool, words: str
) -> None:
    result = types.CallToolResult(content=blocks, structured_content=structured, is_error=error)
    assert result_text(result) == (words, error)


def test_a_text_at_the_limit_stays_whole() -> None:
    whole = "x" * MOST_CHARACTERS
    assert bounded(whole) == whole
    assert bounded(whole + "yz") == f"{whole}\n\n[The result was too long: 2 more characters were left out.]"
