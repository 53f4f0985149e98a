"""Trees from a format's nodes: parts of a reply are merged, skipped nodes leave no gap, the shown path is
right.
"""

from __future__ import annotations

from typing import Any

import pytest

from desktop.store.conversations.bulk_insert import chain_key
from desktop.store.transfer.importers.trees import Shaped, chained, shape
from desktop.store.transfer.records import MessageRecord


def m(key: str, parent: str | None, role: str = "assistant", text: str = "", **more: Any) -> MessageRecord:
    return MessageRecord(key, parent, role, text or key, **more)


def shaped(*messages: MessageRecord, **options: Any) -> Shaped:
    return shape(messages, lambda *_: None, **options)


def tree(found: Shaped) -> list[tuple[str, str | None, str, str | None]]:
    """(key, parent, text, shown child) of each message, and what is shown at the top."""
    return [
        ("", None, "", found.shown_root),
        *((each.key, each.parent, each.text, each.shown_child) for each in found.messages),
    ]


# -- parts of one reply


def test_a_thought_tool_calls_and_the_reply_are_one_message() -> None:
    found = shaped(
        m("u", None, "user", created_at=1.0),
        m(
            "t",
            "u",
            text="thought",
            part=True,
            created_at=2.0,
            stats={"model": "old", "kept": 1},
            raw={"t": 1},
        ),
        m("c", "t", "assistant", "call", part=True, stats={"model": "new", "kept": ""}, state="complete"),
        m("r", "c", "tool", "result", part=True, raw=[2]),
        m("a", "r", "assistant", "answer", state="stopped", stats={"kept": None}),
        m("v", "a", "user"),
    )
    assert tree(found) == [
        ("", None, "", "u"), ("u", None, "u", "a"), ("a", "u", "thought\n\ncall\n\nresult\n\nanswer", "v"),
        ("v", "a", "v", None),
    ]  # fmt: skip
    reply = found.messages[1]
    assert (reply.role, reply.state, reply.created_at, reply.part) == ("assistant", "stopped", 2.0, False)
    assert reply.stats == {"model": "new", "kept": 1}
    assert reply.raw == [{"t": 1}, [2]]


@pytest.mark.parametrize(
    ("messages", "keys"),
    [
        # two replies, neither of which is a part
        ((m("a", None, part=False), m("b", "a", part=False)), ["a", "b"]),
        ((m("a", None, part=True), m("b", "a"), m("c", "a")), ["a", "b", "c"]),  # two go on from it
        # what the user wrote is not part of a reply
        ((m("u", None, "user", part=True), m("b", "u", part=True)), ["u", "b"]),
        ((m("s", None, "tool", part=True), m("u", "s", "user")), ["s", "u"]),
        ((m("a", None), m("b", "a", "tool")), ["a", "b"]),
        ((m("a", None), m("b", "a", "tool", part=True)), ["b"]),
        ((m("a", None, "tool", part=True), m("b", "a")), ["b"]),
        # each joins the one above it
        ((m("a", None, part=True), m("b", "a"), m("c", "b", part=True)), ["c"]),
        # a reply after a complete one is a message of its own
        ((m("a", None, part=True), m("b", "a"), m("c", "b")), ["b", "c"]),
    ],
)
def test_what_is_merged(messages: tuple[MessageRecord, ...], keys: list[str]) -> None:
    assert [message.key for message in shaped(*messages).messages] == keys


def test_tool_calls_without_a_reply_stay_as_they_are() -> None:
    (only,) = shaped(m("a", None, "tool", "one", part=True), m("b", "a", "tool", "two", part=True)).messages
    assert (only.key, only.role, only.text, only.raw) == ("b", "tool", "one\n\ntwo", None)
    (reply,) = shaped(m("a", None, "tool", "one", part=True), m("b", "a", text="two")).messages
    assert (reply.key, reply.role) == ("b", "assistant")
    # one alone is as it was
    assert shaped(m("a", None, raw={"x": 1}), m("u", "a", "user")).messages[0].raw == {"x": 1}


def test_variants_below_a_merged_reply_and_the_shown_one() -> None:
    messages = (
        m("u", None, "user"), m("t1", "u", part=True), m("a1", "t1"), m("t2", "u", part=True), m("a2", "t2"),
        m("x", "a1", "user"), m("y", "a1", "user"),
    )  # fmt: skip
    assert tree(shaped(*messages, current="x")) == [
        ("", None, "", "u"), ("u", None, "u", "a1"), ("a1", "u", "t1\n\na1", "x"),
        ("a2", "u", "t2\n\na2", None), ("x", "a1", "x", None), ("y", "a1", "y", None),
    ]  # fmt: skip
    # a part stands for the whole
    inside = {key: child for key, _, _, child in tree(shaped(*messages, current="t1"))}
    assert (inside["u"], inside["a1"]) == ("a1", "y")
    newest = {key: child for key, _, _, child in tree(shaped(*messages))}
    assert (newest[""], newest["u"], newest["a1"]) == ("u", "a2", "y")


# -- the shown path, gaps and circles


def test_siblings_keep_their_order_and_parents_come_first() -> None:
    found = shaped(m("d", "b"), m("c", "a", "user"), m("b", "a", "user"), m("a", None), m("e", None))
    assert [message.key for message in found.messages] == ["a", "e", "c", "b", "d"]
    assert found.shown_root == "e"


def test_skipped_nodes_leave_no_gap() -> None:
    skipped = {"s1": "a", "s2": "s1", "root": None, "round": "about", "about": "round"}
    found = shaped(
        m("a", "root", "user"), m("b", "s2"), m("c", "round", "user"), m("d", "nowhere"), skipped=skipped,
        current="s2"
    )  # fmt: skip
    assert [(message.key, message.parent) for message in found.messages] == [
        ("a", None),
        ("c", None),
        ("d", None),
        ("b", "a"),
    ]
    assert found.shown_root == "a"  # the way up from a skipped node


def test_cycles_are_reported_and_everything_else_is_kept() -> None:
    reported: list[tuple[str, str]] = []
    found = shape(
        [m("a", None, "user"), m("b", "c"), m("c", "b", "user"), m("d", "c"), m("e", "e")],
        lambda *words: reported.append(words),
        current="d",
    )
    assert [message.key for message in found.messages] == ["a"]
    assert sorted(place for place, _ in reported) == ["message b", "message c", "message d", "message e"]
    assert {reason for _, reason in reported} == {
        "it replies to itself in a circle, so it has no place in the chat"
    }
    assert found.shown_root == "a"


def test_of_two_with_one_key_the_first_counts() -> None:
    assert [
        message.text for message in shaped(m("a", None, text="one"), m("a", None, text="two")).messages
    ] == ["one"]


def test_a_stopped_reply_says_so() -> None:
    found = shaped(
        m("a", None, state="stopped"), m("b", "a", "user", state="stopped", stats={"model": "x"}), m("c", "b")
    )
    assert [dict(message.stats) for message in found.messages] == [
        {"reason": "cancelled"},
        {"model": "x"},
        {},
    ]


# -- system prompts


def test_system_messages_on_top_are_the_prompt() -> None:
    found = shaped(
        m("s", None, "system", "one"),
        m("t", "s", "system", "two"),
        m("u", "t", "user"),
        m("v", "t", "user"),
        current="u",
    )
    assert found.system_prompt == "one\n\ntwo"
    assert tree(found) == [("", None, "", "u"), ("u", None, "u", None), ("v", None, "v", None)]
    among = shaped(m("u", None, "user"), m("s", "u", "system"))
    assert (among.system_prompt, len(among.messages)) == ("", 2)
    beside = shaped(m("s", None, "system"), m("u", None, "user"))
    assert (beside.system_prompt, len(beside.messages)) == ("", 2)
    many = [m(str(n), str(n - 1) if n else None, "system") for n in range(20)]
    assert (len(shaped(*many).messages), shaped(*many).system_prompt.split()) == (
        4,
        [str(n) for n in range(16)],
    )
    assert shaped() == Shaped((), None, "")


# -- rows


def test_a_sequence_gets_keys_from_its_content() -> None:
    row = [m("", "wrong", "user", "a"), m("own", None, text="b"), m("", None, text="c")]
    found = chained(row)
    first = chain_key(None, "user", "a")
    assert [(message.key, message.parent) for message in found] == [
        (first, None), ("own", first), (chain_key("own", "assistant", "c"), "own"),
    ]  # fmt: skip
    # the same words elsewhere are another message
    assert chained(row)[2].key != chained([row[0], row[2]])[1].key
