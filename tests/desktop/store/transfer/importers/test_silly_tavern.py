"""SillyTavern's swipes, names, roles, files and odd lines."""

from __future__ import annotations

from typing import Any

import pytest

from desktop.store.conversations.records import HIDDEN
from desktop.store.transfer.importers.programs.silly_tavern import SillyTavern
from desktop.store.transfer.records import ConversationRecord


def tavern(*lines: dict[str, Any], **head: Any) -> ConversationRecord:
    return SillyTavern().read_lines(
        [{"user_name": "Ann", "character_name": "Bo", **head}, *lines], lambda where, reason: None, {}
    )


@pytest.mark.parametrize(
    ("line", "texts", "shown"),
    [
        ({"mes": "a"}, ["a"], "a"), ({"mes": "a", "swipes": ["a", "b"], "swipe_id": 0}, ["a", "b"], "a"),
        ({"mes": "x", "swipes": ["a", "b"], "swipe_id": 1}, ["a", "x"], "x"),
        ({"mes": "x", "swipes": ["a", "b"], "swipe_id": 0}, ["x", "b"], "x"),
        ({"mes": "b", "swipes": ["a", "b"], "swipe_id": 2}, ["a", "b"], "b"),
        ({"mes": "x", "swipes": ["a", "b"], "swipe_id": True}, ["a", "b", "x"], "x"),
        ({"mes": "x", "swipes": ["a"], "swipe_id": -1}, ["a", "x"], "x"),
        ({"mes": None, "swipes": ["a", "b"], "swipe_id": 0}, ["a", "b"], "b"),
        ({"mes": "a", "swipes": ["a", "a", 5], "swipe_id": 0}, ["a"], "a"),
    ],
)  # fmt: skip
def test_swipes_of_silly_tavern(line: dict[str, Any], texts: list[str], shown: str) -> None:
    record = tavern({"name": "Bo", **line}, {"name": "Ann", "is_user": True, "mes": "next"})
    assert [message.text for message in record.messages[:-1]] == texts
    above = {message.key: message.text for message in record.messages}[record.messages[-1].parent or ""]
    assert above == shown


def test_names_of_silly_tavern() -> None:
    record = tavern(
        {"name": "Cy", "mes": "{{user}}, <USER>: {{char}}, <BOT>"},
        {"name": "Ann", "is_user": True, "mes": "{{Char}}?"},
    )  # fmt: skip
    assert [message.text for message in record.messages] == ["Ann, Ann: Cy, Cy", "Bo?"]
    assert record.title == "Bo"
    unnamed = tavern(
        {"name": "Di", "is_system": True, "mes": "note"}, {"name": "Cy", "mes": "{{char}}"},
        {"name": "Eve", "is_user": True, "mes": "{{user}} {{char}}"}, user_name="unused",
        character_name="unused",
    )  # fmt: skip
    assert [message.text for message in unnamed.messages][-2:] == ["Cy", "Eve Cy"]
    assert unnamed.title == "Di"


def test_a_macro_of_silly_tavern_without_a_name_stays() -> None:
    record = tavern({"mes": "{{user}} and {{char}}"}, user_name="", character_name="")
    assert record.messages[0].text == "{{user}} and {{char}}"


@pytest.mark.parametrize(
    "line", [{"user_name": "Ann"}, {"character_name": "Bo"}, {"mes": "Hi"}, ["user_name"]]
)
def test_which_lines_begin_a_chat_of_silly_tavern(line: Any) -> None:
    head = {"user_name": "Ann", "character_name": "Bo"}
    assert SillyTavern().begins(head)
    assert not SillyTavern().begins(head | line if isinstance(line, dict) and "mes" in line else line)


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"files": [{"name": "a.bin", "url": "/x"}]}, "[file: a.bin]"),
        ({"video": "/v/a.mp4"}, "[video: a.mp4]"), ({"video": "data:image/png;base64,AAAA"}, "[video]"),
        ({"file": {"text": "x"}}, "Attached file: file\n```\nx\n```"),
        ({"image": "data:image/png;base64,AAAA"}, "![](data:image/png;base64,AAAA)"),
        ({"media": [{"type": "audio", "url": "/user/images/a.png"}]}, "[audio: a.png]"),
    ],
)  # fmt: skip
def test_files_of_silly_tavern(extra: dict[str, Any], text: str) -> None:
    found = tavern({"name": "Ann", "is_user": True, "mes": "See", "extra": extra}).messages[0]
    assert found.text == f"{text}\n\nSee"
    assert found.raw == extra


def test_what_silly_tavern_says_beside_a_message_is_kept() -> None:
    uses = [{"name": "roll", "result": "4"}]
    first, second = tavern(
        {"name": "Cy", "mes": "a", "extra": {"tool_invocations": uses}}, {"name": "Bo", "mes": "b"}
    ).messages
    assert first.text == "a\n\n**Tool call: roll**\n\n**Tool result: roll**\n\n```\n4\n```"
    assert (first.raw, second.raw) == ({"name": "Cy", "tool_invocations": uses}, None)


def test_roles_of_silly_tavern() -> None:
    record = tavern(
        {"name": "Ann", "is_user": True, "mes": "a"}, {"name": "Bo", "mes": "b"},
        {"name": "Narrator", "mes": "c", "is_system": True, "extra": {"type": "narrator"}},
        {"name": "Bo", "mes": "d", "is_system": True},
    )  # fmt: skip
    assert [message.role for message in record.messages] == ["user", "assistant", "system", HIDDEN]


def test_a_message_of_silly_tavern_without_a_text_leaves_no_gap() -> None:
    notes: list[tuple[str, str]] = []
    lines = [{"mes": "a"}, {"mes": None}, {"mes": None, "swipes": [5]}, {"mes": "b", "is_user": True}]
    record = SillyTavern().read_lines(
        [{"user_name": "Ann", "character_name": "Bo"}, *lines],
        lambda where, reason: notes.append((where, reason)), {},
    )  # fmt: skip
    first, last = record.messages
    assert (first.text, last.text, last.parent) == ("a", "b", first.key)
    assert notes == [("message 2", "it has no text"), ("message 3", "it has no text")]
