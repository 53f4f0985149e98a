"""A chat as pieces for printing: what each shows, where long tables are cut, and which way they are read."""

from __future__ import annotations

import re

import pytest

from desktop.store.conversations.records import NOTEBOOK
from desktop.store.transfer.exporters.print import (
    CODE_LINES,
    LIST_ITEMS,
    PLAIN_CHARACTERS,
    TABLE_ROWS,
    Piece,
    print_pieces,
)
from desktop.store.transfer.records import ConversationRecord, MessageRecord


def printed(text: str, role: str = "assistant", **more: object) -> list[Piece]:
    message = MessageRecord("a", None, role, text)
    record = ConversationRecord("here", "k", messages=(message,), **{"title": "Title"} | more)  # type: ignore[arg-type]
    return [*print_pieces(record)]


def words(piece: Piece) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", piece.html).split())


def rows(piece: Piece) -> list[list[str]]:
    return [
        re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"(?s)<tr>(.*?)</tr>", piece.html)
    ]


def test_the_head_and_the_system_prompt_come_first() -> None:
    found = printed("Yes.", created_at=1e9, system_prompt="Be <brief>.")
    assert [words(piece) for piece in found[:4]] == [
        "Title",
        found[1].html[16:-4],
        "System prompt",
        "Be &lt;brief&gt;.",
    ]
    assert [piece.keeps for piece in found] == [True, True, True, False, True, False]
    assert (found[3].bar, words(found[-1])) == (True, "Yes.")
    notebook = printed("*Once* upon", kind=NOTEBOOK, system_prompt="Be brief.")
    assert [words(piece) for piece in notebook] == ["Title", "*Once* upon"]
    assert words(printed("Yes.", title=" \n")[0]) == "Chat"


def test_a_heading_stays_with_what_follows_it() -> None:
    heading, below = printed("## Part\n\nWords.")[-2:]
    assert (words(heading), heading.keeps, words(below)) == ("Part", True, "Words.")
    assert heading.before > below.before


def test_long_tables_are_cut_between_rows_and_each_part_has_the_head() -> None:
    lines = [f"|{n}|x|" for n in range(2 * TABLE_ROWS + 1)]
    parts = [piece for piece in printed("|n|b|\n|-|-|\n" + "\n".join(lines)) if "<table" in piece.html]
    assert [rows(part)[0] for part in parts] == [["n", "b"]] * 3
    found = [row for part in parts for row in rows(part)[1:]]
    assert found == [[str(n), "x"] for n in range(2 * TABLE_ROWS + 1)]
    assert [len(rows(part)) - 1 for part in parts] == [TABLE_ROWS, TABLE_ROWS, 1]
    (whole,) = [
        piece for piece in printed("|n|b|\n|-|-|\n" + "\n".join(lines[:TABLE_ROWS])) if "<table" in piece.html
    ]
    assert len(rows(whole)) == TABLE_ROWS + 1


def test_long_code_and_lists_are_cut_without_a_gap() -> None:
    lines = [f"line {n}" for n in range(2 * CODE_LINES + 1)]
    parts = printed("```\n" + "\n".join(lines) + "\n```")[2:]
    assert "\n".join(re.sub(r"<[^>]*>", "", part.html) for part in parts) == "\n".join(lines)
    assert [len(part.html.split("\n")) for part in parts] == [CODE_LINES, CODE_LINES, 1]
    assert [(part.before, part.begins, part.ends) for part in parts] == [
        (9.0, True, False), (0.0, False, False), (0.0, False, True),
    ]  # fmt: skip
    (whole,) = printed("```\n" + "\n".join(lines[:CODE_LINES]) + "\n```")[2:]
    assert (whole.begins, whole.ends) == (True, True)
    parts = printed("".join(f"{n}. item\n" for n in range(7, 7 + LIST_ITEMS + 1)))[2:]
    assert [part.html.count("<li>") for part in parts] == [LIST_ITEMS, 1]
    assert [re.findall(r'start="(\d+)"', part.html) for part in parts] == [["7"], [str(7 + LIST_ITEMS)]]
    assert [part.before for part in parts] == [8.0, 0.0]


def test_long_text_as_typed_is_cut_at_lines_then_words_then_anywhere() -> None:
    most = PLAIN_CHARACTERS
    line, word = "a" * (most - 9), "b" * (most - 5)
    parts = printed(f"{line}\n{word} {'c' * most}\nd e", "user")[2:]
    assert [re.findall(r"<p>(.*?)</p>", part.html) for part in parts] == [
        [line], [word], [" " + "c" * (most - 1)], ["c", "d e"],
    ]  # fmt: skip
    assert [(part.before, part.begins, part.ends) for part in parts] == [
        (5.0, True, False), (0.0, False, False), (0.0, False, False), (0.0, False, True),
    ]  # fmt: skip


def test_tables_in_a_script_from_right_to_left_begin_at_the_right() -> None:
    (table,) = [piece for piece in printed("|אחד|שתיים|\n|-|-|\n|1|2|") if "<table" in piece.html]
    assert 'align="right"' in table.html
    assert rows(table) == [["שתיים", "אחד"], ["2", "1"]]
    (table,) = [piece for piece in printed("|1 one|שתיים|\n|-|-|\n|1|2|") if "<table" in piece.html]
    assert 'align="right"' not in table.html
    assert rows(table) == [["1 one", "שתיים"], ["1", "2"]]


@pytest.mark.parametrize(
    ("role", "text", "marks"),
    [("user", "Why?\nWell", ["Why? Well"]), ("user", " ", ["…"]), ("assistant", "Because.", [])],
)
def test_questions_are_entries_of_the_outline(role: str, text: str, marks: list[str]) -> None:
    assert [piece.mark for piece in printed(text, role) if piece.mark] == marks


def test_lines_and_introductions() -> None:
    found = printed("Like this:\n\n- a\n\n---\n\nEnd.\n\n> said")
    kinds = {words(piece): piece for piece in found}
    assert (kinds["Like this:"].keeps, kinds["End."].keeps) == (True, False)
    assert (kinds["said"].bar, kinds["End."].bar) == (True, False)
    assert [piece.html for piece in found].count("<hr>") == 1


LONG_TABLE = "|n|b|\n|-|-|\n" + "|1|x|\n" * (TABLE_ROWS + 1)


@pytest.mark.parametrize("text", ["> a\n>\n> > b", "- x\n\n  > y\n\n- z", "> - q\n>   > r", LONG_TABLE])
def test_elements_of_quotes_and_tables_are_closed_in_order(text: str) -> None:
    for piece in printed(text):
        open_ = list[str]()
        for slash, name in re.findall(r"<(/?)(blockquote|table|thead|tbody|tr|th|td|ul|li|p)\b", piece.html):
            if slash:
                assert open_.pop() == name
            else:
                open_.append(name)
        assert not open_


def test_formulas_of_a_piece_are_numbered() -> None:
    found = printed("One $$a$$, two $$b$$\n\n$$c$$")
    assert [words(piece) for piece in found[-2:]] == ["One , two", ""]
    assert [re.findall(r'src="formula:(\d)"', piece.html) for piece in found[-2:]] == [["0", "1"], ["0"]]
    assert [[span.content for span in piece.formulas] for piece in found[-2:]] == [["a", "b"], ["c"]]


def test_a_long_list_is_cut_between_its_own_items_and_not_within_a_list_inside() -> None:
    count = LIST_ITEMS + 2
    text = "".join(f"{n}. item{n}\n    - inner{n}\n    - more{n}\n" for n in range(1, count + 1))
    parts = [piece for piece in printed(text) if "<ol" in piece.html]
    assert [re.findall(r"item(\d+)", part.html)[0] for part in parts] == ["1", str(LIST_ITEMS + 1)]
    assert f'<ol start="{LIST_ITEMS + 1}"' in parts[1].html
    assert re.findall(r"(?:item|inner|more)\d+", "".join(part.html for part in parts)) == [
        f"{word}{n}" for n in range(1, count + 1) for word in ("item", "inner", "more")
    ]
    assert all(part.html.count("<ul") == part.html.count("</ul") for part in parts)


def test_only_the_first_part_of_a_typed_text_has_space_above_it() -> None:
    found = [piece for piece in printed("Yes.", system_prompt="a line of the prompt\n" * 400) if piece.bar]
    assert len(found) > 1
    assert [piece.before for piece in found] == [8.0] + [0.0] * (len(found) - 1)
    assert [piece.begins for piece in found] == [True] + [False] * (len(found) - 1)
    assert [piece.ends for piece in found] == [False] * (len(found) - 1) + [True]
