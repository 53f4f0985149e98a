"""What GPT4All's files of each version hold, and what a damaged one leaves."""

from __future__ import annotations

import pytest

from desktop.store.transfer.importers.programs.gpt4all import read_chat
from desktop.store.transfer.importers.protocol import Unreadable
from tests.desktop.store.transfer.importers import files
from tests.desktop.store.transfer.importers.files import Qt


def test_gpt4all() -> None:
    data = files.gpt4all(12, ("Hello", "Hi"))
    # behind its value
    place = data.index(Qt.text("Response: ")) + len(Qt.text("Response: ")) + len(Qt.text(""))
    data = data[:place] + Qt.text("Other answer") + bytes([1, 0, 1, 0]) + data[place + 8 :]
    record = read_chat(data, lambda *_: None)
    assert record.messages[0].raw["chat"] == {"knowledge": ["docs"]}
    assert {name: record.messages[1].raw[name] for name in ("rating", "suggested")} == {
        "rating": "up",
        "suggested": "Other answer",
    }
    assert [sentence.split()[0] for sentence in record.left_out] == ["Collections", "Ratings"]
    user, reply = record.messages
    assert (user.stats, bool(reply.stats["model"]), reply.state) == ({}, True, "complete")
    rated = data.replace(Qt.text("Other answer") + bytes([1, 0, 1, 0]), Qt.text("") + bytes([1, 1, 0, 1]))
    stopped = read_chat(rated, lambda *_: None).messages[1]
    assert (stopped.state, stopped.raw["rating"], "suggested" in stopped.raw) == ("stopped", "down", False)
    with pytest.raises(Unreadable, match="does not start like a GPT4All chat"):
        read_chat(b"other" + data, lambda *_: None)
    with pytest.raises(Unreadable, match="versions 1 to 12 are supported"):
        read_chat(data[:4] + (13).to_bytes(4, "big") + data[8:], lambda *_: None)


@pytest.mark.parametrize("version", range(6, 11))
@pytest.mark.parametrize("has_state", [True, False])
def test_the_engines_state_of_gpt4all_is_skipped(version: int, has_state: bool) -> None:
    record = read_chat(files.gpt4all(version, has_state=has_state), lambda *_: None)
    assert [message.text.split()[-1] for message in record.messages] == ["Hello", "😀", "Bye", "Ciao"]


def test_every_kind_of_message_of_gpt4all_and_a_chat_without_a_key() -> None:
    names = ("System: ", "Prompt: ", "ToolResponse: ", "Response: ")
    data = files.gpt4all(12, ("Be good.", "What is 1+1?", "2", "It is 2."), names, key="")
    record = read_chat(data, lambda *_: None)
    assert record.system_prompt == "Be good."
    user, reply = record.messages
    assert user.role == "user"
    assert user.text.endswith("What is 1+1?")
    assert reply.role == "assistant"
    assert reply.text.startswith("**Tool result**\n\n```\n2\n```\n\n")
    assert reply.text.endswith("\n\nIt is 2.")
    assert record.key == record.messages[0].key != ""


def test_parts_of_gpt4all_that_are_nested_without_end_are_refused() -> None:
    data = files.gpt4all(12, ("Hello",), ("Response: ",))
    answer = Qt.text("Response: ") + Qt.text("Hello")
    assert data.endswith(answer + bytes(8))
    deep = data[:-8] + (bytes(7) + b"\1" + answer) * 60 + bytes(8)
    reasons: list[str] = []
    with pytest.raises(Unreadable, match="it has no messages"):
        read_chat(deep, lambda _where, reason: reasons.append(reason))
    assert len(reasons) == 1
    assert "its parts are nested more than 50 levels deep" in reasons[0]


def test_items_that_cannot_be_counted_or_named_end_a_chat_of_gpt4all() -> None:
    whole = files.gpt4all(11, ("Hello", "Hi"))
    second = whole.index(Qt.text("Response: "))
    strange = whole[:second] + Qt.text("Whisper: ") + whole[second + len(Qt.text("Response: ")) :]
    notes: list[tuple[str, str]] = []
    record = read_chat(strange, lambda *words: notes.append(words))
    assert [message.text.split()[-1] for message in record.messages] == ["Hello"]
    assert notes == [(
        "message 2 of 2",
        f"the message at byte {second:,} has an unknown type; this message and what follows it are lost",
    )]  # fmt: skip
    count = whole.index(Qt.text("Prompt: ")) - 8
    for claimed in (1 << 30, -1):
        with pytest.raises(Unreadable, match=f"announces {claimed:,} entries, more than the file can hold"):
            read_chat(
                whole[:count] + claimed.to_bytes(4, "big", signed=True) + whole[count + 4 :], lambda *_: None
            )


def test_a_part_of_gpt4all_that_stands_alone_is_the_assistants() -> None:
    record = read_chat(files.gpt4all(11, ("Hello", "Hm"), ("Prompt: ", "Think: ")), lambda *_: None)
    assert [(message.role, message.text.split("\n\n")[-1]) for message in record.messages] == [
        ("user", "Hello"), ("assistant", "<think>\nHm\n</think>"),
    ]  # fmt: skip


def test_an_empty_message_of_gpt4all_is_left_out() -> None:
    record = read_chat(files.gpt4all(9, ("Hello", " ", "Bye", "Ciao")), lambda *_: None)
    assert [(message.role, message.text) for message in record.messages] == [
        ("user", "Hello"), ("user", "Bye"), ("assistant", "Ciao"),
    ]  # fmt: skip
