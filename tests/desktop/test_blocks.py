"""The splitter: any way of cutting a text gives the same blocks, and no character is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from desktop.blocks import Block, BlockSplitter, Kind, split, split_plain
from desktop.blocks.lines import PIECE, list_marker, piece_length
from desktop.blocks.splitter import LIMIT

LINES = [
    "word", "two words  ", "", "", "   ", "# Head", "## Head ##", "```", "```python", "   ```", "~~~",
    "~~~~ js",
    "- item", "* item", "-", "1. one",
    "2) two", "   - nested", "    deep", "\ttab", "> quote", ">", "> - in quote", "---", "***", "- - -",
    "===",
    "| a | b |", "|---|:-:|", "| 1 | 2 |",
    "a | b", "--|--", "|", "|-", "<think>", "</think>", "<thinking>hm</thinking> yes", "text </think> rest",
    " <think> a", "<",
    "``", "x\r", "x" * 700,
    "y " * 1500, "漢字。" * 900, "`code` ``` no fence", "1. ```py", "- ~~~", "\u2028", "a\\|b | c",
    "$$", "$$ x $$", "$$ x $$ and", "\\[", "\\]", "\\begin{align}", "\\end{align}.", "x $$ then", "   $$",
    "   \\[ y \\],", "[^1]: note",
    "[^a]:", "$", "\\",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(LINES), max_size=14).map("\n".join) | st.text(
    alphabet="a -*#>`~|:\n<thik/>1.)", max_size=60
)


def kinds(text: str) -> list[str]:
    return [block.kind.value for block in split(text) if block.kind is not Kind.MARKUP]


def only(text: str, kind: Kind) -> Block:
    [found] = [block for block in split(text) if block.kind is kind]
    return found


@pytest.mark.slow
@settings(max_examples=400)
@given(TEXTS, st.data())
def test_any_cut_gives_the_blocks_of_the_whole(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    splitter = BlockSplitter()
    seen: list[Block] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        splitter.feed(text[start:end])
        assert list(splitter.closed[: len(seen)]) == seen, "a closed block changed"
        seen = list(splitter.closed)
        assert "".join(block.source for block in splitter.blocks()) == text[:end]
        for block in splitter.blocks():
            assert isinstance(block.body, str)
    assert all(block.closed for block in splitter.closed)
    assert splitter.blocks(ended=True) == split(text)


@settings(max_examples=200)
@given(TEXTS)
def test_sources_joined_are_the_text_and_no_block_is_empty(text: str) -> None:
    blocks = split(text)
    assert "".join(block.source for block in blocks) == text
    assert all(block.source and block.closed for block in blocks)


@settings(max_examples=100)
@given(TEXTS, st.integers(1, 300))
def test_plain_text_is_cut_without_loss(text: str, limit: int) -> None:
    pieces = split_plain(text, limit)
    assert "".join(pieces) == text
    assert all(len(piece) <= limit + 2 * PIECE for piece in pieces)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One\ntwo\n\nthree", ["prose", "prose"]),
        ("# Title\nText", ["heading", "prose"]),
        ("Title\n---\nText", ["heading", "prose"]),
        ("Text\n\n---\nText", ["prose", "rule", "prose"]),
        ("- - -\n- a", ["rule", "list"]),
        ("Text\n- a\n- b\n\n  more of b\n\nEnd", ["prose", "list", "prose"]),
        ("- a\n\n- b\n\n1. c\n2. d", ["list", "list"]),
        ("The year was\n1984. Good.", ["prose"]),
        ("Steps:\n1. a\n2. b", ["prose", "list"]),
        ("> a\nlazy\n\n> b", ["quote", "quote"]),
        ("> ```\n> x\n> ```\nlazy", ["quote"]),
        ("a | b\n--|--\n1 | 2\nafter", ["table", "prose"]),
        ("intro\n| a | b |\n|---|---|\n| 1 | 2 |\n\nafter", ["prose", "table", "prose"]),
        ("| not a table |", ["prose"]),
        ("| a | b |\nno dashes", ["prose"]),
        ("```c`x``` inline\n# Title", ["prose", "heading"]),
        ("~~~\n```\n# no title\n~~~\n", ["code"]),
        ("````\n```\n````\nx", ["code", "prose"]),
        ("<think>\nhm\n\n- a\n</think>\n\nYes", ["thinking", "prose", "list", "prose"]),
        ("<think>hm</think>Yes", ["thinking", "prose", "prose"]),
        ("Say <think> here", ["prose"]),
        ("```\n<think>\n```", ["code"]),
        ("1. a\n   ```sh\n   ls\n   ```\n   then\n2. b\n", ["list", "code", "prose", "list"]),
        ("1. ```sh\n   ls\n   ```\n2. b\n", ["code", "list"]),
        ("- a\n\n  ---\n  b\n", ["list"]),
        ("a | b\nc - d | e", ["prose"]),
        ("<think>\n[a]: http://x.y\n</think>\nYes", ["thinking", "prose", "prose"]),
    ],
)
def test_kinds(text: str, expected: list[str]) -> None:
    assert kinds(text) == expected


def test_items_of_another_kind_begin_another_list() -> None:
    text = "- a\n\n- b\n\n1. c\n\n2. d\n\n* e\n"
    assert [block.source.split() for block in split(text)] == [
        ["-", "a", "-", "b"], ["1.", "c", "2.", "d"], ["*", "e"],
    ]  # fmt: skip


def test_a_long_line_is_cut_at_a_space_and_not_before_it_is_long() -> None:
    assert piece_length("word " * PIECE) == PIECE - PIECE % 5 + 5
    assert piece_length("x" * (PIECE + 9) + "\nmore") == PIECE + 10
    assert piece_length("x" * (PIECE + 9)) == 0  # its end may still come
    assert piece_length("x" * 3 * PIECE) == 2 * PIECE


def test_code_body_is_the_code_without_fences_and_list_indentation() -> None:
    block = only("- a\n  ```python\n  def f():\n      pass\n\n  ```\n", Kind.CODE)
    assert block.language == "python"
    assert block.body == "def f():\n    pass\n"
    assert only("```\n```", Kind.CODE).body == ""
    assert only("```rust,ignore\nlet x;", Kind.CODE).body == "let x;"


def test_a_fence_that_is_still_arriving_does_not_show_in_the_code() -> None:
    splitter = BlockSplitter()
    splitter.feed("```\nlet x;\n``")
    [block] = splitter.blocks()
    assert not block.closed
    assert block.body == "let x;"
    splitter = BlockSplitter()
    splitter.feed("```py")
    assert "".join(block.body for block in splitter.blocks()) == ""


@pytest.mark.parametrize("half", ["<thi", "-", "##", "``", "1."])
def test_half_markers_are_held_back_until_they_are_known(half: str) -> None:
    splitter = BlockSplitter()
    splitter.feed("Text\n\n" + half)
    assert [block.kind for block in splitter.blocks()] == [Kind.PROSE, Kind.MARKUP]
    assert splitter.blocks(ended=True)[-1].kind is not Kind.MARKUP


def test_a_closing_tag_that_is_still_arriving_does_not_show() -> None:
    splitter = BlockSplitter()
    splitter.feed("<think>hm</thi")
    shown = [block for block in splitter.blocks() if block.kind is Kind.PROSE]
    assert [block.body for block in shown] == ["hm"]
    assert shown[0].thought


def test_tags_of_thinking_are_a_parameter() -> None:
    text = "[MUSE]a[/MUSE]b"
    assert [block.kind for block in split(text)] == [Kind.PROSE]
    blocks = split(text, [("[MUSE]", "[/MUSE]")])
    assert [(block.kind, block.thought) for block in blocks] == [
        (Kind.THINKING, True),
        (Kind.PROSE, True),
        (Kind.MARKUP, True),
        (Kind.PROSE, False),
    ]


def test_a_table_shows_from_its_first_line_and_with_a_complete_row_of_dashes() -> None:
    splitter = BlockSplitter()
    splitter.feed("| a | b |\n|--")
    [block] = splitter.blocks()
    assert block.kind is Kind.TABLE
    assert block.body == "| a | b |\n| -- | --- |\n"


def test_a_bar_inside_a_line_begins_no_table() -> None:
    only("one | two", Kind.PROSE)
    only("| one", Kind.PROSE)


def test_the_body_of_a_quote_has_no_markers() -> None:
    assert only("> a\n> > b\n>c\n", Kind.QUOTE).body == "a\n> b\nc\n"


def test_long_blocks_are_cut_and_marked_as_continued() -> None:
    words = "word " * 8000
    rows = "| a | b |\n|---|---|\n" + "".join(f"| {i} | {'x' * 50} |\n" for i in range(400))
    items = "".join(f"{i}. {'x' * 50}\n" for i in range(1, 400))
    quote = "> some quoted text that is long enough\n" * 400
    lines = "a line of a very long paragraph\n" * 800
    for text, kind in (
        (words, Kind.PROSE),
        (rows, Kind.TABLE),
        (items, Kind.LIST),
        (quote, Kind.QUOTE),
        (lines, Kind.PROSE),
    ):
        blocks = split(text)
        assert len(blocks) > 2
        assert {block.kind for block in blocks} == {kind}
        assert all(len(block.source) <= 8192 for block in blocks)
        assert [block.joined for block in blocks] == [False] + [True] * (len(blocks) - 1)
    for block in split(rows):
        assert block.body.startswith("| a | b |\n| --- | --- |\n") or block.body.startswith("| a | b |\n|---")


def test_a_long_footnote_is_cut_and_none_of_it_is_lost() -> None:
    text = "[^1]: " + "a line of a long footnote\n" * 400
    blocks = split(text)
    assert "".join(block.source for block in blocks) == text
    assert [(block.kind, block.joined) for block in blocks[:2]] == [
        (Kind.FOOTNOTE, False), (Kind.PROSE, True),
    ]  # fmt: skip
    assert all(len(block.source) <= 4096 for block in blocks)


def test_a_cut_paragraph_does_not_turn_into_a_list() -> None:
    text = "word " * (LIMIT // 5 + 1) + "\n2. not an item\n"
    first, second = split(text)
    assert (first.kind, second.kind, second.joined) == (Kind.PROSE, Kind.PROSE, True)
    assert second.source == "2. not an item\n"
    assert list_marker(second.body) is None


def test_qt_is_not_needed() -> None:
    code = "import sys, desktop.blocks; sys.exit(any(name.startswith('PySide6') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


WORDS = "A word and another one. " * 120


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"1. {WORDS}\n2. second\n", [("list", 0), ("prose", 2), ("list", 0)]),
        (
            f"- a\n- {WORDS}\n\n  more of it\n\nafter\n",
            [("list", 0), ("prose", 2), ("prose", 2), ("prose", 0)],
        ),
        (f"- {WORDS}\nlazy\n- next\n\nafter\n", [("list", 0), ("prose", 2), ("list", 0), ("prose", 0)]),
        ("- a\n" + "   in a line\n" * 300 + "- b\n", [("list", 0), ("prose", 3), ("list", 0)]),
        (f"{WORDS}\n2. no list\n", [("prose", 0), ("prose", 0)]),
    ],
)
def test_the_rest_of_a_long_item_stays_in_its_list(text: str, found: list[tuple[str, int]]) -> None:
    """A list is cut where it gets long, in the middle of an item, too; what follows it is still a list."""
    blocks = split(text)
    assert [(block.kind.value, block.indent) for block in blocks] == found
    assert "".join(block.source for block in blocks) == text


NESTED = """1. one
   - a
     - deep
       ```sh
       ls
       ```
     text
   - [ ] b
2. two
   ```
   x
   ```
- other

end
"""


def test_what_follows_code_in_a_list_knows_its_depth() -> None:
    """An item that is further left than the code above it belongs to a list around that one."""
    blocks = split(NESTED)
    assert [(block.kind.value, block.source.split()[0], block.depth) for block in blocks] == [
        ("list", "1.", 0),
        ("code", "```sh", 3),
        ("prose", "text", 2),
        ("list", "-", 1),
        ("list", "2.", 0),
        ("code", "```", 1),
        ("list", "-", 0),
        ("prose", "end", 0),
    ]
    assert "".join(block.source for block in blocks) == NESTED


def test_code_belongs_to_the_item_whose_text_begins_one_column_later() -> None:
    for text, depths in (
        ("- a\n  ```\n  x\n  ```\n", [0, 1]),
        ("- a\n   1. b\n     ```\n     x\n     ```\n", [0, 2]),
    ):
        assert [block.depth for block in split(text)] == depths
