"""Prompts and resources of tool servers, with a real server."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from desktop.services.tools.events import Part
from desktop.services.tools.servers import PromptArgument, ServerState
from tests.desktop.services.tools.conftest import Tools
from tests.desktop.services.tools.tool_server import DOT

pytestmark = [pytest.mark.gui, pytest.mark.loopback]


@pytest.fixture
def state(usual: Tools) -> ServerState:
    return usual.state("usual")


def fetched(tools: Tools, ask: Callable[[], int]) -> tuple[tuple[Part, ...], str]:
    found: dict[int, tuple[tuple[Part, ...], str]] = {}
    tools.service.fetched.connect(lambda number, parts, trouble: found.update({number: (parts, trouble)}))
    number = ask()
    assert number not in found
    tools.wait(lambda: number in found)
    return found[number]


def prompt(tools: Tools, name: str, **arguments: str) -> tuple[tuple[Part, ...], str]:
    return fetched(tools, lambda: tools.service.fetch_prompt("usual", name, arguments))


def resource(tools: Tools, uri: str) -> tuple[tuple[Part, ...], str]:
    return fetched(tools, lambda: tools.service.fetch_resource("usual", uri))


def test_prompts_are_listed_with_their_arguments(state: ServerState) -> None:
    found = {each.name: each for each in state.prompts}
    assert set(found) == {"review", "dialogue", "picture"}
    assert found["review"].title == "Review a text"
    assert found["review"].description == "Ask for a review."
    assert found["review"].arguments == (
        PromptArgument("text", "text", required=True), PromptArgument("tone", "tone"),
    )  # fmt: skip
    assert found["dialogue"].title == "dialogue"


def test_resources_are_listed(state: ServerState) -> None:
    found = {each.uri: each for each in state.resources}
    assert set(found) == {"memo://notes/today", "file:///dot.png", "memo://empty", "memo://huge"}
    assert found["memo://notes/today"].title == "Notes of today"
    assert found["memo://notes/today"].description == "What was noted."


def test_what_is_offered_later_is_listed_too(tools: Tools) -> None:
    tools.begin("usual")
    assert tools.result("usual", "offer") == ("offered", False)
    tools.wait(lambda: "later" in [each.name for each in tools.state("usual").prompts])
    tools.wait(lambda: "memo://later" in [each.uri for each in tools.state("usual").resources])


def test_a_prompt_is_made_of_its_arguments(usual: Tools) -> None:
    parts, trouble = prompt(usual, "review", text="Grüße", tone="dry")
    assert [part.text for part in parts] == ["Review in a dry tone:\nGrüße"]
    assert trouble == ""


def test_the_messages_of_a_dialogue_are_told_apart(usual: Tools) -> None:
    parts, _trouble = prompt(usual, "dialogue")
    assert parts[0].text == "User:\nGuess a number.\n\nAssistant:\nSeven?\n\nUser:\nHigher."


def test_a_prompt_that_cannot_be_had(usual: Tools) -> None:
    parts, trouble = prompt(usual, "picture")
    assert not parts
    assert "no text" in trouble
    parts, trouble = prompt(usual, "review")
    assert not parts
    assert trouble.startswith("The tool server answered with an error: ")


def test_a_resource_is_like_a_file(usual: Tools) -> None:
    assert resource(usual, "memo://notes/today") == ((Part("today.md", b"# Milk"),), "")
    assert resource(usual, "file:///dot.png") == ((Part("dot.png", base64.b64decode(DOT)),), "")


@pytest.mark.parametrize(
    ("uri", "words"),
    [("memo://empty", "is empty"), ("memo://huge", "9.0 MB; at most 8 MB"), ("memo://gone", "with an error")],
)
def test_a_resource_that_cannot_be_had(usual: Tools, uri: str, words: str) -> None:
    parts, trouble = resource(usual, uri)
    assert not parts
    assert words in trouble


def test_nothing_is_heard_of_what_was_cancelled(usual: Tools) -> None:
    heard: list[int] = []
    usual.service.fetched.connect(lambda number, _parts, _trouble: heard.append(number))
    first = usual.service.fetch_resource("usual", "memo://notes/today")
    usual.service.cancel(first)
    second = usual.service.fetch_resource("usual", "memo://notes/today")
    usual.wait(lambda: second in heard)
    assert heard == [second]


def test_a_server_that_does_not_run(tools: Tools) -> None:
    _parts, trouble = fetched(tools, lambda: tools.service.fetch_prompt("nobody", "review", {}))
    assert "not running" in trouble
