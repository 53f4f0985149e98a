"""Thoughts are divided from answers in the same way, however a reply is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import CallPiece, Stats
from engine.server.replies import Called, Delta, Ended, Prompted, Writer, Written, joined, usage
from engine.server.thoughts import ThoughtSplitter

FINAL = "[BEGIN FINAL RESPONSE]"
TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("Steps:", FINAL))


def split(pieces: list[str], opened: str = "") -> tuple[str, str]:
    """The thoughts and the answer."""
    splitter = ThoughtSplitter(TAGS, opened)
    found = [part for piece in pieces for part in splitter.feed(piece)] + splitter.finish()
    thoughts = "".join(text for inside, text in found if inside)
    return thoughts, "".join(text for inside, text in found if not inside)


@pytest.mark.parametrize("tag", [("<a>", ""), ("", "</a>"), ("", "")])
def test_a_tag_without_its_other_half_divides_nothing(tag: tuple[str, str]) -> None:
    splitter = ThoughtSplitter((tag,))
    found = [part for piece in ("<a>", "b", "</a>c") for part in splitter.feed(piece)] + splitter.finish()
    assert "".join(text for inside, text in found if not inside) == "<a>b</a>c"
    assert not any(inside for inside, _ in found)


@pytest.mark.parametrize(
    ("text", "opened", "thought", "answer"),
    [
        ("Hello", "", "", "Hello"),
        (f"a\n{FINAL}\nb\n[END FINAL RESPONSE]\n", FINAL, "a", "b"),
        (f"Steps: a {FINAL} b [END FINAL RESPONSE] c", "", " a", "b [END FINAL RESPONSE] c"),
        (f"Steps:a{FINAL}", "", "a", ""),
        ("[END FINAL RESPONSE]", "", "", "[END FINAL RESPONSE]"),
        ("<think>a</think>\n<|begin_of_solution|>\nb<|end_of_solution|>", "", "a", "b"),
        ("<think>a</think>b", "</think>", "a", "b"),
        ("\n<think>\na <think></think>b", "</think>", "a <think>", "b"),
        ("<thin", "</think>", "<thin", ""),
        ("<think>", "</think>", "", ""),
        ("<b>a</think>b", "</think>", "<b>a", "b"),
        ("  Hello ", "", "", "  Hello "),
        ("", "", "", ""),
        ("<think>\nWell.\n</think>\n\nHello", "", "Well.", "Hello"),
        ("\n<think>a</think>b", "", "a", "b"),
        ("[THINK]a[/THINK]b", "", "a", "b"),
        ("<think>a</think> <think>b</think>c", "", "ab", "c"),
        ("<think>a [/THINK] b", "", "a [/THINK] b", ""),
        ("<think>a </thi", "", "a </thi", ""),
        ("<thin", "", "", "<thin"),
        ("A tag: <think>x</think>", "", "", "A tag: <think>x</think>"),
        ("<think>a</think>b <think>", "", "a", "b <think>"),
        ("<think></think>b", "", "", "b"),
        ("</think>\n\nb </think>", "", "", "b </think>"),
        ("</thin", "", "", "</thin"),
        ("<think>a</think>\n<answer>\nb </answer> c\n</answer>", "", "a", "b </answer> c"),
        ("a</think><response>b</response>\n", "</think>", "a", "b"),
        ("a</think><response></response>", "</think>", "a", ""),
        ("a</think><resp", "</think>", "a", "<resp"),
        ("a</think><response>b </resp", "</think>", "a", "b </resp"),
        ("<response>b</response>", "", "", "<response>b</response>"),
        ("well\n</think>\nyes", "</think>", "well", "yes"),
        ("well", "</think>", "well", ""),
        ("a\n\nb </think>c", "</think>", "a\n\nb", "c"),
    ],
)
def test_thoughts_are_divided_from_answers(text: str, opened: str, thought: str, answer: str) -> None:
    assert split([text], opened) == (thought, answer)
    assert split(list(text), opened) == (thought, answer)


@given(
    st.lists(
        st.sampled_from(
            [
                "<think>",
                "</think>",
                "<answer>",
                "</answer>",
                "[THINK]",
                "<",
                "think>",
                "\n",
                " ",
                "a",
                "</",
                "é",
            ]
        )
    ),
    st.data(),
)
def test_pieces_do_not_matter(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    opened = data.draw(st.sampled_from(["", "</think>"]))
    assert split(pieces, opened) == split([text], opened)


def test_what_is_certain_comes_at_once() -> None:
    splitter = ThoughtSplitter(TAGS)
    assert splitter.feed("<think>") == []
    assert splitter.inside
    assert splitter.feed("a b") == [(True, "a b")]
    assert splitter.feed(" </think>") == []
    assert not splitter.inside
    assert splitter.feed("c") == [(False, "c")]


def test_a_writer_begins_where_the_prompt_or_the_given_text_leaves_off() -> None:
    opened, given_text = Writer(TAGS), Writer(TAGS, "<think>so")
    opened.feed(Prompted((1,), "</think>"))
    for writer in (opened, given_text):
        first, second = writer.feed(Written("a", 1)), writer.feed(Written("</think>b", 1))
        assert first is not None
        assert second is not None
        assert (first.reasoning, first.text) == ("a", "")
        assert (second.reasoning, second.text) == ("", "b")
        assert writer.reasoning_tokens == 2
    answering = Writer(TAGS, "Hello")
    delta = answering.feed(Written("<think>", 1))
    assert delta is not None
    assert delta.text == "<think>"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop_token", "stop"), ("stop_string", "stop"), ("end_filter", "stop"), ("max_tokens", "length"),
     ("context_full", "length"), ("time_limit", "length")],
)  # fmt: skip
def test_reasons(reason: str, finish: str) -> None:
    writer = Writer(TAGS)
    writer.feed(Ended(reason, "END", Stats()))
    assert writer.finish_reason == finish
    assert writer.stop_reason == ("END" if reason == "stop_string" else None)


def test_usage_counts_the_prompt_once_and_the_tokens_of_all_choices() -> None:
    ends = [
        Ended("stop_token", "", Stats(prompt_tokens=9, cached_tokens=cached, new_tokens=new))
        for cached, new in ((4, 3), (8, 5))  # the second has what the first has read
    ]
    assert usage(ends, 2) == {
        "prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2},
    }  # fmt: skip


def test_neighbouring_text_of_one_reply_is_joined() -> None:
    a, b, c = Written("a", 1), Written("b", 2), Written("c", 1)
    end = Ended("stop_token", "", Stats())
    found = list(joined([(0, a), (0, b), (1, c), (0, a), (0, end), (0, None)]))
    assert found == [(0, Written("ab", 3)), (1, c), (0, a), (0, end), (0, None)]


def test_calls_are_pieces_after_the_text_before_them() -> None:
    writer = Writer(TAGS)
    begun, more = CallPiece(0, "call_1", "clock"), CallPiece(0, arguments='{"a": 1')
    assert writer.feed(Written("<thi", 1)) is None
    assert writer.feed(Called(begun)) == Delta(text="<thi", call=begun)
    assert writer.feed(Called(more)) == Delta(call=more)
    assert writer.calls == 1


@pytest.mark.parametrize(
    ("reason", "rest", "finish"),
    [("stop_token", "}", "tool_calls"), ("end_filter", "}", "tool_calls"), ("stop_string", "}", "tool_calls"),
     ("stop_string", "", "stop"), ("max_tokens", "", "length"), ("max_tokens", "}", "length")],
)  # fmt: skip
def test_reasons_of_calls(reason: str, rest: str, finish: str) -> None:
    writer = Writer(TAGS)
    for piece in (CallPiece(0, "a", "clock", "{}"), CallPiece(1, "b", "x", "{"), CallPiece(1, "", "", rest)):
        writer.feed(Called(piece))
    writer.feed(Ended(reason, "", Stats()))
    assert writer.finish_reason == finish


def test_neighbouring_pieces_of_one_call_are_joined() -> None:
    pieces = (
        CallPiece(0, "a", "f", ""),
        CallPiece(0, arguments='{"a'),
        CallPiece(0, arguments='":1}'),
        CallPiece(1, "b", "g", "{}"),
    )
    found = list(joined([(0, Called(piece)) for piece in pieces]))
    assert found == [(0, Called(CallPiece(0, "a", "f", '{"a":1}'))), (0, Called(pieces[3]))]
    assert found[0][1].weight > 192
