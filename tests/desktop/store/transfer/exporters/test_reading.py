"""What an exported conversation shows: which messages, whose, when, and without thoughts if asked."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from markdown_it import MarkdownIt

from desktop.store.conversations.records import NOTEBOOK
from desktop.store.transfer.exporters.markdown import markdown
from desktop.store.transfer.exporters.reading import (
    label,
    opened_in,
    pieces,
    shown_path,
    when,
    without_thoughts,
)
from desktop.store.transfer.records import ConversationRecord, MessageRecord

THOUGHT = "<think>\nHm.\n</think>\n\n"


def message(
    key: str, parent: str | None, role: str = "user", text: str = "", **more: object
) -> MessageRecord:
    return MessageRecord(key, parent, role, text, **more)  # type: ignore[arg-type]


def chat(*messages: MessageRecord, shown: str | None = None) -> ConversationRecord:
    return ConversationRecord("here", "k", messages=messages, shown_root=shown)


def test_the_chosen_versions_are_shown_and_the_newest_where_the_chosen_one_is_gone() -> None:
    first, second = message("a", None, shown_child="d"), message("b", None)
    below = (message("c", "a"), message("d", "a"), message("e", "a"))
    gone = message("d", "a", deleted=True)
    for messages, shown, path in (
        ((first, second, *below), "a", "ad"),
        ((first, second, *below), None, "b"),
        ((first, second, below[0], gone, below[2]), "a", "ae"),
    ):
        assert "".join(each.key for each in shown_path(chat(*messages, shown=shown))) == path


def test_thoughts_are_left_out_of_replies_only() -> None:
    found = without_thoughts(chat(
        message("a", None, "user", THOUGHT + "Why?"), message("b", "a", "assistant", THOUGHT + "So."),
        message("c", "b", "assistant", THOUGHT), message("d", "c", "assistant", "  As it is.\n"),
    ))  # fmt: skip
    assert [each.text for each in found.messages] == [THOUGHT + "Why?", "So.", "", "  As it is.\n"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes.\n", [(False, "Yes.")]),
        (" \n", []),
        ("<think>\nHm.\n</think>\n\nYes.", [(True, "Hm."), (False, "Yes.")]),
        ("<think>Hm.</think>Yes.", [(True, "Hm."), (False, "Yes.")]),
        ("Yes.\n<think>\nHm.", [(False, "Yes."), (True, "Hm.")]),  # it was stopped in its thought
        ("[THINK]Hm.[/THINK]Yes.", [(True, "Hm."), (False, "Yes.")]),
        ("<seed:think>Hm.</seed:think>Yes.", [(True, "Hm."), (False, "Yes.")]),
        ("<think>One.</think>\n<think>Two.</think>\nYes.", [(True, "One."), (True, "Two."), (False, "Yes.")]),
        ("Write `<think>` so:\n```\n<think>\nx\n</think>\n```\nDone.", None),
        ("```\n<think>\n```\nDone.", None),
        ("A <think> in a line.", None),
        ("Hm.\n</think>\n\nYes.", [(True, "Hm."), (False, "Yes.")]),  # the prompt had opened it
    ],
)
def test_a_reply_is_split_as_in_the_transcript(text: str, expected: list[tuple[bool, str]] | None) -> None:
    assert pieces(text) == ([(False, text)] if expected is None else expected)


def test_a_reply_that_begins_inside_a_thought() -> None:
    reply = message("a", None, "assistant", "Hm.</think>Yes.", stats={"opened": "</think>", "model": "m"})
    assert pieces(reply.text, opened_in(reply)) == [(True, "Hm."), (False, "Yes.")]
    (without,) = without_thoughts(chat(reply)).messages
    assert (without.text, dict(without.stats)) == ("Yes.", {"model": "m"})
    assert pieces("Hm.", "</think>") == [(True, "Hm.")]
    assert opened_in(message("a", None, stats={"opened": 5})) == ""


def test_names_and_times() -> None:
    for role, author, model, words in (
        ("user", "", "", "You"), ("assistant", " ", " big \n one ", "Assistant (big one)"),
        ("assistant", " Ann \n Lee ", "m", "Ann Lee (m)"), ("critic", "", " ", "Critic"),
        ("", "", "", "Message"),
    ):  # fmt: skip
        assert label(message("a", None, role, author=author, stats={"model": model})) == words
    assert when(datetime(2026, 2, 14, 10, 4, 59).timestamp()) == "2026-02-14 10:04"
    assert (when(None), when(1e30), when(float("nan"))) == ("", "", "")


@pytest.mark.parametrize(
    "title", ["AT&amp;T &lt;b&gt;", "~~no~~ *yes* __b__ `c`", "[a](b) ![c](d) <e> # f #", "1. a\\ - b | c"]
)
def test_a_title_in_markdown_is_read_as_it_is(title: str) -> None:
    text = "".join(markdown([ConversationRecord("here", "k", title, messages=())]))
    heading, inline, _ = MarkdownIt("commonmark").enable("strikethrough").parse(text)[:3]
    assert (heading.tag, "".join(child.content for child in inline.children or [])) == ("h1", title)
    assert {child.type for child in inline.children or []} <= {"text", "text_special"}


def test_a_notebook_s_markdown_is_its_document_without_the_system_prompt() -> None:
    page = replace(
        chat(message("a", None, "assistant", "*Once*\n\nupon")), title="T", system_prompt="Be brief."
    )
    assert "".join(markdown([replace(page, kind=NOTEBOOK)])) == "# T\n\n*Once*\n\nupon\n"
    assert "## System prompt\n\nBe brief." in "".join(markdown([page]))


def test_markdown_has_no_headings_without_words_and_no_dates_that_are_not_known() -> None:
    page = ConversationRecord("here", "k", "", messages=(MessageRecord("a", None, "user", "Hi"),))
    text = "".join(markdown([replace(page, system_prompt=" \n")]))
    assert [line.startswith("#") for line in text.splitlines() if line] == [True, True, False]
    assert "·" not in text
    assert text.endswith("\n\nHi\n")


def test_a_reply_that_had_to_be_json_is_exported_as_code() -> None:
    answer = '{\n  "a": "*b*",\n  "c": "```"\n}'
    said = message("a", None, "assistant", f"{THOUGHT}{answer}\n", stats={"language": "json"})
    for lines in ("", "\n\n"):
        (shown,) = shown_path(chat(replace(said, text=lines + said.text)))
        assert pieces(shown.text) == [(True, "Hm."), (False, f"````json\n{answer}\n````")]
    assert f"````json\n{answer}\n````" in "".join(markdown([chat(said)]))
    for other in (replace(said, stats={}), replace(said, role="user"), replace(said, stats={"language": 3})):
        assert shown_path(chat(other))[0].text == said.text
    cut = replace(said, text="<think>\nHm.")
    assert shown_path(chat(cut))[0].text == cut.text
