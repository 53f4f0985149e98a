"""Math in blocks and in lines: what is a formula, what stays text, and that an unclosed formula
does no harm.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desktop.blocks import BlockSplitter, Kind, SpanKind, mark_spans, split
from desktop.blocks.open_block import MATH_LIMIT


def shown(text: str) -> list[tuple[str, str]]:
    return [(block.kind.value, block.body.strip()) for block in split(text) if block.kind is not Kind.MARKUP]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$$\nx\n$$", [("math", "x")]),
        ("$$ x = 1 $$", [("math", "x = 1")]),
        ("\\[ x \\].", [("math", "x.")]),
        ("\\[\nx\n\n= y\n\\]\nafter", [("math", "x\n\n= y"), ("prose", "after")]),
        ("before\n$$x\n= y$$ after", [("prose", "before"), ("math", "x\n= y"), ("prose", "after")]),
        ("\\begin{align*}\na &= b\n\\end{align*}", [("math", "\\begin{align*}\na &= b\n\\end{align*}")]),
        ("$$ x $$ is a formula", [("prose", "$$ x $$ is a formula")]),
        ("1. step\n   $$\n   x\n   $$\n2. more", [("list", "1. step"), ("math", "x"), ("list", "2. more")]),
        ("$$$ is a sign", [("prose", "$$$ is a sign")]),
        ("```\n$$\nx\n$$\n```", [("code", "$$\nx\n$$")]),
        (
            "$$\nnot closed\n\n# Head\n\n- a",
            [("prose", "$$\nnot closed"), ("heading", "# Head"), ("list", "- a")],
        ),
        ("<think>\n$$\nx\n</think>\nYes", [("thinking", ""), ("prose", "$$\nx"), ("prose", "Yes")]),
    ],
)
def test_display_math(text: str, expected: list[tuple[str, str]]) -> None:
    assert shown(text) == expected


def test_an_unclosed_formula_becomes_text_and_the_rest_is_split_as_usual() -> None:
    splitter = BlockSplitter()
    splitter.feed("$$\n")
    assert [block.kind for block in splitter.blocks()] == [Kind.MATH]
    splitter.feed("a line of words\n" * (MATH_LIMIT // 16 + 1) + "\n# Head\n")
    assert Kind.MATH not in [block.kind for block in splitter.blocks()]
    assert Kind.HEADING in [block.kind for block in splitter.closed]


def test_half_a_closing_sign_does_not_show() -> None:
    splitter = BlockSplitter()
    splitter.feed("\\[\nx\n\\")
    assert "".join(block.body for block in splitter.blocks()) == "x"
    splitter.feed("]\n")
    assert [(block.kind, block.body) for block in splitter.closed] == [(Kind.MATH, "x")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$x$", ["x"]),
        ("the $n$th, \\(a_b\\)!", ["n", "a_b"]),
        ("$$a$$ and \\[b\\]", ["a", "b"]),
        ("costs $5 or $10", []),
        ("US$5 and A$6, $20,000 and $30,000 in all", []),
        ("$5-$10", []),
        ("`$x$` and ``a`$y$``", []),
        ("\\$x\\$ stays", []),
        ("$ x $", []),
        ("$a\nb$", ["a\nb"]),
        ("$a\n\nb$", []),
        ("$\\$5$", ["\\$5"]),
        ("**$x$** ($y$)", ["x", "y"]),
        ("a \\\\( b", []),
        ("$\\text{a}$ 😀 $\\beta$", ["\\text{a}", "\\beta"]),
        ("设$x$为未知数，则$$x^2=4$$。", ["x", "x^2=4"]),
        ("وقيمة ق$x^2$", ["x^2"]),
        ("été$x$", []),
        ("花了$5，省了$3。", []),
        ("価格は$5です。$x$と$y$", ["x", "y"]),
        ("有$2$个，共$5\\text{元}$，或$5π$", ["2", "5\\text{元}", "5π"]),
        ("$2,000 each for two, or US$ 5. But $3x$ and $7 mod n$", ["3x", "7 mod n"]),
    ],
)
def test_inline_math(text: str, found: list[str]) -> None:
    marked, spans = mark_spans(text)
    assert [spans[letter].content for letter in marked if letter in spans] == found


@settings(max_examples=300)
@given(st.text(alphabet="$\\()[]^!` ab1\n\ue000\ue001", max_size=80))
def test_marks_are_the_only_change(text: str) -> None:
    marked, spans = mark_spans(text)
    assert not any(mark in text for mark in spans)
    assert "".join(spans[letter].source if letter in spans else letter for letter in marked) == text


@pytest.mark.parametrize(
    "piece", ["$a", "$1 ab", "\\(", "\\[a", "$$a", "[^", "![", "![a](", "`", "``a", "$\\", "![a](" + "(" * 3]
)
def test_hostile_text_does_not_take_long(piece: str) -> None:
    text = piece * (4096 // len(piece))
    start = time.process_time()
    mark_spans(text)
    assert time.process_time() - start < 0.5


def test_footnote_references_and_pictures_are_spans() -> None:
    marked, spans = mark_spans(
        'text[^1] ![a cat](/tmp/a b.png) ![b](<C:/x y.png> "t") ![c](/tmp/c_(1).png) [^2]: no'
    )
    assert [(span.kind, span.content) for span in spans.values()] == [
        (SpanKind.FOOTNOTE, "1"), (SpanKind.IMAGE, "C:/x y.png"), (SpanKind.IMAGE, "/tmp/c_(1).png"),
    ]  # fmt: skip
    assert "[^2]: no" in marked


def test_footnotes_are_blocks_with_a_label() -> None:
    blocks = [
        block
        for block in split("Text[^a].\n\n[^a]: The note\ngoes on\n[^b]: Next\n\n    indented\n")
        if block.kind is not Kind.MARKUP
    ]
    notes = [block for block in blocks if block.kind is Kind.FOOTNOTE]
    assert [(note.label, note.body) for note in notes] == [("a", "The note\ngoes on"), ("b", "Next")]
