"""Rows of a message: growing in pieces gives the same rows as the whole, and unchanged rows stay the same
objects.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desktop.items.chats.messages import MessageItem
from desktop.store.conversations.token_trace import TokenTrace
from desktop.views.transcript import TranscriptView
from desktop.views.transcript.message_rows import MessageRows
from desktop.views.transcript.rows import Row, RowKind
from desktop.views.transcript.thinking import duration, seconds_of
from engine.core import TokenInfo
from tests.desktop.views.transcript.conftest import Show

LINES = [
    "word", "", "# Head", "```py", "code", "```", "- item", "| a | b |", "|---|---|", "> quote", "---",
    "<think>", "</think>", "x" * 900,
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(LINES), max_size=16).map("\n".join)


def shown(rows: list[Row]) -> list[tuple[object, ...]]:
    """What rows show, except the time of a thought, which only a growing reply has."""
    return [
        (
            row.kind,
            row.text if row.kind is not RowKind.THOUGHT else "",
            row.source,
            row.gap,
            row.open,
            row.start,
            row.block,
        )
        for row in rows
    ]


@pytest.mark.slow
@settings(max_examples=250)
@given(TEXTS, st.data())
def test_grown_rows_are_the_rows_of_the_whole(text: str, data: st.DataObject) -> None:
    item = MessageItem(1, "assistant", "", running=True)
    message = MessageRows(item)
    position = 0
    while position < len(text):
        step = data.draw(st.integers(1, 40))
        item = replace(item, text=text[: position + step])
        message.append(item, text[position : position + step])
        before = [(row, row.revision) for row in message.rows]
        unchanged = message.sync()
        assert [(row, row.revision) for row in message.rows[:unchanged]] == before[:unchanged]
        assert len(set(map(id, message.rows))) == len(message.rows), "one row object stands at two places"
        position += step
    message.update(replace(item, running=False))
    message.sync()
    assert shown(message.rows) == shown(MessageRows(replace(item, running=False)).rows)


@settings(max_examples=150)
@given(TEXTS)
def test_all_rows_unfolded_copy_the_message(text: str) -> None:
    message = MessageRows(MessageItem(1, "assistant", text))
    for ordinal in range(5):
        message.fold(ordinal, False)
    message.sync()
    copied = message.copied(0, len(message.rows) - 1)
    assert copied in text
    if "<think>" not in text and "</think>" not in text:
        assert copied.strip() == text.strip()


def test_a_finished_paragraph_keeps_its_row_while_the_next_one_grows() -> None:
    item = MessageItem(1, "assistant", "One", running=True)
    message = MessageRows(item)
    first = message.rows[1]
    message.append(replace(item, text="One\n\nTwo"), "\n\nTwo")
    message.sync()
    assert message.rows[1] is first
    revision = first.revision
    message.append(replace(item, text="One\n\nTwo three"), " three")
    assert message.sync() == 2
    assert first.revision == revision


def test_a_thought_is_open_while_it_grows_and_folded_when_it_ends_unless_the_reader_opened_it() -> None:
    item = MessageItem(1, "assistant", "<think>\nhm", running=True)
    message = MessageRows(item)
    assert [row.kind for row in message.rows] == [
        RowKind.HEADER,
        RowKind.THOUGHT,
        RowKind.TEXT,
        RowKind.FOOTER,
    ]
    assert (message.rows[1].text, message.rows[1].open) == ("Thinking…", True)
    message.append(replace(item, text="<think>\nhm\n</think>\nYes"), "\n</think>\nYes")
    message.sync()
    label = "Thought for less than a second"
    assert [row.text for row in message.rows] == ["Assistant", label, "Yes", ""]
    assert not message.rows[1].open
    message.fold(0, False)
    message.sync()
    assert [row.text.strip() for row in message.rows] == ["Assistant", label, "hm", "Yes", ""]
    assert message.copied(0, 4) == "<think>\nhm\n</think>\nYes"
    message.fold(0, True)
    message.sync()
    assert message.copied(0, 4) == "Yes"


def test_rows_around_the_text() -> None:
    item = MessageItem(1, "assistant", "", running=True)
    assert [row.kind for row in MessageRows(item).rows] == [RowKind.HEADER, RowKind.WAITING, RowKind.FOOTER]
    done = MessageRows(MessageItem(1, "assistant", "Hi", notice="The reply was cut."))
    assert [row.kind for row in done.rows] == [RowKind.HEADER, RowKind.TEXT, RowKind.NOTICE, RowKind.FOOTER]
    done.editing = True
    done.sync()
    assert [row.kind for row in done.rows] == [RowKind.HEADER, RowKind.EDITOR]


def test_a_long_user_text_is_several_rows_that_join_to_the_text() -> None:
    text = "line of text\n" * 1000
    rows = [row for row in MessageRows(MessageItem(1, "user", text)).rows if row.kind is RowKind.BUBBLE]
    assert len(rows) > 2
    assert "".join(row.source for row in rows) == text
    assert [row.first for row in rows] == [True] + [False] * (len(rows) - 1)
    assert [row.last for row in rows] == [False] * (len(rows) - 1) + [True]


def test_another_version_has_new_rows() -> None:
    message = MessageRows(MessageItem(1, "assistant", "<think>a</think>b"))
    message.fold(0, False)
    message.update(MessageItem(2, "assistant", "<think>c</think>d", variant_index=1, variant_count=2))
    message.sync()
    assert [row.text for row in message.rows] == ["Assistant", "Thoughts", "d", ""]
    assert {row.item.id for row in message.rows} == {2}


def test_a_thought_that_the_prompt_opened_is_found_at_its_closing_tag_or_known_before() -> None:
    text = "I wonder.\n\nStill.\n</think>\n\nYes"
    whole = MessageRows(MessageItem(1, "assistant", text))
    assert [row.text for row in whole.rows] == ["Assistant", "Thoughts", "Yes", ""]
    item = MessageItem(1, "assistant", "", running=True)
    late, early = MessageRows(item), MessageRows(replace(item, opened="</think>"))
    for end in range(1, len(text) + 1):
        grown = replace(item, text=text[:end])
        for message in (late, early):
            message.append(grown, text[end - 1])
            message.sync()
        assert (RowKind.THOUGHT in [row.kind for row in early.rows]) is True
        assert late.copied(0, len(late.rows) - 1) in text
    for message in (late, early):
        message.update(replace(item, text=text, running=False))
        message.sync()
    assert shown(late.rows) == shown(early.rows) == shown(whole.rows)
    for message in (late, early, whole):
        message.fold(0, False)
        message.sync()
        assert message.copied(0, len(message.rows) - 1) == text


def test_a_tag_that_a_reply_only_mentions_is_not_a_thought() -> None:
    for text in (
        "The tag `</think>` ends it.",
        "It ends with </think> always.",
        "```\n</think>\n```\nis the tag",
        "as <analysis>\nx\n</analysis>\n",
    ):
        assert RowKind.THOUGHT not in [
            row.kind for row in MessageRows(MessageItem(1, "assistant", text)).rows
        ]


def test_an_empty_thought_has_no_head() -> None:
    message = MessageRows(MessageItem(1, "assistant", "<think>\n\n</think>\n\nYes"))
    assert [row.kind for row in message.rows] == [RowKind.HEADER, RowKind.TEXT, RowKind.FOOTER]


def test_each_of_two_thoughts_has_a_time() -> None:
    item = MessageItem(1, "assistant", "", running=True)
    message = MessageRows(item)
    text = ""
    for part in ("<think>\na\n", "</think>\nb\n", "<think>\nc", "\n</think>\nd"):
        text += part
        message.append(replace(item, text=text), part)
        message.sync()
    labels = [row.text for row in message.rows if row.kind is RowKind.THOUGHT]
    assert labels == ["Thought for less than a second"] * 2
    message.thoughts.put(1, 75.2)
    message.sync()
    assert [row.text for row in message.rows if row.kind is RowKind.THOUGHT][1] == "Thought for 1 min 15 s"


def test_the_words_of_a_duration() -> None:
    words = {
        0.2: "less than a second",
        0.6: "1 second",
        12.4: "12 seconds",
        60: "1 min",
        119.6: "2 min",
        3725: "62 min 5 s",
    }
    assert {seconds: duration(seconds) for seconds in words} == words


@pytest.mark.parametrize(("ids", "seconds", "known"), [((1, 2, 3, 4), (1.0, 2.0, 9.5, 10.0), 8.5),
    ((-1, 2, 3, 4), (0, 2, 9, 10), None),
                                                       ((1, 2, 3, 4), (50.0, 51.0, 2.0, 3.0),
                                                       None)])  # fmt: skip
def test_the_time_of_a_thought_is_read_from_its_tokens(
    ids: tuple[int, ...], seconds: tuple[float, ...], known: float | None
) -> None:
    pieces = ("<think>", "\nhm\n", "</think>", "\nYes")
    trace = TokenTrace()
    for id, piece, second in zip(ids, pieces, seconds, strict=True):
        trace.append(TokenInfo(id, piece, 1.0, 1.0, seconds=second))
    [head] = [
        row
        for row in MessageRows(MessageItem(1, "assistant", "".join(pieces))).rows
        if row.kind is RowKind.THOUGHT
    ]
    assert seconds_of(trace, head.start, head.until) == known


THOUGHT, OVER = "<think>\nHm.\n", "</think>\nYes."


def kinds(view: TranscriptView, message: int) -> list[tuple[str, bool]]:
    """The rows of a message in words, with whether they are open."""
    return [
        (row.text.strip() if row.kind is not RowKind.THOUGHT else "thought", row.open)
        for row in view.messages.rows_of(message)
        if row.kind in (RowKind.THOUGHT, RowKind.TEXT)
    ]


@pytest.mark.parametrize("unfolded", [True, False])
def test_thoughts_are_shown_while_they_are_written_if_the_user_wants_that(show: Show, unfolded: bool) -> None:
    view, model = show([MessageItem(1, "assistant", THOUGHT, running=True)], 600, 400)
    assert [words for words, _ in kinds(view, 1)] == ["thought", "Hm."]
    view.unfold_thoughts(False)
    assert kinds(view, 1) == [("thought", False)]
    view.unfold_thoughts(unfolded)
    seen = ["thought", "Hm."] if unfolded else ["thought"]
    assert [words for words, _ in kinds(view, 1)] == seen
    model.append(MessageItem(2, "assistant", THOUGHT, running=True))  # also for the next reply
    assert [words for words, _ in kinds(view, 2)] == seen
    model.append_text(2, OVER)
    view.flush()
    assert kinds(view, 2)[0] == ("thought", False)
    assert [words for words, _ in kinds(view, 2)] == ["thought", "Yes."]


def test_what_the_reader_folds_stays_so_when_the_thought_is_over(show: Show) -> None:
    view, model = show([MessageItem(1, "assistant", THOUGHT, running=True)], 600, 400)
    view.unfold_thoughts(False)
    head = next(row for row in view.messages.rows_of(1) if row.kind is RowKind.THOUGHT)
    view.messages.message(1).fold(head.ordinal, False)
    view.messages.sync_message(1)
    assert [words for words, _ in kinds(view, 1)] == ["thought", "Hm."]
    model.append_text(1, OVER)
    view.flush()
    assert [words for words, _ in kinds(view, 1)] == ["thought", "Hm.", "Yes."]
    view.unfold_thoughts(True)
    assert [words for words, _ in kinds(view, 1)] == ["thought", "Hm.", "Yes."]


def test_a_reply_that_has_to_be_json_is_one_wrapped_block_of_code() -> None:
    text = '{\n  "a": "*b*",\n\n  "c": 1\n}\n'
    plain = MessageItem(1, "assistant", text)
    message = MessageRows(replace(plain, language="json"))
    code = [row for row in message.rows if row.source]
    assert [(row.kind, row.text, row.source, row.wrapped) for row in code] == [
        (RowKind.CODE, text.rstrip("\n"), text, True)
    ]
    message.update(plain)  # continued without the format
    message.sync()
    assert [row.kind for row in message.rows if row.source] == [RowKind.TEXT, RowKind.TEXT]
