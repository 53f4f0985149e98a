"""A reply that is still written: open marks are closed where it ends, and what has been shown stays."""

from __future__ import annotations

import re

import pytest

from desktop.blocks import BlockSplitter, Kind, mark_spans
from desktop.blocks.parser import parse_table
from desktop.blocks.unfinished import may_be_formula, settled, withholds
from tests.desktop.blocks.test_parser import words

_TAG = re.compile(r"</?[a-z#][^<>]*>")
REPLY = (
    '**Rivers:** a *short* list of `facts` from [the `atlas` of *1998*](https://example.org/a_b(c) "At")'
    ", with ~~no~~ few errors.[^1] ***All*** of it costs $5 or $6, H<sub>2</sub>O is __water__, $a_1*b$ is a "
    "product \\(x*y\\) of 2 * 3, 2*3, 2**3, snake_case_word \\*stars\\* ![a picture](f.png) ``a ` b`` [end]."
)


def shown(source: str, growing: bool = True) -> str:
    return words(mark_spans(source)[0], growing)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("a **bo", "a <strong>bo</strong>"),
        ("a **bold*", "a <strong>bold</strong>"),
        ("a **bold *it", "a <strong>bold <em>it</em></strong>"),
        ("***all", "<em><strong>all</strong></em>"),
        ("**「重要", "<strong>「重要</strong>"),
        ("**a _b** c", "<strong>a _b</strong> c"),  # not open at the end
        ("~~gone", "<s>gone</s>"),
        ("H<sub>2", "H<sub>2</sub>"),
        ("a **", "a"),
        ("a `", "a"),
        ("a <su", "a"),
        ("`x = [1](2", "x = [1](2"),
        ("**see [the `docs`](http://exa", "<strong>see <a #>the docs</a></strong>"),
        ("a ![pic](fil", "a"),
        ("so[^1", "so"),
        ("so $x_1 + y", "so"),
        ("so \\(x + ", "so"),
        ("- **one**\n- **two", "<strong>one</strong><strong>two</strong>"),
        ("2 *3, 2**3, ~5 km, 5 < 6", "2 *3, 2**3, ~5 km, 5 < 6"),
        ("it costs $5 and", "it costs $5 and"),
        ("set $PATH to your folder", "set $PATH to your folder"),
        ("array[3", "array[3"),
        ("Dear [Your", "Dear"),
        ("Dear [Your name],", "Dear [Your name],"),
    ],
)
def test_open_marks_are_closed_where_the_text_ends(source: str, result: str) -> None:
    assert shown(source) == result


def test_what_has_been_shown_stays() -> None:
    whole = shown(REPLY, growing=False)
    result = _TAG.sub("", whole)
    for end in range(1, len(REPLY) + 1):
        assert result.startswith(_TAG.sub("", shown(REPLY[:end]))), REPLY[:end]
    assert shown(REPLY) == whole


def test_the_last_cell_of_a_table_is_closed() -> None:
    rows = parse_table("| a | b |\n| --- | --- |\n| **x | y |\n| **bold | |\n", growing=True)
    assert "strong_open" in [child.type for child in rows[-1][0].children]
    assert "".join(child.content for child in rows[-1][0].children) == "bold"
    assert "".join(child.content for child in rows[1][0].children) == "**x"


def test_long_text_after_a_backtick_is_no_code() -> None:
    text = "a ` and " + "words " * 60
    assert settled(text) == text.rstrip(" ") or settled(text) == text
    assert not withholds(text)
    assert withholds("see [a](http")


@pytest.mark.parametrize(
    "part",
    ["a [b ", "[", "[a](", "[a](b '", "![a](", "`a ", "``a` ", "\\(a ", "\\", "*", "_a", "$x ", "<", "[^"],
)
@pytest.mark.timeout(60)
def test_no_text_takes_long(part: str) -> None:
    text = part * (20_000 // len(part))
    assert settled(text).startswith(text[: len(text) // 2])


@pytest.mark.timeout(60)
def test_an_address_with_many_brackets_is_tried_once() -> None:
    text = "[a](" + "(xyz" * 300 + " b"
    assert settled(text) == text


def test_a_table_is_one_from_its_second_cell_on() -> None:
    text = "Figures:\n\n| Name | Value |\n|:-----|------:|\n| one | 1 |\n"
    begun = text.index("Value")
    for end in range(1, len(text) + 1):
        splitter = BlockSplitter()
        splitter.feed(text[:end])
        kinds = [block.kind for block in splitter.blocks() if block.kind is not Kind.MARKUP]
        assert kinds == ([Kind.PROSE, Kind.TABLE] if end > begun else [Kind.PROSE]), text[:end]
        assert "".join(block.source for block in splitter.blocks()) == text[:end]


@pytest.mark.parametrize("piece", ["[a ", "$a ", "![a ", "<", "\\(", "[^"])
def test_only_a_few_marks_are_withheld_however_many_are_open(piece: str) -> None:
    text = "Words " + piece * 700
    assert len(text) - len(settled(text)) <= 20


@pytest.mark.parametrize(
    ("latex", "formula"),
    [
        ("", True),
        (r"\frac{\text{total cost of all}}{n} = \sin x \cos y + \operatorname{arg max}_x", True),
        ("\\begin{align*}\na &= b \\\\\n c &= d \\quad\\text{where it is n", True),
        ("is what I want", False),
        ("a = b\n\nSo we", False),
        ("x + " * 400, False),
    ],
)
def test_a_formula_is_awaited_while_it_looks_like_one(latex: str, formula: bool) -> None:
    assert may_be_formula(latex) is formula
